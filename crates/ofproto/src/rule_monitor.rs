//! Flow monitoring: one subscriber is told of every rule that is added, modified or removed, in order.
//!
//! A transaction notes its changes as [`PendingUpdate`]s. [`Ofproto::publish_updates`] reads their rules from the
//! tables and hands them over after the commit, but before removed rules leave the tables.

use crate::flow_mod::{CHUNK, PendingTransaction, outputs_to, rules_of, sends_to_group};
use crate::ofproto::{Ofproto, Writer};
use crate::rule::Rule;
use crate::{bridge::BridgeId, bridge::SwitchState};
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

impl PendingUpdate {
    fn resolve(self, state: &SwitchState, bridge: BridgeId) -> Option<RuleUpdate> {
        let rules = rules_of(state.bridge(bridge)?, self.table)?;
        let found = rules.rule(self.id)?;
        let (matches, rule) = (rules.match_of(found), Arc::clone(found.payload()));
        Some(RuleUpdate { event: self.event, matches, rule, old_actions: self.old_actions })
    }
}

impl Ofproto {
    /// Subscribes the monitor. Only the first call has an effect.
    pub fn set_monitor(&self, monitor: Arc<dyn RuleMonitor>) {
        self.0.monitor.get_or_init(|| monitor);
    }

    /// Calls `f` while the tables cannot change.
    pub fn with_changes_blocked<T>(&self, f: impl FnOnce() -> T) -> T {
        let _writer = self.writer();
        f()
    }

    /// Begins a transaction on a bridge.
    pub(crate) fn begin(&self, _: &mut Writer, id: BridgeId, now_ms: u64) -> PendingTransaction {
        let state = self.state();
        let name = state.bridge(id).map(|bridge| bridge.name());
        let is_monitored = self.0.monitor.get().zip(name).is_some_and(|(monitor, name)| monitor.monitors(name));
        PendingTransaction::new(state.tables_version + 1, now_ms, is_monitored)
    }

    /// Tells the monitor of a transaction's changes, before removed rules leave the tables.
    pub(crate) fn publish_updates(&self, id: BridgeId, pending: &mut PendingTransaction) {
        let (Some(updates), Some(monitor)) = (pending.updates.take(), self.0.monitor.get()) else { return };
        let Some(bridge) = self.bridge_name(id) else { return };
        let transaction = Transaction { version: pending.version, by: pending.by };
        let mut updates = updates.into_iter().peekable();
        while updates.peek().is_some() {
            let state = self.state();
            let chunk = updates.by_ref().take(CHUNK).filter_map(|update| update.resolve(&state, id)).collect();
            drop(state);
            monitor.updated(&bridge, transaction, chunk);
        }
    }
}
