//! Actions that change tables: `learn` and `fin_timeout`.

use super::Translator;
use crate::rule_select::is_learned;
use crate::xlate_cache::{Dependency, XcEntry};
use sluice_flow::{FieldId, FieldValue, FlowKey, Match, OfPort, SubField, field::Prereq, layout};
use sluice_ofp::ofpact::{Learn, LearnSource, LearnTarget};
use sluice_ofp::{FlowCommand, FlowMod, OfAction};
use std::collections::HashSet;
use std::sync::Arc;

/// What a `learn` takes out of the budget of work beside its specifications: it makes a rule of more than a kilobyte.
const LEARN_STEPS: usize = 8;

/// Entries of the xlate cache that are looked through for a step.
const ENTRIES_A_STEP: usize = 16;

impl Translator<'_> {
    /// Makes a rule from the packet. The control thread adds it later; whether the limit allows it is decided here, by
    /// the current tables.
    pub(super) fn learn(&mut self, learn: &Learn) {
        if !self.charge(LEARN_STEPS + learn.specs.len()) {
            return;
        }
        for spec in &learn.specs {
            if let LearnSource::Field(src) = spec.source {
                self.look_at_bits(src);
            }
        }
        let tracing_only = self.tracer.is_some() && !self.side_effects;
        if tracing_only {
            return self.warn("suppressing side effects, so learn action ignored");
        }
        let flow = Arc::new(learned_flow(learn, self.flow));
        if self.tracer.is_some() {
            let text = describe(&flow);
            self.detail(&text);
        }
        let below_limit = learn.limit == 0 || self.is_below_limit(learn, &flow);
        if let Some(dst) = learn.result_dst {
            self.load(dst, below_limit.into());
            self.report_value(dst);
        }
        if below_limit {
            let port = OfPort(self.flow.number(layout::IN_PORT) as u16);
            self.xcache.push(XcEntry::Learn { bridge: self.bridge.id, port, flow, limit: learn.limit });
        } else {
            self.detail("Limit exceeded, learn failed");
        }
    }

    /// Whether the rule exists already, or whether the table has fewer rules of the cookie than the limit, including
    /// those that this packet has learned before. The megaflow keeps the answer, so it depends on the table's rules.
    fn is_below_limit(&mut self, learn: &Learn, flow: &FlowMod) -> bool {
        self.depend_on(Dependency::TableCapacity(learn.table));
        // Those before it are looked through: with a thousand of them in one translation that is the most of its work.
        let own = (self.bridge.id, flow.table, flow.new_cookie);
        let is_same_table = |entry: &&XcEntry| matches!(entry, XcEntry::Learn { bridge, flow: other, .. } if (*bridge, other.table, other.new_cookie) == own);
        let before = self.xcache.iter().filter(is_same_table).count();
        if !self.charge(before + self.xcache.len() / ENTRIES_A_STEP) {
            return false;
        }
        let version = self.state.tables_version;
        let table = self.bridge.tables.get(usize::from(learn.table));
        let rules = table.and_then(|table| table.rules.as_deref());
        let is_there =
            |fm: &FlowMod| rules.is_some_and(|r| r.find_exact(&fm.matches, fm.priority.into(), version).is_some());
        let mut learned_now = HashSet::new();
        for entry in self.xcache.iter().filter(is_same_table) {
            let XcEntry::Learn { flow: other, .. } = entry else { continue };
            if !is_there(other) {
                learned_now.insert((other.priority, &other.matches));
            }
        }
        let left = learn.limit.saturating_sub(learned_now.len() as u32);
        is_learned(self.bridge, flow, learn.limit, version).is_some()
            || learned_now.contains(&(flow.priority, &flow.matches))
            || left > 0 && table.is_none_or(|table| table.cookies.of(learn.cookie) < left)
    }

    /// Lowers the timeouts of the rule when a TCP connection closes.
    pub(super) fn fin_timeout(&mut self, idle: u16, hard: u16) {
        self.look_at(layout::NW_PROTO, 0xff);
        if let Some(rule) = self.rule {
            let (bridge, rule) = (self.bridge.id, Arc::clone(rule));
            self.xcache.push(XcEntry::FinTimeout { bridge, rule, idle, hard });
        }
    }
}

/// The change of rules that a `learn` makes.
fn learned_flow(learn: &Learn, key: &FlowKey) -> FlowMod {
    let mut flow = FlowMod::new(FlowCommand::ModifyStrict);
    flow.table = Some(learn.table);
    flow.priority = learn.priority;
    flow.new_cookie = Some(learn.cookie);
    flow.idle_timeout = learn.idle_timeout;
    flow.hard_timeout = learn.hard_timeout;
    flow.flags.send_flow_rem = learn.send_flow_rem;
    if learn.fin_idle_timeout != 0 || learn.fin_hard_timeout != 0 {
        flow.actions.push(OfAction::FinTimeout { idle: learn.fin_idle_timeout, hard: learn.fin_hard_timeout });
    }
    for spec in &learn.specs {
        let value = match &spec.source {
            LearnSource::Field(src) if src.n_bits > u128::BITS => src.get_wide(key).into(),
            LearnSource::Field(src) => src.get(key).into(),
            LearnSource::Value(value) => value.clone(),
        };
        match spec.target {
            LearnTarget::Match(dst) => match_bits(&mut flow.matches, dst, &value),
            LearnTarget::Load(dst) => flow.actions.extend(loads(dst, &value)),
            LearnTarget::Output => flow.actions.extend(output(value.low())),
        }
    }
    flow
}

/// Adds a match on bits of a field.
fn match_bits(matches: &mut Match, dst: SubField, value: &FieldValue) {
    if dst.field.field().is_wide() {
        matches.set_masked_wide(dst.field, value.wide().shl(dst.start), dst.mask_wide());
    } else {
        let mask = dst.mask();
        matches.set_masked(dst.field, value.low() << dst.start & mask, mask);
    }
    if dst.field.field().prereq == Prereq::Ethernet {
        matches.set(FieldId::PacketType, 0);
    }
}

/// Loads that together write a value: one of them carries at most 64 bits in messages.
fn loads(dst: SubField, value: &FieldValue) -> impl Iterator<Item = OfAction> + '_ {
    const BITS: u32 = 64;
    (0..dst.n_bits).step_by(BITS as usize).map(move |from| {
        let n_bits = (dst.n_bits - from).min(BITS);
        let part = SubField { start: dst.start + from, n_bits, ..dst };
        let value = if from < u128::BITS { value.low() >> from } else { value.wide().shr(from).low() };
        OfAction::Load { dst: part, value: value & u128::from(u64::MAX) }
    })
}

/// An output, if a learned rule may output to that port.
fn output(value: u128) -> Option<OfAction> {
    let port = OfPort(u16::try_from(value).ok()?);
    let allowed = port < OfPort::MAX || matches!(port, OfPort::IN_PORT | OfPort::FLOOD | OfPort::LOCAL | OfPort::ALL);
    allowed.then_some(OfAction::Output { port, max_len: 0 })
}

/// The text of OVS's traces.
fn describe(flow: &FlowMod) -> String {
    let mut text = format!("table={} ", flow.table.unwrap_or(0));
    let matches = flow.matches.to_string();
    if !matches.is_empty() {
        text += &format!("{matches} ");
    }
    text += &format!("priority={}", flow.priority);
    if let Some(cookie) = flow.new_cookie.filter(|&c| c != 0) {
        text += &format!(" cookie={cookie:#x}");
    }
    if flow.idle_timeout != 0 {
        text += &format!(" idle={}", flow.idle_timeout);
    }
    if flow.hard_timeout != 0 {
        text += &format!(" hard={}", flow.hard_timeout);
    }
    if flow.flags.send_flow_rem {
        text += " send_flow_rem";
    }
    text + " actions=" + &super::freeze::list(&flow.actions)
}
