//! Low load: a receive queue that takes little of its PMD's time, and is found empty again and again.
//!
//! Nothing is to be gained there: no packet waits, so none is lost, and the PMD has time for others. Nothing can be told
//! either: bursts are small, and what a packet costs depends on how many came with it, on system calls, and on caches that
//! others have used meanwhile. So a queue at low load neither tries arms nor says what they cost.
//!
//! A queue whose bursts are nearly full has packets waiting, however little of the time it gets.

use super::Sample;
use sluice_packet::BATCH_MAX;

/// The share of the time below which load may be low.
const SHARE: f64 = 0.25;
/// Packets a burst from which on packets wait.
const NEARLY_FULL: f64 = 0.75 * BATCH_MAX as f64;
/// Chunks in a row that change the mind.
const IN_A_ROW: u32 = 4;

/// Whether load is low, decided from chunks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LowLoad {
    is_low: bool,
    /// Chunks in a row that say otherwise.
    otherwise: u32,
}

impl LowLoad {
    /// Takes a chunk, and the time from the one before.
    pub fn push(&mut self, chunk: &Sample, elapsed: u64) {
        let share = chunk.cycles as f64 / elapsed.max(1) as f64;
        let looks_low = share < SHARE && chunk.fullness() < NEARLY_FULL;
        self.otherwise = if looks_low == self.is_low { 0 } else { self.otherwise + 1 };
        if self.otherwise == IN_A_ROW {
            (self.is_low, self.otherwise) = (looks_low, 0);
        }
    }

    /// Whether load is low.
    pub fn is_low(&self) -> bool {
        self.is_low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_several_chunks_to_change_the_mind() {
        let chunk = |bursts, cycles| Sample { bursts, packets: 256, cycles, ..Sample::default() };
        let (low, busy, waiting) = (chunk(200, 10), chunk(200, 90), chunk(8, 10));
        let mut load = LowLoad::default();
        let mut push = |chunk: &Sample| {
            load.push(chunk, 100);
            load.is_low()
        };
        assert_eq!(
            [&low, &low, &low, &busy, &low, &low, &low, &low, &low].map(&mut push),
            [false, false, false, false, false, false, false, true, true]
        );
        assert_eq!([&busy, &waiting, &busy, &low].map(&mut push), [true; 4]);
        assert_eq!([&busy, &waiting, &busy, &busy].map(&mut push), [true, true, true, false]);
    }
}
