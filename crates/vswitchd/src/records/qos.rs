//! Rows of tables `QoS` and `Queue`.

use super::Smap;
use crate::schema::{QOS, QUEUE};
use sluice_ovsdb::{Replica, Row, Uuid};
use std::collections::BTreeMap;

/// What a port may send, and by which queues.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QosRecord {
    /// Its type.
    pub kind: String,
    /// What its type wants to know.
    pub other_config: Smap,
    /// Its queues, by number.
    pub queues: BTreeMap<i64, QueueRecord>,
}

/// A queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueRecord {
    /// The DSCP with which its packets leave.
    pub dscp: Option<i64>,
    /// What the type wants to know of it.
    pub other_config: Smap,
}

impl QosRecord {
    /// The one that a port refers to.
    pub(super) fn of_port(replica: &Replica, port: &Row<'_>) -> Option<Self> {
        let row = replica.row(QOS, port.get::<Option<Uuid>>("qos")?)?;
        let queues: BTreeMap<i64, Uuid> = row.get("queues");
        let queues = queues.into_iter().filter_map(|(number, uuid)| Some((number, replica.row(QUEUE, uuid)?)));
        Some(QosRecord {
            kind: row.get::<&str>("type").to_owned(),
            other_config: Smap::read(&row, "other_config"),
            queues: queues.map(|(number, row)| (number, QueueRecord::read(&row))).collect(),
        })
    }
}

impl QueueRecord {
    fn read(row: &Row<'_>) -> Self {
        QueueRecord { dscp: row.get("dscp"), other_config: Smap::read(row, "other_config") }
    }
}
