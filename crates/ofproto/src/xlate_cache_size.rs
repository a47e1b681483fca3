//! How large an xlate cache is, and how a large one is kept small.
//!
//! A translation may search tables thousands of times, and a sender may make a megaflow of each of its packets. Entries
//! that say the same are merged into one that says it several times. If the keys of the searches still take much, those
//! of a table and input port are merged, too: then any change in the table asks the megaflow again.

use crate::bridge_config::BridgeId;
use crate::mac::LearnPacket;
use crate::search_key::SearchKey;
use crate::xlate_cache::{Dependency, XcEntry, XlateCache};
use sluice_action::ALLOCATION_BYTES;
use sluice_flow::{CompactKey, Mac, OfPort};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Fewer entries are left as they are: most translations have no more.
const MERGED_FROM: usize = 64;

/// The keys of searches may take that many bytes of a megaflow.
const KEYS_MAX: usize = 8 << 10;

/// What makes entries the same.
#[derive(PartialEq, Eq, Hash)]
enum Same {
    /// The rule, and the bytes of tunnel headers that its packets have: they count for its bytes.
    Rule(usize, i32),
    Table {
        bridge: BridgeId,
        table: u8,
        matched: bool,
        key: SearchKey,
    },
    Depends(BridgeId, Dependency),
    MacLookup(BridgeId, u16, Mac),
    MacLearn(BridgeId, u16, Mac, OfPort, LearnPacket),
}

/// The memory of an xlate cache with this key and no entries.
pub(crate) fn bytes_of(key: &CompactKey) -> u64 {
    let further = if key.further_bytes() == 0 { 0 } else { key.further_bytes() + ALLOCATION_BYTES };
    (size_of::<XlateCache>() + further + 2 * ALLOCATION_BYTES) as u64
}

/// The memory of these entries.
pub(crate) fn entries_bytes(entries: &[XcEntry]) -> u64 {
    (size_of_val(entries) + entries.iter().map(further_bytes).sum::<usize>()) as u64
}

/// What an entry keeps outside its list and shares with no rule, group or port.
fn further_bytes(entry: &XcEntry) -> usize {
    match entry {
        XcEntry::Table { key, .. } => key.further_bytes(),
        XcEntry::Learn { flow, .. } => ALLOCATION_BYTES + flow.bytes(),
        _ => 0,
    }
}

/// The entries of a translation, those that say the same as one.
pub(crate) fn merge(entries: Vec<XcEntry>) -> Box<[XcEntry]> {
    if entries.len() < MERGED_FROM {
        return entries.into_boxed_slice();
    }
    let merged = merge_by(entries, |key| key.clone());
    let keys: usize = merged.iter().map(|entry| if is_search(entry) { further_bytes(entry) } else { 0 }).sum();
    let merged = if keys > KEYS_MAX { merge_by(merged, |key| SearchKey::open(key.in_port)) } else { merged };
    merged.into_boxed_slice()
}

fn is_search(entry: &XcEntry) -> bool {
    matches!(entry, XcEntry::Table { .. })
}

/// Merges lookups that are the same, rules that are the same, and searches of a table whose keys are the same as `key_of` tells them.
fn merge_by(entries: Vec<XcEntry>, key_of: impl Fn(&SearchKey) -> SearchKey) -> Vec<XcEntry> {
    let mut places = HashMap::new();
    let mut merged: Vec<XcEntry> = Vec::new();
    let mut header = 0;
    for mut entry in entries {
        let (same, more) = match &mut entry {
            XcEntry::Rule { rule, times } => (Same::Rule(Arc::as_ptr(rule).addr(), header), *times),
            XcEntry::Table { bridge, table, matched, key, times, .. } => {
                *key = key_of(key);
                (Same::Table { bridge: *bridge, table: *table, matched: *matched, key: key.clone() }, *times)
            }
            XcEntry::Depends { bridge, on } => (Same::Depends(*bridge, *on), 1),
            XcEntry::MacLookup { bridge, vlan, mac } => (Same::MacLookup(*bridge, *vlan, *mac), 1),
            XcEntry::MacLearn { bridge, vlan, mac, port, packet } => {
                (Same::MacLearn(*bridge, *vlan, *mac, *port, *packet), 1)
            }
            _ => {
                if let XcEntry::TunnelHeader(more) = entry {
                    header += i32::from(more);
                }
                merged.push(entry);
                continue;
            }
        };
        match places.entry(same) {
            Entry::Vacant(place) => {
                place.insert(merged.len());
                merged.push(entry);
            }
            Entry::Occupied(place) => {
                if let XcEntry::Rule { times, .. } | XcEntry::Table { times, .. } = &mut merged[*place.get()] {
                    *times += more;
                }
            }
        }
    }
    merged
}
