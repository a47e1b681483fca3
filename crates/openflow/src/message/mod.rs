//! Messages, and how they are read and written.
//!
//! | module | messages |
//! |---|---|
//! | [`connection`] | hello, roles, asynchronous messages, bundles |
//! | [`switch`], [`table_stats`] | features, configuration, description, tables |
//! | [`flow_mod`], [`flow_stats`] | flows |
//! | [`ports`], [`groups`], [`meters`] | ports, groups, meters and queues |
//! | [`monitor`] | flow monitors |
//! | [`tlv_table`] | Geneve options as fields |
//! | [`ct_flush`] | tracked connections |
//! | [`stats`] | multipart requests and replies |

pub mod connection;
pub mod ct_flush;
mod custom_stats;
pub mod flow_mod;
pub mod flow_stats;
pub mod groups;
mod kinds;
pub mod meters;
pub mod monitor;
mod names;
pub mod ports;
pub mod stats;
mod stats_kind;
pub mod switch;
mod table_features;
pub mod table_stats;
pub mod tlv_table;

use crate::error::ErrorCode;
use crate::flow_removed::FlowRemoved;
use crate::frame::{HEADER_SIZE, Header};
use crate::packet_in::{PacketIn, PacketOut};
use crate::wire::{Reader, Writer};
use crate::{Error, OptionLengths, Version};
use connection::{AsyncMasks, BundleAdd, BundleControl, RoleMessage, RoleStatus, TableStatus};
use ct_flush::CtFlush;
use flow_mod::FlowModMessage;
use meters::QueueConfig;
use ports::{PortMod, PortStatus};
use sluice_flow::OfPort;
use sluice_ofp::{GroupMod, MeterMod};
use stats::{StatsReply, StatsRequest};
use switch::{Features, SwitchConfig, TableMod};
use tlv_table::{TlvTableMod, TlvTableReply};

pub(crate) use kinds::only_switches_send;

/// The format of a message, where there are two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// The standard's.
    #[default]
    Standard,
    /// Nicira's: OpenFlow 1.0 with the matches of later versions.
    Nicira,
}

/// A message.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the specification's")]
pub enum Message {
    /// The bitmap of the sender's versions, if there is one. The header has the highest.
    Hello(Option<u32>),
    /// The error, and the first bytes of the offending message.
    Error(ErrorCode, Vec<u8>),
    EchoRequest(Vec<u8>),
    EchoReply(Vec<u8>),
    FeaturesRequest,
    FeaturesReply(Features),
    GetConfigRequest,
    GetConfigReply(SwitchConfig),
    SetConfig(SwitchConfig),
    PacketIn(Box<PacketIn>),
    FlowRemoved(Box<FlowRemoved>),
    PortStatus(Box<PortStatus>),
    PacketOut(Box<PacketOut>),
    /// NXT_RESUME resumes a paused packet: its packet-in, with the controller's changes.
    Resume(Box<PacketIn>),
    FlowMod(FlowModMessage),
    GroupMod(Box<GroupMod>),
    PortMod(PortMod),
    TableMod(TableMod),
    BarrierRequest,
    BarrierReply,
    QueueGetConfigRequest(OfPort),
    QueueGetConfigReply(OfPort, Vec<QueueConfig>),
    RoleRequest(RoleMessage),
    RoleReply(RoleMessage),
    RoleStatus(RoleStatus),
    TableStatus(TableStatus),
    GetAsyncRequest,
    GetAsyncReply(AsyncMasks),
    SetAsync(AsyncMasks),
    MeterMod(MeterMod),
    /// A group-mod or meter-mod that another controller has sent.
    RequestForward(Vec<u8>),
    BundleControl(BundleControl),
    BundleAdd(BundleAdd),
    /// A multipart request, and whether more of it follows.
    StatsRequest(StatsRequest, bool),
    /// A multipart reply or part of one, and whether more of it follows.
    StatsReply(StatsReply, bool),
    /// Nicira, OpenFlow 1.0: the format of flows.
    SetFlowFormat(Format),
    /// Nicira, OpenFlow 1.0: whether a flow-mod's command includes the table's number.
    FlowModTableId(bool),
    /// Nicira: the format of packet-ins.
    SetPacketInFormat(crate::PacketInFormat),
    /// Nicira: flow statistics are to include ages.
    FlowAge,
    /// Nicira: the connection's controller id, for `controller(id=…)`.
    SetControllerId(u16),
    /// Nicira: delete the tracked connections of a zone.
    CtFlushZone(u16),
    /// Nicira: delete tracked connections.
    CtFlush(Box<CtFlush>),
    /// Nicira: changes which Geneve options are fields.
    TlvTableMod(TlvTableMod),
    /// Nicira: asks for them.
    TlvTableRequest,
    TlvTableReply(TlvTableReply),
    /// Nicira and ONF, before OpenFlow 1.4: removes the monitor of that id.
    MonitorCancel(u32),
    /// Likewise: too many updates wait for the controller, so the monitors pause.
    MonitorPaused,
    /// Likewise: the pause is over, and the controller knows all changes.
    MonitorResumed,
}

impl Message {
    /// Reads a whole message, as [`crate::Framer`] returns it. `table_in_command` is the value of the last
    /// [`Message::FlowModTableId`] on this connection.
    ///
    /// # Errors
    /// With what is wrong.
    pub fn read(bytes: &[u8], table_in_command: bool) -> Result<(Version, u32, Message), Error> {
        let header = Header::read(bytes)?;
        let mut r = Reader::new(bytes, Error::RequestBadLen).part(header.length.into())?;
        r.skip(HEADER_SIZE)?;
        if header.kind == kinds::HELLO {
            // A hello may have any version in its header.
            let version = Version::from_wire(header.version).unwrap_or(Version::V15);
            return Ok((version, header.xid, Message::Hello(connection::read_hello(&mut r))));
        }
        let version = Version::from_wire(header.version).ok_or(Error::RequestBadVersion)?;
        let message = kinds::read(header.kind, &mut r, version, table_in_command)?;
        r.end()?;
        Ok((version, header.xid, message))
    }

    /// Writes the message. A multipart reply that does not fit into one message becomes several.
    pub fn write(&self, version: Version, xid: u32) -> Vec<u8> {
        self.write_with(&OptionLengths::default(), version, xid)
    }

    /// [`Message::write`] for a peer of a bridge, with tunnel options as long as the bridge maps them. Else they have as many
    /// words as their values take, and the peer takes what is missing for zeros.
    pub fn write_with(&self, options: &OptionLengths, version: Version, xid: u32) -> Vec<u8> {
        let begin = |kind: u8| {
            let mut w = Writer::new(options.clone());
            w.u8(version as u8);
            w.u8(kind);
            w.u16(0);
            w.u32(xid);
            w
        };
        let finish = |mut w: Writer| {
            w.patch_u16(2, w.len());
            w.bytes
        };
        if let Message::StatsReply(reply, more) = self {
            let parts = reply.put_parts(*more, version, || begin(kinds::stats_reply(version)));
            return parts.into_iter().map(finish).collect::<Vec<_>>().concat();
        }
        let kind = kinds::number(self, version);
        let mut w = begin(kind.message);
        if let Some((vendor, subtype)) = kind.experimenter {
            w.u32(vendor);
            w.u32(subtype);
        }
        kinds::put(self, version, &mut w);
        finish(w)
    }
}
