//! Numbers of messages, and which module reads and writes each.

use super::{Format, Message, connection, ct_flush, flow_mod, groups, meters, ports, stats, switch, tlv_table};
use crate::error::{ErrorCode, NICIRA, ONF};
use crate::flow_removed;
use crate::packet_in::{self, PacketInFormat};
use crate::wire::{Reader, Writer};
use crate::{Error, Version};
use meters::QueueConfig;
use switch::SwitchConfig;

pub(super) const HELLO: u8 = 0;
const ERROR: u8 = 1;
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
const EXPERIMENTER: u8 = 4;
const FEATURES_REQUEST: u8 = 5;
const FEATURES_REPLY: u8 = 6;
const GET_CONFIG_REQUEST: u8 = 7;
const GET_CONFIG_REPLY: u8 = 8;
const SET_CONFIG: u8 = 9;
const PACKET_IN: u8 = 10;
const FLOW_REMOVED: u8 = 11;
const PORT_STATUS: u8 = 12;
const PACKET_OUT: u8 = 13;
const FLOW_MOD: u8 = 14;

/// Numbers that only OpenFlow 1.0 has.
mod v10 {
    pub const PORT_MOD: u8 = 15;
    pub const STATS_REQUEST: u8 = 16;
    pub const STATS_REPLY: u8 = 17;
    pub const BARRIER_REQUEST: u8 = 18;
    pub const BARRIER_REPLY: u8 = 19;
    pub const QUEUE_GET_CONFIG_REQUEST: u8 = 20;
    pub const QUEUE_GET_CONFIG_REPLY: u8 = 21;
}

/// Numbers of OpenFlow 1.1 and later.
mod later {
    pub const GROUP_MOD: u8 = 15;
    pub const PORT_MOD: u8 = 16;
    pub const TABLE_MOD: u8 = 17;
    pub const STATS_REQUEST: u8 = 18;
    pub const STATS_REPLY: u8 = 19;
    pub const BARRIER_REQUEST: u8 = 20;
    pub const BARRIER_REPLY: u8 = 21;
    pub const QUEUE_GET_CONFIG_REQUEST: u8 = 22;
    pub const QUEUE_GET_CONFIG_REPLY: u8 = 23;
    pub const ROLE_REQUEST: u8 = 24;
    pub const ROLE_REPLY: u8 = 25;
    pub const GET_ASYNC_REQUEST: u8 = 26;
    pub const GET_ASYNC_REPLY: u8 = 27;
    pub const SET_ASYNC: u8 = 28;
    pub const METER_MOD: u8 = 29;
    pub const ROLE_STATUS: u8 = 30;
    pub const TABLE_STATUS: u8 = 31;
    pub const REQUEST_FORWARD: u8 = 32;
    pub const BUNDLE_CONTROL: u8 = 33;
    pub const BUNDLE_ADD: u8 = 34;
}

/// Nicira's and the ONF's messages.
mod experimenter {
    pub const ROLE_REQUEST: u32 = 10;
    pub const ROLE_REPLY: u32 = 11;
    pub const SET_FLOW_FORMAT: u32 = 12;
    pub const FLOW_MOD: u32 = 13;
    pub const FLOW_REMOVED: u32 = 14;
    pub const FLOW_MOD_TABLE_ID: u32 = 15;
    pub const SET_PACKET_IN_FORMAT: u32 = 16;
    pub const PACKET_IN: u32 = 17;
    pub const FLOW_AGE: u32 = 18;
    pub const SET_ASYNC: u32 = 19;
    pub const SET_CONTROLLER_ID: u32 = 20;
    pub const SET_ASYNC2: u32 = 27;
    pub const MONITOR_CANCEL: u32 = 21;
    pub const MONITOR_PAUSED: u32 = 22;
    pub const MONITOR_RESUMED: u32 = 23;
    pub const TLV_TABLE_MOD: u32 = 24;
    pub const TLV_TABLE_REQUEST: u32 = 25;
    pub const TLV_TABLE_REPLY: u32 = 26;
    pub const RESUME: u32 = 28;
    pub const CT_FLUSH_ZONE: u32 = 29;
    pub const PACKET_IN2: u32 = 30;
    pub const GROUP_MOD: u32 = 31;
    pub const CT_FLUSH: u32 = 32;
    pub const NX_REQUEST_FORWARD: u32 = 132;
    pub const ROLE_STATUS: u32 = 1911;
    pub const ONF_MONITOR_CANCEL: u32 = 1870;
    pub const ONF_MONITOR_PAUSED: u32 = 1871;
    pub const ONF_MONITOR_RESUMED: u32 = 1872;
    pub const BUNDLE_CONTROL: u32 = 2300;
    pub const BUNDLE_ADD: u32 = 2301;
    pub const REQUEST_FORWARD: u32 = 2350;
}

/// Nicira's number of its own format of flows; 0 is the standard's.
const FLOW_FORMAT_NXM: u32 = 2;

pub(super) fn read(kind: u8, r: &mut Reader<'_>, version: Version, table_in_command: bool) -> Result<Message, Error> {
    Ok(match kind {
        ERROR => {
            let (class, code) = (r.u16()?, r.u16()?);
            let (code, data) = ErrorCode::from_wire(class, code, r.take(r.len())?, version);
            Message::Error(code, data.to_vec())
        }
        ECHO_REQUEST => Message::EchoRequest(r.take(r.len())?.to_vec()),
        ECHO_REPLY => Message::EchoReply(r.take(r.len())?.to_vec()),
        EXPERIMENTER => return read_experimenter(r, version, table_in_command),
        FEATURES_REQUEST => Message::FeaturesRequest,
        FEATURES_REPLY => Message::FeaturesReply(switch::read_features(r, version)?),
        GET_CONFIG_REQUEST => Message::GetConfigRequest,
        GET_CONFIG_REPLY => Message::GetConfigReply(read_config(r)?),
        SET_CONFIG => {
            let config = read_config(r)?;
            // OpenFlow 1.3 removed the flag about invalid TTLs.
            let ttl = if version < Version::V13 { switch::INVALID_TTL_TO_CONTROLLER } else { 0 };
            if config.flags & !(switch::FRAG_MASK | ttl) != 0 {
                return Err(Error::ConfigBadFlags);
            }
            Message::SetConfig(config)
        }
        PACKET_IN => Message::PacketIn(Box::new(packet_in::read(r, version, PacketInFormat::Standard)?)),
        FLOW_REMOVED => Message::FlowRemoved(Box::new(flow_removed::read(r, version, Format::Standard)?)),
        PORT_STATUS => Message::PortStatus(Box::new(ports::read_status(r, version)?)),
        PACKET_OUT => Message::PacketOut(Box::new(packet_in::read_out(r, version)?)),
        FLOW_MOD if version == Version::V10 => {
            Message::FlowMod(flow_mod::read10(r, Format::Standard, table_in_command)?)
        }
        FLOW_MOD => Message::FlowMod(flow_mod::read(r, version)?),
        _ if version == Version::V10 => return read_v10(kind, r),
        _ => return read_later(kind, r, version),
    })
}

/// Whether only switches send messages of that type.
pub(crate) fn only_switches_send(kind: u8, version: Version) -> bool {
    let common = [ERROR, FEATURES_REPLY, GET_CONFIG_REPLY, PACKET_IN, FLOW_REMOVED, PORT_STATUS];
    let own: &[u8] = match version {
        Version::V10 => &[v10::STATS_REPLY, v10::BARRIER_REPLY, v10::QUEUE_GET_CONFIG_REPLY],
        _ => &[
            later::STATS_REPLY,
            later::BARRIER_REPLY,
            later::QUEUE_GET_CONFIG_REPLY,
            later::ROLE_REPLY,
            later::GET_ASYNC_REPLY,
            later::ROLE_STATUS,
            later::TABLE_STATUS,
            later::REQUEST_FORWARD,
        ],
    };
    common.contains(&kind) || own.contains(&kind)
}

fn read_config(r: &mut Reader<'_>) -> Result<SwitchConfig, Error> {
    Ok(SwitchConfig { flags: r.u16()?, miss_send_len: r.u16()? })
}

fn read_v10(kind: u8, r: &mut Reader<'_>) -> Result<Message, Error> {
    let version = Version::V10;
    Ok(match kind {
        v10::PORT_MOD => Message::PortMod(ports::read_mod(r, version)?),
        v10::STATS_REQUEST => stats::read_request(r, version).map(|(q, more)| Message::StatsRequest(q, more))?,
        v10::STATS_REPLY => stats::read_reply(r, version).map(|(q, more)| Message::StatsReply(q, more))?,
        v10::BARRIER_REQUEST => Message::BarrierRequest,
        v10::BARRIER_REPLY => Message::BarrierReply,
        v10::QUEUE_GET_CONFIG_REQUEST => {
            let port = ports::read_port(r, version)?;
            r.skip(2)?;
            Message::QueueGetConfigRequest(port)
        }
        v10::QUEUE_GET_CONFIG_REPLY => read_queue_configs(r, version)?,
        _ => return Err(Error::RequestBadType),
    })
}

fn read_queue_configs(r: &mut Reader<'_>, version: Version) -> Result<Message, Error> {
    let port = ports::read_port(r, version)?;
    r.skip(if version == Version::V10 { 6 } else { 4 })?;
    let mut queues = Vec::new();
    while !r.is_empty() {
        queues.push(QueueConfig::read_old(r, port, version)?);
    }
    Ok(Message::QueueGetConfigReply(port, queues))
}

fn read_later(kind: u8, r: &mut Reader<'_>, version: Version) -> Result<Message, Error> {
    let [since12, since13, since14] = [Version::V12, Version::V13, Version::V14].map(|since| version >= since);
    Ok(match kind {
        later::GROUP_MOD => Message::GroupMod(Box::new(groups::read_mod(r, version)?)),
        later::PORT_MOD => Message::PortMod(ports::read_mod(r, version)?),
        later::TABLE_MOD => Message::TableMod(switch::read_table_mod(r, version)?),
        later::STATS_REQUEST => stats::read_request(r, version).map(|(q, more)| Message::StatsRequest(q, more))?,
        later::STATS_REPLY => stats::read_reply(r, version).map(|(q, more)| Message::StatsReply(q, more))?,
        later::BARRIER_REQUEST => Message::BarrierRequest,
        later::BARRIER_REPLY => Message::BarrierReply,
        later::QUEUE_GET_CONFIG_REQUEST if !since14 => {
            let port = ports::read_port(r, version)?;
            r.skip(4)?;
            Message::QueueGetConfigRequest(port)
        }
        later::QUEUE_GET_CONFIG_REPLY if !since14 => read_queue_configs(r, version)?,
        later::ROLE_REQUEST if since12 => Message::RoleRequest(connection::read_role(r, Format::Standard)?),
        later::ROLE_REPLY if since12 => Message::RoleReply(connection::read_role(r, Format::Standard)?),
        later::GET_ASYNC_REQUEST if since13 => Message::GetAsyncRequest,
        later::GET_ASYNC_REPLY if since14 => Message::GetAsyncReply(connection::read_async14(r)?),
        later::GET_ASYNC_REPLY if since13 => Message::GetAsyncReply(connection::read_async13(r)?),
        later::SET_ASYNC if since14 => Message::SetAsync(connection::read_async14(r)?),
        later::SET_ASYNC if since13 => Message::SetAsync(connection::read_async13(r)?),
        later::METER_MOD if since13 => Message::MeterMod(meters::read_mod(r)?),
        later::ROLE_STATUS if since14 => Message::RoleStatus(connection::read_role_status(r)?),
        later::TABLE_STATUS if since14 => Message::TableStatus(connection::read_table_status(r)?),
        later::REQUEST_FORWARD if since14 => Message::RequestForward(r.take(r.len())?.to_vec()),
        later::BUNDLE_CONTROL if since14 => Message::BundleControl(connection::read_bundle_control(r)?),
        later::BUNDLE_ADD if since14 => Message::BundleAdd(connection::read_bundle_add(r)?),
        _ => return Err(Error::RequestBadType),
    })
}

fn read_experimenter(r: &mut Reader<'_>, version: Version, table_in_command: bool) -> Result<Message, Error> {
    let (vendor, subtype) = (r.u32()?, r.u32()?);
    let is13 = version == Version::V13;
    match vendor {
        NICIRA => read_nicira(subtype, r, version, table_in_command),
        ONF if is13 => Ok(match subtype {
            experimenter::BUNDLE_CONTROL => Message::BundleControl(connection::read_bundle_control(r)?),
            experimenter::BUNDLE_ADD => Message::BundleAdd(connection::read_bundle_add(r)?),
            experimenter::ROLE_STATUS => Message::RoleStatus(connection::read_role_status(r)?),
            experimenter::REQUEST_FORWARD => Message::RequestForward(r.take(r.len())?.to_vec()),
            experimenter::ONF_MONITOR_CANCEL => Message::MonitorCancel(r.u32()?),
            experimenter::ONF_MONITOR_PAUSED => Message::MonitorPaused,
            experimenter::ONF_MONITOR_RESUMED => Message::MonitorResumed,
            _ => return Err(Error::RequestBadSubtype),
        }),
        ONF => Err(Error::RequestBadSubtype),
        _ => Err(Error::RequestBadVendor),
    }
}

fn read_nicira(subtype: u32, r: &mut Reader<'_>, version: Version, table_in_command: bool) -> Result<Message, Error> {
    let (is10, before13) = (version == Version::V10, version < Version::V13);
    Ok(match subtype {
        experimenter::ROLE_REQUEST => Message::RoleRequest(connection::read_role(r, Format::Nicira)?),
        experimenter::ROLE_REPLY => Message::RoleReply(connection::read_role(r, Format::Nicira)?),
        experimenter::SET_FLOW_FORMAT if is10 => Message::SetFlowFormat(match r.u32()? {
            0 => Format::Standard,
            FLOW_FORMAT_NXM => Format::Nicira,
            _ => return Err(Error::RequestEperm),
        }),
        experimenter::FLOW_MOD if is10 => Message::FlowMod(flow_mod::read10(r, Format::Nicira, table_in_command)?),
        experimenter::FLOW_REMOVED if is10 => {
            Message::FlowRemoved(Box::new(flow_removed::read(r, version, Format::Nicira)?))
        }
        experimenter::FLOW_MOD_TABLE_ID => {
            let set = r.u8()?;
            r.skip(7)?;
            Message::FlowModTableId(set != 0)
        }
        experimenter::SET_PACKET_IN_FORMAT => {
            Message::SetPacketInFormat(PacketInFormat::from_wire(r.u32()?).ok_or(Error::RequestEperm)?)
        }
        experimenter::PACKET_IN => Message::PacketIn(Box::new(packet_in::read(r, version, PacketInFormat::Nxt)?)),
        experimenter::PACKET_IN2 => Message::PacketIn(Box::new(packet_in::read(r, version, PacketInFormat::Nxt2)?)),
        experimenter::RESUME => Message::Resume(Box::new(packet_in::read_resume(r, version)?)),
        experimenter::FLOW_AGE => Message::FlowAge,
        experimenter::SET_ASYNC => Message::SetAsync(connection::read_async13(r)?),
        experimenter::SET_ASYNC2 if version < Version::V14 => Message::SetAsync(connection::read_async14(r)?),
        experimenter::SET_CONTROLLER_ID => {
            r.zeros(6).map_err(|_| Error::RequestMustBeZero)?;
            Message::SetControllerId(r.u16()?)
        }
        experimenter::CT_FLUSH_ZONE => {
            r.zeros(6).map_err(|_| Error::RequestMustBeZero)?;
            Message::CtFlushZone(r.u16()?)
        }
        experimenter::CT_FLUSH => Message::CtFlush(Box::new(ct_flush::read(r)?)),
        experimenter::TLV_TABLE_MOD => Message::TlvTableMod(tlv_table::read_mod(r)?),
        experimenter::TLV_TABLE_REQUEST => Message::TlvTableRequest,
        experimenter::TLV_TABLE_REPLY => Message::TlvTableReply(tlv_table::read_reply(r)?),
        experimenter::MONITOR_CANCEL if before13 => Message::MonitorCancel(r.u32()?),
        experimenter::MONITOR_PAUSED if before13 => Message::MonitorPaused,
        experimenter::MONITOR_RESUMED if before13 => Message::MonitorResumed,
        experimenter::NX_REQUEST_FORWARD if before13 => Message::RequestForward(r.take(r.len())?.to_vec()),
        experimenter::GROUP_MOD if is10 => Message::GroupMod(Box::new(groups::read_mod(r, version)?)),
        _ => return Err(Error::RequestBadSubtype),
    })
}

/// A message's number, and an experimenter's id and number if it is one of theirs.
pub(super) struct Number {
    pub message: u8,
    pub experimenter: Option<(u32, u32)>,
}

fn standard(message: u8) -> Number {
    Number { message, experimenter: None }
}

fn nicira(subtype: u32) -> Number {
    Number { message: EXPERIMENTER, experimenter: Some((NICIRA, subtype)) }
}

/// The standard's number from OpenFlow 1.4 on, before that an experimenter's.
fn since14(message: u8, subtype: u32, version: Version) -> Number {
    if version >= Version::V14 {
        return standard(message);
    }
    Number { message: EXPERIMENTER, experimenter: Some((ONF, subtype)) }
}

/// Nicira's number before OpenFlow 1.3, the ONF's there.
fn experimenter13(nicira: u32, onf: u32, version: Version) -> Number {
    let experimenter = if version < Version::V13 { (NICIRA, nicira) } else { (ONF, onf) };
    Number { message: EXPERIMENTER, experimenter: Some(experimenter) }
}

/// The number of multipart replies.
pub(super) fn stats_reply(version: Version) -> u8 {
    if version == Version::V10 { v10::STATS_REPLY } else { later::STATS_REPLY }
}

pub(super) fn number(message: &Message, version: Version) -> Number {
    let is10 = version == Version::V10;
    let either = |old: u8, new: u8| standard(if is10 { old } else { new });
    match message {
        Message::Hello(_) => standard(HELLO),
        Message::Error(..) => standard(ERROR),
        Message::EchoRequest(_) => standard(ECHO_REQUEST),
        Message::EchoReply(_) => standard(ECHO_REPLY),
        Message::FeaturesRequest => standard(FEATURES_REQUEST),
        Message::FeaturesReply(_) => standard(FEATURES_REPLY),
        Message::GetConfigRequest => standard(GET_CONFIG_REQUEST),
        Message::GetConfigReply(_) => standard(GET_CONFIG_REPLY),
        Message::SetConfig(_) => standard(SET_CONFIG),
        Message::PacketIn(p) => match p.format {
            PacketInFormat::Standard => standard(PACKET_IN),
            PacketInFormat::Nxt => nicira(experimenter::PACKET_IN),
            PacketInFormat::Nxt2 => nicira(experimenter::PACKET_IN2),
        },
        Message::FlowRemoved(f) if is10 && f.format == Format::Nicira => nicira(experimenter::FLOW_REMOVED),
        Message::FlowRemoved(_) => standard(FLOW_REMOVED),
        Message::PortStatus(_) => standard(PORT_STATUS),
        Message::PacketOut(_) => standard(PACKET_OUT),
        Message::FlowMod(m) if is10 && m.format == Format::Nicira => nicira(experimenter::FLOW_MOD),
        Message::FlowMod(_) => standard(FLOW_MOD),
        Message::GroupMod(_) if is10 => nicira(experimenter::GROUP_MOD),
        Message::GroupMod(_) => standard(later::GROUP_MOD),
        Message::PortMod(_) => either(v10::PORT_MOD, later::PORT_MOD),
        Message::TableMod(_) => standard(later::TABLE_MOD),
        Message::BarrierRequest => either(v10::BARRIER_REQUEST, later::BARRIER_REQUEST),
        Message::BarrierReply => either(v10::BARRIER_REPLY, later::BARRIER_REPLY),
        Message::QueueGetConfigRequest(_) => either(v10::QUEUE_GET_CONFIG_REQUEST, later::QUEUE_GET_CONFIG_REQUEST),
        Message::QueueGetConfigReply(..) => either(v10::QUEUE_GET_CONFIG_REPLY, later::QUEUE_GET_CONFIG_REPLY),
        Message::RoleRequest(m) if m.format == Format::Nicira => nicira(experimenter::ROLE_REQUEST),
        Message::RoleRequest(_) => standard(later::ROLE_REQUEST),
        Message::RoleReply(m) if m.format == Format::Nicira => nicira(experimenter::ROLE_REPLY),
        Message::RoleReply(_) => standard(later::ROLE_REPLY),
        Message::RoleStatus(_) => since14(later::ROLE_STATUS, experimenter::ROLE_STATUS, version),
        Message::TableStatus(_) => standard(later::TABLE_STATUS),
        Message::GetAsyncRequest => standard(later::GET_ASYNC_REQUEST),
        Message::GetAsyncReply(_) => standard(later::GET_ASYNC_REPLY),
        Message::SetAsync(masks) if version < Version::V14 && masks.needs_properties() => {
            nicira(experimenter::SET_ASYNC2)
        }
        Message::SetAsync(_) if version < Version::V13 => nicira(experimenter::SET_ASYNC),
        Message::SetAsync(_) => standard(later::SET_ASYNC),
        Message::MeterMod(_) => standard(later::METER_MOD),
        Message::RequestForward(_) if version < Version::V14 => {
            experimenter13(experimenter::NX_REQUEST_FORWARD, experimenter::REQUEST_FORWARD, version)
        }
        Message::RequestForward(_) => standard(later::REQUEST_FORWARD),
        Message::BundleControl(_) => since14(later::BUNDLE_CONTROL, experimenter::BUNDLE_CONTROL, version),
        Message::BundleAdd(_) => since14(later::BUNDLE_ADD, experimenter::BUNDLE_ADD, version),
        Message::StatsRequest(..) => either(v10::STATS_REQUEST, later::STATS_REQUEST),
        Message::StatsReply(..) => standard(stats_reply(version)),
        Message::SetFlowFormat(_) => nicira(experimenter::SET_FLOW_FORMAT),
        Message::FlowModTableId(_) => nicira(experimenter::FLOW_MOD_TABLE_ID),
        Message::SetPacketInFormat(_) => nicira(experimenter::SET_PACKET_IN_FORMAT),
        Message::Resume(_) => nicira(experimenter::RESUME),
        Message::FlowAge => nicira(experimenter::FLOW_AGE),
        Message::SetControllerId(_) => nicira(experimenter::SET_CONTROLLER_ID),
        Message::CtFlushZone(_) => nicira(experimenter::CT_FLUSH_ZONE),
        Message::CtFlush(_) => nicira(experimenter::CT_FLUSH),
        Message::TlvTableMod(_) => nicira(experimenter::TLV_TABLE_MOD),
        Message::TlvTableRequest => nicira(experimenter::TLV_TABLE_REQUEST),
        Message::TlvTableReply(_) => nicira(experimenter::TLV_TABLE_REPLY),
        Message::MonitorCancel(_) => {
            experimenter13(experimenter::MONITOR_CANCEL, experimenter::ONF_MONITOR_CANCEL, version)
        }
        Message::MonitorPaused => {
            experimenter13(experimenter::MONITOR_PAUSED, experimenter::ONF_MONITOR_PAUSED, version)
        }
        Message::MonitorResumed => {
            experimenter13(experimenter::MONITOR_RESUMED, experimenter::ONF_MONITOR_RESUMED, version)
        }
    }
}

/// Writes the body of a message.
pub(super) fn put(message: &Message, version: Version, w: &mut Writer) {
    match message {
        Message::Hello(versions) => connection::put_hello(*versions, w),
        Message::Error(code, data) => {
            let (class, code, head) = code.to_wire(version);
            w.u16(class);
            w.u16(code);
            w.put(&head);
            w.put(data);
        }
        Message::EchoRequest(data) | Message::EchoReply(data) | Message::RequestForward(data) => w.put(data),
        Message::FeaturesReply(f) => switch::put_features(f, version, w),
        Message::GetConfigReply(c) | Message::SetConfig(c) => {
            w.u16(c.flags);
            w.u16(c.miss_send_len);
        }
        Message::PacketIn(p) => packet_in::put(p, version, w),
        Message::FlowRemoved(f) => flow_removed::put(f, version, w),
        Message::PortStatus(s) => ports::put_status(s, version, w),
        Message::Resume(p) => packet_in::put_resume(p, version, w),
        Message::PacketOut(p) => packet_in::put_out(p, version, w),
        Message::FlowMod(m) => flow_mod::put(m, version, w),
        Message::GroupMod(m) => groups::put_mod(m, version, w),
        Message::PortMod(m) => ports::put_mod(m, version, w),
        Message::TableMod(m) => switch::put_table_mod(m, version, w),
        Message::QueueGetConfigRequest(port) => {
            ports::put_port(*port, version, w);
            w.zeros(if version == Version::V10 { 2 } else { 4 });
        }
        Message::QueueGetConfigReply(port, queues) => {
            ports::put_port(*port, version, w);
            w.zeros(if version == Version::V10 { 6 } else { 4 });
            queues.iter().for_each(|q| q.put_old(version, w));
        }
        Message::RoleRequest(m) | Message::RoleReply(m) => connection::put_role(m, w),
        Message::RoleStatus(s) => connection::put_role_status(s, w),
        Message::TableStatus(s) => connection::put_table_status(s, w),
        Message::GetAsyncReply(masks) if version >= Version::V14 => connection::put_async14(masks, w),
        Message::SetAsync(masks) if version >= Version::V14 || masks.needs_properties() => {
            connection::put_async14(masks, w);
        }
        Message::GetAsyncReply(masks) | Message::SetAsync(masks) => connection::put_async13(masks, w),
        Message::MeterMod(m) => meters::put_mod(m, w),
        Message::BundleControl(m) => connection::put_bundle_control(m, w),
        Message::BundleAdd(m) => connection::put_bundle_add(m, w),
        Message::StatsRequest(q, more) => stats::put_request(q, *more, version, w),
        Message::CtFlush(m) => ct_flush::put(m, w),
        Message::TlvTableMod(m) => tlv_table::put_mod(m, w),
        Message::TlvTableReply(table) => tlv_table::put_reply(table, w),
        Message::MonitorCancel(id) => w.u32(*id),
        Message::SetFlowFormat(format) => w.u32(if *format == Format::Nicira { FLOW_FORMAT_NXM } else { 0 }),
        Message::FlowModTableId(set) => {
            w.u8((*set).into());
            w.zeros(7);
        }
        Message::SetPacketInFormat(format) => w.u32(*format as u32),
        Message::SetControllerId(id) | Message::CtFlushZone(id) => {
            w.zeros(6);
            w.u16(*id);
        }
        Message::FeaturesRequest
        | Message::GetConfigRequest
        | Message::BarrierRequest
        | Message::BarrierReply
        | Message::GetAsyncRequest
        | Message::FlowAge
        | Message::TlvTableRequest
        | Message::MonitorPaused
        | Message::MonitorResumed
        | Message::StatsReply(..) => {}
    }
}
