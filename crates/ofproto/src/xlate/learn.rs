//! Actions that change tables: `learn` and `fin_timeout`.

use super::Translator;
use crate::rule_select::{has_at_least, is_learned};
use crate::xlate_cache::{Dependency, XcEntry};
use sluice_flow::{FieldId, FieldValue, FlowKey, Match, OfPort, SubField, field::Prereq, layout};
use sluice_ofp::ofpact::{Learn, LearnSource, LearnTarget};
use sluice_ofp::{FlowCommand, FlowMod, OfAction};
use std::sync::Arc;

impl Translator<'_> {
    /// Makes a rule from the packet. The control thread adds it later; whether the limit allows it is decided here, by
    /// the current tables.
    pub(super) fn learn(&mut self, learn: &Learn) {
        for spec in &learn.specs {
            if let LearnSource::Field(src) = spec.source {
                self.look_at_bits(src);
            }
        }
        let tracing_only = self.tracer.is_some() && !self.side_effects;
        if tracing_only {
            return self.warn("suppressing side effects, so learn action ignored");
        }
        let flow = Arc::new(learned_flow(learn, &self.flow));
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
        let version = self.state.tables_version;
        let rules = self.bridge.tables.get(usize::from(learn.table)).and_then(|t| t.rules.as_deref());
        let is_there =
            |fm: &FlowMod| rules.is_some_and(|r| r.find_exact(&fm.matches, fm.priority.into(), version).is_some());
        let mut learned_now: Vec<&FlowMod> = Vec::new();
        for entry in &self.xcache {
            let XcEntry::Learn { bridge, flow: other, .. } = entry else { continue };
            let is_same_cookie =
                (*bridge, other.table, other.new_cookie) == (self.bridge.id, flow.table, flow.new_cookie);
            if is_same_cookie && !is_there(other) && !learned_now.iter().any(|fm| is_same_rule(fm, other)) {
                learned_now.push(other);
            }
        }
        let left = learn.limit.saturating_sub(learned_now.len() as u32);
        is_learned(self.bridge, flow, learn.limit, version).is_some()
            || learned_now.iter().any(|fm| is_same_rule(fm, flow))
            || left > 0 && rules.is_none_or(|rules| !has_at_least(rules, learn.cookie, left))
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

/// Whether one would replace the other.
fn is_same_rule(a: &FlowMod, b: &FlowMod) -> bool {
    (a.priority, &a.matches) == (b.priority, &b.matches)
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
