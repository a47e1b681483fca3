//! The packed format: one ring of descriptors, which driver and device write in turn.
//!
//! A descriptor's two flags say whether the driver made it available or the device used it. Each side inverts what it
//! writes and expects whenever it wraps. Chains are used in the order in which they were made available.
//! Source: VIRTIO 1.2, section 2.8.

mod inflight;

use super::super::memory::{Shared, View};
use super::table::{ChainReader, TableOrder};
use super::{
    Access, Broken, Burst, CHAIN_MAX, Chain, DESC_SIZE, DESC_WRITE, Descriptor, Result, RingFormat, RingSetup,
    SIZE_MAX, has_passed,
};
use sluice_packet::BATCH_MAX;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Descriptor flags: the driver's wrap counter when it made it available, and the device's when it used it.
const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// Flags of an event area: no notifications; one when a descriptor is reached.
const EVENTS_DISABLED: u16 = 1;
const EVENTS_AT_DESCRIPTOR: u16 = 2;
const EVENT_FLAGS: u16 = 3;

/// A place in a packed ring: an index below its size, and in bit 15 the wrap counter, as the protocol writes them. In a
/// word of 32 bits for the reason that [`super::split`] tells of its indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place(u32);

/// The wrap counter of a place.
const WRAP: u32 = 1 << 15;
const _: () = assert!(SIZE_MAX as u32 <= WRAP);

impl Place {
    #[inline]
    fn new(place: u16) -> Self {
        Place(place.into())
    }

    #[inline]
    fn index(self) -> u16 {
        (self.0 & !WRAP) as u16
    }

    #[inline]
    fn wrap(self) -> bool {
        self.0 & WRAP != 0
    }

    /// The place `n` descriptors on, at most once around a ring of `size`.
    #[inline]
    fn behind(self, n: u16, size: u16) -> Self {
        let (index, wrap) = ((self.0 & !WRAP) + u32::from(n), self.0 & WRAP);
        match index.checked_sub(u32::from(size)) {
            None => Place(index | wrap),
            Some(index) => Place(index | (wrap ^ WRAP)),
        }
    }

    /// Whether a descriptor here with these flags waits for the device.
    #[inline]
    fn is_available(self, flags: u16) -> bool {
        flags & (AVAILABLE | USED) == if self.wrap() { AVAILABLE } else { USED }
    }

    /// The flags of a descriptor that was used here.
    #[inline]
    fn used_flags(self) -> u16 {
        if self.wrap() { AVAILABLE | USED } else { 0 }
    }
}

/// A packed ring that runs.
#[derive(Debug)]
pub struct PackedRing {
    size: u16,
    descriptors: Shared<[AtomicU64; 2]>,
    /// The driver's event area: at which place it wants to be notified, and flags.
    driver_event: Shared<AtomicU32>,
    has_event_index: bool,
    /// Whether chains may be tables of descriptors.
    tables: Option<TableOrder>,
    /// The next descriptor that is not used.
    next: Place,
    /// The first descriptor that was used and not published, and the word to write there.
    held_back: Option<(Place, u64)>,
    /// Our place when the guest was last notified, or did not want to be.
    considered: Option<Place>,
    /// The guest's address of the descriptors, if writes to them are logged.
    log: Option<u64>,
}

impl RingFormat for PackedRing {
    /// A ring that continues at the place that its frontend names.
    fn new(setup: &RingSetup) -> Result<Self> {
        let (memory, layout, next) = (&setup.memory, setup.layout, Place::new(setup.base as u16));
        if next.index() >= setup.size {
            return Err(Broken::Index);
        }
        let device_event: Shared<AtomicU32> = memory.shared(layout.used, 1)?;
        let ring = PackedRing {
            size: setup.size,
            descriptors: memory.shared(layout.descriptors, setup.size.into())?,
            driver_event: memory.shared(layout.available, 1)?,
            has_event_index: setup.features.has_event_index(),
            tables: setup.features.has_indirect().then_some(TableOrder::Consecutive),
            next,
            held_back: None,
            considered: None,
            log: layout.log.map(|_| layout.descriptors),
        };
        // We poll.
        device_event[0].store(u32::from(EVENTS_DISABLED) << 16, Release);
        setup.log(layout.used, size_of::<u32>());
        Ok(ring)
    }

    /// The next descriptor, as the protocol says it: available and used places, which are the same here.
    fn position(&self) -> u32 {
        self.next.0 << 16 | self.next.0
    }

    /// Adds up to `n` chains to those in `burst`.
    #[inline]
    fn gather(&mut self, n: usize, access: Access, view: &mut View, burst: &mut Burst) -> Result<()> {
        if burst.chains.is_empty() {
            burst.behind = self.next.0;
        }
        for _ in 0..n.min(BATCH_MAX) {
            let place = Place(burst.behind);
            if burst.is_full() {
                break;
            }
            let first = self.descriptor(place)?;
            if !place.is_available(first.flags) {
                break;
            }
            let mut descriptors = 1;
            if first.is_whole() {
                burst.push_single(first.next, first.buffer(access)?);
            } else {
                let reader = ChainReader { access, tables: self.tables, view, burst, len: 0 };
                descriptors = self.gather_chain(place, first, reader)?;
            }
            burst.behind = place.behind(descriptors, self.size).0;
        }
        Ok(())
    }

    #[inline]
    fn look_ahead(&self, n: usize, view: &View) {
        let mut place = self.next;
        for _ in 0..n {
            let [address, rest] = &self.descriptors[usize::from(place.index())];
            if !place.is_available((rest.load(Relaxed) >> 48) as u16) {
                return;
            }
            view.prefetch(address.load(Relaxed));
            place = place.behind(1, self.size);
        }
    }

    /// Marks the next chain, which is this one, as used.
    #[inline]
    fn put_used(&mut self, chain: &Chain, written: u32, view: &View) {
        let flags = self.next.used_flags() | if written > 0 { DESC_WRITE } else { 0 };
        let word = u64::from(written) | u64::from(chain.id) << 32 | u64::from(flags) << 48;
        if self.held_back.is_none() {
            // The guest reads in order, so it sees none of the burst before this one.
            self.held_back = Some((self.next, word));
        } else {
            self.write(self.next, word, view);
        }
        self.next = self.next.behind(chain.descriptors, self.size);
    }

    /// Shows the guest what was marked. Returns whether there was anything.
    #[inline]
    fn publish(&mut self, view: &View) -> bool {
        let Some((place, word)) = self.held_back.take() else { return false };
        self.write(place, word, view);
        true
    }

    /// Whether the guest wants to be notified of what was published since this was last asked.
    fn wants_call(&mut self) -> bool {
        let event = self.driver_event[0].load(Relaxed);
        let (event, flags) = (Place::new(event as u16), (event >> 16) as u16 & EVENT_FLAGS);
        let old = self.considered.replace(self.next);
        if flags != EVENTS_AT_DESCRIPTOR || !self.has_event_index {
            return flags != EVENTS_DISABLED;
        }
        // Places of the lap before ours are below zero.
        let in_lap = |place: Place| match place.wrap() == self.next.wrap() {
            true => place.index(),
            false => place.index().wrapping_sub(self.size),
        };
        old.is_none_or(|old| has_passed(in_lap(event), self.next.index(), in_lap(old)))
    }

    /// Forgets when the guest was last notified: a stale place is ambiguous after a lap.
    fn forget_notified(&mut self) {
        self.considered = None;
    }
}

impl PackedRing {
    /// The descriptor at a place. The word that has its flags is read first.
    #[inline]
    fn descriptor(&self, place: Place) -> Result<Descriptor> {
        #[cfg(test)]
        crate::vhost_user::work::note_descriptor();
        let [address, rest] = self.descriptors.get(usize::from(place.index())).ok_or(Broken::Index)?;
        let rest = rest.load(Acquire);
        Ok(Descriptor::of_packed(address.load(Relaxed), rest))
    }

    /// Adds a chain of several buffers, or one that is described by a table. Returns how many descriptors it has.
    fn gather_chain(&self, place: Place, mut descriptor: Descriptor, mut reader: ChainReader<'_>) -> Result<u16> {
        let first = reader.burst.buffers.len();
        let longest = self.size.min(CHAIN_MAX as u16);
        for n in 1..=longest {
            reader.push(descriptor)?;
            if !descriptor.has_next() {
                // The last one has the chain's number.
                reader.finish(descriptor.next, n, first);
                return Ok(n);
            }
            descriptor = self.descriptor(place.behind(n, self.size))?;
        }
        Err(Broken::Endless)
    }

    #[inline]
    fn write(&self, place: Place, word: u64, view: &View) {
        let at = usize::from(place.index());
        self.descriptors[at][1].store(word, Release);
        if let (Some(descriptors), Some(log)) = (self.log, view.log()) {
            log.mark(descriptors.wrapping_add(DESC_SIZE * at as u64), DESC_SIZE as usize);
        }
    }
}
