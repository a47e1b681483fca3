//! A switch in the process whose flows come and go: for what it costs to set them up.
//!
//! Its clock is the traffic's: so many packets are a second, whatever they took. So megaflows come, idle out and are
//! removed at the same places in every run, the revalidator taking its turn between the PMD's; its cycles are not counted,
//! as it has a core of its own.

use crate::grid::Subject;
use crate::rig::{CYCLES, Sample};
use crate::switch::Ports;
use anyhow::{Result, anyhow, ensure};
use sluice_action::PortNo;
use sluice_datapath::{Config, Datapath, GovernorMode, Settings};
use sluice_fate::{Counter, Snapshot};
use sluice_flow::PortNames;
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{BridgeConfig, Ofproto, PortConfig};
use sluice_port::Pools;
use sluice_trafficgen::Connections;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What comes and goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Flows of so many packets each, from one port to another.
    Flows(u32),
    /// TCP connections: connect, request, response, close; between two ports.
    Connections,
}

/// A switch with its load.
pub struct Setups {
    ofproto: Ofproto,
    datapath: Datapath,
    load: Load,
    connections: Option<Connections>,
    /// Packets that have come before `now_ms` began to count from them.
    packets: u64,
    round_at_ms: u64,
}

const BRIDGE: &str = "br0";
/// Packets in a second of the clock, thousands.
const PACKETS_A_MS: u64 = 100;
/// How long an unused megaflow stays, and how often it is looked for such.
const IDLE_MS: u64 = 1000;
const ROUND_MS: u64 = 500;
/// Connections under way at a time; of the generator's flows it is 64.
const AT_ONCE: usize = 256;
/// Turns of the loop between looks at the clock.
const TURNS: usize = 16;
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
        let datapath = Datapath::new(config)?;
        let ofproto = Ofproto::new();
        datapath.set_upcalls(|_| Box::new(ofproto.upcall()));
        ofproto.set_store(datapath.store());
        ofproto.add_bridge(BridgeConfig::new(BRIDGE), 0)?;
        let (connections, ports) = ports(load)?;
        for (number, port) in (1..).zip(ports) {
            ofproto.add_port(BRIDGE, PortConfig::new(&format!("p{number}"), number, PortNo(number.into())))?;
            datapath.add_port(PortNo(number.into()), port)?;
        }
        let flows = FlowMod::parse_file(&RULES.replace("ALL", READS_ALL), &PortNames::NONE);
        ofproto.bundle(BRIDGE, &flows.map_err(|error| anyhow!("rules: {error}"))?, 0)?;
        datapath.store().make_room()?;
        let mut setups = Setups { ofproto, datapath, load, connections, packets: 0, round_at_ms: ROUND_MS };
        (0..seconds * 1000 / ROUND_MS).for_each(|_| setups.round());
        setups.check()?;
        Ok(setups)
    }

    /// Lets it run until the revalidator has taken its turn.
    fn round(&mut self) {
        while self.now_ms() < self.round_at_ms {
            self.datapath.run_turns(TURNS, self.now_ms());
            self.packets = self.datapath.totals()[Counter::Received];
        }
        self.round_at_ms += ROUND_MS;
        self.ofproto.revalidate(&*self.datapath.store(), self.now_ms(), IDLE_MS);
    }

    fn now_ms(&self) -> u64 {
        self.packets / PACKETS_A_MS
    }

    /// Every packet sent, every one counted by a rule, every connection taken to its end in order.
    fn check(&self) -> Result<()> {
        let all = self.datapath.totals();
        all.conserved().map_err(|unbalanced| anyhow!("packets are not conserved: {unbalanced:?}"))?;
        ensure!(all[Counter::Received] == all[Counter::Sent], "packets were dropped");
        self.ofproto.revalidate(&*self.datapath.store(), self.now_ms(), IDLE_MS);
        let rules = self.ofproto.rules(BRIDGE, &FlowMod::new(FlowCommand::Delete))?;
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
    /// Whole rounds of the revalidator, until the time is over. As many as a megaflow lives go before, uncounted: another
    /// switch has had the processor's caches, or, if it is measured twice in a row, this one.
    fn measure(&mut self, span: Duration) -> Result<Sample> {
        (0..IDLE_MS / ROUND_MS).for_each(|_| self.round());
        let (before, done) = (self.datapath.totals(), self.done());
        let began = Instant::now();
        self.round();
        while began.elapsed() < span {
            self.round();
        }
        self.check()?;
        let counted = self.datapath.totals().since(&before);
        let transactions = self.transactions(&counted, self.done() - done).max(1.0);
        let cycles = (counted[Counter::BusyCycles] + counted[Counter::IdleCycles]) as f64;
        let installed = counted[Counter::MegaflowsInstalled] as f64;
        let figures = [
            (CYCLES, cycles / transactions),
            (KTPS, sluice_datapath::tsc_hz() as f64 / (cycles / transactions) / 1e3),
            (SET_UP, 100.0 * installed / transactions),
        ];
        Ok(Sample(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
    }
}

/// The ports of a load.
fn ports(load: Load) -> Result<(Option<Connections>, Ports)> {
    let mut pools = Pools::default();
    let Load::Flows(packets) = load else {
        let pool: std::sync::Arc<dyn sluice_mem::FramePool> = pools.of_size(1514)?;
        let (connections, ports) = Connections::new(AT_ONCE, &pool);
        return Ok((Some(connections), ports.into()));
    };
    let profile = [("flows", "16M"), ("protocol", "tcp"), ("choice", &format!("short:{packets}"))];
    let options: BTreeMap<String, String> = profile.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let mut open = |kind: &str, options| {
        let config = sluice_port::PortConfig {
            name: kind.into(),
            kind: kind.into(),
            options,
            ..sluice_port::PortConfig::default()
        };
        sluice_port::open(&config, &mut pools)
    };
    Ok((None, vec![open("generator", options)?, open("null", BTreeMap::new())?]))
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
