//! Rows of table `Manager`.

use crate::schema::MANAGER;
use sluice_ovsdb::{Replica, Row, Uuid};

/// A client that ovsdb-server connects to. This program only keeps it reachable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerRecord {
    /// Where it is, or where to listen for it.
    pub target: String,
    /// `in-band` or `out-of-band`.
    pub connection_mode: Option<String>,
}

impl ManagerRecord {
    /// The managers that the row of table `Open_vSwitch` refers to.
    pub(super) fn read_all(replica: &Replica, open_vswitch: &Row<'_>) -> Vec<Self> {
        let uuids: Vec<Uuid> = open_vswitch.get("manager_options");
        let rows = uuids.into_iter().filter_map(|uuid| replica.row(MANAGER, uuid));
        let read = |row: Row<'_>| ManagerRecord {
            target: row.get::<&str>("target").to_owned(),
            connection_mode: row.get::<Option<&str>>("connection_mode").map(str::to_owned),
        };
        rows.map(read).collect()
    }
}
