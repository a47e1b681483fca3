//! The caches over flow counts: the question of seed 004, "why does the cache matter, and until when?"

use super::{METHOD, lines_over_flows, table_of};
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, place};
use crate::lab::Lab;
use crate::loss::{Loss, behind};
use crate::record::{Axis, Chart, Figure, Findings, Point, Series, Table};
use crate::rig::{CYCLES, EMC_SHARE, EMC_USED, MEGAFLOW_SHARE, SMC_SHARE, Workload};
use crate::setting::{self, Setting};
use crate::{emc_model, text};
use anyhow::Result;

/// The experiment.
pub struct Caches;

/// The first is what the others are compared with.
const SETTINGS: &[Setting] =
    &[setting::SEARCH, setting::EMC, setting::EMC_ALWAYS, setting::SMC, setting::BOTH, setting::AUTO];

/// One rule as in the seed, but over IP fields: a rule over ports and types alone would let a peer leave out its
/// caches.
const IP_RULE: &str = "ip,nw_dst=10.0.0.0/8,actions=output:2\n";
/// The seed's own rule, which is such a shortcut.
const PORT_RULE: &str = "in_port=1,actions=output:2\n";

/// Flows at which the seed's exact match cache began to lose flows, and at which it compared the two caches.
const SEED_FALLING_OUT: f64 = 800.0;
const SEED_COMPARED: f64 = 100.0;
/// How much slower the seed's signature match cache was than its exact match cache there, percent.
const SEED_SMC_BEHIND: f64 = 16.5;
/// Entries of the exact match cache.
const EMC_ENTRIES: f64 = 8192.0;

impl Experiment for Caches {
    fn name(&self) -> &'static str {
        "caches"
    }

    fn about(&self) -> &'static str {
        "From how many flows on does a cache cost more than it brings?"
    }

    fn run(&self, lab: &mut Lab) -> Result<Findings> {
        let flows: &[f64] = lab.size.pick(
            &[100.0, 800.0, 8e3, 100e3],
            &[1.0, 10.0, 100.0, 800.0, 2e3, 4e3, 8e3, 16e3, 64e3, 256e3, 1e6, 4e6, 10e6],
        );
        let at = |flows: f64, subtables: f64, ip: f64| place([("flows", flows), ("subtables", subtables), ("ip", ip)]);
        let one = flows.iter().map(|f| at(*f, 1.0, 1.0));
        let twenty = flows.iter().filter(|f| **f >= 100.0).map(|f| at(*f, 20.0, 1.0));
        let port_rule = [100.0, 100e3].map(|f| at(f, 1.0, 0.0));
        let grid = Grid {
            places: one.chain(twenty).chain(port_rule).collect(),
            arms: names().into_iter().map(str::to_owned).collect(),
            set_up: &set_up,
            figure: CYCLES,
            rounds: Grid::ROUNDS,
            span: Grid::SPAN,
        };
        let points = grid.run(lab);
        let mut notes: Vec<String> = METHOD.map(str::to_owned).to_vec();
        notes.push(
            "One rule over IP fields, and the cuckoo distributor's twenty; where the column ip is 0, the rule is over the \
             port alone."
                .to_owned(),
        );
        Ok(Findings {
            tables: vec![
                table_of(
                    "Cycles a packet: median (least–most)",
                    &points,
                    &["flows", "subtables", "ip"],
                    &names(),
                    CYCLES,
                ),
                beside_the_seed(&points),
                occupancy_table(&points),
            ],
            figures: figures(&points),
            notes,
            points,
        })
    }

    fn losses(&self, points: &[Point]) -> Vec<Loss> {
        behind(points, setting::AUTO.name, &names()[..names().len() - 1], CYCLES)
    }
}

fn names() -> Vec<&'static str> {
    SETTINGS.iter().map(|setting| setting.name).collect()
}

fn set_up(at: &Place, arm: usize) -> Result<Ready> {
    let flows = at["flows"] as u64;
    let workload = match (at["subtables"] as u16, at["ip"] != 0.0) {
        (1, true) => Workload::one_rule(flows, IP_RULE),
        (1, false) => Workload::one_rule(flows, PORT_RULE),
        (n, _) => Workload::subtables(flows, n),
    };
    SETTINGS[arm].rig(&workload, flows)
}

/// The points of one rule over IP fields, or of twenty.
fn over_flows(points: &[Point], subtables: f64) -> Vec<&Point> {
    points.iter().filter(|p| p.at("subtables") == subtables && p.at("ip") != 0.0).collect()
}

fn figures(points: &[Point]) -> Vec<Figure> {
    let mut out = Vec::new();
    for (subtables, title) in [(1.0, "One rule"), (20.0, "Twenty subtables")] {
        let here = over_flows(points, subtables);
        let caption = "Cycles a packet; error bars from the fastest to the slowest repetition.";
        out.push(lines_over_flows(&here, &names(), CYCLES, Axis::linear("cycles a packet"), title, caption));
    }
    for setting in [setting::EMC, setting::BOTH] {
        out.push(hit_rates(&over_flows(points, 20.0), setting.name));
    }
    out.push(occupancy(&over_flows(points, 1.0)));
    out
}

fn hit_rates(points: &[&Point], arm: &str) -> Figure {
    let share = |figure| points.iter().map(|p| p.figure(arm, figure).map_or(0.0, |s| s.median)).collect();
    Figure {
        title: format!("What answers, with {arm}"),
        caption: "Share of the passes through the lookup, twenty subtables.".to_owned(),
        chart: Chart::Areas {
            x: Axis::log("flows"),
            at: points.iter().map(|p| p.at("flows")).collect(),
            shares: vec![
                ("exact match cache".to_owned(), share(EMC_SHARE)),
                ("signature match cache".to_owned(), share(SMC_SHARE)),
                ("subtables".to_owned(), share(MEGAFLOW_SHARE)),
            ],
        },
    }
}

/// What two hashed places an entry leave room for: the model that the field quotes.
fn model(flows: f64) -> f64 {
    EMC_ENTRIES * (flows / EMC_ENTRIES).tanh()
}

fn occupancy(points: &[&Point]) -> Figure {
    let used =
        |p: &&Point| p.figure(setting::EMC_ALWAYS.name, EMC_USED).map(|s| [p.at("flows"), s.median, s.min, s.max]);
    let modelled = |p: &&Point| [p.at("flows"), model(p.at("flows")), model(p.at("flows")), model(p.at("flows"))];
    Figure {
        title: "Entries of the exact match cache in use".to_owned(),
        caption: "Every miss inserted; 8192 entries.".to_owned(),
        chart: Chart::Lines {
            x: Axis::log("flows"),
            y: Axis::linear("entries"),
            series: vec![
                Series { name: "8192·tanh(n/8192)".to_owned(), points: points.iter().map(modelled).collect() },
                Series { name: "in use".to_owned(), points: points.iter().filter_map(used).collect() },
            ],
        },
    }
}

fn occupancy_table(points: &[Point]) -> Table {
    let row = |p: &&Point| {
        let always = |figure| p.figure(setting::EMC_ALWAYS.name, figure).map_or(0.0, |s| s.median);
        vec![
            text::count(p.at("flows")),
            format!("{:.0}", always(EMC_USED)),
            format!("{:.0}", model(p.at("flows"))),
            format!("{:.2} %", always(EMC_SHARE)),
            emc_model::random(p.at("flows")).map_or("–".to_owned(), |share| format!("{share:.2} %")),
        ]
    };
    Table {
        title: "The exact match cache, every miss inserted".to_owned(),
        columns: ["flows", "entries in use", "8192·tanh(n/8192)", "hits", "hits by Open vSwitch's two places, counted"]
            .map(str::to_owned)
            .to_vec(),
        rows: over_flows(points, 1.0).iter().map(row).collect(),
    }
}

fn beside_the_seed(points: &[Point]) -> Table {
    let here = over_flows(points, 1.0);
    let at = |flows: f64| here.iter().find(|p| p.at("flows") == flows);
    let cycles = |p: &Point, s: &Setting| p.figure(s.name, CYCLES).map(|s| s.median);
    let behind = at(SEED_COMPARED).and_then(|p| Some(1.0 - cycles(p, &setting::EMC)? / cycles(p, &setting::SMC)?));
    let kept = at(SEED_FALLING_OUT).and_then(|p| p.figure(setting::EMC_ALWAYS.name, EMC_SHARE)).map(|s| s.median);
    let loses = |p: &&&Point| cycles(p, &setting::EMC) > cycles(p, &setting::SEARCH);
    let from =
        here.iter().find(loses).map_or("nowhere".to_owned(), |p| format!("{} flows", text::count(p.at("flows"))));
    let percent = |share: Option<f64>| share.map_or("n/a".to_owned(), |share| format!("{share:.1} %"));
    let rows = [
        ["SMC's rate below EMC's at 100 flows", &format!("{SEED_SMC_BEHIND} %"), &percent(behind.map(|b| 100.0 * b))],
        ["hits of the EMC at 800 flows", "below 100 %: flows fall out", &percent(kept)],
        ["EMC slower than no cache from", "more flows than it holds", &from],
    ];
    Table {
        title: "Beside what the authors of Open vSwitch's signature match cache published".to_owned(),
        columns: ["claim", "published, Open vSwitch 2018", "here, one rule"].map(str::to_owned).to_vec(),
        rows: rows.map(|row| row.map(str::to_owned).to_vec()).to_vec(),
    }
}
