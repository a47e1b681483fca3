//! What misses may cost, and which of them install a megaflow.
//!
//! A miss costs a hundred times what a hit does, so whoever sends packets of new flows only could take a PMD for himself.
//! So each receive queue has a budget: a share of the PMD's cycles. Over it, a packet that misses is dropped by name and
//! counted as a lost upcall; packets that hit are not touched, and none is put off, which would reorder its flow.

use sluice_action::{Translation, agree_under};
use sluice_flow::PacketKey;
use sluice_governor::{Costs, Decision, Governor, Mode};
use sluice_packet::BatchMask;

/// How much of a PMD's cycles the misses of one receive queue may take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum MissBudget {
    /// All of them.
    #[default]
    Unlimited,
    /// A quarter, as long as another queue of the PMD has packets.
    Auto,
    /// So many thousandths, always.
    PerMille(u32),
}

/// Thousandths that "auto" leaves to a queue while others have packets: what half a PMD's worth of other traffic spares,
/// less what the packets over the budget cost themselves.
const AUTO_PER_MILLE: u32 = 250;

/// Cycles of the PMD for which a queue can save its share up: some milliseconds, so that a burst of new flows after
/// a pause is not cut.
const SAVED_CYCLES: i64 = 20_000_000;

/// A PMD's misses.
pub(crate) struct Misses {
    governor: Governor,
    budget: MissBudget,
    /// Cycles that the queue whose packets are in the stages may still spend.
    credit: i64,
}

/// A receive queue's budget.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Purse {
    credit: i64,
    /// When it was last filled, cycles.
    filled: u64,
}

impl Misses {
    /// `idle_ms`: how long an unused megaflow stays.
    pub fn new(mode: Mode, budget: MissBudget, idle_ms: u64) -> Self {
        Misses { governor: Governor::new(mode, 0, idle_ms), budget, credit: i64::MAX }
    }

    /// Takes a queue's purse for its packets, filled up until `now`. `contended`: other queues have packets, too.
    #[inline]
    pub fn take(&mut self, purse: &mut Purse, now: u64, contended: bool) {
        let per_mille = match self.budget {
            MissBudget::Unlimited => None,
            MissBudget::Auto => contended.then_some(AUTO_PER_MILLE),
            MissBudget::PerMille(per_mille) => Some(per_mille),
        };
        let passed = now.saturating_sub(purse.filled).min(SAVED_CYCLES as u64) as i64;
        purse.filled = now;
        self.credit = match per_mille {
            None => i64::MAX,
            Some(share) => {
                let (share, full) = (i64::from(share), SAVED_CYCLES / 1000 * i64::from(share));
                // A queue that could spend freely begins with a full purse, not with what it spent.
                (purse.credit.min(full) + passed / 1000 * share).min(full)
            }
        };
    }

    /// Puts back what is left.
    #[inline]
    pub fn put_back(&mut self, purse: &mut Purse) {
        purse.credit = self.credit;
        self.credit = i64::MAX;
    }

    /// Whether the tables may be asked once more.
    #[inline]
    pub fn may_ask(&self) -> bool {
        self.credit > 0
    }

    /// Charges a miss: cycles for the translation, and for the installation if there was one.
    pub fn charge(&mut self, translate: u64, install: u64) {
        if self.credit != i64::MAX {
            self.credit -= (translate + install) as i64;
        }
        self.governor.spent(Costs { translate, install, remove: 0 });
    }

    /// Notes what it cost to take a megaflow that has died out of the indexes.
    pub fn note_removal(&mut self, cycles: u64) {
        self.governor.spent(Costs { remove: cycles, ..Costs::default() });
    }

    /// What the governor decides about a flow, whose translation packet `i` has asked for; the misses behind it that the
    /// translation stands for, too, count with it. `None` if there is no governor.
    pub fn installs(
        &mut self,
        (hash, translation): (impl FnOnce() -> u64, &Translation),
        keys: &[PacketKey],
        (i, misses): (usize, BatchMask),
        now_ms: u64,
    ) -> Option<Installs> {
        if self.governor.mode() == Mode::Off {
            return None;
        }
        let same = |j: &usize| *j > i && agree_under(&translation.mask, &keys[i], &keys[*j]);
        let packets = || 1 + misses.into_iter().filter(same).count();
        let before = self.governor.stats();
        let decision = self.governor.decide(hash(), packets, now_ms);
        let after = self.governor.stats();
        Some(Installs { decision, counted: after.counted - before.counted, is_new: after.flows != before.flows })
    }
}

/// What the governor has decided about a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Installs {
    pub decision: Decision,
    /// Packets that go without a megaflow.
    counted: u64,
    /// Its first packet was counted.
    pub is_new: bool,
}

impl Installs {
    /// How much the decision counts for: one flow, or the packets that go without a megaflow.
    pub fn packets_if_counted(&self) -> u64 {
        if self.decision == Decision::Count { self.counted } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spends all that `misses` gives the purse at `now`, in misses of 1000 cycles; how many those are.
    fn spend(misses: &mut Misses, purse: &mut Purse, now: u64, contended: bool) -> usize {
        misses.take(purse, now, contended);
        let n = (0..100_000).take_while(|_| misses.may_ask().then(|| misses.charge(600, 400)).is_some()).count();
        misses.put_back(purse);
        n
    }

    #[test]
    fn a_share_of_the_cycles_passed_can_be_spent() {
        let mut misses = Misses::new(Mode::Off, MissBudget::PerMille(100), 10_000);
        let mut purse = Purse::default();
        assert_eq!(spend(&mut misses, &mut purse, 1_000_000, false), 100);
        assert_eq!(spend(&mut misses, &mut purse, 1_000_000, false), 0);
        assert_eq!(spend(&mut misses, &mut purse, 1_500_000, false), 50);
        // What is saved has an end.
        assert_eq!(spend(&mut misses, &mut purse, 900_000_000_000, false), 2000);
    }

    #[test]
    fn auto_limits_nobody_who_is_alone() {
        let mut misses = Misses::new(Mode::Off, MissBudget::Auto, 10_000);
        let mut purse = Purse::default();
        assert_eq!(spend(&mut misses, &mut purse, 1_000_000, false), 100_000);
        assert_eq!(spend(&mut misses, &mut purse, 1_000_000, true), 5000, "a full purse");
        assert_eq!(spend(&mut misses, &mut purse, 2_000_000, true), 250);
        assert_eq!(spend(&mut misses, &mut purse, 2_000_000, false), 100_000);
    }

    #[test]
    fn unlimited_is_unlimited() {
        let mut misses = Misses::new(Mode::Off, MissBudget::Unlimited, 10_000);
        assert_eq!(spend(&mut misses, &mut Purse::default(), 0, true), 100_000);
    }
}
