//! Messages that the role of a peer forbids.

use crate::Message;
use crate::message::stats::StatsRequest;

/// Whether a message changes the switch, which a secondary controller may not.
pub(super) fn changes_switch(message: &Message) -> bool {
    match message {
        Message::PacketOut(_)
        | Message::FlowMod(_)
        | Message::GroupMod(_)
        | Message::PortMod(_)
        | Message::TableMod(_)
        | Message::MeterMod(_)
        | Message::BundleControl(_)
        | Message::BundleAdd(_)
        | Message::CtFlushZone(_)
        | Message::CtFlush(_)
        | Message::TlvTableMod(_) => true,
        Message::StatsRequest(StatsRequest::TableFeatures(tables), _) => !tables.is_empty(),
        _ => false,
    }
}

/// Whether only switches send a message.
pub(super) fn is_from_switch(message: &Message) -> bool {
    matches!(
        message,
        Message::FeaturesReply(_)
            | Message::GetConfigReply(_)
            | Message::PacketIn(_)
            | Message::Error(..)
            | Message::FlowRemoved(_)
            | Message::PortStatus(_)
            | Message::BarrierReply
            | Message::QueueGetConfigReply(..)
            | Message::RoleReply(_)
            | Message::RoleStatus(_)
            | Message::TableStatus(_)
            | Message::GetAsyncReply(_)
            | Message::RequestForward(_)
            | Message::StatsReply(..)
            | Message::TlvTableReply(_)
            | Message::MonitorPaused
            | Message::MonitorResumed
            | Message::Hello(_)
    )
}
