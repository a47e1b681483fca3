//! Transactions a second with the flow-setup governor off, as in 2012, ours, and left to itself; after seed
//! 003, whose author measured TCP_CRR of netperf.

use super::table_of;
use crate::core_share;
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, place};
use crate::lab::Lab;
use crate::loss::{Loss, behind, behind_the_seed, denied};
use crate::record::{Axis, Chart, Figure, Findings, Point, Table};
use crate::rig::CYCLES;
use crate::setups::{KTPS, Load, SET_UP, Setups};
use crate::stat::Stat;
use crate::verdict::{self, Verdict};
use anyhow::Result;
use sluice_datapath::GovernorMode;
use std::time::Duration;

/// The experiment.
pub struct Governor;

/// What takes turns.
const ARMS: [(&str, GovernorMode); 6] = [
    (OFF, GovernorMode::Off),
    (BEFORE, GovernorMode::Before2012),
    (AFTER, GovernorMode::After2012),
    (ORIGINAL, GovernorMode::Classic),
    (SHORTCUT, GovernorMode::Shortcut),
    (AUTO, GovernorMode::Auto),
];
const OFF: &str = "off";
const BEFORE: &str = "2012, before";
const AFTER: &str = "2012, after";
/// The mode `classic`.
const ORIGINAL: &str = "original";
const SHORTCUT: &str = "shortcut";
const AUTO: &str = "autopilot";

/// Packets of a transaction, and whether it is a connection with answers.
const PACKETS: &str = "packets";
const ANSWERED: &str = "ways";

/// Segments of a connection.
const SEGMENTS: f64 = 11.0;

/// Seconds of the traffic's clock before anything is measured: for the governor to make up its mind, and for as many
/// megaflows to go as come.
const WARM: [u64; 2] = [3, 10];

/// What the patch of 2012 gained with TCP_CRR. Source: seed 003.
pub(super) const PATCH: f64 = 1.25;
/// What the shortcut must gain where most flows get set up, and may lose elsewhere. Source: issue and seed 003.
const GAIN: f64 = 1.25;
const LOSS: f64 = 0.98;

impl Experiment for Governor {
    fn name(&self) -> &'static str {
        "governor"
    }

    fn about(&self) -> &'static str {
        "What does it cost to set flows up, and to count their packets first?"
    }

    fn run(&self, lab: &mut Lab) -> Result<Findings> {
        let warm = lab.size.pick(WARM[0], WARM[1]);
        let packets: &[f64] = lab.size.pick(&[1.0, 10.0], &[1.0, 3.0, 10.0, 100.0]);
        let flows = packets.iter().map(|packets| place([(PACKETS, *packets), (ANSWERED, 1.0)]));
        let set_up = |at: &Place, arm: usize| -> Result<Ready> {
            let setups = Setups::new(load(at), ARMS[arm].1, warm)?;
            Ok(Ready::Subject(Box::new(setups)))
        };
        let grid = Grid {
            places: flows.chain([place([(PACKETS, SEGMENTS), (ANSWERED, 2.0)])]).collect(),
            arms: names().into_iter().map(str::to_owned).collect(),
            set_up: &set_up,
            figure: KTPS,
            rounds: Grid::ROUNDS,
            span: [Duration::from_millis(100), Duration::from_millis(300)],
        };
        let points = grid.run(lab);
        let at = &[PACKETS, ANSWERED];
        Ok(Findings {
            tables: vec![
                verdicts(&points),
                beside_the_seed(&points),
                table_of("Thousand transactions a second: median (least–most)", &points, at, &names(), KTPS),
                table_of("Cycles a transaction: median (least–most)", &points, at, &names(), CYCLES),
                table_of("Megaflows installed a transaction, percent", &points, at, &names(), SET_UP),
            ],
            figures: points.iter().map(figure).collect(),
            notes: vec![
                "A transaction is a flow of the given number of packets (one way, 64 at a time), or a TCP connection of 11 segments: \
                 connect, request, response, close (two ways, 256 at a time), a megaflow each way."
                    .to_owned(),
                "Rates are by the PMD's cycles, generator and null port included; megaflows idle out and are removed \
                 meanwhile by a clock of 100 000 packets a second, by a revalidator whose cycles are not counted."
                    .to_owned(),
                core_share::NOTE.to_owned(),
                "Answers were checked before timing and after each repetition: every packet sent, every one counted by a \
                 rule, every connection's segments in order. Subtables alone look packets up."
                    .to_owned(),
            ],
            points,
        })
    }

    fn losses(&self, points: &[Point]) -> Vec<Loss> {
        let table = verdicts(points);
        let shortcut = denied(&table, "shortcut passes", &["traffic"], &["shortcut over original", "at least"]);
        let auto = denied(&table, "autopilot passes", &["traffic"], &["autopilot over off", "and at least"]);
        let forced = behind(points, AUTO, &[BEFORE, AFTER, ORIGINAL, SHORTCUT], CYCLES);
        let of_patch = points.iter().filter(|point| load(&point.at) == Load::Connections);
        let of_patch = of_patch.filter_map(|point| behind_the_seed(point, AFTER, BEFORE, KTPS, PATCH));
        shortcut.into_iter().chain(auto).chain(forced).chain(of_patch).collect()
    }
}

fn names() -> Vec<&'static str> {
    ARMS.iter().map(|(name, _)| *name).collect()
}

fn load(at: &Place) -> Load {
    if at[ANSWERED] == 1.0 { Load::Flows(at[PACKETS] as u32) } else { Load::Connections }
}

fn name(point: &Point) -> String {
    match load(&point.at) {
        Load::Flows(1) => "flows of 1 packet".to_owned(),
        Load::Flows(packets) => format!("flows of {packets} packets"),
        Load::Connections => "TCP_CRR".to_owned(),
    }
}

fn figure(point: &Point) -> Figure {
    let height = |(arm, _): &(&str, _)| point.figure(arm, KTPS).map_or(0.0, |stat| stat.median);
    Figure {
        title: name(point),
        caption: "Thousand transactions a second, the median.".to_owned(),
        chart: Chart::Bars {
            y: Axis::linear("thousand transactions a second"),
            bars: names().into_iter().map(str::to_owned).collect(),
            parts: vec![("transactions".to_owned(), ARMS.iter().map(height).collect())],
        },
    }
}

/// What the patch gained there and gains here, and what ours gains over it.
fn beside_the_seed(points: &[Point]) -> Table {
    let row = |point: &Point| {
        let percent = |arm, by| {
            let gain = point.ratio(arm, by, KTPS);
            gain.map_or("n/a".to_owned(), |gain| format!("{:+.1} %", 100.0 * (gain.median - 1.0)))
        };
        // The seed gives TCP_CRR, and says that `ovs-benchmark rate`, whose flows have one packet, is unaffected.
        let seed = match (point.at(PACKETS), point.at(ANSWERED)) {
            (SEGMENTS, 2.0) => "about +25 %",
            (1.0, _) => "0 %",
            _ => "",
        };
        vec![
            name(point),
            seed.to_owned(),
            percent(AFTER, BEFORE),
            percent(SHORTCUT, ORIGINAL),
            percent(SHORTCUT, AFTER),
            percent(AUTO, AFTER),
            format!("{:.3}", verdict::spread(point.same_twice.as_ref())),
        ]
    };
    let columns = [
        "traffic",
        "the 2012 patch's own",
        "here: 2012 after over before",
        "shortcut over classic",
        "shortcut over 2012 after",
        "autopilot over 2012 after",
        "spread",
    ];
    Table {
        title: "Beside the figures of the patch of 2012 (netperf TCP_CRR and `ovs-benchmark rate`)".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: points.iter().map(row).collect(),
    }
}

fn verdicts(points: &[Point]) -> Table {
    let row = |point: &Point| {
        // As in the seed: flows long enough to be set up, and hardly longer.
        let is_set_up = point.at(PACKETS) >= SEGMENTS - 1.0 && point.at(PACKETS) <= SEGMENTS;
        let spread = verdict::spread(point.same_twice.as_ref());
        let wanted = if is_set_up { GAIN } else { LOSS };
        let (shortcut, auto) = (point.ratio(SHORTCUT, ORIGINAL, KTPS)?, point.ratio(AUTO, OFF, KTPS)?);
        let passes = |ratio: &Stat, wanted: f64| Verdict::of(ratio.median, wanted, spread).to_string();
        let shown = |ratio: &Stat| format!("{:.3} ({:.3}–{:.3})", ratio.median, ratio.min, ratio.max);
        Some(vec![
            name(point),
            shown(&shortcut),
            wanted.to_string(),
            passes(&shortcut, wanted),
            shown(&auto),
            LOSS.to_string(),
            passes(&auto, LOSS),
            format!("{spread:.3}"),
        ])
    };
    let columns = [
        "traffic",
        "shortcut over original",
        "at least",
        "shortcut passes",
        "autopilot over off",
        "and at least",
        "autopilot passes",
        "spread",
    ];
    Table {
        title: "What the governor gains and loses; the spread is that of \"off\" measured twice".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: points.iter().filter_map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Arm;
    use std::collections::BTreeMap;

    #[test]
    fn what_is_asked_depends_on_whether_flows_get_set_up() {
        let arm = |name: &str, ktps: f64| Arm {
            name: name.to_owned(),
            figures: BTreeMap::from([(KTPS.to_owned(), Stat::of(vec![ktps]).unwrap())]),
            not_applicable: None,
        };
        let point = |packets: f64, ways: f64| Point {
            at: place([(PACKETS, packets), (ANSWERED, ways)]),
            arms: vec![arm(OFF, 100.0), arm(ORIGINAL, 100.0), arm(SHORTCUT, 110.0), arm(AUTO, 97.0)],
            same_twice: None,
            steal_percent: 0.0,
        };
        let rows = verdicts(&[point(3.0, 1.0), point(11.0, 2.0)]).rows;
        assert_eq!((&rows[0][0][..], &rows[0][3][..], &rows[0][6][..]), ("flows of 3 packets", "yes", "no"));
        assert_eq!((&rows[1][0][..], &rows[1][2][..], &rows[1][3][..]), ("TCP_CRR", "1.25", "no"));
    }
}
