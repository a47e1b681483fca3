//! Megaflows, and the interface of a candidate.

use hashbrown::HashTable;
use sluice_flow::layout::{self, Span};

/// Lines 0 and 1 of a key as words: what the workloads vary.
pub type Words = [u64; 16];

/// A megaflow: a mask, and the key under it.
#[derive(Clone, Copy, PartialEq)]
pub struct Flow {
    pub mask: Words,
    pub key: Words,
}

impl Flow {
    pub fn matches(&self, key: &Words) -> bool {
        self.mask.iter().zip(&self.key).zip(key).all(|((mask, want), have)| have & mask == *want)
    }
}

/// A way to find a key's megaflow. `flows` is the arena: an index keeps ids only.
pub trait Search {
    fn name(&self) -> &'static str;
    fn insert(&mut self, flows: &[Flow], id: u32);
    fn remove(&mut self, flows: &[Flow], id: u32);
    /// Prepares the lookup of these keys. Each call of the returned closure looks all of them up.
    fn find_all<'a>(&'a mut self, flows: &'a [Flow], keys: &'a [Words]) -> Box<dyn FnMut() -> Vec<Option<u32>> + 'a>;
    /// Work that is done about once a second.
    fn tidy(&mut self) {}
    /// The number of a flow that was found.
    fn number(&self, found: u32) -> u32 {
        found
    }
    /// How many hash tables were asked for hits since the last call, if known.
    fn take_probes(&mut self) -> Option<u64> {
        None
    }
}

/// The prefix fields that the candidates prune by.
pub const FIELDS: [Span; 6] =
    [layout::NW_SRC, layout::NW_DST, layout::TP_SRC, layout::TP_DST, layout::IPV6_SRC, layout::IPV6_DST];

/// A field's bits, the first in bit 127.
#[inline]
pub fn value(words: &Words, span: Span) -> u128 {
    let first = u128::from(words[span.offset / 8].swap_bytes() << (span.offset % 8 * 8)) << 64;
    match span.size {
        16 => first | u128::from(words[span.offset / 8 + 1].swap_bytes()),
        size => first & !(u128::MAX >> (size * 8)),
    }
}

/// The length of the prefix with which a mask's bits of a field begin; bits behind it prune nothing.
pub fn prefix_len(mask: &Words, span: Span) -> u8 {
    value(mask, span).leading_ones() as u8
}

/// A hash map of the flows that agree on `mask`, which their own masks include.
pub struct Subtable {
    touched: Vec<(usize, u64)>,
    pub mask: Words,
    ids: HashTable<(u32, u32)>,
}

fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Subtable {
    pub fn new(mask: Words) -> Self {
        let touched = mask.iter().copied().enumerate().filter(|(_, bits)| *bits != 0).collect();
        Subtable { touched, mask, ids: HashTable::new() }
    }

    #[inline]
    fn hash(&self, key: &Words) -> u32 {
        let hash = self.touched.iter().fold(0x5bd1_e995_u64, |hash, &(at, bits)| {
            let wide = u128::from(hash ^ key[at] & bits) * 0xe703_7ed1_a0b4_28db;
            wide as u64 ^ (wide >> 64) as u64
        });
        (hash >> 32) as u32
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The number of flows with the hash of this key.
    pub fn crowd(&self, key: &Words) -> usize {
        let hash = self.hash(key);
        self.ids.iter_hash(spread(hash)).filter(|(h, _)| *h == hash).count()
    }

    pub fn insert(&mut self, flows: &[Flow], id: u32) {
        let hash = self.hash(&flows[id as usize].key);
        self.ids.insert_unique(spread(hash), (hash, id), |&(h, _)| spread(h));
    }

    /// Whether it was there.
    pub fn remove(&mut self, flows: &[Flow], id: u32) -> bool {
        let hash = self.hash(&flows[id as usize].key);
        self.ids.find_entry(spread(hash), |&(_, other)| other == id).map(|entry| entry.remove()).is_ok()
    }

    #[inline]
    pub fn find(&self, flows: &[Flow], key: &Words) -> Option<u32> {
        let hash = self.hash(key);
        let same = |&(h, id): &(u32, u32)| h == hash && flows[id as usize].matches(key);
        self.ids.find(spread(hash), same).map(|&(_, id)| id)
    }
}
