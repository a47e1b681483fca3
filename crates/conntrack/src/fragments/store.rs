//! The held fragments, by packet.
//!
//! Share:  from seven eighths of the limit on, a port that has more than its share (an equal part for each port that
//!         has any, and for one more) gets no room for others. So fragments whose rest never comes, which each stay for
//!         the whole timeout, take nothing from another port. A fragment of more than [`UNIT`] bytes counts as several.
//! Shape:  fragments are in slots. Those of a packet form a list in the order of their offsets; the packet's entry in a
//!         hash table has both ends of the list. Slots and table have room for the limit.

use super::HeldFragment;
use super::header::{DatagramKey, FragmentHeader, StoreError};
use super::list::{FragmentList, Progress};
use sluice_flow::layout;
use std::collections::HashMap;

/// No slot.
const NONE: u32 = u32::MAX;

/// Bytes of a frame that count as one fragment.
const UNIT: usize = 2048;

/// The port by which a fragment came, and what it counts.
fn charge<T>(fragment: &HeldFragment<T>) -> (u32, usize) {
    (fragment.key.number(layout::IN_PORT) as u32, fragment.packet.frame.len().div_ceil(UNIT).max(1))
}

/// A packet of which fragments are held.
#[derive(Clone, Copy, Debug)]
struct Datagram {
    /// The slots of the first and of the last fragment in order.
    first: u32,
    last: u32,
    count: u32,
    /// Bytes of data held.
    bytes: u32,
    /// Bytes of data of the complete packet, known from the last fragment.
    total: Option<u32>,
    /// Its number in the order in which packets began.
    number: u64,
    expires_ms: u64,
}

#[derive(Debug)]
struct FragmentSlot<T> {
    fragment: Option<HeldFragment<T>>,
    /// The slot of the next fragment in order, or the next free slot.
    next: u32,
}

#[derive(Debug)]
pub(super) struct Store<T> {
    /// Hashed with a secret of its own.
    datagrams: HashMap<DatagramKey, Datagram>,
    slots: Vec<FragmentSlot<T>>,
    free: u32,
    held: usize,
    /// What they count against the limit, in all and by ingress port.
    used: usize,
    by_port: HashMap<u32, usize>,
    max: usize,
    /// The number of packets begun.
    begun: u64,
}

impl<T> Store<T> {
    pub fn new(max: usize) -> Self {
        let mut store = Store {
            datagrams: HashMap::new(),
            slots: Vec::new(),
            free: NONE,
            held: 0,
            used: 0,
            by_port: HashMap::new(),
            max: 0,
            begun: 0,
        };
        store.set_max(max);
        store
    }

    pub fn max(&self) -> usize {
        self.max
    }

    pub fn held(&self) -> usize {
        self.held
    }

    /// Sets the limit and makes room for it.
    pub fn set_max(&mut self, max: usize) {
        self.max = max;
        // With twice the room, the table never grows to remove traces of deletions.
        self.datagrams.reserve((2 * max).saturating_sub(self.datagrams.len()));
        while self.slots.len() < max {
            self.slots.push(FragmentSlot { fragment: None, next: self.free });
            self.free = (self.slots.len() - 1) as u32;
        }
    }

    /// Holds a fragment. True if its packet is then complete.
    pub fn insert(
        &mut self,
        header: &FragmentHeader,
        fragment: &mut Option<HeldFragment<T>>,
        expires_ms: u64,
    ) -> Result<bool, StoreError> {
        let Some((port, units)) = fragment.as_ref().map(charge) else { return Err(StoreError::Full) };
        if !self.has_room(port, units) {
            return Err(StoreError::Full);
        }
        let (start, end) = (header.span.start, header.span.end);
        let before = match self.datagrams.get(&header.key) {
            None => NONE,
            Some(datagram) => match self.predecessor(datagram, start, end, header.is_last) {
                Some(before) => before,
                None => return Err(StoreError::Overlap),
            },
        };
        let slot = self.free;
        self.free = self.slots[slot as usize].next;
        self.held += 1;
        self.used += units;
        *self.by_port.entry(port).or_default() += units;
        let begun = &mut self.begun;
        let datagram = self.datagrams.entry(header.key).or_insert_with(|| {
            *begun += 1;
            Datagram { first: NONE, last: NONE, count: 0, bytes: 0, total: None, number: *begun, expires_ms }
        });
        let next = match before {
            NONE => std::mem::replace(&mut datagram.first, slot),
            _ => std::mem::replace(&mut self.slots[before as usize].next, slot),
        };
        self.slots[slot as usize] = FragmentSlot { fragment: fragment.take(), next };
        if next == NONE {
            datagram.last = slot;
        }
        if header.is_last {
            datagram.total = Some(end);
        }
        datagram.count += 1;
        datagram.bytes += end - start;
        Ok(datagram.total == Some(datagram.bytes))
    }

    fn has_room(&self, port: u32, units: usize) -> bool {
        let used = self.used + units;
        let own = self.by_port.get(&port).copied().unwrap_or(0);
        let ports = self.by_port.len() + usize::from(own == 0);
        // Each fragment has a slot.
        let is_in_share = used <= self.max - self.max / 8 || own + units <= self.max / (ports + 1);
        used <= self.max && self.held < self.max && is_in_share
    }

    /// Takes a fragment out of what its port has.
    fn discharge(&mut self, port: u32, units: usize) {
        self.used -= units;
        if let Some(own) = self.by_port.get_mut(&port) {
            *own -= units;
            if *own == 0 {
                self.by_port.remove(&port);
            }
        }
    }

    fn span(&self, slot: u32) -> (u32, u32) {
        let fragment = self.slots[slot as usize].fragment.as_ref().expect("invariant: a slot in a list is taken");
        (fragment.span.start, fragment.span.end)
    }

    /// The slot behind which a fragment belongs, [`NONE`] for the front; `None` if it does not fit.
    fn predecessor(&self, datagram: &Datagram, start: u32, end: u32, is_last: bool) -> Option<u32> {
        let (_, last_end) = self.span(datagram.last);
        if datagram.total.is_some_and(|total| is_last || end > total) || is_last && last_end > start {
            return None;
        }
        if start >= last_end {
            return Some(datagram.last);
        }
        let (mut before, mut at) = (NONE, datagram.first);
        // The last one begins behind `start` or overlaps, so the loop ends before the list does.
        while at != NONE {
            let (there, there_end) = self.span(at);
            if there >= end {
                break;
            }
            if there_end > start {
                return None;
            }
            (before, at) = (at, self.slots[at as usize].next);
        }
        Some(before)
    }

    /// Removes a packet's fragments, in order. Returns how many.
    pub fn take(&mut self, key: &DatagramKey, mut each: impl FnMut(HeldFragment<T>)) -> usize {
        let Some(datagram) = self.datagrams.remove(key) else { return 0 };
        let (mut at, mut n) = (datagram.first, 0);
        while at != NONE {
            let slot = &mut self.slots[at as usize];
            let next = std::mem::replace(&mut slot.next, self.free);
            (self.free, at) = (at, next);
            if let Some(fragment) = slot.fragment.take() {
                let (port, units) = charge(&fragment);
                self.discharge(port, units);
                each(fragment);
                n += 1;
            }
        }
        self.held -= n;
        n
    }

    /// Removes expired packets in the order in which they began. Returns the earliest expiry of the others.
    pub fn take_expired(&mut self, now_ms: u64, mut each: impl FnMut(bool, HeldFragment<T>)) -> Option<u64> {
        self.take_chosen(|_, datagram| datagram.expires_ms <= now_ms, &mut each);
        self.datagrams.values().map(|datagram| datagram.expires_ms).min()
    }

    /// Removes the packets that have a fragment for which `is_meant` holds.
    pub fn take_with(
        &mut self,
        is_meant: impl Fn(&HeldFragment<T>) -> bool,
        mut each: impl FnMut(bool, HeldFragment<T>),
    ) {
        self.take_chosen(|store, datagram| store.fragments(datagram).any(&is_meant), &mut each);
    }

    fn take_chosen(
        &mut self,
        is_chosen: impl Fn(&Self, &Datagram) -> bool,
        each: &mut impl FnMut(bool, HeldFragment<T>),
    ) {
        let chosen = self.datagrams.iter().filter(|(_, datagram)| is_chosen(self, datagram));
        let mut keys: Vec<_> = chosen.map(|(key, datagram)| (datagram.number, *key)).collect();
        keys.sort_unstable_by_key(|(number, _)| *number);
        for (_, key) in keys {
            self.take(&key, |fragment| each(key.v6, fragment));
        }
    }

    fn fragments(&self, datagram: &Datagram) -> impl Iterator<Item = &HeldFragment<T>> {
        let mut at = datagram.first;
        std::iter::from_fn(move || {
            let slot = self.slots.get(at as usize)?;
            at = slot.next;
            slot.fragment.as_ref()
        })
    }

    pub fn lists(&self) -> Vec<FragmentList> {
        let mut all: Vec<_> = self.datagrams.iter().collect();
        all.sort_unstable_by_key(|(_, datagram)| datagram.number);
        let list = |(key, datagram): (&DatagramKey, &Datagram)| FragmentList {
            key: *key,
            fragments: datagram.count,
            progress: Progress { has_first: self.span(datagram.first).0 == 0, has_last: datagram.total.is_some() },
        };
        all.into_iter().map(list).collect()
    }
}
