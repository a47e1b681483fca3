//! The flow monitors of a connection, and which changes of rules they are told of.
//!
//! Updates are made while the tables cannot change, so they are in order, and nothing is missing. When more than
//! [`UPDATES_MAX`] wait, the monitors pause: from then on they are told only of removed rules, and at the end of the pause of
//! all rules that were added or modified during it. A connection that has more than [`WAITING_MAX`] waiting is ended.

use sluice_fate::Limit;
use sluice_ofproto::{Rule, RuleFilter, RuleUpdate, RuleUpdateEvent, Transaction};
use sluice_openflow::Error;
use sluice_openflow::message::monitor::{FlowEvent, MonitorCommand, MonitorFlags, MonitorRequest};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// With more updates waiting than this, the monitors pause.
pub(crate) const UPDATES_MAX: usize = 1 << 10;

/// With more updates waiting than this, which are of removed rules, the connection ends.
const WAITING_MAX: usize = 1 << 16;

/// Monitors of a connection at most.
pub(crate) const MONITORS_MAX: usize = 256;

/// The flow monitors of a connection.
#[derive(Default)]
pub struct FlowMonitors {
    by_id: BTreeMap<u32, FlowMonitor>,
    /// During a pause: the first version of the tables whose added and modified rules are not told.
    paused: Option<u64>,
    /// The last version that was told in abbreviated form.
    abbreviated: u64,
    /// Updates that wait for the connection.
    waiting: usize,
    /// Whether more than [`WAITING_MAX`] would wait.
    is_overrun: bool,
}

/// A flow monitor.
pub struct FlowMonitor {
    /// The events and the contents that it wants.
    pub flags: MonitorFlags,
    /// The rules that it covers.
    pub filter: RuleFilter,
}

/// An update that waits for the connection.
#[derive(Clone, Debug)]
pub enum MonitorUpdate {
    /// A rule has changed.
    Flow {
        /// The change.
        update: Arc<RuleUpdate>,
        /// Whether a monitor wants the rule's actions.
        with_actions: bool,
    },
    /// A transaction of the connection's own, by its id.
    Abbreviated(u32),
    /// The monitors pause from here on.
    Paused,
}

impl FlowMonitors {
    /// The updates for this connection of a transaction's changes. `number` is the connection's.
    pub fn updates(
        &mut self,
        number: u64,
        transaction: Transaction,
        changes: &[Arc<RuleUpdate>],
    ) -> Vec<MonitorUpdate> {
        let own = transaction.by.filter(|by| by.connection == number);
        let mut updates = Vec::new();
        for change in changes {
            // During a pause only rules that were there before it are told to be removed.
            let is_held =
                |paused| !matches!(change.event, RuleUpdateEvent::Removed(_)) || change.rule.added_version > paused;
            if self.paused.is_some_and(is_held) {
                continue;
            }
            let Some(flags) = self.flags(change) else { continue };
            match own {
                Some(by) if !flags.own && self.paused.is_none() => {
                    if self.abbreviated != transaction.version {
                        self.abbreviated = transaction.version;
                        updates.push(MonitorUpdate::Abbreviated(by.xid));
                    }
                }
                _ => updates.push(MonitorUpdate::Flow { update: Arc::clone(change), with_actions: flags.actions }),
            }
        }
        if self.waiting + updates.len() > WAITING_MAX {
            self.is_overrun = true;
            Limit::MonitorUpdates.hit();
            return Vec::new();
        }
        self.waiting += updates.len();
        if self.waiting > UPDATES_MAX && self.paused.is_none() {
            // A part of this transaction may have been told already. At the end of the pause all of it is.
            Limit::MonitorUpdates.hit();
            self.paused = Some(transaction.version);
            self.waiting += 1;
            updates.push(MonitorUpdate::Paused);
        }
        updates
    }

    /// The flags of all monitors that want a change, combined; `None` if none does.
    fn flags(&self, change: &RuleUpdate) -> Option<MonitorFlags> {
        let wants = |flags: &MonitorFlags| match change.event {
            RuleUpdateEvent::Added => flags.added,
            RuleUpdateEvent::Modified => flags.modified,
            RuleUpdateEvent::Removed(_) => flags.removed,
        };
        let interested = self.by_id.values().filter(|m| wants(&m.flags) && m.filter.covers(change));
        interested.map(|m| m.flags).reduce(|a, b| MonitorFlags {
            actions: a.actions | b.actions,
            own: a.own | b.own,
            ..a
        })
    }

    /// Whether the connection is to end because too many updates wait.
    pub fn is_overrun(&self) -> bool {
        self.is_overrun
    }

    /// Whether the monitors pause.
    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Ends a pause; the first version of the tables that was not told completely.
    pub fn resume(&mut self) -> u64 {
        self.paused.take().unwrap_or(u64::MAX)
    }

    /// Notes that the connection has taken updates.
    pub fn taken(&mut self, updates: usize) {
        self.waiting -= updates;
    }

    /// How many monitors there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// How many updates wait for the connection.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether there is no monitor.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// All monitors.
    pub fn all(&self) -> impl Iterator<Item = &FlowMonitor> {
        self.by_id.values()
    }

    /// Removes all monitors.
    pub fn clear(&mut self) {
        self.by_id.clear();
    }

    fn add(&mut self, request: &MonitorRequest) -> Result<(), Error> {
        if self.by_id.contains_key(&request.id) {
            return Err(Error::MonitorMonitorExists);
        }
        if self.by_id.len() == MONITORS_MAX {
            Limit::FlowMonitors.hit();
            return Err(Error::MonitorUnknown);
        }
        let filter = RuleFilter {
            table: request.table,
            out_port: request.out_port,
            out_group: request.out_group,
            matches: request.matches.clone(),
        };
        self.by_id.insert(request.id, FlowMonitor { flags: request.flags, filter });
        Ok(())
    }

    /// Removes a monitor.
    ///
    /// # Errors
    /// If there is none of that id.
    pub fn remove(&mut self, id: u32) -> Result<(), Error> {
        self.by_id.remove(&id).map(drop).ok_or(Error::MonitorUnknownMonitor)
    }

    /// Carries out requests until one fails; returns the monitors that were added.
    ///
    /// # Errors
    /// If one fails: then those that were added are removed again.
    pub fn request(&mut self, requests: &[MonitorRequest]) -> Result<Vec<&FlowMonitor>, Error> {
        let mut added = Vec::new();
        let done = requests.iter().try_for_each(|request| {
            if request.command != MonitorCommand::Add {
                self.remove(request.id)?;
            }
            if request.command != MonitorCommand::Delete {
                self.add(request)?;
                added.push(request.id);
            }
            Ok(())
        });
        if done.is_err() {
            added.iter().for_each(|id| _ = self.by_id.remove(id));
        }
        done.map(|()| added.iter().filter_map(|id| self.by_id.get(id)).collect())
    }
}

/// A rule that monitors are told of.
pub struct MonitoredFlow {
    /// The rule.
    pub rule: Arc<Rule>,
    /// What happened to it.
    pub event: FlowEvent,
    /// Whether a monitor wants its actions.
    pub with_actions: bool,
}

/// Rules that monitors are told of: each once, in the order of their tables.
#[derive(Default)]
pub struct MonitoredFlows {
    flows: Vec<MonitoredFlow>,
    index: HashMap<*const Rule, usize>,
}

impl MonitoredFlows {
    /// Adds a rule. If it is there already, its actions are told if either monitor wants them.
    pub fn add(&mut self, flow: MonitoredFlow) {
        let index = *self.index.entry(Arc::as_ptr(&flow.rule)).or_insert(self.flows.len());
        match self.flows.get_mut(index) {
            Some(known) => known.with_actions |= flow.with_actions,
            None => self.flows.push(flow),
        }
    }

    /// The rules.
    pub fn into_vec(self) -> Vec<MonitoredFlow> {
        self.flows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: u32) -> MonitorRequest {
        let flags =
            MonitorFlags { initial: false, added: true, removed: true, modified: true, actions: false, own: false };
        let (command, matches) = (MonitorCommand::Add, sluice_flow::Match::ANY);
        MonitorRequest { id, command, flags, out_port: None, out_group: None, table: None, matches }
    }

    #[test]
    fn a_connection_has_so_many_monitors_at_most() {
        let (mut monitors, before) = (FlowMonitors::default(), Limit::FlowMonitors.count());
        (0..MONITORS_MAX as u32).for_each(|id| monitors.add(&request(id)).unwrap());
        assert_eq!(monitors.add(&request(1 << 20)), Err(Error::MonitorUnknown));
        assert!(Limit::FlowMonitors.count() > before);
        monitors.remove(0).unwrap();
        assert_eq!(monitors.add(&request(1 << 20)), Ok(()));
    }
}
