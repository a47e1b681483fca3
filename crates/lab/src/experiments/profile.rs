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

const SETTINGS: &[Setting] = &[setting::SEARCH, setting::EMC, setting::SMC, setting::AUTO];

/// What the seeds' profilers said: where, which of our stages that is, percent of the cycles.
const SEEDS: [(&str, &str, f64); 9] = [
    ("20 subtables of 100 rules, no EMC: dpcls_lookup", "subtables", 53.6),
    ("of that, netdev_flow_key_hash_in_mask", "subtables", 39.3),
    ("of that, dpcls_rule_matches_key", "subtables", 7.1),
    ("SMC, 100 flows: miniflow_extract", "parse", 20.78),
    ("SMC: dp_netdev_input__", "emc, smc", 20.21),
    ("SMC: dpcls_rule_matches_key", "smc", 15.85),
    ("SMC: i40e_recv_pkts_vec, netdev_dpdk_rxq_recv", "rx", 12.36),
    ("SMC: i40e_xmit_fixed_burst_vec", "tx", 8.97),
    ("SMC: dp_execute_cb, non_atomic_ullong_add", "act", 6.32),
];

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
            places: flows.iter().map(|f| place([("flows", *f), ("subtables", 20.0)])).collect(),
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
            tables: vec![table(&points), seeds()],
            figures: points.iter().map(figure).collect(),
            notes,
            points,
        })
    }

    fn losses(&self, _points: &[Point]) -> Vec<Loss> {
        Vec::new()
    }
}

fn set_up(at: &Place, arm: usize) -> Result<Ready> {
    let (flows, subtables) = (at["flows"] as u64, at["subtables"] as u16);
    SETTINGS[arm].profiled_rig(&Workload::subtables(flows, subtables), flows)
}

fn cycles(point: &Point, setting: &Setting, stage: Stage) -> f64 {
    point.figure(setting.name, &stage_figure(stage)).map_or(0.0, |stat| stat.median)
}

fn figure(point: &Point) -> Figure {
    let part = |stage: Stage| (stage.name().to_owned(), SETTINGS.iter().map(|s| cycles(point, s, stage)).collect());
    Figure {
        title: format!("{} flows, 20 subtables", text::count(point.at("flows"))),
        caption: "Cycles a packet by stage.".to_owned(),
        chart: Chart::Bars {
            y: Axis::linear("cycles a packet"),
            bars: SETTINGS.iter().map(|setting| setting.name.to_owned()).collect(),
            parts: Stage::ALL.into_iter().filter(|stage| *stage != Stage::Upcall).map(part).collect(),
        },
    }
}

fn table(points: &[Point]) -> Table {
    let columns = ["flows", "setting"].into_iter().chain(Stage::ALL.map(Stage::name)).chain(["whole"]);
    let rows = points.iter().flat_map(|point| {
        SETTINGS.iter().map(move |setting| {
            let whole: f64 = Stage::ALL.into_iter().map(|stage| cycles(point, setting, stage)).sum();
            let cell = |stage| {
                let own = cycles(point, setting, stage);
                format!("{own:.1} ({:.0} %)", 100.0 * own / whole.max(1.0))
            };
            let at = [text::count(point.at("flows")), setting.name.to_owned()];
            at.into_iter().chain(Stage::ALL.map(cell)).chain([format!("{whole:.1}")]).collect()
        })
    });
    Table {
        title: "Cycles a packet by stage, and shares of the whole".to_owned(),
        columns: columns.map(str::to_owned).collect(),
        rows: rows.collect(),
    }
}

fn seeds() -> Table {
    let row =
        |(place, stage, percent): (&str, &str, f64)| vec![place.to_owned(), stage.to_owned(), format!("{percent} %")];
    Table {
        title: "What published profiles of Open vSwitch say".to_owned(),
        columns: ["set-up and function", "stage here", "share"].map(str::to_owned).to_vec(),
        rows: SEEDS.map(row).to_vec(),
    }
}
