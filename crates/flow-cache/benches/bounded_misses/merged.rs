//! A candidate that lost: fewer tables, after TupleMerge. A flow is stored in a table with a coarser mask, whose prefix
//! lengths are rounded down to a few steps, and is verified under its own mask. So the number of tables is bounded for
//! any masks, but flows that differ only in the dropped bits share a hash; beyond a limit they get tables of their own.

use crate::search::{FIELDS, Flow, Search, Subtable, Words};
use sluice_flow::layout::Span;
use std::collections::HashMap;

/// The most flows under one hash of a shared table. Source: TupleMerge (Daly et al., ToN 2019), which uses 40.
const CROWD: usize = 40;

pub struct Merged {
    tables: Vec<Subtable>,
    by_mask: HashMap<Words, usize>,
    /// The table each flow is in.
    home: HashMap<u32, Words>,
}

impl Merged {
    pub fn new() -> Self {
        Merged { tables: Vec::new(), by_mask: HashMap::new(), home: HashMap::new() }
    }

    fn table(&mut self, mask: Words) -> usize {
        *self.by_mask.entry(mask).or_insert_with(|| {
            self.tables.push(Subtable::new(mask));
            self.tables.len() - 1
        })
    }
}

/// Bits of a step: a byte of an address, half of a port, 16 bits of an IPv6 address.
fn step(span: Span) -> u32 {
    if span.size == 16 { 16 } else { 8 }
}

/// The mask with the prefixes of the fields rounded down.
fn coarse(mask: &Words) -> Words {
    let mut out = *mask;
    for span in FIELDS {
        let len = crate::search::prefix_len(mask, span) as u32 / step(span) * step(span);
        let keep = !(u128::MAX.checked_shr(len).unwrap_or(0));
        for i in 0..span.size {
            let at = span.offset + i;
            let byte = (keep >> (120 - 8 * i)) as u8;
            out[at / 8] &= !(0xff << (at % 8 * 8)) | u64::from(byte) << (at % 8 * 8);
        }
    }
    out
}

impl Search for Merged {
    fn name(&self) -> &'static str {
        "merged"
    }

    fn insert(&mut self, flows: &[Flow], id: u32) {
        let flow = &flows[id as usize];
        let mut mask = coarse(&flow.mask);
        let shared = self.table(mask);
        let at = if self.tables[shared].crowd(&flow.key) < CROWD {
            shared
        } else {
            mask = flow.mask;
            self.table(mask)
        };
        self.tables[at].insert(flows, id);
        self.home.insert(id, mask);
    }

    fn remove(&mut self, flows: &[Flow], id: u32) {
        let mask = self.home.remove(&id).expect("it is in");
        let at = self.by_mask[&mask];
        self.tables[at].remove(flows, id);
        if self.tables[at].is_empty() {
            self.by_mask.remove(&mask);
            self.tables.swap_remove(at);
            if let Some(moved) = self.tables.get(at) {
                self.by_mask.insert(moved.mask, at);
            }
        }
    }

    fn find_all<'a>(&'a mut self, flows: &'a [Flow], keys: &'a [Words]) -> Box<dyn FnMut() -> Vec<Option<u32>> + 'a> {
        let find = |key| self.tables.iter().find_map(|table| table.find(flows, key));
        Box::new(move || keys.iter().map(find).collect())
    }
}
