//! TCP transactions between real stacks through the switch: with the governor of 2012 before and after its patch, ours, and
//! through Open vSwitch; after seed 003, whose author measured netperf's TCP_CRR and `ovs-benchmark rate`.

use super::governor::PATCH;
use super::table_of;
use crate::cores::Bound;
use crate::crr::{Exchange, MICROS, P50, P99, Through, Transactions, missing_program};
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, place};
use crate::lab::Lab;
use crate::loss::{Loss, behind, behind_the_seed};
use crate::record::{Findings, Point, Size, Table};
use crate::setups::KTPS;
use crate::stat::Stat;
use crate::verdict;
use anyhow::Result;
use std::time::Duration;

/// The experiment.
pub struct Crr;

/// What takes turns. The first is measured twice.
const ARMS: [(&str, Through); 7] = [
    (AUTO, Through::Sluice("auto")),
    (OFF, Through::Sluice("off")),
    (BEFORE, Through::Sluice("2012-before")),
    (AFTER, Through::Sluice("2012-after")),
    (SHORTCUT, Through::Sluice("shortcut")),
    (OVS, Through::Ovs),
    (WIRE, Through::Wire),
];
const AUTO: &str = "autopilot";
const OFF: &str = "off";
const BEFORE: &str = "2012, before";
const AFTER: &str = "2012, after";
const SHORTCUT: &str = "shortcut";
const OVS: &str = "ovs";
const WIRE: &str = "no switch";
/// Those of a quick look.
const QUICK: [&str; 3] = [AUTO, AFTER, OVS];

/// Requests a connection carries, and connections at the same time.
const REQUESTS: &str = "requests";
const AT_ONCE: &str = "at once";
const AT: [&str; 2] = [REQUESTS, AT_ONCE];

/// TCP_CRR as netperf has it, one after the other; the same with enough at once to keep a switch busy; and
/// `ovs-benchmark rate`, whose connections carry nothing, with as many sockets as it has by default.
const PLACES: [[f64; 2]; 3] = [[1.0, 32.0], [1.0, 1.0], [0.0, 100.0]];

/// Connections that are measured: one after the other, and at once. A client has 64,000 port numbers.
const CONNECTIONS: [u64; 2] = [2000, 20_000];
const CONNECTIONS_QUICK: [u64; 2] = [200, 1000];
/// A part of as many comes before, for the governor to make up its mind.
const BEFORE_PART: u64 = 4;

impl Experiment for Crr {
    fn name(&self) -> &'static str {
        "crr"
    }

    fn about(&self) -> &'static str {
        "How many TCP connections a second go through real ports between real stacks, beside Open vSwitch?"
    }

    fn obstacle(&self) -> Option<String> {
        missing_program()
            .or_else(|| (!rustix::process::geteuid().is_root()).then(|| "it takes root, for namespaces".to_owned()))
    }

    fn needs(&self) -> &'static str {
        "root, two cores, packages iproute2, ethtool and openvswitch-switch"
    }

    fn bound(&self) -> Bound {
        Bound::Nowhere
    }

    fn run(&self, lab: &mut Lab) -> Result<Findings> {
        let size = lab.size;
        let arms = arms(size);
        let set_up = |at: &Place, arm: usize| -> Result<Ready> {
            let (_, through) = arms[arm];
            Ok(Ready::Subject(Box::new(Transactions { through, exchange: exchange(at, size) })))
        };
        let names: Vec<&str> = arms.iter().map(|(name, _)| *name).collect();
        let grid = Grid {
            places: size
                .pick(&PLACES[..1], &PLACES[..])
                .iter()
                .map(|at| place([(AT[0], at[0]), (AT[1], at[1])]))
                .collect(),
            arms: names.iter().map(|name| (*name).to_owned()).collect(),
            set_up: &set_up,
            figure: KTPS,
            rounds: [1, 5],
            span: [Duration::ZERO; 2],
        };
        let points = grid.run(lab);
        let table = |title: &str, figure: &str| table_of(title, &points, &AT, &names, figure);
        Ok(Findings {
            tables: vec![
                beside_the_seed(&points),
                table("Thousand connections a second: median (least–most)", KTPS),
                table("From opening to closing, the middle one, µs", P50),
                table("The one that 1 % exceed, µs", P99),
            ],
            figures: Vec::new(),
            notes: notes(),
            points,
        })
    }

    fn losses(&self, points: &[Point]) -> Vec<Loss> {
        let own = behind(points, AUTO, &[OFF, BEFORE, AFTER, SHORTCUT, OVS], MICROS);
        let of_patch = points.iter().filter(|point| point.at(REQUESTS) == 1.0 && point.at(AT_ONCE) == 1.0);
        own.into_iter().chain(of_patch.filter_map(|point| behind_the_seed(point, AFTER, BEFORE, KTPS, PATCH))).collect()
    }
}

/// The arms of a run.
fn arms(size: Size) -> Vec<(&'static str, Through)> {
    ARMS.into_iter().filter(|(name, _)| size == Size::Full || QUICK.contains(name)).collect()
}

fn exchange(at: &Place, size: Size) -> Exchange {
    let at_once = at[AT_ONCE] as usize;
    let measured = size.pick(CONNECTIONS_QUICK, CONNECTIONS)[usize::from(at_once > 1)];
    Exchange { request: at[REQUESTS] != 0.0, at_once, connections: [measured / BEFORE_PART, measured] }
}

fn notes() -> Vec<String> {
    [
        "Client and server are one small program over the kernel's sockets, each in a network namespace of its own, on the \
         first core; a veth pair leads from each to the switch. A connection with a request: connect, a byte, a byte back, \
         close. Without one: connect, close. Each measurement is a fixed number of connections through a switch that was \
         started for it, after a quarter as many that are not counted.",
        "Sluice has AF_PACKET ports and its PMD on the last core; Open vSwitch is Debian's with datapath_type=netdev, bound to \
         no core, each with its defaults. Rules read all of a connection's addresses and ports, so that each is a megaflow \
         each way. Checksums are computed by the stacks, since Open vSwitch's userspace datapath asks for that.",
        "Answers were checked: every connection came to its end, every response was that of its request, and the rules \
         counted the packets.",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn beside_the_seed(points: &[Point]) -> Table {
    let row = |point: &Point| {
        let percent = |arm, by| {
            let of = |ratio: f64| format!("{:+.1}", 100.0 * (ratio - 1.0));
            let gain = |gain: Stat| format!("{} % ({}–{})", of(gain.median), of(gain.min), of(gain.max));
            point.ratio(arm, by, KTPS).map_or("n/a".to_owned(), gain)
        };
        let (traffic, seed) = match (point.at(REQUESTS), point.at(AT_ONCE)) {
            (0.0, n) => (format!("rate, {n} at once"), "0 %"),
            (_, 1.0) => ("TCP_CRR, one after the other".to_owned(), "about +25 %"),
            (_, n) => (format!("TCP_CRR, {n} at once"), ""),
        };
        vec![
            traffic,
            seed.to_owned(),
            percent(AFTER, BEFORE),
            percent(SHORTCUT, BEFORE),
            percent(AUTO, AFTER),
            percent(AUTO, OFF),
            percent(AUTO, OVS),
            format!("{:.3}", verdict::spread(point.same_twice.as_ref())),
        ]
    };
    let columns = [
        "traffic",
        "the 2012 patch's own",
        "here: 2012 after over before",
        "shortcut over before",
        "autopilot over after",
        "autopilot over off",
        "autopilot over Open vSwitch",
        "spread",
    ];
    Table {
        title: "Beside the figures of the patch of 2012; the spread is that of \"autopilot\" measured twice".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: points.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Arm;

    #[test]
    fn gains_stand_beside_the_patchs() {
        let arm = |(name, ktps): (&str, f64)| Arm {
            name: name.to_owned(),
            figures: [(KTPS, ktps), (MICROS, 1e3 / ktps)]
                .map(|(figure, value)| (figure.to_owned(), Stat::of(vec![value]).unwrap()))
                .into(),
            not_applicable: None,
        };
        let point = Point {
            at: place([(REQUESTS, 1.0), (AT_ONCE, 1.0)]),
            arms: [(AUTO, 10.0), (BEFORE, 8.0), (AFTER, 10.0), (OVS, 20.0)].map(arm).to_vec(),
            same_twice: None,
            steal_percent: 0.0,
        };
        let row = &beside_the_seed(std::slice::from_ref(&point)).rows[0];
        let want =
            ["TCP_CRR, one after the other", "about +25 %", "+25.0 % (+25.0–+25.0)", "n/a", "+0.0 % (+0.0–+0.0)"];
        assert_eq!(row[..5], want);
        assert_eq!(row[6], "-50.0 % (-50.0–-50.0)");
        let lost = Crr.losses(&[point]);
        assert_eq!(lost[0].what, "autopilot: 100 us_a_transaction, ovs: 50.0 (2.00 times)");
    }

    #[test]
    fn a_quick_look_has_fewer_arms_and_connections() {
        let at = place([(REQUESTS, 0.0), (AT_ONCE, 100.0)]);
        assert_eq!((arms(Size::Quick).len(), arms(Size::Full).len()), (3, 7));
        assert_eq!(exchange(&at, Size::Full), Exchange { request: false, at_once: 100, connections: [5000, 20_000] });
        assert_eq!(exchange(&at, Size::Quick).connections, [250, 1000]);
    }
}
