//! A bridge's tables that have a row. Source: Open vSwitch vswitchd/bridge.c, `bridge_configure_tables`.

use super::Plan;
use crate::records::{BridgeRecord, FlowTableRecord};
use sluice_flow::text::{Piece, value::parse_subfield};
use sluice_ofproto::{TableConfig, TrieField};

/// Largest number of a table that a bridge can have a row for.
const TABLE_MAX: i64 = 253;

impl Plan {
    /// The tables of a bridge that differ from the usual ones.
    pub(super) fn tables(&mut self, record: &BridgeRecord) -> Vec<TableConfig> {
        let known = record.flow_tables.iter().filter(|(number, _)| (0..=TABLE_MAX).contains(*number));
        known.map(|(number, table)| self.table(record, *number as u8, table)).collect()
    }

    fn table(&mut self, bridge: &BridgeRecord, number: u8, record: &FlowTableRecord) -> TableConfig {
        let mut groups = Vec::new();
        for group in &record.groups {
            match parse_subfield(Piece::new(group)) {
                Ok(bits) => groups.push(bits),
                Err(_) => {
                    let text = format!("bridge {} table {number}: error parsing 'groups' ({group})", bridge.name);
                    self.warn(text);
                }
            }
        }
        TableConfig {
            name: record.name.clone().unwrap_or_default(),
            flow_limit: record.flow_limit.and_then(|limit| usize::try_from(limit).ok()),
            evicts: record.overflow_policy.as_deref() == Some("evict"),
            groups,
            prefixes: self.prefixes(bridge, record),
            ..TableConfig::new(number)
        }
    }

    /// The fields with a prefix trie; `None`: the usual ones.
    fn prefixes(&mut self, bridge: &BridgeRecord, record: &FlowTableRecord) -> Option<Vec<TrieField>> {
        if record.prefixes.iter().any(|name| name == "none") {
            return Some(Vec::new());
        }
        let mut fields = Vec::new();
        for name in &record.prefixes {
            match TrieField::named(name) {
                Some(field) => fields.push(field),
                None => self.warn(format!("bridge {}: 'prefixes' with unknown field: {name}", bridge.name)),
            }
        }
        (!fields.is_empty()).then_some(fields)
    }
}
