//! Flow monitors, which tell a controller of every change of certain flows.
//!
//! OpenFlow 1.0 has Nicira's, 1.3 the ONF's extension, 1.4 and later the standard's. Only their layouts differ.

use super::flow_stats::{any_group, any_port, any_table};
use crate::action::{self, put_list};
use crate::flow_removed::read_reason;
use crate::oxm::{self, Strictness};
use crate::wire::{Reader, Writer};
use crate::{Error, Version, instruction, match10};
use sluice_flow::{Match, OfPort};
use sluice_ofp::{FlowRemovedReason, GROUP_ANY, OfAction};
use std::sync::Arc;

/// The command of a monitor request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MonitorCommand {
    /// Add a monitor.
    Add = 0,
    /// Replace it.
    Modify = 1,
    /// Remove it.
    Delete = 2,
}

/// The events that a monitor tells of, and the contents of its updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MonitorFlags {
    /// Flows that exist when it is added.
    pub initial: bool,
    /// Flows that are added.
    pub added: bool,
    /// Flows that are removed.
    pub removed: bool,
    /// Flows that are modified.
    pub modified: bool,
    /// Updates include actions.
    pub actions: bool,
    /// Updates about the controller's own changes are full, not abbreviated.
    pub own: bool,
}

/// The first five flags have the same bits everywhere.
const INITIAL: u16 = 1;
const ADDED: u16 = 1 << 1;
const REMOVED: u16 = 1 << 2;
const MODIFIED: u16 = 1 << 3;
const ACTIONS: u16 = 1 << 4;
/// Own changes in full; OpenFlow 1.4's name for it is `NO_ABBREV`.
const OWN: u16 = 1 << 5;
/// OpenFlow 1.4's `ONLY_OWN`, which Open vSwitch and `ovs-ofctl` take for "own changes in full".
const ONLY_OWN: u16 = 1 << 6;

impl MonitorFlags {
    fn read(bits: u16, version: Version) -> Result<Self, Error> {
        let own = if version >= Version::V14 { OWN | ONLY_OWN } else { OWN };
        let known = INITIAL | ADDED | REMOVED | MODIFIED | ACTIONS | own;
        if bits & !known != 0 || bits & (ADDED | REMOVED | MODIFIED) == 0 {
            return Err(Error::MonitorBadFlags);
        }
        let has = |bit| bits & bit != 0;
        Ok(MonitorFlags {
            initial: has(INITIAL),
            added: has(ADDED),
            removed: has(REMOVED),
            modified: has(MODIFIED),
            actions: has(ACTIONS),
            own: has(own),
        })
    }

    fn bits(self, version: Version) -> u16 {
        let own = if version >= Version::V14 { ONLY_OWN } else { OWN };
        let all = [
            (self.initial, INITIAL),
            (self.added, ADDED),
            (self.removed, REMOVED),
            (self.modified, MODIFIED),
            (self.actions, ACTIONS),
            (self.own, own),
        ];
        all.into_iter().filter(|(set, _)| *set).fold(0, |bits, (_, bit)| bits | bit)
    }
}

/// A monitor request.
#[derive(Clone, Debug, PartialEq)]
pub struct MonitorRequest {
    /// Its id, chosen by the controller.
    pub id: u32,
    /// The command. Before OpenFlow 1.4 a request can only add.
    pub command: MonitorCommand,
    /// Its flags; none if it is removed.
    pub flags: MonitorFlags,
    /// Only flows that output to this port.
    pub out_port: Option<OfPort>,
    /// Only flows that refer to this group; from OpenFlow 1.4 on.
    pub out_group: Option<u32>,
    /// Only flows of this table.
    pub table: Option<u8>,
    /// Only flows within this match.
    pub matches: Match,
}

pub(super) fn read_request(r: &mut Reader<'_>, version: Version) -> Result<MonitorRequest, Error> {
    match version {
        Version::V10 | Version::V11 | Version::V12 => read_request10(r),
        Version::V13 => read_request13(r),
        _ => read_request14(r, version),
    }
}

fn read_request10(r: &mut Reader<'_>) -> Result<MonitorRequest, Error> {
    let (id, bits, out_port, match_len, table) = (r.u32()?, r.u16()?, r.u16()?, r.u16()?, r.u8()?);
    let flags = MonitorFlags::read(bits, Version::V10)?;
    r.zeros(5)?;
    Ok(MonitorRequest {
        id,
        command: MonitorCommand::Add,
        flags,
        out_port: match10::some_port(out_port),
        out_group: None,
        table: any_table(table),
        matches: oxm::read_nxm_match(r, match_len.into(), Strictness::Strict)?,
    })
}

fn read_request13(r: &mut Reader<'_>) -> Result<MonitorRequest, Error> {
    let (id, bits, _, out_port, table) = (r.u32()?, r.u16()?, r.u16()?, r.u32()?, r.u8()?);
    let flags = MonitorFlags::read(bits, Version::V13)?;
    r.zeros(3)?;
    let (command, out_port) = (MonitorCommand::Add, any_port(out_port)?);
    let matches = oxm::read_match(r, Strictness::Strict)?;
    Ok(MonitorRequest { id, command, flags, out_port, out_group: None, table: any_table(table), matches })
}

fn read_request14(r: &mut Reader<'_>, version: Version) -> Result<MonitorRequest, Error> {
    let (id, out_port, out_group, bits) = (r.u32()?, r.u32()?, r.u32()?, r.u16()?);
    let (table, command) = (any_table(r.u8()?), r.u8()?);
    let command = match command {
        0 => MonitorCommand::Add,
        1 => MonitorCommand::Modify,
        2 => MonitorCommand::Delete,
        _ => return Err(Error::MonitorBadCommand),
    };
    if command == MonitorCommand::Delete {
        // The rest of the message is ignored.
        let (flags, matches) = (MonitorFlags::default(), oxm::read_match(r, Strictness::Strict)?);
        return Ok(MonitorRequest { id, command, flags, out_port: None, out_group: None, table: None, matches });
    }
    let flags = MonitorFlags::read(bits, version)?;
    let (out_port, out_group) = (any_port(out_port)?, any_group(out_group));
    Ok(MonitorRequest {
        id,
        command,
        flags,
        out_port,
        out_group,
        table,
        matches: oxm::read_match(r, Strictness::Strict)?,
    })
}

pub(super) fn put_request(q: &MonitorRequest, version: Version, w: &mut Writer) {
    let (out_port, table) = (q.out_port.unwrap_or(OfPort::NONE), q.table.unwrap_or(255));
    w.u32(q.id);
    match version {
        Version::V10 | Version::V11 | Version::V12 => {
            w.u16(q.flags.bits(version));
            w.u16(out_port.0);
            let at = w.len();
            w.u16(0);
            w.u8(table);
            w.zeros(5);
            let length = oxm::put_nxm_match(&q.matches, w);
            return w.patch_u16(at, length);
        }
        Version::V13 => {
            w.u16(q.flags.bits(version));
            let at = w.len();
            w.u16(0);
            w.u32(out_port.to_of11());
            w.u8(table);
            w.zeros(3);
            let length = put_counted_match(&q.matches, version, w);
            return w.patch_u16(at, length);
        }
        _ => {
            w.u32(out_port.to_of11());
            w.u32(q.out_group.unwrap_or(GROUP_ANY));
            w.u16(q.flags.bits(version));
            w.u8(table);
            w.u8(q.command as u8);
        }
    }
    oxm::put_match(&q.matches, version, w);
}

/// Writes a match; returns its length without padding.
fn put_counted_match(matches: &Match, version: Version, w: &mut Writer) -> usize {
    let start = w.len();
    oxm::put_match(matches, version, w);
    usize::from(u16::from_be_bytes([w.bytes[start + 2], w.bytes[start + 3]]))
}

/// What happened to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEvent {
    /// It existed when the monitor was added. Before OpenFlow 1.4 this is written as [`FlowEvent::Added`].
    Initial,
    /// It was added.
    Added,
    /// It was removed, and why.
    Removed(FlowRemovedReason),
    /// Its actions or its cookie have changed.
    Modified,
}

/// A full update about a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowUpdateFull {
    /// What happened.
    pub event: FlowEvent,
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
    /// What it matches.
    pub matches: Match,
    /// Its actions, if the monitor wants them.
    pub actions: Arc<[OfAction]>,
}

/// An update of a monitor.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowUpdate {
    /// A full update about a flow.
    Full(Box<FlowUpdateFull>),
    /// The controller's own transaction of that id has been carried out.
    Abbreviated(u32),
    /// From OpenFlow 1.4 on: too many updates wait, so the monitors pause. Earlier versions have a message for it.
    Paused,
    /// Likewise: the pause is over, and the controller knows all changes.
    Resumed,
}

/// Numbers of events, before OpenFlow 1.4 and from then on.
mod old {
    pub const ADDED: u16 = 0;
    pub const REMOVED: u16 = 1;
    pub const MODIFIED: u16 = 2;
    pub const ABBREVIATED: u16 = 3;
}
mod new {
    pub const INITIAL: u16 = 0;
    pub const ADDED: u16 = 1;
    pub const REMOVED: u16 = 2;
    pub const MODIFIED: u16 = 3;
    pub const ABBREVIATED: u16 = 4;
    pub const PAUSED: u16 = 5;
    pub const RESUMED: u16 = 6;
}

impl FlowUpdate {
    fn number(&self, version: Version) -> u16 {
        let numbers = match self {
            FlowUpdate::Abbreviated(_) => (old::ABBREVIATED, new::ABBREVIATED),
            FlowUpdate::Paused => (new::PAUSED, new::PAUSED),
            FlowUpdate::Resumed => (new::RESUMED, new::RESUMED),
            FlowUpdate::Full(news) => match news.event {
                FlowEvent::Initial => (old::ADDED, new::INITIAL),
                FlowEvent::Added => (old::ADDED, new::ADDED),
                FlowEvent::Removed(_) => (old::REMOVED, new::REMOVED),
                FlowEvent::Modified => (old::MODIFIED, new::MODIFIED),
            },
        };
        if version >= Version::V14 { numbers.1 } else { numbers.0 }
    }

    /// Writes it as an item of a reply.
    pub(super) fn put(&self, version: Version, w: &mut Writer) {
        let start = w.len();
        w.u16(0);
        w.u16(self.number(version));
        match self {
            FlowUpdate::Abbreviated(xid) => w.u32(*xid),
            FlowUpdate::Paused | FlowUpdate::Resumed => w.zeros(4),
            FlowUpdate::Full(news) if version >= Version::V14 => news.put14(version, w),
            FlowUpdate::Full(news) => news.put_old(version, w),
        }
        w.patch_u16(start, w.len() - start);
    }

    /// Reads an item of a reply.
    pub(super) fn read(r: &mut Reader<'_>, version: Version) -> Result<FlowUpdate, Error> {
        let (length, number) = (usize::from(r.u16()?), r.u16()?);
        let mut r = r.part(length.checked_sub(4).ok_or(Error::RequestBadLen)?)?;
        if version >= Version::V14 {
            return match number {
                new::ABBREVIATED => r.u32().map(FlowUpdate::Abbreviated),
                new::PAUSED => Ok(FlowUpdate::Paused),
                new::RESUMED => Ok(FlowUpdate::Resumed),
                _ => FlowUpdateFull::read14(&mut r, number, version).map(|news| FlowUpdate::Full(Box::new(news))),
            };
        }
        match number {
            old::ABBREVIATED => r.u32().map(FlowUpdate::Abbreviated),
            _ => FlowUpdateFull::read_old(&mut r, number, version).map(|news| FlowUpdate::Full(Box::new(news))),
        }
    }
}

impl FlowUpdateFull {
    fn reason(&self) -> u8 {
        if let FlowEvent::Removed(reason) = self.event { reason as u8 } else { 0 }
    }

    fn put_old(&self, version: Version, w: &mut Writer) {
        [self.reason().into(), self.priority, self.idle_timeout, self.hard_timeout].into_iter().for_each(|n| w.u16(n));
        let at = w.len();
        w.u16(0);
        w.u8(self.table);
        w.zeros(1);
        w.u64(self.cookie);
        let length = if version < Version::V13 {
            let length = oxm::put_nxm_match(&self.matches, w);
            put_list(&self.actions, version, w);
            length
        } else {
            let length = put_counted_match(&self.matches, version, w);
            instruction::put(&self.actions, version, w);
            length
        };
        w.patch_u16(at, length);
    }

    fn put14(&self, version: Version, w: &mut Writer) {
        w.u8(self.table);
        w.u8(self.reason());
        [self.idle_timeout, self.hard_timeout, self.priority].into_iter().for_each(|n| w.u16(n));
        w.zeros(4);
        w.u64(self.cookie);
        oxm::put_match(&self.matches, version, w);
        instruction::put(&self.actions, version, w);
    }

    fn read_old(r: &mut Reader<'_>, number: u16, version: Version) -> Result<FlowUpdateFull, Error> {
        let (reason, priority, idle_timeout, hard_timeout) = (r.u16()?, r.u16()?, r.u16()?, r.u16()?);
        let (match_len, table) = (r.u16()?, r.u8()?);
        r.skip(1)?;
        let cookie = r.u64()?;
        let event = match number {
            old::ADDED => FlowEvent::Added,
            old::REMOVED => FlowEvent::Removed(read_reason(reason as u8)?),
            old::MODIFIED => FlowEvent::Modified,
            _ => return Err(Error::RequestFmBadEvent),
        };
        let (matches, actions) = if version < Version::V13 {
            (
                oxm::read_nxm_match(r, match_len.into(), Strictness::Strict)?,
                action::read(*r, version, sluice_ofp::consistency::Within::Flow)?,
            )
        } else {
            (oxm::read_match(r, Strictness::Strict)?, instruction::read(r, version)?)
        };
        let actions = actions.into();
        Ok(FlowUpdateFull { event, table, priority, cookie, idle_timeout, hard_timeout, matches, actions })
    }

    fn read14(r: &mut Reader<'_>, number: u16, version: Version) -> Result<FlowUpdateFull, Error> {
        let (table, reason) = (r.u8()?, r.u8()?);
        let (idle_timeout, hard_timeout, priority) = (r.u16()?, r.u16()?, r.u16()?);
        r.skip(4)?;
        let cookie = r.u64()?;
        let event = match number {
            new::INITIAL => FlowEvent::Initial,
            new::ADDED => FlowEvent::Added,
            new::REMOVED => FlowEvent::Removed(read_reason(reason)?),
            new::MODIFIED => FlowEvent::Modified,
            _ => return Err(Error::RequestFmBadEvent),
        };
        let (matches, actions) = (oxm::read_match(r, Strictness::Strict)?, instruction::read(r, version)?.into());
        Ok(FlowUpdateFull { event, table, priority, cookie, idle_timeout, hard_timeout, matches, actions })
    }
}
