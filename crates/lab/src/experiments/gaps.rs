//! The longest gap between two polls of a PMD that the switch itself causes, while its control threads have much to do.
//!
//! Unlike in other experiments the whole switch runs: tables, revalidator, reconfiguration.

use crate::cores::{self, Bound};
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, Subject, place};
use crate::lab::Lab;
use crate::loss::{Loss, denied};
use crate::probe::{Asking, Probe};
use crate::record::{Findings, Point, Table};
use crate::rig::{Sample, rules_from};
use crate::text;
use anyhow::{Result, anyhow, ensure};
use sluice_action::PortNo;
use sluice_datapath::PortPolling;
use sluice_flow::PortNames;
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::PortConfig;
use sluice_traffic::{Choice, Profile};
use sluice_vswitch::{Bridge, DesiredState, Port, Sources, Switch};
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The experiment.
pub struct Gaps;

const RULES: &str = "rules";

/// The longest gap in which the thread lost no time, microseconds.
const LONGEST: &str = "longest_us";
/// The gap that one of a million does not exceed.
const MOST: &str = "p99_9999_us";
/// Gaps left out because the PMD was kept from running.
const INTERRUPTED: &str = "interrupted";
/// Gaps left out because its core was slow.
const SLOWED: &str = "slowed";
/// How long the disturbance lasted, milliseconds.
const TOOK: &str = "took_ms";

/// The longest gap that is promised while rules change, and while anything else does; microseconds.
const RULES_MAX_US: f64 = 100.0;
const OTHER_MAX_US: f64 = 1000.0;

const BRIDGE: &str = "br0";
/// Ports of the probe have these numbers in the datapath, which no other port gets.
const PROBE_PORTS: u32 = 1000;
const TICK_EVERY: Duration = Duration::from_millis(10);
/// How long rules live that are to expire.
const EXPIRE_AFTER_S: u32 = 1;
const EXPIRY_PATIENCE: Duration = Duration::from_secs(60);
/// For how long gaps count after the disturbance.
const AFTERMATH: Duration = Duration::from_millis(300);
const CLIENTS: usize = 10;
/// Flows of the traffic; each is a megaflow.
const FLOWS: u32 = 1000;
/// Flows of which each packet teaches a rule, as many as effects are taken in a few ticks.
const TEACHERS: u32 = 40_000;

/// What disturbs the PMD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disturbance {
    Idle,
    Deleted,
    Expired,
    Replaced,
    Learned,
    Bridges,
    Ports,
    Snapshots,
    Pmds,
}

const ALL: [Disturbance; 9] = [
    Disturbance::Idle,
    Disturbance::Deleted,
    Disturbance::Expired,
    Disturbance::Replaced,
    Disturbance::Learned,
    Disturbance::Bridges,
    Disturbance::Ports,
    Disturbance::Snapshots,
    Disturbance::Pmds,
];

impl Disturbance {
    fn name(self) -> &'static str {
        match self {
            Disturbance::Idle => "nothing",
            Disturbance::Deleted => "rules deleted",
            Disturbance::Expired => "rules expire",
            Disturbance::Replaced => "rules replaced",
            Disturbance::Learned => "rules learned",
            Disturbance::Bridges => "bridges come and go",
            Disturbance::Ports => "ports come and go",
            Disturbance::Snapshots => "ten clients read all",
            Disturbance::Pmds => "PMDs come and go",
        }
    }

    fn limit_us(self) -> f64 {
        match self {
            Disturbance::Deleted | Disturbance::Expired | Disturbance::Replaced => RULES_MAX_US,
            _ => OTHER_MAX_US,
        }
    }

    fn rules(self, rules: u32) -> String {
        let first = match self {
            Disturbance::Learned => {
                "table=0,priority=10,udp,actions=learn(table=2,dl_type=0x800,NXM_OF_IP_DST[]),output:2\n"
            }
            _ => "table=0,priority=10,udp,actions=move:NXM_OF_IP_DST[]->NXM_NX_REG0[],resubmit(,1)\n",
        };
        let mut text = first.to_owned() + "table=1,priority=9,udp,actions=output:2\n";
        let timeout =
            if self == Disturbance::Expired { format!("hard_timeout={EXPIRE_AFTER_S},") } else { String::new() };
        for number in 0..rules {
            let address = Ipv4Addr::from(0x1400_0000 + number);
            let port = number % 8;
            _ = writeln!(text, "table=1,{timeout}priority=10,udp,nw_dst={address},tp_dst={port},actions=output:2");
        }
        text
    }
}

impl Experiment for Gaps {
    fn name(&self) -> &'static str {
        "gaps"
    }

    fn about(&self) -> &'static str {
        "How long does a PMD go without polling while its control threads work?"
    }

    fn bound(&self) -> Bound {
        Bound::OffLast
    }

    fn run(&self, lab: &mut Lab) -> Result<Findings> {
        let rules: &[f64] = lab.size.pick(&[2e3], &[1e6]);
        let set_up = |at: &Place, arm: usize| -> Result<Ready> {
            Ok(Ready::Subject(Box::new(Scene { rules: at[RULES] as u32, disturbance: ALL[arm] })))
        };
        let grid = Grid {
            places: rules.iter().map(|rules| place([(RULES, *rules)])).collect(),
            arms: ALL.map(|disturbance| disturbance.name().to_owned()).to_vec(),
            set_up: &set_up,
            figure: LONGEST,
            rounds: [1, 5],
            span: [Duration::from_millis(100), Duration::from_secs(2)],
        };
        let points = grid.run(lab);
        Ok(Findings {
            tables: vec![verdicts(&points)],
            figures: Vec::new(),
            notes: vec![
                "One PMD on a core of its own, which polls a port that always has packets of 1000 flows, each with its \
                 megaflow; with \"rules learned\" each packet of 40,000 flows teaches a rule. Interrupts on the PMD's core \
                 count."
                    .to_owned(),
                "A gap of more than 80 µs is left out if by the thread's own clock another thread, or the host, had its core \
                 within a millisecond before it or during it, or if behind it a loop of multiplications takes over three times as \
                 long as at best: the host slows cores down without saying so. Sleep of the thread counts."
                    .to_owned(),
            ],
            points,
        })
    }

    fn losses(&self, points: &[Point]) -> Vec<Loss> {
        denied(&verdicts(points), "passes", &["rules", "meanwhile"], &["longest gap, µs", "at most, µs"])
    }
}

/// A switch that is disturbed.
struct Scene {
    rules: u32,
    disturbance: Disturbance,
}

impl Subject for Scene {
    fn measure(&mut self, span: Duration) -> Result<Sample> {
        let rules = match self.disturbance {
            Disturbance::Learned => 0,
            _ => self.rules,
        };
        let flows = if self.disturbance == Disturbance::Learned { TEACHERS } else { FLOWS };
        let profile = Profile { flows: Some(flows), choice: Choice::Sequential, ..Profile::default() };
        let (probe, ports) = Probe::new(&profile, Asking::Always)?;
        let disturbed = Disturbed::start(&self.disturbance.rules(rules), ports)?;
        if self.disturbance != Disturbance::Learned {
            disturbed.wait_for_megaflows(FLOWS as usize)?;
        }
        probe.take_iterations();
        let began = Instant::now();
        disturbed.disturb(self.disturbance, span)?;
        let took = began.elapsed();
        // What megaflows depended on is translated again after the reply.
        std::thread::sleep(AFTERMATH);
        let iterations = probe.take_iterations();
        let us = |share| iterations.times.quantile(share) as f64 / 1e3;
        let figures = [
            (LONGEST, us(1.0)),
            (MOST, us(0.999_999)),
            (INTERRUPTED, iterations.interrupted as f64),
            (SLOWED, iterations.slowed as f64),
            (TOOK, took.as_secs_f64() * 1e3),
        ];
        Ok(Sample(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
    }
}

/// A whole switch with its main loop's work.
struct Disturbed {
    switch: Arc<Switch>,
    state: DesiredState,
    ends: Arc<AtomicBool>,
    ticks: Option<JoinHandle<()>>,
}

impl Disturbed {
    fn start(rules: &str, ports: crate::switch::Ports) -> Result<Self> {
        let Sources { rules, .. } = rules_from(rules);
        // No prefixes, so that a rule's change leaves the megaflows of others alone only by what they depend on.
        let bridge = Bridge { sources: Sources { rules, ..Sources::default() }, ..Bridge::new(BRIDGE) };
        let state = DesiredState { pmd_cores: vec![cores::last()], bridges: vec![bridge], ..DesiredState::default() };
        let switch = Switch::prepare(&state)?;
        for (number, port) in (1..).zip(ports) {
            let datapath = PortNo(PROBE_PORTS + u32::from(number));
            let name = format!("probe{number}");
            // Where PMDs come and go, the queue stays with its own: measured is the PMD, not how queues are handed over.
            let polling = PortPolling { name: &name, affinity: &[(0, cores::last())].into() };
            switch.datapath().add_port_polled(datapath, port, &polling)?;
            switch.ofproto().add_port(BRIDGE, PortConfig::new(&name, number, datapath))?;
        }
        switch.start()?;
        let ends = Arc::new(AtomicBool::new(false));
        let ticks = std::thread::spawn({
            let (switch, ends) = (Arc::clone(&switch), Arc::clone(&ends));
            move || {
                while !ends.load(Relaxed) {
                    switch.tick();
                    std::thread::sleep(TICK_EVERY);
                }
            }
        });
        Ok(Disturbed { switch, state, ends, ticks: Some(ticks) })
    }

    fn wait_for_megaflows(&self, flows: usize) -> Result<()> {
        let until = Instant::now() + EXPIRY_PATIENCE;
        while self.switch.datapath().store().len() < flows {
            ensure!(Instant::now() < until, "{} of {flows} megaflows", self.switch.datapath().store().len());
            std::thread::sleep(TICK_EVERY);
        }
        Ok(())
    }

    fn disturb(&self, disturbance: Disturbance, span: Duration) -> Result<()> {
        match disturbance {
            Disturbance::Idle | Disturbance::Learned => std::thread::sleep(span),
            Disturbance::Deleted => self.change(FlowCommand::Delete, "table=1,udp")?,
            Disturbance::Replaced => self.change(FlowCommand::Modify, "table=1,udp,actions=output:3")?,
            Disturbance::Expired => self.wait_for_expiry()?,
            Disturbance::Bridges => self.repeat(span, |round| self.bridges(round))?,
            Disturbance::Ports => self.repeat(span, |round| self.ports(round))?,
            Disturbance::Pmds => self.repeat(span, |round| self.pmds(round))?,
            Disturbance::Snapshots => self.snapshots(span)?,
        }
        Ok(())
    }

    fn change(&self, command: FlowCommand, text: &str) -> Result<()> {
        let change = FlowMod::parse(text, command, &PortNames::NONE).map_err(|error| anyhow!("{text}: {error}"))?;
        self.switch.ofproto().flow_mod(BRIDGE, &change, self.switch.now_ms())?;
        self.switch.request_revalidation();
        Ok(())
    }

    fn wait_for_expiry(&self) -> Result<()> {
        let until = Instant::now() + EXPIRY_PATIENCE;
        while self.rules()? > 2 {
            ensure!(Instant::now() < until, "{} rules did not expire", self.rules()?);
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// How many rules table 0 and 1 hold.
    fn rules(&self) -> Result<usize> {
        let tables = self.switch.ofproto().table_stats(BRIDGE)?;
        Ok(tables.iter().map(|table| table.rules).sum())
    }

    fn repeat(&self, span: Duration, mut step: impl FnMut(u16) -> Result<()>) -> Result<()> {
        let began = Instant::now();
        for round in 0.. {
            step(round)?;
            if began.elapsed() >= span {
                break;
            }
        }
        Ok(())
    }

    fn bridges(&self, round: u16) -> Result<()> {
        let mut desired = self.state.clone();
        if round.is_multiple_of(2) {
            let ports = (1..=3).map(|n| Port::new(&format!("b{n}"), "null").numbered(n)).collect();
            desired.bridges.push(Bridge { ports, ..Bridge::new("br1") });
        }
        self.reconfigure(&desired)
    }

    fn ports(&self, round: u16) -> Result<()> {
        if round.is_multiple_of(2) {
            self.switch.add_port(BRIDGE, &Port::new("comes", "null").numbered(9))?;
        } else {
            self.switch.remove_port(BRIDGE, "comes")?;
        }
        Ok(())
    }

    fn pmds(&self, round: u16) -> Result<()> {
        let mut desired = self.state.clone();
        if round.is_multiple_of(2) {
            desired.pmd_cores = (0..cores::count()).collect();
        }
        self.reconfigure(&desired)
    }

    fn reconfigure(&self, desired: &DesiredState) -> Result<()> {
        let failed = self.switch.reconfigure(desired)?.into_iter().find_map(|outcome| outcome.error);
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Clients that read rules, megaflows and counters, one after the other, for so long.
    fn snapshots(&self, span: Duration) -> Result<()> {
        let began = Instant::now();
        let read = || -> Result<()> {
            while began.elapsed() < span {
                self.switch.ofproto().rules(BRIDGE, &FlowMod::new(FlowCommand::Delete))?;
                self.switch.datapath().flows();
                self.switch.datapath().pmds();
                self.switch.datapath().ports();
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(read)).collect();
            clients.into_iter().try_for_each(|client| client.join().map_err(|_| anyhow!("a client panicked"))?)
        })
    }
}

impl Drop for Disturbed {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        if let Some(ticks) = self.ticks.take() {
            let _ = ticks.join();
        }
        self.switch.stop();
    }
}

/// The longest gap under each disturbance, and whether it is as short as promised.
fn verdicts(points: &[Point]) -> Table {
    let rows = points.iter().flat_map(|point| {
        ALL.iter().map(move |disturbance| {
            let longest = point.figure(disturbance.name(), LONGEST);
            // Every repetition counts.
            let passes = longest.is_some_and(|stat| stat.max <= disturbance.limit_us());
            let shown = [LONGEST, MOST, INTERRUPTED, SLOWED, TOOK]
                .map(|figure| text::stat(point.figure(disturbance.name(), figure)));
            let [longest, most, interrupted, slowed, took] = shown;
            vec![
                text::count(point.at(RULES)),
                disturbance.name().to_owned(),
                longest,
                disturbance.limit_us().to_string(),
                most,
                interrupted,
                slowed,
                took,
                if passes { "yes" } else { "no" }.to_owned(),
            ]
        })
    });
    let columns = [
        "rules",
        "meanwhile",
        "longest gap, µs",
        "at most, µs",
        "all but one of a million, µs",
        "left out: interrupted",
        "left out: core slow",
        "took, ms",
        "passes",
    ];
    Table {
        title: "The longest gap between two polls of a PMD; median over repetitions (least–most)".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_disturbance_can_be_measured() {
        for disturbance in ALL {
            let mut scene = Scene { rules: 500, disturbance };
            let sample = scene.measure(Duration::from_millis(50)).unwrap();
            assert!(sample.0[LONGEST] > 0.0, "{disturbance:?}");
        }
    }
}
