//! Flow monitors of a connection: requests, and the updates that are sent.

use crate::close_reason::CloseReason;
use crate::connection::Connection;
use crate::flow_monitor::{MonitorUpdate, MonitoredFlow, MonitoredFlows};
use crate::flows::{priority, refusal};
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{Ofproto, Rule, RuleEntry, RuleFilter, RuleUpdateEvent};
use sluice_openflow::message::monitor::{FlowEvent, FlowUpdate, FlowUpdateFull, MonitorRequest};
use sluice_openflow::message::stats::StatsReply;
use sluice_openflow::{Error, Message, Request, Version};
use std::sync::Arc;

/// Rules in a message.
const FLOWS_AT_ONCE: usize = 512;

impl Connection {
    /// Adds, changes and removes monitors, and replies with the rules that are there.
    pub(crate) fn monitor(&mut self, request: &Request, requests: &[MonitorRequest]) -> Result<(), CloseReason> {
        let (switch, conn_mgr, handle) =
            (Arc::clone(&self.switch), Arc::clone(&self.conn_mgr), Arc::clone(&self.handle));
        let found = switch.ofproto.with_changes_blocked(|| {
            let mut monitors = handle.monitors();
            let was_empty = monitors.is_empty();
            let mut flows = MonitoredFlows::default();
            let added = monitors.request(requests).and_then(|added| {
                for monitor in added.iter().filter(|monitor| monitor.flags.initial) {
                    for rule in select(&switch.ofproto, &conn_mgr.bridge, &monitor.filter)? {
                        let with_actions = monitor.flags.actions;
                        flows.add(MonitoredFlow { rule, event: FlowEvent::Initial, with_actions });
                    }
                }
                Ok(())
            });
            if was_empty != monitors.is_empty() {
                conn_mgr.count_monitoring(was_empty);
            }
            added.map(|()| flows.into_vec())
        });
        match found {
            Ok(flows) => self.send_flows(Some(request), &flows),
            Err(error) => {
                self.session.refuse(request, error);
                Ok(())
            }
        }
    }

    /// Removes a monitor.
    pub(crate) fn cancel_monitor(&mut self, id: u32) -> Result<(), Error> {
        let mut monitors = self.handle.monitors();
        monitors.remove(id)?;
        if monitors.is_empty() {
            self.conn_mgr.count_monitoring(false);
        }
        Ok(())
    }

    /// Removes all monitors, because the connection has ended.
    pub(crate) fn end_monitors(&mut self) {
        let mut monitors = self.handle.monitors();
        if !monitors.is_empty() {
            monitors.clear();
            self.conn_mgr.count_monitoring(false);
        }
    }

    /// Sends rules in as many messages as are needed: as the reply to a request, or unasked.
    fn send_flows(&mut self, request: Option<&Request>, flows: &[MonitoredFlow]) -> Result<(), CloseReason> {
        let mut chunks = flows.chunks(FLOWS_AT_ONCE).peekable();
        let mut last_is_sent = chunks.peek().is_none() && request.is_none();
        while !last_is_sent {
            let chunk = chunks.next().unwrap_or_default();
            let rules: Vec<_> = chunk.iter().map(|flow| Arc::clone(&flow.rule)).collect();
            let entries = self.switch.ofproto.entries(&self.conn_mgr.bridge, &rules).unwrap_or_default();
            // Rules that were removed meanwhile have no entry.
            let mut flows = chunk.iter();
            let updates = entries.iter().filter_map(|entry| {
                let flow = flows.find(|flow| Arc::ptr_eq(&flow.rule, &entry.rule))?;
                Some(full(entry, flow.event, flow.with_actions))
            });
            let updates = updates.collect();
            last_is_sent = chunks.peek().is_none();
            let reply = Message::StatsReply(StatsReply::Updates(updates), !last_is_sent && request.is_some());
            match request {
                Some(request) => self.session.reply(request, &reply),
                None => self.session.send(&reply),
            }
            self.drain_output()?;
        }
        Ok(())
    }

    /// Sends updates that have waited.
    pub(crate) fn flow_updates(&mut self, updates: Vec<MonitorUpdate>) {
        self.handle.monitors().taken(updates.len());
        let is_paused = matches!(updates.last(), Some(MonitorUpdate::Paused));
        let updates: Vec<_> = updates.into_iter().filter_map(flow_update).collect();
        if !updates.is_empty() {
            self.session.send(&Message::StatsReply(StatsReply::Updates(updates), false));
        }
        if is_paused {
            self.send_pause(&Message::MonitorPaused, FlowUpdate::Paused);
        }
    }

    /// Says that the monitors pause, or no longer: by a message, from OpenFlow 1.4 on by an update.
    fn send_pause(&mut self, message: &Message, update: FlowUpdate) {
        if self.version() < Version::V14 {
            return self.session.send(message);
        }
        self.session.send(&Message::StatsReply(StatsReply::Updates(vec![update]), false));
    }

    /// Ends a pause, if there is one: sends the rules that were added and modified during it. Called once all that was
    /// queued before has been sent.
    pub(crate) fn resume_monitors(&mut self) -> Result<(), CloseReason> {
        let (is_overrun, is_paused) = {
            let monitors = self.handle.monitors();
            (monitors.is_overrun(), monitors.is_paused())
        };
        if is_overrun {
            return Err(CloseReason::MonitorsOverrun);
        }
        if !is_paused {
            return Ok(());
        }
        let (switch, conn_mgr, handle) =
            (Arc::clone(&self.switch), Arc::clone(&self.conn_mgr), Arc::clone(&self.handle));
        let (queued, flows) = switch.ofproto.with_changes_blocked(|| {
            let mut monitors = handle.monitors();
            let since = monitors.resume();
            let mut flows = MonitoredFlows::default();
            for monitor in monitors.all() {
                for rule in select(&switch.ofproto, &conn_mgr.bridge, &monitor.filter).unwrap_or_default() {
                    let event = match (rule.added_version >= since, rule.version >= since) {
                        (true, _) if monitor.flags.added || monitor.flags.modified => FlowEvent::Added,
                        (false, true) if monitor.flags.modified => FlowEvent::Modified,
                        _ => continue,
                    };
                    flows.add(MonitoredFlow { rule, event, with_actions: monitor.flags.actions });
                }
            }
            // Rules removed during the pause are told first: others may have been added in their place.
            (handle.take(), flows.into_vec())
        });
        queued.into_iter().for_each(|msg| self.send_async_msg(msg));
        self.send_flows(None, &flows)?;
        self.send_pause(&Message::MonitorResumed, FlowUpdate::Resumed);
        Ok(())
    }
}

fn select(ofproto: &Ofproto, bridge: &str, filter: &RuleFilter) -> Result<Vec<Arc<Rule>>, Error> {
    let mut selection = FlowMod::new(FlowCommand::Delete);
    (selection.matches, selection.table) = (filter.matches.clone(), filter.table);
    (selection.out_port, selection.out_group) = (filter.out_port, filter.out_group);
    ofproto.select(bridge, &selection).map_err(|error| refusal(&error))
}

/// The message's form of an update. A pause has a message of its own.
fn flow_update(update: MonitorUpdate) -> Option<FlowUpdate> {
    match update {
        MonitorUpdate::Paused => None,
        MonitorUpdate::Abbreviated(xid) => Some(FlowUpdate::Abbreviated(xid)),
        MonitorUpdate::Flow { update, with_actions } => {
            let event = match update.event {
                RuleUpdateEvent::Added => FlowEvent::Added,
                RuleUpdateEvent::Modified => FlowEvent::Modified,
                RuleUpdateEvent::Removed(reason) => FlowEvent::Removed(reason),
            };
            let entry = RuleEntry { matches: update.matches.clone(), rule: Arc::clone(&update.rule) };
            Some(full(&entry, event, with_actions))
        }
    }
}

fn full(entry: &RuleEntry, event: FlowEvent, with_actions: bool) -> FlowUpdate {
    let rule = &entry.rule;
    FlowUpdate::Full(Box::new(FlowUpdateFull {
        event,
        table: rule.table,
        priority: priority(rule),
        cookie: rule.cookie,
        idle_timeout: rule.idle_timeout(),
        hard_timeout: rule.hard_timeout(),
        matches: entry.matches.clone(),
        actions: if with_actions { Arc::clone(&rule.actions) } else { Arc::new([]) },
    }))
}
