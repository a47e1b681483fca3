//! A ring whose chains are recorded while they are in flight, for the back end that comes after this one.
//!
//! A chain is recorded when it is taken from the guest, and the record is cleared once the guest sees it used. If this
//! process dies in between, its successor takes the recorded chains first, in the order in which they were taken, and
//! then those behind them. So none is lost, and none is used twice.
//!
//! A split ring that uses its chains in order would find its place without records. A packed one does not: a burst
//! overwrites the descriptors behind its first before the guest sees any of them.
//!
//! The frontend may write the records at any time. They are read once, when the ring starts, and checked; from then on
//! they are only written. Source: vhost-user protocol, "Inflight I/O tracking".

use super::super::inflight_buffer::QueueBuffer;
use super::super::memory::{Shared, View};
use super::table::{ChainReader, TableOrder};
use super::{Access, Broken, Burst, Chain, Result, RingFormat, RingSetup};
use sluice_packet::BATCH_MAX;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Release;

/// The version of records. Zero is an empty buffer.
pub const VERSION: u16 = 1;

/// A chain in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The entry of its first descriptor in the records, and that of its last.
    pub head: u16,
    pub last: u16,
    /// The ring's descriptors that it takes.
    pub descriptors: u16,
}

/// A format of rings whose chains can be recorded.
pub trait Recordable: RingFormat {
    type Records: Debug;

    /// Continues where the records say. Returns them, and the chains in flight in the order in which they were taken.
    fn recover(&mut self, setup: &RingSetup, buffer: &QueueBuffer) -> Result<(Self::Records, VecDeque<Taken>)>;

    /// Records the next chain behind `ahead` descriptors in flight, if the guest has made one available.
    fn take(&mut self, records: &mut Self::Records, ahead: u16) -> Result<Option<Taken>>;

    /// Whether chains may be tables of descriptors.
    fn tables(&self) -> Option<TableOrder>;

    /// Adds the buffers of a recorded chain.
    fn gather_taken(&self, records: &Self::Records, taken: Taken, reader: ChainReader<'_>) -> Result<()>;

    /// Notes which chains the guest is about to see used.
    fn before_publication(&self, records: &mut Self::Records, used: &[Taken]);

    /// Notes that the guest has seen them.
    fn after_publication(&self, records: &mut Self::Records, used: &[Taken]);
}

/// A ring of a format, with records.
#[derive(Debug)]
pub struct RecordedRing<F: Recordable> {
    ring: F,
    records: F::Records,
    /// The chains in flight that are not used, in order.
    taken: VecDeque<Taken>,
    /// Their descriptors.
    ahead: u16,
    /// How many of them the burst has.
    gathered: usize,
    /// Chains that were used and not published.
    used: Vec<Taken>,
}

impl<F: Recordable> RingFormat for RecordedRing<F> {
    fn new(setup: &RingSetup) -> Result<Self> {
        let buffer = setup.inflight.as_ref().ok_or(Broken::Inflight)?;
        if setup.size > buffer.queue_size {
            return Err(Broken::Inflight);
        }
        let mut ring = F::new(setup)?;
        let (records, mut taken) = ring.recover(setup, buffer)?;
        let size = usize::from(setup.size);
        let ahead: usize = taken.iter().map(|taken| usize::from(taken.descriptors)).sum();
        let ahead = u16::try_from(ahead).ok().filter(|n| *n <= setup.size).ok_or(Broken::Inflight)?;
        taken.reserve(size - taken.len());
        Ok(RecordedRing { ring, records, taken, ahead, gathered: 0, used: Vec::with_capacity(size) })
    }

    fn position(&self) -> u32 {
        self.ring.position()
    }

    fn gather(&mut self, n: usize, access: Access, view: &mut View, burst: &mut Burst) -> Result<()> {
        if burst.chains.is_empty() {
            self.gathered = 0;
        }
        for _ in 0..n.min(BATCH_MAX) {
            if burst.is_full() {
                break;
            }
            let taken = match self.taken.get(self.gathered) {
                Some(taken) => *taken,
                None => {
                    let Some(taken) = self.ring.take(&mut self.records, self.ahead)? else { break };
                    self.taken.push_back(taken);
                    self.ahead += taken.descriptors;
                    taken
                }
            };
            let reader = ChainReader { access, tables: self.ring.tables(), view, burst, len: 0 };
            self.ring.gather_taken(&self.records, taken, reader)?;
            self.gathered += 1;
        }
        Ok(())
    }

    fn look_ahead(&self, n: usize, view: &View) {
        self.ring.look_ahead(n, view);
    }

    fn put_used(&mut self, chain: &Chain, written: u32, view: &View) {
        #[cfg(test)]
        super::crash::point();
        let taken = self.taken.pop_front().expect("invariant: a burst has chains in flight");
        self.ahead -= taken.descriptors;
        self.gathered -= 1;
        self.used.push(taken);
        self.ring.put_used(chain, written, view);
    }

    fn publish(&mut self, view: &View) -> bool {
        if self.used.is_empty() {
            return false;
        }
        self.ring.before_publication(&mut self.records, &self.used);
        #[cfg(test)]
        super::crash::point();
        self.ring.publish(view);
        self.ring.after_publication(&mut self.records, &self.used);
        self.used.clear();
        true
    }

    fn wants_call(&mut self) -> bool {
        self.ring.wants_call()
    }

    fn forget_notified(&mut self) {
        self.ring.forget_notified();
    }
}

/// Stores a word of the records.
///
/// If the process dies, its successor finds all stores up to some instruction and none behind it. So it is enough that
/// the compiler keeps their order.
pub fn store(words: &Shared<AtomicU64>, at: usize, word: u64) {
    #[cfg(test)]
    super::crash::point();
    words[at].store(word, Release);
}

/// The order in which chains in flight were taken, given their counters. Returns the next counter, too.
pub fn in_order(mut chains: Vec<(u64, Taken)>) -> (VecDeque<Taken>, u64) {
    chains.sort_by_key(|(counter, taken)| (*counter, taken.head));
    let next = chains.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
    (chains.into_iter().map(|(_, taken)| taken).collect(), next)
}
