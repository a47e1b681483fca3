//! A packet rate, kept by the clock.

use sluice_traffic::Pacer;
use std::time::Instant;

/// The packets that a rate makes due, and those that it has given up.
#[derive(Debug)]
pub(crate) struct Pace {
    origin: Instant,
    pacer: Pacer,
    /// Packets due at the last call.
    pub(crate) due: usize,
}

impl Pace {
    /// Starts now.
    pub(crate) fn new(pacer: Pacer) -> Self {
        Pace { origin: Instant::now(), pacer, due: 0 }
    }

    /// The number of packets due now, at most `most`.
    #[inline]
    pub(crate) fn ask(&mut self, most: usize) -> usize {
        self.due = self.pacer.due(self.origin.elapsed().as_nanos() as u64, most);
        self.due
    }

    /// The number of packets that the rate gave up because of a stall, since the last call.
    #[inline]
    pub(crate) fn given_up(&mut self) -> usize {
        self.pacer.take_missed() as usize
    }
}
