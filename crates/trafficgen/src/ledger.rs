//! Arrived packets by lane: number, order, latency.

use crate::generator::LaneFigures;
use crate::latency::Histogram;
use crate::stamp::Stamp;

/// The packets of a trial that arrived.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    trial: u16,
    lanes: Vec<Account>,
    /// Packets without a stamp, or of another trial.
    pub strangers: u64,
}

#[derive(Clone, Debug, Default)]
struct Account {
    received: u64,
    /// Packets that arrived after one that was sent later.
    late: u64,
    /// Packets that arrived at the wrong port.
    astray: u64,
    /// The port at which packets should arrive.
    to: usize,
    /// One more than the highest number seen.
    next: u32,
    latency: Histogram,
}

impl Ledger {
    /// An empty ledger for a trial. `to` is the port at which each lane's packets are expected.
    pub fn new(trial: u16, to: impl Iterator<Item = usize>) -> Ledger {
        Ledger { trial, lanes: to.map(|to| Account { to, ..Account::default() }).collect(), strangers: 0 }
    }

    /// Counts a frame that arrived at `port`.
    #[inline]
    pub fn count(&mut self, frame: &[u8], port: usize, now_ns: u64) {
        let stamp = Stamp::read(frame).filter(|stamp| stamp.trial == self.trial);
        let Some((stamp, account)) = stamp.and_then(|s| Some((s, self.lanes.get_mut(usize::from(s.lane))?))) else {
            self.strangers += 1;
            return;
        };
        if account.to != port {
            account.astray += 1;
            return;
        }
        account.received += 1;
        // Numbers wrap; a number that is behind by less than half the range is late.
        if stamp.number.wrapping_sub(account.next) < 1 << 31 {
            account.next = stamp.number.wrapping_add(1);
        } else {
            account.late += 1;
        }
        account.latency.record(now_ns.saturating_sub(stamp.due_ns));
    }

    /// Results of a lane that sent `sent` packets.
    pub fn figures(&self, lane: usize, name: String, sent: u64) -> LaneFigures {
        let account = &self.lanes[lane];
        LaneFigures {
            lane: name,
            sent,
            received: account.received,
            out_of_order: account.late,
            astray: account.astray,
            latency: account.latency.latency(),
        }
    }

    /// The latencies of all lanes together.
    pub fn histogram(&self) -> Histogram {
        self.lanes.iter().fold(Histogram::default(), |mut sum, lane| {
            sum.add(&lane.latency);
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_place_and_trial_are_told_apart() {
        let mut ledger = Ledger::new(7, [1, 0].into_iter());
        let mut come = |trial, lane, number, port| {
            let mut frame = [0; 60];
            Stamp { trial, lane, number, due_ns: 100 }.write(&mut frame);
            ledger.count(&frame, port, 150);
        };
        [0, 1, 3, 2, 4].into_iter().for_each(|number| come(7, 0, number, 1));
        come(7, 1, u32::MAX, 0);
        come(7, 1, 0, 0);
        come(7, 1, 1, 1);
        come(6, 0, 5, 1);
        come(7, 9, 5, 1);
        ledger.count(&[0; 10], 0, 0);
        let first = ledger.figures(0, "a".into(), 6);
        assert_eq!((first.received, first.out_of_order, first.astray), (5, 1, 0));
        assert_eq!(first.latency.unwrap().max_ns, 50);
        let second = ledger.figures(1, "b".into(), 3);
        assert_eq!((second.received, second.astray), (2, 1));
        assert_eq!(ledger.strangers, 3);
    }
}
