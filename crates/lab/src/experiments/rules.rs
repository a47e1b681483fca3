//! A rule a flow, and so a megaflow a flow: does it matter how many there are?

use super::{METHOD, lines_over_flows, table_of};
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, place};
use crate::lab::Lab;
use crate::loss::{Loss, denied};
use crate::record::{Axis, Findings, Point, Table};
use crate::rig::{CYCLES, Workload};
use crate::setting::{self, Setting};
use crate::text;
use anyhow::Result;

/// The experiment.
pub struct Rules;

/// What `sluice run` does unless told otherwise.
const SETTING: Setting = setting::AUTO;

/// Factor on the usual number of packets that warm the caches.
const WARMER: u64 = 10;

/// Rules to begin with, and what part of the rate there the rate with the most may be.
const FEW: f64 = 10.0;
const PART: f64 = 0.4;

impl Experiment for Rules {
    fn name(&self) -> &'static str {
        "rules"
    }

    fn about(&self) -> &'static str {
        "What does it cost to have a rule, and a megaflow, for every flow?"
    }

    fn run(&self, lab: &mut Lab) -> Result<Findings> {
        let rules: &[f64] = lab.size.pick(&[FEW, 1e3, 10e3], &[FEW, 1e3, 10e3, 100e3, 300e3, 1e6]);
        let grid = Grid {
            places: rules.iter().map(|n| place([("flows", *n)])).collect(),
            arms: vec![SETTING.name.to_owned()],
            set_up: &set_up,
            figure: CYCLES,
            rounds: Grid::ROUNDS,
            span: Grid::SPAN,
        };
        let points = grid.run(lab);
        let all: Vec<&Point> = points.iter().collect();
        let cycles = Axis::linear("cycles a packet");
        let caption = "One rule and one megaflow a flow. Error bars from the fastest to the slowest repetition.";
        Ok(Findings {
            tables: vec![
                verdict(&points),
                table_of("Cycles a packet: median (least–most)", &points, &["flows"], &[SETTING.name], CYCLES),
            ],
            figures: vec![lines_over_flows(&all, &[SETTING.name], CYCLES, cycles, "Cycles over rules", caption)],
            notes: METHOD.map(str::to_owned).to_vec(),
            points,
        })
    }

    fn losses(&self, points: &[Point]) -> Vec<Loss> {
        denied(&verdict(points), "kept", &["rules"], &["at least", "measured"])
    }
}

fn set_up(at: &Place, _: usize) -> Result<Ready> {
    let flows = at["flows"] as u64;
    // The first packet of each installs its megaflow; those behind fill the caches.
    SETTING.rig(&Workload::rule_a_flow(flows)?, flows * WARMER)
}

/// The promise, with what became of it.
fn verdict(points: &[Point]) -> Table {
    let cycles = |p: &Point| p.figure(SETTING.name, CYCLES).map(|s| s.median);
    let few = points.iter().find(|p| p.at("flows") == FEW).and_then(cycles);
    let row = |p: &Point| {
        let part = few? / cycles(p)?;
        Some(vec![
            text::count(p.at("flows")),
            PART.to_string(),
            format!("{part:.2}"),
            if part >= PART { "yes" } else { "no" }.to_owned(),
        ])
    };
    Table {
        title: format!("Rate, as a part of that at {FEW} rules"),
        columns: ["rules", "at least", "measured", "kept"].map(str::to_owned).to_vec(),
        rows: points.iter().filter(|p| p.at("flows") != FEW).filter_map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Size;
    use std::sync::Arc;

    #[test]
    fn every_flow_has_its_rule_and_its_megaflow() {
        let mut lab = Lab::new(Size::Quick, Arc::default(), Vec::new());
        lab.end_by(std::time::Instant::now());
        let findings = Rules.run(&mut lab).unwrap();
        assert!(lab.take_failure().is_none(), "the answers are checked");
        assert_eq!(findings.points.len(), 1);
    }
}
