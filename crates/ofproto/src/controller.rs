//! What controllers need of the tables: their packets translated, and what a packet on its way to them had been through.

use crate::bridge::{BridgeId, State};
use crate::check::{check_actions, check_groups, check_meters};
use crate::error::Error;
use crate::ofproto::{Ofproto, Shared};
use crate::trail::{Event, Push, push};
use crate::xlate::{Question, Start, Translator};
use sluice_action::{Actions, PortNo};
use sluice_flow::field::Place;
use sluice_flow::{FlowKey, Match, OfAction, OfPort, layout};

/// A packet-out, as the datapath is to carry it out.
#[derive(Clone, Debug, PartialEq)]
pub struct Translated {
    /// The datapath port that it is to be taken for; `None` if it has none.
    pub in_port: Option<PortNo>,
    /// What becomes of the packet.
    pub actions: Actions,
}

/// What is known of a packet that a translation sent to a controller.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerPacket {
    /// The bridge.
    pub bridge: String,
    /// The table that sent it.
    pub table: u8,
    /// The port it came in by, in that bridge.
    pub in_port: OfPort,
    /// In-port, registers, metadata and tunnel.
    pub metadata: Match,
    /// Bytes that the rule passes on.
    pub userdata: Vec<u8>,
}

/// A packet of a controller's, and what to do with it.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllersPacket {
    /// Its key, whose port is an OpenFlow one.
    pub key: FlowKey,
    /// What to do with it.
    pub actions: Vec<OfAction>,
    /// Its length in bytes, which counts on the rules it visits.
    pub length: u64,
}

/// A packet of a controller's translated, before anybody else notices.
#[derive(Debug)]
pub(crate) struct Prepared {
    translated: Translated,
    trail: Vec<Event>,
    credited: Push,
}

impl ControllersPacket {
    /// Translates it by a bridge of `state`.
    pub(crate) fn prepare(
        &self,
        state: &State,
        shared: &Shared,
        bridge: BridgeId,
        now_ms: u64,
    ) -> Result<Prepared, Error> {
        let (key, actions) = (&self.key, self.actions.as_slice());
        check_actions(0, actions)?;
        let no_bridge = || Error::NoBridge("of the packet".to_owned());
        let found = state.bridge(bridge).ok_or_else(no_bridge)?;
        check_groups(&found.groups, actions)?;
        check_meters(&found.meters, actions)?;
        let port = OfPort(key.number(layout::IN_PORT) as u16);
        let in_port = found.ports.get(&port).and_then(|p| p.datapath());
        let question =
            Question { start: Start::Bridge(bridge, key), now_ms, side_effects: true, actions: Some(actions) };
        let outcome = Translator::run(state, shared, &question, None).ok_or_else(no_bridge)?;
        let credited = Push { packets: 1, bytes: self.length, tcp_flags: 0, used_ms: now_ms };
        let translated = Translated { in_port, actions: outcome.actions.into() };
        Ok(Prepared { translated, trail: outcome.trail, credited })
    }
}

impl Ofproto {
    /// Translates a controller's packet.
    ///
    /// # Errors
    /// If there is no such bridge, or it cannot do the actions.
    pub fn packet_out(&self, bridge: &str, packet: &ControllersPacket, now_ms: u64) -> Result<Translated, Error> {
        let state = self.state();
        let found = state.bridge_named(bridge).ok_or_else(|| Error::NoBridge(bridge.to_owned()))?;
        let prepared = packet.prepare(&state, &self.0, found.id, now_ms)?;
        drop(state);
        Ok(self.let_go(prepared))
    }

    /// Counts a packet on the rules that it visited, and lets happen what they bring about.
    pub(crate) fn let_go(&self, prepared: Prepared) -> Translated {
        push(&prepared.trail, prepared.credited, self.put_news());
        prepared.translated
    }

    /// What a packet that was sent to a controller had been through, by the id that went with it. `None` if that was so
    /// long ago that it is forgotten.
    pub fn controller_packet(&self, recirc_id: u32, now_ms: u64) -> Option<ControllerPacket> {
        let found = self.0.recirculations.thaw(recirc_id, now_ms)?;
        let frozen = &found.frozen;
        let bridge = self.bridge_name(frozen.bridge)?;
        let mut key = FlowKey::ZERO;
        key.set_number(layout::IN_PORT, frozen.in_port.0.into());
        key.set_number(layout::METADATA, frozen.metadata);
        key.lines[layout::REGS.line()] = frozen.registers;
        let mut metadata = Match::ANY;
        Place::whole(layout::IN_PORT).write(&mut metadata.mask, u128::MAX);
        // Only what is set is worth telling.
        if frozen.metadata != 0 {
            Place::whole(layout::METADATA).write(&mut metadata.mask, u128::MAX);
        }
        for i in 0..16 {
            if key.number(layout::reg(i)) != 0 {
                Place::whole(layout::reg(i)).write(&mut metadata.mask, u128::MAX);
            }
        }
        metadata.key = key.and(&metadata.mask);
        let (table, in_port, userdata) = (frozen.table, frozen.in_port, frozen.userdata.clone());
        Some(ControllerPacket { bridge, table, in_port, metadata, userdata })
    }
}
