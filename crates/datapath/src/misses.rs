//! What misses may cost, and which of them install a megaflow.
//!
//! A miss costs a hundred times what a hit does, so a sender whose packets all begin new flows could take a whole PMD.
//! To prevent that, each receive queue has a token bucket that is filled with a share of the PMD's cycles. When it is
//! empty, a packet that misses is dropped with a reason and counted as a lost upcall. Packets that hit are not
//! affected.
//!
//! Within its share a queue may still keep the PMD from polling: a batch of misses takes a hundred times as long as one of
//! hits. So they have a quantum each time the queue is served: those behind wait until the queues have been polled, see `deferred.rs`.

use sluice_governor::{Costs, Decision, Governor, Mode};

/// How much of a PMD's cycles the misses of one receive queue may take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum MissBudget {
    /// All of them.
    #[default]
    Unlimited,
    /// A quarter, as long as another queue of the PMD has packets.
    Auto,
    /// This many thousandths, always.
    PerMille(u32),
}

/// Thousandths that "auto" gives a queue while others have packets. If the others need half of a PMD, this is what
/// remains, less what the dropped packets cost.
const AUTO_PER_MILLE: u32 = 250;

/// A bucket holds a queue's share of this many PMD cycles: some milliseconds, so that a burst of new flows after a
/// pause is not dropped.
const BUCKET_CYCLES: i64 = 20_000_000;

/// Cycles that the misses of a queue may take until the PMD polls again: some 20 µs, a few misses.
const QUANTUM_CYCLES: u64 = 50_000;

/// A PMD's misses.
pub(crate) struct Misses {
    governor: Governor,
    budget: MissBudget,
    /// Tokens, in cycles, of the queue whose packets are in the stages.
    tokens: i64,
    /// Cycles that are left of its quantum.
    quantum: u64,
}

/// A receive queue's miss token bucket. A token is a cycle.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MissBucket {
    tokens: i64,
    /// When it was last filled, cycles.
    filled: u64,
}

impl Misses {
    /// `idle_ms`: how long an unused megaflow stays.
    pub fn new(mode: Mode, budget: MissBudget, idle_ms: u64) -> Self {
        Misses { governor: Governor::new(mode, 0, idle_ms), budget, tokens: i64::MAX, quantum: u64::MAX }
    }

    /// Changes what misses may cost.
    pub fn set_budget(&mut self, budget: MissBudget) {
        self.budget = budget;
    }

    /// Gives a queue a new quantum: it is served now.
    #[inline]
    pub fn begin_quantum(&mut self) {
        // Where misses are not limited they take no quantum, so that replays do not depend on cycles.
        self.quantum = if self.budget == MissBudget::Unlimited { u64::MAX } else { QUANTUM_CYCLES };
    }

    /// The queue has been served. Packets that the switch itself sends have no quantum.
    #[inline]
    pub fn end_quantum(&mut self) {
        self.quantum = u64::MAX;
    }

    /// Fills a queue's bucket up to `now` and uses it for the packets that follow. `contended`: other queues have packets.
    #[inline]
    pub fn begin(&mut self, bucket: &mut MissBucket, now: u64, contended: bool) {
        let per_mille = match self.budget {
            MissBudget::Unlimited => None,
            MissBudget::Auto => contended.then_some(AUTO_PER_MILLE),
            MissBudget::PerMille(per_mille) => Some(per_mille),
        };
        let passed = i64::try_from(now.saturating_sub(bucket.filled)).unwrap_or(i64::MAX);
        bucket.filled = now;
        self.tokens = match per_mille {
            None => i64::MAX,
            Some(share) => {
                let (share, full) = (i64::from(share), BUCKET_CYCLES / 1000 * i64::from(share));
                // A queue that was not limited so far begins with a full bucket.
                bucket.tokens.min(full).saturating_add((passed / 1000).saturating_mul(share)).min(full)
            }
        };
    }

    /// Returns the tokens that are left to the queue's bucket.
    #[inline]
    pub fn end(&mut self, bucket: &mut MissBucket) {
        bucket.tokens = self.tokens;
        self.tokens = i64::MAX;
    }

    /// Whether packets that miss are to wait until the PMD has polled again.
    #[inline]
    pub fn quantum_is_used_up(&self) -> bool {
        self.quantum == 0
    }

    /// Whether another miss may go to the tables.
    #[inline]
    pub fn may_ask(&self) -> bool {
        self.tokens > 0
    }

    /// Charges a miss: cycles for the translation, and for the installation if there was one.
    pub fn charge(&mut self, translate: u64, install: u64) {
        if self.tokens != i64::MAX {
            // A PMD that loses its core in a translation comes back after many milliseconds, which are no debt of the queue.
            self.tokens -= (translate + install).min(BUCKET_CYCLES as u64) as i64;
        }
        if self.quantum != u64::MAX {
            self.quantum = self.quantum.saturating_sub(translate + install);
        }
        self.governor.spent(Costs { translate, install, remove: 0 });
    }

    /// Notes what it cost to take a deleted megaflow out of the indexes.
    pub fn note_removal(&mut self, cycles: u64) {
        self.governor.spent(Costs { remove: cycles, ..Costs::default() });
    }

    /// Whether there is a governor.
    pub fn is_governed(&self) -> bool {
        self.governor.mode() != Mode::Off
    }

    /// What the governor decides about the flow of that hash, of which `packets` have missed together.
    pub fn installs(&mut self, hash: impl FnOnce() -> u64, packets: impl Fn() -> usize, now_ms: u64) -> Installs {
        let before = self.governor.stats();
        let decision = self.governor.decide(hash, packets, now_ms);
        let after = self.governor.stats();
        if after.generations != before.generations {
            self.log_generation();
        }
        Installs { decision, counted: after.counted - before.counted, is_new: after.flows != before.flows }
    }

    /// Logs the generation that ended, as the patch did that crate `governor` names. Generations end after thousands of
    /// misses, and at level DBG only.
    #[cold]
    fn log_generation(&mut self) {
        if let Some(generation) = self.governor.take_generation() {
            tracing::debug!(target: "dpif_netdev", "governor: {generation}");
        }
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

    /// Spends all tokens of the bucket at `now` on misses of 1000 cycles, and returns how many these are.
    fn spend(misses: &mut Misses, bucket: &mut MissBucket, now: u64, contended: bool) -> usize {
        misses.begin(bucket, now, contended);
        let n = (0..100_000).take_while(|_| misses.may_ask().then(|| misses.charge(600, 400)).is_some()).count();
        misses.end(bucket);
        n
    }

    #[test]
    fn a_share_of_the_cycles_passed_can_be_spent() {
        let mut misses = Misses::new(Mode::Off, MissBudget::PerMille(100), 10_000);
        let mut bucket = MissBucket::default();
        assert_eq!(spend(&mut misses, &mut bucket, 1_000_000, false), 100);
        assert_eq!(spend(&mut misses, &mut bucket, 1_000_000, false), 0);
        assert_eq!(spend(&mut misses, &mut bucket, 1_500_000, false), 50);
        // The bucket has a size.
        assert_eq!(spend(&mut misses, &mut bucket, 900_000_000_000, false), 2000);
    }

    /// A PMD that may spend all its cycles on misses is never in debt, however long one of them takes.
    #[test]
    fn a_miss_that_lost_its_core_leaves_no_debt() {
        let long = 10 * BUCKET_CYCLES as u64;
        let left_after = |per_mille, pause| {
            let mut misses = Misses::new(Mode::Off, MissBudget::PerMille(per_mille), 10_000);
            let mut bucket = MissBucket::default();
            misses.begin(&mut bucket, long, true);
            misses.charge(long, 0);
            misses.end(&mut bucket);
            misses.begin(&mut bucket, 2 * long + pause, true);
            misses.tokens
        };
        assert_eq!(left_after(1000, 0), BUCKET_CYCLES);
        // The miss took ten buckets of cycles, of which the queue has a quarter: one of them is charged.
        assert_eq!(left_after(250, 0), BUCKET_CYCLES / 4);
        // With a hundredth it has been given a tenth of the bucket that it is charged.
        assert_eq!(left_after(10, 0), BUCKET_CYCLES / 100 - BUCKET_CYCLES + BUCKET_CYCLES / 10);
        assert!(left_after(10, 9 * long) > 0);
    }

    #[test]
    fn auto_does_not_limit_a_lone_queue() {
        let mut misses = Misses::new(Mode::Off, MissBudget::Auto, 10_000);
        let mut bucket = MissBucket::default();
        assert_eq!(spend(&mut misses, &mut bucket, 1_000_000, false), 100_000);
        assert_eq!(spend(&mut misses, &mut bucket, 1_000_000, true), 5000, "a full bucket");
        assert_eq!(spend(&mut misses, &mut bucket, 2_000_000, true), 250);
        assert_eq!(spend(&mut misses, &mut bucket, 2_000_000, false), 100_000);
    }

    #[test]
    fn unlimited_is_unlimited() {
        let mut misses = Misses::new(Mode::Off, MissBudget::Unlimited, 10_000);
        assert_eq!(spend(&mut misses, &mut MissBucket::default(), 0, true), 100_000);
    }

    #[test]
    fn misses_end_a_turn_if_they_are_counted() {
        let asked = |budget| {
            let mut misses = Misses::new(Mode::Off, budget, 10_000);
            misses.begin_quantum();
            (0..1000).take_while(|_| (!misses.quantum_is_used_up()).then(|| misses.charge(600, 400)).is_some()).count()
        };
        assert_eq!(asked(MissBudget::Auto), 50);
        assert_eq!(asked(MissBudget::PerMille(100)), 50);
        assert_eq!(asked(MissBudget::Unlimited), 1000);
        // A miss that takes longer than a quantum is asked all the same.
        let mut misses = Misses::new(Mode::Off, MissBudget::Auto, 10_000);
        misses.begin_quantum();
        assert!(!misses.quantum_is_used_up());
        misses.charge(10 * QUANTUM_CYCLES, 0);
        assert!(misses.quantum_is_used_up());
        misses.end_quantum();
        assert!(!misses.quantum_is_used_up(), "what the switch itself sends has no quantum");
    }
}
