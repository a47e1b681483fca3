//! The masks in use, one copy of each: megaflows and subtables share the copy and compare it by address.

use crate::Mask;
use hashbrown::HashMap;
use sluice_flow::PacketKey;
use std::sync::Arc;

/// Masks that may be kept before unused ones are dropped.
const PRUNE_FROM: usize = 64;

/// The masks in use, and some that are no longer used.
#[derive(Debug)]
pub(crate) struct Masks {
    all: HashMap<PacketKey, Arc<Mask>>,
    /// The mask used last: megaflows with one mask often come in sequence.
    last: Option<Arc<Mask>>,
    /// The number of masks at which unused ones are dropped.
    prune_at: usize,
}

impl Default for Masks {
    fn default() -> Self {
        Masks { all: HashMap::new(), last: None, prune_at: PRUNE_FROM }
    }
}

impl Masks {
    /// The one copy of a mask.
    pub fn shared(&mut self, mask: &PacketKey) -> Arc<Mask> {
        if let Some(last) = self.last.as_ref().filter(|last| last.whole == *mask) {
            return last.clone();
        }
        if let Some(known) = self.all.get(mask) {
            self.last = Some(known.clone());
            return known.clone();
        }
        if self.all.len() >= self.prune_at {
            // A holder of a mask may compare it by its address, so only masks that nobody holds are dropped.
            self.all.retain(|_, mask| Arc::strong_count(mask) > 1);
            self.prune_at = (2 * self.all.len()).max(PRUNE_FROM);
        }
        let new = Arc::new(Mask::new(mask));
        self.all.insert(*mask, new.clone());
        self.last = Some(new.clone());
        new
    }
}
