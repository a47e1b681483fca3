//! Asynchronous messages: what a bridge tells its connections without being asked.

use crate::flow_monitor::MonitorUpdate;
use crate::known_ports::PortChange;
use sluice_flow::{FieldId, OfPort};
use sluice_ofp::ofpact::PacketInReason;
use sluice_ofproto::{PacketInMetadata, RuleRemoved, VacancyEvent};
use sluice_openflow::Message;
use std::sync::Arc;

/// An asynchronous message. Each connection decides whether its controller wants it, and writes it in its own version.
#[derive(Clone, Debug)]
pub enum AsyncMsg {
    /// A packet for controllers.
    PacketIn(Arc<PacketInMsg>),
    /// A rule was removed.
    FlowRemoved(Arc<RuleRemoved>),
    /// A port was added, removed or changed.
    PortStatus(PortChange),
    /// Another controller has become the primary one, by a request of this generation: this one is secondary now.
    Demoted(Option<u64>),
    /// Another controller has changed a group or a meter.
    RequestForward(Arc<ForwardedRequest>),
    /// A table has crossed a vacancy threshold.
    TableStatus(VacancyEvent),
    /// Rules that the connection's flow monitors cover have changed.
    FlowUpdates(Vec<MonitorUpdate>),
}

/// A change that another controller has made.
#[derive(Clone, Debug)]
pub struct ForwardedRequest {
    /// The change: a group-mod or a meter-mod.
    pub message: Message,
    /// Its transaction id.
    pub xid: u32,
}

/// A packet for controllers.
#[derive(Clone, Debug)]
pub struct PacketInMsg {
    /// Its fields and the state of its translation.
    pub metadata: PacketInMetadata,
    /// Why it is sent.
    pub reason: PacketInReason,
    /// The id of the connections that it is for.
    pub controller_id: u16,
    /// Cookie of the rule that sent it.
    pub cookie: u64,
    /// Bytes of the whole packet.
    pub total_len: usize,
    /// The packet, or its first bytes.
    pub bytes: Vec<u8>,
}

impl PacketInMsg {
    /// The bridge's port that received it.
    pub fn in_port(&self) -> OfPort {
        OfPort(self.metadata.metadata.field(FieldId::InPort).0 as u16)
    }

    /// Whether it is sent because no rule matched it.
    pub fn is_miss(&self) -> bool {
        matches!(self.reason, PacketInReason::NoMatch | PacketInReason::ImplicitMiss)
    }
}
