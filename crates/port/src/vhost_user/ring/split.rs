//! The split format: a table of descriptors, a ring of available chains, a ring of used ones.
//!
//! Entries are used in the order in which they were made available. Source: VIRTIO 1.2, section 2.7.

mod inflight;

use super::super::memory::{Shared, View};
use super::table::{ChainReader, TableOrder};
use super::{Access, Broken, Burst, CHAIN_MAX, Chain, Descriptor, Result, RingFormat, RingSetup, has_passed};
use sluice_packet::BATCH_MAX;
use sluice_simd::prefetch;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

/// A flag of the available ring: the guest wants no notifications.
const NO_INTERRUPT: u16 = 1;
/// A flag of the used ring: we want no notifications, since we poll.
const NO_NOTIFY: u16 = 1;

/// Words of the available ring: flags, index, entries, and where the guest wants to be notified.
const AVAILABLE_FLAGS: usize = 0;
const AVAILABLE_INDEX: usize = 1;
const AVAILABLE_ENTRIES: usize = 2;
/// Bytes of the used ring in front of its entries.
const USED_ENTRIES: u64 = 4;
/// Bytes of such an entry.
const USED_SIZE: u64 = 8;
/// Such entries in a cache line.
const USED_PER_LINE: usize = 64 / USED_SIZE as usize;

/// An index of 16 bits, which wraps, in a word of 32.
///
/// The compiler loads 16 bits as 32 where it may. After a store of 16 bits such a load waits until all earlier stores
/// have left the store buffer, and those to the guest's memory take hundreds of cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Index(u32);

impl Index {
    #[inline]
    fn new(value: u16) -> Self {
        Index(value.into())
    }

    #[inline]
    fn get(self) -> u16 {
        self.0 as u16
    }
}

/// A split ring that runs.
#[derive(Debug)]
pub struct SplitRing {
    size: u16,
    descriptors: Shared<[AtomicU64; 2]>,
    available: Shared<AtomicU16>,
    /// The used ring's flags and index, in one word.
    used_index: Shared<AtomicU32>,
    /// Its entries: a chain's first descriptor, and the bytes written.
    used: Shared<[AtomicU32; 2]>,
    /// The guest notifies us when its index passes this one.
    available_event: Option<Shared<AtomicU16>>,
    /// Whether chains may be tables of descriptors.
    tables: Option<TableOrder>,
    flags: u16,
    /// The next entry of both rings.
    next: Index,
    /// The guest's index when it was last read.
    seen: Index,
    /// Our index as the guest sees it.
    published: Index,
    /// Our index when the guest was last notified, or did not want to be.
    considered: Option<u16>,
    /// The address by which writes to the used ring are logged.
    log: Option<u64>,
}

impl RingFormat for SplitRing {
    /// A ring that continues behind its last used entry.
    ///
    /// A frontend that outlived us does not know our position, but its memory does.
    fn new(setup: &RingSetup) -> Result<Self> {
        let (memory, size, layout) = (&setup.memory, usize::from(setup.size), setup.layout);
        let used_index: Shared<AtomicU32> = memory.shared(layout.used, 1 + 2 * size)?;
        let has_event = setup.features.has_event_index();
        let behind = layout.used.checked_add(USED_ENTRIES + USED_SIZE * size as u64).ok_or(Broken::Address)?;
        let available_event = has_event.then(|| memory.shared(behind, 1)).transpose()?;
        let next = (used_index[0].load(Acquire) >> 16) as u16;
        let ring = SplitRing {
            size: setup.size,
            descriptors: memory.shared(layout.descriptors, size)?,
            available: memory.shared(layout.available, AVAILABLE_ENTRIES + size + usize::from(has_event))?,
            used: memory.shared(layout.used.wrapping_add(USED_ENTRIES), size)?,
            used_index,
            available_event,
            tables: setup.features.has_indirect().then_some(TableOrder::Linked),
            // With an event index the flag has no meaning.
            flags: if has_event { 0 } else { NO_NOTIFY },
            next: Index::new(next),
            seen: Index::new(next),
            published: Index::new(next),
            considered: None,
            log: layout.log,
        };
        ring.used_index[0].store(u32::from(ring.flags) | u32::from(next) << 16, Release);
        let log = layout.log.unwrap_or(layout.used);
        setup.log(log, USED_ENTRIES as usize);
        if let Some(event) = &ring.available_event {
            // Passed just now, so not again for 65,535 entries.
            event[0].store(next.wrapping_sub(1), Relaxed);
            setup.log(log.wrapping_add(behind - layout.used), size_of::<u16>());
        }
        Ok(ring)
    }

    /// The next entry.
    fn position(&self) -> u32 {
        self.next.get().into()
    }

    /// Adds up to `n` chains to those in `burst`.
    #[inline]
    fn gather(&mut self, n: usize, access: Access, view: &mut View, burst: &mut Burst) -> Result<()> {
        if burst.chains.is_empty() {
            burst.behind = self.next.0;
        }
        let (behind, before) = (burst.behind as u16, burst.chains.len());
        let n = n.min(BATCH_MAX);
        let n = n.min(self.waiting(behind, n)?);
        let mut heads = [0; BATCH_MAX];
        for (i, head) in heads[..n].iter_mut().enumerate() {
            let entry = behind.wrapping_add(i as u16) & (self.size - 1);
            *head = self.available[AVAILABLE_ENTRIES + usize::from(entry)].load(Relaxed);
            if let Some(words) = self.descriptors.get(usize::from(*head)) {
                prefetch::read(words);
            }
        }
        for i in (0..n).step_by(USED_PER_LINE) {
            let entry = behind.wrapping_add(i as u16) & (self.size - 1);
            prefetch::read(&self.used[usize::from(entry)]);
        }
        for head in &heads[..n] {
            if burst.is_full() {
                break;
            }
            let first = self.descriptor(*head)?;
            if first.is_whole() {
                burst.push_single(*head, first.buffer(access)?);
            } else {
                self.gather_chain(*head, first, ChainReader { access, tables: self.tables, view, burst, len: 0 })?;
            }
        }
        burst.behind = behind.wrapping_add((burst.chains.len() - before) as u16).into();
        Ok(())
    }

    fn backlog(&self) -> Option<usize> {
        let waiting = self.available[AVAILABLE_INDEX].load(Relaxed).wrapping_sub(self.next.get());
        Some(usize::from(waiting.min(self.size)))
    }

    #[inline]
    fn look_ahead(&self, n: usize, view: &View) {
        let n = n.min(usize::from(self.seen.get().wrapping_sub(self.next.get())));
        for i in 0..n {
            let entry = self.next.get().wrapping_add(i as u16) & (self.size - 1);
            let head = self.available[AVAILABLE_ENTRIES + usize::from(entry)].load(Relaxed);
            if let Some([address, _]) = self.descriptors.get(usize::from(head)) {
                view.prefetch(address.load(Relaxed));
            }
        }
    }

    /// Marks the next entry as used by this chain.
    ///
    /// It is written only if it changes. A guest that offers its chains in order gets the same entries with every lap,
    /// but for the lengths that change, so that most of their cache lines stay with both sides.
    #[inline]
    fn put_used(&mut self, chain: &Chain, written: u32, view: &View) {
        let at = usize::from(self.next.get() & (self.size - 1));
        let [head, len] = &self.used[at];
        store_changed(head, u32::from(chain.id));
        store_changed(len, written);
        self.next = Index::new(self.next.get().wrapping_add(1));
        self.log(view, USED_ENTRIES + USED_SIZE * at as u64, USED_SIZE as usize);
    }

    /// Shows the guest what was marked. Returns whether there was anything.
    #[inline]
    fn publish(&mut self, view: &View) -> bool {
        if self.published == self.next {
            return false;
        }
        self.published = self.next;
        self.used_index[0].store(u32::from(self.flags) | self.next.0 << 16, Release);
        self.log(view, 0, USED_ENTRIES as usize);
        true
    }

    /// Whether the guest wants to be notified of what was published since this was last asked.
    fn wants_call(&mut self) -> bool {
        let old = self.considered.replace(self.published.get());
        if self.available_event.is_none() {
            return self.available[AVAILABLE_FLAGS].load(Relaxed) & NO_INTERRUPT == 0;
        }
        let event = self.available[AVAILABLE_ENTRIES + usize::from(self.size)].load(Relaxed);
        old.is_none_or(|old| has_passed(event, self.published.get(), old))
    }

    fn forget_notified(&mut self) {
        self.considered = None;
    }
}

/// Stores a value that is not there already.
#[inline]
fn store_changed(word: &AtomicU32, value: u32) {
    if word.load(Relaxed) != value {
        word.store(value, Relaxed);
    }
}

impl SplitRing {
    /// Available chains from this entry on; at least `wanted` if there are as many.
    #[inline]
    fn waiting(&mut self, entry: u16, wanted: usize) -> Result<usize> {
        if usize::from(self.seen.get().wrapping_sub(entry)) < wanted {
            let seen = self.available[AVAILABLE_INDEX].load(Acquire);
            // The index only grows, and by no more than what was used.
            if seen.wrapping_sub(self.next.get()) > self.size
                || seen.wrapping_sub(self.next.get()) < self.seen.get().wrapping_sub(self.next.get())
            {
                return Err(Broken::Index);
            }
            self.seen = Index::new(seen);
        }
        Ok(usize::from(self.seen.get().wrapping_sub(entry)))
    }

    #[inline]
    fn descriptor(&self, at: u16) -> Result<Descriptor> {
        #[cfg(test)]
        crate::vhost_user::work::note_descriptor();
        let [address, rest] = self.descriptors.get(usize::from(at)).ok_or(Broken::Index)?;
        Ok(Descriptor::of(address.load(Relaxed), rest.load(Relaxed)))
    }

    /// Adds a chain of several buffers, or one that is described by a table.
    fn gather_chain(&self, head: u16, mut descriptor: Descriptor, mut reader: ChainReader<'_>) -> Result<()> {
        let first = reader.burst.buffers.len();
        // A loop ends here, too.
        for _ in 0..CHAIN_MAX {
            reader.push(descriptor)?;
            if !descriptor.has_next() {
                reader.finish(head, 1, first);
                return Ok(());
            }
            descriptor = self.descriptor(descriptor.next)?;
        }
        Err(Broken::Endless)
    }

    /// Notes a write to the used ring if the guest migrates.
    #[inline]
    fn log(&self, view: &View, offset: u64, len: usize) {
        if let (Some(address), Some(log)) = (self.log, view.log()) {
            log.mark(address.wrapping_add(offset), len);
        }
    }
}
