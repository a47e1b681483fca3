//! Rows of table `Port`.

use super::{InterfaceRecord, QosRecord, Smap};
use crate::schema::PORT;
use sluice_ovsdb::{Replica, Row, Uuid};
use std::collections::BTreeSet;

/// A port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortRecord {
    /// Its row.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// The VLAN of an access port, or the native one.
    pub tag: Option<i64>,
    /// The VLANs of a trunk; empty: all.
    pub trunks: BTreeSet<i64>,
    /// The customers' VLANs of a tunnel; empty: all.
    pub cvlans: BTreeSet<i64>,
    /// How it carries VLANs.
    pub vlan_mode: Option<String>,
    /// Whether it does not talk to other protected ports.
    pub protected: bool,
    /// How it spreads traffic over several interfaces.
    pub bond_mode: Option<String>,
    /// How long a link has to be up before it is used, ms.
    pub bond_updelay: i64,
    /// How long a link has to be down before it is not used any more, ms.
    pub bond_downdelay: i64,
    /// The address of the interface that was active last.
    pub bond_active_slave: Option<String>,
    /// Whether LACP is spoken: `active`, `passive` or `off`.
    pub lacp: Option<String>,
    /// The address that it stands for when its bridge chooses one.
    pub mac: Option<String>,
    /// What it may send, and by which queues.
    pub qos: Option<QosRecord>,
    /// Settings by key.
    pub other_config: Smap,
    /// Its interfaces, by name.
    pub interfaces: Vec<InterfaceRecord>,
}

impl PortRecord {
    /// The ports that a bridge refers to.
    pub(super) fn read_all(replica: &Replica, bridge: &Row<'_>) -> Vec<Self> {
        let ports: Vec<Uuid> = bridge.get("ports");
        ports.into_iter().filter_map(|uuid| replica.row(PORT, uuid)).map(|row| Self::read(replica, &row)).collect()
    }

    fn read(replica: &Replica, row: &Row<'_>) -> Self {
        let vlans = |column| row.get::<Vec<i64>>(column).into_iter().collect();
        let text = |column| row.get::<Option<&str>>(column).map(str::to_owned);
        PortRecord {
            uuid: row.uuid(),
            name: row.get::<&str>("name").to_owned(),
            tag: row.get("tag"),
            trunks: vlans("trunks"),
            cvlans: vlans("cvlans"),
            vlan_mode: text("vlan_mode"),
            protected: row.get("protected"),
            bond_mode: text("bond_mode"),
            bond_updelay: row.get("bond_updelay"),
            bond_downdelay: row.get("bond_downdelay"),
            bond_active_slave: text("bond_active_slave"),
            lacp: text("lacp"),
            mac: text("mac"),
            qos: QosRecord::of_port(replica, row),
            other_config: Smap::read(row, "other_config"),
            interfaces: InterfaceRecord::read_all(replica, row),
        }
    }
}
