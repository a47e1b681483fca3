//! Beside a peer: Open vSwitch with DPDK, in every configuration of its caches, on the same DPDK ports with the same
//! packets; and testpmd, which shows what the ports alone cost.
//!
//! A `net_pcap` port replays a capture for ever, a `net_null` port swallows what is sent. Both switches have one PMD,
//! take turns on its core, and are read with `ovs-appctl dpif-netdev/pmd-perf-show`.

use super::{lines_over_flows, table_of};
use crate::cores::Bound;
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, place};
use crate::lab::Lab;
use crate::loss::Loss;
use crate::peer::{OVS_CONFIGS, Workload, ours::Ours, ovs::Ovs, testpmd::Testpmd};
use crate::record::{Axis, Findings, Point, Table};
use crate::rig::{CYCLES, MPPS};
use crate::text;
use crate::verdict::{self, Verdict};
use anyhow::{Context, Result};
use std::path::Path;
use std::time::Duration;

/// The experiment.
pub struct Peer;

/// The programs that must be there. Debian package: openvswitch-switch-dpdk.
pub(super) const PROGRAMS_OF_OVS: [&str; 2] =
    ["/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk", "/usr/sbin/ovsdb-server"];

/// testpmd. Debian package: dpdk.
const TESTPMD: &str = "/usr/bin/dpdk-testpmd";

/// Which of these programs is missing.
pub(super) fn missing_program(programs: &[&str]) -> Option<String> {
    let missing = programs.iter().find(|program| !Path::new(program).exists())?;
    Some(format!("{missing} is missing (packages openvswitch-switch-dpdk and dpdk)"))
}

const SUBTABLES: u16 = 20;

/// Up to this many flows, at least this multiple of the peer's best rate.
const AIMS: [(f64, f64); 3] = [(1e3, 2.0), (10e3, 2.3), (f64::INFINITY, 2.5)];

fn aim(point: &Point) -> f64 {
    AIMS.iter().find(|(flows, _)| point.at("flows") <= *flows).map_or(0.0, |(_, aim)| *aim)
}

/// This switch: the first arm after the peer's.
pub const OURS: &str = "sluice";
/// testpmd: the arm after it.
pub const PORTS_ALONE: &str = "testpmd";

fn arms() -> Vec<&'static str> {
    OVS_CONFIGS.iter().map(|config| config.name).chain([OURS, PORTS_ALONE]).collect()
}

impl Experiment for Peer {
    fn name(&self) -> &'static str {
        "peer"
    }

    fn about(&self) -> &'static str {
        "How many times the rate of Open vSwitch with DPDK, on the same ports with the same packets?"
    }

    fn obstacle(&self) -> Option<String> {
        missing_program(&PROGRAMS_OF_OVS)
            .or_else(|| missing_program(&[TESTPMD]))
            .or_else(|| (!rustix::process::geteuid().is_root()).then(|| "it takes root, for huge pages".to_owned()))
    }

    fn needs(&self) -> &'static str {
        "root, two cores, 5 GiB of free memory for huge pages, packages openvswitch-switch-dpdk and dpdk, a build with DPDK"
    }

    fn bound(&self) -> Bound {
        Bound::Nowhere
    }

    fn run(&self, lab: &mut Lab) -> Result<Findings> {
        let flows: &[f64] = lab.size.pick(&[1e3], &[100.0, 1e3, 10e3, 100e3]);
        let grid = Grid {
            places: flows.iter().map(|f| place([("flows", *f), ("subtables", SUBTABLES.into())])).collect(),
            arms: arms().into_iter().map(str::to_owned).collect(),
            set_up: &set_up,
            figure: MPPS,
            rounds: [1, 5],
            span: [Duration::from_secs(1), Duration::from_millis(1500)],
        };
        let points = grid.run(lab);
        let caption = "Error bars from the slowest to the fastest repetition.";
        let all: Vec<&Point> = points.iter().collect();
        Ok(Findings {
            tables: vec![
                ratios(&points),
                table_of("Cycles a packet: median (least–most)", &points, &["flows"], &arms(), CYCLES),
                table_of("Mpps: median (least–most)", &points, &["flows"], &arms(), MPPS),
            ],
            figures: vec![lines_over_flows(&all, &arms(), MPPS, Axis::linear("Mpps"), "Twenty subtables", caption)],
            notes: vec![
                "The switches take turns on one core; a run in which a switch did not send what its rules say is an \
                 error. testpmd forwards between the same ports: what is left of its cycles is the switch."
                    .to_owned(),
                verdict::counted(points.iter().filter_map(verdict_of)),
            ],
            points,
        })
    }

    fn losses(&self, points: &[Point]) -> Vec<Loss> {
        let loss = |point: &Point| {
            let (best, ratio) = over_the_best(point)?;
            let what = || format!("{ratio:.2} times the rate of {best}; at least {}", aim(point));
            (ratio < aim(point)).then(|| Loss::at(point, &what()))
        };
        points.iter().filter_map(loss).collect()
    }
}

fn set_up(at: &Place, arm: usize) -> Result<Ready> {
    let workload = Workload::write(at["flows"] as u64, SUBTABLES).context("the capture")?;
    match arms()[arm] {
        OURS => match Ours::obstacle() {
            Some(why) => Ok(Ready::NotApplicable(why)),
            None => Ok(Ready::Subject(Box::new(Ours(workload)))),
        },
        PORTS_ALONE => Ok(Ready::Subject(Box::new(Testpmd(workload)))),
        _ => Ok(Ready::Subject(Box::new(Ovs { workload, config: OVS_CONFIGS[arm] }))),
    }
}

fn mpps(point: &Point, arm: &str) -> Option<f64> {
    point.figure(arm, MPPS).map(|stat| stat.median)
}

/// The peer's best configuration at a point, and its rate.
fn best_of_theirs(point: &Point) -> Option<(&'static str, f64)> {
    let rates = OVS_CONFIGS.iter().filter_map(|config| Some((config.name, mpps(point, config.name)?)));
    rates.max_by(|a, b| a.1.total_cmp(&b.1))
}

/// The peer's best configuration at a point, and our rate over its.
fn over_the_best(point: &Point) -> Option<(&'static str, f64)> {
    let (best, theirs) = best_of_theirs(point)?;
    (theirs > 0.0).then_some((best, mpps(point, OURS)? / theirs))
}

fn verdict_of(point: &Point) -> Option<Verdict> {
    over_the_best(point).map(|(_, ratio)| Verdict::at(point, ratio, aim(point)))
}

/// Ours over each of theirs, and over the best of theirs, named; and what the ports alone leave of ours.
fn ratios(points: &[Point]) -> Table {
    let row = |point: &Point| {
        let best = best_of_theirs(point);
        let ratio = |theirs: Option<f64>| match (mpps(point, OURS), theirs) {
            (Some(ours), Some(theirs)) if theirs > 0.0 => format!("{:.2}", ours / theirs),
            _ => "n/a".to_owned(),
        };
        let mut cells = vec![text::count(point.at("flows"))];
        cells.extend(OVS_CONFIGS.iter().map(|config| ratio(mpps(point, config.name))));
        cells.push(best.map_or("n/a".to_owned(), |(name, _)| name.to_owned()));
        cells.push(ratio(best.map(|(_, mpps)| mpps)));
        cells.push(aim(point).to_string());
        cells.push(verdict_of(point).map_or("n/a".to_owned(), |verdict| verdict.to_string()));
        cells.push(ratio(mpps(point, PORTS_ALONE)));
        cells
    };
    let heads = ["best of the peer", "over the best", "at least", "passes", "over testpmd"].map(str::to_owned);
    let theirs = OVS_CONFIGS.iter().map(|config| format!("over {}", config.name));
    Table {
        title: "Sluice's rate over the peer's".to_owned(),
        columns: ["flows".to_owned()].into_iter().chain(theirs).chain(heads).collect(),
        rows: points.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Arm;
    use crate::stat::Stat;

    fn point(flows: f64, ours: f64, best: f64) -> Point {
        let arm = |name: &str, mpps: f64| Arm {
            name: name.to_owned(),
            figures: [(MPPS.to_owned(), Stat::of(vec![mpps]).unwrap())].into(),
            not_applicable: None,
        };
        let arms = vec![arm("ovs megaflow", 1.0), arm("ovs smc", best), arm(OURS, ours), arm(PORTS_ALONE, 90.0)];
        Point { at: place([("flows", flows)]), arms, same_twice: None, steal_percent: 0.0 }
    }

    #[test]
    fn a_peer_that_is_faster_and_an_aim_that_is_missed_are_losses() {
        let points = [point(100.0, 9.0, 10.0), point(1e3, 20.0, 10.0), point(1e4, 22.0, 10.0), point(1e5, 24.0, 10.0)];
        let losses: Vec<String> = Peer.losses(&points).into_iter().map(|loss| loss.what).collect();
        let want = ["0.90", "2.20", "2.40"].map(|ratio| format!("{ratio} times the rate of ovs smc; at least "));
        assert_eq!(losses.len(), 3, "{losses:?}");
        assert!(losses.iter().zip(want).all(|(loss, want)| loss.starts_with(&want)), "{losses:?}");
        assert_eq!(
            ratios(&points).rows[3],
            ["100k", "24.00", "n/a", "2.40", "n/a", "ovs smc", "2.40", "2.5", "no", "0.27"]
        );
        // A point that spreads by more than the margin is neither lost nor passed.
        let noisy = |ours| Point { same_twice: Stat::of(vec![0.9, 1.02]), ..point(1e5, ours, 10.0) };
        assert_eq!(Peer.losses(&[noisy(24.0)])[0].what, "undecided: 2.40 times the rate of ovs smc; at least 2.5");
        assert!(Peer.losses(&[noisy(26.0)]).is_empty());
        assert_eq!([24.0, 26.0].map(|ours| verdict_of(&noisy(ours))), [Some(Verdict::Undecided); 2]);
        assert_eq!(
            [24.0, 26.0].map(|ours| verdict_of(&point(1e5, ours, 10.0))),
            [Some(Verdict::No), Some(Verdict::Yes)]
        );
    }
}
