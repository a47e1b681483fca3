//! The autopilot from its start, where it is hard: skewed traffic, more flows than a cache holds, and traffic that changes.
//! How long it takes to settle, and what it loses meanwhile.

use super::autopilot::{ARM, AUTO, BEST, WANTED, arms, forced, reached, verdict_of};
use crate::core_share::{Lasting, Slices};
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, Subject, place};
use crate::lab::Lab;
use crate::loss::{Loss, denied};
use crate::phases::{Phase, PhasedPort};
use crate::record::{Findings, Point, Table};
use crate::rig::{CORE_SHARED, CYCLES, Cost, Sample, TURNS, Workload, middle, switch_between};
use crate::{core_share, text, verdict};
use anyhow::{Result, anyhow, ensure};
use sluice_datapath::Settings;
use sluice_fate::Counter;
use sluice_port::{Pools, PortConfig};
use sluice_vswitch::Assembly;
use std::time::{Duration, Instant};

/// The experiment.
pub struct Adaptation;

/// Traffic that stays as it is, or changes between two kinds.
struct Traffic {
    name: &'static str,
    kinds: &'static [Kind],
    /// How long a phase is, milliseconds.
    phase_ms: u64,
    /// Phases of a repetition, and of the look at every arm before it.
    phases: [usize; 2],
}

/// A kind of traffic, over rules that each have a mask of their own.
struct Kind {
    flows: u64,
    subtables: u16,
    /// Which flow is next, as a profile's key `choice` says.
    choice: &'static str,
}

const fn kind(flows: u64, subtables: u16, choice: &'static str) -> Kind {
    Kind { flows, subtables, choice }
}

/// Traffic that stays as it is for this long.
const fn steady(name: &'static str, kinds: &'static [Kind; 1], phase_ms: u64) -> Traffic {
    Traffic { name, kinds, phase_ms, phases: [1, 1] }
}

const FLOWS_CHANGE: [Kind; 2] = [kind(100, 20, "uniform"), kind(1_000_000, 20, "uniform")];
const SUBTABLES_CHANGE: [Kind; 2] = [kind(100_000, 1, "uniform"), kind(100_000, 25, "uniform")];

/// By the coordinate [`TRAFFIC`].
const ALL: [Traffic; 9] = [
    steady("95 % of 100k flows' packets in one subtable", &[kind(100_000, 20, "hot:95")], 4000),
    steady("100k flows by Zipf 1.0", &[kind(100_000, 20, "zipf:1.0")], 4000),
    steady("1M flows by Zipf 1.0", &[kind(1_000_000, 20, "zipf:1.0")], 4000),
    steady("4M flows", &[kind(4_000_000, 20, "uniform")], 8000),
    steady("10M flows", &[kind(10_000_000, 20, "uniform")], 16_000),
    Traffic { name: "100 flows and 1M, every 2 s", kinds: &FLOWS_CHANGE, phase_ms: 2000, phases: [4, 2] },
    Traffic { name: "100 flows and 1M, every 200 ms", kinds: &FLOWS_CHANGE, phase_ms: 200, phases: [20, 10] },
    Traffic { name: "1 subtable and 25, every 2 s", kinds: &SUBTABLES_CHANGE, phase_ms: 2000, phases: [4, 2] },
    Traffic { name: "1 subtable and 25, every 200 ms", kinds: &SUBTABLES_CHANGE, phase_ms: 200, phases: [20, 10] },
];
/// Those of a quick look, which has shorter phases.
const QUICK: [f64; 2] = [0.0, 6.0];
const QUICK_MS: u64 = 100;

const TRAFFIC: &str = "traffic";

/// Costs are told apart by windows of this length.
const WINDOW: Duration = Duration::from_millis(5);
/// A phase is not settled while its windows cost that much more than those at its end: the middle one of a sixteenth of all, so
/// that neither trials nor interrupts count.
const DEAR: f64 = 1.1;
const SMOOTH_PART: usize = 16;

/// Milliseconds from the beginning of a phase until it was settled: the median of the phases.
const SETTLED: &str = "settled_ms";
/// Cycles a packet if every kind of traffic had its own best arm.
const OWN_BEST: &str = "own_best_cycles";

impl Experiment for Adaptation {
    fn name(&self) -> &'static str {
        "adaptation"
    }

    fn about(&self) -> &'static str {
        "How soon does the autopilot settle where traffic is skewed, changes, or has too many flows, and what does it lose?"
    }

    fn run(&self, lab: &mut Lab) -> Result<Findings> {
        let every: Vec<f64> = (0..ALL.len()).map(|n| n as f64).collect();
        let (traffic, quick) = lab.size.pick((&QUICK[..], true), (&every, false));
        let set_up = |at: &Place, arm: usize| set_up(at, arm, quick);
        let grid = Grid {
            places: traffic.iter().map(|n| place([(TRAFFIC, *n)])).collect(),
            arms: vec![BEST.to_owned(), AUTO.to_owned()],
            set_up: &set_up,
            figure: CYCLES,
            rounds: [1, 5],
            // A repetition is as long as its phases.
            span: [Duration::ZERO; 2],
        };
        let points = grid.run(lab);
        Ok(Findings { tables: vec![verdicts(&points)], figures: Vec::new(), notes: notes(&points), points })
    }

    fn losses(&self, points: &[Point]) -> Vec<Loss> {
        denied(&verdicts(points), "passes", &["traffic"], &["best arm", "reached", "spread"])
    }
}

fn notes(points: &[Point]) -> Vec<String> {
    vec![
        "Every repetition is a new switch with empty caches, and counts from its first packet. Cycles a packet by the \
         time-stamp counter, generator and null port included: all cycles of a phase over all its packets; the mean of the \
         phases, so that a kind of traffic counts as much as another that has fewer packets."
            .to_owned(),
        core_share::NOTE.to_owned(),
        format!(
            "The best arm is the one setting that took the fewest cycles in runs of every arm before. Repetitions are \
             interleaved: best arm, autopilot, best arm. Reached: the median over pairs of best arm's cycles by autopilot's; \
             it passes at {WANTED}. Regret: what the autopilot takes beyond the best arm, its trials included. Each kind's own: \
             cycles if the best arm of each kind of traffic were set at once when the traffic changes, which nothing that \
             measures can do."
        ),
        format!(
            "Settled: milliseconds from the beginning of a phase until windows of {} ms cost at most {DEAR} times those of its \
             last quarter, by the middle one of a sixteenth of the phase; the median of a repetition's phases.",
            WINDOW.as_millis()
        ),
        verdict::counted(points.iter().filter_map(verdict_of)),
    ]
}

/// A switch that runs phase by phase.
struct Run<'a> {
    traffic: &'a Traffic,
    assembly: Assembly,
    phase: Phase,
    began: Instant,
}

/// What a phase took.
struct Passed {
    /// Cycles a packet.
    cycles: f64,
    settled_ms: f64,
    /// Slices left out because the core was shared, percent.
    shared: f64,
}

impl Run<'_> {
    /// A new switch, its caches empty.
    fn new(traffic: &Traffic, settings: Settings) -> Result<Run<'_>> {
        let (mut pools, phase) = (Pools::default(), Phase::default());
        let workloads =
            || traffic.kinds.iter().map(|kind| Workload::subtables(kind.flows, kind.subtables).chosen(kind.choice));
        let config = |kind: &str, profile: &[(&str, String)]| PortConfig {
            name: kind.to_owned(),
            kind: kind.to_owned(),
            options: profile.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect(),
            ..PortConfig::default()
        };
        let generators =
            workloads().map(|workload| sluice_port::open(&config("generator", &workload.profile), &mut pools));
        let generators = generators.collect::<Result<Vec<_>, _>>()?;
        let null = sluice_port::open(&config("null", &[]), &mut pools)?;
        // Up to 25 subtables, the rules of many begin with those of few.
        let rules = workloads().max_by_key(|workload| workload.subtables).ok_or_else(|| anyhow!("no traffic"))?.rules;
        let receives = Box::new(PhasedPort::new(generators, phase.clone()));
        let assembly = switch_between(settings, &rules, vec![receives, null])?;
        Ok(Run { traffic, assembly, phase, began: Instant::now() })
    }

    /// Runs phase number `n` for `length`.
    fn pass(&self, n: usize, length: Duration) -> Passed {
        self.phase.begin(n % self.traffic.kinds.len());
        let datapath = self.assembly.datapath();
        let time = Lasting::new(length);
        let mut last = Cost::of(&datapath.totals());
        let (mut windows, mut all) = (Vec::new(), Slices::of_mean());
        let (mut window_began, mut window) = (Instant::now(), Slices::of_median());
        while time.lasts(&all) {
            window.run(|| {
                datapath.run_iterations(TURNS, self.began.elapsed().as_millis() as u64);
                last.replaced_by(Cost::of(&datapath.totals()))
            });
            if window_began.elapsed() >= WINDOW {
                datapath.service(self.began.elapsed().as_millis() as u64);
                all.add(window.clone());
                windows.push(std::mem::replace(&mut window, Slices::of_median()));
                window_began = Instant::now();
            }
        }
        let cycles = |slices: &Slices<Cost>| slices.counting().into_iter().sum::<Cost>().cycles_a_packet();
        let settled = settled(&windows.iter().map(cycles).collect::<Vec<_>>());
        let settled = length.mul_f64(settled as f64 / windows.len().max(1) as f64);
        Passed { cycles: cycles(&all), settled_ms: settled.as_secs_f64() * 1e3, shared: all.shared_percent() }
    }

    /// Runs `phases` phases of `length`, and checks that every packet was sent.
    fn passes(&self, phases: usize, length: Duration) -> Result<Vec<Passed>> {
        let passed = (0..phases).map(|n| self.pass(n, length)).collect();
        let all = self.assembly.datapath().totals();
        all.conserved().map_err(|unbalanced| anyhow!("packets are not conserved: {unbalanced:?}"))?;
        let (received, sent) = (all[Counter::Received], all[Counter::Sent]);
        ensure!(received == sent, "of {received} packets {sent} were sent");
        Ok(passed)
    }
}

/// The first of a phase's windows from which on it was settled: those around none are dearer than those of its last quarter.
fn settled(windows: &[f64]) -> usize {
    let last = &windows[windows.len() - windows.len().div_ceil(4)..];
    if last.is_empty() {
        return 0;
    }
    let level = middle(last.to_vec());
    let around = (windows.len() / SMOOTH_PART / 2).max(1);
    let is_dear = |at: &usize| {
        let near = &windows[at.saturating_sub(around)..windows.len().min(at + around + 1)];
        middle(near.to_vec()) > level * DEAR
    };
    (0..windows.len()).rev().find(is_dear).map_or(0, |at| at + 1)
}

/// The mean over phases.
fn mean(phases: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = phases.len().max(1) as f64;
    phases.sum::<f64>() / n
}

/// A setting that meets its traffic anew at every measurement.
struct Anew {
    traffic: &'static Traffic,
    settings: Settings,
    quick: bool,
    /// Of the best arm: its number, and the cycles of every kind's own best arm.
    best: Option<(usize, f64)>,
}

impl Anew {
    /// How long a phase is.
    fn length(&self) -> Duration {
        Duration::from_millis(if self.quick { QUICK_MS } else { self.traffic.phase_ms })
    }
}

impl Subject for Anew {
    fn measure(&mut self, _: Duration) -> Result<Sample> {
        let phases = if self.quick { self.traffic.kinds.len() } else { self.traffic.phases[0] };
        let passed = Run::new(self.traffic, self.settings)?.passes(phases, self.length())?;
        let mut sample = Sample::default();
        let mut put = |name: &str, value: f64| sample.0.insert(name.to_owned(), value);
        put(CYCLES, mean(passed.iter().map(|phase| phase.cycles)));
        put(CORE_SHARED, mean(passed.iter().map(|phase| phase.shared)));
        put(SETTLED, middle(passed.iter().map(|phase| phase.settled_ms).collect()));
        if let Some((arm, own_best)) = self.best {
            put(ARM, arm as f64);
            put(OWN_BEST, own_best);
        }
        Ok(sample)
    }
}

fn set_up(at: &Place, arm: usize, quick: bool) -> Result<Ready> {
    let traffic = &ALL[at[TRAFFIC] as usize];
    let mut anew = Anew { traffic, settings: Settings::default(), quick, best: None };
    if arm == 0 {
        let (best, own_best) = look(&anew)?;
        (anew.settings, anew.best) = (forced(arms()[best]), Some((best, own_best)));
    }
    Ok(Ready::Subject(Box::new(anew)))
}

/// A look at every arm: the number of the best, and the cycles of every kind's own best.
fn look(anew: &Anew) -> Result<(usize, f64)> {
    let kinds = anew.traffic.kinds.len();
    let phases = if anew.quick { kinds } else { anew.traffic.phases[1] };
    let mut own = vec![f64::INFINITY; kinds];
    let mut best: Option<(f64, usize)> = None;
    for (n, arm) in arms().into_iter().enumerate() {
        let passed = Run::new(anew.traffic, forced(arm))?.passes(phases, anew.length())?;
        for (kind, own) in own.iter_mut().enumerate() {
            let of_kind: Vec<f64> = passed.iter().skip(kind).step_by(kinds).map(|phase| phase.cycles).collect();
            *own = own.min(mean(of_kind.into_iter()));
        }
        let cycles = mean(passed.iter().map(|phase| phase.cycles));
        if best.is_none_or(|(least, _)| cycles < least) {
            best = Some((cycles, n));
        }
    }
    let (_, best) = best.ok_or_else(|| anyhow!("there is no arm"))?;
    Ok((best, mean(own.into_iter())))
}

fn verdicts(points: &[Point]) -> Table {
    let columns = [
        "traffic",
        "best arm",
        "its cycles",
        "autopilot's cycles",
        "regret, %",
        "each kind's own",
        "settled, ms",
        "best arm settled, ms",
        "reached",
        "spread",
        "passes",
    ];
    let row = |point: &Point| {
        let reached = reached(point)?;
        let percent = |ratio: f64| (1.0 / ratio - 1.0) * 100.0;
        Some(vec![
            ALL[point.at(TRAFFIC) as usize].name.to_owned(),
            arms()[point.figure(BEST, ARM)?.median as usize].to_string(),
            text::stat(point.figure(BEST, CYCLES)),
            text::stat(point.figure(AUTO, CYCLES)),
            format!("{:.1} ({:.1}–{:.1})", percent(reached.median), percent(reached.max), percent(reached.min)),
            text::number(point.figure(BEST, OWN_BEST)?.median),
            text::stat(point.figure(AUTO, SETTLED)),
            text::stat(point.figure(BEST, SETTLED)),
            format!("{:.3}", reached.median),
            format!("{:.3}", verdict::spread(point.same_twice.as_ref())),
            verdict_of(point)?.to_string(),
        ])
    };
    Table {
        title: "The autopilot from its start, beside the best fixed arm".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: points.iter().filter_map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_settled_once_most_windows_cost_what_the_last_ones_do() {
        assert_eq!(settled(&[]), 0);
        assert_eq!(settled(&[100.0; 8]), 0);
        let dear_until = |n: usize| (0..160).map(|i| if i < n { 200.0 } else { 105.0 }).collect::<Vec<_>>();
        assert_eq!([0, 7, 60, 100].map(|n| settled(&dear_until(n))), [0, 7, 60, 100]);
        // Dear windows among others are a trial, or an interrupt.
        let mut windows = dear_until(30);
        windows[70..74].fill(400.0);
        assert_eq!(settled(&windows), 30);
        windows[150..].fill(400.0);
        assert_eq!(settled(&windows), 160, "not at all");
    }

    /// What can be counted: packets of both kinds come, each kind with its own number of subtables.
    #[test]
    fn the_traffic_changes_with_the_phase() {
        let traffic = &ALL[7];
        let run = Run::new(traffic, Settings::BARE).unwrap();
        let subtables = |phases| {
            run.passes(phases, Duration::from_millis(20)).unwrap();
            run.assembly.datapath().pmds()[0].subtables
        };
        assert_eq!((subtables(1), subtables(2)), (1, 25));
    }

    #[test]
    fn the_regret_is_what_the_autopilot_takes_beyond_the_best_arm() {
        let arm = |name: &str, cycles: f64, more: &[(&str, f64)]| crate::record::Arm {
            name: name.to_owned(),
            figures: [(CYCLES, cycles), (SETTLED, 7.0)]
                .iter()
                .chain(more)
                .map(|(name, value)| ((*name).to_owned(), crate::stat::Stat::of(vec![*value]).unwrap()))
                .collect(),
            not_applicable: None,
        };
        let point = Point {
            at: place([(TRAFFIC, 5.0)]),
            arms: vec![arm(BEST, 100.0, &[(ARM, 0.0), (OWN_BEST, 80.0)]), arm(AUTO, 125.0, &[])],
            same_twice: crate::stat::Stat::of(vec![1.0]),
            steal_percent: 0.0,
        };
        let row = &verdicts(&[point]).rows[0];
        assert_eq!(row[0], "100 flows and 1M, every 2 s");
        assert_eq!((row[4].as_str(), row[5].as_str(), row[10].as_str()), ("25.0 (25.0–25.0)", "80.0", "no"));
    }
}
