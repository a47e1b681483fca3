//! A rate, kept by the clock.

use sluice_traffic::Pacer;
use std::time::Instant;

/// What a queue with a rate owes, and what of it will never be there.
#[derive(Debug)]
pub(crate) struct Pace {
    origin: Instant,
    pacer: Pacer,
    /// Packets due when last asked.
    pub(crate) due: usize,
}

impl Pace {
    /// From now on.
    pub(crate) fn new(pacer: Pacer) -> Self {
        Pace { origin: Instant::now(), pacer, due: 0 }
    }

    /// How many packets are due now, `most` at most.
    #[inline]
    pub(crate) fn ask(&mut self, most: usize) -> usize {
        self.due = self.pacer.due(self.origin.elapsed().as_nanos() as u64, most);
        self.due
    }

    /// How many packets a stall made the rate give up since this was last asked.
    #[inline]
    pub(crate) fn given_up(&mut self) -> usize {
        self.pacer.take_missed() as usize
    }
}
