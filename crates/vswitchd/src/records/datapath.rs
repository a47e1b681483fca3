//! Rows of table `Datapath`, with their conntrack zones.

use crate::schema::{CT_TIMEOUT_POLICY, CT_ZONE, DATAPATH};
use sluice_ovsdb::{Replica, Row, Uuid};
use std::collections::BTreeMap;

/// A datapath.
#[derive(Clone, Debug, PartialEq)]
pub struct DatapathRecord {
    /// Its row.
    pub uuid: Uuid,
    /// Its type.
    pub kind: String,
    /// The timeouts of its conntrack zones, in seconds by name; a zone without a policy has none.
    pub ct_zones: BTreeMap<i64, BTreeMap<String, i64>>,
}

impl DatapathRecord {
    /// The datapaths that a row of table `Open_vSwitch` refers to.
    pub(super) fn read_all(replica: &Replica, open_vswitch: &Row<'_>) -> Vec<Self> {
        let datapaths: BTreeMap<&str, Uuid> = open_vswitch.get("datapaths");
        let rows = datapaths.into_iter().filter_map(|(kind, uuid)| Some((kind, replica.row(DATAPATH, uuid)?)));
        rows.map(|(kind, row)| Self::read(replica, kind, &row)).collect()
    }

    fn read(replica: &Replica, kind: &str, row: &Row<'_>) -> Self {
        let zones: BTreeMap<i64, Uuid> = row.get("ct_zones");
        let ct_zones = zones.into_iter().map(|(zone, uuid)| (zone, timeouts(replica, uuid))).collect();
        DatapathRecord { uuid: row.uuid(), kind: kind.to_owned(), ct_zones }
    }
}

fn timeouts(replica: &Replica, zone: Uuid) -> BTreeMap<String, i64> {
    let policy = replica.row(CT_ZONE, zone).and_then(|row| row.get::<Option<Uuid>>("timeout_policy"));
    let Some(policy) = policy.and_then(|uuid| replica.row(CT_TIMEOUT_POLICY, uuid)) else { return BTreeMap::new() };
    let timeouts: BTreeMap<&str, i64> = policy.get("timeouts");
    timeouts.into_iter().map(|(name, seconds)| (name.to_owned(), seconds)).collect()
}
