//! Packet-in and packet-out messages.

use crate::action::{self, put_list};
use crate::continuation::{self, Continuation};
use crate::oxm::{self, Numbering, Strictness};
use crate::property;
use crate::wire::{Reader, Writer};
use crate::{Error, Version};
use sluice_flow::{FieldId, Match, OfPort};
use sluice_ofp::OfAction;
use sluice_ofp::consistency::Within;
use sluice_ofp::ofpact::PacketInReason;

/// The reason of that number.
pub(crate) fn reason(number: u8) -> Option<PacketInReason> {
    use PacketInReason::{Action, ActionSet, ExplicitMiss, Group, ImplicitMiss, InvalidTtl, NoMatch, PacketOut};
    let known = [NoMatch, Action, InvalidTtl, ActionSet, Group, PacketOut, ExplicitMiss, ImplicitMiss];
    known.into_iter().find(|r| *r as u8 == number)
}

/// The reason that stands for one which a version lacks. Source: Open vSwitch, `encode_packet_in_reason`.
pub(crate) fn reason_in(reason: PacketInReason, version: Version) -> PacketInReason {
    match reason {
        PacketInReason::ActionSet | PacketInReason::Group | PacketInReason::PacketOut if version < Version::V14 => {
            PacketInReason::Action
        }
        PacketInReason::ExplicitMiss if version < Version::V13 => PacketInReason::Action,
        PacketInReason::ExplicitMiss | PacketInReason::ImplicitMiss => PacketInReason::NoMatch,
        _ => reason,
    }
}

/// The format of packet-ins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum PacketInFormat {
    /// The version's own.
    #[default]
    Standard = 0,
    /// Nicira's first: with the packet's metadata.
    Nxt = 1,
    /// Nicira's second: with user data too.
    Nxt2 = 2,
}

impl PacketInFormat {
    /// The format of that number.
    pub fn from_wire(number: u32) -> Option<Self> {
        [Self::Standard, Self::Nxt, Self::Nxt2].into_iter().find(|f| *f as u32 == number)
    }
}

/// A packet for a controller.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketIn {
    /// Its format.
    pub format: PacketInFormat,
    /// Why it is sent.
    pub reason: PacketInReason,
    /// The table that sent it.
    pub table: u8,
    /// Cookie of the rule that sent it; all ones if none did.
    pub cookie: u64,
    /// Bytes of the whole packet.
    pub total_len: u32,
    /// In-port, registers, metadata and the like: fields that are not in the packet's bytes.
    pub metadata: Match,
    /// The packet, or its first bytes.
    pub data: Vec<u8>,
    /// User data of the rule's action; only in Nicira's second format.
    pub userdata: Vec<u8>,
    /// The state from which a paused packet is resumed; only in Nicira's second format.
    pub continuation: Option<Box<Continuation>>,
}

impl PacketIn {
    fn empty(format: PacketInFormat) -> Self {
        PacketIn {
            format,
            reason: PacketInReason::NoMatch,
            table: 0,
            cookie: u64::MAX,
            total_len: 0,
            metadata: Match::ANY,
            data: Vec::new(),
            userdata: Vec::new(),
            continuation: None,
        }
    }

    /// The port that received it.
    pub fn in_port(&self) -> OfPort {
        OfPort(self.metadata.field(FieldId::InPort).0 as u16)
    }
}

const NO_BUFFER: u32 = u32::MAX;

/// Properties of Nicira's second format.
mod packet_in2 {
    pub const PACKET: u16 = 0;
    pub const FULL_LEN: u16 = 1;
    pub const BUFFER_ID: u16 = 2;
    pub const TABLE_ID: u16 = 3;
    pub const COOKIE: u16 = 4;
    pub const REASON: u16 = 5;
    pub const METADATA: u16 = 6;
    pub const USERDATA: u16 = 7;
    pub const CONTINUATION: u16 = 8;
}

pub(crate) fn put(p: &PacketIn, version: Version, w: &mut Writer) {
    let reason = reason_in(p.reason, version) as u8;
    match p.format {
        PacketInFormat::Nxt => {
            put_head(p, reason, w);
            w.u64(p.cookie);
            let at = w.len();
            w.zeros(8);
            let length = oxm::put_nxm_match(&p.metadata, w);
            w.patch_u16(at, length);
            w.zeros(2);
            w.put(&p.data);
        }
        PacketInFormat::Nxt2 => {
            put2(p, version, w);
            if !p.userdata.is_empty() {
                property::put(packet_in2::USERDATA, &p.userdata, w);
            }
        }
        PacketInFormat::Standard if version == Version::V10 => {
            w.u32(NO_BUFFER);
            w.u16(p.total_len as u16);
            w.u16(p.in_port().0);
            w.u8(reason);
            w.zeros(1);
            w.put(&p.data);
        }
        PacketInFormat::Standard if version == Version::V11 => {
            w.u32(NO_BUFFER);
            w.u32(p.in_port().to_of11());
            // The physical port.
            w.u32(p.in_port().to_of11());
            w.u16(p.total_len as u16);
            w.u8(reason);
            w.u8(p.table);
            w.put(&p.data);
        }
        PacketInFormat::Standard => {
            put_head(p, reason, w);
            if version > Version::V12 {
                w.u64(p.cookie);
            }
            oxm::put_match(&p.metadata, version, w);
            w.zeros(2);
            w.put(&p.data);
        }
    }
}

fn put_head(p: &PacketIn, reason: u8, w: &mut Writer) {
    w.u32(NO_BUFFER);
    w.u16(p.total_len as u16);
    w.u8(reason);
    w.u8(p.table);
}

/// Writes the properties that NXT_PACKET_IN2 and NXT_RESUME share.
fn put2(p: &PacketIn, version: Version, w: &mut Writer) {
    property::put(packet_in2::PACKET, &p.data, w);
    if p.total_len as usize != p.data.len() {
        property::put(packet_in2::FULL_LEN, &p.total_len.to_be_bytes(), w);
    }
    property::put_u8(packet_in2::TABLE_ID, p.table, w);
    if p.cookie != u64::MAX {
        property::put_u64(packet_in2::COOKIE, p.cookie, w);
    }
    property::put_u8(packet_in2::REASON, reason_in(p.reason, version) as u8, w);
    let mut metadata = w.part();
    oxm::put_fields(&p.metadata, Numbering::Oxm(version), &mut metadata);
    property::put(packet_in2::METADATA, &metadata.bytes, w);
    if let Some(continuation) = &p.continuation {
        property::put_nested(packet_in2::CONTINUATION, |w| continuation::put(continuation, version, w), w);
    }
}

/// Writes NXT_RESUME, which resumes a paused packet.
pub(crate) fn put_resume(p: &PacketIn, version: Version, w: &mut Writer) {
    put2(p, version, w);
}

/// Reads a packet-in. Metadata that this build does not know is skipped.
pub(crate) fn read(r: &mut Reader<'_>, version: Version, format: PacketInFormat) -> Result<PacketIn, Error> {
    let mut p = PacketIn::empty(format);
    let wrong = Error::RequestBadReason;
    if format == PacketInFormat::Nxt2 {
        read2(r, &mut p, version, Strictness::Loose)?;
        return Ok(p);
    }
    r.skip(4)?;
    if (version, format) == (Version::V11, PacketInFormat::Standard) {
        let port = OfPort::from_of11(r.u32()?).ok_or(Error::RequestBadPort)?;
        p.metadata = Match::ANY.with(FieldId::InPort, port.0.into());
        r.skip(4)?;
    }
    p.total_len = r.u16()?.into();
    if (version, format) == (Version::V10, PacketInFormat::Standard) {
        p.metadata = Match::ANY.with(FieldId::InPort, r.u16()?.into());
        p.reason = reason(r.u8()?).ok_or(wrong)?;
        r.skip(1)?;
    } else {
        (p.reason, p.table) = (reason(r.u8()?).ok_or(wrong)?, r.u8()?);
        if format == PacketInFormat::Nxt || version > Version::V12 {
            p.cookie = r.u64()?;
        }
        if format == PacketInFormat::Nxt {
            let length = r.u16()?;
            r.skip(6)?;
            p.metadata = oxm::read_nxm_match(r, length.into(), Strictness::Loose)?;
        } else if version > Version::V11 {
            p.metadata = oxm::read_match(r, Strictness::Loose)?;
        }
        r.skip(if format == PacketInFormat::Nxt || version > Version::V11 { 2 } else { 0 })?;
    }
    p.data = r.take(r.len())?.to_vec();
    Ok(p)
}

/// Reads NXT_RESUME: unlike in a packet-in, nothing in it may be unknown.
pub(crate) fn read_resume(r: &mut Reader<'_>, version: Version) -> Result<PacketIn, Error> {
    let mut p = PacketIn::empty(PacketInFormat::Nxt2);
    read2(r, &mut p, version, Strictness::Strict)?;
    Ok(p)
}

fn read2(r: &mut Reader<'_>, p: &mut PacketIn, version: Version, strictness: Strictness) -> Result<(), Error> {
    if !r.len().is_multiple_of(8) {
        return Err(Error::RequestBadLen);
    }
    let mut full_len = None;
    property::each(r.part(r.len())?, |kind, body| {
        match kind {
            packet_in2::PACKET => p.data = body.take(body.len())?.to_vec(),
            packet_in2::FULL_LEN => full_len = Some(property::u32(body)?),
            packet_in2::TABLE_ID => p.table = property::u8(body)?,
            packet_in2::COOKIE => p.cookie = property::u64(body)?,
            packet_in2::REASON => p.reason = reason(property::u8(body)?).unwrap_or(PacketInReason::NoMatch),
            packet_in2::METADATA => {
                p.metadata = oxm::read_fields(*body, strictness)?;
                body.skip(body.len())?;
            }
            packet_in2::USERDATA => p.userdata = body.take(body.len())?.to_vec(),
            packet_in2::CONTINUATION => {
                body.skip(4)?;
                p.continuation = Some(Box::new(continuation::read(body.part(body.len())?, version)?));
            }
            // This switch buffers no packets.
            packet_in2::BUFFER_ID => _ = property::u32(body)?,
            _ if strictness == Strictness::Strict => return Err(property::unknown(kind, body)),
            _ => {}
        }
        Ok(())
    })?;
    p.total_len = full_len.filter(|len| *len != 0).unwrap_or(p.data.len() as u32);
    if p.data.is_empty() || (p.total_len as usize) < p.data.len() { Err(Error::RequestBadLen) } else { Ok(()) }
}

/// A packet from a controller.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketOut {
    /// A packet that the switch has buffered. This switch buffers none.
    pub buffer_id: Option<u32>,
    /// Fields that are not in its bytes: its in-port, and in OpenFlow 1.5 registers, metadata and the like.
    pub metadata: Match,
    /// What to do with it.
    pub actions: Vec<OfAction>,
    /// The packet.
    pub data: Vec<u8>,
}

impl PacketOut {
    /// The in-port that the controller states.
    pub fn in_port(&self) -> OfPort {
        OfPort(self.metadata.field(FieldId::InPort).0 as u16)
    }
}

pub(crate) fn read_out(r: &mut Reader<'_>, version: Version) -> Result<PacketOut, Error> {
    let buffer_id = Some(r.u32()?).filter(|id| *id != NO_BUFFER);
    let (metadata, actions_len) = match version {
        Version::V10 => (Match::ANY.with(FieldId::InPort, r.u16()?.into()), r.u16()?),
        Version::V15 => {
            let n = r.u16()?;
            r.skip(2)?;
            (oxm::read_match(r, Strictness::Pipeline)?, n)
        }
        _ => {
            let port = OfPort::from_of11(r.u32()?).ok_or(Error::RequestBadPort)?;
            let n = r.u16()?;
            r.skip(6)?;
            (Match::ANY.with(FieldId::InPort, port.0.into()), n)
        }
    };
    let port = OfPort(metadata.field(FieldId::InPort).0 as u16);
    let known = port.is_ordinary() || [OfPort::LOCAL, OfPort::NONE, OfPort::CONTROLLER].contains(&port);
    if !known || metadata.field(FieldId::InPort).1 == 0 {
        return Err(Error::RequestBadPort);
    }
    let actions = action::read(r.or(Error::RequestBadLen).part(actions_len.into())?, version, Within::Bucket)?;
    r.skip(actions_len.into())?;
    let data = r.take(r.len())?.to_vec();
    Ok(PacketOut { buffer_id, metadata, actions, data })
}

pub(crate) fn put_out(p: &PacketOut, version: Version, w: &mut Writer) {
    w.u32(p.buffer_id.unwrap_or(NO_BUFFER));
    let mut actions = w.part();
    put_list(&p.actions, version, &mut actions);
    let n = actions.len() as u16;
    match version {
        Version::V10 => {
            w.u16(p.in_port().0);
            w.u16(n);
        }
        Version::V15 => {
            w.u16(n);
            w.zeros(2);
            oxm::put_match(&p.metadata, version, w);
        }
        _ => {
            w.u32(p.in_port().to_of11());
            w.u16(n);
            w.zeros(6);
        }
    }
    w.put(&actions.bytes);
    w.put(&p.data);
}
