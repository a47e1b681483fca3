//! Flow-removed messages.

use crate::message::flow_stats::{put_duration, put_oxs_stats, read_duration, read_oxs_stats};
use crate::oxm::{self, Strictness};
use crate::wire::{Reader, Writer};
use crate::{Error, Format, Version, match10};
use sluice_flow::Match;
use sluice_ofp::FlowRemovedReason;

/// A flow that was removed.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRemoved {
    /// Its format; for OpenFlow 1.0.
    pub format: Format,
    /// What it matched.
    pub matches: Match,
    /// Its cookie.
    pub cookie: u64,
    /// Its priority.
    pub priority: u16,
    /// Why it was removed.
    pub reason: FlowRemovedReason,
    /// Its table; not in OpenFlow 1.0's own format.
    pub table: u8,
    /// Nanoseconds since it was added.
    pub duration_ns: u64,
    /// Its idle timeout.
    pub idle_timeout: u16,
    /// Its hard timeout; from OpenFlow 1.2 on.
    pub hard_timeout: u16,
    /// Packets that it matched.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The reason of that number on the wire.
pub(crate) fn read_reason(number: u8) -> Result<FlowRemovedReason, Error> {
    FlowRemovedReason::from_number(number).ok_or(Error::RequestBadReason)
}

pub(crate) fn put(f: &FlowRemoved, version: Version, w: &mut Writer) {
    let counters = |w: &mut Writer| {
        w.u64(f.packets);
        w.u64(f.bytes);
    };
    if version == Version::V15 {
        w.u8(f.table);
        w.u8(f.reason as u8);
        w.u16(f.priority);
        w.u16(f.idle_timeout);
        w.u16(f.hard_timeout);
        w.u64(f.cookie);
        oxm::put_match(&f.matches, version, w);
        return put_oxs_stats(f.duration_ns, f.packets, f.bytes, w);
    }
    if (version, f.format) == (Version::V10, Format::Standard) {
        match10::put(&f.matches, w);
    }
    w.u64(f.cookie);
    w.u16(f.priority);
    w.u8(f.reason as u8);
    w.u8(match (version, f.format) {
        (Version::V10, Format::Standard) => 0,
        // Nicira adds 1 here, so that 0 means none.
        (Version::V10, Format::Nicira) => f.table.wrapping_add(1),
        _ => f.table,
    });
    put_duration(f.duration_ns, w);
    w.u16(f.idle_timeout);
    match (version, f.format) {
        (Version::V10, Format::Standard) => {
            w.zeros(2);
            counters(w);
        }
        (Version::V10, Format::Nicira) => {
            let at = w.len();
            w.u16(0);
            counters(w);
            let length = oxm::put_nxm_match(&f.matches, w);
            w.patch_u16(at, length);
        }
        _ => {
            w.u16(f.hard_timeout);
            counters(w);
            oxm::put_match(&f.matches, version, w);
        }
    }
}

pub(crate) fn read(r: &mut Reader<'_>, version: Version, format: Format) -> Result<FlowRemoved, Error> {
    if version == Version::V15 {
        let (table, reason, priority) = (r.u8()?, read_reason(r.u8()?)?, r.u16()?);
        let (idle_timeout, hard_timeout, cookie) = (r.u16()?, r.u16()?, r.u64()?);
        let matches = oxm::read_match(r, Strictness::Strict)?;
        let (duration_ns, packets, bytes) = read_oxs_stats(r)?;
        return Ok(FlowRemoved {
            format,
            matches,
            cookie,
            priority,
            reason,
            table,
            duration_ns,
            idle_timeout,
            hard_timeout,
            packets,
            bytes,
        });
    }
    let mut matches = Match::ANY;
    if (version, format) == (Version::V10, Format::Standard) {
        matches = match10::read(r)?;
    }
    let (cookie, priority, reason, table) = (r.u64()?, r.u16()?, read_reason(r.u8()?)?, r.u8()?);
    let table = if (version, format) == (Version::V10, Format::Nicira) { table.wrapping_sub(1) } else { table };
    let duration_ns = read_duration(r)?;
    let (idle_timeout, second, packets, bytes) = (r.u16()?, r.u16()?, r.u64()?, r.u64()?);
    let mut hard_timeout = 0;
    match (version, format) {
        (Version::V10, Format::Standard) => {}
        (Version::V10, Format::Nicira) => matches = oxm::read_nxm_match(r, second.into(), Strictness::Strict)?,
        _ => {
            hard_timeout = second;
            matches = oxm::read_match(r, Strictness::Strict)?;
        }
    }
    Ok(FlowRemoved {
        format,
        matches,
        cookie,
        priority,
        reason,
        table,
        duration_ns,
        idle_timeout,
        hard_timeout,
        packets,
        bytes,
    })
}
