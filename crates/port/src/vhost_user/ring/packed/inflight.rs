//! Records of a packed ring's chains in flight: copies of their descriptors, since the ring's own are overwritten when
//! chains behind them are used.
//!
//! Free entries form a list, and a chain in flight is a part that was cut from its front. The header has the list and
//! the used place twice, as the guest sees them and as they will be once the chains that are being published are seen.
//! Where the guest saw them can be read from the first descriptor of these.

use super::super::super::inflight_buffer::{InflightLayout, QueueBuffer};
use super::super::super::memory::Shared;
use super::super::inflight::{Recordable, Taken, VERSION, in_order, store};
use super::super::table::{ChainReader, TableOrder};
use super::super::{Broken, CHAIN_MAX, DESC_SIZE, Descriptor, Result, RingSetup};
use super::{AVAILABLE, PackedRing, Place, USED};
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The word of the header that has, 16 bits each: version, entries, the free list's head, and the one that the guest
/// sees.
const LISTS: usize = 1;
/// The word that has two used indexes of 16 bits, and their wrap counters in a byte each.
const PLACES: usize = 2;

/// The words of an entry: what it is and how it is linked, the counter, and the two words of a descriptor.
const LINKS: usize = 0;
const COUNTER: usize = 1;
const REST: usize = 2;
const ADDRESS: usize = 3;

/// The records of a ring.
#[derive(Debug)]
pub struct PackedRecords {
    words: Shared<AtomicU64>,
    /// By entry: the next one in its list. What is stored is not read again.
    next: Vec<u16>,
    /// The first free entry; beyond the last if there is none.
    free: u16,
    /// The place up to which records are cleared.
    used: Place,
    counter: u64,
}

/// What an entry says of the chain that begins with it.
#[derive(Clone, Copy, Debug)]
struct Links {
    is_in_flight: bool,
    next: u16,
    last: u16,
    descriptors: u16,
}

impl Links {
    fn of_word(word: u64) -> Self {
        let [next, last, descriptors] = [16, 32, 48].map(|shift| (word >> shift) as u16);
        Links { is_in_flight: word & 0xff != 0, next, last, descriptors }
    }

    fn word(self) -> u64 {
        let parts = [u16::from(self.is_in_flight), self.next, self.last, self.descriptors];
        parts.iter().rev().fold(0, |word, part| word << 16 | u64::from(*part))
    }
}

/// A word of an entry.
fn word_of(entry: u16, word: usize) -> usize {
    InflightLayout::PACKED.header + InflightLayout::PACKED.entry * usize::from(entry) + word
}

impl PackedRecords {
    fn entries(&self) -> u16 {
        self.next.len() as u16
    }

    fn store_lists(&self, free: u16, seen: u16) {
        let parts = [VERSION, self.entries(), free, seen];
        store(&self.words, LISTS, parts.iter().rev().fold(0, |word, part| word << 16 | u64::from(*part)));
    }

    fn store_places(&self, used: Place, seen: Place) {
        let [used_index, seen_index] = [used, seen].map(|place| u64::from(place.index()));
        let [used_wrap, seen_wrap] = [used, seen].map(|place| u64::from(place.wrap()));
        store(&self.words, PLACES, used_index | seen_index << 16 | used_wrap << 32 | seen_wrap << 40);
    }

    fn store_links(&self, entry: u16, links: Links) {
        store(&self.words, word_of(entry, LINKS), links.word());
    }

    /// An entry that begins no chain in flight.
    fn store_idle(&self, entry: u16) {
        let next = self.next[usize::from(entry)];
        self.store_links(entry, Links { is_in_flight: false, next, last: 0, descriptors: 0 });
    }

    /// Begins with empty records at a place of the ring.
    fn begin(&mut self, place: Place) {
        self.next = (1..=self.entries()).collect();
        (0..self.entries()).for_each(|entry| self.store_idle(entry));
        (self.free, self.used) = (0, place);
        self.store_places(place, place);
        self.store_lists(0, 0);
    }

    /// Reads what a predecessor left, of a ring of `size`. Returns the chains in flight.
    fn read(&mut self, size: u16, is_seen: impl Fn(Place) -> bool) -> Result<VecDeque<Taken>> {
        let lists = self.words[LISTS].load(Relaxed);
        let places = self.words[PLACES].load(Relaxed);
        let place = |index: u32, wrap: u32| {
            let index = (places >> index) as u16;
            let wrap = if places >> wrap & 0xff == 0 { 0 } else { super::WRAP };
            (index < size).then_some(Place(u32::from(index) | wrap)).ok_or(Broken::Inflight)
        };
        let (used, seen) = (place(0, 32)?, place(16, 40)?);
        // Chains were being published. The guest sees all of them or none.
        let is_published = used != seen && is_seen(seen);
        (self.free, self.used) = if is_published { ((lists >> 32) as u16, used) } else { ((lists >> 48) as u16, seen) };
        let links: Vec<Links> =
            (0..self.entries()).map(|entry| Links::of_word(self.words[word_of(entry, LINKS)].load(Relaxed))).collect();
        self.next = links.iter().map(|links| links.next).collect();
        let mut owned = vec![false; links.len()];
        let mut free = self.free;
        while free < self.entries() {
            if std::mem::replace(&mut owned[usize::from(free)], true) {
                return Err(Broken::Inflight);
            }
            free = self.next[usize::from(free)];
        }
        let mut chains = Vec::new();
        for (head, links) in (0..self.entries()).zip(&links) {
            if !owned[usize::from(head)] && links.is_in_flight {
                let counter = self.words[word_of(head, COUNTER)].load(Relaxed);
                chains.push((counter, self.chain(head, *links, &mut owned)?));
            }
        }
        // An entry that is neither free nor in flight could never be used again.
        if owned.contains(&false) {
            return Err(Broken::Inflight);
        }
        let mut begins_chain = vec![false; links.len()];
        chains.iter().for_each(|(_, taken)| begins_chain[usize::from(taken.head)] = true);
        (0..self.entries()).filter(|entry| !begins_chain[usize::from(*entry)]).for_each(|entry| self.store_idle(entry));
        self.store_lists(self.free, self.free);
        self.store_places(self.used, self.used);
        let (taken, counter) = in_order(chains);
        self.counter = counter;
        Ok(taken)
    }

    /// The chain in flight that begins with an entry. Its entries get an owner.
    fn chain(&self, head: u16, links: Links, owned: &mut [bool]) -> Result<Taken> {
        let mut last = head;
        if links.descriptors == 0 || usize::from(links.descriptors) > CHAIN_MAX {
            return Err(Broken::Inflight);
        }
        for n in 0..links.descriptors {
            last = if n == 0 { head } else { self.next[usize::from(last)] };
            match owned.get_mut(usize::from(last)) {
                Some(owned) if !*owned => *owned = true,
                _ => return Err(Broken::Inflight),
            }
        }
        Ok(Taken { head, last, descriptors: links.descriptors })
    }

    /// Copies a descriptor into a free entry.
    fn store_descriptor(&self, entry: u16, descriptor: Descriptor) {
        let Descriptor { address, len, flags, next: id } = descriptor;
        let rest = u64::from(id) | u64::from(flags) << 16 | u64::from(len) << 32;
        store(&self.words, word_of(entry, REST), rest);
        store(&self.words, word_of(entry, ADDRESS), address);
    }

    /// The descriptor that an entry has.
    fn descriptor(&self, entry: u16) -> Descriptor {
        let [rest, address] = [REST, ADDRESS].map(|word| self.words[word_of(entry, word)].load(Relaxed));
        Descriptor { address, len: (rest >> 32) as u32, flags: (rest >> 16) as u16, next: rest as u16 }
    }

    /// Says that a chain is in flight whose descriptors were copied, and that what follows it is free.
    fn store_chain(&mut self, taken: Taken) {
        let Taken { head, last, descriptors } = taken;
        store(&self.words, word_of(head, COUNTER), self.counter);
        self.counter = self.counter.wrapping_add(1);
        let next = self.next[usize::from(head)];
        self.store_links(head, Links { is_in_flight: true, next, last, descriptors });
        self.free = self.next[usize::from(last)];
        self.store_lists(self.free, self.free);
    }
}

impl PackedRing {
    /// Turns a descriptor that was used back into one that waits for the device. Returns whether it was.
    fn make_available(&self, place: Place) -> bool {
        let word = &self.descriptors[usize::from(place.index())][1];
        let flags = (word.load(Relaxed) >> 48) as u16;
        let was_used = flags & (AVAILABLE | USED) == place.used_flags();
        if was_used {
            // Of the two wrap counters, the device's is the old one again.
            word.fetch_xor(u64::from(USED) << 48, Relaxed);
        }
        was_used
    }
}

impl Recordable for PackedRing {
    type Records = PackedRecords;

    fn recover(&mut self, setup: &RingSetup, buffer: &QueueBuffer) -> Result<(PackedRecords, VecDeque<Taken>)> {
        let words = buffer.words(InflightLayout::PACKED)?;
        let next = vec![0; buffer.queue_size.into()];
        let mut records = PackedRecords { words, next, free: 0, used: self.next, counter: 0 };
        let header = records.words[LISTS].load(Relaxed);
        let taken = match header as u16 {
            0 => {
                records.begin(self.next);
                VecDeque::new()
            }
            VERSION if (header >> 16) as u16 == records.entries() => {
                let flags_at = |place| self.descriptor(place).map_or(0, |descriptor| descriptor.flags);
                records.read(self.size, |place| !place.is_available(flags_at(place)))?
            }
            _ => return Err(Broken::Inflight),
        };
        self.next = records.used;
        // What the predecessor used and did not publish would be seen with the first chain that is published now.
        let mut place = self.next;
        for _ in 0..taken.iter().map(|taken| u32::from(taken.descriptors)).sum() {
            if self.make_available(place) {
                let address = setup.layout.descriptors + DESC_SIZE * u64::from(place.index());
                setup.log(address, DESC_SIZE as usize);
            }
            place = place.behind(1, self.size);
        }
        Ok((records, taken))
    }

    fn take(&mut self, records: &mut PackedRecords, ahead: u16) -> Result<Option<Taken>> {
        let mut place = self.next.behind(ahead, self.size);
        let head = records.free;
        let (mut entry, mut descriptors) = (head, 0);
        let last = loop {
            let descriptor = self.descriptor(place)?;
            let is_first = descriptors == 0;
            if is_first && !place.is_available(descriptor.flags) {
                return Ok(None);
            }
            // No driver has more descriptors under way than the ring has, nor longer chains.
            if entry >= records.entries() || ahead + descriptors >= self.size || usize::from(descriptors) >= CHAIN_MAX {
                return if is_first { Ok(None) } else { Err(Broken::Endless) };
            }
            records.store_descriptor(entry, descriptor);
            descriptors += 1;
            if !descriptor.has_next() {
                break entry;
            }
            entry = records.next[usize::from(entry)];
            place = place.behind(1, self.size);
        };
        let taken = Taken { head, last, descriptors };
        records.store_chain(taken);
        Ok(Some(taken))
    }

    fn tables(&self) -> Option<TableOrder> {
        self.tables
    }

    fn gather_taken(&self, records: &PackedRecords, taken: Taken, mut reader: ChainReader<'_>) -> Result<()> {
        let first = reader.burst.buffers.len();
        let mut entry = taken.head;
        for n in 1..=taken.descriptors {
            let descriptor = records.descriptor(entry);
            reader.push(descriptor)?;
            if n == taken.descriptors {
                reader.finish(descriptor.next, n, first);
                return Ok(());
            }
            entry = records.next[usize::from(entry)];
        }
        Err(Broken::Inflight)
    }

    fn before_publication(&self, records: &mut PackedRecords, used: &[Taken]) {
        let seen = records.free;
        for taken in used {
            records.next[usize::from(taken.last)] = records.free;
            let Taken { head, last, descriptors } = *taken;
            if head == last {
                records.store_links(head, Links { is_in_flight: true, next: records.free, last, descriptors });
            } else {
                records.store_idle(last);
            }
            records.free = head;
        }
        records.store_lists(records.free, seen);
        records.store_places(self.next, records.used);
    }

    fn after_publication(&self, records: &mut PackedRecords, used: &[Taken]) {
        used.iter().for_each(|taken| records.store_idle(taken.head));
        records.used = self.next;
        records.store_lists(records.free, records.free);
        records.store_places(self.next, self.next);
    }
}
