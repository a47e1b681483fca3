//! The distributor where one subtable gets most packets: the claim of seed 000 that it is then no overhead, since it turns
//! itself off.

use super::{METHOD, table_of};
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, place};
use crate::lab::Lab;
use crate::loss::{Loss, behind};
use crate::record::{Findings, Point, Table};
use crate::rig::{CYCLES, DISTRIBUTOR_SHARE, PROBES, Workload};
use crate::setting::{self, Setting};
use crate::text;
use anyhow::Result;

/// The experiment.
pub struct Skew;

const SETTINGS: [Setting; 5] = [
    setting::PLAIN,
    setting::UNRANKED,
    setting::SEEDS_DISTRIBUTOR,
    setting::UNRANKED_DISTRIBUTOR,
    setting::AUTO_DISTRIBUTOR,
];

/// The traffic, by the coordinate "traffic": a name, and the profile's choice.
const TRAFFIC: [(&str, &str); 4] = [
    ("uniform", "uniform"),
    ("95 % in one subtable", "hot:95"),
    ("Zipf 1.0", "zipf:1.0"),
    ("99.9 % in one", "hot:99.9"),
];
const AT_TRAFFIC: &str = "traffic";
const FLOWS: [f64; 2] = [20e3, 1e6];
/// The distributor is on if it answers this share of the passes, percent. Where it is off, trials ask it now and then.
const MOSTLY: f64 = 50.0;
const SUBTABLES: f64 = 20.0;

impl Experiment for Skew {
    fn name(&self) -> &'static str {
        "skew"
    }

    fn about(&self) -> &'static str {
        "Is the distributor no overhead where one subtable gets most packets, and does it turn itself off?"
    }

    fn run(&self, lab: &mut Lab) -> Result<Findings> {
        let flows: &[f64] = lab.size.pick(&FLOWS[..1], &FLOWS);
        let places = flows.iter().flat_map(|flows| {
            (0..TRAFFIC.len()).map(|n| place([("flows", *flows), (AT_TRAFFIC, n as f64), ("subtables", SUBTABLES)]))
        });
        let grid = Grid {
            places: places.collect(),
            arms: names().into_iter().map(str::to_owned).collect(),
            set_up: &set_up,
            figure: CYCLES,
            rounds: Grid::ROUNDS,
            span: Grid::SPAN,
        };
        let points = grid.run(lab);
        let at = ["flows", AT_TRAFFIC];
        let traffic = TRAFFIC.iter().enumerate().map(|(n, (name, _))| format!("{n}: {name}"));
        let mut notes: Vec<String> = METHOD.map(str::to_owned).to_vec();
        notes.push(format!(
            "Twenty subtables, the last of which is the hot one. Traffic {}. Every arm searches all subtables in turn; \
             \"unranked\" in the order in which they came.",
            traffic.collect::<Vec<_>>().join(", ")
        ));
        Ok(Findings {
            tables: vec![
                verdicts(&points),
                table_of("Cycles a packet: median (least–most)", &points, &at, &names(), CYCLES),
                table_of("Subtables asked a hit", &points, &at, &names(), PROBES),
                table_of("Passes that the distributor answers, percent", &points, &at, &names(), DISTRIBUTOR_SHARE),
            ],
            figures: Vec::new(),
            notes,
            points,
        })
    }

    fn losses(&self, points: &[Point]) -> Vec<Loss> {
        let forced = [setting::PLAIN.name, setting::SEEDS_DISTRIBUTOR.name];
        behind(points, setting::AUTO_DISTRIBUTOR.name, &forced, CYCLES)
    }
}

fn names() -> Vec<&'static str> {
    SETTINGS.iter().map(|setting| setting.name).collect()
}

fn set_up(at: &Place, arm: usize) -> Result<Ready> {
    let (_, choice) = TRAFFIC[at[AT_TRAFFIC] as usize];
    let flows = at["flows"] as u64;
    let workload = Workload::subtables(flows, at["subtables"] as u16).chosen(choice);
    SETTINGS[arm].rig(&workload, flows)
}

/// What the distributor costs or gains over the ranked search, forced and left to the autopilot.
fn verdicts(points: &[Point]) -> Table {
    let row = |point: &Point| {
        let (name, _) = TRAFFIC[point.at(AT_TRAFFIC) as usize];
        let over = |arm: &str| {
            let ratio = point.ratio(setting::PLAIN.name, arm, CYCLES);
            ratio.map_or("n/a".to_owned(), |ratio| format!("{:.2}×", ratio.median))
        };
        let asked = point.figure(setting::AUTO_DISTRIBUTOR.name, DISTRIBUTOR_SHARE).map_or(0.0, |stat| stat.median);
        let spread = point.same_twice.as_ref().map_or("n/a".to_owned(), |s| format!("{:.2}–{:.2}", s.min, s.max));
        vec![
            text::count(point.at("flows")),
            name.to_owned(),
            over(setting::UNRANKED.name),
            over(setting::SEEDS_DISTRIBUTOR.name),
            over(setting::AUTO_DISTRIBUTOR.name),
            if asked < MOSTLY { "off" } else { "on" }.to_owned(),
            spread,
        ]
    };
    let columns = [
        "flows",
        "traffic",
        "unranked search",
        "distributor forced",
        "distributor auto",
        "it is",
        "ranked search measured twice",
    ];
    Table {
        title: "Rate over that of the ranked search (medians of the repetitions' ratios)".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: points.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::Rig;
    use std::time::Duration;

    /// What can be counted: with 95 % of the packets in the last subtable, ranking makes a hit take fewer than two
    /// lookups, and without it nearly twenty.
    #[test]
    fn ranking_finds_the_hot_subtable() {
        let probes = |setting: &Setting| {
            let settings = setting.settings().unwrap();
            let workload = Workload::subtables(2000, SUBTABLES as u16).chosen("hot:95");
            let mut rig = Rig::new(&workload, settings, false).unwrap();
            rig.check(300_000, &settings).unwrap();
            rig.time(Duration::from_millis(1)).0[PROBES]
        };
        let (ranked, unranked) = (probes(&setting::PLAIN), probes(&setting::UNRANKED));
        assert!(ranked < 2.0 && unranked > 15.0, "{ranked} and {unranked}");
        assert!(probes(&setting::SEEDS_DISTRIBUTOR) < 1.1);
    }
}
