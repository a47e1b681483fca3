//! A switch in the process that runs as a switch does: a PMD thread on a core of its own.

use crate::rig::rules_from;
use crate::{core_share, cores};
use anyhow::{Context, Result, anyhow};
use sluice_datapath::{Config, Datapath, GovernorMode, MissBudget, Settings};
use sluice_flow::PortNames;
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::Ofproto;
use sluice_port::Pools;
use sluice_trafficgen::{InProcess, Pauses, Plan};
use sluice_vswitch::{Assembly, Bridge, Port};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Ports to give to a switch, in the order of their numbers.
pub type Ports = Vec<Box<dyn sluice_port::Port>>;

const BRIDGE: &str = "br0";

/// What reports say about a generator of [`start_alone`].
pub const ALONE_NOTE: &str = "While another machine computes on the PMD's core, told by the time that independent rotations take, \
    the generator's clock stands still: no packet arrives, and those that wait are taken. The PMD looks every 20 µs, \
    which takes 1 or 2 % of its time.";

/// A switch that runs until it is dropped.
pub struct Running {
    assembly: Assembly,
    revalidator: Option<JoinHandle<()>>,
    ends: Arc<AtomicBool>,
}

/// How often the revalidator takes its turn, how often it looks whether to end, and how long an unused megaflow stays:
/// as the switch does it.
const ROUND_EVERY: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const MAX_IDLE_MS: u64 = 10_000;
/// Megaflows that it may have: those of 256 MiB.
const MEGAFLOWS: u32 = 1 << 19;

/// Starts a switch with `rules` whose ports are those of the plan, numbered from 1.
///
/// # Errors
/// If the rules are wrong, or there is no memory or thread.
pub fn start(plan: &Plan, rules: &str) -> Result<(InProcess, Running)> {
    start_with(plan, rules, Settings::default())
}

/// The same with these settings of the lookup.
///
/// # Errors
/// As [`start`].
pub fn start_with(plan: &Plan, rules: &str, settings: Settings) -> Result<(InProcess, Running)> {
    start_pausing(plan, rules, settings, None)
}

/// The same with a generator whose clock stands still while the PMD shares its core with another machine.
///
/// # Errors
/// As [`start`].
pub fn start_alone(plan: &Plan, rules: &str, settings: Settings) -> Result<(InProcess, Running)> {
    start_pausing(plan, rules, settings, Some(Box::new(core_share::is_shared)))
}

fn start_pausing(plan: &Plan, rules: &str, settings: Settings, pauses: Option<Pauses>) -> Result<(InProcess, Running)> {
    let pool: Arc<dyn sluice_mem::FramePool> = Pools::default().of_size(plan.longest())?;
    let (generator, ports) = InProcess::with_pauses(plan, &pool, pauses);
    Ok((generator, run_with(ports, rules, settings)?))
}

/// Starts a switch with `rules` and those ports, numbered from 1, that does what `sluice run` does unless told
/// otherwise.
///
/// # Errors
/// As [`start`].
pub fn run(ports: Ports, rules: &str) -> Result<Running> {
    run_with(ports, rules, Settings::default())
}

fn run_with(ports: Ports, rules: &str, settings: Settings) -> Result<Running> {
    // The last core, where the fewest interrupts are.
    let core = cores::last();
    let config = Config {
        cores: vec![core],
        settings,
        governor: GovernorMode::Auto,
        miss_budget: MissBudget::Auto,
        max_idle_ms: MAX_IDLE_MS,
        max_megaflows: MEGAFLOWS,
        ..Config::default()
    };
    let mut assembly = Assembly::new(config, Pools::default())?;
    let now_ms = sluice_clock::now_ms();
    assembly.create_bridge(&Bridge::new(BRIDGE), now_ms)?;
    for (number, port) in (1..).zip(ports) {
        let desired = Port::new(&format!("p{number}"), port.info().kind).numbered(number);
        assembly.attach_port(BRIDGE, &desired, port)?;
    }
    assembly.load_sources(BRIDGE, &rules_from(rules), now_ms)?;
    for unpinned in assembly.datapath().start()? {
        eprintln!("the PMD is not bound to core {core}: {}", unpinned.source);
    }
    let ends = Arc::new(AtomicBool::new(false));
    let revalidator = std::thread::Builder::new().name("revalidator".into()).spawn({
        let (datapath, ofproto) = (Arc::clone(assembly.datapath()), assembly.ofproto().clone());
        let ends = Arc::clone(&ends);
        move || revalidate(&datapath, &ofproto, &ends)
    })?;
    Ok(Running { assembly, revalidator: Some(revalidator), ends })
}

/// The revalidator's thread, which also does what a switch's other control threads do for packets.
fn revalidate(datapath: &Datapath, ofproto: &Ofproto, ends: &AtomicBool) {
    let store = datapath.store();
    let mut next = Instant::now();
    while !ends.load(Relaxed) {
        if Instant::now() >= next {
            next = Instant::now() + ROUND_EVERY;
            ofproto.revalidate(&*store, sluice_clock::now_ms(), MAX_IDLE_MS);
            // Without memory ahead a megaflow takes a little longer.
            let _ = store.make_room();
        }
        datapath.service(sluice_clock::now_ms());
        std::thread::sleep(LOOK_EVERY);
    }
}

impl Running {
    /// What its PMD has counted.
    pub fn totals(&self) -> sluice_fate::Snapshot {
        self.assembly.datapath().totals()
    }

    /// Megaflows it has.
    pub fn megaflows(&self) -> usize {
        self.assembly.datapath().store().len()
    }

    /// Limits the connections of a zone.
    pub fn limit_zone(&self, zone: u16, connections: u32) {
        self.assembly.datapath().conntrack().set_zone_limit(Some(zone), connections);
    }

    /// Connections of a zone that has a limit.
    pub fn connections_of(&self, zone: u16) -> u32 {
        self.assembly.datapath().conntrack().zone_limit(zone).map_or(0, |limit| limit.count)
    }

    /// Changes its rules, as `ovs-ofctl` would.
    ///
    /// # Errors
    /// If the text is wrong.
    pub fn change(&self, command: FlowCommand, text: &str) -> Result<()> {
        let change = FlowMod::parse(text, command, &PortNames::NONE).map_err(|error| anyhow!("{text}: {error}"))?;
        self.assembly.ofproto().flow_mod(BRIDGE, &change, sluice_clock::now_ms())?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        if let Some(revalidator) = self.revalidator.take() {
            let _ = revalidator.join();
        }
        self.assembly.datapath().stop();
    }
}

/// Rules by which the ports of each pair send to each other.
pub fn pairs(ports: usize) -> String {
    (0..ports).fold(String::new(), |mut rules, port| {
        let _ = writeln!(rules, "in_port={},ip,actions=output:{}", port + 1, (port ^ 1) + 1);
        rules
    })
}

/// Opens a port written as `TYPE:DEVICE`.
///
/// # Errors
/// If it is written otherwise, or cannot be opened.
pub fn open(text: &str, plan: &Plan, pools: &mut Pools) -> Result<Box<dyn sluice_port::Port>> {
    let (kind, device) =
        text.split_once(':').with_context(|| format!("port {text}: expected TYPE:DEVICE, such as af_packet:veth0"))?;
    let config = sluice_port::PortConfig {
        name: device.to_owned(),
        kind: kind.to_owned(),
        mtu: (plan.longest() as u32).max(1500),
        options: [("device".to_owned(), device.to_owned())].into(),
        ..sluice_port::PortConfig::default()
    };
    Ok(sluice_port::open(&config, pools)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_datapath::Level;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn its_caches_get_the_memory_that_they_ask_for() -> Result<()> {
        let port = |kind: &str, options: &[(&str, &str)]| {
            let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let config = sluice_port::PortConfig { kind: kind.to_owned(), options, ..Default::default() };
            sluice_port::open(&config, &mut Pools::default())
        };
        let ports: Ports = vec![port("generator", &[("flows", "8M")])?, port("null", &[])?];
        let settings = Settings { emc: Level::Off, smc: Level::On, distributor: Level::Off, ..Settings::default() };
        let switch = run_with(ports, "actions=output:2\n", settings)?;
        let resident = || switch.assembly.datapath().cache_pages().iter().map(|cache| cache.resident).sum::<usize>();
        let (at_first, began) = (resident(), Instant::now());
        while resident() <= at_first {
            assert!(began.elapsed() < PATIENCE, "the SMC has {at_first} bytes as at first");
            std::thread::yield_now();
        }
        Ok(())
    }
}
