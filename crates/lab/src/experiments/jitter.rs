//! How late packets are under each policy for the exact match cache: whether a choice by pass is better for latency and
//! jitter than one by chance, as the thread of seed 002 supposes.

use super::recirc::{FLOWS, RULES, SETTINGS, names, servers};
use super::table_of;
use crate::cores::Bound;
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, Subject, place};
use crate::lab::Lab;
use crate::loss::{Loss, behind};
use crate::record::{Findings, Point, Table};
use crate::rig::Sample;
use crate::{switch, text, verdict};
use anyhow::{Context, Result, ensure};
use sluice_datapath::Settings;
use sluice_traffic::Profile;
use sluice_trafficgen::{Generator, Lane, Plan, Trial};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The experiment.
pub struct Jitter;

/// The rate of both sides together, thousand packets a second: well below what a PMD carries, and near it.
const LOAD: &str = "kpps";
const LOADS: [f64; 2] = [500.0, 2000.0];
const AT: [&str; 2] = [FLOWS, LOAD];

/// Bytes of a frame without its checksum.
const FRAME: usize = 60;
/// Before a measurement: for connections to come about and caches to fill.
const WARMUP: [Duration; 2] = [Duration::from_millis(500), Duration::from_millis(1500)];

/// What is measured, µs: what half of the packets do not exceed, 99 of 100, 999 of 1000; and how far apart the first two are.
const P50: &str = "p50_us";
const P99: &str = "p99_us";
const P99_9: &str = "p99_9_us";
const JITTER: &str = "jitter_us";
/// Packets lost, percent.
const LOST: &str = "lost_percent";

impl Experiment for Jitter {
    fn name(&self) -> &'static str {
        "jitter"
    }

    fn about(&self) -> &'static str {
        "How late are packets, and how unevenly, under each policy for the exact match cache?"
    }

    fn bound(&self) -> Bound {
        Bound::OffLast
    }

    fn run(&self, lab: &mut Lab) -> Result<Findings> {
        let streams: &[f64] = lab.size.pick(&[4e3], &[1e3, 10e3, 30e3]);
        let loads: &[f64] = lab.size.pick(&LOADS[..1], &LOADS);
        let places = streams.iter().flat_map(|flows| loads.iter().map(|load| place([(FLOWS, *flows), (LOAD, *load)])));
        let warmup = lab.size.pick(WARMUP[0], WARMUP[1]);
        let set_up = |at: &Place, arm: usize| -> Result<Ready> {
            let settings = SETTINGS[arm].settings()?;
            Ok(Ready::Subject(Box::new(Loaded { at: at.clone(), settings, warmup })))
        };
        let grid = Grid {
            places: places.collect(),
            arms: names().into_iter().map(str::to_owned).collect(),
            set_up: &set_up,
            figure: P50,
            rounds: [1, 5],
            span: [Duration::from_millis(200), Duration::from_millis(500)],
        };
        let points = grid.run(lab);
        let table = |title: &str, figure: &str| table_of(title, &points, &AT, &names(), figure);
        Ok(Findings {
            tables: vec![
                summary(&points),
                table("What half of the packets do not exceed, µs: median (least–most)", P50),
                table("99 of 100, µs", P99),
                table("999 of 1000, µs", P99_9),
                table("Jitter: from the first to the second, µs", JITTER),
                table("Lost, percent", LOST),
            ],
            figures: Vec::new(),
            notes: vec![
                "The firewall of \"recirc\", both sides, at a fixed rate: packets come by the clock into rings of 2048, a PMD on \
                 the last core takes them, and a packet's time is from when it was due to when it was sent. Each measurement is a \
                 new switch, warmed at the same rate. Jitter is the distance of the 99th percentile from the median."
                    .to_owned(),
                switch::ALONE_NOTE.to_owned(),
                "Every packet came in order to the port where it should; what the rings lost is in the last table. What the \
                 host takes of the core is in the last percentiles of all."
                    .to_owned(),
            ],
            points,
        })
    }

    fn losses(&self, points: &[Point]) -> Vec<Loss> {
        let names = names();
        let forced: Vec<&str> = names[..names.len() - 2].to_vec();
        behind(points, names[names.len() - 1], &forced, P99)
    }
}

/// A switch that is started for each measurement.
struct Loaded {
    at: Place,
    settings: Settings,
    warmup: Duration,
}

impl Loaded {
    fn plan(&self) -> Result<Plan> {
        let (client, servers) = ("10.10.10.10".to_owned(), servers(self.at[FLOWS] as u64));
        let lane = |name: &str, ports: [usize; 2], src: &str, dst: &str, seed: &str| -> Result<Lane> {
            let mut profile = Profile { frame_size: FRAME, ..Profile::default() };
            for (key, value) in [("src", src), ("dst", dst), ("sport", "63"), ("dport", "63"), ("seed", seed)] {
                profile.set(key, value).context("a key of a profile")??;
            }
            Ok(Lane::made(name, ports, self.rate() / 2.0, &profile)?)
        };
        let there = lane("there", [0, 1], &client, &servers, "1")?;
        Ok(Plan { lanes: vec![there, lane("back", [1, 0], &servers, &client, "2")?], ports: 2 })
    }

    /// Packets a second.
    fn rate(&self) -> f64 {
        self.at[LOAD] * 1e3
    }
}

impl Subject for Loaded {
    fn measure(&mut self, span: Duration) -> Result<Sample> {
        let (mut generator, _switch) = switch::start_alone(&self.plan()?, RULES, self.settings)?;
        let stop = AtomicBool::new(false);
        let trial = |duration, is_warmup| Trial { rate_pps: self.rate(), duration, is_warmup };
        generator.run(&trial(self.warmup, true), &stop)?;
        let figures = generator.run(&trial(span, false), &stop)?;
        let outcome = figures.outcome();
        let astray: u64 = figures.lanes.iter().map(|lane| lane.astray + lane.out_of_order).sum();
        ensure!(astray == 0, "{astray} packets came astray or out of order");
        let latencies = figures.latencies.context("times of packets")?;
        let us = |share| latencies.quantile(share) as f64 / 1e3;
        let (p50, p99) = (us(0.5), us(0.99));
        let lost = 100.0 * outcome.loss();
        let figures = [(P50, p50), (P99, p99), (P99_9, us(0.999)), (JITTER, p99 - p50), (LOST, lost)];
        Ok(Sample(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
    }
}

/// A row a policy: whether a deterministic choice is better for latency and jitter.
fn summary(points: &[Point]) -> Table {
    let cells = |point: &Point, arm: &str| {
        let of = |figure| point.figure(arm, figure).map_or("n/a".to_owned(), |stat| text::number(stat.median));
        format!("{} / {} / {}", of(P50), of(P99), of(JITTER))
    };
    let row =
        |arm: &&str| [(*arm).to_owned()].into_iter().chain(points.iter().map(|point| cells(point, arm))).collect();
    let head = |point: &Point| {
        let spread = verdict::spread(point.same_twice.as_ref());
        format!("{} (spread {spread:.2})", crate::grid::name_of(&point.at))
    };
    Table {
        title: "p50 / p99 / jitter by policy, µs; the spread is that of \"always\" measured twice".to_owned(),
        columns: ["policy".to_owned()].into_iter().chain(points.iter().map(head)).collect(),
        rows: names().iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_its_figures() {
        let at = place([(FLOWS, 50.0), (LOAD, 20.0)]);
        for setting in [SETTINGS[0], SETTINGS[SETTINGS.len() - 1]] {
            let mut loaded =
                Loaded { at: at.clone(), settings: setting.settings().unwrap(), warmup: Duration::from_millis(100) };
            let sample = loaded.measure(Duration::from_millis(50)).unwrap();
            assert!(sample.0[P99] >= sample.0[P50] && sample.0[P50] > 0.0, "{sample:?}");
        }
    }
}
