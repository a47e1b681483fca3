//! Each lookup level forced alone, over flows and subtables; the question of seed 000, with its speed-ups beside ours.

use super::{METHOD, lines_over_flows, table_of};
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, place};
use crate::lab::Lab;
use crate::loss::{Loss, behind};
use crate::record::{Axis, Figure, Findings, Point, Table};
use crate::rig::{CYCLES, Workload};
use crate::setting::{self, Setting};
use crate::text;
use anyhow::Result;

/// The experiment.
pub struct Subtables;

/// The first is what the others are compared with.
static SETTINGS: [Setting; 14] = {
    let d = setting::DISTRIBUTORS;
    use setting::{AUTO, BOTH, EMC, SEARCH, SMC};
    [SEARCH, EMC, SMC, BOTH, d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7], d[8], AUTO]
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
            ],
            figures: figures(&points, subtables),
            notes: METHOD.map(str::to_owned).to_vec(),
            points,
        })
    }

    fn losses(&self, points: &[Point]) -> Vec<Loss> {
        behind(points, setting::AUTO.name, &names()[..names().len() - 1], CYCLES)
    }
}

fn set_up(at: &Place, arm: usize) -> Result<Ready> {
    let (flows, subtables) = (at["flows"] as u64, at["subtables"] as u16);
    SETTINGS[arm].rig(&Workload::subtables(flows, subtables), flows)
}

fn names() -> Vec<&'static str> {
    SETTINGS.iter().map(|setting| setting.name).collect()
}

/// Flows, subtables, and the distributor's speed-up with AVX2. Source: seed 000, data before the v2 rebase.
const SEED_SPEEDUPS: [(f64, f64, f64); 9] = [
    (20e3, 10.0, 1.31),
    (20e3, 20.0, 1.60),
    (20e3, 30.0, 1.85),
    (100e3, 10.0, 1.49),
    (100e3, 20.0, 1.91),
    (100e3, 30.0, 2.28),
    (1e6, 10.0, 1.45),
    (1e6, 20.0, 1.92),
    (1e6, 30.0, 2.39),
];

/// What each level gains over the search, beside what the distributor gained in the seed's Open vSwitch.
fn beside_the_seed(points: &[Point]) -> Table {
    let others = &SETTINGS[1..];
    let columns = ["flows", "subtables", "published for Open vSwitch: distributor, AVX2"]
        .into_iter()
        .chain(others.iter().map(|s| s.name));
    let speedup = |point: &Point, name: &str| {
        let search = point.figure(SETTINGS[0].name, CYCLES)?.median;
        Some(format!("{:.2}×", search / point.figure(name, CYCLES)?.median))
    };
    let row = |&(flows, subtables, seed): &(f64, f64, f64)| {
        let point = points.iter().find(|p| p.at("flows") == flows && p.at("subtables") == subtables)?;
        let ours = others.iter().map(|s| speedup(point, s.name).unwrap_or_else(|| "n/a".to_owned()));
        let at = [text::count(flows), text::count(subtables), format!("{seed:.2}×")];
        Some(at.into_iter().chain(ours).collect())
    };
    Table {
        title: "Speed-up over the search of the subtables, beside what was published for Open vSwitch with a cuckoo distributor (whole switch in both)".to_owned(),
        columns: columns.map(str::to_owned).collect(),
        rows: SEED_SPEEDUPS.iter().filter_map(row).collect(),
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
