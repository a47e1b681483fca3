//! Rows of table `Interface`.

use super::{Feature, Smap};
use crate::schema::{INTERFACE, POLICING_COLUMNS};
use sluice_ovsdb::{Replica, Row, Uuid};

/// An interface: a network device of a port.
#[derive(Clone, Debug, PartialEq)]
pub struct InterfaceRecord {
    /// Its row.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Its type; empty: `system`.
    pub kind: String,
    /// What its type wants to know.
    pub options: Smap,
    /// Settings that no type needs to know.
    pub other_config: Smap,
    /// The OpenFlow number that it requests.
    pub ofport_request: Option<i64>,
    /// The OpenFlow number that it had last.
    pub ofport: Option<i64>,
    /// The MTU that it is to have.
    pub mtu_request: Option<i64>,
    /// The Ethernet address that it is to have if it is internal.
    pub mac: Option<String>,
    /// Its BFD session.
    pub bfd: Smap,
    /// What it may receive: kilobits a second and their burst, thousands of packets a second and their burst.
    pub policing: [i64; 4],
    /// What it asks for and this build lacks.
    pub lacking: Vec<Feature>,
}

impl InterfaceRecord {
    /// The interfaces that a port refers to, by name.
    pub(super) fn read_all(replica: &Replica, port: &Row<'_>) -> Vec<Self> {
        let uuids: Vec<Uuid> = port.get("interfaces");
        let rows = uuids.into_iter().filter_map(|uuid| replica.row(INTERFACE, uuid));
        let mut interfaces: Vec<Self> = rows.map(|row| Self::read(&row)).collect();
        interfaces.sort_by(|a, b| a.name.cmp(&b.name));
        interfaces
    }

    fn read(row: &Row<'_>) -> Self {
        InterfaceRecord {
            uuid: row.uuid(),
            name: row.get::<&str>("name").to_owned(),
            kind: row.get::<&str>("type").to_owned(),
            options: Smap::read(row, "options"),
            other_config: Smap::read(row, "other_config"),
            ofport_request: row.get("ofport_request"),
            ofport: row.get("ofport"),
            mtu_request: row.get("mtu_request"),
            mac: row.get::<Option<&str>>("mac").map(str::to_owned),
            bfd: Smap::read(row, "bfd"),
            policing: POLICING_COLUMNS.map(|column| row.get(column)),
            lacking: Feature::of_interface(row),
        }
    }
}
