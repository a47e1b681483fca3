//! The split format: a table of descriptors, a ring of available chains, a ring of used ones.
//!
//! Entries are used in the order in which they were made available. Source: VIRTIO 1.2, section 2.7.

use super::super::memory::{Shared, View};
use super::table::{ChainReader, TableOrder};
use super::{Access, Broken, Burst, CHAIN_MAX, Descriptor, Result, RingSetup, has_passed};
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
    next: u16,
    /// The guest's index when it was last read.
    seen: u16,
    /// Our index as the guest sees it.
    published: u16,
    /// Our index when the guest was last notified, or did not want to be.
    considered: Option<u16>,
    /// The address by which writes to the used ring are logged.
    log: Option<u64>,
}

impl SplitRing {
    /// A ring that continues behind its last used entry.
    ///
    /// A frontend that outlived us does not know our position, but its memory does.
    pub fn new(setup: &RingSetup) -> Result<Self> {
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
            next,
            seen: next,
            published: next,
            considered: None,
            log: layout.log,
        };
        ring.used_index[0].store(u32::from(ring.flags) | u32::from(next) << 16, Release);
        if let Some(event) = &ring.available_event {
            // Passed just now, so not again for 65,535 entries.
            event[0].store(next.wrapping_sub(1), Relaxed);
        }
        Ok(ring)
    }

    /// The next entry.
    pub fn position(&self) -> u32 {
        u32::from(self.next)
    }

    /// Adds up to `n` chains to those in `burst`.
    #[inline]
    pub fn gather(&mut self, n: usize, access: Access, view: &mut View, burst: &mut Burst) -> Result<()> {
        if burst.chains.is_empty() {
            burst.first_entry = self.next;
        }
        let behind = burst.first_entry.wrapping_add(burst.chains.len() as u16);
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
        Ok(())
    }

    /// Available chains from this entry on; at least `wanted` if there are as many.
    #[inline]
    fn waiting(&mut self, entry: u16, wanted: usize) -> Result<usize> {
        if usize::from(self.seen.wrapping_sub(entry)) < wanted {
            let seen = self.available[AVAILABLE_INDEX].load(Acquire);
            // The index only grows, and by no more than what was used.
            if seen.wrapping_sub(self.next) > self.size
                || seen.wrapping_sub(self.next) < self.seen.wrapping_sub(self.next)
            {
                return Err(Broken::Index);
            }
            self.seen = seen;
        }
        Ok(usize::from(self.seen.wrapping_sub(entry)))
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
                reader.burst.push_chain(head, first, reader.len);
                return Ok(());
            }
            descriptor = self.descriptor(descriptor.next)?;
        }
        Err(Broken::Endless)
    }

    /// Marks the next entry as used by this chain.
    #[inline]
    pub fn put_used(&mut self, id: u16, written: u32, view: &View) {
        let at = usize::from(self.next & (self.size - 1));
        let [head, len] = &self.used[at];
        head.store(u32::from(id), Relaxed);
        len.store(written, Relaxed);
        self.next = self.next.wrapping_add(1);
        self.log(view, USED_ENTRIES + USED_SIZE * at as u64, USED_SIZE as usize);
    }

    /// Shows the guest what was marked. Returns whether there was anything.
    #[inline]
    pub fn publish(&mut self, view: &View) -> bool {
        if self.published == self.next {
            return false;
        }
        self.published = self.next;
        self.used_index[0].store(u32::from(self.flags) | u32::from(self.next) << 16, Release);
        self.log(view, 0, USED_ENTRIES as usize);
        true
    }

    /// Whether the guest wants to be notified of what was published since this was last asked.
    pub fn wants_call(&mut self) -> bool {
        let old = self.considered.replace(self.published);
        if self.available_event.is_none() {
            return self.available[AVAILABLE_FLAGS].load(Relaxed) & NO_INTERRUPT == 0;
        }
        let event = self.available[AVAILABLE_ENTRIES + usize::from(self.size)].load(Relaxed);
        old.is_none_or(|old| has_passed(event, self.published, old))
    }

    /// Notes a write to the used ring if the guest migrates.
    #[inline]
    fn log(&self, view: &View, offset: u64, len: usize) {
        if let (Some(address), Some(log)) = (self.log, view.log()) {
            log.mark(address.wrapping_add(offset), len);
        }
    }
}
