//! Each lookup level forced alone, over flows and subtables; the question of seed 000, with its speed-ups beside ours.

use super::{METHOD, lines_over_flows, table_of};
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, place};
use crate::lab::Lab;
use crate::loss::{Loss, behind, behind_the_seed};
use crate::record::{Axis, Figure, Findings, Point, Table};
use crate::rig::{CYCLES, DISTRIBUTOR_SHARE, DISTRIBUTOR_WRONG, MPPS, PROBES, Workload};
use crate::setting::{self, Setting};
use crate::text;
use anyhow::Result;

/// The experiment.
pub struct Subtables;

/// The first is what the others are compared with.
static SETTINGS: [Setting; 15] = {
    let d = setting::DISTRIBUTORS;
    use setting::{AUTO, BOTH, EMC, PLAIN, SEARCH, SMC};
    [SEARCH, PLAIN, EMC, SMC, BOTH, d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7], d[8], AUTO]
};

impl Experiment for Subtables {
    fn name(&self) -> &'static str {
        "subtables"
    }

    fn about(&self) -> &'static str {
        "What does a packet cost when one lookup level is forced alone, over flows and subtables?"
    }

    fn run(&self, lab: &mut Lab) -> Result<Findings> {
        let flows: &[f64] = lab.size.pick(&[100.0, 10e3, 100e3], &[100.0, 1e3, 10e3, 20e3, 100e3, 1e6]);
        let subtables: &[f64] = lab.size.pick(&[20.0, 100.0], &[1.0, 10.0, 20.0, 30.0, 100.0, 300.0]);
        let places = flows.iter().flat_map(|f| subtables.iter().map(|s| place([("flows", *f), ("subtables", *s)])));
        let grid = Grid {
            places: places.collect(),
            arms: names().into_iter().map(str::to_owned).collect(),
            set_up: &set_up,
            figure: CYCLES,
            rounds: Grid::ROUNDS,
            span: Grid::SPAN,
        };
        let points = grid.run(lab);
        Ok(Findings {
            tables: vec![
                table_of("Cycles a packet: median (least–most)", &points, &["flows", "subtables"], &names(), CYCLES),
                beside_the_seed(&points),
                shares(&points),
            ],
            figures: figures(&points, subtables),
            notes: METHOD.map(str::to_owned).to_vec(),
            points,
        })
    }

    fn losses(&self, points: &[Point]) -> Vec<Loss> {
        let auto = behind(points, setting::AUTO.name, &names()[..names().len() - 1], CYCLES);
        let cells = SEED_CELLS.iter().map(|cell| (cell.flows, cell.subtables, cell.arm, cell.pps[1] / cell.pps[0]));
        let behind_seeds = cells.chain(MEMBERSHIP_GAINS).filter_map(|(flows, subtables, arm, gain)| {
            let point = points.iter().find(|p| p.at("flows") == flows && p.at("subtables") == subtables)?;
            behind_the_seed(point, arm, setting::PLAIN.name, MPPS, gain)
        });
        auto.into_iter().chain(behind_seeds).collect()
    }
}

fn set_up(at: &Place, arm: usize) -> Result<Ready> {
    let (flows, subtables) = (at["flows"] as u64, at["subtables"] as u16);
    SETTINGS[arm].rig(&Workload::subtables(flows, subtables), flows)
}

fn names() -> Vec<&'static str> {
    SETTINGS.iter().map(|setting| setting.name).collect()
}

/// A cell of the seed's tables.
struct SeedCell {
    flows: f64,
    subtables: f64,
    /// The setting here that does what the seed's did there.
    arm: &'static str,
    /// Packets a second of the original, and with the distributor.
    pps: [f64; 2],
}

const fn cell(flows: f64, subtables: f64, arm: &'static str, original: f64, distributor: f64) -> SeedCell {
    SeedCell { flows, subtables, arm, pps: [original, distributor] }
}

const SCALAR: &str = "own scalar";
const AVX2: &str = "own avx2";

/// Every cell. Source: seed 000, data before the v2 rebase, and of it after.
const SEED_CELLS: [SeedCell; 13] = [
    cell(20e3, 10.0, AVX2, 3_260_883.0, 4_267_332.0),
    cell(20e3, 20.0, AVX2, 2_174_551.0, 3_478_251.0),
    cell(20e3, 30.0, AVX2, 1_689_981.0, 3_126_763.0),
    cell(100e3, 10.0, AVX2, 2_692_882.0, 4_015_783.0),
    cell(100e3, 20.0, AVX2, 1_711_955.0, 3_276_100.0),
    cell(100e3, 30.0, AVX2, 1_302_321.0, 2_970_645.0),
    cell(1e6, 10.0, AVX2, 2_683_455.0, 3_895_961.0),
    cell(1e6, 20.0, AVX2, 1_646_227.0, 3_170_530.0),
    cell(1e6, 30.0, AVX2, 1_240_501.0, 2_968_555.0),
    cell(1e6, 10.0, SCALAR, 2_683_455.0, 3_658_328.0),
    cell(1e6, 20.0, SCALAR, 1_646_227.0, 3_028_111.0),
    cell(1e6, 30.0, SCALAR, 1_240_501.0, 2_863_329.0),
    // After the v2 rebase.
    cell(1e6, 20.0, AVX2, 1_588_049.0, 3_066_483.0),
];

/// Flows, subtables, setting and gain. Source: seed 001, "2 to 3 times", of which this is the least.
const MEMBERSHIP_GAINS: [(f64, f64, &str, f64); 2] = [(10e3, 20.0, "ht avx2", 2.0), (10e3, 20.0, "vbf avx2", 2.0)];

/// The seed's tables, cell by cell, with the same beside them: the search that asks every subtable in turn, and the
/// distributor in front of it.
fn beside_the_seed(points: &[Point]) -> Table {
    let columns = [
        "flows",
        "subtables",
        "vectors",
        "the patch's own: Mpps before",
        "after",
        "gain",
        "here: Mpps before",
        "after",
        "gain",
        "lookups a hit before",
        "after",
        "distributor's hits",
        "wrong",
        "gain over pruned search",
    ];
    let row = |cell: &SeedCell| {
        let point = points.iter().find(|p| p.at("flows") == cell.flows && p.at("subtables") == cell.subtables)?;
        let median = |arm: &str, figure: &str| point.figure(arm, figure).map(|stat| stat.median);
        let show = |value: Option<f64>, digits: usize, unit: &str| {
            value.map_or("n/a".to_owned(), |value| format!("{value:.digits$}{unit}"))
        };
        let gain = |over: &str| point.ratio(over, cell.arm, CYCLES).map(|ratio| ratio.median);
        let plain = setting::PLAIN.name;
        Some(vec![
            text::count(cell.flows),
            text::count(cell.subtables),
            cell.arm.split_once(' ').map_or(cell.arm, |(_, vector)| vector).to_owned(),
            format!("{:.2}", cell.pps[0] / 1e6),
            format!("{:.2}", cell.pps[1] / 1e6),
            format!("{:.2}×", cell.pps[1] / cell.pps[0]),
            show(median(plain, MPPS), 2, ""),
            show(median(cell.arm, MPPS), 2, ""),
            show(gain(plain), 2, "×"),
            show(median(plain, PROBES), 2, ""),
            show(median(cell.arm, PROBES), 2, ""),
            show(median(cell.arm, DISTRIBUTOR_SHARE), 2, " %"),
            show(median(cell.arm, DISTRIBUTOR_WRONG), 3, " %"),
            show(gain(SETTINGS[0].name), 2, "×"),
        ])
    };
    Table {
        title: "Beside what was published for Open vSwitch with a cuckoo distributor (docs/seeds.md), cell by cell (whole switch in both; theirs with real ports; here a gain is the median of the repetitions' ratios)".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: SEED_CELLS.iter().filter_map(row).collect(),
    }
}

/// What each table of the distributor does at the seed's cells, by counting.
fn shares(points: &[Point]) -> Table {
    let tables = ["own avx2", "ht avx2", "vbf avx2"];
    let heads = tables.iter().flat_map(|arm| [format!("{arm}: hits"), "wrong".to_owned(), "lookups a hit".to_owned()]);
    let row = |point: &Point| {
        let show = |arm: &str, figure: &str, unit: &str| {
            point.figure(arm, figure).map_or("n/a".to_owned(), |stat| format!("{:.2}{unit}", stat.median))
        };
        let cells = tables.iter().flat_map(|arm| {
            [show(arm, DISTRIBUTOR_SHARE, " %"), show(arm, DISTRIBUTOR_WRONG, " %"), show(arm, PROBES, "")]
        });
        [text::count(point.at("flows")), text::count(point.at("subtables"))].into_iter().chain(cells).collect()
    };
    Table {
        title: "Answers of the distributor".to_owned(),
        columns: ["flows".to_owned(), "subtables".to_owned()].into_iter().chain(heads).collect(),
        rows: points.iter().map(row).collect(),
    }
}

/// The levels at each number of subtables; and the distributor's tables and vectors, at the seed's.
fn figures(points: &[Point], subtables: &[f64]) -> Vec<Figure> {
    const SEED_SUBTABLES: f64 = 20.0;
    let levels: Vec<&str> = names().into_iter().filter(|name| !is_variant(name)).collect();
    let variants: Vec<&str> = setting::DISTRIBUTORS.iter().map(|setting| setting.name).collect();
    let of_levels = subtables.iter().filter_map(|n| {
        let title = if *n == 1.0 { "1 subtable".to_owned() } else { format!("{} subtables", text::count(*n)) };
        figure(points, *n, &levels, &title, "\"own avx2\" is the distributor.")
    });
    let caption = "On its own table, on HT and on vBF.";
    of_levels
        .chain(figure(points, SEED_SUBTABLES, &variants, "The distributor's kinds, 20 subtables", caption))
        .collect()
}

/// Whether a setting is a distributor other than the seed's.
fn is_variant(name: &str) -> bool {
    const SEEDS: &str = "own avx2";
    name != SEEDS && setting::DISTRIBUTORS.iter().any(|setting| setting.name == name)
}

fn figure(points: &[Point], subtables: f64, arms: &[&str], title: &str, caption: &str) -> Option<Figure> {
    let here: Vec<&Point> = points.iter().filter(|p| p.at("subtables") == subtables).collect();
    let caption = format!("{caption} Error bars from the fastest to the slowest repetition.");
    (!here.is_empty()).then(|| lines_over_flows(&here, arms, CYCLES, Axis::linear("cycles a packet"), title, &caption))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What can be counted holds on any machine: at a cell of the seed a plain search asks half of the subtables for a
    /// hit, and with the distributor in front of it hardly more than one.
    #[test]
    fn the_seeds_baseline_asks_half_of_the_subtables() {
        let (flows, subtables) = (20_000, 20);
        let sample = |setting: &Setting| {
            let settings = setting.settings().unwrap();
            let mut rig = crate::rig::Rig::new(&Workload::subtables(flows, subtables), settings, false).unwrap();
            rig.check(200_000, &settings).unwrap();
            rig.time(std::time::Duration::from_millis(1)).0
        };
        let plain = sample(&setting::PLAIN);
        assert!((10.0..11.0).contains(&plain[PROBES]), "{}", plain[PROBES]);
        let hinted = sample(&setting::SEEDS_DISTRIBUTOR);
        assert!(hinted[PROBES] < 1.2 && hinted[DISTRIBUTOR_SHARE] >= 98.0, "{hinted:?}");
    }

    #[test]
    fn every_cell_has_its_row() {
        let point = |cell: &SeedCell| Point {
            at: place([("flows", cell.flows), ("subtables", cell.subtables)]),
            arms: Vec::new(),
            same_twice: None,
            steal_percent: 0.0,
        };
        let rows = beside_the_seed(&SEED_CELLS.iter().map(point).collect::<Vec<_>>()).rows;
        assert_eq!(rows.len(), SEED_CELLS.len());
        assert_eq!(rows[8][..6], ["1M", "30", "avx2", "1.24", "2.97", "2.39×"]);
        assert_eq!(rows[11][..6], ["1M", "30", "scalar", "1.24", "2.86", "2.31×"]);
    }
}
