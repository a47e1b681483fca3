//! Packets from and to controllers: packet-out and resume requests are translated; packet-ins get their metadata.

use crate::bridge::SwitchState;
use crate::bridge_config::BridgeId;
use crate::check::{check_actions, check_groups, check_meters, check_options};
use crate::error::Error;
use crate::metadata;
use crate::ofproto::{Ofproto, Shared};
use crate::recirc::{Frozen, FrozenActions, Restore, StackValue};
use crate::tunnel::Tunnel;
use crate::xlate::{Translator, XlateIn, XlateStart, ct};
use crate::xlate_cache::{Push, XcEntry, push};
use sluice_action::{Actions, PortNo};
use sluice_flow::{FlowKey, Match, OfPort, PacketKey, layout};
use sluice_ofp::{OfAction, Paused, Stretch};

/// The datapath's port number of packets without an input port.
const NO_PORT: PortNo = PortNo(u32::MAX);

/// What the datapath does with a controller's packet.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecuteRequest {
    /// The packet's metadata.
    pub known: PacketKey,
    /// The actions.
    pub actions: Actions,
}

/// The metadata of a packet that a translation sent to a controller.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketInMetadata {
    /// The bridge.
    pub bridge: String,
    /// The table that sent it.
    pub table: u8,
    /// Port, registers, metadata, tunnel and connection.
    pub metadata: Match,
    /// `userdata` of the action.
    pub userdata: Vec<u8>,
    /// The rest of its translation, if it is paused.
    pub paused: Option<Paused>,
}

/// A packet-out: a packet and its actions.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketOutRequest {
    /// Its key, with an OpenFlow port.
    pub key: FlowKey,
    /// Its actions.
    pub actions: Vec<OfAction>,
    /// Its length in bytes, for the counters of rules.
    pub length: u64,
}

/// A request to resume a paused packet, which the controller may have changed.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumeRequest {
    /// Its key, with an OpenFlow port.
    pub key: FlowKey,
    /// The rest of its translation.
    pub paused: Paused,
    /// Its length in bytes, for the counters of rules.
    pub length: u64,
}

/// A translated packet that is not credited to its rules yet.
#[derive(Debug)]
pub(crate) struct PreparedPacket {
    translated: ExecuteRequest,
    xcache: Vec<XcEntry>,
    credited: Push,
}

impl PreparedPacket {
    /// How many actions and effects it holds.
    pub fn entries(&self) -> usize {
        self.translated.actions.len() + self.xcache.len()
    }
}

fn no_bridge() -> Error {
    Error::NoBridge("of the packet".to_owned())
}

/// Translates a controller's packet, with the datapath's port by which it came.
fn prepare(
    state: &SwitchState,
    shared: &Shared,
    xin: &XlateIn<'_>,
    key: &FlowKey,
    port: PortNo,
    length: u64,
) -> Result<PreparedPacket, Error> {
    let xout = Translator::run(state, shared, xin, &mut PacketKey::default(), None).ok_or_else(no_bridge)?;
    let mut known = key.packet_part();
    let bridge = match xin.start {
        XlateStart::Bridge(bridge, _) => state.bridge(bridge),
        XlateStart::Paused(frozen, _) => state.bridge(frozen.bridge),
        XlateStart::Datapath(_) => None,
    };
    bridge.into_iter().for_each(|bridge| known.put_options(&bridge.tunnel_options.list_of(&key.tun_metadata)));
    known.set(layout::IN_PORT, &port.0.to_be_bytes());
    let credited = Push { packets: 1, bytes: length, tcp_flags: 0, used_ms: xin.now_ms };
    let translated = ExecuteRequest { known, actions: xout.actions.into() };
    Ok(PreparedPacket { translated, xcache: xout.xcache, credited })
}

impl PacketOutRequest {
    /// A request for a packet with that key and the controller's metadata.
    pub fn new(key: &PacketKey, metadata: &Match, actions: Vec<OfAction>, length: u64) -> Self {
        PacketOutRequest { key: key_of(key, metadata), actions, length }
    }

    /// Translates it by a bridge of `state`.
    pub(crate) fn prepare(
        &self,
        state: &SwitchState,
        shared: &Shared,
        bridge: BridgeId,
        now_ms: u64,
    ) -> Result<PreparedPacket, Error> {
        let (key, actions) = (&self.key, self.actions.as_slice());
        let found = state.bridge(bridge).ok_or_else(no_bridge)?;
        check_actions(0, actions)?;
        check_groups(&found.groups, actions)?;
        check_meters(&found.meters, actions)?;
        check_options(&found.tunnel_options, &Match::ANY, actions)?;
        let in_port = OfPort(key.number(layout::IN_PORT) as u16);
        let port = found.ports.get(&in_port).and_then(|p| p.datapath()).unwrap_or(NO_PORT);
        let (start, packet_len) = (XlateStart::Bridge(bridge, key), Some(self.length as usize));
        let xin = XlateIn {
            start,
            now_ms,
            side_effects: true,
            packet_len,
            actions: Some(actions),
            in_packet_out: true,
            may_wait: true,
        };
        prepare(state, shared, &xin, key, port, self.length)
    }
}

impl ResumeRequest {
    /// A request for a packet with that key and the controller's metadata.
    pub fn new(key: &PacketKey, metadata: &Match, paused: Paused, length: u64) -> Self {
        ResumeRequest { key: key_of(key, metadata), paused, length }
    }
}

/// The key of a packet with the controller's metadata.
fn key_of(key: &PacketKey, metadata: &Match) -> FlowKey {
    let mut flow = FlowKey::of_packet(key);
    metadata::copy_to(metadata, &mut flow);
    flow
}

impl Ofproto {
    /// Translates a controller's packet.
    ///
    /// # Errors
    /// If there is no such bridge, or an action cannot be done.
    pub fn packet_out(&self, bridge: &str, packet: &PacketOutRequest, now_ms: u64) -> Result<ExecuteRequest, Error> {
        let state = self.state();
        let found = state.bridge_named(bridge).ok_or_else(|| Error::NoBridge(bridge.to_owned()))?;
        let prepared = packet.prepare(&state, &self.0, found.id, now_ms)?;
        drop(state);
        Ok(self.credit(prepared))
    }

    /// Resumes a paused packet by the current tables.
    ///
    /// # Errors
    /// If there is no such bridge, or an action that is left cannot be done.
    pub fn resume(&self, bridge: &str, packet: &ResumeRequest, now_ms: u64) -> Result<ExecuteRequest, Error> {
        let state = self.state();
        let found = state.bridge_named(bridge).ok_or_else(|| Error::NoBridge(bridge.to_owned()))?;
        // Groups and meters may have been deleted since; actions that use them do nothing.
        packet.paused.lists().try_for_each(|actions| check_actions(0, actions))?;
        let frozen = Frozen::of_paused(found.id, &packet.key, &packet.paused);
        let start = XlateStart::Paused(&frozen, &packet.key);
        let packet_len = Some(packet.length as usize);
        let xin = XlateIn {
            start,
            now_ms,
            side_effects: true,
            packet_len,
            actions: None,
            in_packet_out: false,
            may_wait: true,
        };
        let port = PortNo(packet.paused.datapath_port);
        let prepared = prepare(&state, &self.0, &xin, &packet.key, port, packet.length)?;
        drop(state);
        Ok(self.credit(prepared))
    }

    /// Credits a packet to the rules it matched, and queues its effects.
    pub(crate) fn credit(&self, prepared: PreparedPacket) -> ExecuteRequest {
        push(&prepared.xcache, prepared.credited, self.queue_changes());
        prepared.translated
    }

    /// The metadata of a packet that was sent to a controller, by its key and its recirculation id; with the rest of
    /// its translation if it `is_paused`. `None` if the id has expired.
    pub fn controller_packet(
        &self,
        key: &PacketKey,
        recirc_id: u32,
        is_paused: bool,
        now_ms: u64,
    ) -> Option<PacketInMetadata> {
        let found = self.0.recirculations.thaw(recirc_id, now_ms)?;
        let frozen = &found.frozen;
        let bridge = self.bridge_name(frozen.bridge)?;
        let paused = is_paused.then(|| frozen.paused(PortNo(key.in_port())));
        let mut flow = FlowKey::of_packet(key);
        if !frozen.conntracked {
            ct::clear(&mut flow);
        }
        frozen.put_metadata(&mut flow);
        let (table, userdata) = (frozen.table, frozen.userdata.clone());
        Some(PacketInMetadata { bridge, table, metadata: metadata::of_key(&flow), userdata, paused })
    }
}

impl Frozen {
    /// Writes the frozen metadata to a key.
    pub fn put_metadata(&self, key: &mut FlowKey) {
        key.set_number(layout::IN_PORT, self.in_port.0.into());
        key.set_number(layout::METADATA, self.metadata);
        key.lines[layout::REGS.line()] = self.registers;
        self.tunnel.clone().put(key);
    }

    /// The state as a paused packet carries it.
    fn paused(&self, port: PortNo) -> Paused {
        let FrozenActions { actions, restores } = &self.actions;
        let mut stretches = Vec::new();
        let begins = [(0, Restore { table: 0, cookie: 0 })];
        let begins: Vec<_> = begins.iter().chain(restores).collect();
        for (i, (from, restore)) in begins.iter().enumerate() {
            let to = begins.get(i + 1).map_or(actions.len(), |(to, _)| *to);
            let Restore { table, cookie } = *restore;
            if *from < to {
                stretches.push(Stretch { table, cookie, actions: actions[*from..to].to_vec() });
            }
        }
        Paused {
            stack: self.stack.iter().map(|s| (s.value.clone(), s.n_bytes)).collect(),
            conntracked: self.conntracked,
            mirrors: self.mirrors,
            actions: stretches,
            action_set: self.action_set.clone(),
            datapath_port: port.0,
        }
    }

    /// The inverse of [`Frozen::paused`].
    fn of_paused(bridge: BridgeId, key: &FlowKey, paused: &Paused) -> Frozen {
        let mut left = FrozenActions::default();
        for Stretch { table, cookie, actions } in &paused.actions {
            left.restores.push((left.actions.len(), Restore { table: *table, cookie: *cookie }));
            left.actions.extend_from_slice(actions);
        }
        Frozen {
            bridge,
            table: 0,
            in_port: OfPort(key.number(layout::IN_PORT) as u16),
            tunnel: Tunnel::of(key),
            registers: key.lines[layout::REGS.line()],
            metadata: key.number(layout::METADATA),
            queue: 0,
            stack: paused
                .stack
                .iter()
                .map(|(value, n_bytes)| StackValue { value: value.clone(), n_bytes: *n_bytes })
                .collect(),
            was_mpls: false,
            conntracked: paused.conntracked,
            mirrors: paused.mirrors,
            actions: left,
            action_set: paused.action_set.clone(),
            userdata: Vec::new(),
            bond: None,
        }
    }
}
