//! Rules as controllers see them: flow statistics and flow-removed messages.

use crate::close_reason::CloseReason;
use crate::connection::Connection;
use crate::switch::Switch;
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{Rule, RuleEntry, RuleRemoved};
use sluice_openflow::message::connection::AsyncKind;
use sluice_openflow::message::flow_stats::{Aggregate, FlowRequest, FlowStats};
use sluice_openflow::message::stats::StatsReply;
use sluice_openflow::{Error, FlowRemoved, Message, Request};
use std::sync::Arc;

/// Flows that are written before the connection checks that the peer reads them.
const FLOWS_AT_ONCE: usize = 512;

/// The OpenFlow error for a request that the tables refuse.
pub fn refusal(error: &sluice_ofproto::Error) -> Error {
    use sluice_ofproto::Error as Why;
    match error {
        Why::BadTable(_) => Error::FlowModBadTableId,
        Why::GotoBackwards { .. } => Error::InstructionBadTableId,
        Why::ConjunctionNotAlone(_) => Error::ActionBadConjunction,
        Why::Overlap { .. } => Error::FlowModOverlap,
        Why::TableFull { .. } | Why::RuleMemory { .. } => Error::FlowModTableFull,
        Why::GroupMemory(_) => Error::GroupModOutOfGroups,
        Why::Unsupported { .. } => Error::ActionBadType,
        Why::MissingField { .. } => Error::MatchBadField,
        Why::UnmappedOption(_) => Error::FlowModInvalidTlvField,
        Why::OptionBits { .. } => Error::ActionBadSetLen,
        Why::BadOutGroup(_) => Error::ActionBadOutGroup,
        Why::GroupExists(_) => Error::GroupModGroupExists,
        Why::NoGroup(_) => Error::GroupModUnknownGroup,
        Why::BadGroup { .. } => Error::GroupModInvalidGroup,
        Why::GroupLoop(_) => Error::GroupModLoop,
        Why::WatchUnsupported(_) => Error::GroupModWatchUnsupported,
        Why::BucketExists { .. } => Error::GroupModBucketExists,
        Why::NoBucket { .. } => Error::GroupModUnknownBucket,
        Why::BadMeterAction(_) | Why::BadMeter { .. } => Error::MeterModInvalidMeter,
        Why::MeterExists(_) => Error::MeterModMeterExists,
        Why::NoMeter(_) => Error::MeterModUnknownMeter,
        Why::MeterBands(_) => Error::MeterModOutOfBands,
        Why::MeterBand(_) => Error::MeterModBadBand,
        Why::MeterRate(_) => Error::MeterModBadRate,
        Why::TooManyMeters => Error::MeterModOutOfMeters,
        Why::BundledPackets(_) => Error::BundleMsgTooMany,
        Why::InBundle { error, .. } => refusal(error),
        _ => Error::RequestEperm,
    }
}

impl Connection {
    /// Replies with the flows, in as many messages as are needed.
    pub(crate) fn flow_stats(&mut self, request: &Request, wanted: &FlowRequest) -> Result<(), CloseReason> {
        let rules = match select(&self.switch, &self.conn_mgr.bridge, wanted) {
            Ok(rules) => rules,
            Err(error) => {
                self.session.refuse(request, error);
                return Ok(());
            }
        };
        let now_ms = self.switch.now_ms();
        let mut chunks = rules.chunks(FLOWS_AT_ONCE).peekable();
        let mut last_is_sent = false;
        while !last_is_sent {
            // Matches are fetched here, because those of a million flows take a gigabyte. Rules removed meanwhile are left out.
            let entries = self.switch.ofproto.entries(&self.conn_mgr.bridge, chunks.next().unwrap_or_default());
            let flows = entries.unwrap_or_default().iter().map(|entry| stats(entry, now_ms)).collect();
            last_is_sent = chunks.peek().is_none();
            let reply = StatsReply::Flows(wanted.format, flows);
            self.session.reply(request, &Message::StatsReply(reply, !last_is_sent));
            self.drain_output()?;
        }
        Ok(())
    }

    /// Sends a flow-removed message, if the controller wants it.
    pub(crate) fn flow_removed(&mut self, removed: &RuleRemoved) {
        let reason = removed.reason;
        if !self.session.wants(AsyncKind::FlowRemoved, reason as u32) {
            return;
        }
        let rule = &removed.rule;
        let message = FlowRemoved {
            format: self.session.flow_format(),
            matches: removed.matches.clone(),
            cookie: rule.cookie,
            priority: priority(rule),
            reason,
            table: rule.table,
            duration_ns: nanoseconds(removed.when_ms.saturating_sub(rule.created_ms)),
            idle_timeout: rule.idle_timeout(),
            hard_timeout: rule.hard_timeout(),
            packets: removed.stats.packets,
            bytes: removed.stats.bytes,
        };
        self.session.send(&Message::FlowRemoved(Box::new(message)));
    }
}

/// The priority of a rule that controllers get: hidden ones are not among these.
pub fn priority(rule: &Rule) -> u16 {
    rule.openflow_priority().unwrap_or(u16::MAX)
}

/// A duration in OpenFlow's unit.
pub fn nanoseconds(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}

/// The rules that a request selects, credited with all packets until now.
fn select(switch: &Switch, bridge: &str, wanted: &FlowRequest) -> Result<Vec<Arc<Rule>>, Error> {
    let mut selection = FlowMod::new(FlowCommand::Delete);
    selection.matches = wanted.matches.clone();
    selection.table = wanted.table;
    (selection.out_port, selection.out_group) = (wanted.out_port, wanted.out_group);
    (selection.cookie, selection.cookie_mask) = (wanted.cookie, wanted.cookie_mask);
    switch.backend.credit_rules();
    switch.ofproto.select(bridge, &selection).map_err(|error| refusal(&error))
}

fn stats(entry: &RuleEntry, now_ms: u64) -> FlowStats {
    let rule = &entry.rule;
    let counts = rule.stats();
    let seconds = |since_ms: u64| Some((now_ms.saturating_sub(since_ms) / 1000) as u32);
    FlowStats {
        table: rule.table,
        priority: priority(rule),
        cookie: rule.cookie,
        idle_timeout: rule.idle_timeout(),
        hard_timeout: rule.hard_timeout(),
        importance: rule.importance,
        flags: rule.flags,
        duration_ns: nanoseconds(now_ms.saturating_sub(rule.created_ms)),
        idle_age: seconds(counts.used_ms),
        hard_age: seconds(rule.modified_ms()),
        packets: counts.packets,
        bytes: counts.bytes,
        matches: entry.matches.clone(),
        actions: rule.actions.clone(),
    }
}

/// The counters of all rules that a request selects.
pub fn aggregate(switch: &Switch, bridge: &str, wanted: &FlowRequest) -> Result<Aggregate, Error> {
    let mut sum = Aggregate::default();
    for rule in select(switch, bridge, wanted)? {
        let counts = rule.stats();
        sum.packets += counts.packets;
        sum.bytes += counts.bytes;
        sum.flows += 1;
    }
    Ok(sum)
}
