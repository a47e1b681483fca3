//! Watching the tables: somebody hears of every rule that comes, changes or goes, in order.

use crate::flow_mod::{CHUNK, Pending, outputs_to, rules_of, sends_to_group};
use crate::ofproto::{Ofproto, Writer};
use crate::rule::{Removal, Rule};
use crate::{bridge::BridgeId, bridge::State};
use sluice_classifier::RuleId;
use sluice_flow::{Match, OfPort};
use sluice_ofp::OfAction;
use std::sync::Arc;

/// Who asked for a change: a connection, by the number that its owner gave it, and the transaction there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// Number of the connection.
    pub connection: u64,
    /// OpenFlow's transaction id.
    pub xid: u32,
}

/// What happened to a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleEvent {
    /// It came, perhaps in the place of an equal one.
    Added,
    /// Its actions or its cookie changed.
    Modified,
    /// It went.
    Removed(Removal),
}

/// News of a rule.
#[derive(Clone, Debug)]
pub struct RuleNews {
    /// What happened.
    pub event: RuleEvent,
    /// What it matches.
    pub matches: Match,
    /// The rule as it is now, or was last.
    pub rule: Arc<Rule>,
    /// What it did before, if that has changed.
    pub old_actions: Option<Arc<[OfAction]>>,
}

/// Rules that somebody is interested in.
#[derive(Clone, Debug)]
pub struct Interest {
    /// Of this table.
    pub table: Option<u8>,
    /// That output there, or did.
    pub out_port: Option<OfPort>,
    /// That send to this group.
    pub out_group: Option<u32>,
    /// Within this match.
    pub matches: Match,
}

impl Interest {
    /// Whether the news are of such a rule.
    pub fn covers(&self, news: &RuleNews) -> bool {
        let (actions, old) = (&news.rule.actions, news.old_actions.as_deref().unwrap_or_default());
        self.table.is_none_or(|table| table == news.rule.table)
            && self.out_port.is_none_or(|port| outputs_to(actions, port) || outputs_to(old, port))
            && self.out_group.is_none_or(|group| sends_to_group(actions, group))
            && news.matches.is_within(&self.matches)
    }
}

/// A transaction, for who watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The version of the tables that it makes.
    pub version: u64,
    /// Who asked for it, if it was a connection.
    pub by: Option<Requester>,
}

/// Hears of the changes of rules. It is called while the tables cannot change: it must not wait, and change nothing.
pub trait Watcher: Send + Sync {
    /// Whether it wants to hear of a bridge.
    fn watches(&self, bridge: &str) -> bool;

    /// Rules of a bridge have changed; a large transaction comes in several pieces.
    fn changed(&self, bridge: &str, transaction: Transaction, news: Vec<RuleNews>);
}

/// News of a transaction under way, whose rules are in the tables still.
#[derive(Debug)]
pub(crate) struct Noted {
    pub event: RuleEvent,
    pub table: u8,
    pub id: RuleId,
    pub old_actions: Option<Arc<[OfAction]>>,
}

impl Noted {
    fn news(self, state: &State, bridge: BridgeId) -> Option<RuleNews> {
        let rules = rules_of(state.bridge(bridge)?, self.table)?;
        let found = rules.rule(self.id)?;
        let (matches, rule) = (rules.match_of(found), Arc::clone(found.payload()));
        Some(RuleNews { event: self.event, matches, rule, old_actions: self.old_actions })
    }
}

impl Ofproto {
    /// Says who watches the tables. Once.
    pub fn set_watcher(&self, watcher: Arc<dyn Watcher>) {
        self.0.watcher.get_or_init(|| watcher);
    }

    /// Does something while the tables do not change.
    pub fn between_changes<T>(&self, f: impl FnOnce() -> T) -> T {
        let _writer = self.writer();
        f()
    }

    /// Begins a transaction on a bridge.
    pub(crate) fn begin(&self, _: &mut Writer, id: BridgeId, now_ms: u64) -> Pending {
        let state = self.state();
        let name = state.bridge(id).map(|bridge| bridge.name());
        let is_watched = self.0.watcher.get().zip(name).is_some_and(|(watcher, name)| watcher.watches(name));
        Pending::new(state.tables_version + 1, now_ms, is_watched)
    }

    /// Tells who watches, before what went leaves the tables.
    pub(crate) fn tell(&self, id: BridgeId, pending: &mut Pending) {
        let (Some(noted), Some(watcher)) = (pending.noted.take(), self.0.watcher.get()) else { return };
        let Some(bridge) = self.bridge_name(id) else { return };
        let transaction = Transaction { version: pending.version, by: pending.by };
        let mut noted = noted.into_iter().peekable();
        while noted.peek().is_some() {
            let state = self.state();
            let news = noted.by_ref().take(CHUNK).filter_map(|noted| noted.news(&state, id)).collect();
            drop(state);
            watcher.changed(&bridge, transaction, news);
        }
    }
}
