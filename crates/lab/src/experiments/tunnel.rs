//! Tunnels beside Open vSwitch with DPDK: VXLAN and Geneve, encapsulated and decapsulated, with and without a firewall behind.

use super::peer::{PROGRAMS_OF_OVS, missing_program};
use super::table_of;
use crate::cores::Bound;
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, place};
use crate::lab::Lab;
use crate::loss::Loss;
use crate::peer::tunnel::{Ours, Task, Theirs};
use crate::peer::{OVS_CONFIGS, ours};
use crate::record::{Findings, Point, Table};
use crate::rig::{CYCLES, MPPS};
use crate::verdict::{self, Verdict};
use anyhow::Result;
use sluice_tunnel::TunnelKind;
use std::time::Duration;

/// The experiment.
pub struct Tunnel;

const SUBTABLES: u16 = 20;

/// At least this multiple of the peer's best rate, at every point.
const AIM: f64 = 2.0;

const OURS: &str = "sluice";

/// Where a point is: 1 for yes.
const PLACES: [&str; 4] = ["geneve", "decap", "firewall", "flows"];

fn at([geneve, decap, firewall, flows]: [f64; 4]) -> Place {
    place([("geneve", geneve), ("decap", decap), ("firewall", firewall), ("flows", flows)])
}

fn arms() -> Vec<&'static str> {
    OVS_CONFIGS.iter().map(|config| config.name).chain([OURS]).collect()
}

impl Experiment for Tunnel {
    fn name(&self) -> &'static str {
        "tunnel"
    }

    fn about(&self) -> &'static str {
        "How many times the rate of Open vSwitch with DPDK, where packets get or lose a tunnel's header?"
    }

    fn obstacle(&self) -> Option<String> {
        missing_program(&PROGRAMS_OF_OVS)
            .or_else(|| (!rustix::process::geteuid().is_root()).then(|| "it takes root, for huge pages".to_owned()))
    }

    fn needs(&self) -> &'static str {
        "root, two cores, 5 GiB of free memory for huge pages, package openvswitch-switch-dpdk, a build with DPDK"
    }

    fn bound(&self) -> Bound {
        Bound::Nowhere
    }

    fn run(&self, lab: &mut Lab) -> Result<Findings> {
        let all: &[f64] = &[0.0, 1.0];
        let (kinds, flows) = lab.size.pick((&all[..1], &[100.0][..]), (all, &[100.0, 10e3][..]));
        let mut places = Vec::new();
        for (kind, decap) in kinds.iter().flat_map(|kind| all.iter().map(move |decap| (*kind, *decap))) {
            for (firewall, flows) in all.iter().flat_map(|firewall| flows.iter().map(move |flows| (*firewall, *flows)))
            {
                places.push(at([kind, decap, firewall, flows]));
            }
        }
        let grid = Grid {
            places,
            arms: arms().into_iter().map(str::to_owned).collect(),
            set_up: &set_up,
            figure: MPPS,
            rounds: [1, 3],
            span: [Duration::from_secs(1), Duration::from_millis(1500)],
        };
        let points = grid.run(lab);
        Ok(Findings {
            tables: vec![
                ratios(&points),
                table_of("Cycles a packet: median (least–most)", &points, &PLACES, &arms(), CYCLES),
                table_of("Mpps: median (least–most)", &points, &PLACES, &arms(), MPPS),
            ],
            figures: Vec::new(),
            notes: vec![
                "1 is yes: Geneve, else VXLAN; decapsulation, else encapsulation; the firewall tracks each inner flow as \
                 a connection, in both directions. The switches take turns on one core, in network namespaces of their own; \
                 a run in which a switch did not send what it received is an error."
                    .to_owned(),
                verdict::counted(points.iter().filter_map(verdict_of)),
            ],
            points,
        })
    }

    fn losses(&self, points: &[Point]) -> Vec<Loss> {
        let loss = |point: &Point| {
            let ratio = ratio(point)?;
            let what = format!("{ratio:.2} times the rate of the peer's best; at least {AIM}");
            (ratio < AIM).then(|| Loss::at(point, &what))
        };
        points.iter().filter_map(loss).collect()
    }
}

fn set_up(at: &Place, arm: usize) -> Result<Ready> {
    let task = Task {
        kind: if at["geneve"] == 0.0 { TunnelKind::Vxlan } else { TunnelKind::Geneve },
        decap: at["decap"] != 0.0,
        firewall: at["firewall"] != 0.0,
        flows: at["flows"] as u32,
        subtables: SUBTABLES,
    };
    match OVS_CONFIGS.get(arm) {
        Some(config) => Ok(Ready::Subject(Box::new(Theirs(task, *config)))),
        None => match ours::Ours::obstacle() {
            Some(why) => Ok(Ready::NotApplicable(why)),
            None => Ok(Ready::Subject(Box::new(Ours(task)))),
        },
    }
}

/// Our rate over the peer's best.
fn ratio(point: &Point) -> Option<f64> {
    let mpps = |arm: &str| point.figure(arm, MPPS).map(|stat| stat.median);
    let best = OVS_CONFIGS.iter().filter_map(|config| mpps(config.name)).max_by(f64::total_cmp)?;
    (best > 0.0).then_some(mpps(OURS)? / best)
}

fn verdict_of(point: &Point) -> Option<Verdict> {
    ratio(point).map(|ratio| Verdict::at(point, ratio, AIM))
}

fn ratios(points: &[Point]) -> Table {
    let row = |point: &Point| {
        let mut cells: Vec<String> = PLACES.iter().map(|name| crate::text::count(point.at(name))).collect();
        cells.push(ratio(point).map_or("n/a".to_owned(), |ratio| format!("{ratio:.2}")));
        cells.push(AIM.to_string());
        cells.push(verdict_of(point).map_or("n/a".to_owned(), |verdict| verdict.to_string()));
        cells
    };
    let heads = PLACES.into_iter().chain(["over the best", "at least", "passes"]);
    Table {
        title: "Sluice's rate over the peer's".to_owned(),
        columns: heads.map(str::to_owned).collect(),
        rows: points.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Arm;
    use crate::stat::Stat;

    #[test]
    fn less_than_twice_the_peers_best_is_a_loss() {
        let arm = |name: &str, mpps: f64| Arm {
            name: name.to_owned(),
            figures: [(MPPS.to_owned(), Stat::of(vec![mpps]).unwrap())].into(),
            not_applicable: None,
        };
        let point = |ours| Point {
            at: at([1.0, 0.0, 1.0, 100.0]),
            arms: vec![arm("ovs megaflow", 1.0), arm("ovs smc", 4.0), arm(OURS, ours)],
            same_twice: None,
            steal_percent: 0.0,
        };
        let losses = Tunnel.losses(&[point(7.6), point(8.4)]);
        assert_eq!(losses.len(), 1);
        assert!(losses[0].what.starts_with("1.90 times"), "{}", losses[0].what);
        assert_eq!(ratios(&[point(8.4)]).rows[0], ["1", "0", "1", "100", "2.10", "2", "yes"]);
        let noisy = |ours| Point { same_twice: Stat::of(vec![1.0, 1.08]), ..point(ours) };
        assert_eq!(
            Tunnel.losses(&[noisy(7.6)])[0].what,
            "undecided: 1.90 times the rate of the peer's best; at least 2"
        );
        assert!(Tunnel.losses(&[noisy(8.4)]).is_empty());
        assert_eq!([7.6, 8.4].map(|ours| verdict_of(&noisy(ours))), [Some(Verdict::Undecided); 2]);
    }
}
