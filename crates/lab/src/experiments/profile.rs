//! Where the cycles go, stage by stage, and within the lookup part by part; seeds 001 and 004 asked a profiler.

use super::METHOD;
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, place};
use crate::lab::Lab;
use crate::lookup_parts::{Lookup, LookupParts, Part};
use crate::loss::Loss;
use crate::record::{Axis, Chart, Figure, Findings, Point, Table};
use crate::rig::{CYCLES, Rig, Workload, stage_figure};
use crate::setting::{self, Setting};
use crate::text;
use anyhow::Result;
use sluice_datapath::Stage;

/// The experiment.
pub struct Profile;

const SETTINGS: &[Setting] = &[setting::SEARCH, setting::PLAIN, setting::EMC, setting::SMC, setting::AUTO];

/// A lookup of which the parts are measured, too: its setting, its stage, and its name in tables.
struct Apart {
    lookup: Lookup,
    setting: &'static Setting,
    stage: Stage,
    name: &'static str,
}

const APART: [Apart; 2] = [
    Apart {
        lookup: Lookup::PlainSearch,
        setting: &setting::PLAIN,
        stage: Stage::Subtables,
        name: "parts of the plain search",
    },
    Apart { lookup: Lookup::Smc, setting: &setting::SMC, stage: Stage::Smc, name: "parts of the smc" },
];

/// What stands here for a function of Open vSwitch: a stage, or a part of a stage.
#[derive(Clone, Copy)]
enum Piece {
    Stage(Stage),
    Part(Stage, Part),
}

/// What a seed's profiler said of a function, and what stands there here.
struct SeedShare {
    function: &'static str,
    /// Percent of all cycles.
    percent: f64,
    /// What does the same here.
    pieces: &'static [Piece],
    /// Where it was measured: flows, subtables, rules of each; and with which setting.
    at: [f64; 3],
    setting: &'static Setting,
}

const fn share(
    function: &'static str,
    percent: f64,
    pieces: &'static [Piece],
    at: [f64; 3],
    setting: &'static Setting,
) -> SeedShare {
    SeedShare { function, percent, pieces, at, setting }
}

/// Seed 000: a million flows over twenty subtables. Seed 001: twenty subtables of 100 rules, EMC bypassed. Seed 004: one
/// rule, 100 flows, SMC.
const AT_000: [f64; 3] = [1e6, 20.0, 1.0];
const AT_001: [f64; 3] = [2000.0, 20.0, 100.0];
const AT_004: [f64; 3] = [100.0, 1.0, 1.0];

const SEARCH: Piece = Piece::Stage(Stage::Subtables);
/// Seed 001's tree: 53.6 % in all, of which 39.3 and 7.1 in the two functions.
const SEARCH_ITSELF: f64 = 7.2;
/// The cache without the comparison, which is a function of its own in Open vSwitch.
const CACHES: [Piece; 3] =
    [Piece::Stage(Stage::Emc), Piece::Part(Stage::Smc, Part::Hash), Piece::Part(Stage::Smc, Part::Probe)];

const SEEDS: [SeedShare; 11] = [
    share("000: the megaflow lookup", 65.0, &[SEARCH], AT_000, &setting::PLAIN),
    share("001: dpcls_lookup", 53.6, &[SEARCH], AT_001, &setting::PLAIN),
    share(
        "001: of that, netdev_flow_key_hash_in_mask",
        39.3,
        &[Piece::Part(Stage::Subtables, Part::Hash)],
        AT_001,
        &setting::PLAIN,
    ),
    share(
        "001: of that, dpcls_rule_matches_key",
        7.1,
        &[Piece::Part(Stage::Subtables, Part::Match)],
        AT_001,
        &setting::PLAIN,
    ),
    share(
        "001: of that, dpcls_lookup itself",
        SEARCH_ITSELF,
        &[Piece::Part(Stage::Subtables, Part::Probe)],
        AT_001,
        &setting::PLAIN,
    ),
    share("004: miniflow_extract", 20.78, &[Piece::Stage(Stage::Parse)], AT_004, &setting::SMC),
    share("004: dp_netdev_input__", 19.88, &CACHES, AT_004, &setting::SMC),
    share("004: dpcls_rule_matches_key", 15.85, &[Piece::Part(Stage::Smc, Part::Match)], AT_004, &setting::SMC),
    share("004: i40e_recv_pkts_vec, netdev_dpdk_rxq_recv", 12.36, &[Piece::Stage(Stage::Rx)], AT_004, &setting::SMC),
    share("004: i40e_xmit_fixed_burst_vec", 9.05, &[Piece::Stage(Stage::Tx)], AT_004, &setting::SMC),
    share("004: dp_execute_cb, non_atomic_ullong_add", 6.09, &[Piece::Stage(Stage::Act)], AT_004, &setting::SMC),
];

/// Packets after which every flow is known where parts are measured.
const WARM_PACKETS: u64 = 200_000;

/// Seed 004's rule.
const ONE_RULE: &str = "in_port=1,actions=output:2\n";

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
            arms: SETTINGS.iter().map(|s| s.name).chain(APART.iter().map(|a| a.name)).map(str::to_owned).collect(),
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
        notes.push(
            "Parts of a lookup are measured beside the switch, with its megaflows and packets: the lookup is run up to a part, \
             and a part is what it costs more than the part before. Its share is that of its stage, divided as the parts are."
                .to_owned(),
        );
        Ok(Findings {
            tables: vec![table(&points), parts(&points), seeds(&points)],
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
    let (workload, flows) = (workload(at), at["flows"] as u64);
    match SETTINGS.get(arm) {
        Some(setting) => setting.profiled_rig(&workload, flows),
        None => take_apart(&APART[arm - SETTINGS.len()], at, &workload),
    }
}

/// The parts of a lookup, where a seed tells them.
fn take_apart(apart: &Apart, place: &Place, workload: &Workload) -> Result<Ready> {
    let is_asked = |seed: &SeedShare| {
        let is_part = |piece: &Piece| matches!(piece, Piece::Part(stage, _) if *stage == apart.stage);
        at(seed.at) == *place && seed.pieces.iter().any(is_part)
    };
    if !SEEDS.iter().any(is_asked) {
        return Ok(Ready::NotApplicable("no document tells the parts there".to_owned()));
    }
    let settings = setting::PLAIN.settings()?;
    let mut rig = Rig::new(workload, settings, false)?;
    rig.check(WARM_PACKETS, &settings)?;
    let parts = LookupParts::new(apart.lookup, &rig, workload, settings.vector, WARM_PACKETS)?;
    Ok(Ready::Subject(Box::new(parts)))
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

/// The part's share of its stage, of one; the shares of a stage's parts add up to one.
fn part_of(point: &Point, stage: Stage, part: Part) -> Option<f64> {
    let apart = APART.iter().find(|apart| apart.stage == stage)?;
    let cycles = |part: Part| Some(point.figure(apart.name, part.figure())?.median);
    let whole = Part::ALL.into_iter().map(cycles).sum::<Option<f64>>()?;
    (whole > 0.0).then_some(cycles(part)? / whole)
}

/// The share of some pieces, percent of the whole. `None` if one was not measured.
fn share_of(point: &Point, setting: &Setting, pieces: &[Piece]) -> Option<f64> {
    let piece = |piece: &Piece| match *piece {
        Piece::Stage(stage) => Some(cycles(point, setting, stage)),
        Piece::Part(stage, part) => Some(cycles(point, setting, stage) * part_of(point, stage, part)?),
    };
    let whole: f64 = Stage::ALL.into_iter().map(|stage| cycles(point, setting, stage)).sum();
    let own = pieces.iter().map(piece).sum::<Option<f64>>()?;
    (whole > 0.0).then_some(100.0 * own / whole)
}

fn named(piece: &Piece) -> String {
    match piece {
        Piece::Stage(stage) => stage.name().to_owned(),
        Piece::Part(stage, part) => format!("{} ({})", stage.name(), part.name()),
    }
}

/// The lookups that were taken apart, beside their stages in the switch.
fn parts(points: &[Point]) -> Table {
    let row = |point: &Point, apart: &Apart| {
        let whole = point.figure(apart.name, CYCLES)?.median;
        let cell = |part: Part| {
            let (cycles, share) = (point.figure(apart.name, part.figure())?, part_of(point, apart.stage, part)?);
            let (least, most) = (cycles.min, cycles.max);
            Some(format!("{:.1} ({least:.1}–{most:.1}), {:.0} %", cycles.median, 100.0 * share))
        };
        let at = ["flows", "subtables", "rules"].map(|name| text::count(point.at(name)));
        let parts = Part::ALL.into_iter().map(cell).collect::<Option<Vec<_>>>()?;
        let wholes = [whole, cycles(point, apart.setting, apart.stage)].map(|cycles| format!("{cycles:.1}"));
        Some(at.into_iter().chain([apart.setting.name.to_owned()]).chain(parts).chain(wholes).collect())
    };
    let columns = ["flows", "subtables", "rules", "lookup"].into_iter().chain(Part::ALL.map(Part::name));
    Table {
        title: "Cycles a packet of the lookup's parts: median (least–most), and share of the lookup".to_owned(),
        columns: columns.chain(["whole", "the stage in the switch"]).map(str::to_owned).collect(),
        rows: points.iter().flat_map(|point| APART.iter().filter_map(move |apart| row(point, apart))).collect(),
    }
}

fn seeds(points: &[Point]) -> Table {
    let row = |seed: &SeedShare| {
        let point = points.iter().find(|point| point.at == at(seed.at));
        let here = point.and_then(|point| share_of(point, seed.setting, seed.pieces));
        let pieces: Vec<String> = seed.pieces.iter().map(named).collect();
        vec![
            seed.function.to_owned(),
            format!("{} %", seed.percent),
            pieces.join(", "),
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
    use crate::record::Arm;
    use crate::stat::Stat;

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
        let is_measured = |piece: &Piece| match piece {
            Piece::Stage(_) => true,
            Piece::Part(stage, _) => APART.iter().any(|apart| apart.stage == *stage),
        };
        assert!(SEEDS.iter().all(|seed| seed.pieces.iter().all(is_measured)));
    }

    /// A point at which every stage has `10 * (i + 1)` cycles, and the parts of a lookup 6, 3 and 1.
    fn measured(place: [f64; 3]) -> Point {
        let stat = |value: f64| Stat::of(vec![value]).unwrap();
        let arm = |name: &str, figures: Vec<(String, f64)>| Arm {
            name: name.to_owned(),
            figures: figures.into_iter().map(|(name, value)| (name, stat(value))).collect(),
            not_applicable: None,
        };
        let stages = || Stage::ALL.iter().zip(1u8..).map(|(s, i)| (stage_figure(*s), 10.0 * f64::from(i))).collect();
        let parts = || {
            let parts = Part::ALL.iter().zip([6.0, 3.0, 1.0]).map(|(part, cycles)| (part.figure().to_owned(), cycles));
            parts.chain([(CYCLES.to_owned(), 10.0)]).collect()
        };
        let settings = SETTINGS.iter().map(|setting| arm(setting.name, stages()));
        let arms = settings.chain(APART.iter().map(|apart| arm(apart.name, parts()))).collect();
        Point { at: at(place), arms, same_twice: None, steal_percent: 0.0 }
    }

    #[test]
    fn the_shares_of_the_parts_add_up_to_their_stage_and_those_of_the_stages_to_the_whole() {
        let point = measured(AT_001);
        for apart in &APART {
            let whole = share_of(&point, apart.setting, &[Piece::Stage(apart.stage)]).unwrap();
            let parts =
                Part::ALL.map(|part| share_of(&point, apart.setting, &[Piece::Part(apart.stage, part)]).unwrap());
            assert!((parts.iter().sum::<f64>() - whole).abs() < 1e-9, "{parts:?} of {whole}");
            assert!((parts[0] - 0.6 * whole).abs() < 1e-9 && (parts[2] - 0.1 * whole).abs() < 1e-9);
        }
        let all = share_of(&point, &setting::PLAIN, &Stage::ALL.map(Piece::Stage)).unwrap();
        assert!((all - 100.0).abs() < 1e-9);
    }

    #[test]
    fn the_documents_parts_add_up_too() {
        let of_001 = |from: &str| SEEDS.iter().filter(|s| s.function.starts_with(from)).map(|s| s.percent).sum::<f64>();
        assert!((of_001("001: of that") - of_001("001: dpcls_lookup")).abs() < 1e-9);
    }

    #[test]
    fn a_part_that_was_not_measured_has_no_share() {
        let mut point = measured(AT_001);
        point.arms.retain(|arm| arm.name != APART[0].name);
        assert_eq!(share_of(&point, &setting::PLAIN, &[Piece::Part(Stage::Subtables, Part::Hash)]), None);
        assert!(share_of(&point, &setting::PLAIN, &[SEARCH]).is_some());
        assert_eq!(parts(&[point]).rows.len(), 1, "the other lookup's");
    }
}
