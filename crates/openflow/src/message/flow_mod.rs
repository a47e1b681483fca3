//! Changes of the flow tables.

use super::Format;
use crate::action::{self, put_list};
use crate::consistency::check_prerequisites;
use crate::instruction;
use crate::oxm::{self, Strictness};
use crate::wire::{Reader, Writer};
use crate::{Error, Version, match10};
use sluice_flow::OfPort;
use sluice_ofp::consistency::Within;
use sluice_ofp::{FlowCommand, FlowFlags, FlowMod};

/// A flow-mod message.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowModMessage {
    /// The change. On the heap, since it is large and passed on.
    pub flow: Box<FlowMod>,
    /// A buffered packet to which the flow is to be applied. This switch buffers none.
    pub buffer_id: Option<u32>,
    /// Its format; for OpenFlow 1.0.
    pub format: Format,
    /// Whether the command includes the table's number; for OpenFlow 1.0.
    pub table_in_command: bool,
}

const SEND_FLOW_REM: u16 = 1;
const CHECK_OVERLAP: u16 = 2;
/// OpenFlow 1.0: a kind of flow that later versions do not have.
const EMERGENCY: u16 = 4;
const RESET_COUNTS: u16 = 4;
const NO_PACKET_COUNTS: u16 = 8;
const NO_BYTE_COUNTS: u16 = 16;

/// No buffered packet.
pub(crate) const NO_BUFFER: u32 = u32::MAX;

/// Any cookie, where a flow-mod says which one the flow gets.
const SAME_COOKIE: u64 = u64::MAX;

pub(super) fn buffer(id: u32) -> Option<u32> {
    Some(id).filter(|id| *id != NO_BUFFER)
}

/// The bits of flags that a version has.
fn known_flags(version: Version) -> u16 {
    let first = SEND_FLOW_REM | CHECK_OVERLAP;
    match version {
        Version::V10 | Version::V11 => first,
        Version::V12 => first | RESET_COUNTS,
        _ => first | RESET_COUNTS | NO_PACKET_COUNTS | NO_BYTE_COUNTS,
    }
}

/// The flags of a flow.
pub(crate) fn flags(bits: u16, version: Version) -> Result<FlowFlags, Error> {
    if bits & !known_flags(version) != 0 {
        return Err(Error::FlowModBadFlags);
    }
    Ok(FlowFlags {
        send_flow_rem: bits & SEND_FLOW_REM != 0,
        check_overlap: bits & CHECK_OVERLAP != 0,
        reset_counts: bits & RESET_COUNTS != 0,
        no_packet_counts: bits & NO_PACKET_COUNTS != 0,
        no_byte_counts: bits & NO_BYTE_COUNTS != 0,
    })
}

/// The bits of a flow's flags, as far as a version has them.
pub(crate) fn flag_bits(flags: FlowFlags, version: Version) -> u16 {
    let all = [
        (flags.send_flow_rem, SEND_FLOW_REM),
        (flags.check_overlap, CHECK_OVERLAP),
        (flags.reset_counts, RESET_COUNTS),
        (flags.no_packet_counts, NO_PACKET_COUNTS),
        (flags.no_byte_counts, NO_BYTE_COUNTS),
    ];
    all.into_iter().filter(|(set, _)| *set).fold(0, |bits, (_, bit)| bits | bit) & known_flags(version)
}

fn command(number: u8) -> Result<FlowCommand, Error> {
    use FlowCommand::{Add, Delete, DeleteStrict, Modify, ModifyStrict};
    let known = [Add, Modify, ModifyStrict, Delete, DeleteStrict];
    known.get(usize::from(number)).copied().ok_or(Error::FlowModBadCommand)
}

/// Before OpenFlow 1.2 an addition always resets the counters.
fn always_resets(command: FlowCommand, version: Version) -> bool {
    command == FlowCommand::Add && version < Version::V12
}

fn is_delete(command: FlowCommand) -> bool {
    matches!(command, FlowCommand::Delete | FlowCommand::DeleteStrict)
}

/// Reads a flow-mod of OpenFlow 1.1 and later.
pub(super) fn read(r: &mut Reader<'_>, version: Version) -> Result<FlowModMessage, Error> {
    in_eights(r)?;
    let (cookie, cookie_mask, table, command_number) = (r.u64()?, r.u64()?, r.u8()?, r.u8()?);
    let (idle, hard, priority, buffer_id) = (r.u16()?, r.u16()?, r.u16()?, r.u32()?);
    let (out_port, out_group, flag_bits, importance) = (r.u32()?, r.u32()?, r.u16()?, r.u16()?);
    // In its place on the heap, which saves four copies of a match.
    let mut flow = Box::new(FlowMod::new(FlowCommand::Add));
    oxm::read_match_into(&mut flow.matches, r, Strictness::Strict)?;
    let deletes = command_number >= 3;
    if table == 255 && (!deletes || version == Version::V11) {
        return Err(Error::FlowModBadTableId);
    }
    let out_port = OfPort::from_of11(out_port).ok_or(Error::ActionBadOutPort)?;
    let command = command(command_number)?;
    flow.command = command;
    flow.table = Some(table).filter(|t| *t != 255);
    if command == FlowCommand::Add {
        flow.new_cookie = Some(cookie);
        flow.importance = if version >= Version::V14 { importance } else { 0 };
    } else {
        (flow.cookie, flow.cookie_mask) = (cookie, cookie_mask);
    }
    // In OpenFlow 1.1 only, a change that does not match on the cookie adds the flow if there is none to change.
    if version == Version::V11 && !deletes && cookie_mask == 0 {
        (flow.cookie, flow.new_cookie) = (0, Some(cookie));
    }
    (flow.idle_timeout, flow.hard_timeout, flow.priority) = (idle, hard, priority);
    if deletes {
        flow.out_port = Some(out_port).filter(|p| *p != OfPort::NONE);
        flow.out_group = Some(out_group).filter(|g| *g != sluice_ofp::GROUP_ANY);
    }
    flow.actions = instruction::read(r, version)?;
    flow.flags = flags(flag_bits, version)?;
    flow.flags.reset_counts |= always_resets(command, version);
    check_prerequisites(&flow.actions, &flow.matches, flow.table, version)?;
    flow.keep_counts = command == FlowCommand::Add && !flow.flags.reset_counts;
    Ok(FlowModMessage { flow, buffer_id: buffer(buffer_id), format: Format::Standard, table_in_command: false })
}

/// Reads a flow-mod of OpenFlow 1.0, in the standard's format or Nicira's.
pub(super) fn read10(r: &mut Reader<'_>, format: Format, table_in_command: bool) -> Result<FlowModMessage, Error> {
    in_eights(r)?;
    let (mut flow, bits, buffer_id) = match format {
        Format::Standard => read_standard10(r, table_in_command)?,
        Format::Nicira => read_nicira(r, table_in_command)?,
    };
    flow.actions = action::read(*r, Version::V10, Within::Flow)?;
    r.skip(r.len())?;
    if bits & EMERGENCY != 0 {
        let timeouts = flow.idle_timeout != 0 || flow.hard_timeout != 0;
        return Err(if timeouts { Error::FlowModBadEmergTimeout } else { Error::FlowModTableFull });
    }
    flow.flags = flags(bits, Version::V10)?;
    flow.flags.reset_counts = always_resets(flow.command, Version::V10);
    check_prerequisites(&flow.actions, &flow.matches, flow.table.or(Some(0)), Version::V10)?;
    let flow = Box::new(flow);
    Ok(FlowModMessage { flow, buffer_id: buffer(buffer_id), format, table_in_command })
}

/// A flow-mod is a multiple of 8 bytes long.
fn in_eights(r: &Reader<'_>) -> Result<(), Error> {
    if r.len().is_multiple_of(8) { Ok(()) } else { Err(Error::RequestBadLen) }
}

/// A new flow-mod by a command of OpenFlow 1.0, which may have a table in its upper half.
fn begin10(number: u16, table_in_command: bool) -> Result<FlowMod, Error> {
    if table_in_command {
        let mut flow = FlowMod::new(command(number as u8)?);
        flow.table = Some((number >> 8) as u8).filter(|t| *t != 255);
        return Ok(flow);
    }
    Ok(FlowMod::new(command(u8::try_from(number).map_err(|_| Error::FlowModBadCommand)?)?))
}

fn read_standard10(r: &mut Reader<'_>, table_in_command: bool) -> Result<(FlowMod, u16, u32), Error> {
    let exact = r.rest().first_chunk::<4>().is_some_and(|w| u32::from_be_bytes(*w) & 0x3f_ffff == 0);
    let (matches, cookie) = (match10::read(r)?, r.u64()?);
    let mut flow = begin10(r.u16()?, table_in_command)?;
    flow.matches = matches;
    flow.new_cookie = Some(cookie).filter(|c| flow.command == FlowCommand::Add || *c != SAME_COOKIE);
    flow.modify_cookie = flow.new_cookie.is_some();
    (flow.idle_timeout, flow.hard_timeout, flow.priority) = (r.u16()?, r.u16()?, r.u16()?);
    if exact {
        // OpenFlow 1.0: a rule without wildcards has the highest priority there is.
        flow.priority = u16::MAX;
    }
    let (buffer_id, out_port) = (r.u32()?, r.u16()?);
    flow.out_port = match10::some_port(out_port).filter(|_| is_delete(flow.command));
    let bits = r.u16()?;
    Ok((flow, bits, buffer_id))
}

fn read_nicira(r: &mut Reader<'_>, table_in_command: bool) -> Result<(FlowMod, u16, u32), Error> {
    let cookie = r.u64()?;
    let number = r.u16()?;
    let (idle, hard, priority, buffer_id) = (r.u16()?, r.u16()?, r.u16()?, r.u32()?);
    let (out_port, bits, match_len) = (r.u16()?, r.u16()?, r.u16()?);
    r.skip(6)?;
    let (matches, old_cookie, cookie_mask) = oxm::read_nxm_match_and_cookie(r, match_len.into())?;
    let mut flow = begin10(number, table_in_command)?;
    if flow.command == FlowCommand::Add && cookie_mask != 0 {
        return Err(Error::RequestNxmInvalid);
    }
    flow.matches = matches;
    (flow.cookie, flow.cookie_mask) = (old_cookie, cookie_mask);
    flow.new_cookie = Some(cookie).filter(|c| flow.command == FlowCommand::Add || *c != SAME_COOKIE);
    flow.modify_cookie = flow.new_cookie.is_some();
    (flow.idle_timeout, flow.hard_timeout, flow.priority) = (idle, hard, priority);
    flow.out_port = match10::some_port(out_port).filter(|_| is_delete(flow.command));
    Ok((flow, bits, buffer_id))
}

fn command_number(command: FlowCommand) -> u8 {
    match command {
        FlowCommand::Add => 0,
        FlowCommand::Modify => 1,
        FlowCommand::ModifyStrict => 2,
        FlowCommand::Delete => 3,
        FlowCommand::DeleteStrict => 4,
    }
}

/// Writes a flow-mod behind its header.
pub(super) fn put(m: &FlowModMessage, version: Version, w: &mut Writer) {
    let flow = &m.flow;
    if version == Version::V10 {
        return put10(m, w);
    }
    let adds = flow.command == FlowCommand::Add;
    let may_add = adds || version == Version::V11 && !is_delete(flow.command) && flow.cookie_mask == 0;
    w.u64(if may_add { flow.new_cookie.unwrap_or(0) } else { flow.cookie });
    w.u64(if adds { 0 } else { flow.cookie_mask });
    // OpenFlow 1.1 has no number for all tables.
    let all = if is_delete(flow.command) && version > Version::V11 { 255 } else { 0 };
    w.u8(flow.table.unwrap_or(all));
    w.u8(command_number(flow.command));
    w.u16(flow.idle_timeout);
    w.u16(flow.hard_timeout);
    w.u16(flow.priority);
    w.u32(m.buffer_id.unwrap_or(NO_BUFFER));
    w.u32(flow.out_port.unwrap_or(OfPort::NONE).to_of11());
    w.u32(flow.out_group.unwrap_or(sluice_ofp::GROUP_ANY));
    w.u16(flag_bits(flow.flags, version));
    w.u16(if version >= Version::V14 { flow.importance } else { 0 });
    oxm::put_match(&flow.matches, version, w);
    instruction::put(&flow.actions, version, w);
}

fn put10(m: &FlowModMessage, w: &mut Writer) {
    let flow = &m.flow;
    let table = if m.table_in_command { u16::from(flow.table.unwrap_or(255)) << 8 } else { 0 };
    let command = table | u16::from(command_number(flow.command));
    let cookie = flow.new_cookie.unwrap_or(if flow.command == FlowCommand::Add { 0 } else { SAME_COOKIE });
    let middle = |w: &mut Writer| {
        w.u16(command);
        w.u16(flow.idle_timeout);
        w.u16(flow.hard_timeout);
        w.u16(flow.priority);
        w.u32(m.buffer_id.unwrap_or(NO_BUFFER));
        w.u16(flow.out_port.unwrap_or(OfPort::NONE).0);
        w.u16(flag_bits(flow.flags, Version::V10));
    };
    match m.format {
        Format::Standard => {
            match10::put(&flow.matches, w);
            w.u64(cookie);
            middle(w);
        }
        Format::Nicira => {
            w.u64(cookie);
            middle(w);
            let at = w.len();
            w.zeros(8);
            let length = oxm::put_nxm_match_and_cookie(&flow.matches, flow.cookie, flow.cookie_mask, w);
            w.patch_u16(at, length);
        }
    }
    put_list(&flow.actions, Version::V10, w);
}
