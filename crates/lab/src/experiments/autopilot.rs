//! The autopilot beside the best forced arm, over flows and subtables; what the reviewers of seed 000 could not be
//! shown.

use crate::core_share;
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, Subject, place};
use crate::lab::Lab;
use crate::loss::{Loss, denied};
use crate::record::{Findings, Point, Table};
use crate::rig::{CYCLES, Rig, Sample, Workload};
use crate::setting;
use crate::stat::Stat;
use crate::text;
use crate::verdict::{self, Verdict};
use anyhow::{Result, anyhow};
use sluice_datapath::{Arm, EmcRecirc, Settings};
use std::time::Duration;

/// The experiment.
pub struct Autopilot;

/// What takes turns: the arm that was the best in an earlier run, and the autopilot.
pub(super) const BEST: &str = "best arm";
pub(super) const AUTO: &str = "autopilot";

/// The number of the arm that was the best, among [`arms`].
pub(super) const ARM: &str = "arm";

/// What the autopilot must reach of the best arm.
pub(super) const WANTED: f64 = 0.97;

/// Packets of each flow that warm the caches in the earlier run, and how many they are at least and at most.
const PACKETS_A_FLOW: u64 = 4;
const WARM_PACKETS: std::ops::RangeInclusive<u64> = 500_000..=4_000_000;
/// How long an arm is measured in the earlier run.
const EARLIER: Duration = Duration::from_millis(200);

impl Experiment for Autopilot {
    fn name(&self) -> &'static str {
        "autopilot"
    }

    fn about(&self) -> &'static str {
        "Does the switch, left alone, do as well as with the best setting for its traffic?"
    }

    fn run(&self, lab: &mut Lab) -> Result<Findings> {
        let flows: &[f64] = lab.size.pick(&[10e3], &[100.0, 1e3, 10e3, 100e3, 1e6]);
        let subtables: &[f64] = lab.size.pick(&[1.0, 20.0, 300.0], &[1.0, 10.0, 20.0, 30.0, 100.0, 300.0]);
        let places = flows.iter().flat_map(|f| subtables.iter().map(|s| place([("flows", *f), ("subtables", *s)])));
        let grid = Grid {
            places: places.collect(),
            arms: vec![BEST.to_owned(), AUTO.to_owned()],
            set_up: &set_up,
            figure: CYCLES,
            rounds: [7, 9],
            span: [Duration::from_millis(100), Duration::from_millis(150)],
        };
        let points = grid.run(lab);
        Ok(Findings {
            tables: vec![verdicts(&points)],
            figures: Vec::new(),
            notes: vec![
                "Cycles a packet by the time-stamp counter, generator and null port included: all cycles of a \
                 repetition over all its packets, so that what the autopilot spends on trials counts."
                    .to_owned(),
                core_share::NOTE.to_owned(),
                format!(
                    "The best arm is that of an earlier run of each arm. Repetitions are interleaved: best arm, \
                     autopilot, best arm. Reached: the median over pairs of best arm's cycles by autopilot's. It passes at \
                     {WANTED}. The spread is half the distance between the largest and the smallest ratio of the best \
                     arm's two; a point with a spread over {} is undecided and counts as neither.",
                    verdict::MARGIN
                ),
                verdict::counted(points.iter().filter_map(verdict_of)),
            ],
            points,
        })
    }

    fn losses(&self, points: &[Point]) -> Vec<Loss> {
        denied(&verdicts(points), "passes", &["flows", "subtables"], &["best arm", "reached", "spread"])
    }
}

/// Every arm that can be forced.
pub(super) fn arms() -> Vec<Arm> {
    Arm::all(&Settings { emc_recirc: Some(EmcRecirc::Always), ..Settings::default() })
}

pub(super) fn forced(arm: Arm) -> Settings {
    Settings { vector: Settings::default().vector, ..arm.into() }
}

fn rig(workload: &Workload, flows: f64, settings: Settings) -> Result<Rig> {
    let mut rig = Rig::new(workload, settings, false)?;
    rig.check((flows as u64 * PACKETS_A_FLOW).clamp(*WARM_PACKETS.start(), *WARM_PACKETS.end()), &settings)?;
    setting::fill(&rig, flows as u64, &settings);
    Ok(rig)
}

fn set_up(at: &Place, arm: usize) -> Result<Ready> {
    let workload = Workload::subtables(at["flows"] as u64, at["subtables"] as u16);
    if arm == 1 {
        let rig = rig(&workload, at["flows"], Settings::default())?;
        return Ok(Ready::Subject(Box::new(Judged { rig, arm: None })));
    }
    let mut best: Option<(f64, usize)> = None;
    for (n, arm) in arms().into_iter().enumerate() {
        let cycles = rig(&workload, at["flows"], forced(arm))?.mean(EARLIER).0[CYCLES];
        if best.is_none_or(|(least, _)| cycles < least) {
            best = Some((cycles, n));
        }
    }
    let (_, n) = best.ok_or_else(|| anyhow!("there is no arm"))?;
    Ok(Ready::Subject(Box::new(Judged { rig: rig(&workload, at["flows"], forced(arms()[n]))?, arm: Some(n) })))
}

/// A switch that is judged by all its cycles.
struct Judged {
    rig: Rig,
    arm: Option<usize>,
}

impl Subject for Judged {
    fn measure(&mut self, span: Duration) -> Result<Sample> {
        let mut sample = self.rig.mean(span);
        sample.0.extend(self.arm.map(|arm| (ARM.to_owned(), arm as f64)));
        Ok(sample)
    }
}

/// What the autopilot reached of the best arm: the ratio of each pair.
pub(super) fn reached(point: &Point) -> Option<Stat> {
    point.ratio(BEST, AUTO, CYCLES)
}

pub(super) fn verdict_of(point: &Point) -> Option<Verdict> {
    Some(Verdict::of(reached(point)?.median, WANTED, verdict::spread(point.same_twice.as_ref())))
}

fn verdicts(points: &[Point]) -> Table {
    let columns = ["flows", "subtables", "best arm", "its cycles", "autopilot's cycles", "reached", "spread", "passes"];
    let row = |point: &Point| {
        let reached = reached(point)?;
        let spread = verdict::spread(point.same_twice.as_ref());
        let arm = arms()[point.figure(BEST, ARM)?.median as usize];
        Some(vec![
            text::count(point.at("flows")),
            text::count(point.at("subtables")),
            arm.to_string(),
            text::stat(point.figure(BEST, CYCLES)),
            text::stat(point.figure(AUTO, CYCLES)),
            format!("{:.3} ({:.3}–{:.3})", reached.median, reached.min, reached.max),
            format!("{spread:.3}"),
            verdict_of(point)?.to_string(),
        ])
    };
    Table {
        title: "The autopilot beside the best arm of an earlier run".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: points.iter().filter_map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn pairs_are_compared_and_noise_decides_nothing() {
        let arm = |name: &str, samples: &[f64]| crate::record::Arm {
            name: name.to_owned(),
            figures: BTreeMap::from([
                (CYCLES.to_owned(), Stat::of(samples.to_vec()).unwrap()),
                (ARM.to_owned(), Stat::of(vec![0.0]).unwrap()),
            ]),
            not_applicable: None,
        };
        let point = |twice: &[f64]| Point {
            at: place([("flows", 1e3), ("subtables", 20.0)]),
            arms: vec![arm(BEST, &[100.0, 200.0, 95.0]), arm(AUTO, &[105.0, 210.0, 100.0])],
            same_twice: Stat::of(twice.to_vec()),
            steal_percent: 0.0,
        };
        let rows = verdicts(&[point(&[1.0, 1.0]), point(&[0.96, 1.04])]).rows;
        assert_eq!(rows[0][5..], ["0.952 (0.950–0.952)", "0.000", "no"]);
        assert_eq!(rows[1][6..], ["0.040", "undecided"]);
        assert_eq!(rows[0][..3], ["1k", "20", "SMC"]);
    }
}
