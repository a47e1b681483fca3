//! Ports: opened, joined to their bridge and to the datapath; and taken away again.

use super::{Setup, Switch, lock};
use crate::config::{self, Config, PATCH};
use crate::text::datapath::PortLine;
use anyhow::{Context, Result, bail};
use sluice_action::{DatapathPortNames, PortNo};
use sluice_datapath::Datapath;
use sluice_flow::{OfPort, PortNames};
use sluice_mem::FramePool;
use sluice_ofproto::{Attach, Ofproto, PortConfig, VlanMode};
use std::collections::{BTreeMap, BTreeSet};

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
        if let Some(taken) = self.ports.get(&port.name) {
            bail!("port {}: bridge {} has one of that name already", port.name, taken.bridge);
        }
        let ofport =
            OfPort(u16::try_from(port.ofport).with_context(|| format!("port {}: number {}", port.name, port.ofport))?);
        let number = if port.kind == PATCH {
            let peer = text(&port.options["peer"]);
            ofproto.add_port(bridge, tables_view(port, PortConfig::patch(&port.name, ofport.0, &peer)))?;
            None
        } else {
            let number = self.free_number(port.ofport)?;
            let pools = self.pools.iter().count();
            let opened = sluice_port::open(&port_crate_view(&self.config, port), &mut self.pools)?;
            if self.pools.iter().count() > pools {
                self.log_pools();
            }
            opened.notes().iter().for_each(|note| tracing::warn!("port {}: {note}", port.name));
            ofproto.add_port(bridge, tables_view(port, PortConfig::new(&port.name, ofport.0, number)))?;
            if let Err(error) = datapath.add_port(number, opened) {
                let _ = ofproto.remove_port(bridge, &port.name);
                return Err(error).with_context(|| format!("port {}", port.name));
            }
            Some(number)
        };
        let entry = PortEntry { bridge: bridge.into(), number, config: port.clone(), is_up: true };
        self.ports.insert(port.name.clone(), entry);
        tracing::info!("bridge {bridge}: added port {} of type {}, number {}", port.name, port.kind, port.ofport);
        Ok(())
    }

    /// Says what memory packets live in.
    fn log_pools(&self) {
        for pool in self.pools.iter() {
            let (frames, size) = (FramePool::capacity(&**pool), FramePool::frame_size(&**pool));
            tracing::info!("packet buffers: {frames} of {size} bytes in {}", pool.pages().name());
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
        self.add_port(ofproto, datapath, &bridge.name, &port)
    }

    /// Takes a port away from its bridge and closes it.
    pub fn remove_port(&mut self, ofproto: &Ofproto, datapath: &Datapath, bridge: &str, name: &str) -> Result<()> {
        // The tables forget it first, so that no new megaflow sends to it.
        ofproto.remove_port(bridge, name)?;
        if let Some(entry) = self.ports.remove(name)
            && let Some(number) = entry.number
        {
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

impl Switch {
    /// Adds a port at run time.
    ///
    /// # Errors
    /// If the port is not as it must be, cannot be opened, or its name or number is taken.
    pub fn add_port(&self, bridge: &str, port: &config::Port) -> Result<()> {
        config::check_port(port).map_err(anyhow::Error::msg)?;
        self.setup().add_port(&self.ofproto, &self.datapath, bridge, port)?;
        self.revalidator.hurry();
        Ok(())
    }

    /// Removes a port at run time.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn remove_port(&self, bridge: &str, name: &str) -> Result<()> {
        self.setup().remove_port(&self.ofproto, &self.datapath, bridge, name)?;
        self.revalidator.hurry();
        Ok(())
    }

    /// Lets ports come back whose devices have, and tells the tables of links that went up or down.
    pub fn watch_ports(&self) {
        self.datapath.tend_ports();
        let links: BTreeMap<_, _> =
            self.datapath.ports().into_iter().map(|(number, .., is_up)| (number, is_up)).collect();
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
        let infos: BTreeMap<_, _> =
            self.datapath.ports().into_iter().map(|(number, info, stats, _)| (number, (info, stats))).collect();
        let mut bridges = BTreeMap::new();
        let setup = lock(&self.setup);
        for bridge in self.ofproto.bridges() {
            let mut lines = Vec::new();
            for port in self.ofproto.ports(&bridge.name).unwrap_or_default() {
                let entry = setup.ports.get(&port.name);
                let info = port.datapath().and_then(|number| infos.get(&number));
                let kind = entry.map_or("internal", |entry| entry.config.kind.as_str());
                let mut config = BTreeMap::new();
                if let Some((info, _)) = info {
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
                    stats: info.map(|(_, stats)| *stats).unwrap_or_default(),
                });
            }
            bridges.insert(bridge.name, lines);
        }
        bridges
    }
}
