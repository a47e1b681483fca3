//! A switch in the process whose flows come and go: for what it costs to set them up.
//!
//! Its clock is the traffic's: a second is a fixed number of packets, however long they took. So megaflows come, idle
//! out and are removed at the same places in every run, the revalidator taking its turn between the PMD's; its cycles
//! are not counted, as it has a core of its own.

use crate::core_share::{Lasting, Slices};
use crate::grid::Subject;
use crate::rig::{CORE_SHARED, CYCLES, Cost, Sample, rules_from};
use anyhow::{Result, anyhow, ensure};
use sluice_datapath::{Config, GovernorMode, Settings};
use sluice_fate::{Counter, Snapshot};
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_port::Pools;
use sluice_trafficgen::Connections;
use sluice_vswitch::{Assembly, Bridge, Port};
use std::time::Duration;

/// What comes and goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Flows of this many packets each, from one port to another.
    Flows(u32),
    /// TCP connections: connect, request, response, close; between two ports.
    Connections,
}

/// A switch with its load.
pub struct Setups {
    assembly: Assembly,
    load: Load,
    connections: Option<Connections>,
    /// Packets that have come before `now_ms` began to count from them.
    packets: u64,
    round_at_ms: u64,
    /// What was counted when the last slice ended.
    counted: Cost,
}

const BRIDGE: &str = "br0";
/// Packets in a second of the clock, thousands.
const PACKETS_A_MS: u64 = 100;
/// How long an unused megaflow stays, and how often it is looked for such.
const IDLE_MS: u64 = 1000;
const ROUND_MS: u64 = 500;
/// Connections under way at a time; of the generator's flows it is 64.
const AT_ONCE: usize = 256;
/// Turns of the loop in a slice, between looks at the clock: at most 128 packets, so 0.01 to 0.3 ms.
const TURNS: usize = 4;
/// Rules by which each connection is a megaflow: what is read is matched.
const RULES: &str = "in_port=1,tcp,actions=ALL,output:2\nin_port=2,tcp,actions=ALL,output:1\n";
const READS_ALL: &str = "move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],move:NXM_OF_IP_DST[]->NXM_NX_REG1[],\
    move:NXM_OF_TCP_SRC[]->NXM_NX_REG2[0..15],move:NXM_OF_TCP_DST[]->NXM_NX_REG3[0..15]";

/// Thousand transactions a second: flows or connections, by the PMD's cycles.
pub const KTPS: &str = "ktps";
/// Megaflows installed a transaction, percent.
pub const SET_UP: &str = "set_up_percent";

impl Setups {
    /// A switch with a governor of that mode, `seconds` of its clock old; its answers are checked.
    ///
    /// # Errors
    /// If it cannot be made, or an answer is wrong.
    pub fn new(load: Load, governor: GovernorMode, seconds: u64) -> Result<Setups> {
        let config =
            Config { settings: Settings::BARE, governor, max_idle_ms: IDLE_MS, seed: Some(1), ..Config::default() };
        let mut assembly = Assembly::new(config, Pools::default())?;
        assembly.create_bridge(&Bridge::new(BRIDGE), 0)?;
        let connections = add_ports(&mut assembly, load)?;
        assembly.load_sources(BRIDGE, &rules_from(&RULES.replace("ALL", READS_ALL)), 0)?;
        assembly.datapath().store().make_room()?;
        let mut setups =
            Setups { assembly, load, connections, packets: 0, round_at_ms: ROUND_MS, counted: Cost::default() };
        (0..seconds * 1000 / ROUND_MS).for_each(|_| setups.round(&mut Slices::of_mean()));
        setups.check()?;
        Ok(setups)
    }

    /// Lets it run, slice by slice, until the revalidator has taken its turn.
    fn round(&mut self, slices: &mut Slices<Cost>) {
        while self.now_ms() < self.round_at_ms {
            slices.run(|| {
                self.assembly.datapath().run_iterations(TURNS, self.now_ms());
                let all = self.assembly.datapath().totals();
                self.packets = all[Counter::Received];
                self.counted.replaced_by(Cost::of(&all))
            });
        }
        self.round_at_ms += ROUND_MS;
        self.assembly.ofproto().revalidate(&*self.assembly.datapath().store(), self.now_ms(), IDLE_MS);
    }

    fn now_ms(&self) -> u64 {
        self.packets / PACKETS_A_MS
    }

    /// Every packet sent, every one counted by a rule, every connection taken to its end in order.
    fn check(&self) -> Result<()> {
        let all = self.assembly.datapath().totals();
        all.conserved().map_err(|unbalanced| anyhow!("packets are not conserved: {unbalanced:?}"))?;
        ensure!(all[Counter::Received] == all[Counter::Sent], "packets were dropped");
        self.assembly.ofproto().revalidate(&*self.assembly.datapath().store(), self.now_ms(), IDLE_MS);
        let rules = self.assembly.ofproto().rules(BRIDGE, &FlowMod::new(FlowCommand::Delete))?;
        let carried: u64 = rules.iter().map(|entry| entry.rule.stats().packets).sum();
        ensure!(carried == all[Counter::Received], "of {} packets the rules count {carried}", all[Counter::Received]);
        if let Some(connections) = &self.connections {
            let astray = connections.transactions().astray;
            ensure!(astray == 0, "{astray} segments came lost, twice or out of order");
        }
        Ok(())
    }

    fn transactions(&self, counted: &Snapshot, done: u64) -> f64 {
        match self.load {
            Load::Flows(packets) => counted[Counter::Received] as f64 / f64::from(packets),
            Load::Connections => done as f64,
        }
    }

    fn done(&self) -> u64 {
        self.connections.as_ref().map_or(0, |connections| connections.transactions().done)
    }
}

impl Subject for Setups {
    /// Whole rounds of the revalidator, until the time is over; of their slices those count that had the core for themselves. As many as a megaflow lives go before, uncounted:
    /// another switch has had the processor's caches, or, if it is measured twice in a row, this one.
    fn measure(&mut self, span: Duration) -> Result<Sample> {
        (0..IDLE_MS / ROUND_MS).for_each(|_| self.round(&mut Slices::of_mean()));
        let (before, done) = (self.assembly.datapath().totals(), self.done());
        let (time, mut slices) = (Lasting::new(span), Slices::of_mean());
        self.round(&mut slices);
        while time.lasts(&slices) {
            self.round(&mut slices);
        }
        self.check()?;
        let counted = self.assembly.datapath().totals().since(&before);
        let transactions = self.transactions(&counted, self.done() - done).max(1.0);
        let packets = counted[Counter::Received] as f64 / transactions;
        let cycles = slices.counting().into_iter().sum::<Cost>().cycles_a_packet() * packets;
        let installed = counted[Counter::MegaflowsInstalled] as f64;
        let figures = [
            (CYCLES, cycles),
            (KTPS, sluice_datapath::tsc_hz() as f64 / cycles / 1e3),
            (SET_UP, 100.0 * installed / transactions),
            (CORE_SHARED, slices.shared_percent()),
        ];
        Ok(Sample(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
    }
}

/// Adds the ports of a load, numbered from 1; and its connections, if the load has any.
fn add_ports(assembly: &mut Assembly, load: Load) -> Result<Option<Connections>> {
    let Load::Flows(packets) = load else {
        let pool: std::sync::Arc<dyn sluice_mem::FramePool> = assembly.pool(1514)?;
        let (connections, ports) = Connections::new(AT_ONCE, &pool);
        for (number, port) in (1..).zip(ports) {
            let desired = Port::new(&format!("p{number}"), "memory").numbered(number);
            assembly.attach_port(BRIDGE, &desired, port)?;
        }
        return Ok(Some(connections));
    };
    let profile = [("flows", "16M"), ("protocol", "tcp"), ("choice", &format!("short:{packets}"))];
    let options = profile.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    assembly.add_port(BRIDGE, &Port { options, ..Port::new("p1", "generator").numbered(1) })?;
    assembly.add_port(BRIDGE, &Port::new("p2", "null").numbered(2))?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_is_carried_in_every_mode() {
        for load in [Load::Flows(1), Load::Flows(10), Load::Connections] {
            for mode in GovernorMode::ALL {
                let mut setups = Setups::new(load, mode, 1).unwrap();
                let sample = setups.measure(Duration::ZERO).unwrap();
                assert!(sample.0[KTPS] > 0.0);
                let is_set_up = sample.0[SET_UP] > 50.0;
                assert_eq!(is_set_up, mode == GovernorMode::Off || load != Load::Flows(1), "{load:?} {mode:?}");
            }
        }
    }
}
