//! A hash table that grows a few entries at a time.
//!
//! To double a table of a million entries takes tens of milliseconds, and the tables of rules are locked meanwhile. So from
//! [`SMALL`] entries on a full table is put aside, and each insertion moves a few of its buckets to one of twice the
//! size. Until all are moved, what is not found in the new table is looked for in the old one; after that there is none,
//! and a search costs one comparison more than in a plain table.

use crate::hash::spread;
use hashbrown::HashTable;

/// Entries up to which a table grows at once: that takes less than 100 µs.
#[cfg(not(test))]
const SMALL: usize = 4096;
#[cfg(test)]
const SMALL: usize = 4;

/// Buckets that an insertion moves. The new table has room for as many further entries as the old one has buckets, so two
/// would be enough.
const MOVED_AT_ONCE: usize = 4;

/// A hash of 32 bits, and a number that is found by it.
pub(crate) type HashEntry = (u32, u32);

/// Entries by their hash; several may have the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct GrowingTable {
    table: HashTable<HashEntry>,
    old: Option<Box<Outgrown>>,
}

/// A table whose entries move to a larger one.
#[derive(Clone, Debug)]
struct Outgrown {
    table: HashTable<HashEntry>,
    /// Buckets before this one are empty.
    next: usize,
}

impl GrowingTable {
    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty() && self.old.as_ref().is_none_or(|old| old.table.is_empty())
    }

    /// The number of an entry of that hash for which `is_it` holds.
    #[inline]
    pub fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let wanted = |entry: &HashEntry| entry.0 == hash && is_it(entry.1);
        let found = match self.table.find(spread(hash), wanted) {
            None => self.old.as_ref()?.table.find(spread(hash), wanted),
            found => found,
        };
        found.map(|entry| entry.1)
    }

    /// The number of the entry of that hash, to be changed.
    pub fn find_mut(&mut self, hash: u32) -> Option<&mut u32> {
        let wanted = |entry: &HashEntry| entry.0 == hash;
        if self.table.find(spread(hash), wanted).is_some() {
            return self.table.find_mut(spread(hash), wanted).map(|entry| &mut entry.1);
        }
        self.old.as_mut()?.table.find_mut(spread(hash), wanted).map(|entry| &mut entry.1)
    }

    /// Adds an entry, whether or not there is one of that hash.
    pub fn insert(&mut self, hash: u32, number: u32) {
        if self.old.is_some() {
            self.move_some();
        } else if self.table.len() >= SMALL && self.table.len() == self.table.capacity() {
            let larger = HashTable::with_capacity(2 * self.table.capacity());
            let table = std::mem::replace(&mut self.table, larger);
            self.old = Some(Box::new(Outgrown { table, next: 0 }));
        }
        self.table.insert_unique(spread(hash), (hash, number), |&(hash, _)| spread(hash));
    }

    /// Removes the entry of that hash for which `is_it` holds; whether there was one.
    pub fn remove(&mut self, hash: u32, is_it: impl Fn(u32) -> bool) -> bool {
        let wanted = |entry: &HashEntry| entry.0 == hash && is_it(entry.1);
        let tables = [Some(&mut self.table), self.old.as_mut().map(|old| &mut old.table)];
        tables.into_iter().flatten().any(|table| match table.find_entry(spread(hash), wanted) {
            Ok(entry) => {
                entry.remove();
                true
            }
            Err(_) => false,
        })
    }

    fn move_some(&mut self) {
        let Some(old) = &mut self.old else { return };
        let end = (old.next + MOVED_AT_ONCE).min(old.table.num_buckets());
        for bucket in old.next..end {
            if let Ok(entry) = old.table.get_bucket_entry(bucket) {
                let ((hash, number), _) = entry.remove();
                self.table.insert_unique(spread(hash), (hash, number), |&(hash, _)| spread(hash));
            }
        }
        old.next = end;
        if end == old.table.num_buckets() {
            self.old = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Beside a plain set, with hashes that several numbers have.
        #[test]
        fn it_holds_what_a_set_holds(steps in prop::collection::vec((0u8..8, 0u32..40, 0u32..6), 0..400)) {
            let (mut table, mut plain) = (GrowingTable::default(), BTreeSet::new());
            for (what, hash, number) in steps {
                let is_it = |found| found == number;
                if what < 6 {
                    if plain.insert((hash, number)) {
                        table.insert(hash, number);
                    }
                } else {
                    prop_assert_eq!(table.remove(hash, is_it), plain.remove(&(hash, number)));
                }
                prop_assert_eq!(table.is_empty(), plain.is_empty());
                for hash in 0..40 {
                    for number in 0..6 {
                        let there = plain.contains(&(hash, number)).then_some(number);
                        prop_assert_eq!(table.find(hash, |found| found == number), there);
                    }
                    let any = plain.range((hash, 0)..=(hash, u32::MAX)).next().is_some();
                    prop_assert_eq!(table.find_mut(hash).is_some(), any);
                }
            }
        }
    }

    /// However large the table, an insertion moves few entries, and the old table is gone before the new one is full.
    #[test]
    fn an_insertion_moves_few_entries() {
        let (mut table, mut before, mut grown) = (GrowingTable::default(), 0, 0);
        for n in 0..100_000_u32 {
            table.insert(n.wrapping_mul(0x9e37_79b9), n);
            let old = table.old.as_ref().map_or(0, |old| old.table.len());
            if old > before {
                assert_eq!(before, 0, "it grew again while it was growing");
                grown += 1;
            } else {
                assert!(before - old <= MOVED_AT_ONCE, "{before} {old}");
            }
            before = old;
        }
        assert!(grown > 10 && (0..100_000_u32).all(|n| table.find(n.wrapping_mul(0x9e37_79b9), |m| m == n).is_some()));
    }
}
