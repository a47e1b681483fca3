//! Where the cycles go, stage by stage; seeds 001 and 004 asked a profiler.

use super::METHOD;
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, place};
use crate::lab::Lab;
use crate::loss::Loss;
use crate::record::{Axis, Chart, Figure, Findings, Point, Table};
use crate::rig::{CYCLES, Workload, stage_figure};
use crate::setting::{self, Setting};
use crate::text;
use anyhow::Result;
use sluice_datapath::Stage;

/// The experiment.
pub struct Profile;

const SETTINGS: &[Setting] = &[setting::SEARCH, setting::PLAIN, setting::EMC, setting::SMC, setting::AUTO];

/// What a seed's profiler said of a function, and what stands there here.
struct SeedShare {
    function: &'static str,
    /// Percent of all cycles.
    percent: f64,
    /// The stages that do the same here; none if no stage does only that.
    stages: &'static [Stage],
    /// Where it was measured: flows, subtables, rules of each; and with which setting.
    at: [f64; 3],
    setting: &'static Setting,
}

const fn share(
    function: &'static str,
    percent: f64,
    stages: &'static [Stage],
    at: [f64; 3],
    setting: &'static Setting,
) -> SeedShare {
    SeedShare { function, percent, stages, at, setting }
}

/// Seed 000: a million flows over twenty subtables. Seed 001: twenty subtables of 100 rules, EMC bypassed. Seed 004: one
/// rule, 100 flows, SMC.
const AT_000: [f64; 3] = [1e6, 20.0, 1.0];
const AT_001: [f64; 3] = [2000.0, 20.0, 100.0];
const AT_004: [f64; 3] = [100.0, 1.0, 1.0];

const SEEDS: [SeedShare; 10] = [
    share("000: the megaflow lookup", 65.0, &[Stage::Subtables], AT_000, &setting::PLAIN),
    share("001: dpcls_lookup", 53.6, &[Stage::Subtables], AT_001, &setting::PLAIN),
    share("001: of that, netdev_flow_key_hash_in_mask", 39.3, &[], AT_001, &setting::PLAIN),
    share("001: of that, dpcls_rule_matches_key", 7.1, &[], AT_001, &setting::PLAIN),
    share("004: miniflow_extract", 20.78, &[Stage::Parse], AT_004, &setting::SMC),
    share("004: dp_netdev_input__", 20.21, &[Stage::Emc, Stage::Smc], AT_004, &setting::SMC),
    share("004: dpcls_rule_matches_key", 15.85, &[], AT_004, &setting::SMC),
    share("004: i40e_recv_pkts_vec, netdev_dpdk_rxq_recv", 12.36, &[Stage::Rx], AT_004, &setting::SMC),
    share("004: i40e_xmit_fixed_burst_vec", 8.97, &[Stage::Tx], AT_004, &setting::SMC),
    share("004: dp_execute_cb, non_atomic_ullong_add", 6.32, &[Stage::Act], AT_004, &setting::SMC),
];

/// One rule over IP fields.
const ONE_RULE: &str = "ip,nw_dst=10.0.0.0/8,actions=output:2\n";

impl Experiment for Profile {
    fn name(&self) -> &'static str {
        "profile"
    }

    fn about(&self) -> &'static str {
        "Where do a packet's cycles go?"
    }

    fn run(&self, lab: &mut Lab) -> Result<Findings> {
        let flows: &[f64] = lab.size.pick(&[100.0, 100e3], &[100.0, 10e3, 100e3, 1e6]);
        let grid = Grid {
            places: flows.iter().map(|f| at([*f, 20.0, 1.0])).chain([at(AT_001), at(AT_004)]).collect(),
            arms: SETTINGS.iter().map(|setting| setting.name.to_owned()).collect(),
            set_up: &set_up,
            figure: CYCLES,
            rounds: Grid::ROUNDS,
            span: Grid::SPAN,
        };
        let points = grid.run(lab);
        let mut notes = METHOD.map(str::to_owned).to_vec();
        notes.push(
            "The clock is read between stages, once a batch; cycles are the whole with those reads, some more than without."
                .to_owned(),
        );
        notes.push("rx is the generator that writes the frames; a NIC's driver stands there in the published profiles of Open vSwitch.".to_owned());
        Ok(Findings {
            tables: vec![table(&points), seeds(&points)],
            figures: points.iter().map(figure).collect(),
            notes,
            points,
        })
    }

    fn losses(&self, _points: &[Point]) -> Vec<Loss> {
        Vec::new()
    }
}

fn at([flows, subtables, rules]: [f64; 3]) -> Place {
    place([("flows", flows), ("subtables", subtables), ("rules", rules)])
}

fn workload(at: &Place) -> Workload {
    let (flows, subtables) = (at["flows"] as u64, at["subtables"] as u16);
    match (subtables, at["rules"] as u32) {
        (1, _) => Workload::one_rule(flows, ONE_RULE),
        (_, 1) => Workload::subtables(flows, subtables),
        (_, rules) => Workload::rules_a_subtable(subtables, rules),
    }
}

fn set_up(at: &Place, arm: usize) -> Result<Ready> {
    SETTINGS[arm].profiled_rig(&workload(at), at["flows"] as u64)
}

fn cycles(point: &Point, setting: &Setting, stage: Stage) -> f64 {
    point.figure(setting.name, &stage_figure(stage)).map_or(0.0, |stat| stat.median)
}

fn figure(point: &Point) -> Figure {
    let part = |stage: Stage| (stage.name().to_owned(), SETTINGS.iter().map(|s| cycles(point, s, stage)).collect());
    Figure {
        title: crate::grid::name_of(&point.at),
        caption: "Cycles a packet by stage.".to_owned(),
        chart: Chart::Bars {
            y: Axis::linear("cycles a packet"),
            bars: SETTINGS.iter().map(|setting| setting.name.to_owned()).collect(),
            parts: Stage::ALL.into_iter().filter(|stage| *stage != Stage::Upcall).map(part).collect(),
        },
    }
}

fn table(points: &[Point]) -> Table {
    let columns =
        ["flows", "subtables", "rules", "setting"].into_iter().chain(Stage::ALL.map(Stage::name)).chain(["whole"]);
    let rows = points.iter().flat_map(|point| {
        SETTINGS.iter().map(move |setting| {
            let whole: f64 = Stage::ALL.into_iter().map(|stage| cycles(point, setting, stage)).sum();
            let cell = |stage| {
                let own = cycles(point, setting, stage);
                format!("{own:.1} ({:.0} %)", 100.0 * own / whole.max(1.0))
            };
            let at = ["flows", "subtables", "rules"].map(|name| text::count(point.at(name)));
            at.into_iter()
                .chain([setting.name.to_owned()])
                .chain(Stage::ALL.map(cell))
                .chain([format!("{whole:.1}")])
                .collect()
        })
    });
    Table {
        title: "Cycles a packet by stage, and shares of the whole".to_owned(),
        columns: columns.map(str::to_owned).collect(),
        rows: rows.collect(),
    }
}

/// The share of some stages, percent of the whole.
fn share_of(point: &Point, setting: &Setting, stages: &[Stage]) -> Option<f64> {
    let sum = |stages: &[Stage]| stages.iter().map(|stage| cycles(point, setting, *stage)).sum::<f64>();
    let whole = sum(&Stage::ALL);
    (whole > 0.0 && !stages.is_empty()).then(|| 100.0 * sum(stages) / whole)
}

fn seeds(points: &[Point]) -> Table {
    let row = |seed: &SeedShare| {
        let point = points.iter().find(|point| point.at == at(seed.at));
        let here = point.and_then(|point| share_of(point, seed.setting, seed.stages));
        let stages: Vec<&str> = seed.stages.iter().map(|stage| stage.name()).collect();
        vec![
            seed.function.to_owned(),
            format!("{} %", seed.percent),
            if stages.is_empty() { "not apart".to_owned() } else { stages.join(", ") },
            seed.setting.name.to_owned(),
            here.map_or("–".to_owned(), |here| format!("{here:.1} %")),
        ]
    };
    Table {
        title: "Beside published profiles of Open vSwitch (docs/seeds.md), with their flows, subtables and rules"
            .to_owned(),
        columns: ["document and function", "share there", "stage here", "setting", "share here"]
            .map(str::to_owned)
            .to_vec(),
        rows: SEEDS.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::Rig;

    #[test]
    fn the_seeds_workloads_have_their_subtables_and_rules() {
        for place in [AT_001, AT_004].map(at) {
            let settings = setting::PLAIN.settings().unwrap();
            Rig::new(&workload(&place), settings, true).unwrap().check(40_000, &settings).unwrap();
        }
    }

    #[test]
    fn every_share_has_a_setting_that_is_measured() {
        assert!(SEEDS.iter().all(|seed| SETTINGS.iter().any(|setting| setting.name == seed.setting.name)));
    }
}
