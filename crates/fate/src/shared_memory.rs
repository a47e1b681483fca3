//! Memory that several parties share up to a bound.
//!
//! When seven eighths are in use, a party that has more than its share (an equal part for each party that has any, and
//! one for the next) gets no more. So one that takes all it can leaves some for each other.

use crate::Limit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The bytes in use, and their bound.
#[derive(Debug)]
pub struct SharedMemory {
    /// What counts refusals.
    bound: Limit,
    limit: AtomicUsize,
    used: AtomicUsize,
    /// Parties that have any.
    parties: AtomicUsize,
    /// The memory that this one is a part of.
    whole: Option<Arc<SharedMemory>>,
}

impl SharedMemory {
    /// `limit` bytes; `bound` counts what is refused.
    pub fn new(bound: Limit, limit: usize) -> Self {
        SharedMemory { bound, limit: limit.into(), used: 0.into(), parties: 0.into(), whole: None }
    }

    /// At most `limit` bytes of another one: its other parties have the rest in any case.
    pub fn part_of(whole: &Arc<SharedMemory>, limit: usize) -> Self {
        SharedMemory { whole: Some(Arc::clone(whole)), ..SharedMemory::new(whole.bound, limit) }
    }

    /// Changes the bound. What is in use stays.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Relaxed);
    }

    /// Bytes in use, and the bound.
    pub fn usage(&self) -> (usize, usize) {
        (self.used.load(Relaxed), self.limit.load(Relaxed))
    }

    /// Adds bytes in the place of `freed` others, unless that is too much; where little is left, only if `is_modest`.
    fn add(&self, bytes: usize, freed: usize, is_modest: bool) -> bool {
        let limit = self.limit.load(Relaxed);
        let used = self.used.fetch_add(bytes, Relaxed).saturating_add(bytes).saturating_sub(freed);
        let is_within = used <= limit && (used <= limit - limit / 8 || is_modest);
        let may =
            (bytes <= freed || is_within) && self.whole.as_ref().is_none_or(|whole| whole.add(bytes, freed, true));
        if !may {
            self.used.fetch_sub(bytes, Relaxed);
        }
        may
    }

    fn remove(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Relaxed);
        if let Some(whole) = &self.whole {
            whole.remove(bytes);
        }
    }
}

/// A party's part of the memory. Dropping it gives all back.
#[derive(Debug)]
pub struct MemoryShare {
    memory: Arc<SharedMemory>,
    bytes: AtomicUsize,
}

impl MemoryShare {
    /// No bytes of that memory.
    pub fn new(memory: Arc<SharedMemory>) -> Self {
        MemoryShare { memory, bytes: 0.into() }
    }

    /// Bytes that it has.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Takes bytes; whether it may.
    pub fn take(&self, bytes: usize) -> bool {
        self.take_instead(bytes, 0)
    }

    /// Takes bytes in the place of `freed` others, which are given back soon; whether it may.
    pub fn take_instead(&self, bytes: usize, freed: usize) -> bool {
        let memory = &*self.memory;
        let has = self.bytes.load(Relaxed);
        let others = memory.parties.load(Relaxed).saturating_sub(usize::from(has != 0));
        let part = memory.limit.load(Relaxed) / (others + 2);
        if !memory.add(bytes, freed, (has + bytes).saturating_sub(freed) <= part) {
            memory.bound.hit();
            return false;
        }
        if bytes != 0 && self.bytes.fetch_add(bytes, Relaxed) == 0 {
            memory.parties.fetch_add(1, Relaxed);
        }
        true
    }

    /// Gives bytes back.
    pub fn give_back(&self, bytes: usize) {
        self.memory.remove(bytes);
        if bytes != 0 && self.bytes.fetch_sub(bytes, Relaxed) == bytes {
            self.memory.parties.fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.give_back(self.bytes());
    }
}

/// Bytes of a share, given back when this is dropped.
#[derive(Debug)]
pub struct MemoryCharge {
    share: Arc<MemoryShare>,
    bytes: usize,
}

impl MemoryCharge {
    /// Bytes of a share, in the place of `freed` others, which are given back soon; `None` if it may not have them.
    pub fn take(share: &Arc<MemoryShare>, bytes: usize, freed: usize) -> Option<Self> {
        share.take_instead(bytes, freed).then(|| MemoryCharge { share: Arc::clone(share), bytes })
    }

    /// How many.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.share.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Arc<SharedMemory> {
        Arc::new(SharedMemory::new(Limit::BundleMemory, 1600))
    }

    #[test]
    fn a_party_that_fills_the_memory_leaves_room_for_the_next() {
        let memory = memory();
        let share = || MemoryShare::new(Arc::clone(&memory));
        let (first, second) = (share(), share());
        let before = Limit::BundleMemory.count();
        assert!(first.take(1400) && !first.take(1));
        assert!(Limit::BundleMemory.count() > before);
        assert!(second.take(200) && !second.take(1), "all of it is in use");
        drop(first);
        assert!(second.take(1200) && !second.take(1));
        second.give_back(1400);
        assert_eq!((memory.usage(), memory.parties.load(Relaxed)), ((0, 1600), 0));
    }

    #[test]
    fn a_part_that_is_full_leaves_the_rest_of_the_whole() {
        let whole = memory();
        let part = Arc::new(SharedMemory::part_of(&whole, 800));
        let (inner, outer) = (MemoryShare::new(Arc::clone(&part)), MemoryShare::new(Arc::clone(&whole)));
        assert!(inner.take(700) && !inner.take(101));
        assert_eq!((part.usage(), whole.usage()), ((700, 800), (700, 1600)));
        assert!(outer.take(800) && !outer.take(1));
        let next = MemoryShare::new(Arc::clone(&part));
        assert!(!next.take(101) && next.take(100), "the part and the whole are full");
        drop((inner, next));
        assert_eq!((part.usage().0, whole.usage().0), (0, 800));
    }

    #[test]
    fn what_replaces_as_much_is_never_refused() {
        let memory = memory();
        let share = Arc::new(MemoryShare::new(Arc::clone(&memory)));
        let old = MemoryCharge::take(&share, 1400, 0).unwrap();
        assert!(MemoryCharge::take(&share, 1, 0).is_none() && MemoryCharge::take(&share, 1401, 1400).is_none());
        let new = MemoryCharge::take(&share, 1400, old.bytes()).unwrap();
        assert_eq!(memory.usage().0, 2800);
        drop(old);
        assert_eq!((memory.usage().0, new.bytes()), (1400, 1400));
        memory.set_limit(100);
        assert!(MemoryCharge::take(&share, 1, 0).is_none());
        drop(new);
        assert!(MemoryCharge::take(&share, 50, 0).is_some());
    }
}
