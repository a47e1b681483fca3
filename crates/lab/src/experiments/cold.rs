//! From nothing to many megaflows: how fast they are set up, and whether packets are lost meanwhile.

use super::table_of;
use crate::cores::Bound;
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, Subject, place};
use crate::lab::Lab;
use crate::loss::{Loss, denied};
use crate::record::{Findings, Point, Table};
use crate::rig::Sample;
use crate::switch;
use crate::text;
use anyhow::{Result, anyhow, ensure};
use sluice_fate::Counter;
use sluice_traffic::{Choice, Profile};
use sluice_trafficgen::{Generator, Lane, Plan, Trial};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The experiment.
pub struct Cold;

const FLOWS: &str = "flows";
const KPPS: &str = "kpps";
const ARM: &str = "cold start";

/// Packets that did not come, percent.
const LOSS: &str = "loss_percent";
/// Megaflows in the end.
const MEGAFLOWS: &str = "megaflows";
/// What a miss took, microseconds.
const MISS: &str = "miss_us";
/// How late 99 of 100 packets were at most, microseconds.
const P99: &str = "p99_us";

/// Reading addresses makes a megaflow of each flow.
const RULES: &str = "in_port=1,udp,actions=move:NXM_OF_IP_DST[]->NXM_NX_REG0[],output:2\n";

/// Megaflows a second that are promised. Source: the issue on flow setup.
const PROMISED: f64 = 100e3;

impl Experiment for Cold {
    fn name(&self) -> &'static str {
        "cold"
    }

    fn about(&self) -> &'static str {
        "Are packets lost while megaflows are set up from nothing?"
    }

    fn bound(&self) -> Bound {
        Bound::OffLast
    }

    fn run(&self, lab: &mut Lab) -> Result<Findings> {
        let rates: &[f64] = lab.size.pick(&[100.0, 500.0], &[50.0, 100.0, 200.0, 300.0, 400.0, 500.0]);
        let set_up = |at: &Place, _: usize| -> Result<Ready> {
            Ok(Ready::Subject(Box::new(Scene { flows: at[FLOWS] as u32, pps: at[KPPS] * 1e3 })))
        };
        let grid = Grid {
            places: rates.iter().map(|kpps| place([(FLOWS, PROMISED), (KPPS, *kpps)])).collect(),
            arms: vec![ARM.to_owned()],
            set_up: &set_up,
            figure: LOSS,
            rounds: [1, 5],
            span: [Duration::ZERO; 2],
        };
        let points = grid.run(lab);
        Ok(Findings {
            tables: vec![
                verdicts(&points),
                table_of("How late 99 of 100 packets were at most, µs", &points, &[FLOWS, KPPS], &[ARM], P99),
            ],
            figures: Vec::new(),
            notes: vec![
                "Every flow comes once, so every packet is a miss; they come by the clock into a ring of 2048, to a switch \
                 just started, with the defaults of `sluice run`: the governor follows up to 64 flows without installing \
                 them. What a miss takes is the PMD's time in upcalls by their \
                 number."
                    .to_owned(),
            ],
            points,
        })
    }

    fn losses(&self, points: &[Point]) -> Vec<Loss> {
        denied(&verdicts(points), "nothing lost", &["flows", "offered, kpps"], &["lost, %"])
    }
}

/// A switch without megaflows, and flows that come once.
struct Scene {
    flows: u32,
    pps: f64,
}

impl Subject for Scene {
    fn measure(&mut self, _: Duration) -> Result<Sample> {
        let profile = Profile { flows: Some(self.flows), choice: Choice::Sequential, ..Profile::default() };
        let plan = Plan { lanes: vec![Lane::made("flows", [0, 1], self.pps, &profile)?], ports: 2 };
        let (mut generator, switch) = switch::start(&plan, RULES)?;
        let duration = Duration::from_secs_f64(f64::from(self.flows) / self.pps);
        let trial = Trial { rate_pps: self.pps, duration, is_warmup: false };
        let lane = generator.run(&trial, &AtomicBool::new(false))?.lanes.remove(0);
        let all = switch.totals();
        all.conserved().map_err(|unbalanced| anyhow!("packets are not conserved: {unbalanced:?}"))?;
        ensure!(
            lane.astray + lane.out_of_order == 0,
            "{} packets came astray or out of order",
            lane.astray + lane.out_of_order
        );
        let miss_cycles = all[Counter::UpcallCycles] as f64 / all[Counter::Upcalls].max(1) as f64;
        let figures = [
            (LOSS, 100.0 * (1.0 - lane.received as f64 / lane.sent.max(1) as f64)),
            (MEGAFLOWS, switch.megaflows() as f64),
            (MISS, 1e6 * miss_cycles / sluice_datapath::tsc_hz() as f64),
            (P99, lane.latency.map_or(f64::NAN, |latency| latency.p99_ns as f64 / 1e3)),
        ];
        Ok(Sample(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
    }
}

fn verdicts(points: &[Point]) -> Table {
    let row = |point: &Point| {
        let shown = |figure| text::stat(point.figure(ARM, figure));
        let passes = point.figure(ARM, LOSS).is_some_and(|loss| loss.median == 0.0);
        vec![
            text::count(point.at(FLOWS)),
            text::count(point.at(KPPS)),
            shown(LOSS),
            shown(MEGAFLOWS),
            shown(MISS),
            if passes { "yes" } else { "no" }.to_owned(),
        ]
    };
    let columns = ["flows", "offered, kpps", "lost, %", "megaflows", "a miss, µs", "nothing lost"];
    Table {
        title: "From nothing: median (least–most)".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: points.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flow_gets_a_megaflow() {
        let mut scene = Scene { flows: 500, pps: 5000.0 };
        // A machine that is stopped meanwhile may lose some; the governor follows a few without installing them.
        let is_complete = (0..20).any(|_| {
            let sample = scene.measure(Duration::ZERO).unwrap();
            sample.0[LOSS] == 0.0 && sample.0[MEGAFLOWS] > 400.0 && sample.0[MISS] > 0.0
        });
        assert!(is_complete);
    }
}
