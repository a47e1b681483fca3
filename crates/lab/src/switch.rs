//! A switch in the process that runs as a switch does: a PMD thread on a core of its own.

use anyhow::{Context, Result, anyhow};
use sluice_action::PortNo;
use sluice_datapath::{Config, Datapath};
use sluice_flow::{FlowMod, PortNames};
use sluice_ofproto::{BridgeConfig, Ofproto, PortConfig};
use sluice_port::{Pools, Port};
use sluice_trafficgen::{InProcess, Plan};
use std::fmt::Write;

const BRIDGE: &str = "br0";

/// A switch that runs until it is dropped.
pub struct Running {
    datapath: Datapath,
    _ofproto: Ofproto,
}

/// Starts a switch with `rules` whose ports are those of the plan, numbered from 1.
///
/// # Errors
/// If the rules are wrong, or there is no memory or thread.
pub fn start(plan: &Plan, rules: &str) -> Result<(InProcess, Running)> {
    // The last core, where the fewest interrupts are.
    let core = std::thread::available_parallelism().map_or(1, usize::from) - 1;
    let datapath = Datapath::new(Config { cores: vec![core], ..Config::default() })?;
    let ofproto = Ofproto::new();
    datapath.set_upcalls(|_| Box::new(ofproto.upcall()));
    ofproto.set_store(datapath.store());
    ofproto.add_bridge(BridgeConfig::new(BRIDGE), sluice_datapath::now_ms())?;
    let pool: std::sync::Arc<dyn sluice_mem::FramePool> = Pools::default().of_size(plan.longest())?;
    let (generator, ports) = InProcess::new(plan, &pool);
    for (number, port) in (1..).zip(ports) {
        ofproto.add_port(BRIDGE, PortConfig::new(&format!("p{number}"), number, PortNo(number.into())))?;
        datapath.add_port(PortNo(number.into()), port)?;
    }
    let flows = FlowMod::parse_file(rules, &PortNames::NONE).map_err(|error| anyhow!("rules: {error}"))?;
    ofproto.bundle(BRIDGE, &flows, sluice_datapath::now_ms())?;
    for unpinned in datapath.start()? {
        eprintln!("the PMD is not bound to core {core}: {}", unpinned.source);
    }
    Ok((generator, Running { datapath, _ofproto: ofproto }))
}

impl Drop for Running {
    fn drop(&mut self) {
        self.datapath.stop();
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
pub fn open(text: &str, plan: &Plan, pools: &mut Pools) -> Result<Box<dyn Port>> {
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
