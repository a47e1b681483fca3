//! What controllers need of the tables: their packets translated, and what a packet on its way to them had been through.

use crate::bridge::{BridgeId, SwitchState};
use crate::check::{check_actions, check_groups, check_meters};
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

/// The datapath's number for the port of packets that came in by none.
const NO_PORT: PortNo = PortNo(u32::MAX);

/// A packet of a controller's, as the datapath is to carry it out.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecuteRequest {
    /// What the datapath is to know of it besides its bytes.
    pub known: PacketKey,
    /// What becomes of the packet.
    pub actions: Actions,
}

/// What is known of a packet that a translation sent to a controller.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketInMetadata {
    /// The bridge.
    pub bridge: String,
    /// The table that sent it.
    pub table: u8,
    /// What is known of it besides its bytes: port, registers, metadata, tunnel, connection.
    pub metadata: Match,
    /// Bytes that the rule passes on.
    pub userdata: Vec<u8>,
    /// What it still has before it, if it waits for the controller.
    pub paused: Option<Paused>,
}

/// A packet of a controller's, and what to do with it.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketOutRequest {
    /// Its key, whose port is an OpenFlow one.
    pub key: FlowKey,
    /// What to do with it.
    pub actions: Vec<OfAction>,
    /// Its length in bytes, which counts on the rules it visits.
    pub length: u64,
}

/// A packet that waited for a controller, which may have changed it.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumeRequest {
    /// Its key, whose port is an OpenFlow one.
    pub key: FlowKey,
    /// What it still has before it.
    pub paused: Paused,
    /// Its length in bytes, which counts on the rules it visits.
    pub length: u64,
}

/// A packet of a controller's translated, before anybody else notices.
#[derive(Debug)]
pub(crate) struct PreparedPacket {
    translated: ExecuteRequest,
    xcache: Vec<XcEntry>,
    credited: Push,
}

fn no_bridge() -> Error {
    Error::NoBridge("of the packet".to_owned())
}

/// Translates a controller's packet, which came by a port of the datapath.
fn prepare(
    state: &SwitchState,
    shared: &Shared,
    xin: &XlateIn<'_>,
    key: &FlowKey,
    port: PortNo,
    length: u64,
) -> Result<PreparedPacket, Error> {
    let xout = Translator::run(state, shared, xin, None).ok_or_else(no_bridge)?;
    let mut known = key.packet_part();
    known.set(layout::IN_PORT, &port.0.to_be_bytes());
    let credited = Push { packets: 1, bytes: length, tcp_flags: 0, used_ms: xin.now_ms };
    let translated = ExecuteRequest { known, actions: xout.actions.into() };
    Ok(PreparedPacket { translated, xcache: xout.xcache, credited })
}

impl PacketOutRequest {
    /// A packet whose bytes say `key`, and of which a controller says the rest.
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
        let in_port = OfPort(key.number(layout::IN_PORT) as u16);
        let port = found.ports.get(&in_port).and_then(|p| p.datapath()).unwrap_or(NO_PORT);
        let xin =
            XlateIn { start: XlateStart::Bridge(bridge, key), now_ms, side_effects: true, actions: Some(actions) };
        prepare(state, shared, &xin, key, port, self.length)
    }
}

impl ResumeRequest {
    /// A packet whose bytes say `key`, and of which a controller says the rest.
    pub fn new(key: &PacketKey, metadata: &Match, paused: Paused, length: u64) -> Self {
        ResumeRequest { key: key_of(key, metadata), paused, length }
    }
}

/// What bytes and a controller say together.
fn key_of(key: &PacketKey, metadata: &Match) -> FlowKey {
    let mut flow = FlowKey::of_packet(key);
    metadata::take_over(metadata, &mut flow);
    flow
}

impl Ofproto {
    /// Translates a controller's packet.
    ///
    /// # Errors
    /// If there is no such bridge, or it cannot do the actions.
    pub fn packet_out(&self, bridge: &str, packet: &PacketOutRequest, now_ms: u64) -> Result<ExecuteRequest, Error> {
        let state = self.state();
        let found = state.bridge_named(bridge).ok_or_else(|| Error::NoBridge(bridge.to_owned()))?;
        let prepared = packet.prepare(&state, &self.0, found.id, now_ms)?;
        drop(state);
        Ok(self.let_go(prepared))
    }

    /// Lets a packet go on that waited for a controller, as the tables are now.
    ///
    /// # Errors
    /// If there is no such bridge, or it cannot do the actions that are left.
    pub fn resume(&self, bridge: &str, packet: &ResumeRequest, now_ms: u64) -> Result<ExecuteRequest, Error> {
        let state = self.state();
        let found = state.bridge_named(bridge).ok_or_else(|| Error::NoBridge(bridge.to_owned()))?;
        // Groups and meters may have gone since; then their actions do nothing.
        packet.paused.lists().try_for_each(|actions| check_actions(0, actions))?;
        let frozen = Frozen::of_paused(found.id, &packet.key, &packet.paused);
        let start = XlateStart::Paused(&frozen, &packet.key);
        let xin = XlateIn { start, now_ms, side_effects: true, actions: None };
        let port = PortNo(packet.paused.datapath_port);
        let prepared = prepare(&state, &self.0, &xin, &packet.key, port, packet.length)?;
        drop(state);
        Ok(self.let_go(prepared))
    }

    /// Counts a packet on the rules that it visited, and lets happen what they bring about.
    pub(crate) fn let_go(&self, prepared: PreparedPacket) -> ExecuteRequest {
        push(&prepared.xcache, prepared.credited, self.put_news());
        prepared.translated
    }

    /// What a packet that was sent to a controller had been through, by its key and the recirculation id that went with
    /// it; with what it still has before it, if it `waits`. `None` if that was so long ago that it is forgotten.
    pub fn controller_packet(
        &self,
        key: &PacketKey,
        recirc_id: u32,
        waits: bool,
        now_ms: u64,
    ) -> Option<PacketInMetadata> {
        let found = self.0.recirculations.thaw(recirc_id, now_ms)?;
        let frozen = &found.frozen;
        let bridge = self.bridge_name(frozen.bridge)?;
        let paused = waits.then(|| frozen.paused(PortNo(key.in_port())));
        let mut flow = FlowKey::of_packet(key);
        if !frozen.conntracked {
            ct::clear(&mut flow);
        }
        frozen.put_metadata(&mut flow);
        let (table, userdata) = (frozen.table, frozen.userdata.clone());
        Some(PacketInMetadata { bridge, table, metadata: metadata::told(&flow), userdata, paused })
    }
}

impl Frozen {
    /// Says of a key what was known when it was frozen.
    pub fn put_metadata(&self, key: &mut FlowKey) {
        key.set_number(layout::IN_PORT, self.in_port.0.into());
        key.set_number(layout::METADATA, self.metadata);
        key.lines[layout::REGS.line()] = self.registers;
        self.tunnel.put(key);
    }

    /// What a packet that waits takes along.
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
            stack: self.stack.iter().map(|s| (s.value, s.n_bytes)).collect(),
            conntracked: self.conntracked,
            actions: stretches,
            action_set: self.action_set.clone(),
            datapath_port: port.0,
        }
    }

    /// The other way round.
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
            stack: paused.stack.iter().map(|&(value, n_bytes)| StackValue { value, n_bytes }).collect(),
            was_mpls: false,
            conntracked: paused.conntracked,
            actions: left,
            action_set: paused.action_set.clone(),
            userdata: Vec::new(),
        }
    }
}
