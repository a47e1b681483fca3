//! The tuner of one receive queue: turns counters into samples for its autopilot, which knows no cache, and the number that this
//! chooses into an arm.

use crate::autopilot::{Autopilot, CoreNow, Doing, Sample, Why};
use crate::frequency::tsc_hz;
use crate::lookup::Levels;
use crate::{Arm, Settings};
use rustix::time::{ClockId, clock_gettime};
use sluice_action::PortNo;
use sluice_fate::{Counter, Tally};
use sluice_simd::core_share::CoreShare;
use std::time::Duration;

/// One receive queue's arms, and the autopilot that chooses among them.
#[derive(Clone, Debug)]
pub(crate) struct Tuner {
    arms: Vec<Arm>,
    autopilot: Autopilot,
    share: CoreShare,
}

/// What a PMD had counted when a burst began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    passes: u64,
    cached: u64,
    upcalls: u64,
    upcall_cycles: u64,
}

impl Mark {
    #[inline]
    pub fn of(tally: &Tally) -> Self {
        Mark {
            passes: tally[Counter::Passes],
            cached: [Counter::EmcHits, Counter::SmcHits, Counter::DistributorHits, Counter::ComposedHits]
                .iter()
                .map(|hits| tally[*hits])
                .sum(),
            upcalls: tally[Counter::Upcalls] + tally[Counter::UpcallsLost],
            upcall_cycles: tally[Counter::UpcallCycles],
        }
    }

    /// A burst of `packets` that took these cycles. Cycles of upcalls say nothing about an arm.
    #[inline]
    pub fn sample(&self, packets: usize, cycles: u64, tally: &Tally, levels: &Levels) -> Sample {
        let after = Mark::of(tally);
        Sample {
            bursts: 1,
            packets: packets as u64,
            cycles: cycles.saturating_sub(after.upcall_cycles - self.upcall_cycles),
            passes: after.passes - self.passes,
            cached: after.cached - self.cached,
            upcalls: after.upcalls - self.upcalls,
            awaits_memory: levels.awaits_memory(),
            cache_lines: levels.cache_lines(),
            aside_cycles: 0,
            aside_packets: 0,
        }
    }
}

impl Tuner {
    /// For these settings; `now` is the TSC's value.
    pub fn new(settings: &Settings, now: u64) -> Self {
        let arms = Arm::all(settings);
        let for_recirculation: Vec<bool> = arms.iter().map(|arm| arm.is_for_recirculation(settings)).collect();
        Tuner { autopilot: Autopilot::new(&for_recirculation, tsc_hz(), now), arms, share: CoreShare::new() }
    }

    /// How the next burst is to be looked up.
    #[inline]
    pub fn arm(&self) -> Arm {
        self.arms[self.autopilot.active()]
    }

    /// Whether the next burst tries an arm that is not in charge.
    #[inline]
    pub fn is_trial(&self) -> bool {
        self.autopilot.active() != self.autopilot.in_charge()
    }

    /// Notes a burst that ended `now`; the thread has slept for these cycles.
    #[inline]
    pub fn record(&mut self, burst: &Sample, now: u64, slept: u64) {
        let (share, compares) = (&mut self.share, self.arms.len() > 1);
        let core = || CoreNow { own_time: ran() + slept, is_shared: compares && share.is_shared() };
        self.autopilot.record(burst, now, core);
    }

    /// What it has chosen, and why.
    pub fn report(&self, port: PortNo, queue: usize, now: u64) -> AutopilotReport {
        let autopilot = &self.autopilot;
        let arms = self.arms.iter().enumerate().map(|(n, arm)| {
            let known = autopilot.known(n);
            ArmReport {
                arm: *arm,
                cost: known.measured.map(|(cost, _)| cost),
                measured_ago: known.measured.map(|(_, at)| autopilot.between(at, now)),
                next_trial: autopilot.next_trial(n).map(|at| autopilot.between(now, at)),
            }
        });
        AutopilotReport {
            port,
            queue,
            arms: arms.collect(),
            in_charge: autopilot.in_charge(),
            active: autopilot.active(),
            doing: autopilot.doing(),
            why: autopilot.why(),
            changed_ago: autopilot.between(autopilot.changed_at(), now),
            changes: autopilot.changes(),
            tournaments: autopilot.tournaments(),
            regret_share: autopilot.regret_share(),
        }
    }
}

/// The cycles that this thread has run. A system call, once in a chunk of half a millisecond.
fn ran() -> u64 {
    let ran = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = ran.tv_sec as u128 * 1_000_000_000 + ran.tv_nsec as u128;
    (nanos * u128::from(tsc_hz()) / 1_000_000_000) as u64
}

/// What the autopilot of one receive queue has chosen, and why.
#[derive(Clone, Debug)]
pub struct AutopilotReport {
    /// The queue's port.
    pub port: PortNo,
    /// Its number at that port.
    pub queue: usize,
    /// Every arm that the settings leave; the safe one first.
    pub arms: Vec<ArmReport>,
    /// The arm in charge, by its place in `arms`.
    pub in_charge: usize,
    /// The arm that is active now.
    pub active: usize,
    /// What is going on.
    pub doing: Doing,
    /// Why the arm in charge is in charge.
    pub why: Why,
    /// How long ago it took over.
    pub changed_ago: Duration,
    /// How often another arm was put in charge.
    pub changes: u64,
    /// How often all arms were compared: at the start, and after sudden changes.
    pub tournaments: u64,
    /// What trying other arms has cost, as a share of all cycles.
    pub regret_share: f64,
}

/// What is known of an arm.
#[derive(Clone, Copy, Debug)]
pub struct ArmReport {
    /// The arm.
    pub arm: Arm,
    /// Cycles a packet, from poll to tx, when last measured.
    pub cost: Option<f64>,
    /// How long ago that was.
    pub measured_ago: Option<Duration>,
    /// When it is due to be tried; `None` if it is in charge or cannot be.
    pub next_trial: Option<Duration>,
}
