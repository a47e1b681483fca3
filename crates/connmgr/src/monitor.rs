//! Flow monitors: what a connection watches, and the news that wait for it.
//!
//! News are made while the tables cannot change, so they come in order. A controller that does not take them in time is
//! told that there is a pause; then only of flows that go, as long as those are few enough, and in the end of all flows
//! that came or changed meanwhile. Nothing is lost, and what waits is bounded.

use crate::connection::{Connection, End};
use crate::flows::refusal;
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{Rule, RuleEntry, RuleFilter, RuleUpdate, RuleUpdateEvent, Transaction};
use sluice_openflow::message::monitor::{
    FlowEvent, FlowNews, FlowUpdate, MonitorCommand, MonitorFlags, MonitorRequest,
};
use sluice_openflow::message::stats::StatsReply;
use sluice_openflow::{Error, Message, Request, Version};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// With more updates waiting than this, there is a pause.
const UPDATES_MAX: usize = 1 << 10;

/// With more than this, flows that went during the pause, the connection is lost.
const REMOVED_MAX: usize = 1 << 16;

/// Monitors of a connection at most.
const MONITORS_MAX: usize = 256;

/// Flows in a piece of an answer.
const FLOWS_AT_ONCE: usize = 512;

/// What a connection watches.
#[derive(Default)]
pub struct Monitors {
    by_id: BTreeMap<u32, Monitor>,
    /// From which version of the tables on flows that come and change are not told.
    paused: Option<u64>,
    /// The last version that has been told in short.
    abbreviated: u64,
    /// Updates that wait.
    waiting: usize,
    /// Too many of them.
    is_overrun: bool,
}

struct Monitor {
    flags: MonitorFlags,
    interest: RuleFilter,
}

/// An update that waits.
#[derive(Clone, Debug)]
pub enum Update {
    /// News of a flow, with what it does or without.
    Flow(Arc<RuleUpdate>, bool),
    /// A transaction of the connection's own.
    Abbreviated(u32),
    /// From here on some are left out.
    Paused,
}

impl Monitors {
    /// What of a transaction's news is for this connection.
    pub fn updates(&mut self, number: u64, transaction: Transaction, news: &[Arc<RuleUpdate>]) -> Vec<Update> {
        let own = transaction.by.filter(|by| by.connection == number);
        let mut updates = Vec::new();
        for news in news {
            // During a pause only flows that were there before it are told to have gone.
            let is_late =
                |paused| !matches!(news.event, RuleUpdateEvent::Removed(_)) || news.rule.added_version > paused;
            if self.paused.is_some_and(is_late) {
                continue;
            }
            let Some(flags) = self.flags(news) else { continue };
            match own {
                Some(by) if !flags.own && self.paused.is_none() => {
                    if self.abbreviated != transaction.version {
                        self.abbreviated = transaction.version;
                        updates.push(Update::Abbreviated(by.xid));
                    }
                }
                _ => updates.push(Update::Flow(Arc::clone(news), flags.actions)),
            }
        }
        if self.waiting + updates.len() > REMOVED_MAX {
            self.is_overrun = true;
            return Vec::new();
        }
        self.waiting += updates.len();
        if self.waiting > UPDATES_MAX && self.paused.is_none() {
            // A part of this transaction may have been told already; in the end all of it is.
            self.paused = Some(transaction.version);
            self.waiting += 1;
            updates.push(Update::Paused);
        }
        updates
    }

    /// What the monitors that are to hear of it want, together.
    fn flags(&self, news: &RuleUpdate) -> Option<MonitorFlags> {
        let wants = |flags: &MonitorFlags| match news.event {
            RuleUpdateEvent::Added => flags.added,
            RuleUpdateEvent::Modified => flags.modified,
            RuleUpdateEvent::Removed(_) => flags.removed,
        };
        let interested = self.by_id.values().filter(|m| wants(&m.flags) && m.interest.covers(news));
        interested.map(|m| m.flags).reduce(|a, b| MonitorFlags {
            actions: a.actions | b.actions,
            own: a.own | b.own,
            ..a
        })
    }

    /// Whether the connection is to end because too much waits.
    pub fn is_overrun(&self) -> bool {
        self.is_overrun
    }

    fn add(&mut self, q: &MonitorRequest) -> Result<(), Error> {
        if self.by_id.contains_key(&q.id) {
            return Err(Error::MonitorMonitorExists);
        }
        if self.by_id.len() == MONITORS_MAX {
            return Err(Error::MonitorUnknown);
        }
        self.by_id.insert(q.id, Monitor { flags: q.flags, interest: interest(q) });
        Ok(())
    }

    fn remove(&mut self, id: u32) -> Result<(), Error> {
        self.by_id.remove(&id).map(drop).ok_or(Error::MonitorUnknownMonitor)
    }

    /// Carries out requests up to the first that cannot be; the numbers of the monitors that began.
    fn request(&mut self, all: &[MonitorRequest]) -> Result<Vec<u32>, Error> {
        let mut begun = Vec::new();
        let done = all.iter().try_for_each(|q| {
            if q.command != MonitorCommand::Add {
                self.remove(q.id)?;
            }
            if q.command != MonitorCommand::Delete {
                self.add(q)?;
                begun.push(q.id);
            }
            Ok(())
        });
        if done.is_err() {
            begun.iter().for_each(|id| _ = self.by_id.remove(id));
        }
        done.map(|()| begun)
    }
}

fn interest(q: &MonitorRequest) -> RuleFilter {
    RuleFilter { table: q.table, out_port: q.out_port, out_group: q.out_group, matches: q.matches }
}

/// A flow to be told of, how, and with what it does or without.
type Told = (Arc<Rule>, FlowEvent, bool);

/// Flows to be told of, each once, in the order of their tables.
#[derive(Default)]
struct Flows {
    all: Vec<Told>,
    places: HashMap<*const Rule, usize>,
}

impl Flows {
    /// Adds a flow; with what it does, if one of the monitors wants that.
    fn add(&mut self, rule: Arc<Rule>, event: FlowEvent, actions: bool) {
        let place = *self.places.entry(Arc::as_ptr(&rule)).or_insert(self.all.len());
        match self.all.get_mut(place) {
            Some(told) => told.2 |= actions,
            None => self.all.push((rule, event, actions)),
        }
    }
}

impl Connection {
    /// Begins, changes and ends monitors, and tells of the flows that are there.
    pub(crate) fn monitor(&mut self, request: &Request, all: &[MonitorRequest]) -> Result<(), End> {
        let (switch, hub, mailbox) = (Arc::clone(&self.switch), Arc::clone(&self.hub), Arc::clone(&self.mailbox));
        let begun = switch.ofproto.with_changes_blocked(|| {
            let mut monitors = mailbox.monitors();
            let before = !monitors.by_id.is_empty();
            let begun = monitors.request(all);
            match (before, !monitors.by_id.is_empty()) {
                (false, true) => hub.watch(true),
                (true, false) => hub.watch(false),
                _ => {}
            }
            let mut flows = Flows::default();
            for id in begun? {
                let Monitor { flags, interest } = &monitors.by_id[&id];
                if flags.initial {
                    let found = select(&switch.ofproto, &hub.bridge, interest)?;
                    found.into_iter().for_each(|rule| flows.add(rule, FlowEvent::Initial, flags.actions));
                }
            }
            Ok::<_, Error>(flows.all)
        });
        match begun {
            Ok(rules) => self.tell_flows(Some(request), &rules),
            Err(error) => {
                self.session.refuse(request, error);
                Ok(())
            }
        }
    }

    /// Ends a monitor.
    pub(crate) fn cancel_monitor(&mut self, id: u32) -> Result<(), Error> {
        let mut monitors = self.mailbox.monitors();
        monitors.remove(id)?;
        if monitors.by_id.is_empty() {
            self.hub.watch(false);
        }
        Ok(())
    }

    /// Ends all monitors with their connection.
    pub(crate) fn end_monitors(&mut self) {
        let mut monitors = self.mailbox.monitors();
        if !monitors.by_id.is_empty() {
            monitors.by_id.clear();
            self.hub.watch(false);
        }
    }

    /// Tells of flows in as many messages as it takes: as an answer, or unasked.
    fn tell_flows(&mut self, request: Option<&Request>, rules: &[Told]) -> Result<(), End> {
        let mut chunks = rules.chunks(FLOWS_AT_ONCE).peekable();
        let mut last_is_sent = chunks.peek().is_none() && request.is_none();
        while !last_is_sent {
            let chunk = chunks.next().unwrap_or_default();
            let only_rules: Vec<_> = chunk.iter().map(|(rule, ..)| Arc::clone(rule)).collect();
            let entries = self.switch.ofproto.entries(&self.hub.bridge, &only_rules).unwrap_or_default();
            let mut told = chunk.iter();
            let updates = entries.iter().filter_map(|entry| {
                let (_, event, actions) = told.find(|(rule, ..)| Arc::ptr_eq(rule, &entry.rule))?;
                Some(full(entry, *event, *actions))
            });
            let updates = updates.collect();
            last_is_sent = chunks.peek().is_none();
            let reply = Message::StatsReply(StatsReply::Updates(updates), !last_is_sent && request.is_some());
            match request {
                Some(request) => self.session.reply(request, &reply),
                None => self.session.send(&reply),
            }
            self.relieve()?;
        }
        Ok(())
    }

    /// Tells of what has changed.
    pub(crate) fn tell_updates(&mut self, updates: Vec<Update>) {
        self.mailbox.monitors().waiting -= updates.len();
        let is_paused = matches!(updates.last(), Some(Update::Paused));
        let updates: Vec<_> = updates.into_iter().filter_map(update).collect();
        if !updates.is_empty() {
            self.session.send(&Message::StatsReply(StatsReply::Updates(updates), false));
        }
        if is_paused {
            self.tell_pause(&Message::MonitorPaused, FlowUpdate::Paused);
        }
    }

    /// Says that there is a pause, or is none any more: by a message, from OpenFlow 1.4 on by an update.
    fn tell_pause(&mut self, message: &Message, update: FlowUpdate) {
        if self.version() < Version::V14 {
            return self.session.send(message);
        }
        self.session.send(&Message::StatsReply(StatsReply::Updates(vec![update]), false));
    }

    /// Ends a pause, if there is one and everything before has been sent: tells of what came and changed meanwhile.
    pub(crate) fn resume_monitors(&mut self) -> Result<(), End> {
        let (is_overrun, is_paused) = {
            let monitors = self.mailbox.monitors();
            (monitors.is_overrun, monitors.paused.is_some())
        };
        if is_overrun {
            return Err("its flow monitors fell too far behind");
        }
        if !is_paused {
            return Ok(());
        }
        let (switch, hub, mailbox) = (Arc::clone(&self.switch), Arc::clone(&self.hub), Arc::clone(&self.mailbox));
        let (late, rules) = switch.ofproto.with_changes_blocked(|| {
            let mut monitors = mailbox.monitors();
            let since = monitors.paused.take().unwrap_or(u64::MAX);
            let mut flows = Flows::default();
            for monitor in monitors.by_id.values() {
                for rule in select(&switch.ofproto, &hub.bridge, &monitor.interest).unwrap_or_default() {
                    let event = match (rule.added_version >= since, rule.version >= since) {
                        (true, _) if monitor.flags.added || monitor.flags.modified => FlowEvent::Added,
                        (false, true) if monitor.flags.modified => FlowEvent::Modified,
                        _ => continue,
                    };
                    flows.add(rule, event, monitor.flags.actions);
                }
            }
            // Flows that went in the pause: told before what may have come in their place.
            (mailbox.take(), flows.all)
        });
        late.into_iter().for_each(|news| self.pass_on(news));
        self.tell_flows(None, &rules)?;
        self.tell_pause(&Message::MonitorResumed, FlowUpdate::Resumed);
        Ok(())
    }
}

fn select(ofproto: &sluice_ofproto::Ofproto, bridge: &str, interest: &RuleFilter) -> Result<Vec<Arc<Rule>>, Error> {
    let mut selection = FlowMod::new(FlowCommand::Delete);
    (selection.matches, selection.table) = (interest.matches, interest.table);
    (selection.out_port, selection.out_group) = (interest.out_port, interest.out_group);
    ofproto.select(bridge, &selection).map_err(|error| refusal(&error))
}

fn update(update: Update) -> Option<FlowUpdate> {
    match update {
        Update::Paused => None,
        Update::Abbreviated(xid) => Some(FlowUpdate::Abbreviated(xid)),
        Update::Flow(news, actions) => {
            let event = match news.event {
                RuleUpdateEvent::Added => FlowEvent::Added,
                RuleUpdateEvent::Modified => FlowEvent::Modified,
                RuleUpdateEvent::Removed(reason) => FlowEvent::Removed(reason),
            };
            let entry = RuleEntry { matches: news.matches, rule: Arc::clone(&news.rule) };
            Some(full(&entry, event, actions))
        }
    }
}

fn full(entry: &RuleEntry, event: FlowEvent, with_actions: bool) -> FlowUpdate {
    let rule = &entry.rule;
    FlowUpdate::Full(Box::new(FlowNews {
        event,
        table: rule.table,
        priority: rule.priority,
        cookie: rule.cookie,
        idle_timeout: rule.idle_timeout(),
        hard_timeout: rule.hard_timeout(),
        matches: entry.matches,
        actions: if with_actions { Arc::clone(&rule.actions) } else { Arc::new([]) },
    }))
}
