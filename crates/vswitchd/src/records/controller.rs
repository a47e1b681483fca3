//! Rows of table `Controller`.

use crate::schema::CONTROLLER;
use sluice_ovsdb::{Replica, Row, Uuid};
use std::net::IpAddr;

/// A controller.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerRecord {
    /// Its row.
    pub uuid: Uuid,
    /// Where it is, or where to listen for it.
    pub target: String,
    /// `in-band` or `out-of-band`.
    pub connection_mode: Option<String>,
    /// The longest time between two attempts to connect, milliseconds.
    pub max_backoff: Option<i64>,
    /// Silence before it is probed, milliseconds; 0: it is not.
    pub inactivity_probe: Option<i64>,
    /// Packet-ins that wait for it at most.
    pub queue_size: Option<i64>,
    /// Packet-ins a second.
    pub rate_limit: Option<i64>,
    /// Packet-ins at once.
    pub burst_limit: Option<i64>,
    /// Whether it gets messages that it has not asked for.
    pub enable_async_messages: Option<bool>,
    /// The address of LOCAL by which it is reached.
    pub local_ip: Option<IpAddr>,
    /// `primary` or `service`.
    pub kind: Option<String>,
}

impl ControllerRecord {
    /// The controllers that a bridge refers to.
    pub(super) fn read_all(replica: &Replica, bridge: &Row<'_>) -> Vec<Self> {
        let uuids: Vec<Uuid> = bridge.get("controller");
        uuids.into_iter().filter_map(|uuid| replica.row(CONTROLLER, uuid)).map(|row| Self::read(&row)).collect()
    }

    fn read(row: &Row<'_>) -> Self {
        ControllerRecord {
            uuid: row.uuid(),
            target: row.get::<&str>("target").to_owned(),
            connection_mode: row.get::<Option<&str>>("connection_mode").map(str::to_owned),
            max_backoff: row.get("max_backoff"),
            inactivity_probe: row.get("inactivity_probe"),
            queue_size: row.get("controller_queue_size"),
            rate_limit: row.get("controller_rate_limit"),
            burst_limit: row.get("controller_burst_limit"),
            enable_async_messages: row.get("enable_async_messages"),
            local_ip: row.get::<Option<&str>>("local_ip").and_then(|text| text.parse().ok()),
            kind: row.get::<Option<&str>>("type").map(str::to_owned),
        }
    }
}
