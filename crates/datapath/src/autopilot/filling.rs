//! Filling: an arm fills its cache further, though another arm is cheaper meanwhile.
//!
//! A cache for a million flows takes a second to fill, a cache for ten million takes ten. Its final cost cannot be
//! predicted from the beginning: with half of the flows cached the hit branch is unpredictable, and a packet costs as
//! much as with none (ten million flows, 2026-11-21, cycles a packet: 245 at 11 %, 219 at 43 %, 80 at 99 %). So the arm
//! is given time, in periods that must each add to the hit rate.

use super::sample::Sample;

/// Length of the first period, and the most of the last one; each is twice as long as the one before.
const PERIOD_MS: u64 = 60;
const LAST_PERIOD_MS: u64 = 16_000;
/// The most of the last period of an arm that is not in charge: nothing watches the traffic meanwhile.
const LAST_PERIOD_OF_OTHERS_MS: u64 = 1000;
/// A period with fewer packets is extended, at most this many times: at a thousand cycles a packet, 60 ms fill less
/// than a hundredth of a cache for ten million flows.
const PERIOD_PACKETS: u64 = 1 << 19;
const PATIENCE: u64 = 8;
/// What a period must add to the share of cached passes, unless a cache of some use is waiting for memory, or has grown, which
/// loses most of what it held.
const GAIN: f64 = 0.005;
const USEFUL: f64 = 0.01;
/// Share and cost are measured in the last quarter of a period.
const LATE: u64 = 4;

/// Shares of cached passes at which filling helps: flows come again, and not all are cached.
const UNFILLED: std::ops::Range<f64> = 0.001..0.95;
/// How much dearer than the best other arm the filling arm may be meanwhile.
const AFFORDABLE: f64 = 0.4;

/// A filling under way.
#[derive(Clone, Debug)]
pub(super) struct Filling {
    /// The arm whose cache fills.
    pub arm: usize,
    /// What the best other arm costs, cycles a packet.
    rival: f64,
    /// When the period began and when it ends, TSC, and how long one may be.
    period: (u64, u64),
    longest: u64,
    /// Packets of the period.
    packets: u64,
    /// The share of cached passes when the period began.
    share: f64,
    /// Lines in use when the period began, once they are known.
    lines: Option<usize>,
    late: Sample,
}

impl Filling {
    /// Whether filling helps if this share of the passes is cached, a packet costs `cost`, and with the best other
    /// arm `rival`.
    pub fn is_worth_it(share: f64, cost: f64, rival: f64) -> bool {
        UNFILLED.contains(&share) && cost < rival * (1.0 + AFFORDABLE)
    }

    /// Begins with a cache that answers this share of the passes. `ms` is the cycles of a millisecond.
    pub fn new(arm: usize, is_in_charge: bool, share: f64, rival: f64, now: u64, ms: u64) -> Self {
        let period = (now, now + PERIOD_MS * ms);
        let longest = if is_in_charge { LAST_PERIOD_MS } else { LAST_PERIOD_OF_OTHERS_MS } * ms;
        Filling { arm, rival, period, longest, packets: 0, share, lines: None, late: Sample::default() }
    }

    /// Takes a chunk that ended `now`. Returns whether to continue.
    pub fn push(&mut self, chunk: &Sample, now: u64) -> bool {
        let lines = *self.lines.get_or_insert(chunk.cache_lines);
        let (began, ends) = self.period;
        let length = ends - began;
        if now + length / LATE >= ends {
            self.late.add(chunk);
        }
        self.packets += chunk.packets;
        if now < ends || self.packets < PERIOD_PACKETS && now < began + PATIENCE * length {
            return true;
        }
        self.packets = 0;
        let late = std::mem::take(&mut self.late);
        let before = std::mem::replace(&mut self.share, late.cached_share());
        self.period = (now, now + 2 * length);
        self.lines = Some(chunk.cache_lines);
        let has_grown = chunk.cache_lines > lines;
        let has_gained = self.share > before + GAIN || (late.awaits_memory || has_grown) && self.share > USEFUL;
        if has_grown {
            // The share is in part that of the smaller cache, which the next period need not exceed.
            self.share = 0.0;
        }
        has_gained && Filling::is_worth_it(late.cached_share(), late.cost(), self.rival) && 2 * length <= self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1000;

    /// The milliseconds that a cache is given if `share(ms)` of the passes is cached after `ms`.
    fn given(share: impl Fn(u64) -> f64, awaits_memory: impl Fn(u64) -> bool, cost: u64) -> u64 {
        given_at(10_000, share, awaits_memory, |_| 0, cost)
    }

    /// The same with this many packets a millisecond.
    fn given_at(
        packets: u64,
        share: impl Fn(u64) -> f64,
        awaits_memory: impl Fn(u64) -> bool,
        lines: impl Fn(u64) -> usize,
        cost: u64,
    ) -> u64 {
        let mut filling = Filling::new(0, true, share(0), 200.0, 0, MS);
        let ends = |ms: &u64| {
            let cached = (share(*ms) * packets as f64) as u64;
            let awaits_memory = awaits_memory(*ms);
            let chunk = Sample {
                bursts: 400,
                packets,
                cycles: cost * packets,
                passes: packets,
                cached,
                awaits_memory,
                cache_lines: lines(*ms),
                ..Sample::default()
            };
            !filling.push(&chunk, ms * MS)
        };
        (1..100_000).find(ends).unwrap()
    }

    #[test]
    fn it_goes_on_while_periods_gain() {
        let never = |_| false;
        assert_eq!(given(|_| 0.3, never, 210), 60);
        assert_eq!(given(|ms| (ms as f64 / 1000.0).min(0.9), never, 210), 63 * 60);
        assert_eq!(given(|ms| (ms as f64 / 1000.0).min(1.0), never, 210), 15 * 60 + 960, "it is full");
        // In the end it is compared with the others in any case.
        assert_eq!(given(|ms| (ms as f64).sqrt() / 200.0, never, 210), 511 * 60);
    }

    #[test]
    fn periods_are_longer_where_packets_are_slow() {
        // A period of 60 ms would add half of what it must.
        let slowly = |ms: u64| (0.001 + ms as f64 / 24_000.0).min(0.9);
        assert_eq!(given_at(10_000, slowly, |_| false, |_| 0, 210), 60);
        assert!(given_at(2000, slowly, |_| false, |_| 0, 210) > 20_000);
        assert_eq!(given_at(10, |_| 0.5, |_| false, |_| 0, 210), 60 * PATIENCE, "but not for ever");
    }

    #[test]
    fn it_waits_for_memory_if_the_cache_is_of_some_use() {
        assert_eq!(given(|_| 0.13, |ms| ms < 800, 210), 31 * 60);
        assert_eq!(given(|_| 0.005, |_| true, 210), 60);
    }

    #[test]
    fn it_goes_on_after_the_cache_has_grown() {
        // It doubles twice, and its share has to be more than none in the period after.
        let lines = |ms| 512 << [50, 150].iter().filter(|at| ms > **at).count();
        assert_eq!(given_at(10_000, |_| 0.13, |_| false, lines, 210), 60 + 120 + 240 + 480);
        assert_eq!(given_at(10_000, |_| 0.13, |_| false, |_| 512, 210), 60);
    }

    #[test]
    fn it_ends_when_it_costs_too_much() {
        assert_eq!(given(|ms| ms as f64 / 1e4, |_| false, 300), 60);
    }
}
