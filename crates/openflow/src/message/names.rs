//! The names of messages, as Open vSwitch's log and `ovs-ofctl` have them. Source: Open vSwitch, ofp-msgs.h.

use super::kinds::{self, Number};
use super::stats::{StatsReply, StatsRequest};
use super::{Format, Message};
use crate::Version;
use crate::error::{NICIRA, ONF};
use crate::packet_in::PacketInFormat;

impl Message {
    /// Its name: `OFPT_HELLO`, `NXST_FLOW reply`.
    pub(crate) fn log_name(&self, version: Version) -> String {
        let (kind, format, way) = match self {
            Message::StatsRequest(request, _) => (request.log_name(), request.format(), "request"),
            Message::StatsReply(reply, _) => (reply.log_name(), reply.format(), "reply"),
            _ => return self.plain_log_name(version),
        };
        let is_nicira = match kind {
            "FLOW" | "AGGREGATE" => version == Version::V10 && format == Format::Nicira,
            "GROUP" | "GROUP_DESC" => version == Version::V10,
            "GROUP_FEATURES" => version < Version::V12,
            "FLOW_MONITOR" => version < Version::V13,
            _ => false,
        };
        let prefix = match is_nicira {
            true => "NXST",
            false if kind == "FLOW_MONITOR" && version == Version::V13 => "ONFST",
            false => "OFPST",
        };
        format!("{prefix}_{kind} {way}")
    }

    fn plain_log_name(&self, version: Version) -> String {
        let prefix = match kinds::number(self, version) {
            Number { experimenter: Some((NICIRA, _)), .. } => "NXT",
            Number { experimenter: Some((ONF, _)), .. } => "ONFT",
            _ => "OFPT",
        };
        let name = match self {
            Message::Hello(_) => "HELLO",
            Message::Error(..) => "ERROR",
            Message::EchoRequest(_) => "ECHO_REQUEST",
            Message::EchoReply(_) => "ECHO_REPLY",
            Message::FeaturesRequest => "FEATURES_REQUEST",
            Message::FeaturesReply(_) => "FEATURES_REPLY",
            Message::GetConfigRequest => "GET_CONFIG_REQUEST",
            Message::GetConfigReply(_) => "GET_CONFIG_REPLY",
            Message::SetConfig(_) => "SET_CONFIG",
            Message::PacketIn(p) if p.format == PacketInFormat::Nxt2 => "PACKET_IN2",
            Message::PacketIn(_) => "PACKET_IN",
            Message::FlowRemoved(_) => "FLOW_REMOVED",
            Message::PortStatus(_) => "PORT_STATUS",
            Message::PacketOut(_) => "PACKET_OUT",
            Message::Resume(_) => "RESUME",
            Message::FlowMod(_) => "FLOW_MOD",
            Message::GroupMod(_) => "GROUP_MOD",
            Message::PortMod(_) => "PORT_MOD",
            Message::TableMod(_) => "TABLE_MOD",
            Message::BarrierRequest => "BARRIER_REQUEST",
            Message::BarrierReply => "BARRIER_REPLY",
            Message::QueueGetConfigRequest(_) => "QUEUE_GET_CONFIG_REQUEST",
            Message::QueueGetConfigReply(..) => "QUEUE_GET_CONFIG_REPLY",
            Message::RoleRequest(_) => "ROLE_REQUEST",
            Message::RoleReply(_) => "ROLE_REPLY",
            Message::RoleStatus(_) => "ROLE_STATUS",
            Message::TableStatus(_) => "TABLE_STATUS",
            Message::GetAsyncRequest => "GET_ASYNC_REQUEST",
            Message::GetAsyncReply(_) => "GET_ASYNC_REPLY",
            Message::SetAsync(_) if prefix == "NXT" => "SET_ASYNC_CONFIG",
            Message::SetAsync(_) => "SET_ASYNC",
            Message::MeterMod(_) => "METER_MOD",
            Message::RequestForward(_) => "REQUESTFORWARD",
            Message::BundleControl(_) => "BUNDLE_CONTROL",
            Message::BundleAdd(_) => "BUNDLE_ADD_MESSAGE",
            Message::StatsRequest(..) | Message::StatsReply(..) => "STATS",
            Message::SetFlowFormat(_) => "SET_FLOW_FORMAT",
            Message::FlowModTableId(_) => "FLOW_MOD_TABLE_ID",
            Message::SetPacketInFormat(_) => "SET_PACKET_IN_FORMAT",
            Message::FlowAge => "FLOW_AGE",
            Message::SetControllerId(_) => "SET_CONTROLLER_ID",
            Message::CtFlushZone(_) => "CT_FLUSH_ZONE",
            Message::CtFlush(_) => "CT_FLUSH",
            Message::TlvTableMod(_) => "TLV_TABLE_MOD",
            Message::TlvTableRequest => "TLV_TABLE_REQUEST",
            Message::TlvTableReply(_) => "TLV_TABLE_REPLY",
            Message::MonitorCancel(_) => "FLOW_MONITOR_CANCEL",
            Message::MonitorPaused => "FLOW_MONITOR_PAUSED",
            Message::MonitorResumed => "FLOW_MONITOR_RESUMED",
        };
        format!("{prefix}_{name}")
    }
}

impl StatsRequest {
    fn log_name(&self) -> &'static str {
        match self {
            StatsRequest::Description => "DESC",
            StatsRequest::Flows(_) => "FLOW",
            StatsRequest::Aggregate(_) => "AGGREGATE",
            StatsRequest::Tables => "TABLE",
            StatsRequest::Ports(_) => "PORT",
            StatsRequest::Queues(..) => "QUEUE",
            StatsRequest::Groups(_) => "GROUP",
            StatsRequest::GroupDescs(_) => "GROUP_DESC",
            StatsRequest::GroupFeatures => "GROUP_FEATURES",
            StatsRequest::Meters(_) => "METER",
            StatsRequest::MeterConfigs(_) => "METER_CONFIG",
            StatsRequest::MeterFeatures => "METER_FEATURES",
            StatsRequest::TableFeatures(_) => "TABLE_FEATURES",
            StatsRequest::PortDescs(_) => "PORT_DESC",
            StatsRequest::TableDescs => "TABLE_DESC",
            StatsRequest::QueueDescs(..) => "QUEUE_DESC",
            StatsRequest::Monitors(_) => "FLOW_MONITOR",
        }
    }

    fn format(&self) -> Format {
        match self {
            StatsRequest::Flows(wanted) | StatsRequest::Aggregate(wanted) => wanted.format,
            _ => Format::Standard,
        }
    }
}

impl StatsReply {
    fn log_name(&self) -> &'static str {
        match self {
            StatsReply::Description(_) => "DESC",
            StatsReply::Flows(..) => "FLOW",
            StatsReply::Aggregate(..) => "AGGREGATE",
            StatsReply::Tables(_) => "TABLE",
            StatsReply::Ports(_) => "PORT",
            StatsReply::Queues(_) => "QUEUE",
            StatsReply::Groups(_) => "GROUP",
            StatsReply::GroupDescs(_) => "GROUP_DESC",
            StatsReply::GroupFeatures(_) => "GROUP_FEATURES",
            StatsReply::Meters(_) => "METER",
            StatsReply::MeterConfigs(_) => "METER_CONFIG",
            StatsReply::MeterFeatures(_) => "METER_FEATURES",
            StatsReply::TableFeatures(_) => "TABLE_FEATURES",
            StatsReply::PortDescs(_) => "PORT_DESC",
            StatsReply::TableDescs(_) => "TABLE_DESC",
            StatsReply::QueueDescs(_) => "QUEUE_DESC",
            StatsReply::Updates(_) => "FLOW_MONITOR",
        }
    }

    fn format(&self) -> Format {
        match self {
            StatsReply::Flows(format, _) | StatsReply::Aggregate(format, _) => *format,
            _ => Format::Standard,
        }
    }
}
