//! Flow-mods: changes of the flow tables, one line of flow text each.

use crate::OfAction;
use sluice_flow::{DEFAULT_PRIORITY, Match, OfPort};

/// A change of the flow tables, as `ovs-ofctl add-flow` and its like write it.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowMod {
    /// Add, change or delete.
    pub command: FlowCommand,
    /// The table; `None` if the text does not say: table 0 for added flows, every table for changes and deletions.
    pub table: Option<u8>,
    /// Priority.
    pub priority: u16,
    /// Cookie of the new flow. `None`: a change that finds no flow adds none.
    pub new_cookie: Option<u64>,
    /// For changes: flows that are changed get the new cookie.
    pub modify_cookie: bool,
    /// Cookies that flows to be changed or deleted must have.
    pub cookie: u64,
    /// Bits of `cookie` that matter; 0: any.
    pub cookie_mask: u64,
    /// Removed when unused for this time, seconds; 0: never.
    pub idle_timeout: u16,
    /// Removed after this time, seconds; 0: never.
    pub hard_timeout: u16,
    /// Which flows to evict first when a table is full.
    pub importance: u16,
    /// How to treat the flow.
    pub flags: FlowFlags,
    /// For additions: an equal flow's counters go on. If not they start again, as before OpenFlow 1.2.
    pub keep_counts: bool,
    /// For changes and deletions: only flows that output there.
    pub out_port: Option<OfPort>,
    /// For changes and deletions: only flows that send to this group.
    pub out_group: Option<u32>,
    /// What it matches.
    pub matches: Match,
    /// What it does. Empty: drop.
    pub actions: Vec<OfAction>,
}

/// Kind of a [`FlowMod`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowCommand {
    /// Add it, in place of an equal one.
    Add,
    /// Change the actions of all flows within the match.
    Modify,
    /// Change the actions of this very flow.
    ModifyStrict,
    /// Delete all flows within the match.
    Delete,
    /// Delete this very flow.
    DeleteStrict,
}

/// Why a flow was removed. Numbers are OpenFlow's `OFPRR_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlowRemovedReason {
    /// No packet matched it for its idle timeout.
    IdleTimeout = 0,
    /// Its hard timeout is over.
    HardTimeout = 1,
    /// A command deleted it.
    Delete = 2,
    /// A group that it sends to was deleted.
    GroupDelete = 3,
    /// A meter that it uses was deleted.
    MeterDelete = 4,
    /// A full table evicted it.
    Eviction = 5,
}

impl FlowRemovedReason {
    /// The reason of that number; `None` if OpenFlow has none.
    pub fn from_number(number: u8) -> Option<Self> {
        use FlowRemovedReason::{Delete, Eviction, GroupDelete, HardTimeout, IdleTimeout, MeterDelete};
        let known = [IdleTimeout, HardTimeout, Delete, GroupDelete, MeterDelete, Eviction];
        known.get(usize::from(number)).copied()
    }
}

/// How a flow is to be treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowFlags {
    /// Tell controllers when it goes.
    pub send_flow_rem: bool,
    /// Refuse it if another of the same priority overlaps.
    pub check_overlap: bool,
    /// Start its counters again when it is changed.
    pub reset_counts: bool,
    /// Packets need not be counted.
    pub no_packet_counts: bool,
    /// Bytes need not be counted.
    pub no_byte_counts: bool,
}

impl FlowMod {
    /// Adds a flow that drops every packet, at the default priority.
    pub fn new(command: FlowCommand) -> Self {
        FlowMod {
            command,
            table: None,
            priority: DEFAULT_PRIORITY,
            new_cookie: None,
            modify_cookie: false,
            cookie: 0,
            cookie_mask: 0,
            idle_timeout: 0,
            hard_timeout: 0,
            importance: 0,
            flags: FlowFlags::default(),
            keep_counts: false,
            out_port: None,
            out_group: None,
            matches: Match::ANY,
            actions: Vec::new(),
        }
    }
}
