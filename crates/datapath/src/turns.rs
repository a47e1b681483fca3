//! Whose turn it is: polling weighted by cycles.
//!
//! A batch of one queue may cost a hundred times a batch of another, so queues that are polled in turn do not get equal
//! shares. Each queue has an account of the cycles that its packets took. One that is ahead of the others that have
//! packets is not polled, unless those have none now: nobody is kept waiting for nothing.

/// Cycles a queue may be ahead: a few batches, so that queues of equal cost take turns as ever.
const AHEAD: u64 = 50_000;

/// A receive queue's account.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    spent: u64,
    /// It gave packets when it was last polled.
    is_active: bool,
}

/// The accounts of a PMD's queues, as they were when a turn began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// The least that an active queue has spent.
    floor: u64,
    active: usize,
    /// What a queue that begins to have packets has spent at least: what it did not want is not saved up, and those that
    /// were alone owe it nothing.
    entry: u64,
}

impl Turn {
    /// Looks at all accounts. `served` is the PMD's own: the highest floor there has been.
    #[inline]
    pub fn begin<'a>(accounts: impl Iterator<Item = &'a Account>, served: &mut u64) -> Turn {
        let (floor, active) = accounts
            .filter(|account| account.is_active)
            .fold((u64::MAX, 0), |(floor, active), account| (floor.min(account.spent), active + 1));
        if active != 0 {
            *served = floor.max(*served);
        }
        Turn { floor, active, entry: *served }
    }

    /// Whether a queue is to be polled after the others, and only if these give nothing.
    #[inline]
    pub fn is_ahead(&self, account: &Account) -> bool {
        self.active > 1 && account.is_active && account.spent - self.floor > AHEAD
    }

    /// Whether others than this queue had packets.
    #[inline]
    pub fn is_contended(&self, account: &Account) -> bool {
        self.active > usize::from(account.is_active)
    }

    /// Notes that a queue was polled and gave nothing.
    #[inline]
    pub fn note_empty(&self, account: &mut Account) {
        account.is_active = false;
    }

    /// Notes what a queue's packets have cost.
    #[inline]
    pub fn note_spent(&self, account: &mut Account, cycles: u64) {
        if !account.is_active {
            account.spent = account.spent.max(self.entry);
        }
        account.is_active = true;
        account.spent += cycles;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop like the PMD's, over queues whose batch costs so much and that have a batch in one of so many turns.
    /// Returns the cycles each got.
    fn run<const N: usize>(queues: [(u64, u64); N], turns: u64) -> [u64; N] {
        let (mut accounts, mut got, mut served) = ([Account::default(); N], [0; N], 0);
        for now in 0..turns {
            let turn = Turn::begin(accounts.iter(), &mut served);
            let mut gave = false;
            for late in [false, true] {
                if late && gave {
                    break;
                }
                let is_due = accounts.map(|account| turn.is_ahead(&account) == late);
                for i in (0..N).filter(|&i| is_due[i]) {
                    let (cost, every) = queues[i];
                    if now % every != 0 {
                        turn.note_empty(&mut accounts[i]);
                        continue;
                    }
                    turn.note_spent(&mut accounts[i], cost);
                    got[i] += cost;
                    gave = true;
                }
            }
        }
        got
    }

    #[test]
    fn a_dear_queue_gets_no_more_cycles_than_a_cheap_one() {
        let [dear, cheap] = run([(100_000, 1), (1000, 1)], 100_000);
        assert!(dear.abs_diff(cheap) < 300_000, "{dear} {cheap}");
        let [a, b, c] = run([(70_000, 1), (3000, 1), (9000, 1)], 100_000);
        assert!(a.abs_diff(b) < 300_000 && b.abs_diff(c) < 300_000, "{a} {b} {c}");
    }

    #[test]
    fn who_is_alone_or_among_idle_queues_is_polled_at_every_turn() {
        assert_eq!(run([(100_000, 1)], 1000), [100_000_000]);
        let [dear, idle] = run([(100_000, 1), (1000, u64::MAX)], 1000);
        assert_eq!((dear / 100_000, idle), (1000, 1000));
    }

    #[test]
    fn a_queue_of_few_packets_keeps_nobody_waiting_for_long() {
        let [dear, few] = run([(100_000, 1), (1000, 10)], 100_000);
        assert_eq!(few, 10_000_000, "it gets what it wants");
        assert!(dear > 8_000_000_000, "the other has nearly all turns: {dear}");
    }

    #[test]
    fn what_was_not_wanted_is_not_saved_up() {
        let (mut accounts, mut served) = ([Account::default(); 2], 0);
        let turn = Turn::begin(accounts.iter(), &mut served);
        turn.note_spent(&mut accounts[0], 1_000_000_000);
        let turn = Turn::begin(accounts.iter(), &mut served);
        turn.note_spent(&mut accounts[1], 10);
        let turn = Turn::begin(accounts.iter(), &mut served);
        assert!(!turn.is_ahead(&accounts[0]) && !turn.is_ahead(&accounts[1]));
    }

    #[test]
    fn who_was_alone_owes_nothing_to_who_comes_later() {
        let (mut accounts, mut served) = ([Account::default(); 2], 0);
        for _ in 0..100 {
            let turn = Turn::begin(accounts.iter(), &mut served);
            turn.note_spent(&mut accounts[0], 10_000);
        }
        Turn::begin(accounts.iter(), &mut served).note_empty(&mut accounts[0]);
        Turn::begin(accounts.iter(), &mut served).note_spent(&mut accounts[1], 10);
        Turn::begin(accounts.iter(), &mut served).note_spent(&mut accounts[0], 10);
        let turn = Turn::begin(accounts.iter(), &mut served);
        assert!(!turn.is_ahead(&accounts[0]) && !turn.is_ahead(&accounts[1]));
    }
}
