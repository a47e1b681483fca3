//! Ports: opened, joined to their bridge and to the datapath; and taken away again.

use super::{Setup, Switch, lock};
use crate::config::{self, Config, PATCH};
use crate::text::datapath::PortLine;
use crate::text::pages;
use anyhow::{Context, Result, bail};
use sluice_action::{DatapathPortNames, PortNo};
use sluice_datapath::{Datapath, PortReport};
use sluice_flow::{OfPort, PortNames};
use sluice_mem::FramePool;
use sluice_ofproto::{Attach, Ofproto, PortConfig, VlanMode};
use sluice_port::Pools;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A port of a bridge.
#[derive(Clone, Debug)]
pub struct PortEntry {
    /// Its bridge.
    pub bridge: String,
    /// Its datapath number, unless it is a patch port.
    pub number: Option<PortNo>,
    /// As configured.
    pub config: config::Port,
    /// Whether its link was up when it was last looked at.
    is_up: bool,
    /// Why the datapath has not got it, if so.
    closed: Option<Closed>,
}

/// A port that could not be opened.
#[derive(Clone, Debug)]
struct Closed {
    why: String,
    /// When it is tried again, and how long after that; `None` if only another configuration helps.
    retry: Option<(Instant, Duration)>,
}

/// From one try to open a port to the next, at first and at most.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

impl Closed {
    fn new(error: &anyhow::Error) -> Self {
        let fault = error.downcast_ref::<sluice_port::OpenError>();
        let retry = fault.is_none_or(|e| !e.is_of_configuration()).then(|| (Instant::now() + RETRY_FIRST, RETRY_FIRST));
        Closed { why: format!("{error:#}"), retry }
    }

    fn is_due(&self) -> bool {
        self.retry.is_some_and(|(at, _)| at <= Instant::now())
    }

    /// Failed again.
    fn again(&mut self, error: &anyhow::Error) {
        let pause = self.retry.map_or(RETRY_FIRST, |(_, pause)| (pause * 2).min(RETRY_MAX));
        let why = format!("{error:#}");
        if why != self.why {
            tracing::error!("{why}");
        }
        *self = Closed { why, retry: Some((Instant::now() + pause, pause)) };
    }
}

impl Setup {
    /// Adds a port to a bridge: opens it, and makes it known to the tables and to the datapath.
    pub fn add_port(
        &mut self,
        ofproto: &Ofproto,
        datapath: &Datapath,
        bridge: &str,
        port: &config::Port,
    ) -> Result<()> {
        let number = self.announce_port(ofproto, bridge, port)?;
        let opened = number.map_or(Ok(()), |number| self.open_port(datapath, number, port));
        if opened.is_err() {
            self.ports.remove(&port.name);
            let _ = ofproto.remove_port(bridge, &port.name);
        }
        opened
    }

    /// The same for a configured port, which is there for rules to name even if it cannot be opened now: it is down
    /// until it can. The error is for the log; `Err` is for a port that cannot be at all.
    pub fn add_configured_port(
        &mut self,
        ofproto: &Ofproto,
        datapath: &Datapath,
        bridge: &str,
        port: &config::Port,
    ) -> Result<Option<anyhow::Error>> {
        let Some(number) = self.announce_port(ofproto, bridge, port)? else { return Ok(None) };
        let Err(error) = self.open_port(datapath, number, port) else { return Ok(None) };
        let entry = self.ports.get_mut(&port.name).expect("invariant: it was announced");
        (entry.is_up, entry.closed) = (false, Some(Closed::new(&error)));
        ofproto.set_port(bridge, &port.name, |port| port.up = false)?;
        Ok(Some(error))
    }

    /// Makes a port known to the tables; its datapath number, unless it is a patch port.
    fn announce_port(&mut self, ofproto: &Ofproto, bridge: &str, port: &config::Port) -> Result<Option<PortNo>> {
        if let Some(taken) = self.ports.get(&port.name) {
            bail!("port {}: bridge {} has one of that name already", port.name, taken.bridge);
        }
        let ofport =
            OfPort(u16::try_from(port.ofport).with_context(|| format!("port {}: number {}", port.name, port.ofport))?);
        let (number, known) = if port.kind == PATCH {
            (None, PortConfig::patch(&port.name, ofport.0, &text(&port.options["peer"])))
        } else {
            let number = self.free_number(port.ofport)?;
            (Some(number), PortConfig::new(&port.name, ofport.0, number))
        };
        ofproto.add_port(bridge, tables_view(port, known))?;
        let entry = PortEntry { bridge: bridge.into(), number, config: port.clone(), is_up: true, closed: None };
        self.ports.insert(port.name.clone(), entry);
        tracing::info!("bridge {bridge}: added port {} of type {}, number {}", port.name, port.kind, port.ofport);
        Ok(number)
    }

    /// Opens a port and gives it to the datapath.
    fn open_port(&mut self, datapath: &Datapath, number: PortNo, port: &config::Port) -> Result<()> {
        let affinity = self.affinity(port);
        let mut pools = lock(&self.pools);
        let before = pools.iter().count();
        let opened = sluice_port::open(&port_crate_view(&self.config, port), &mut pools)?;
        if pools.iter().count() > before {
            log_pools(&pools);
        }
        drop(pools);
        opened.notes().iter().for_each(|note| tracing::warn!("port {}: {note}", port.name));
        datapath.add_port_pinned(number, opened, &affinity).with_context(|| format!("port {}", port.name))
    }

    /// Which PMD each pinned queue of a port goes to.
    fn affinity(&self, port: &config::Port) -> BTreeMap<usize, usize> {
        let cores = &self.config.switch.pmd_cores;
        let pmd_of = |core| cores.iter().position(|c| c == core);
        port.pmd_rxq_affinity.0.iter().filter_map(|(queue, core)| Some((*queue, pmd_of(core)?))).collect()
    }

    /// Tries again to open the ports that could not be, if it is time.
    fn reopen_ports(&mut self, datapath: &Datapath) {
        let due = self.ports.iter().filter(|(_, entry)| entry.closed.as_ref().is_some_and(Closed::is_due));
        let due: Vec<_> = due.filter_map(|(_, entry)| Some((entry.number?, entry.config.clone()))).collect();
        for (number, port) in due {
            let done = self.open_port(datapath, number, &port);
            let Some(entry) = self.ports.get_mut(&port.name) else { continue };
            match (done, &mut entry.closed) {
                (Err(error), Some(closed)) => closed.again(&error),
                _ => {
                    tracing::info!("bridge {}: port {} could be opened now", entry.bridge, port.name);
                    entry.closed = None;
                }
            }
        }
    }

    /// Adds a bridge's own port: a tap device named like the bridge, or nothing that packets could go to.
    pub fn add_local_port(&mut self, ofproto: &Ofproto, datapath: &Datapath, bridge: &config::Bridge) -> Result<()> {
        if !bridge.local {
            let nothing =
                PortConfig { attach: Attach::Nothing, ..PortConfig::new(&bridge.name, OfPort::LOCAL.0, PortNo(0)) };
            return Ok(ofproto.add_port(&bridge.name, nothing)?);
        }
        let port = config::Port::of_type("tap", &bridge.name, OfPort::LOCAL.0.into());
        self.add_or_log(ofproto, datapath, &bridge.name, &port)
    }

    /// Adds a configured port; if it cannot be opened the log says why, and the others run.
    pub fn add_or_log(
        &mut self,
        ofproto: &Ofproto,
        datapath: &Datapath,
        bridge: &str,
        port: &config::Port,
    ) -> Result<()> {
        if let Some(error) = self.add_configured_port(ofproto, datapath, bridge, port)? {
            tracing::error!("{error:#}");
        }
        Ok(())
    }

    /// Takes a port away from its bridge and closes it.
    pub fn remove_port(&mut self, ofproto: &Ofproto, datapath: &Datapath, bridge: &str, name: &str) -> Result<()> {
        let open = self.ports.get(name).filter(|entry| entry.bridge == bridge && entry.closed.is_none());
        let open = open.and_then(|entry| entry.number);
        // What has come by it meets the rules still; then the tables forget it, so that no new megaflow sends to it.
        if let Some(number) = open {
            datapath.stop_receiving(number).with_context(|| format!("port {name}"))?;
        }
        ofproto.remove_port(bridge, name)?;
        self.ports.remove(name);
        if let Some(number) = open {
            datapath.del_port(number).with_context(|| format!("port {name}"))?;
        }
        tracing::info!("bridge {bridge}: removed port {name}");
        Ok(())
    }

    /// A datapath number: the OpenFlow number if it is free, else the lowest free one. Nothing depends on it, but
    /// people read megaflows.
    fn free_number(&self, ofport: u32) -> Result<PortNo> {
        let taken: BTreeSet<u32> = self.ports.values().filter_map(|p| p.number).map(|n| n.0).collect();
        let free = std::iter::once(ofport).chain(1..sluice_datapath::PORTS_MAX).find(|n| !taken.contains(n));
        free.map(PortNo).context("all datapath port numbers are taken")
    }
}

/// A port as the port crate wants to know it.
fn port_crate_view(config: &Config, port: &config::Port) -> sluice_port::PortConfig {
    sluice_port::PortConfig {
        name: port.name.clone(),
        kind: port.kind.clone(),
        n_rxq: port.n_rxq,
        mtu: port.mtu,
        options: port.options.iter().map(|(key, value)| (key.clone(), text(value))).collect(),
        base_dir: config.directory.clone(),
    }
}

/// What the configuration says of a port, on top of `base`.
fn tables_view(port: &config::Port, base: PortConfig) -> PortConfig {
    PortConfig { vlan: VlanMode::of(port.tag, &port.trunks), mtu: u16::try_from(port.mtu).unwrap_or(u16::MAX), ..base }
}

/// A value of the options, as text.
fn text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Says what memory packets live in.
fn log_pools(pools: &Pools) {
    for pool in pools.iter() {
        let (frames, size) = (FramePool::capacity(&**pool), FramePool::frame_size(&**pool));
        let pages = pages::of_packets(pool.pages(), pool.region().size());
        tracing::info!("packet buffers: {frames} of {size} bytes in {pages}");
    }
}

impl Switch {
    /// Adds a port at run time.
    ///
    /// # Errors
    /// If the port is not as it must be, cannot be opened, or its name or number is taken.
    pub fn add_port(&self, bridge: &str, port: &config::Port) -> Result<()> {
        let mut setup = self.setup();
        config::check_port(port, &setup.config.switch.pmd_cores).map_err(anyhow::Error::msg)?;
        setup.add_port(&self.ofproto, &self.datapath, bridge, port)?;
        drop(setup);
        self.revalidator.hurry();
        self.openflow.publish_ports();
        Ok(())
    }

    /// Removes a port at run time.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn remove_port(&self, bridge: &str, name: &str) -> Result<()> {
        self.setup().remove_port(&self.ofproto, &self.datapath, bridge, name)?;
        self.revalidator.hurry();
        self.openflow.publish_ports();
        Ok(())
    }

    /// Lets ports come back whose devices have, and tells the tables of links that went up or down.
    pub fn watch_ports(&self) {
        self.datapath.service_ports();
        self.setup().reopen_ports(&self.datapath);
        let links: BTreeMap<_, _> = self.datapath.ports().into_iter().map(|port| (port.number, port.is_up)).collect();
        let mut setup = self.setup();
        for (name, entry) in &mut setup.ports {
            let Some(is_up) = entry.number.and_then(|number| links.get(&number).copied()) else { continue };
            if is_up != entry.is_up {
                entry.is_up = is_up;
                tracing::info!("bridge {}: port {name} is {}", entry.bridge, if is_up { "up" } else { "down" });
                if let Err(error) = self.ofproto.set_port(&entry.bridge, name, |port| port.up = is_up) {
                    tracing::warn!("bridge {}: port {name}: {error}", entry.bridge);
                }
                self.revalidator.hurry();
            }
        }
        drop(setup);
        self.openflow.run();
    }

    /// Names of a bridge's ports, for flow text.
    pub fn port_names(&self, bridge: &str) -> PortNames {
        let ports = self.ofproto.ports(bridge).unwrap_or_default();
        ports.iter().map(|port| (port.name.as_str(), port.number)).collect()
    }

    /// Names of datapath ports, for megaflows.
    pub fn datapath_names(&self) -> DatapathPortNames {
        let mut names = DatapathPortNames::default();
        for (name, entry) in &self.setup().ports {
            if let Some(number) = entry.number {
                names.insert(number, name);
            }
        }
        names
    }

    /// The ports of each bridge, as `dpif/show` wants them.
    pub fn port_lines(&self) -> BTreeMap<String, Vec<PortLine>> {
        let reports: BTreeMap<_, _> = self.datapath.ports().into_iter().map(|port| (port.number, port)).collect();
        let mut bridges = BTreeMap::new();
        let setup = lock(&self.setup);
        for bridge in self.ofproto.bridges() {
            let mut lines = Vec::new();
            for port in self.ofproto.ports(&bridge.name).unwrap_or_default() {
                let entry = setup.ports.get(&port.name);
                let report = port.datapath().and_then(|number| reports.get(&number));
                let kind = entry.map_or("internal", |entry| entry.config.kind.as_str());
                let mut config = BTreeMap::new();
                if let Some(closed) = entry.and_then(|entry| entry.closed.as_ref()) {
                    config.insert("closed".into(), format!("\"{}\"", closed.why));
                }
                if let Some(PortReport { info, .. }) = report {
                    config.insert("n_rxq".into(), info.n_rxq.to_string());
                    config.insert("n_txq".into(), info.n_txq.to_string());
                    config.insert("mtu".into(), info.mtu.to_string());
                }
                if let Attach::Patch(peer) = &port.attach {
                    config.insert("peer".into(), peer.clone());
                }
                lines.push(PortLine {
                    name: port.name.clone(),
                    ofport: port.number.0.into(),
                    number: port.datapath().map(|n| n.0),
                    kind: kind.into(),
                    config,
                    stats: report.map(|report| report.stats).unwrap_or_default(),
                });
            }
            bridges.insert(bridge.name, lines);
        }
        bridges
    }
}
