//! The groups of a bridge, by number, in parts that copies share.
//!
//! A transaction works on a copy of the groups and puts it in their place. The copy shares all parts with the original
//! but those that it changes, so that a change costs a part's groups, and not all of them. Which part a group is in
//! depends on a secret: a controller cannot put all of its groups into one.

use crate::group::Group;
use sluice_simd::hash::splitmix64;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Parts; a power of two.
const PARTS: usize = 256;

type Part = BTreeMap<u32, Arc<Group>>;

/// Groups by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    /// None before the first group.
    parts: Vec<Arc<Part>>,
    secret: u64,
}

impl Groups {
    pub fn new() -> Self {
        Groups::default()
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| part.is_empty())
    }

    fn part(&self, id: u32) -> usize {
        splitmix64(&mut (self.secret ^ u64::from(id))) as usize % PARTS
    }

    pub fn get(&self, id: &u32) -> Option<&Arc<Group>> {
        self.parts.get(self.part(*id))?.get(id)
    }

    pub fn contains_key(&self, id: &u32) -> bool {
        self.get(id).is_some()
    }

    pub fn insert(&mut self, id: u32, group: Arc<Group>) {
        if self.parts.is_empty() {
            self.secret = RandomState::new().hash_one(PARTS);
            self.parts = vec![Arc::default(); PARTS];
        }
        let at = self.part(id);
        Arc::make_mut(&mut self.parts[at]).insert(id, group);
    }

    pub fn remove(&mut self, id: &u32) {
        if self.contains_key(id) {
            let at = self.part(*id);
            Arc::make_mut(&mut self.parts[at]).remove(id);
        }
    }

    /// Removes all groups.
    pub fn clear(&mut self) {
        self.parts = Vec::new();
    }

    /// The numbers, in order.
    pub fn ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.parts.iter().flat_map(|part| part.keys().copied()).collect();
        ids.sort_unstable();
        ids
    }

    /// The numbers of groups that one of both lacks, or has another of, in order.
    pub fn differences(&self, other: &Groups) -> Vec<u32> {
        // Only a copy has the same secret, and so the same parts.
        let shared = |at: usize| {
            self.secret == other.secret
                && self.parts.get(at).zip(other.parts.get(at)).is_some_and(|(a, b)| Arc::ptr_eq(a, b))
        };
        let is_same = |id: &u32| self.get(id).zip(other.get(id)).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
        let of = |groups: &Groups| -> Vec<u32> {
            let parts = groups.parts.iter().enumerate().filter(|(at, _)| !shared(*at));
            parts.flat_map(|(_, part)| part.keys().copied()).filter(|id| !is_same(id)).collect()
        };
        let mut ids = of(self);
        ids.extend(of(other));
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

impl std::ops::Index<&u32> for Groups {
    type Output = Arc<Group>;

    fn index(&self, id: &u32) -> &Arc<Group> {
        self.get(id).expect("a group of that number")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::apply;
    use proptest::prelude::*;
    use sluice_fate::{Limit, MemoryShare, SharedMemory};
    use sluice_flow::PortNames;
    use sluice_ofp::{GroupCommand, GroupMod};

    proptest! {
        /// Any history of changes, some of copies that take the place of the original, is that of a plain map; and what
        /// differs is what a comparison one by one finds.
        #[test]
        fn groups_are_those_of_a_plain_map(steps in prop::collection::vec((0u32..40, 0u8..8), 1..80)) {
            let share = Arc::new(MemoryShare::new(Arc::new(SharedMemory::new(Limit::RuleMemory, 1 << 30))));
            let (mut groups, mut plain) = (Groups::new(), Part::new());
            let (mut copy, mut plain_copy) = (groups.clone(), plain.clone());
            for (id, what) in steps {
                // Numbers that are far apart, too.
                let id = if id % 2 == 0 { id } else { id << 26 };
                match what {
                    0..4 => {
                        let text = format!("group_id={id},type=all,bucket=output:{what}");
                        let gm = GroupMod::parse(&text, GroupCommand::AddOrModify, &PortNames::NONE).unwrap();
                        apply(&mut copy, &gm, 0, &share).unwrap();
                        plain_copy.insert(id, Arc::clone(&copy[&id]));
                    }
                    4 | 5 => {
                        copy.remove(&id);
                        plain_copy.remove(&id);
                    }
                    6 if id < 4 => {
                        copy.clear();
                        plain_copy.clear();
                    }
                    _ => (groups, plain) = (copy.clone(), plain_copy.clone()),
                }
                let is_same = |id: &u32| plain.get(id).map(Arc::as_ptr) == plain_copy.get(id).map(Arc::as_ptr);
                let mut different: Vec<u32> = plain.keys().chain(plain_copy.keys()).copied().filter(|id| !is_same(id)).collect();
                different.sort_unstable();
                different.dedup();
                prop_assert_eq!(groups.differences(&copy), different);
                prop_assert_eq!(copy.ids(), plain_copy.keys().copied().collect::<Vec<_>>());
                prop_assert_eq!(groups.ids(), plain.keys().copied().collect::<Vec<_>>());
                prop_assert_eq!((copy.is_empty(), copy.get(&id).is_some()), (plain_copy.is_empty(), plain_copy.contains_key(&id)));
            }
        }
    }
}
