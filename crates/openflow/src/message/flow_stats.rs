//! Statistics of flows, one by one and aggregated.

use super::Format;
use super::flow_mod::{flag_bits, flags};
use crate::action::{self, put_list};
use crate::oxm::{self, Strictness};
use crate::wire::{Reader, Writer};
use crate::{Error, Version, instruction, match10};
use sluice_flow::{Match, OfPort};
use sluice_ofp::consistency::Within;
use sluice_ofp::{FlowFlags, GROUP_ANY, OfAction};
use std::sync::Arc;

/// A request for statistics of flows.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRequest {
    /// The format of request and reply; for OpenFlow 1.0.
    pub format: Format,
    /// Flows within this match.
    pub matches: Match,
    /// Of this table; `None`: of any.
    pub table: Option<u8>,
    /// That output there.
    pub out_port: Option<OfPort>,
    /// That send to this group.
    pub out_group: Option<u32>,
    /// That have this cookie, in the bits of the mask.
    pub cookie: u64,
    /// Bits of the cookie that matter.
    pub cookie_mask: u64,
}

/// A flow with its counters.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowStats {
    /// Its table.
    pub table: u8,
    /// Its priority.
    pub priority: u16,
    /// Its cookie.
    pub cookie: u64,
    /// Its idle timeout.
    pub idle_timeout: u16,
    /// Its hard timeout.
    pub hard_timeout: u16,
    /// Which flows to evict first.
    pub importance: u16,
    /// Its flags.
    pub flags: FlowFlags,
    /// Nanoseconds since it was added.
    pub duration_ns: u64,
    /// Seconds since a packet last matched it; only in Nicira's format and OpenFlow 1.5.
    pub idle_age: Option<u32>,
    /// Seconds since it was last changed; only in Nicira's format.
    pub hard_age: Option<u32>,
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What it matches.
    pub matches: Match,
    /// Its actions.
    pub actions: Arc<[OfAction]>,
}

/// Aggregated statistics of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aggregate {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flows.
    pub flows: u32,
}

/// Any table.
const ALL_TABLES: u8 = 255;

pub(super) fn any_table(table: u8) -> Option<u8> {
    Some(table).filter(|table| *table != ALL_TABLES)
}

pub(super) fn any_port(port: u32) -> Result<Option<OfPort>, Error> {
    let port = OfPort::from_of11(port).ok_or(Error::ActionBadOutPort)?;
    Ok(Some(port).filter(|port| *port != OfPort::NONE))
}

pub(super) fn any_group(group: u32) -> Option<u32> {
    Some(group).filter(|group| *group != GROUP_ANY)
}

/// Class of OpenFlow 1.5's statistics fields.
const OXS_BASIC: u16 = 0x8002;
const OXS_DURATION: u8 = 0;
const OXS_IDLE_TIME: u8 = 1;
const OXS_FLOW_COUNT: u8 = 3;
const OXS_PACKET_COUNT: u8 = 4;
const OXS_BYTE_COUNT: u8 = 5;

/// Seconds and nanoseconds of a duration; all ones if it is unknown.
pub(crate) fn put_duration(ns: u64, w: &mut Writer) {
    if ns == u64::MAX {
        return w.u64(u64::MAX);
    }
    w.u32((ns / 1_000_000_000) as u32);
    w.u32((ns % 1_000_000_000) as u32);
}

pub(crate) fn read_duration(r: &mut Reader<'_>) -> Result<u64, Error> {
    let (seconds, ns) = (r.u32()?, r.u32()?);
    let is_known = (seconds, ns) != (u32::MAX, u32::MAX);
    Ok(if is_known { u64::from(seconds) * 1_000_000_000 + u64::from(ns) } else { u64::MAX })
}

pub(super) fn read_request(r: &mut Reader<'_>, version: Version, format: Format) -> Result<FlowRequest, Error> {
    if version > Version::V10 {
        let table = r.u8()?;
        r.skip(3)?;
        let (out_port, out_group) = (any_port(r.u32()?)?, any_group(r.u32()?));
        r.skip(4)?;
        let (cookie, cookie_mask) = (r.u64()?, r.u64()?);
        return Ok(FlowRequest {
            format: Format::Standard,
            matches: oxm::read_match(r, Strictness::Strict)?,
            table: any_table(table),
            out_port,
            out_group,
            cookie,
            cookie_mask,
        });
    }
    let (matches, table, out_port, cookie, cookie_mask) = match format {
        Format::Standard => {
            let (matches, table) = (match10::read(r)?, r.u8()?);
            r.skip(1)?;
            (matches, table, r.u16()?, 0, 0)
        }
        Format::Nicira => {
            let (out_port, match_len, table) = (r.u16()?, r.u16()?, r.u8()?);
            r.skip(3)?;
            let (matches, cookie, mask) = oxm::read_nxm_match_and_cookie(r, match_len.into())?;
            (matches, table, out_port, cookie, mask)
        }
    };
    let table = any_table(table);
    let out_port = match10::some_port(out_port);
    Ok(FlowRequest { format, matches, table, out_port, out_group: None, cookie, cookie_mask })
}

pub(super) fn put_request(q: &FlowRequest, version: Version, w: &mut Writer) {
    let table = q.table.unwrap_or(ALL_TABLES);
    let out_port = q.out_port.unwrap_or(OfPort::NONE);
    if version > Version::V10 {
        w.u8(table);
        w.zeros(3);
        w.u32(out_port.to_of11());
        w.u32(q.out_group.unwrap_or(GROUP_ANY));
        w.zeros(4);
        w.u64(q.cookie);
        w.u64(q.cookie_mask);
        return oxm::put_match(&q.matches, version, w);
    }
    match q.format {
        Format::Standard => {
            match10::put(&q.matches, w);
            w.u8(table);
            w.zeros(1);
            w.u16(out_port.0);
        }
        Format::Nicira => {
            w.u16(out_port.0);
            let at = w.len();
            w.u16(0);
            w.u8(table);
            w.zeros(3);
            let length = oxm::put_nxm_match_and_cookie(&q.matches, q.cookie, q.cookie_mask, w);
            w.patch_u16(at, length);
        }
    }
}

impl FlowStats {
    /// Writes the flow as an item of a reply.
    pub(super) fn put(&self, version: Version, format: Format, w: &mut Writer) {
        let start = w.len();
        match (version, format) {
            (Version::V10, Format::Standard) => self.put10(w),
            (Version::V10, Format::Nicira) => self.put_nicira(w),
            (Version::V15, _) => self.put15(w),
            _ => self.put11(version, w),
        }
        w.patch_u16(start, w.len() - start);
    }

    fn put10(&self, w: &mut Writer) {
        w.u16(0);
        w.u8(self.table);
        w.zeros(1);
        match10::put(&self.matches, w);
        put_duration(self.duration_ns, w);
        w.u16(self.priority);
        w.u16(self.idle_timeout);
        w.u16(self.hard_timeout);
        w.zeros(6);
        w.u64(self.cookie);
        w.u64(self.packets);
        w.u64(self.bytes);
        put_list(&self.actions, Version::V10, w);
    }

    fn put_nicira(&self, w: &mut Writer) {
        let age = |age: Option<u32>| age.map_or(0, |age| age.saturating_add(1).min(0xffff) as u16);
        w.u16(0);
        w.u8(self.table);
        w.zeros(1);
        put_duration(self.duration_ns, w);
        w.u16(self.priority);
        w.u16(self.idle_timeout);
        w.u16(self.hard_timeout);
        let at = w.len();
        w.u16(0);
        w.u16(age(self.idle_age));
        w.u16(age(self.hard_age));
        w.u64(self.cookie);
        w.u64(self.packets);
        w.u64(self.bytes);
        let length = oxm::put_nxm_match(&self.matches, w);
        w.patch_u16(at, length);
        put_list(&self.actions, Version::V10, w);
    }

    fn put11(&self, version: Version, w: &mut Writer) {
        w.u16(0);
        w.u8(self.table);
        w.zeros(1);
        put_duration(self.duration_ns, w);
        w.u16(self.priority);
        w.u16(self.idle_timeout);
        w.u16(self.hard_timeout);
        w.u16(if version >= Version::V13 { flag_bits(self.flags, version) } else { 0 });
        w.u16(if version >= Version::V14 { self.importance } else { 0 });
        w.zeros(2);
        w.u64(self.cookie);
        w.u64(self.packets);
        w.u64(self.bytes);
        oxm::put_match(&self.matches, version, w);
        instruction::put(&self.actions, version, w);
    }

    fn put15(&self, w: &mut Writer) {
        w.u16(0);
        w.zeros(2);
        w.u8(self.table);
        w.zeros(1);
        w.u16(self.priority);
        w.u16(self.idle_timeout);
        w.u16(self.hard_timeout);
        w.u16(flag_bits(self.flags, Version::V15));
        w.u16(self.importance);
        w.u64(self.cookie);
        oxm::put_match(&self.matches, Version::V15, w);
        put_oxs(w, |w| {
            put_oxs_field(OXS_DURATION, 8, w);
            put_duration(self.duration_ns, w);
            if let Some(age) = self.idle_age {
                put_oxs_field(OXS_IDLE_TIME, 8, w);
                w.u32(age);
                w.u32(0);
            }
            put_oxs_counts(self.packets, self.bytes, w);
        });
        instruction::put(&self.actions, Version::V15, w);
    }

    /// Reads one item of a reply.
    pub(super) fn read(r: &mut Reader<'_>, version: Version, format: Format) -> Result<FlowStats, Error> {
        let length = r.rest().first_chunk::<2>().map(|n| usize::from(u16::from_be_bytes(*n)));
        let mut r = r.part(length.ok_or(Error::RequestBadLen)?)?;
        r.skip(2)?;
        if version == Version::V15 {
            return read15(&mut r);
        }
        let table = r.u8()?;
        r.skip(1)?;
        let mut matches = Match::ANY;
        if (version, format) == (Version::V10, Format::Standard) {
            matches = match10::read(&mut r)?;
        }
        let duration_ns = read_duration(&mut r)?;
        let (priority, idle_timeout, hard_timeout) = (r.u16()?, r.u16()?, r.u16()?);
        let (mut bits, mut importance, mut match_len) = (0, 0, 0);
        let (mut idle_age, mut hard_age) = (None, None);
        match (version, format) {
            (Version::V10, Format::Standard) => r.skip(6)?,
            (Version::V10, Format::Nicira) => {
                match_len = r.u16()?;
                idle_age = r.u16()?.checked_sub(1).map(u32::from);
                hard_age = r.u16()?.checked_sub(1).map(u32::from);
            }
            _ => {
                let fields = (r.u16()?, r.u16()?);
                bits = if version >= Version::V13 { fields.0 } else { 0 };
                importance = if version >= Version::V14 { fields.1 } else { 0 };
                r.skip(2)?;
            }
        }
        let (cookie, packets, bytes) = (r.u64()?, r.u64()?, r.u64()?);
        let actions = match (version, format) {
            (Version::V10, Format::Standard) => action::read(r, version, Within::Flow)?,
            (Version::V10, Format::Nicira) => {
                matches = oxm::read_nxm_match(&mut r, match_len.into(), Strictness::Strict)?;
                action::read(r, version, Within::Flow)?
            }
            _ => {
                matches = oxm::read_match(&mut r, Strictness::Strict)?;
                instruction::read(&mut r, version)?
            }
        };
        Ok(FlowStats {
            table,
            priority,
            cookie,
            idle_timeout,
            hard_timeout,
            importance,
            flags: flags(bits, Version::V15)?,
            duration_ns,
            idle_age,
            hard_age,
            packets,
            bytes,
            matches,
            actions: actions.into(),
        })
    }
}

fn read15(r: &mut Reader<'_>) -> Result<FlowStats, Error> {
    r.skip(2)?;
    let table = r.u8()?;
    r.skip(1)?;
    let (priority, idle_timeout, hard_timeout) = (r.u16()?, r.u16()?, r.u16()?);
    let (bits, importance, cookie) = (r.u16()?, r.u16()?, r.u64()?);
    let matches = oxm::read_match(r, Strictness::Strict)?;
    let (mut duration_ns, mut idle_age, mut counts) = (0, None, Aggregate::default());
    each_oxs(r, |kind, r| {
        match kind {
            OXS_DURATION => duration_ns = read_duration(r)?,
            OXS_IDLE_TIME => idle_age = Some((r.u64()? >> 32) as u32),
            _ => read_count(kind, r, &mut counts)?,
        }
        Ok(())
    })?;
    Ok(FlowStats {
        table,
        priority,
        cookie,
        idle_timeout,
        hard_timeout,
        importance,
        flags: flags(bits, Version::V15)?,
        duration_ns,
        idle_age,
        hard_age: None,
        packets: counts.packets,
        bytes: counts.bytes,
        matches,
        actions: instruction::read(r, Version::V15)?.into(),
    })
}

/// Writes statistics fields of OpenFlow 1.5 with their header and padding.
pub(super) fn put_oxs(w: &mut Writer, fields: impl FnOnce(&mut Writer)) {
    let start = w.len();
    w.zeros(4);
    fields(w);
    w.patch_u16(start + 2, w.len() - start);
    w.pad8(start);
}

fn put_oxs_field(kind: u8, size: u8, w: &mut Writer) {
    w.u16(OXS_BASIC);
    w.u8(kind << 1);
    w.u8(size);
}

pub(super) fn put_oxs_counts(packets: u64, bytes: u64, w: &mut Writer) {
    put_oxs_field(OXS_PACKET_COUNT, 8, w);
    w.u64(packets);
    put_oxs_field(OXS_BYTE_COUNT, 8, w);
    w.u64(bytes);
}

/// Writes duration, packets and bytes as statistics fields.
pub(crate) fn put_oxs_stats(duration_ns: u64, packets: u64, bytes: u64, w: &mut Writer) {
    put_oxs(w, |w| {
        put_oxs_field(OXS_DURATION, 8, w);
        put_duration(duration_ns, w);
        put_oxs_counts(packets, bytes, w);
    });
}

/// Reads duration, packets and bytes from statistics fields.
pub(crate) fn read_oxs_stats(r: &mut Reader<'_>) -> Result<(u64, u64, u64), Error> {
    // Missing counters are all ones.
    let (mut duration_ns, mut counts) = (0, Aggregate { packets: u64::MAX, bytes: u64::MAX, flows: 0 });
    each_oxs(r, |kind, r| match kind {
        OXS_DURATION => read_duration(r).map(|ns| duration_ns = ns),
        _ => read_count(kind, r, &mut counts),
    })?;
    Ok((duration_ns, counts.packets, counts.bytes))
}

fn each_oxs(r: &mut Reader<'_>, mut f: impl FnMut(u8, &mut Reader<'_>) -> Result<(), Error>) -> Result<(), Error> {
    r.skip(2)?;
    let length = usize::from(r.u16()?);
    let body = length.checked_sub(4).ok_or(Error::RequestBadLen)?;
    let mut padded = r.part(length.next_multiple_of(8) - 4)?;
    let mut fields = padded.part(body)?;
    while !fields.is_empty() {
        let (class, kind, size) = (fields.u16()?, fields.u8()? >> 1, fields.u8()?);
        let mut value = fields.part(size.into())?;
        if class == OXS_BASIC {
            f(kind, &mut value)?;
        }
    }
    Ok(())
}

fn read_count(kind: u8, r: &mut Reader<'_>, counts: &mut Aggregate) -> Result<(), Error> {
    match kind {
        OXS_PACKET_COUNT => counts.packets = r.u64()?,
        OXS_BYTE_COUNT => counts.bytes = r.u64()?,
        OXS_FLOW_COUNT => counts.flows = r.u32()?,
        _ => {}
    }
    Ok(())
}

pub(super) fn put_aggregate(a: &Aggregate, version: Version, w: &mut Writer) {
    if version == Version::V15 {
        return put_oxs(w, |w| {
            put_oxs_counts(a.packets, a.bytes, w);
            put_oxs_field(OXS_FLOW_COUNT, 4, w);
            w.u32(a.flows);
        });
    }
    w.u64(a.packets);
    w.u64(a.bytes);
    w.u32(a.flows);
    w.zeros(4);
}

pub(super) fn read_aggregate(r: &mut Reader<'_>, version: Version) -> Result<Aggregate, Error> {
    if version == Version::V15 {
        let mut counts = Aggregate { packets: u64::MAX, bytes: u64::MAX, flows: 0 };
        each_oxs(r, |kind, r| read_count(kind, r, &mut counts))?;
        return Ok(counts);
    }
    let counts = Aggregate { packets: r.u64()?, bytes: r.u64()?, flows: r.u32()? };
    r.skip(4)?;
    Ok(counts)
}
