//! Flow monitoring: one subscriber is told of every rule that is added, modified or removed, in order.
//!
//! A transaction notes its changes as [`PendingUpdate`]s. `rule_updates` reads their rules from the tables and hands
//! them over after the commit, but before removed rules leave the tables.

use crate::action_refs::{outputs_to, sends_to_group};
use crate::rule::Rule;
use crate::rule_memory::RuleOwner;
use sluice_classifier::RuleId;
use sluice_flow::{Match, OfPort};
use sluice_ofp::{FlowRemovedReason, OfAction};
use std::sync::Arc;

/// The request that caused a change: a connection, by the number that its owner gave it, and the transaction there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// Number of the connection.
    pub connection: u64,
    /// OpenFlow's transaction id.
    pub xid: u32,
    /// Who owns the rules and groups that it makes.
    pub owner: RuleOwner,
}

/// What happened to a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleUpdateEvent {
    /// It was added, perhaps in the place of an equal one.
    Added,
    /// Its actions or its cookie changed.
    Modified,
    /// It was removed.
    Removed(FlowRemovedReason),
}

/// A change of one rule.
#[derive(Clone, Debug)]
pub struct RuleUpdate {
    /// What happened.
    pub event: RuleUpdateEvent,
    /// What the rule matches.
    pub matches: Match,
    /// The rule after the change; a removed rule as it was last.
    pub rule: Arc<Rule>,
    /// The actions before the change, if they differ.
    pub old_actions: Option<Arc<[OfAction]>>,
}

/// Selects the rules that a flow monitor is about.
#[derive(Clone, Debug)]
pub struct RuleFilter {
    /// Rules of this table.
    pub table: Option<u8>,
    /// Rules that output to this port, before or after the change.
    pub out_port: Option<OfPort>,
    /// Rules that send to this group.
    pub out_group: Option<u32>,
    /// Rules within this match.
    pub matches: Match,
}

impl RuleFilter {
    /// Whether the filter selects the rule of that update.
    pub fn covers(&self, update: &RuleUpdate) -> bool {
        let (actions, old) = (&update.rule.actions, update.old_actions.as_deref().unwrap_or_default());
        self.table.is_none_or(|table| table == update.rule.table)
            && self.out_port.is_none_or(|port| outputs_to(actions, port) || outputs_to(old, port))
            && self.out_group.is_none_or(|group| sends_to_group(actions, group))
            && update.matches.is_within(&self.matches)
    }
}

/// The transaction that an update belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The version of the tables that it makes.
    pub version: u64,
    /// The request that caused it, if a connection made one.
    pub by: Option<Requester>,
}

/// Receives the changes of rules. It is called while the tables cannot change, so it must neither wait nor change them.
pub trait RuleMonitor: Send + Sync {
    /// Whether it wants the updates of a bridge.
    fn monitors(&self, bridge: &str) -> bool;

    /// Rules of a bridge have changed. A large transaction comes in several calls.
    fn updated(&self, bridge: &str, transaction: Transaction, updates: Vec<RuleUpdate>);
}

/// An update of a transaction under way. Its rule is still in the tables.
#[derive(Debug)]
pub(crate) struct PendingUpdate {
    pub event: RuleUpdateEvent,
    pub table: u8,
    pub id: RuleId,
    pub old_actions: Option<Arc<[OfAction]>>,
}
