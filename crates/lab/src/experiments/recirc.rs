//! The question of seed 002: which packets deserve the exact match cache when every packet passes the lookup twice? Its
//! firewall and its traffic: UDP both ways, one connection a stream.

mod tunnel;

use super::{lines_over_flows, table_of};
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, Subject, place};
use crate::lab::Lab;
use crate::loss::{Loss, behind, behind_the_seed};
use crate::record::{Axis, Figure, Findings, Point, Table};
use crate::rig::{self, CYCLES, EMC_BYPASSED, EMC_SHARE, EMC_USED, MPPS, Sample, TURNS};
use crate::setting::Setting;
use crate::text;
use anyhow::{Result, ensure};
use sluice_datapath::Settings;
use sluice_fate::Counter;
use sluice_vswitch::Assembly;
use std::time::Duration;

/// The experiment.
pub struct Recirc;

/// The rules of the patch.
pub(super) const RULES: &str = "\
table=0,priority=1,actions=drop
table=0,priority=10,arp,actions=NORMAL
table=0,priority=100,ct_state=-trk,ip,actions=ct(table=1)
table=1,ct_state=+new+trk,ip,in_port=1,actions=ct(commit),output:2
table=1,ct_state=+est+trk,ip,in_port=1,actions=output:2
table=1,ct_state=+new+trk,ip,in_port=2,actions=drop
table=1,ct_state=+est+trk,ip,in_port=2,actions=output:1
";

/// The same with three recirculations: two more zones, as where a logical router stands between two logical switches.
const RULES_OF_THREE: &str = "\
table=0,priority=1,actions=drop
table=0,priority=10,arp,actions=NORMAL
table=0,priority=100,ct_state=-trk,ip,actions=ct(table=1)
table=1,ct_state=+new+trk,ip,in_port=1,actions=ct(commit),ct(zone=1,table=2)
table=1,ct_state=+est+trk,ip,actions=ct(zone=1,table=2)
table=1,ct_state=+new+trk,ip,in_port=2,actions=drop
table=2,ct_state=+new+trk,ip,in_port=1,actions=ct(commit,zone=1),ct(zone=2,table=3)
table=2,ct_state=+est+trk,ip,actions=ct(zone=2,table=3)
table=3,ct_state=+new+trk,ip,in_port=1,actions=ct(commit,zone=2),output:2
table=3,ct_state=+est+trk,ip,in_port=1,actions=output:2
table=3,ct_state=+est+trk,ip,in_port=2,actions=output:1
";

/// A policy with the exact match cache alone before the subtables, filled as in Open vSwitch.
const fn policy(name: &'static str, keys: &'static [(&'static str, &'static str)]) -> Setting {
    Setting { name, keys }
}

const EMC: (&str, &str) = ("emc", "on");
const ONE_IN_100: (&str, &str) = ("emc-insert-inv-prob", "100");

/// The policies for packets that recirculate.
const POLICIES: [Setting; 9] = [
    policy("always", &[EMC, ONE_IN_100, ("emc-recirc", "always")]),
    policy("threshold", &[EMC, ONE_IN_100, ("emc-recirc", "threshold")]),
    policy("random", &[EMC, ONE_IN_100, ("emc-recirc", "random")]),
    policy("rss", &[EMC, ONE_IN_100, ("emc-recirc", "rss")]),
    policy("penalty", &[EMC, ONE_IN_100, ("emc-recirc", "penalty")]),
    policy("random, every pass", &[EMC, ONE_IN_100, ("emc-recirc", "random-all")]),
    policy("rss, every pass", &[EMC, ONE_IN_100, ("emc-recirc", "rss-all")]),
    policy("adaptive insertion", &[EMC, ("emc-insert-inv-prob", "adaptive"), ("emc-recirc", "always")]),
    policy("threshold 75 %", &[EMC, ONE_IN_100, ("emc-recirc", "threshold"), ("emc-recirc-threshold", "75")]),
];
/// What the switch does by itself, but for composed entries.
const AUTO: Setting = Setting {
    name: "autopilot",
    keys: &[
        ("emc", "auto"),
        ("smc", "auto"),
        ("distributor", "auto"),
        ("emc-insert-inv-prob", "auto"),
        ("emc-recirc", "auto"),
    ],
};
/// What it does unless told otherwise.
const DEFAULT: Setting = Setting {
    name: "composed",
    keys: &[
        ("emc", "auto"),
        ("smc", "auto"),
        ("distributor", "auto"),
        ("emc-insert-inv-prob", "auto"),
        ("emc-recirc", "auto"),
        ("composed", "auto"),
    ],
};
pub(super) const SETTINGS: [Setting; 12] = {
    let p = POLICIES;
    [p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], crate::setting::SEARCH, AUTO, DEFAULT]
};
/// PMDs, one for each side, as in the patch: so each exact match cache holds the flows of one side.
const PMDS: usize = 2;

/// The patch's own table: streams, and for the original and with the patch the rate at each side, Mpps, and EMC
/// entries.
const PATCH: [(f64, [&str; 4]); 7] = [
    (100.0, ["2.43, 2.49", "200", "2.55, 2.57", "201"]),
    (1e3, ["2.01, 2.02", "2007", "2.12, 2.12", "2006"]),
    (2e3, ["1.93, 1.95", "3868", "1.98, 1.96", "3884"]),
    (3e3, ["1.87, 1.91", "5086", "1.97, 1.97", "4757"]),
    (4e3, ["1.83, 1.82", "6173", "1.94, 1.93", "5280"]),
    (10e3, ["1.67, 1.69", "7826", "1.82, 1.81", "7090"]),
    (30e3, ["1.57, 1.59", "8192", "1.66, 1.67", "8192"]),
];
/// Entries of the exact match cache.
const EMC_ENTRIES: f64 = 8192.0;

/// Packets of each connection, both ways, that warm the caches; and the least in all, so that an insertion probability
/// of 1/100 fills them.
const PACKETS_A_CONNECTION: u64 = 8;
const WARM_PACKETS: std::ops::RangeInclusive<u64> = 2_000_000..=20_000_000;
/// The autopilot runs this long before it is judged.
const FLOWN: Duration = Duration::from_millis(500);

impl Experiment for Recirc {
    fn name(&self) -> &'static str {
        "recirc"
    }

    fn about(&self) -> &'static str {
        "Which packets deserve the exact match cache when a firewall looks each up twice?"
    }

    fn run(&self, lab: &mut Lab) -> Result<Findings> {
        let connections: &[f64] = lab.size.pick(&[4e3, 30e3], &[100.0, 1e3, 2e3, 3e3, 4e3, 10e3, 30e3, 100e3]);
        let of_three: &[f64] = lab.size.pick(&[4e3], &[1e3, 2e3, 4e3, 10e3, 30e3]);
        let places = connections.iter().map(|n| (*n, 1.0)).chain(of_three.iter().map(|n| (*n, 3.0)));
        let places = places.map(|(flows, times)| place([(FLOWS, flows), (RECIRCULATIONS, times)]));
        let grid = Grid {
            places: places.chain(tunnel::places()).collect(),
            arms: names().into_iter().map(str::to_owned).collect(),
            set_up: &set_up,
            figure: MPPS,
            rounds: Grid::ROUNDS,
            span: [Duration::from_millis(20), Duration::from_millis(60)],
        };
        let points = grid.run(lab);
        let (tunnel, firewall): (Vec<Point>, Vec<Point>) =
            points.iter().cloned().partition(|point| tunnel::is_here(&point.at));
        let mut tables = vec![
            table_of("Mpps at each side: median (least–most)", &firewall, AT, &names(), MPPS),
            table_of("Passes kept away from the exact match cache, percent", &firewall, AT, &names(), EMC_BYPASSED),
            entries_table(&firewall),
            beside_the_seed(&firewall),
            verdicts(&firewall, AT),
        ];
        tables.extend(tunnel::tables(&tunnel));
        tables.push(verdicts(&tunnel, &tunnel::AT));
        Ok(Findings { tables, figures: figures(&firewall), notes: notes(), points })
    }

    fn losses(&self, points: &[Point]) -> Vec<Loss> {
        let forced: Vec<&str> =
            POLICIES.iter().map(|policy| policy.name).chain([crate::setting::SEARCH.name]).collect();
        let own = behind(points, DEFAULT.name, &forced, CYCLES);
        let of_patch = |point: &Point| {
            let gain = gain_of(patch(point)?)?;
            behind_the_seed(point, "threshold", "always", MPPS, gain)
        };
        own.into_iter().chain(points.iter().filter_map(of_patch)).collect()
    }
}

/// What the patch calls streams: each establishes one connection.
pub(super) const FLOWS: &str = "flows";
/// How often each packet is recirculated.
const RECIRCULATIONS: &str = "recirculations";
const AT: &[&str] = &[FLOWS, RECIRCULATIONS];

/// The names of all settings.
pub(super) fn names() -> Vec<&'static str> {
    SETTINGS.iter().map(|setting| setting.name).collect()
}

fn notes() -> Vec<String> {
    [
        "Two generator ports and a PMD for each, as in the patch, which take turns in the caller's thread: port 1 sends UDP \
         of 60 bytes from 10.10.10.10 to as many addresses as there are flows, port 2 the answers, any stream next. So \
         each exact match cache has 8192 entries for the flows of one side, in each of their passes. Rates of one PMD, \
         that is, of one side, by the time-stamp counter, generators included; median of interleaved repetitions, each the median of slices of 64 turns of the loop.",
        "Answers were checked before timing: every stream has its connection and no packet more than one, every packet of an \
         established connection was sent, each rule has carried as many packets as were sent by it.",
        "The policies have the exact match cache alone in front of the subtables, one in a hundred misses inserted, and no \
         composed entries; \"search\" has no cache, \"autopilot\" chooses, \"composed\" is the default: the autopilot, and \
         one lookup for both passes.",
        "The tunnel: one PMD, and a capture of the tenants' packets, any next, played for ever. A label of MPLS is popped, so \
         that pass one has one flow and pass two has the tenants', or pushed, which is the reverse. Every packet was sent \
         after two passes.",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// The firewall with its traffic.
struct Firewall {
    assembly: Assembly,
    recirculations: u64,
}

impl Firewall {
    fn new(streams: u64, recirculations: u64, settings: Settings) -> Result<Firewall> {
        let (client, servers) = ("10.10.10.10".to_owned(), servers(streams));
        let profile = |src: &str, dst: &str, seed: u64| {
            let keys = [("src", src), ("dst", dst), ("sport", "63"), ("dport", "63")];
            let mut profile: Vec<(&str, String)> =
                keys.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
            profile.push(("seed", seed.to_string()));
            profile
        };
        let (there, back) = (profile(&client, &servers, 1), profile(&servers, &client, 2));
        let rules = if recirculations == 1 { RULES } else { RULES_OF_THREE };
        let ports: [rig::PortOptions<'_>; 2] = [("generator", &there), ("generator", &back)];
        let assembly = rig::switch_with_pmds(settings, PMDS, rules, &ports)?;
        Ok(Firewall { assembly, recirculations })
    }

    /// Lets every stream have its connection, warms the caches with `warm` packets, and checks the answers.
    fn check(&self, streams: u64, warm: u64) -> Result<()> {
        let turns = |packets: u64| packets.div_ceil(TURNS as u64 * 2 * 32);
        let conntrack = self.assembly.datapath().conntrack();
        // Streams are drawn with equal chances: all have come after about n·ln n packets a side.
        let enough = streams as f64 * (streams as f64).ln() * 8.0 + 1e6;
        for _ in 0..turns(enough as u64) {
            if u64::from(conntrack.connections()) == streams * self.recirculations {
                break;
            }
            self.assembly.datapath().run_iterations(TURNS, 0);
            self.assembly.datapath().service(0);
        }
        ensure!(
            u64::from(conntrack.connections()) == streams * self.recirculations,
            "{} connections of {streams} streams in {} zones",
            conntrack.connections(),
            self.recirculations
        );
        let before = self.assembly.datapath().totals();
        for _ in 0..turns(warm) {
            self.assembly.datapath().run_iterations(TURNS, 0);
            self.assembly.datapath().service(0);
        }
        let all = self.assembly.datapath().totals();
        all.conserved().map_err(|unbalanced| anyhow::anyhow!("packets are not conserved: {unbalanced:?}"))?;
        let since = all.since(&before);
        ensure!(
            since[Counter::Received] == since[Counter::Sent]
                && since[Counter::Passes] == (1 + self.recirculations) * since[Counter::Received],
            "of {} packets of established connections {} were sent, in {} passes",
            since[Counter::Received],
            since[Counter::Sent],
            since[Counter::Passes]
        );
        // The first table's rule has carried every packet, and each pass is one rule's.
        let carried = rig::carried(&self.assembly)?;
        let sum: u64 = carried.iter().sum();
        ensure!(
            carried.contains(&all[Counter::Received]) && sum == all[Counter::Passes],
            "the rules have carried {carried:?} packets, {} were received in {} passes",
            all[Counter::Received],
            all[Counter::Passes]
        );
        let (pmds, idle) = self.pmds();
        ensure!(pmds == PMDS && idle == 0, "{idle} of {pmds} PMDs have no packets");
        Ok(())
    }
}

impl Firewall {
    /// How many PMDs there are, and how many of them have received nothing.
    fn pmds(&self) -> (usize, usize) {
        let mut pmds = self.assembly.datapath().pmds();
        pmds.retain(|pmd| pmd.core.is_some());
        (pmds.len(), pmds.iter().filter(|pmd| pmd.counters[Counter::Received] == 0).count())
    }
}

impl Subject for Firewall {
    fn measure(&mut self, span: Duration) -> Result<Sample> {
        Ok(rig::time(self.assembly.datapath(), false, span))
    }
}

/// As many addresses as there are streams.
pub(super) fn servers(streams: u64) -> String {
    let first = u32::from(std::net::Ipv4Addr::new(20, 20, 20, 20));
    format!("{}-{}", std::net::Ipv4Addr::from(first), std::net::Ipv4Addr::from(first + streams as u32 - 1))
}

fn set_up(at: &Place, arm: usize) -> Result<Ready> {
    if tunnel::is_here(at) {
        return tunnel::set_up(at, arm, FLOWN);
    }
    let streams = at[FLOWS] as u64;
    let firewall = Firewall::new(streams, at[RECIRCULATIONS] as u64, SETTINGS[arm].settings()?)?;
    let warm = (streams * PACKETS_A_CONNECTION).clamp(*WARM_PACKETS.start(), *WARM_PACKETS.end());
    firewall.check(streams, warm)?;
    rig::time(firewall.assembly.datapath(), false, FLOWN);
    Ok(Ready::Subject(Box::new(firewall)))
}

fn figures(points: &[Point]) -> Vec<Figure> {
    let all: Vec<&Point> = points.iter().filter(|point| point.at(RECIRCULATIONS) == 1.0).collect();
    let caption = "Each side; error bars from the slowest to the fastest repetition.";
    let policies: Vec<&str> = POLICIES.iter().map(|policy| policy.name).collect();
    vec![
        lines_over_flows(&all, &names(), MPPS, Axis::linear("Mpps"), "The firewall, by policy", caption),
        lines_over_flows(
            &all,
            &policies,
            EMC_USED,
            Axis::linear("entries"),
            "Entries of the exact match cache in use",
            "Of 8192; one in a hundred misses inserted.",
        ),
        lines_over_flows(
            &all,
            &policies,
            EMC_SHARE,
            Axis::linear("percent of all passes"),
            "What the exact match cache answers",
            "Two passes a packet.",
        ),
    ]
}

/// Entries and how full that is, as the patch has them.
fn entries_table(points: &[Point]) -> Table {
    let shown = |point: &Point, arm: &str| match point.figure(arm, EMC_USED) {
        Some(used) => format!("{:.0} ({:.1} %)", used.median, 100.0 * used.median / EMC_ENTRIES),
        None => "n/a".to_owned(),
    };
    let row = |point: &Point| {
        let arms = POLICIES.iter().map(|policy| shown(point, policy.name));
        AT.iter().map(|name| text::count(point.at(name))).chain(arms).collect()
    };
    let heads = AT.iter().copied().chain(POLICIES.iter().map(|policy| policy.name));
    Table {
        title: "EMC entries (% full)".to_owned(),
        columns: heads.map(str::to_owned).collect(),
        rows: points.iter().map(row).collect(),
    }
}

fn beside_the_seed(points: &[Point]) -> Table {
    let ours = |point: &Point, arm: &str, figure: &str, digits: usize| {
        point.figure(arm, figure).map_or("n/a".to_owned(), |stat| format!("{:.digits$}", stat.median))
    };
    let row = |point: &Point| {
        let theirs = patch(point)?;
        let ours_gain = point.ratio("threshold", "always", MPPS).map(|ratio| ratio.median);
        let percent =
            |gain: Option<f64>| gain.map_or("n/a".to_owned(), |gain| format!("{:+.1} %", 100.0 * (gain - 1.0)));
        let mut cells = vec![text::count(point.at(FLOWS))];
        cells.extend(theirs.map(str::to_owned));
        cells.push(percent(gain_of(theirs)));
        for arm in ["always", "threshold"] {
            cells.extend([ours(point, arm, MPPS, 2), ours(point, arm, EMC_USED, 0)]);
        }
        cells.push(percent(ours_gain));
        Some(cells)
    };
    let heads = [
        FLOWS,
        "original: Mpps",
        "entries",
        "patch: Mpps",
        "entries",
        "gain of the patch",
        "here, always: Mpps",
        "entries",
        "here, threshold: Mpps",
        "entries",
        "gain of the threshold",
    ];
    Table {
        title: "Beside the patch (Open vSwitch, 2017, two PMDs and real ports; Mpps at each side; here a gain is the median of the repetitions' ratios)".to_owned(),
        columns: heads.map(str::to_owned).to_vec(),
        rows: points.iter().filter_map(row).collect(),
    }
}

/// The patch's own row for a point of the firewall.
fn patch(point: &Point) -> Option<[&'static str; 4]> {
    let is_here = !tunnel::is_here(&point.at) && point.at(RECIRCULATIONS) == 1.0;
    let row = PATCH.iter().find(|(streams, _)| is_here && *streams == point.at(FLOWS))?;
    Some(row.1)
}

/// What the patch gained there, as a ratio of rates.
fn gain_of([original, _, patched, _]: [&str; 4]) -> Option<f64> {
    Some(sides(patched)? / sides(original)?)
}

/// The rates of both sides together, written as two numbers.
fn sides(text: &str) -> Option<f64> {
    let (one, other) = text.split_once(", ")?;
    Some(one.parse::<f64>().ok()? + other.parse::<f64>().ok()?)
}

/// What the autopilot reached of the best policy.
fn verdicts(points: &[Point], at: &[&str]) -> Table {
    let row = |point: &Point| {
        let rate = |arm: &str| point.figure(arm, MPPS).map(|stat| stat.median);
        let forced = POLICIES.iter().map(|policy| policy.name).chain([crate::setting::SEARCH.name]);
        let best = forced.filter_map(|arm| Some((arm, rate(arm)?))).max_by(|a, b| a.1.total_cmp(&b.1));
        let of = |arm: &str| {
            let ratio = best.and_then(|(best, _)| point.ratio(arm, best, MPPS));
            ratio.map_or("n/a".to_owned(), |ratio| format!("{:.2}", ratio.median))
        };
        let spread = point.same_twice.as_ref().map_or("n/a".to_owned(), |s| format!("{:.2}–{:.2}", s.min, s.max));
        let cycles = |arm: &str| point.figure(arm, CYCLES).map_or("n/a".to_owned(), |s| format!("{:.0}", s.median));
        let best_name = best.map_or("n/a", |(arm, _)| arm).to_owned();
        let (auto, composed) = (AUTO.name, DEFAULT.name);
        let place = at.iter().map(|name| text::count(point.at(name)));
        place.chain([best_name, of(auto), of(composed), cycles(auto), cycles(composed), spread]).collect()
    };
    let heads = [
        "best policy",
        "autopilot to it",
        "composed to it",
        "cycles a packet, autopilot",
        "composed",
        "first policy measured twice",
    ];
    Table {
        title: "The switch's own choice beside the best policy (medians of the repetitions' ratios of rates)"
            .to_owned(),
        columns: at.iter().copied().chain(heads).map(str::to_owned).collect(),
        rows: points.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_gives_the_right_answers() {
        for setting in SETTINGS {
            Firewall::new(200, 1, setting.settings().unwrap()).unwrap().check(200, 50_000).unwrap();
        }
    }

    #[test]
    fn three_recirculations_are_four_passes() {
        for setting in [POLICIES[0], POLICIES[4], DEFAULT] {
            Firewall::new(100, 3, setting.settings().unwrap()).unwrap().check(100, 50_000).unwrap();
        }
    }

    #[test]
    fn the_patchs_gain_is_that_of_both_sides() {
        assert_eq!(sides("2.43, 2.49").map(|sum| (sum * 100.0).round()), Some(492.0));
        let point = Point {
            at: place([(FLOWS, 10e3), (RECIRCULATIONS, 1.0)]),
            arms: Vec::new(),
            same_twice: None,
            steal_percent: 0.0,
        };
        assert_eq!(beside_the_seed(&[point]).rows[0][5], "+8.0 %");
    }
}
