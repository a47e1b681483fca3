//! `sluice/reload`: what changed in the configuration file, applied without stopping the rest.
//!
//! The file is read and checked whole before anything is done. Compared are the file as it was and as it is; what
//! commands did meanwhile stays, unless the file now says otherwise about the same thing.

use super::Switch;
use super::change::{Change, changes};
use super::files::Files;
use super::start::bridge_config;
use crate::config::{Config, Datapath};
use anyhow::Result;
use sluice_datapath::Settings;
use sluice_ofproto::VlanMode;
use std::collections::BTreeMap;

impl Switch {
    /// Applies what changed: a line for each step, or a line that says that there was none.
    ///
    /// # Errors
    /// If the file is wrong (nothing has changed then), or steps failed (the others have been taken).
    pub fn reload(&self) -> Result<String, String> {
        let new = Config::load(&self.file).map_err(|error| error.to_string())?;
        let files = read_files(&new).map_err(|error| format!("{error:#}"))?;
        let old = self.setup().config.clone();
        let steps = changes(&old, &new);
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        self.setup().config = new.clone();
        for step in &steps {
            match self.apply(step, &old, &new, &files) {
                Ok(()) => done.push(step.to_string()),
                Err(error) => failed.push(format!("{error:#}")),
            }
        }
        for bridge in &new.bridge {
            match self.apply_files(&bridge.name, &files[&bridge.name]) {
                Ok(kinds) => done.extend(kinds.iter().map(|kind| format!("{}: {kind} replaced", bridge.name))),
                Err(error) => failed.push(format!("{}: {error:#}", bridge.name)),
            }
        }
        match self.set_tls(&new) {
            Ok(()) if old.switch.tls == new.switch.tls => {}
            Ok(()) => done.push("switch.tls: in force for new connections".to_owned()),
            Err(error) => failed.push(format!("{error:#}")),
        }
        self.openflow.publish_ports();
        self.revalidator.hurry();
        if !failed.is_empty() {
            return Err(failed.iter().chain(&done).cloned().collect::<Vec<_>>().join("\n"));
        }
        tracing::info!(
            "configuration read again: {}",
            if done.is_empty() { "nothing changed".into() } else { done.join("; ") }
        );
        Ok(if done.is_empty() { "nothing changed".into() } else { done.join("\n") })
    }

    fn apply(&self, step: &Change, old: &Config, new: &Config, files: &AllFiles) -> Result<()> {
        let mut setup = self.setup();
        match step {
            Change::RemovePort(bridge, port) if !setup.ports.contains_key(port) => {
                tracing::info!("bridge {bridge}: port {port} was removed before");
            }
            Change::RemovePort(bridge, port) => setup.remove_port(&self.ofproto, &self.datapath, bridge, port)?,
            Change::RemoveBridge(bridge) => {
                let ports = setup.ports.iter().filter(|(_, entry)| entry.bridge == *bridge);
                let ports: Vec<_> = ports.map(|(name, _)| name.clone()).collect();
                for port in ports {
                    setup.remove_port(&self.ofproto, &self.datapath, bridge, &port)?;
                }
                setup.applied.remove(bridge);
                self.openflow.remove_bridge(bridge);
                self.ofproto.remove_bridge(bridge)?;
            }
            Change::AddBridge(bridge) => {
                self.ofproto.add_bridge(bridge_config(bridge), self.now_ms())?;
                setup.add_local_port(&self.ofproto, &self.datapath, bridge)?;
                for port in &bridge.port {
                    setup.add_or_log(&self.ofproto, &self.datapath, &bridge.name, port)?;
                }
                drop(setup);
                self.apply_files(&bridge.name, &files[&bridge.name])?;
                self.serve_openflow(bridge)?;
            }
            Change::SetBridge(bridge) => {
                self.ofproto.set_bridge(&bridge.name, Some(bridge.mac_age.0.as_secs()), None)?;
                drop(setup);
                self.serve_openflow(bridge)?;
            }
            Change::SetVlans(bridge, port) => {
                let vlan = VlanMode::of(port.tag, &port.trunks);
                self.ofproto.set_port(bridge, &port.name, |p| p.vlan = vlan)?;
                if let Some(entry) = setup.ports.get_mut(&port.name) {
                    entry.config = (**port).clone();
                }
            }
            // It stays configured, and is tried again.
            Change::AddPort(bridge, port) => {
                setup.add_configured_port(&self.ofproto, &self.datapath, bridge, port)?.map_or(Ok(()), Err)?
            }
            Change::SetDatapath => {
                self.revalidator.set_max_idle(new.datapath.max_idle.0);
                self.datapath.set_settings(self.changed_settings(&old.datapath, &new.datapath)?)?;
            }
            // Read where it is used, or at the next start.
            Change::SetStopAfter | Change::AtNextStart(_) => {}
        }
        Ok(())
    }

    /// The settings in force, with what the file says otherwise about than it did: what was set by command stays.
    fn changed_settings(&self, old: &Datapath, new: &Datapath) -> Result<Settings> {
        let mut settings = self.datapath.settings();
        for (was, (key, value)) in old.settings().values().iter().zip(new.settings().values()) {
            if was.1 != value {
                settings.set(key, &value)?;
            }
        }
        Ok(settings)
    }
}

/// Each bridge's files, by its name.
type AllFiles = BTreeMap<String, Files>;

/// Reads the files of all bridges, so that one that is wrong is noticed before anything has changed.
fn read_files(config: &Config) -> Result<AllFiles> {
    config.bridge.iter().map(|bridge| Ok((bridge.name.clone(), Files::read(config, bridge)?))).collect()
}
