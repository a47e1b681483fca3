//! Rows of table `Flow_Table`.

use crate::schema::FLOW_TABLE;
use sluice_ovsdb::{Replica, Row, Uuid};
use std::collections::BTreeMap;

/// A table of a bridge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowTableRecord {
    /// Its name.
    pub name: Option<String>,
    /// Rules at most.
    pub flow_limit: Option<i64>,
    /// `evict`, or else full tables refuse rules.
    pub overflow_policy: Option<String>,
    /// Fields whose values make groups of rules for eviction.
    pub groups: Vec<String>,
    /// Fields with a prefix trie.
    pub prefixes: Vec<String>,
}

impl FlowTableRecord {
    /// The tables that a bridge refers to, by number.
    pub(super) fn read_all(replica: &Replica, bridge: &Row<'_>) -> BTreeMap<i64, Self> {
        let tables: BTreeMap<i64, Uuid> = bridge.get("flow_tables");
        let rows = tables.into_iter().filter_map(|(number, uuid)| Some((number, replica.row(FLOW_TABLE, uuid)?)));
        rows.map(|(number, row)| (number, Self::read(&row))).collect()
    }

    fn read(row: &Row<'_>) -> Self {
        let texts = |column| row.get::<Vec<&str>>(column).into_iter().map(str::to_owned).collect();
        FlowTableRecord {
            name: row.get::<Option<&str>>("name").map(str::to_owned),
            flow_limit: row.get("flow_limit"),
            overflow_policy: row.get::<Option<&str>>("overflow_policy").map(str::to_owned),
            groups: texts("groups"),
            prefixes: texts("prefixes"),
        }
    }
}
