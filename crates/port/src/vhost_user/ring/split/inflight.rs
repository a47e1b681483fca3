//! Records of a split ring's chains in flight: for each descriptor whether a chain that begins with it is, and since
//! when; and a list of the chains that were published last, in case that this process dies before it has cleared them.

use super::super::super::inflight_buffer::{InflightLayout, QueueBuffer};
use super::super::super::memory::Shared;
use super::super::inflight::{Recordable, Taken, VERSION, in_order, store};
use super::super::table::{ChainReader, TableOrder};
use super::super::{Broken, Result, RingSetup};
use super::{AVAILABLE_ENTRIES, AVAILABLE_INDEX, Index, SplitRing};
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The word of the header that has, 16 bits each: version, entries, head of the list, used index.
const HEADER: usize = 1;

/// The records of a ring.
#[derive(Debug)]
pub struct SplitRecords {
    words: Shared<AtomicU64>,
    entries: u16,
    /// The head of the list of the chains published last.
    last_batch: u16,
    /// The used index up to which records are cleared.
    used: u16,
    counter: u64,
}

impl SplitRecords {
    fn store_header(&self) {
        let header = [VERSION, self.entries, self.last_batch, self.used];
        let word = header.iter().rev().fold(0, |word, part| word << 16 | u64::from(*part));
        store(&self.words, HEADER, word);
    }

    /// Says whether a chain is in flight, and which one was published before it.
    fn store_entry(&self, head: u16, is_in_flight: bool, next: u16) {
        store(&self.words, word_of(head), u64::from(is_in_flight) | u64::from(next) << 48);
    }

    fn next(&self, head: u16) -> u16 {
        (self.words[word_of(head)].load(Relaxed) >> 48) as u16
    }

    /// Clears the chains that the guest saw used, up to the used index, and that their record says are in flight.
    fn clear_last_batch(&mut self, used: u16) -> Result<()> {
        let n = used.wrapping_sub(self.used);
        if n > self.entries {
            return Err(Broken::Inflight);
        }
        let mut head = self.last_batch;
        for _ in 0..n {
            if head >= self.entries {
                return Err(Broken::Inflight);
            }
            let next = self.next(head);
            self.store_entry(head, false, next);
            head = next;
        }
        Ok(())
    }

    /// The chains in flight, and their counters. Their heads are below `size`.
    fn chains(&self, size: u16) -> Result<Vec<(u64, Taken)>> {
        let is_in_flight = |head: &u16| self.words[word_of(*head)].load(Relaxed) & 0xff != 0;
        let chain = |head: u16| {
            let counter = self.words[word_of(head) + 1].load(Relaxed);
            (head < size).then_some((counter, Taken { head, last: head, descriptors: 1 })).ok_or(Broken::Inflight)
        };
        (0..self.entries).filter(is_in_flight).map(chain).collect()
    }
}

/// The first word of a head's entry; the second has its counter.
fn word_of(head: u16) -> usize {
    InflightLayout::SPLIT.header + InflightLayout::SPLIT.entry * usize::from(head)
}

impl Recordable for SplitRing {
    type Records = SplitRecords;

    fn recover(&mut self, _setup: &RingSetup, buffer: &QueueBuffer) -> Result<(SplitRecords, VecDeque<Taken>)> {
        let (words, entries, used) = (buffer.words(InflightLayout::SPLIT)?, buffer.queue_size, self.next.get());
        let header = words[HEADER].load(Relaxed);
        let [version, found, last_batch, cleared] = [0, 16, 32, 48].map(|shift| (header >> shift) as u16);
        let mut records = SplitRecords { words, entries, last_batch, used: cleared, counter: 0 };
        let taken = match version {
            0 => {
                (0..entries).for_each(|head| records.store_entry(head, false, 0));
                records.last_batch = 0;
                VecDeque::new()
            }
            VERSION if found == entries => {
                records.clear_last_batch(used)?;
                let (taken, counter) = in_order(records.chains(self.size)?);
                records.counter = counter;
                taken
            }
            _ => return Err(Broken::Inflight),
        };
        records.used = used;
        records.store_header();
        // Each takes one entry of the available ring, which the guest has filled.
        let waiting = self.available[AVAILABLE_INDEX].load(Acquire).wrapping_sub(used);
        let n = taken.len() as u16;
        if n > 0 && n > waiting {
            return Err(Broken::Inflight);
        }
        self.seen = Index::new(used.wrapping_add(n));
        Ok((records, taken))
    }

    fn take(&mut self, records: &mut SplitRecords, ahead: u16) -> Result<Option<Taken>> {
        let entry = self.next.get().wrapping_add(ahead);
        if self.waiting(entry, 1)? == 0 {
            return Ok(None);
        }
        let at = AVAILABLE_ENTRIES + usize::from(entry & (self.size - 1));
        let head = self.available[at].load(Relaxed);
        if head >= self.size {
            return Err(Broken::Index);
        }
        store(&records.words, word_of(head) + 1, records.counter);
        records.counter = records.counter.wrapping_add(1);
        records.store_entry(head, true, records.next(head));
        Ok(Some(Taken { head, last: head, descriptors: 1 }))
    }

    fn tables(&self) -> Option<TableOrder> {
        self.tables
    }

    fn gather_taken(&self, _records: &SplitRecords, taken: Taken, reader: ChainReader<'_>) -> Result<()> {
        self.gather_chain(taken.head, self.descriptor(taken.head)?, reader)
    }

    fn before_publication(&self, records: &mut SplitRecords, used: &[Taken]) {
        for taken in used {
            records.store_entry(taken.head, true, records.last_batch);
            records.last_batch = taken.head;
        }
        records.store_header();
    }

    fn after_publication(&self, records: &mut SplitRecords, used: &[Taken]) {
        for taken in used {
            records.store_entry(taken.head, false, records.next(taken.head));
        }
        records.used = self.next.get();
        records.store_header();
    }
}
