//! Publishing the updates of a transaction to the rule monitor.

use crate::bridge::SwitchState;
use crate::bridge_config::BridgeId;
use crate::flow_mod::PendingTransaction;
use crate::ofproto::Ofproto;
use crate::rule_monitor::{PendingUpdate, RuleMonitor, RuleUpdate, Transaction};
use crate::rule_select::rules_of;
use std::sync::Arc;

/// Updates that are looked up before the tables may change again.
const UPDATES_AT_ONCE: usize = 256;

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

    /// Tells the monitor of a transaction's changes, before removed rules leave the tables.
    pub(crate) fn publish_updates(&self, id: BridgeId, pending: &mut PendingTransaction) {
        let (Some(updates), Some(monitor)) = (pending.updates.take(), self.0.monitor.get()) else { return };
        let Some(bridge) = self.bridge_name(id) else { return };
        let transaction = Transaction { version: pending.version, by: pending.by };
        let mut updates = updates.into_iter().peekable();
        while updates.peek().is_some() {
            let state = self.state();
            let chunk =
                updates.by_ref().take(UPDATES_AT_ONCE).filter_map(|update| update.resolve(&state, id)).collect();
            drop(state);
            monitor.updated(&bridge, transaction, chunk);
        }
    }
}
