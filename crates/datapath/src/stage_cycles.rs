//! A PMD's cycles by stage, if `Config::profile` is set. The clock is then read between stages, once a batch, which
//! itself costs some cycles a packet. Otherwise it costs a branch per stage.

use crate::pmd_shared::PmdShared;
use crate::progress::Progress;
use sluice_simd::tsc;
use std::sync::Arc;

/// A part of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// Polling a receive queue; with a generator port, making the packets.
    Rx,
    /// From bytes to keys.
    Parse,
    /// Composed entries: finding them, and carrying out what they say.
    Composed,
    /// The exact match cache. The first level that is asked bears the hashing of keys, too.
    Emc,
    /// The signature match cache.
    Smc,
    /// The megaflow subtables, the distributor before them, and inserting into the caches what they found.
    Subtables,
    /// Asking the tables.
    Upcall,
    /// Actions.
    Act,
    /// Handing packets to ports.
    Tx,
}

impl Stage {
    /// All of them, in the order of the walk.
    pub const ALL: [Stage; 9] = [
        Stage::Rx,
        Stage::Parse,
        Stage::Composed,
        Stage::Emc,
        Stage::Smc,
        Stage::Subtables,
        Stage::Upcall,
        Stage::Act,
        Stage::Tx,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Rx => "rx",
            Stage::Parse => "parse",
            Stage::Composed => "composed",
            Stage::Emc => "emc",
            Stage::Smc => "smc",
            Stage::Subtables => "subtables",
            Stage::Upcall => "upcall",
            Stage::Act => "act",
            Stage::Tx => "tx",
        }
    }
}

/// Cycles by stage, in the order of [`Stage::ALL`].
pub type StageCycles = [u64; Stage::ALL.len()];

/// Counts cycles by stage.
pub(crate) struct StageClock {
    shared: Arc<PmdShared>,
    is_on: bool,
    last: u64,
    /// The cycle that the work under way counts from, whether stages are counted or not.
    pub began: u64,
    /// The cycles that the PMD has slept because it chose to.
    pub slept: u64,
    pub cycles: StageCycles,
}

impl StageClock {
    /// A clock of the PMD that shares this.
    pub fn new(shared: Arc<PmdShared>, is_on: bool) -> Self {
        StageClock { shared, is_on, last: 0, began: 0, slept: 0, cycles: Default::default() }
    }

    /// What the PMD is doing, as others see it.
    #[inline]
    pub fn progress(&self) -> &Progress {
        &self.shared.progress
    }

    /// Begins to count from now.
    #[inline]
    pub fn start(&mut self) {
        if self.is_on {
            self.last = tsc::now();
        }
    }

    /// Charges the cycles since the last mark to `stage`.
    #[inline]
    pub fn mark(&mut self, stage: Stage) {
        if self.is_on {
            let now = tsc::now();
            self.cycles[stage as usize] += now.saturating_sub(self.last);
            self.last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_in_their_places() {
        Stage::ALL.iter().enumerate().for_each(|(i, stage)| assert_eq!(*stage as usize, i));
        let mut clock = StageClock::new(Arc::new(PmdShared::new(0, None, 0).unwrap()), false);
        clock.start();
        clock.mark(Stage::Tx);
        assert_eq!(clock.cycles, StageCycles::default());
    }
}
