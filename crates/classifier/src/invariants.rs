//! Invariants of a classifier after any history that no other test would notice: leftovers in tries and priorities only
//! add bits to masks.

use crate::classifier::Classifier;
use crate::trie::Trie;
use proptest::prelude::*;
use proptest::sample::Index;
use sluice_flow::{Match, layout};
use std::collections::BTreeSet;

impl<R> Classifier<R> {
    /// Compares order, tries and counts with the rules.
    fn check(&self) {
        assert!(self.order.is_sorted());
        assert!(self.order.ranks().is_sorted_by_key(|rank| std::cmp::Reverse(rank.priority)));
        let mut destinations = Trie::<u32>::new();
        let mut seen = BTreeSet::new();
        for rank in self.order.ranks() {
            let rules: Vec<_> = self.rules.list(&self.subtable(rank.subtable).list).collect();
            assert_eq!(rules.iter().map(|rule| rule.priority()).max(), Some(rank.priority));
            for rule in rules {
                let matching = self.match_of(rule);
                let mask = matching.mask.number(layout::NW_DST) as u32;
                if mask != 0 && mask.leading_ones() == mask.count_ones() && seen.insert((rank.subtable, rule.entry)) {
                    destinations.insert(matching.key.number(layout::NW_DST) as u32, mask.leading_ones());
                }
            }
        }
        for value in [0, 1, 2, 3, 0x0a00_0001, 0x0a01_0001, 0x8000_0000, u32::MAX] {
            assert_eq!(self.tries[0].lookup_short(value), destinations.lookup(value), "value {value:#x}");
        }
    }
}

/// A match on a prefix of the destination and perhaps on a port.
fn matching(dst: u32, len: u32, port: Option<u16>) -> Match {
    let mut matching = Match::ANY;
    matching.mask.set_number(layout::NW_DST, !u64::from(u32::MAX.checked_shr(len).unwrap_or(0)));
    matching.key.set_number(layout::NW_DST, dst.into());
    if let Some(port) = port {
        matching.mask.set_number(layout::TP_DST, 0xffff);
        matching.key.set_number(layout::TP_DST, port.into());
    }
    Match::new(matching.mask, &matching.key)
}

proptest! {
    #[test]
    fn nothing_is_left_behind(steps in prop::collection::vec(
        (any::<bool>(), any::<Index>(), 0u32..4, 0u32..=32, prop::option::of(1u16..3), 0u32..6), 1..60,
    )) {
        let mut classifier = Classifier::default();
        let mut ids = Vec::new();
        for (remove, which, low, len, port, priority) in steps {
            if remove && !ids.is_empty() {
                classifier.remove(ids.swap_remove(which.index(ids.len())));
            } else {
                let dst = [0, 0x0a00_0000, 0x0a01_0000][which.index(3)] + low;
                let (id, displaced) = classifier.insert(&matching(dst, len, port), priority, 1, &[], ());
                ids.retain(|&old| displaced.as_ref().is_none_or(|displaced| old != displaced.id));
                ids.push(id);
            }
            classifier.check();
        }
    }
}
