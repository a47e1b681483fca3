//! The throughput of RFC 2544 by cache setting, flows and frame size: the question of seed 004 as its author asked it.

use crate::cores::Bound;
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, Subject, place};
use crate::lab::Lab;
use crate::loss::Loss;
use crate::record::{Axis, Chart, Figure, Findings, Point, Series, Table};
use crate::rig::{CORE_SHARED, EMC_SHARE, MEGAFLOW_SHARE, MPPS, SMC_SHARE, Sample};
use crate::setting::{self, Setting};
use crate::switch::{self, Running};
use crate::text;
use crate::verdict::{self, Verdict};
use anyhow::Result;
use sluice_datapath::Settings;
use sluice_fate::Counter;
use sluice_trafficgen::{Estimate, Generator, InProcess, Plan, Trial};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The experiment.
pub struct Throughput;

/// The first is the seed's "megaflow": no cache in front of the subtables.
const SETTINGS: [Setting; 5] = [setting::SEARCH, setting::EMC, setting::SMC, setting::BOTH, setting::AUTO];

const FRAME: &str = "frame";
/// The seed's flow counts, as far as its text gives them, and powers of ten around them.
const FLOWS: [f64; 7] = [1.0, 100.0, 200.0, 800.0, 8e3, 100e3, 1e6];
/// Sizes of frames, checksum included.
const FRAMES: [f64; 3] = [64.0, 512.0, 1518.0];

/// The most loss of a trial that passes. Source: seed 004.
const LOSS: f64 = 0.000_02;
/// The rates that are possible, packets a second.
const MIN_RATE: f64 = 20e3;
const MAX_RATE: f64 = 40e6;
/// Trials of an estimate, and the length of one in measurements: other work that takes a core for a millisecond fails the trial that
/// it falls into, and no other.
const TRIALS: usize = 60;
const TRIAL: f64 = 0.05;
/// Trials of a validation, of which most must pass, and by how much the rate is lowered if they do not.
const VALIDATION: usize = 9;
const GRANULARITY: f64 = 0.01;
/// Warm-ups: their rates as shares of the highest, and their lengths in measurements. The first sets up the flows, the second fills the
/// tables.
const WARMUPS: [(f64, f64); 2] = [(0.1, 1.0), (1.0, 4.0)];

/// The seed's rules: in port 0, out port 1, and back; no MAC learning.
const RULES: &str = "in_port=1,actions=output:2\nin_port=2,actions=output:1\n";

impl Experiment for Throughput {
    fn name(&self) -> &'static str {
        "throughput"
    }

    fn about(&self) -> &'static str {
        "Which rate is carried with at most 0.002 % loss, by cache, flows and frame size?"
    }

    fn bound(&self) -> Bound {
        Bound::OffLast
    }

    fn run(&self, lab: &mut Lab) -> Result<Findings> {
        let flows: &[f64] = lab.size.pick(&[100.0, 100e3], &FLOWS);
        let frames: &[f64] = lab.size.pick(&FRAMES[..1], &FRAMES);
        let places =
            frames.iter().flat_map(|frame| flows.iter().map(|flows| place([("flows", *flows), (FRAME, *frame)])));
        let grid = Grid {
            places: places.collect(),
            arms: names().into_iter().map(str::to_owned).collect(),
            set_up: &set_up,
            figure: MPPS,
            rounds: [1, 3],
            span: [Duration::from_millis(100), Duration::from_millis(400)],
        };
        let points = grid.run(lab);
        Ok(Findings {
            tables: vec![rates(&points), answers(&points), beside_the_seed(&points)],
            figures: FRAMES.iter().filter_map(|frame| figure(&points, *frame)).collect(),
            notes: vec![
                "Each figure is a search of its own through a new switch: a PMD on the last core, the generator on the \
                 others, packets by the clock into a ring of 2048; a warm-up, one at the highest rate, and where the autopilot \
                 may choose, three more seconds at that rate; 60 trials of 20 ms that estimate the rate (Bayesian, \
                 crates/trafficgen/src/estimate.rs); then nine at that rate, of which most must pass, or else at rates 1 % \
                 lower each time. The shares are the PMD's statistics of the last trial that passed."
                    .to_owned(),
                switch::ALONE_NOTE.to_owned(),
                "Rules: in_port=1 to port 2 and back, as in the seed. Flows differ in source and destination address. Where \
                 the generator cannot send as fast as the switch forwards, the rate is the generator's."
                    .to_owned(),
                format!(
                    "The switch left to itself carries at least {WANTED} of the best forced setting's rate: {}",
                    verdict::counted(points.iter().filter_map(verdict_of))
                ),
            ],
            points,
        })
    }

    fn losses(&self, points: &[Point]) -> Vec<Loss> {
        let loss = |point: &Point| {
            let (auto, name, best) = auto_and_best(point)?;
            let what = || format!("auto: {auto:.2} Mpps, {name}: {best:.2}");
            (auto < best * WANTED).then(|| Loss::at(point, &what()))
        };
        points.iter().filter_map(loss).collect()
    }
}

/// What the switch left to itself is to carry, as a share of the best forced setting's rate.
const WANTED: f64 = 1.0 - verdict::MARGIN;

/// The rate of the switch left to itself; the best forced setting and its rate.
fn auto_and_best(point: &Point) -> Option<(f64, &'static str, f64)> {
    let rate = |setting: &Setting| point.figure(setting.name, MPPS).map(|stat| stat.median);
    let forced = SETTINGS[..4].iter().filter_map(|s| Some((s.name, rate(s)?)));
    let (name, best) = forced.max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some((rate(&setting::AUTO)?, name, best))
}

fn verdict_of(point: &Point) -> Option<Verdict> {
    let (auto, _, best) = auto_and_best(point)?;
    (best > 0.0).then(|| Verdict::at(point, auto / best, WANTED))
}

fn names() -> Vec<&'static str> {
    SETTINGS.iter().map(|setting| setting.name).collect()
}

fn set_up(at: &Place, arm: usize) -> Result<Ready> {
    let profile = format!(
        r#"{{"streams": [{{"flows": {}, "frame_size": {}, "rate": 1000000, "frame_type": "generic",
            "flow_mods": "function:create_flow_mod_object(use_src_ip_flows=True, use_dst_ip_flows=True)",
            "stream_types": ["teaching_warmup", "measurement"]}}]}}"#,
        at["flows"], at[FRAME]
    );
    let plan = Plan::parse(&profile, Path::new("throughput.json"))?;
    Ok(Ready::Subject(Box::new(Searched { plan, settings: SETTINGS[arm].settings()? })))
}

/// A setting whose rate is searched, each time by a new switch: PMDs of several would share a core.
struct Searched {
    plan: Plan,
    settings: Settings,
}

impl Subject for Searched {
    fn measure(&mut self, span: Duration) -> Result<Sample> {
        let began = Instant::now();
        let (mut generator, switch) = switch::start_alone(&self.plan, RULES, self.settings)?;
        let warmups = WARMUPS.map(|(share, length)| (MAX_RATE * share, span.mul_f64(length)));
        // The autopilot has packets without a pause to choose by, as it has in a switch in service.
        let choosing = setting::time_to_choose(&self.settings).map(|time| (MAX_RATE, time));
        for (rate_pps, duration) in warmups.into_iter().chain(choosing) {
            generator.run(&Trial { rate_pps, duration, is_warmup: true }, &AtomicBool::new(false))?;
        }
        let mut trials =
            Trials { generator: &mut generator, switch: &switch, length: span.mul_f64(TRIAL), shares: [0.0; 3] };
        let mut estimate = Estimate::between(MIN_RATE, MAX_RATE);
        for _ in 0..TRIALS {
            let rate = estimate.rate_pps();
            estimate.record(rate, trials.passes(rate)?);
        }
        let mut rate = estimate.rate_pps();
        while rate > MIN_RATE && !trials.most_pass(rate)? {
            rate *= 1.0 - GRANULARITY;
        }
        let shares = trials.shares;
        let paused = 100.0 * generator.paused().as_secs_f64() / began.elapsed().as_secs_f64();
        let figures = [
            (MPPS, rate / 1e6),
            (EMC_SHARE, shares[0]),
            (SMC_SHARE, shares[1]),
            (MEGAFLOW_SHARE, shares[2]),
            (CORE_SHARED, paused),
        ];
        Ok(Sample(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
    }
}

/// Trials through a switch.
struct Trials<'a> {
    generator: &'a mut InProcess,
    switch: &'a Running,
    length: Duration,
    /// What answered in the last one that passed: EMC, SMC and megaflows, percent of the passes.
    shares: [f64; 3],
}

impl Trials<'_> {
    /// Whether a trial at a rate, packets a second, loses no more than it may.
    fn passes(&mut self, rate: f64) -> Result<bool> {
        let trial = Trial { rate_pps: rate, duration: self.length, is_warmup: false };
        let before = self.switch.totals();
        let passes = self.generator.run(&trial, &AtomicBool::new(false))?.outcome().loss() <= LOSS;
        if passes {
            let counted = self.switch.totals().since(&before);
            let all = counted[Counter::Passes].max(1) as f64;
            let hits = [Counter::EmcHits, Counter::SmcHits, Counter::MegaflowHits];
            self.shares = hits.map(|hits| 100.0 * counted[hits] as f64 / all);
        }
        Ok(passes)
    }

    /// Whether most trials of a validation pass.
    fn most_pass(&mut self, rate: f64) -> Result<bool> {
        let (mut passed, mut failed) = (0, 0);
        while passed.max(failed) <= VALIDATION / 2 {
            match self.passes(rate)? {
                true => passed += 1,
                false => failed += 1,
            }
        }
        Ok(passed > failed)
    }
}

fn rates(points: &[Point]) -> Table {
    super::table_of("Mpps at most 0.002 % loss: median (least–most)", points, &[FRAME, "flows"], &names(), MPPS)
}

/// What answered in the last trial that passed.
fn answers(points: &[Point]) -> Table {
    let row = |point: &Point| {
        let cell = |arm: &&str| {
            let share = |figure| point.figure(arm, figure).map_or(0.0, |stat| stat.median);
            format!("{:.1} / {:.1} / {:.1}", share(EMC_SHARE), share(SMC_SHARE), share(MEGAFLOW_SHARE))
        };
        let at = [FRAME, "flows"].map(|name| text::count(point.at(name)));
        at.into_iter().chain(names().iter().map(cell)).collect()
    };
    Table {
        title: "EMC / SMC / megaflow hits, percent of the passes".to_owned(),
        columns: [FRAME, "flows"].into_iter().chain(names()).map(str::to_owned).collect(),
        rows: points.iter().map(row).collect(),
    }
}

fn beside_the_seed(points: &[Point]) -> Table {
    let at = |flows: f64| points.iter().find(|p| p.at("flows") == flows && p.at(FRAME) == FRAMES[0]);
    let rate = |point: &Point, setting: &Setting| point.figure(setting.name, MPPS).map(|stat| stat.median);
    let below = at(100.0).and_then(|p| Some(100.0 * (1.0 - rate(p, &setting::SMC)? / rate(p, &setting::EMC)?)));
    let best_from = FLOWS.iter().find(|flows| {
        let smc_leads = |p: &Point| {
            let smc = rate(p, &setting::SMC)?;
            Some(smc >= rate(p, &setting::EMC)?.max(rate(p, &setting::SEARCH)?).max(rate(p, &setting::BOTH)?))
        };
        at(**flows).and_then(smc_leads).unwrap_or(false)
    });
    let rows = [
        [
            "SMC alone below EMC alone at 100 flows".to_owned(),
            "16.5 %".to_owned(),
            below.map_or("n/a".to_owned(), |below| format!("{below:.1} %")),
        ],
        [
            "SMC alone is the best from".to_owned(),
            "200 flows on".to_owned(),
            best_from.map_or("nowhere".to_owned(), |flows| format!("{} flows", text::count(*flows))),
        ],
    ];
    Table {
        title: "Beside published figures of Open vSwitch (2018, two cores; docs/seeds.md), frames of 64 bytes"
            .to_owned(),
        columns: ["claim", "there", "here"].map(str::to_owned).to_vec(),
        rows: rows.map(Vec::from).to_vec(),
    }
}

fn figure(points: &[Point], frame: f64) -> Option<Figure> {
    let here: Vec<&Point> = points.iter().filter(|p| p.at(FRAME) == frame).collect();
    let line = |arm: &&str| Series {
        name: (*arm).to_owned(),
        points: here
            .iter()
            .filter_map(|p| p.figure(arm, MPPS).map(|s| [p.at("flows"), s.median, s.min, s.max]))
            .collect(),
    };
    (!here.is_empty()).then(|| Figure {
        title: format!("Frames of {frame} bytes"),
        caption: "The highest rate with at most 0.002 % loss.".to_owned(),
        chart: Chart::Lines {
            x: Axis::log("flows"),
            y: Axis::linear("Mpps"),
            series: names().iter().map(line).collect(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_has_a_profile() {
        for (flows, frame) in [(1.0, 64.0), (1e6, 1518.0)] {
            for arm in 0..SETTINGS.len() {
                set_up(&place([("flows", flows), (FRAME, frame)]), arm).unwrap();
            }
        }
    }

    #[test]
    fn a_noisy_point_is_neither_lost_nor_passed() {
        use crate::record::Arm;
        use crate::stat::Stat;
        let arm = |setting: &Setting, mpps: f64| Arm {
            name: setting.name.to_owned(),
            figures: [(MPPS.to_owned(), Stat::of(vec![mpps]).unwrap())].into(),
            not_applicable: None,
        };
        let point = |auto: f64, twice: [f64; 2]| Point {
            at: place([("flows", 100.0), (FRAME, 64.0)]),
            arms: vec![arm(&setting::EMC, 10.0), arm(&setting::SMC, 8.0), arm(&setting::AUTO, auto)],
            same_twice: Stat::of(twice.to_vec()),
            steal_percent: 0.0,
        };
        let lost = |auto, twice| Throughput.losses(&[point(auto, twice)]).pop().map(|loss| loss.what);
        assert_eq!(lost(9.0, [1.0, 1.0]).unwrap(), "auto: 9.00 Mpps, emc: 10.00");
        assert_eq!(lost(9.0, [0.9, 1.1]).unwrap(), "undecided: auto: 9.00 Mpps, emc: 10.00");
        assert_eq!((lost(9.8, [1.0, 1.0]), lost(9.8, [0.9, 1.1])), (None, None));
        let verdicts =
            [9.0, 9.8].map(|auto| [[1.0, 1.0], [0.9, 1.1]].map(|twice| verdict_of(&point(auto, twice)).unwrap()));
        assert_eq!(verdicts, [[Verdict::No, Verdict::Undecided], [Verdict::Yes, Verdict::Undecided]]);
    }
}
