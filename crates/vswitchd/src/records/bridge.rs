//! Rows of table `Bridge`.

use super::{PortRecord, Smap};
use crate::schema::BRIDGE;
use sluice_ovsdb::{Replica, Row, Uuid};

/// A bridge.
#[derive(Clone, Debug, PartialEq)]
pub struct BridgeRecord {
    /// Its row.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Its datapath's type; empty: `system`.
    pub datapath_type: String,
    /// `secure`, or else standalone.
    pub fail_mode: Option<String>,
    /// Settings by key.
    pub other_config: Smap,
    /// Its ports, by UUID.
    pub ports: Vec<PortRecord>,
}

impl BridgeRecord {
    /// The bridges that a row of table `Open_vSwitch` refers to.
    pub(super) fn read_all(replica: &Replica, open_vswitch: &Row<'_>) -> Vec<Self> {
        let bridges: Vec<Uuid> = open_vswitch.get("bridges");
        bridges.into_iter().filter_map(|uuid| replica.row(BRIDGE, uuid)).map(|row| Self::read(replica, &row)).collect()
    }

    fn read(replica: &Replica, row: &Row<'_>) -> Self {
        BridgeRecord {
            uuid: row.uuid(),
            name: row.get::<&str>("name").to_owned(),
            datapath_type: row.get::<&str>("datapath_type").to_owned(),
            fail_mode: row.get::<Option<&str>>("fail_mode").map(str::to_owned),
            other_config: Smap::read(row, "other_config"),
            ports: PortRecord::read_all(replica, row),
        }
    }
}
