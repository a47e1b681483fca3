//! Packets of a lane that arrive by the clock, and wait in a ring, like a NIC's, until the switch takes them.
//!
//! Nothing sends them: the number that has arrived by now is computed. So the rate is exact at any speed and takes no
//! core. Packets that arrive while the ring is full are lost, as in a NIC.

use std::collections::VecDeque;

/// One lane's packets.
#[derive(Clone, Debug)]
pub struct Arrivals {
    /// Packets a second.
    rate: f64,
    began_ns: u64,
    /// Packets in all.
    total: u64,
    /// How many of them have arrived.
    come: u64,
    /// First number and count of packets that wait, oldest first.
    ring: VecDeque<(u64, u64)>,
    waiting: u64,
    room: u64,
}

impl Arrivals {
    /// `total` packets at `rate` from `began_ns` on, into a ring of `room`.
    pub fn new(rate: f64, began_ns: u64, total: u64, room: u64) -> Arrivals {
        Arrivals { rate, began_ns, total, come: 0, ring: VecDeque::new(), waiting: 0, room: room.max(1) }
    }

    /// Adds the packets that have arrived by now.
    pub fn advance(&mut self, now_ns: u64) {
        let Some(elapsed) = now_ns.checked_sub(self.began_ns) else { return };
        // The first arrives at once, number k after k intervals.
        let by_now = ((elapsed as f64 * self.rate / 1e9) as u64 + 1).min(self.total);
        let new = by_now.saturating_sub(self.come);
        let kept = new.min(self.room - self.waiting);
        if kept != 0 {
            match self.ring.back_mut() {
                Some((first, n)) if *first + *n == self.come => *n += kept,
                _ => self.ring.push_back((self.come, kept)),
            }
            self.waiting += kept;
        }
        self.come += new;
    }

    /// Takes the oldest waiting packets, at most `most`: the number of the first, and how many.
    pub fn take(&mut self, most: u64) -> Option<(u64, u64)> {
        let (first, n) = self.ring.front_mut()?;
        let taken = (*n).min(most);
        let from = *first;
        (*first, *n) = (*first + taken, *n - taken);
        if *n == 0 {
            self.ring.pop_front();
        }
        self.waiting -= taken;
        Some((from, taken))
    }

    /// When a packet arrives, nanoseconds.
    pub fn due_ns(&self, number: u64) -> u64 {
        self.began_ns + (number as f64 * 1e9 / self.rate) as u64
    }

    /// How many have arrived.
    pub fn come(&self) -> u64 {
        self.come
    }

    /// Whether all have arrived and none waits.
    pub fn is_over(&self) -> bool {
        self.come == self.total && self.waiting == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// With any sequence of calls, every packet is taken once, in order and not before it is due, or lost to a full
        /// ring.
        #[test]
        fn every_packet_is_taken_or_lost(rate in prop_oneof![1.0f64..1e9, Just(1e6)], total in 0u64..5000, room in 1u64..300,
                                         asks in prop::collection::vec((0u64..100_000, 1u64..64), 1..60)) {
            let mut arrivals = Arrivals::new(rate, 77, total, room);
            let (mut now, mut taken, mut next) = (0, 0, 0);
            for (step, most) in asks {
                now += step;
                arrivals.advance(now);
                prop_assert!(arrivals.waiting <= room);
                if let Some((first, n)) = arrivals.take(most) {
                    prop_assert!(first >= next && n <= most && n != 0);
                    prop_assert!(arrivals.due_ns(first + n - 1) <= now + 1, "not before it is due");
                    (next, taken) = (first + n, taken + n);
                }
            }
            arrivals.advance(u64::MAX / 2);
            prop_assert_eq!(arrivals.come(), total);
            while let Some((_, n)) = arrivals.take(7) {
                taken += n;
            }
            prop_assert!(arrivals.is_over() && taken <= total);
        }
    }

    #[test]
    fn a_ring_that_is_emptied_in_time_loses_nothing() {
        let mut arrivals = Arrivals::new(1e6, 0, 1000, 10);
        let mut numbers = Vec::new();
        for now in (0..1_000_000).step_by(5000) {
            arrivals.advance(now);
            while let Some((first, n)) = arrivals.take(32) {
                numbers.extend(first..first + n);
            }
        }
        assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
        assert!(numbers.len() > 990);
    }

    #[test]
    fn a_full_ring_loses_the_newest() {
        let mut arrivals = Arrivals::new(1e9, 0, 100, 10);
        arrivals.advance(49);
        assert_eq!(arrivals.take(32), Some((0, 10)));
        arrivals.advance(59);
        assert_eq!(arrivals.take(32), Some((50, 10)));
        assert_eq!(arrivals.come(), 60);
    }
}
