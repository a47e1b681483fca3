//! Flows: changed, asked about, gone.

use super::connection::{Connection, End};
use crate::switch::Switch;
use sluice_flow::{FlowCommand, FlowFlags, FlowMod};
use sluice_ofproto::{Change, Removal, RuleEntry, RuleRemoved};
use sluice_openflow::message::connection::AsyncKind;
use sluice_openflow::message::flow_mod::FlowModMessage;
use sluice_openflow::message::flow_stats::{Aggregate, FlowRequest, FlowStats};
use sluice_openflow::message::stats::StatsReply;
use sluice_openflow::{BundleCommit, Error, FlowRemoved, FlowRemovedReason, Message, Request, bundled};

/// Flows in a piece of an answer, before it is looked whether the peer reads.
const FLOWS_AT_ONCE: usize = 512;

/// What the tables refused, in the protocol's terms.
pub fn refusal(error: &sluice_ofproto::Error) -> Error {
    use sluice_ofproto::Error as Why;
    match error {
        Why::BadTable(_) => Error::FlowModBadTableId,
        Why::GotoBackwards { .. } => Error::InstructionBadTableId,
        Why::ConjunctionNotAlone(_) => Error::ActionBadConjunction,
        Why::Overlap { .. } => Error::FlowModOverlap,
        Why::Unsupported { .. } => Error::ActionBadType,
        Why::BadOutGroup(_) => Error::ActionBadOutGroup,
        Why::GroupExists(_) => Error::GroupModGroupExists,
        Why::NoGroup(_) => Error::GroupModUnknownGroup,
        Why::BadGroup { .. } => Error::GroupModInvalidGroup,
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
        Why::InBundle { error, .. } => refusal(error),
        _ => Error::RequestEperm,
    }
}

impl Connection {
    pub(super) fn flow_mod(&mut self, m: &FlowModMessage) -> Result<(), Error> {
        if m.buffer_id.is_some() {
            return Err(Error::RequestBufferUnknown);
        }
        let changed = self.switch.ofproto.flow_mod(&self.hub.bridge, &m.flow, self.switch.now_ms());
        let changed = changed.map_err(|error| refusal(&error))?;
        self.switch.hurry();
        if changed.deleted != 0 {
            self.switch.publish_removed();
        }
        Ok(())
    }

    /// Does a bundle's messages, all or none.
    pub(super) fn commit(&mut self, request: &Request, commit: &BundleCommit) -> Result<(), End> {
        let table_in_command = self.session.table_in_command();
        let changes = bundled(&commit.messages, table_in_command).filter_map(|(_, message)| match message {
            Message::FlowMod(m) => Some(Change::Flow(Box::new(m.flow))),
            Message::GroupMod(m) => Some(Change::Group(*m)),
            _ => None,
        });
        let changes: Vec<_> = changes.collect();
        match self.switch.ofproto.ordered_bundle(&self.hub.bridge, &changes, self.switch.now_ms()) {
            Ok(_) => {
                self.switch.hurry();
                self.switch.publish_removed();
                self.session.bundle_done(request, &commit.control);
            }
            Err((place, error)) => {
                if let Some((bytes, _)) = bundled(&commit.messages, table_in_command).nth(place) {
                    self.session.refuse_bundled(bytes, refusal(&error));
                }
                self.session.refuse(request, Error::BundleMsgFailed);
            }
        }
        Ok(())
    }

    /// Answers with the flows, in as many messages as it takes.
    pub(super) fn flow_stats(&mut self, request: &Request, wanted: &FlowRequest) -> Result<(), End> {
        let rules = match rules(&self.switch, &self.hub.bridge, wanted) {
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
            let flows = chunks.next().unwrap_or_default().iter().map(|rule| stats(rule, now_ms)).collect();
            last_is_sent = chunks.peek().is_none();
            let reply = StatsReply::Flows(wanted.format, flows);
            self.session.reply(request, &Message::StatsReply(reply, !last_is_sent));
            self.relieve()?;
        }
        Ok(())
    }

    /// Tells of a rule that went, if the controller wants to hear it.
    pub(super) fn flow_removed(&mut self, removed: &RuleRemoved) {
        let reason = match removed.why {
            Removal::IdleTimeout => FlowRemovedReason::IdleTimeout,
            Removal::HardTimeout => FlowRemovedReason::HardTimeout,
            Removal::Delete => FlowRemovedReason::Delete,
            Removal::GroupDelete => FlowRemovedReason::GroupDelete,
            Removal::MeterDelete => FlowRemovedReason::MeterDelete,
            Removal::Eviction => FlowRemovedReason::Eviction,
        };
        if !self.session.wants(AsyncKind::FlowRemoved, reason as u32) {
            return;
        }
        let rule = &removed.rule;
        let message = FlowRemoved {
            format: self.session.flow_format(),
            matches: removed.matches,
            cookie: rule.cookie,
            priority: rule.priority,
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

/// A duration as the protocol has it.
pub fn nanoseconds(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}

/// The rules that a request is about, credited with what has been carried until now.
fn rules(switch: &Switch, bridge: &str, wanted: &FlowRequest) -> Result<Vec<RuleEntry>, Error> {
    let mut selection = FlowMod::new(FlowCommand::Delete);
    selection.matches = wanted.matches;
    selection.table = wanted.table;
    (selection.out_port, selection.out_group) = (wanted.out_port, wanted.out_group);
    (selection.cookie, selection.cookie_mask) = (wanted.cookie, wanted.cookie_mask);
    switch.revalidate();
    switch.ofproto.rules(bridge, &selection).map_err(|error| refusal(&error))
}

fn stats(entry: &RuleEntry, now_ms: u64) -> FlowStats {
    let rule = &entry.rule;
    let counts = rule.stats();
    let seconds = |since_ms: u64| Some((now_ms.saturating_sub(since_ms) / 1000) as u32);
    FlowStats {
        table: rule.table,
        priority: rule.priority,
        cookie: rule.cookie,
        idle_timeout: rule.idle_timeout(),
        hard_timeout: rule.hard_timeout(),
        importance: rule.importance,
        // How it was added is no part of what it is.
        flags: FlowFlags { check_overlap: false, reset_counts: false, ..rule.flags },
        duration_ns: nanoseconds(now_ms.saturating_sub(rule.created_ms)),
        idle_age: seconds(counts.used_ms),
        hard_age: seconds(rule.modified_ms()),
        packets: counts.packets,
        bytes: counts.bytes,
        matches: entry.matches,
        actions: rule.actions.clone(),
    }
}

/// What the flows that a request is about have carried together.
pub fn aggregate(switch: &Switch, bridge: &str, wanted: &FlowRequest) -> Result<Aggregate, Error> {
    let mut sum = Aggregate::default();
    for entry in rules(switch, bridge, wanted)? {
        let counts = entry.rule.stats();
        sum.packets += counts.packets;
        sum.bytes += counts.bytes;
        sum.flows += 1;
    }
    Ok(sum)
}
