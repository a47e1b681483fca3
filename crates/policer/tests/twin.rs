//! Policers beside plain twins that go packet by packet, and the bounds of RFC 2697 and RFC 4115.

use proptest::prelude::*;
use sluice_policer::{Color, EgressPolicer, IngressPolicer, Marked, PolicingRates};
use sluice_policer::{QueuePolicer, Rate, TokenBucket, TrTcm, TrTcmRates};
use std::collections::BTreeMap;

const NS_PER_S: u128 = 1_000_000_000;

/// A bucket as the RFCs write it: a level that time raises, in billionths of a token so that nothing is rounded.
struct Twin {
    rate: Rate,
    level: u128,
    then_ns: u64,
}

impl Twin {
    fn new(rate: Rate) -> Self {
        Twin { rate, level: u128::from(rate.burst) * NS_PER_S, then_ns: 0 }
    }

    fn spend(&mut self, cost: u64, now_ns: u64) -> bool {
        let made = u128::from(now_ns - self.then_ns) * u128::from(self.rate.per_second);
        self.then_ns = now_ns;
        self.level = (self.level + made).min(u128::from(self.rate.burst) * NS_PER_S);
        let has = self.level >= u128::from(cost) * NS_PER_S;
        if has {
            self.level -= u128::from(cost) * NS_PER_S;
        }
        has
    }
}

/// Rates whose tokens take whole nanoseconds, so that the bucket need not round and the twin must agree exactly.
fn whole_rate() -> impl Strategy<Value = Rate> {
    let per_second = prop_oneof![Just(0), Just(1_000_000_000_u64), Just(2_000_000_000), Just(8_000_000_000)];
    (per_second, prop_oneof![Just(0), 1..200_u64, Just(3000)])
        .prop_map(|(per_second, burst)| Rate { per_second, burst })
}

fn any_rate() -> impl Strategy<Value = Rate> {
    let per_second = prop_oneof![0..5_u64, 100..100_000_u64, Just(1_250_000_000), Just(12_500_000_000), any::<u64>()];
    (per_second, prop_oneof![0..2000_u64, Just(1_000_000), any::<u64>()])
        .prop_map(|(per_second, burst)| Rate { per_second, burst })
}

/// Pauses before a batch, ns: mostly short, some longer than any bucket takes to fill.
fn pause() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0), 8 => 0..300_u64, 2 => 0..1_000_000_000_u64, 1 => Just(40 * 365 * 86_400 * 1_000_000_000)]
}

fn costs() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![Just(0), 1..100_u64, 46..1500_u64], 0..32)
}

fn green(tokens: u64, queue: u32) -> Marked {
    Marked { tokens, queue, color: Color::Green }
}

proptest! {
    #[test]
    fn a_bucket_is_its_twin(rate in whole_rate(), batches in prop::collection::vec((0..400_u64, costs()), 1..40)) {
        let (bucket, mut twin) = (EgressPolicer::single(rate), Twin::new(rate));
        let mut now_ns = 0;
        for (pause, costs) in batches {
            now_ns += pause;
            let mut batch: Vec<_> = costs.iter().map(|cost| green(*cost, 0)).collect();
            bucket.admit(&mut batch, now_ns);
            for (packet, cost) in batch.iter().zip(costs) {
                prop_assert_eq!(packet.color == Color::Green, twin.spend(cost, now_ns), "{} at {}", cost, now_ns);
            }
        }
    }

    /// Between any two batches, both included, no more passes than the burst and what the rate makes meanwhile.
    #[test]
    fn no_span_exceeds_rate_and_burst(rate in any_rate(),
                                      batches in prop::collection::vec((pause(), costs()), 1..30)) {
        let bucket = EgressPolicer::single(rate);
        let (mut now_ns, mut passed) = (0_u64, Vec::new());
        for (pause, costs) in batches {
            now_ns = now_ns.saturating_add(pause);
            let mut batch: Vec<_> = costs.iter().map(|cost| green(*cost, 0)).collect();
            bucket.admit(&mut batch, now_ns);
            let sum: u64 = batch.iter().filter(|packet| packet.color == Color::Green).map(|packet| packet.tokens).sum();
            passed.push((now_ns, u128::from(sum)));
        }
        for (i, (from, _)) in passed.iter().enumerate() {
            let mut sum = 0;
            for (to, tokens) in &passed[i..] {
                sum += tokens;
                let made = (u128::from(rate.per_second) * u128::from(to - from)).div_ceil(NS_PER_S);
                prop_assert!(sum <= u128::from(rate.burst) + made, "{} from {} to {}", sum, from, to);
            }
        }
    }

    /// Another thread may have read its clock a little later.
    #[test]
    fn a_clock_that_lags_gets_no_more(rate in any_rate(), lags in prop::collection::vec((0..500_u64, costs()), 1..30)) {
        let (bucket, start) = (TokenBucket::new(rate), 1_000_000_000_u64);
        let mut sum = 0_u128;
        for (lag, costs) in lags {
            let mut grant = bucket.grant(costs.iter().sum(), start - lag);
            sum += u128::from(costs.into_iter().filter(|cost| grant.spend(*cost)).sum::<u64>());
        }
        let made = (u128::from(rate.per_second) * 500).div_ceil(NS_PER_S);
        // The bucket is full at time 0, and at the first look.
        prop_assert!(sum <= u128::from(rate.burst) + made);
    }

    /// The table of RFC 4115, packet by packet, with any colours before.
    #[test]
    fn three_colours_are_as_the_table_says(c in whole_rate(), e in whole_rate(),
                                           batches in prop::collection::vec((0..400_u64,
                                               prop::collection::vec((0..300_u64, 0..3_u8), 0..32)), 1..30)) {
        let rates = TrTcmRates { cir: c.per_second, cbs: c.burst, eir: e.per_second, ebs: e.burst };
        let (marker, mut committed, mut excess) = (TrTcm::new(rates), Twin::new(c), Twin::new(e));
        let mut now_ns = 0;
        for (pause, packets) in batches {
            now_ns += pause;
            let color = |n| [Color::Green, Color::Yellow, Color::Red][usize::from(n)];
            let before = packets.iter().map(|(tokens, n)| Marked { color: color(*n), ..green(*tokens, 7) });
            let before: Vec<_> = before.collect();
            let mut after = before.clone();
            marker.mark(&mut after, now_ns, |packet| packet.queue == 7);
            for (before, after) in before.iter().zip(after) {
                let expected = match before.color {
                    Color::Green if committed.spend(before.tokens, now_ns) => Color::Green,
                    Color::Green | Color::Yellow if excess.spend(before.tokens, now_ns) => Color::Yellow,
                    _ => Color::Red,
                };
                prop_assert_eq!(after.color, expected);
            }
        }
    }

    /// A port beside a twin for each of its queues and one for itself.
    #[test]
    fn queues_come_before_the_port(port in whole_rate(), of_queues in prop::collection::vec(whole_rate(), 1..4),
                                   batches in prop::collection::vec((0..400_u64,
                                       prop::collection::vec((0..300_u64, 0..6_u32), 0..32)), 1..20)) {
        let rates = |rate: Rate| TrTcmRates { cir: rate.per_second, cbs: rate.burst, eir: 0, ebs: 0 };
        let queues: BTreeMap<_, _> =
            of_queues.iter().enumerate().map(|(i, rate)| (i as u32, QueuePolicer::new(rates(*rate)))).collect();
        let policer = EgressPolicer::by_queue(rates(port), queues);
        let mut twins: Vec<_> = of_queues.iter().map(|rate| (Twin::new(*rate), 0, 0)).collect();
        let (mut port, mut now_ns) = (Twin::new(port), 0);
        for (pause, packets) in batches {
            now_ns += pause;
            let mut batch: Vec<_> = packets.iter().map(|(tokens, queue)| green(*tokens, *queue)).collect();
            policer.admit(&mut batch, now_ns);
            for ((tokens, queue), packet) in packets.into_iter().zip(batch) {
                let at = if (queue as usize) < twins.len() { queue as usize } else { 0 };
                let (twin, passed, dropped) = &mut twins[at];
                let is_within = twin.spend(tokens, now_ns);
                *if is_within { passed } else { dropped } += 1;
                let passes = is_within && port.spend(tokens, now_ns);
                prop_assert_eq!(packet.color != Color::Red, passes);
            }
        }
        for ((_, passed, dropped), queue) in twins.iter().zip(policer.queues().unwrap().values()) {
            prop_assert_eq!((queue.counts().packets, queue.counts().errors), (*passed, *dropped));
        }
    }

    /// Both limits of an interface hold, and a packet that one of them stops takes nothing of the other.
    #[test]
    fn both_limits_hold(kpkts in 0..3_u32, kbits in prop_oneof![Just(0), Just(8_000_000_u32)],
                        batches in prop::collection::vec((0..2_000_000_u64, costs()), 1..30)) {
        let rates = PolicingRates { kbits, kbits_burst: 4, kpkts: kpkts * 1_000_000, kpkts_burst: 1 };
        let policer = IngressPolicer::new(rates);
        prop_assert_eq!(policer.is_none(), kpkts == 0 && kbits == 0);
        let Some(policer) = policer else { return Ok(()) };
        let limit = |limited: bool, per_second, burst| limited.then(|| Twin::new(Rate { per_second, burst }));
        let mut bytes = limit(kbits != 0, 1_000_000_000, 500);
        let mut packets = limit(kpkts != 0, u64::from(kpkts) * 1_000_000_000, 1000);
        let mut now_ns = 0;
        for (pause, costs) in batches {
            now_ns += pause;
            let mut verdicts = Vec::new();
            policer.admit(&costs, now_ns, |at, passes| verdicts.push((at, passes)));
            for ((at, cost), verdict) in costs.iter().enumerate().zip(verdicts) {
                let has = |twin: &mut Option<Twin>, cost| twin.as_mut().is_none_or(|twin| {
                    let has = twin.spend(cost, now_ns);
                    twin.level += if has { u128::from(cost) * NS_PER_S } else { 0 };
                    has
                });
                let passes = has(&mut bytes, *cost) && has(&mut packets, 1);
                if passes {
                    bytes.as_mut().map(|twin| twin.spend(*cost, now_ns));
                    packets.as_mut().map(|twin| twin.spend(1, now_ns));
                }
                prop_assert_eq!(verdict, (at, passes));
            }
        }
    }
}

#[test]
fn a_bucket_that_was_idle_for_decades_is_full_and_no_more() {
    let year_ns = 365 * 86_400 * 1_000_000_000_u64;
    for per_second in [1, 125_000, 12_500_000_000] {
        let bucket = TokenBucket::new(Rate { per_second, burst: 1000 });
        drop(bucket.grant(1, 0));
        for years in [1, 40, 400] {
            let mut grant = bucket.grant(u64::MAX, years * year_ns);
            assert!(grant.spend(1000) && !grant.covers(1), "{per_second} a second, after {years} years");
        }
    }
}

#[test]
fn threads_share_a_bucket() {
    let bucket = TokenBucket::new(Rate { per_second: 1_000_000, burst: 5000 });
    let sums: Vec<u64> = std::thread::scope(|scope| {
        let spend = || {
            let batches = (0..20_000_u64).map(|now_ns| {
                let mut grant = bucket.grant(32 * 7, now_ns * 100);
                (0..32).filter(|_| grant.spend(7)).count() as u64 * 7
            });
            batches.sum()
        };
        let threads = [scope.spawn(spend), scope.spawn(spend), scope.spawn(spend)];
        threads.map(|thread| thread.join().unwrap()).to_vec()
    });
    // All threads go through the same two milliseconds, in which the rate makes 2000 tokens.
    let sum: u64 = sums.iter().sum();
    assert!((5000 - 32 * 7..=5000 + 2000).contains(&sum), "{sums:?}");
}

#[test]
fn the_rates_of_rfc_4115_need_their_bursts() {
    let rates = |cir, cbs, eir, ebs| TrTcmRates { cir, cbs, eir, ebs }.is_valid();
    assert!(rates(1, 1, 0, 0) && rates(0, 0, 1, 1) && rates(0, 5, 0, 5) && rates(0, 0, 0, 0));
    assert!(!rates(1, 0, 1, 1) && !rates(1, 1, 1, 0));
}
