//! The masks in use, one copy of each: megaflows and subtables share the copy and compare it by address.

use crate::Mask;
use crate::tag_index::TagIndex;
use hashbrown::DefaultHashBuilder;
use sluice_flow::PacketKey;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Masks that are looked at when a new one comes, whether they are still in use. With two, there are not many more unused
/// ones than used, and no mask takes long.
const LOOKED_AT: usize = 2;

/// The masks in use, and some that are no longer used.
#[derive(Debug, Default)]
pub(crate) struct Masks {
    all: Vec<Arc<Mask>>,
    /// The places of the masks by their hashes.
    places: TagIndex,
    hasher: DefaultHashBuilder,
    /// The mask used last: megaflows with one mask often come in sequence.
    last: Option<Arc<Mask>>,
    /// The place that is looked at next.
    next: usize,
}

impl Masks {
    /// The one copy of a mask.
    pub fn shared(&mut self, mask: &PacketKey) -> Arc<Mask> {
        if let Some(last) = self.last.as_ref().filter(|last| last.whole == *mask) {
            return last.clone();
        }
        let tag = self.tag(mask);
        let at = |place: u32| self.all.get(place as usize).filter(|known| known.whole == *mask);
        if let Some(known) = self.places.find(tag, at) {
            self.last = Some(known.clone());
            return known.clone();
        }
        self.drop_unused();
        let new = Arc::new(Mask::new(mask));
        self.places.insert(tag, self.all.len() as u32);
        self.all.push(new.clone());
        self.last = Some(new.clone());
        new
    }

    /// Drops masks of the next few that nobody holds: a holder may compare its mask by the address.
    fn drop_unused(&mut self) {
        for _ in 0..LOOKED_AT.min(self.all.len()) {
            let place = self.next % self.all.len();
            if Arc::strong_count(&self.all[place]) == 1 {
                self.remove(place);
            } else {
                self.next = place + 1;
            }
        }
    }

    /// Removes a mask; the last one takes its place.
    fn remove(&mut self, place: usize) {
        let gone = self.all.swap_remove(place);
        self.places.remove(self.tag(&gone.whole), place as u32);
        if let Some(moved) = self.all.get(place) {
            let tag = self.tag(&moved.whole);
            self.places.remove(tag, self.all.len() as u32);
            self.places.insert(tag, place as u32);
        }
    }

    fn tag(&self, mask: &PacketKey) -> u32 {
        TagIndex::tag(self.hasher.hash_one(mask))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sluice_flow::layout;
    use std::collections::HashMap;

    fn mask(number: u8) -> PacketKey {
        let mut mask = PacketKey::ZERO;
        mask.set(layout::NW_SRC, &[0xff, number, 0, 0]);
        mask
    }

    proptest! {
        /// Masks are asked for, held and let go: equal masks that are held are one, and others do not pile up.
        #[test]
        fn a_mask_that_is_held_has_one_copy(steps in prop::collection::vec((0..40u8, any::<bool>()), 0..400)) {
            let (mut masks, mut held) = (Masks::default(), HashMap::<u8, Arc<Mask>>::new());
            let mut most_held = 0;
            for (number, hold) in steps {
                if hold {
                    let shared = masks.shared(&mask(number));
                    prop_assert_eq!(shared.whole, mask(number));
                    let known = held.entry(number).or_insert_with(|| shared.clone());
                    prop_assert!(Arc::ptr_eq(known, &shared));
                } else {
                    held.remove(&number);
                    masks.shared(&mask(40 + number));
                }
                most_held = most_held.max(held.len());
                prop_assert_eq!(masks.all.len(), masks.places.len());
                prop_assert!(masks.all.len() <= 2 * most_held + 4, "{} for {} held", masks.all.len(), most_held);
            }
        }
    }
}
