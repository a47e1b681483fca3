//! Which recirculated packets use the exact match cache.
//!
//! When every packet passes the lookup two or three times, the passes share one cache. Packets of the first pass always
//! use it. A policy decides which of the others do, for lookup and insertion alike: an entry that is never looked up
//! evicts another for nothing. Source of the policies: ovs-dev, August 2017, "Skip EMC lookup/insert for recirc
//! packets".

use crate::hit_window::{HITS_HIGH, HITS_LOW, HitWindow, WindowEnd};
use crate::settings::EMC_RECIRC_THRESHOLD;
use sluice_flow_cache::EmcUsage;
use sluice_packet::{BATCH_MAX, BatchMask, Packet};
use sluice_simd::hash::splitmix64;
use std::fmt::{self, Display};
use std::str::FromStr;

/// Which recirculated packets use the exact match cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EmcRecirc {
    /// All of them.
    Always,
    /// None while the occupancy is above `emc-recirc-threshold`.
    Threshold,
    /// All look up; above the threshold fewer are inserted the fuller the cache is.
    Penalty,
    /// Each with a probability, which adapts.
    Random,
    /// Packets of flows with a hash below a threshold, which adapts: the same flows each time. The hash is the
    /// receiving device's, if it made one, and else that of the key.
    Rss,
    /// As `Random`, for packets of every pass.
    RandomAll,
    /// As `Rss`, for packets of every pass.
    RssAll,
}

impl EmcRecirc {
    /// All policies.
    pub const ALL: [EmcRecirc; 7] = [
        EmcRecirc::Always,
        EmcRecirc::Threshold,
        EmcRecirc::Penalty,
        EmcRecirc::Random,
        EmcRecirc::Rss,
        EmcRecirc::RandomAll,
        EmcRecirc::RssAll,
    ];

    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            EmcRecirc::Always => "always",
            EmcRecirc::Threshold => "threshold",
            EmcRecirc::Penalty => "penalty",
            EmcRecirc::Random => "random",
            EmcRecirc::Rss => "rss",
            EmcRecirc::RandomAll => "random-all",
            EmcRecirc::RssAll => "rss-all",
        }
    }

    /// Whether it also decides about packets that have not been recirculated.
    #[inline]
    pub(crate) fn is_for_every_pass(self) -> bool {
        matches!(self, EmcRecirc::RandomAll | EmcRecirc::RssAll)
    }
}

impl Display for EmcRecirc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for EmcRecirc {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        EmcRecirc::ALL.into_iter().find(|policy| policy.name() == text).ok_or(())
    }
}

/// The smallest share, so that there is always something to learn from.
const SHARE_MIN: f64 = 1.0 / 64.0;

/// One PMD's gate to the exact match cache, for recirculated packets.
#[derive(Debug)]
pub(crate) struct Gate {
    random: u64,
    by_chance: Share,
    by_hash: Share,
    /// The occupancy above which packets stay away, percent. Below it every packet uses the EMC.
    threshold: f64,
}

/// The packets of a pass that may use the cache, if the policy admits them.
pub(crate) struct Candidates<'a> {
    pub asked: BatchMask,
    pub hashes: &'a [u64; BATCH_MAX],
    /// The hash of the receiving device decides only which packets use the cache: its key is public, so it picks no
    /// bucket.
    pub packets: &'a [Packet],
}

/// A share of packets that adapts to how full the cache is and how often it answers them.
#[derive(Debug)]
struct Share {
    share: f64,
    window: HitWindow,
}

/// Where in a key's hash the bits are that are compared with the threshold: clear of those that pick a bucket of the
/// EMC, so that flows admitted use all of it.
const HASH_SHIFT: u32 = 30;

impl Gate {
    /// Open to all. Chance decides only about cycles, so the seed is no secret.
    pub const OPEN: Gate =
        Gate { random: 0, by_chance: Share::ALL, by_hash: Share::ALL, threshold: EMC_RECIRC_THRESHOLD as f64 };

    /// Sets the occupancy above which packets stay away, percent.
    pub fn set_threshold(&mut self, percent: u8) {
        self.threshold = percent.into();
    }

    /// The candidates that may use the cache.
    #[inline(never)]
    pub fn admit(&mut self, policy: EmcRecirc, candidates: &Candidates<'_>, usage: &EmcUsage) -> BatchMask {
        let Candidates { asked, hashes, packets } = *candidates;
        match policy {
            EmcRecirc::Always | EmcRecirc::Penalty => asked,
            EmcRecirc::Threshold if usage.percent() > self.threshold => BatchMask::NONE,
            EmcRecirc::Threshold => asked,
            EmcRecirc::Random | EmcRecirc::RandomAll => {
                let limit = self.by_chance.limit();
                keep(asked, |_| splitmix64(&mut self.random) >> 32 < limit)
            }
            EmcRecirc::Rss | EmcRecirc::RssAll => {
                let limit = self.by_hash.limit();
                keep(asked, |i| match packets.get(i).map_or(0, |packet| packet.rss_hash) {
                    0 => hashes[i] >> HASH_SHIFT & 0xffff_ffff < limit,
                    rss => u64::from(rss) < limit,
                })
            }
        }
    }

    /// Learns how many of the packets admitted were answered.
    pub fn learn(&mut self, policy: EmcRecirc, looked: usize, hits: usize, usage: &EmcUsage) {
        match policy {
            EmcRecirc::Always | EmcRecirc::Threshold | EmcRecirc::Penalty => {}
            EmcRecirc::Random | EmcRecirc::RandomAll => {
                self.by_chance.learn(looked, hits, usage.percent() > self.threshold)
            }
            EmcRecirc::Rss | EmcRecirc::RssAll => self.by_hash.learn(looked, hits, usage.percent() > self.threshold),
        }
    }

    /// Those of the packets that missed in the cache whose megaflows may be inserted.
    #[inline(never)]
    pub fn insertable(&mut self, policy: EmcRecirc, missed: BatchMask, usage: &EmcUsage) -> BatchMask {
        if policy != EmcRecirc::Penalty || usage.percent() <= self.threshold {
            return missed;
        }
        let room = (100.0 - usage.percent()) / (100.0 - self.threshold);
        let limit = bound(room.max(SHARE_MIN));
        keep(missed, |_| splitmix64(&mut self.random) >> 32 < limit)
    }
}

/// A share as a bound on 32 bits.
fn bound(share: f64) -> u64 {
    (share * (1u64 << 32) as f64) as u64
}

/// The packets of `mask` for which `wanted` holds.
fn keep(mask: BatchMask, mut wanted: impl FnMut(usize) -> bool) -> BatchMask {
    BatchMask(mask.into_iter().fold(0, |kept, i| kept | u32::from(wanted(i)) << i))
}

impl Share {
    const ALL: Share = Share { share: 1.0, window: HitWindow::NEW };

    /// The share as a bound on 32 bits.
    fn limit(&self) -> u64 {
        bound(self.share)
    }

    #[inline]
    fn learn(&mut self, looked: usize, hits: usize, is_crowded: bool) {
        if let Some(ended) = self.window.push(looked, hits) {
            self.adapt(&ended, is_crowded);
        }
    }

    #[cold]
    fn adapt(&mut self, ended: &WindowEnd, is_crowded: bool) {
        let factor = if !is_crowded || ended.probes {
            2.0
        } else if ended.hits < HITS_LOW {
            0.5
        } else if ended.hits > HITS_HIGH {
            1.25
        } else {
            1.0
        };
        self.share = (self.share * factor).clamp(SHARE_MIN, 1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hit_window::WINDOW;
    use sluice_mem::{FramePool, HeapPool, PoolConfig};
    use sluice_packet::Buffers;
    use std::sync::Arc;

    const FULL: EmcUsage = EmcUsage { used: 8000, entries: 8192 };
    const HALF: EmcUsage = EmcUsage { used: 4000, entries: 8192 };

    /// Hashes of `n` flows, the same each time.
    fn hashes(from: u64) -> [u64; BATCH_MAX] {
        std::array::from_fn(|i| splitmix64(&mut (from + i as u64)))
    }

    /// A batch that no device hashed.
    fn candidates(hashes: &[u64; BATCH_MAX]) -> Candidates<'_> {
        Candidates { asked: BatchMask::first(BATCH_MAX), hashes, packets: &[] }
    }

    /// The share of packets that a policy admits over many batches.
    fn admitted(gate: &mut Gate, policy: EmcRecirc, usage: &EmcUsage) -> f64 {
        let admitted = |from| gate.admit(policy, &candidates(&hashes(from)), usage).len();
        (0..1000).map(admitted).sum::<usize>() as f64 / 32_000.0
    }

    /// Lets `n` windows pass in which that share of the lookups hits.
    fn windows(gate: &mut Gate, n: usize, hits: f64, usage: &EmcUsage) {
        for policy in [EmcRecirc::Random, EmcRecirc::Rss] {
            for _ in 0..n {
                gate.learn(policy, WINDOW as usize, (f64::from(WINDOW) * hits) as usize, usage);
            }
        }
    }

    #[test]
    fn half_full_is_room_for_all() {
        let mut gate = Gate::OPEN;
        windows(&mut gate, 10, 0.0, &HALF);
        assert!(EmcRecirc::ALL.iter().all(|policy| admitted(&mut gate, *policy, &HALF) == 1.0));
        assert_eq!(admitted(&mut gate, EmcRecirc::Threshold, &FULL), 0.0);
        assert_eq!(admitted(&mut gate, EmcRecirc::Always, &FULL), 1.0);
    }

    #[test]
    fn a_share_falls_where_nothing_hits_and_rises_where_all_do() {
        let mut gate = Gate::OPEN;
        let both = [EmcRecirc::Random, EmcRecirc::Rss];
        windows(&mut gate, 3, 0.1, &FULL);
        for policy in both {
            let share = admitted(&mut gate, policy, &FULL);
            assert!((share - 0.125).abs() < 0.02, "{policy}: {share}");
        }
        windows(&mut gate, 11, 0.1, &FULL);
        assert!(both.iter().all(|policy| admitted(&mut gate, *policy, &FULL) < 0.03), "never none");
        windows(&mut gate, 40, 1.0, &FULL);
        assert!(both.iter().all(|policy| admitted(&mut gate, *policy, &FULL) == 1.0));
    }

    #[test]
    fn a_penalty_keeps_more_out_the_fuller_it_is() {
        let mut gate = Gate::OPEN;
        let all = BatchMask::first(BATCH_MAX);
        let mut inserted = |threshold, used| {
            gate.set_threshold(threshold);
            let usage = EmcUsage { used, entries: 8192 };
            assert_eq!(gate.admit(EmcRecirc::Penalty, &candidates(&hashes(1)), &usage), all, "all look up");
            let inserted = (0..1000).map(|_| gate.insertable(EmcRecirc::Penalty, all, &usage).len());
            inserted.sum::<usize>() as f64 / 32_000.0
        };
        assert_eq!(inserted(50, 4096), 1.0);
        assert!((inserted(50, 6144) - 0.5).abs() < 0.02);
        assert!((inserted(50, 8192) - SHARE_MIN).abs() < 0.01, "never none");
        assert_eq!(inserted(75, 6144), 1.0);
        assert_eq!(gate.insertable(EmcRecirc::Threshold, all, &FULL), all, "other policies have no penalty");
    }

    #[test]
    fn the_threshold_is_a_setting() {
        let mut gate = Gate::OPEN;
        gate.set_threshold(99);
        assert_eq!(admitted(&mut gate, EmcRecirc::Threshold, &FULL), 1.0);
        gate.set_threshold(10);
        assert_eq!(admitted(&mut gate, EmcRecirc::Threshold, &HALF), 0.0);
        windows(&mut gate, 1, 0.1, &HALF);
        assert!((admitted(&mut gate, EmcRecirc::RandomAll, &HALF) - 0.5).abs() < 0.02, "they have one share");
    }

    #[test]
    fn a_devices_hash_decides_where_there_is_one() {
        let mut gate = Gate::OPEN;
        windows(&mut gate, 1, 0.1, &FULL);
        // Half of the flows: those whose first bit is clear. Every other packet here was hashed, to one more each time.
        let rss = |i: usize| [0, u32::MAX / 32 * i as u32][i % 2];
        let (mut buffers, config) = (Buffers::new(), PoolConfig { frames: BATCH_MAX, frame_size: 128, reserve: 0 });
        let pool: Arc<dyn FramePool> = Arc::new(HeapPool::new(config).expect("memory"));
        let frames = (0..BATCH_MAX).map(|_| buffers.write(&pool, &[0; 60]).expect("a buffer"));
        let mut packets: Vec<Packet> = frames.collect();
        for (i, packet) in packets.iter_mut().enumerate() {
            packet.rss_hash = rss(i);
        }
        let (mut hashed, mut other) = (0, 0);
        for from in 0..1000 {
            let hashes = hashes(from);
            let candidates = Candidates { packets: &packets, ..candidates(&hashes) };
            for i in gate.admit(EmcRecirc::Rss, &candidates, &FULL) {
                assert!(rss(i) < 1 << 31);
                *(if rss(i) == 0 { &mut other } else { &mut hashed }) += 1;
            }
        }
        assert_eq!(hashed, 8000, "the same ones each time");
        assert!((7000..9000).contains(&other), "half of those that no device hashed: {other}");
    }

    #[test]
    fn now_and_then_more_are_let_in_to_see() {
        let mut gate = Gate::OPEN;
        windows(&mut gate, 15, 0.7, &FULL);
        let Share { share, .. } = gate.by_hash;
        windows(&mut gate, 1, 0.1, &FULL);
        assert_eq!(gate.by_hash.share, (share * 2.0).min(1.0));
    }

    /// Three quarters of the packets are of one flow, whose hash is above the threshold.
    #[test]
    fn by_hash_a_large_flow_may_never_use_the_cache_and_by_chance_it_does_as_its_size_says() {
        let mut gate = Gate::OPEN;
        windows(&mut gate, 3, 0.1, &FULL);
        const LARGE: usize = BATCH_MAX * 3 / 4;
        let mut admitted = |policy| {
            let (mut large, mut other) = (0, 0);
            for from in 0..1000 {
                let mut hashes = hashes(from * BATCH_MAX as u64);
                hashes[..LARGE].fill(u64::MAX);
                let admitted = gate.admit(policy, &candidates(&hashes), &FULL);
                let of_large = admitted.into_iter().filter(|i| *i < LARGE).count();
                large += of_large;
                other += admitted.len() - of_large;
            }
            (large, other)
        };
        let (large, other) = admitted(EmcRecirc::RssAll);
        assert_eq!(large, 0);
        assert!((900..1100).contains(&other), "an eighth of 8000: {other}");
        let (large, other) = admitted(EmcRecirc::RandomAll);
        assert!((2800..3200).contains(&large) && (900..1100).contains(&other), "an eighth of each: {large}, {other}");
    }

    #[test]
    fn by_hash_it_is_the_same_flows_each_time() {
        let mut gate = Gate::OPEN;
        windows(&mut gate, 2, 0.0, &FULL);
        let hashes = hashes(7);
        let first = gate.admit(EmcRecirc::Rss, &candidates(&hashes), &FULL);
        assert!((1..32).contains(&first.len()));
        assert!((0..100).all(|_| gate.admit(EmcRecirc::Rss, &candidates(&hashes), &FULL) == first));
        // Of a short batch only its packets.
        let short = Candidates { asked: BatchMask::first(5), ..candidates(&hashes) };
        assert_eq!(gate.admit(EmcRecirc::Rss, &short, &FULL).0, first.0 & 0x1f);
        assert!(gate.admit(EmcRecirc::Random, &short, &FULL).0 < 32);
    }
}
