//! What a paused packet still has before it.

use crate::OfAction;
use sluice_flow::FieldValue;

/// Where a packet's way through the tables was when a rule handed it to a controller with `controller(pause)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paused {
    /// Values on the stack with their sizes in bytes; the top comes last.
    pub stack: Vec<(FieldValue, u32)>,
    /// Whether the fields of the packet's connection mean something.
    pub conntracked: bool,
    /// The mirrors that have a copy of the packet, a bit each.
    pub mirrors: u32,
    /// The actions that are left, each stretch of them as of the rule that they are from.
    pub actions: Vec<Stretch>,
    /// The action set.
    pub action_set: Vec<OfAction>,
    /// The datapath's number of the port that the packet came in by.
    pub datapath_port: u32,
}

/// Actions of one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// The rule's table.
    pub table: u8,
    /// The rule's cookie.
    pub cookie: u64,
    /// Its actions that are left.
    pub actions: Vec<OfAction>,
}

impl Paused {
    /// Every list of actions.
    pub fn lists(&self) -> impl Iterator<Item = &[OfAction]> {
        self.actions.iter().map(|stretch| &stretch.actions[..]).chain([&self.action_set[..]])
    }
}
