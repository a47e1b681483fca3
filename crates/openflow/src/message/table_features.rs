//! The features of this switch's tables and groups: everything that this crate can read and write.

use super::groups::GroupFeatures;
use super::switch::TableFeatures;
use crate::Version;
use crate::action::standard_actions;
use crate::oxm::{Numbering, put_header};
use crate::wire::Writer;
use sluice_flow::field::{FIELDS, Field};

/// Numbers of properties; those for packets that no flow matches are one higher.
const INSTRUCTIONS: u16 = 0;
const NEXT_TABLES: u16 = 2;
const WRITE_ACTIONS: u16 = 4;
const APPLY_ACTIONS: u16 = 6;
const MATCH: u16 = 8;
const WILDCARDS: u16 = 10;
const WRITE_SET_FIELD: u16 = 12;
const APPLY_SET_FIELD: u16 = 14;

/// The number of an instruction that the last table lacks.
const GOTO_TABLE: u16 = 1;

impl TableFeatures {
    /// A table that can do everything, of `n_tables`, for `max_entries` flows.
    pub fn of_everything(table: u8, n_tables: u8, max_entries: u32, version: Version) -> Self {
        let last_instruction = if version == Version::V15 { 5 } else { 6 };
        let instructions = (1..=last_instruction).filter(|n| *n != GOTO_TABLE || table + 1 < n_tables);
        let instructions = numbers(instructions);
        let actions = numbers(standard_actions(version));
        let next: Vec<u8> = (table + 1..n_tables).collect();
        let writable = fields(version, |f| f.writable.then_some(false));
        let mut properties = Vec::new();
        for miss in [0, 1] {
            properties.push((INSTRUCTIONS + miss, instructions.clone()));
            properties.push((NEXT_TABLES + miss, next.clone()));
            properties.push((WRITE_ACTIONS + miss, actions.clone()));
            properties.push((WRITE_SET_FIELD + miss, writable.clone()));
            properties.push((APPLY_ACTIONS + miss, actions.clone()));
            properties.push((APPLY_SET_FIELD + miss, writable.clone()));
        }
        properties.push((MATCH, fields(version, |f| Some(f.maskable))));
        properties.push((WILDCARDS, fields(version, |_| Some(false))));
        TableFeatures {
            table,
            metadata_match: u64::MAX,
            metadata_write: u64::MAX,
            max_entries,
            properties,
            ..TableFeatures::default()
        }
    }
}

/// The largest number of groups there can be: as many as there are numbers. Source: OpenFlow 1.1, `OFPG_MAX`.
const GROUPS_MAX: u32 = sluice_ofp::GROUP_MAX;

/// Weights and liveness select buckets, and buckets send to other groups. Source: OpenFlow 1.2, `OFPGFC_*`.
const GROUP_CAPABILITIES: u32 = 0x7;

impl GroupFeatures {
    /// Groups of all four kinds, whose buckets can do everything.
    pub fn of_everything(version: Version) -> Self {
        let actions = standard_actions(version).fold(0, |bits, n| bits | 1 << n);
        GroupFeatures {
            kinds: 0xf,
            capabilities: GROUP_CAPABILITIES,
            max_groups: [GROUPS_MAX; 4],
            actions: [actions; 4],
        }
    }
}

/// A list of numbers, each with the length of its item.
fn numbers(all: impl Iterator<Item = u16>) -> Vec<u8> {
    let mut w = Writer::default();
    all.for_each(|n| {
        w.u16(n);
        w.u16(4);
    });
    w.bytes
}

/// A list of fields' headers; `f` says whether a field is among them, and whether with a mask.
fn fields(version: Version, f: impl Fn(&Field) -> Option<bool>) -> Vec<u8> {
    let mut w = Writer::default();
    for field in &FIELDS {
        if let Some(has_mask) = f(field) {
            put_header(field, has_mask, Numbering::Oxm(version), &mut w);
        }
    }
    w.bytes
}
