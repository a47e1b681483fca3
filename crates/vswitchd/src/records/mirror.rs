//! Rows of table `Mirror`.

use crate::schema::{MIRROR, PORT};
use sluice_ovsdb::{Replica, Row, Uuid};
use std::collections::BTreeSet;

/// A mirror.
#[derive(Clone, Debug, PartialEq)]
pub struct MirrorRecord {
    /// Its row.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Whether it copies all packets of all ports.
    pub select_all: bool,
    /// The ports whose received packets it copies.
    pub select_src_port: Vec<PortRef>,
    /// The ports whose sent packets it copies.
    pub select_dst_port: Vec<PortRef>,
    /// The VLANs whose packets it copies; empty: all.
    pub select_vlan: BTreeSet<i64>,
    /// The port that its copies go to.
    pub output_port: Option<PortRef>,
    /// The VLAN that its copies go to.
    pub output_vlan: Option<i64>,
    /// Longest copy, bytes.
    pub snaplen: Option<i64>,
}

/// A row of table `Port` that a mirror names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRef {
    /// The row.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
}

impl MirrorRecord {
    /// The mirrors that a bridge refers to, by UUID.
    pub(super) fn read_all(replica: &Replica, bridge: &Row<'_>) -> Vec<Self> {
        let mirrors: Vec<Uuid> = bridge.get("mirrors");
        mirrors.into_iter().filter_map(|uuid| replica.row(MIRROR, uuid)).map(|row| Self::read(replica, &row)).collect()
    }

    fn read(replica: &Replica, row: &Row<'_>) -> Self {
        let port = |uuid| {
            let port = replica.row(PORT, uuid)?;
            Some(PortRef { uuid, name: port.get::<&str>("name").to_owned() })
        };
        let ports = |column| row.get::<Vec<Uuid>>(column).into_iter().filter_map(port).collect();
        MirrorRecord {
            uuid: row.uuid(),
            name: row.get::<&str>("name").to_owned(),
            select_all: row.get("select_all"),
            select_src_port: ports("select_src_port"),
            select_dst_port: ports("select_dst_port"),
            select_vlan: row.get::<Vec<i64>>("select_vlan").into_iter().collect(),
            output_port: row.get::<Option<Uuid>>("output_port").and_then(port),
            output_vlan: row.get("output_vlan"),
            snaplen: row.get("snaplen"),
        }
    }
}
