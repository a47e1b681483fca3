//! When packets are due.

/// Computes how many packets of a steady rate are due. Time is nanoseconds from any origin, and never goes back.
///
/// Lost time is caught up, at most [`CATCH_UP_NS`] or the limit of [`Pacer::catching_up`]. Packets beyond that are
/// never sent, so that a stall does not become a burst.
#[derive(Clone, Debug)]
pub struct Pacer {
    /// Packets per second.
    rate: f64,
    /// The due time of the current count's first packet.
    since_ns: u64,
    /// The current count: packets sent, or given up.
    sent: u64,
    /// How much lost time is caught up.
    catch_up_ns: u64,
    /// Packets given up since the last call of `take_missed`.
    missed: u64,
}

/// How much lost time is caught up by default: 10 ms. Our choice: longer than a scheduler's time slice.
pub const CATCH_UP_NS: u64 = 10_000_000;

/// The count restarts after this time, before products lose precision.
const EPOCH_NS: u64 = 1_000_000_000_000;

impl Pacer {
    /// Paces at `rate` packets per second from `now_ns` on.
    pub fn new(rate: f64, now_ns: u64) -> Self {
        Pacer { rate, since_ns: now_ns, sent: 0, catch_up_ns: CATCH_UP_NS, missed: 0 }
    }

    /// Sets how much lost time is caught up. With 0 the rate is never exceeded over more than one call.
    pub fn catching_up(self, catch_up_ns: u64) -> Self {
        Pacer { catch_up_ns, ..self }
    }

    /// The number of packets to send now, at most `most`; they count as sent.
    #[inline]
    pub fn due(&mut self, now_ns: u64, most: usize) -> usize {
        let elapsed = now_ns.saturating_sub(self.since_ns);
        // The first packet is due at once, packet k after k intervals.
        let owed = (elapsed as f64 * self.rate / 1e9) as u64 + 1;
        let mut late = owed.saturating_sub(self.sent);
        let limit = (self.rate * self.catch_up_ns as f64 / 1e9) as u64 + most as u64;
        if late > limit {
            self.missed += late - limit;
            self.sent += late - limit;
            late = limit;
        }
        let n = late.min(most as u64);
        self.sent += n;
        if elapsed > EPOCH_NS {
            self.since_ns += (self.sent as f64 * 1e9 / self.rate) as u64;
            self.sent = 0;
        }
        n as usize
    }

    /// The number of packets that were given up since the last call: due, but never to be sent.
    #[inline]
    pub fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_is_due_at_once_and_the_rest_in_time() {
        let mut pacer = Pacer::new(1000.0, 5_000_000);
        assert_eq!(pacer.due(5_000_000, 32), 1);
        assert_eq!(pacer.due(5_999_999, 32), 0);
        assert_eq!(pacer.due(6_000_000, 32), 1);
        assert_eq!(pacer.due(9_000_000, 2), 2);
        assert_eq!(pacer.due(9_000_000, 2), 1);
    }

    #[test]
    fn a_stall_is_not_made_up_for_beyond_the_limit() {
        let mut pacer = Pacer::new(1e6, 0);
        pacer.due(0, 32);
        let mut burst = 0;
        loop {
            match pacer.due(10_000_000_000, 32) {
                0 => break,
                n => burst += n,
            }
        }
        assert!((10_000..=10_100).contains(&burst), "{burst}");
        assert_eq!(pacer.due(10_000_001_000, 32), 1);
    }

    #[test]
    fn without_catching_up_a_stall_costs_what_was_due() {
        let mut pacer = Pacer::new(1e6, 0).catching_up(0);
        assert_eq!(pacer.due(0, 32), 1);
        assert_eq!([32, 32, 32].map(|most| pacer.due(10_000_000, most)), [32, 0, 0]);
        // Of 10,001 that were due, 33 were sent.
        assert_eq!([pacer.take_missed(), pacer.take_missed()], [10_001 - 33, 0]);
        assert_eq!(pacer.due(10_005_000, 32), 5);
    }

    proptest! {
        /// Polled often enough, the rate is exact to the packet for hours.
        #[test]
        fn the_rate_is_kept(rate in 1.0f64..50e6, start in 0..u64::MAX / 4) {
            let mut pacer = Pacer::new(rate, start);
            let mut sent = 0;
            let step = (20.0 / rate * 1e9).clamp(1.0, 5e6) as u64;
            for i in 0..20_000 {
                sent += pacer.due(start + i * step, 32);
            }
            let want = 19_999.0 * step as f64 * rate / 1e9 + 1.0;
            prop_assert!((sent as f64 - want).abs() <= 1.5 + want / 1e6, "{} instead of {}", sent, want);
        }
    }

    #[test]
    fn a_long_run_does_not_drift() {
        let mut pacer = Pacer::new(10.0, 0);
        let day_ns: u64 = 86_400_000_000_000;
        let sent: usize = (0..=8_640_000).map(|i| pacer.due(day_ns / 8_640_000 * i, 32)).sum();
        assert!((864_000..=864_002).contains(&sent), "{sent}");
    }
}
