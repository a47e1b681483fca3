//! Rows of table `Bridge`.

use super::{ControllerRecord, Feature, FlowTableRecord, MirrorRecord, PortRecord, SFlowRecord, Smap};
use crate::schema::BRIDGE;
use sluice_ovsdb::{Replica, Row, Uuid};
use std::collections::{BTreeMap, BTreeSet};

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
    /// The OpenFlow versions that it speaks; empty: all.
    pub protocols: Vec<String>,
    /// Its tables that have a row, by number.
    pub flow_tables: BTreeMap<i64, FlowTableRecord>,
    /// Its controllers, by UUID.
    pub controllers: Vec<ControllerRecord>,
    /// Its mirrors, by UUID.
    pub mirrors: Vec<MirrorRecord>,
    /// How it is to be sampled.
    pub sflow: Option<SFlowRecord>,
    /// The VLANs in which it learns no addresses.
    pub flood_vlans: BTreeSet<i64>,
    /// What it asks for and this build lacks.
    pub lacking: Vec<Feature>,
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
            protocols: row.get::<Vec<&str>>("protocols").into_iter().map(str::to_owned).collect(),
            flow_tables: FlowTableRecord::read_all(replica, row),
            controllers: ControllerRecord::read_all(replica, row),
            mirrors: MirrorRecord::read_all(replica, row),
            sflow: SFlowRecord::read_of(replica, row),
            flood_vlans: row.get::<Vec<i64>>("flood_vlans").into_iter().collect(),
            lacking: Feature::of_bridge(row),
            other_config: Smap::read(row, "other_config"),
            ports: PortRecord::read_all(replica, row),
        }
    }
}
