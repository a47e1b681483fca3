//! Which megaflows a change may affect, found by what their translations looked up.
//!
//! Each megaflow is filed under the MAC entries, ports, groups and meters that its translation looked up and under the
//! tables that it searched. That alone would not do for rules that packets teach: every packet searches their table. So
//! a mask whose rules keep changing in a table gets an index: the megaflows that searched the table are filed under
//! the value that a rule of this mask must have to match their search, or, if the search left bits of the mask open,
//! under the mask. `Changes::affect` decides about what is found; the index may find too much, never too little.
//!
//! **Freshness.** The store notes which megaflows became live, one bit each, which is all that a PMD pays. A change and
//! a revalidation file them before they look. So each installation costs one filing, and a change costs what depends on
//! it, not what there is. Entries of megaflows that have gone are recognised by their number and swept out when they are
//! as many as the others.

use crate::bridge_config::BridgeId;
use crate::changed_rules::{RulesOfMask, TableChanges, WordMask, known, search_value};
use crate::depends::Changes;
use crate::search_key::SearchKey;
use crate::xlate_cache::{Dependency, XcEntry, XlateCache};
use sluice_action::{ALLOCATION_BYTES, FlowCharge, FlowId, MegaflowStore};
use sluice_flow::{Mac, PacketKey};
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;

/// Masks of changing rules that have an index, over all tables. Each costs the megaflows that searched its table a
/// posting.
const MASKS_MAX: usize = 8;

/// A mask gets an index when its rules change again before as many other masks have changed.
const RECENT_MAX: usize = 16;

/// Postings of megaflows that have gone are left until they are as many as the others, and that many more.
const STALE_MAX: usize = 4096;

/// What a translation looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Tag {
    /// Searched a table.
    Search(BridgeId, u8),
    /// Searched a table with a key that a rule of an indexed mask matches if it has the value with this hash.
    Value {
        mask: u32,
        hash: u64,
    },
    /// Searched a table with a key of which not all bits under an indexed mask are known.
    Open {
        mask: u32,
    },
    MacEntry(BridgeId, u16, Mac),
    Other(BridgeId, Dependency),
}

/// A megaflow under a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Posting {
    id: FlowId,
    /// The number of its filing: a later one, or its deletion, makes the posting stale.
    filing: u32,
}

/// The filing of a megaflow id that counts.
#[derive(Clone, Copy, Debug, Default)]
struct Filed {
    filing: u32,
    postings: u32,
}

/// A mask whose rules keep changing in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TableMask {
    bridge: BridgeId,
    table: u8,
    words: Vec<WordMask>,
}

#[derive(Debug)]
struct IndexedMask {
    serial: u32,
    of: TableMask,
    /// The number of the change that used it last.
    used: u64,
}

/// The index.
#[derive(Debug, Default)]
pub(crate) struct DependencyIndex {
    postings: HashMap<Tag, Vec<Posting>>,
    /// Of all lists; and those of them that are not stale.
    total: usize,
    current: usize,
    filed: Vec<Filed>,
    masks: Vec<IndexedMask>,
    /// Masks that changed lately and have no index, the last one at the end.
    recent: VecDeque<TableMask>,
    next_serial: u32,
    changes: u64,
    hasher: RandomState,
    charge: FlowCharge,
}

impl DependencyIndex {
    /// Files the megaflows that became live since the last call.
    pub fn catch_up(&mut self, store: &dyn MegaflowStore) {
        store.take_fresh(&mut |id, mask, xcache| {
            self.forget(id);
            if let Some(record) = xcache.0.downcast_ref::<XlateCache>() {
                self.file(id, mask, record);
            }
        });
        if self.charge.is_unbound() {
            self.charge = FlowCharge::new(Some(store.memory()), 0);
        }
        self.sweep();
    }

    /// The megaflows that the changes may affect; `None` if that may be all.
    pub fn candidates(&mut self, changes: &Changes, store: &dyn MegaflowStore) -> Option<Vec<FlowId>> {
        if changes.everything || !changes.bridges.is_empty() {
            return None;
        }
        self.changes += 1;
        let mut tags = Vec::new();
        for table in &changes.tables {
            self.tags_of_table(table, store, &mut tags);
        }
        tags.extend(changes.mac_entries.iter().map(|&(bridge, vlan, mac)| Tag::MacEntry(bridge, vlan, mac)));
        for &(bridge, what) in &changes.dependencies {
            tags.push(Tag::Other(bridge, what));
            if let Dependency::Port(_) = what {
                tags.push(Tag::Other(bridge, Dependency::AllPorts));
            }
        }
        let mut found = Vec::new();
        tags.iter().for_each(|tag| self.find(tag, &mut found));
        found.sort_unstable();
        found.dedup();
        Some(found)
    }

    /// A megaflow has gone. The caller has kept the index locked since before it removed it, so that the id is not
    /// another one's already.
    pub fn forget(&mut self, id: FlowId) {
        if let Some(filed) = self.filed.get_mut(id.0 as usize) {
            self.current -= filed.postings as usize;
            *filed = Filed { filing: filed.filing.wrapping_add(1), postings: 0 };
        }
    }

    /// Files a megaflow under everything that its translation looked up, as `Changes::affect` reads it.
    fn file(&mut self, id: FlowId, mask: &PacketKey, record: &XlateCache) {
        for entry in record.lock().entries() {
            match entry {
                XcEntry::Table { bridge, table, key, .. } => {
                    self.post(Tag::Search(*bridge, *table), id);
                    self.post(Tag::Other(*bridge, Dependency::Port(key.in_port)), id);
                    for at in 0..self.masks.len() {
                        let IndexedMask { serial, of, .. } = &self.masks[at];
                        if (of.bridge, of.table) == (*bridge, *table) {
                            let tag = self.tag_of_search(*serial, &of.words, mask, record, key);
                            self.post(tag, id);
                        }
                    }
                }
                XcEntry::MacLookup { bridge, vlan, mac } => self.post(Tag::MacEntry(*bridge, *vlan, *mac), id),
                XcEntry::Depends { bridge, on } => self.post(Tag::Other(*bridge, *on), id),
                XcEntry::Recirculation(recirculation) => {
                    self.post(Tag::Other(recirculation.frozen.bridge, Dependency::AllPorts), id);
                }
                _ => {}
            }
        }
    }

    fn tag_of_search(
        &self,
        serial: u32,
        words: &[WordMask],
        mask: &PacketKey,
        record: &XlateCache,
        key: &SearchKey,
    ) -> Tag {
        let value = if key.is_open { None } else { search_value(words, |place| known(record, mask, key, place)) };
        match value {
            Some(value) => Tag::Value { mask: serial, hash: self.hasher.hash_one(&value[..]) },
            None => Tag::Open { mask: serial },
        }
    }

    fn post(&mut self, tag: Tag, id: FlowId) {
        let at = id.0 as usize;
        if at >= self.filed.len() {
            self.filed.resize(at + 1, Filed::default());
        }
        let filed = &mut self.filed[at];
        let posting = Posting { id, filing: filed.filing };
        let list = self.postings.entry(tag).or_default();
        // One megaflow is filed at a time: if it is in the list already, it is the last.
        if list.last() != Some(&posting) {
            list.push(posting);
            filed.postings += 1;
            self.total += 1;
            self.current += 1;
        }
    }

    /// Adds the megaflows of a tag, and drops stale postings from its list.
    fn find(&mut self, tag: &Tag, found: &mut Vec<FlowId>) {
        let Some(list) = self.postings.get_mut(tag) else { return };
        let before = list.len();
        let filed = &self.filed;
        list.retain(|posting| is_current(filed, posting));
        self.total -= before - list.len();
        found.extend(list.iter().map(|posting| posting.id));
        if list.is_empty() {
            self.postings.remove(tag);
        }
    }

    /// The tags of the megaflows that changed rules of a table may affect.
    fn tags_of_table(&mut self, table: &TableChanges, store: &dyn MegaflowStore, tags: &mut Vec<Tag>) {
        let search = Tag::Search(table.bridge, table.table);
        tags.push(Tag::Other(table.bridge, Dependency::TableCapacity(table.table)));
        let Some(rules) = table.rules() else { return tags.push(search) };
        for rules in rules {
            match self.indexed(table, rules, store) {
                Some(mask) => {
                    tags.push(Tag::Open { mask });
                    let hashes = rules.values.iter().map(|value| self.hasher.hash_one(&value[..]));
                    tags.extend(hashes.map(|hash| Tag::Value { mask, hash }));
                }
                None => tags.push(search),
            }
        }
    }

    /// The index of a mask, made now if its rules keep changing.
    fn indexed(&mut self, table: &TableChanges, rules: &RulesOfMask, store: &dyn MegaflowStore) -> Option<u32> {
        let of = TableMask { bridge: table.bridge, table: table.table, words: rules.mask.clone() };
        if let Some(mask) = self.masks.iter_mut().find(|mask| mask.of == of) {
            mask.used = self.changes;
            return Some(mask.serial);
        }
        if of.words.is_empty() {
            return None;
        }
        let Some(at) = self.recent.iter().position(|recent| *recent == of) else {
            if self.recent.len() == RECENT_MAX {
                self.recent.pop_front();
            }
            self.recent.push_back(of);
            return None;
        };
        self.recent.remove(at);
        if self.masks.len() == MASKS_MAX {
            self.drop_oldest_mask();
        }
        Some(self.add_mask(of, store))
    }

    /// Files the megaflows that searched a table under a mask, too.
    fn add_mask(&mut self, of: TableMask, store: &dyn MegaflowStore) -> u32 {
        let serial = self.next_serial;
        self.next_serial += 1;
        let mut searched = Vec::new();
        self.find(&Tag::Search(of.bridge, of.table), &mut searched);
        // A suspended one is filed when it is resumed.
        store.suspend(Some(&searched), &mut |id, mask, xcache| {
            let Some(record) = xcache.0.downcast_ref::<XlateCache>() else { return false };
            for entry in record.lock().entries() {
                match entry {
                    XcEntry::Table { bridge, table, key, .. } if (*bridge, *table) == (of.bridge, of.table) => {
                        let tag = self.tag_of_search(serial, &of.words, mask, record, key);
                        self.post(tag, id);
                    }
                    _ => {}
                }
            }
            false
        });
        self.masks.push(IndexedMask { serial, of, used: self.changes });
        serial
    }

    fn drop_oldest_mask(&mut self) {
        let oldest = self.masks.iter().enumerate().min_by_key(|(_, mask)| mask.used).map(|(at, _)| at);
        let Some(IndexedMask { serial, .. }) = oldest.map(|at| self.masks.swap_remove(at)) else { return };
        let is_of = |tag: &Tag| matches!(*tag, Tag::Value { mask, .. } | Tag::Open { mask } if mask == serial);
        let (filed, mut dropped, mut dropped_current) = (&mut self.filed, 0, 0);
        self.postings.retain(|tag, list| {
            if is_of(tag) {
                dropped += list.len();
                for posting in list.iter().filter(|posting| is_current(filed, posting)).collect::<Vec<_>>() {
                    filed[posting.id.0 as usize].postings -= 1;
                    dropped_current += 1;
                }
            }
            !is_of(tag)
        });
        self.total -= dropped;
        self.current -= dropped_current;
    }

    /// Drops stale postings if they are many, and charges what remains.
    pub fn sweep(&mut self) {
        if self.total > 2 * self.current + STALE_MAX {
            let filed = &self.filed;
            self.postings.retain(|_, list| {
                list.retain(|posting| is_current(filed, posting));
                list.shrink_to_fit();
                !list.is_empty()
            });
            self.postings.shrink_to_fit();
            self.total = self.current;
        }
        self.charge.set(self.bytes());
    }

    /// Its memory, with as many stale postings as current ones.
    fn bytes(&self) -> u64 {
        let lists = self.postings.len() * (2 * size_of::<(Tag, Vec<Posting>)>() + ALLOCATION_BYTES);
        let fixed = size_of_val(&*self.filed);
        (lists + fixed + 2 * self.current * size_of::<Posting>()) as u64
    }
}

fn is_current(filed: &[Filed], posting: &Posting) -> bool {
    filed[posting.id.0 as usize].filing == posting.filing
}
