//! The switch's bridges: adds, changes, removes and finds them.

use crate::bridge::{Bridge, SwitchState};
use crate::bridge_config::{BridgeConfig, BridgeId, FailMode, FragmentMode, NormalSettings};
use crate::depends::Changes;
use crate::error::Error;
use crate::ofproto::Ofproto;
use crate::port::Attach;
use sluice_flow::geneve::{OptionKind, OptionMap};
use sluice_flow::{OfPort, PacketKey};
use sluice_ofp::{FlowCommand, FlowMod, OfAction};

impl Ofproto {
    /// Whether there is a bridge of that name.
    pub fn has_bridge(&self, name: &str) -> bool {
        self.state().bridge_named(name).is_some()
    }

    /// The bridges' configurations, in order of addition.
    pub fn bridges(&self) -> Vec<BridgeConfig> {
        self.state().bridges.iter().map(|b| b.config.clone()).collect()
    }

    /// Adds a bridge. A standalone one starts with the rule `priority=0 actions=NORMAL`.
    pub fn add_bridge(&self, config: BridgeConfig, now_ms: u64) -> Result<(), Error> {
        let standalone = config.fail_mode == FailMode::Standalone;
        let name = config.name.clone();
        let mut writer = self.writer();
        let id = BridgeId(writer.next_bridge);
        self.change(&mut writer, |state| {
            if state.bridge_named(&name).is_some() {
                return Err(Error::BridgeExists(name.clone()));
            }
            state.bridges.push(Bridge::new(id, config, self.0.rule_memory.tables()));
            Ok(())
        })?;
        writer.next_bridge += 1;
        drop(writer);
        self.announce(&Changes::everything());
        if standalone {
            let mut normal = FlowMod::new(FlowCommand::Add);
            normal.priority = 0;
            normal.actions = vec![OfAction::Output { port: OfPort::NORMAL, max_len: 0 }];
            // A bridge that was refused is not there.
            if let Err(refused) = self.flow_mod(&name, &normal, now_ms) {
                self.remove_bridge(&name)?;
                return Err(refused);
            }
        }
        Ok(())
    }

    /// Removes a bridge with its ports and rules.
    pub fn remove_bridge(&self, name: &str) -> Result<(), Error> {
        let mut writer = self.writer();
        // Its rules may be many: they go when the lock is free again.
        let gone = self.change(&mut writer, |state| {
            let at = position(state, name)?;
            let bridge = state.bridges.remove(at);
            state.by_datapath.retain(|_, (id, _)| *id != bridge.id);
            for port in bridge.ports.values() {
                if let Attach::Tunnel(tunnel) = &port.attach {
                    state.tunnels.remove(tunnel);
                }
            }
            state.by_name.retain(|_, (id, _)| *id != bridge.id);
            Ok(bridge)
        })?;
        self.announce(&Changes::everything());
        gone.meters.values().for_each(|meter| writer.meters.remove(meter.datapath));
        drop(gone);
        Ok(())
    }

    pub(crate) fn change_bridge(&self, name: &str, change: impl FnOnce(&mut Bridge)) -> Result<(), Error> {
        let mut writer = self.writer();
        let id = self.change(&mut writer, |state| {
            let at = position(state, name)?;
            let bridge = &mut state.bridges[at];
            change(bridge);
            Ok(bridge.id)
        })?;
        self.announce(&Changes::of_bridge(id));
        Ok(())
    }

    /// Changes how action NORMAL forwards.
    pub fn set_normal(&self, name: &str, normal: NormalSettings) -> Result<(), Error> {
        self.change_bridge(name, |bridge| {
            let macs = bridge.macs.get_mut();
            macs.set_age(normal.mac_age_s);
            macs.set_max(normal.mac_table_size);
            macs.set_flood_vlans(&normal.flood_vlans);
            bridge.config.normal = normal;
        })
    }

    /// How a bridge's rules match fragments.
    pub fn fragments(&self, name: &str) -> Result<FragmentMode, Error> {
        let state = self.state();
        let at = position(&state, name)?;
        Ok(state.bridges[at].fragments)
    }

    /// Changes how rules match fragments.
    pub fn set_fragments(&self, name: &str, fragments: FragmentMode) -> Result<(), Error> {
        self.change_bridge(name, |bridge| bridge.fragments = fragments)
    }

    /// Changes which options of Geneve the fields `tun_metadata0` and on stand for in a bridge.
    pub fn map_tunnel_options(&self, bridge: &str, mapped: &[(usize, OptionKind)]) {
        let mut options = OptionMap::default();
        mapped.iter().for_each(|(i, kind)| _ = options.set(*i, *kind));
        self.change(&mut self.writer(), |state| {
            if let Some(found) = state.bridges.iter_mut().find(|found| found.name() == bridge) {
                found.tunnel_options = options;
            }
        });
        self.announce(&Changes::everything());
    }

    /// Which options of Geneve the fields of a bridge stand for; none if there is no such bridge.
    pub fn tunnel_options(&self, bridge: &str) -> OptionMap {
        self.state().bridge_named(bridge).map(|bridge| bridge.tunnel_options.clone()).unwrap_or_default()
    }

    /// The same of the bridge that a packet with that key belongs to.
    pub fn tunnel_options_at(&self, key: &PacketKey) -> OptionMap {
        let state = self.state();
        let bridge = state.port_of(key).and_then(|(bridge, _)| state.bridge(bridge));
        bridge.map(|bridge| bridge.tunnel_options.clone()).unwrap_or_default()
    }

    /// Sets a bridge's OpenFlow datapath id. Packets do not depend on it.
    pub fn set_datapath_id(&self, name: &str, datapath_id: u64) -> Result<(), Error> {
        let mut writer = self.writer();
        self.change(&mut writer, |state| {
            let at = position(state, name)?;
            state.bridges[at].config.datapath_id = datapath_id;
            Ok(())
        })
    }

    /// Sets whether table misses in table 0 go to controllers, as before OpenFlow 1.3.
    pub fn send_misses_to_controllers(&self, name: &str, send: bool) -> Result<(), Error> {
        let mut writer = self.writer();
        let id = self.change(&mut writer, |state| {
            let at = position(state, name)?;
            state.bridges[at].misses_to_controllers = send;
            Ok(state.bridges[at].id)
        })?;
        self.announce(&Changes::of_bridge(id));
        Ok(())
    }
}

/// Where a bridge is among `bridges`.
pub(crate) fn position(state: &SwitchState, name: &str) -> Result<usize, Error> {
    state.bridges.iter().position(|b| b.name() == name).ok_or_else(|| Error::NoBridge(name.to_owned()))
}
