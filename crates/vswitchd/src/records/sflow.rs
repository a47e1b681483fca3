//! Rows of table `sFlow`.

use crate::schema::SFLOW;
use sluice_ovsdb::{Replica, Row, Uuid};

/// Samples of a bridge's packets and counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SFlowRecord {
    /// Where they go.
    pub targets: Vec<String>,
    /// One packet in this many is sampled.
    pub sampling: Option<i64>,
    /// Seconds between samples of counters.
    pub polling: Option<i64>,
    /// Bytes of a packet that are sampled.
    pub header: Option<i64>,
    /// The device, or the address, by which collectors know the switch.
    pub agent: Option<String>,
}

impl SFlowRecord {
    /// The row that a bridge refers to.
    pub(super) fn read_of(replica: &Replica, bridge: &Row<'_>) -> Option<Self> {
        let row = replica.row(SFLOW, bridge.get::<Option<Uuid>>("sflow")?)?;
        Some(SFlowRecord {
            targets: row.get::<Vec<&str>>("targets").into_iter().map(str::to_owned).collect(),
            sampling: row.get("sampling"),
            polling: row.get("polling"),
            header: row.get("header"),
            agent: row.get::<Option<&str>>("agent").map(str::to_owned),
        })
    }
}
