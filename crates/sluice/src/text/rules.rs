//! Rules, as `bridge/dump-flows` and the end of a run show them.

use sluice_ofp::text::{FlowLine, FlowLineStats};
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{Error, Ofproto, RuleEntry};

/// A bridge's rules, one a line, with their counters as of `now_ms`; `show` writes a line.
pub fn dump(
    ofproto: &Ofproto,
    bridge: &str,
    now_ms: u64,
    show: impl Fn(&FlowLine<'_>) -> String,
) -> Result<String, Error> {
    let rules = ofproto.rules(bridge, &FlowMod::new(FlowCommand::Delete))?;
    Ok(rules.iter().map(|entry| show(&line(entry, now_ms)) + "\n").collect())
}

/// A rule as a line shows it.
pub fn line(entry: &RuleEntry, now_ms: u64) -> FlowLine<'_> {
    let rule = &entry.rule;
    let stats = rule.stats();
    FlowLine {
        table: rule.table,
        cookie: rule.cookie,
        priority: rule.priority,
        idle_timeout: rule.idle_timeout(),
        hard_timeout: rule.hard_timeout(),
        importance: rule.importance,
        flags: rule.flags,
        matches: &entry.matches,
        actions: &rule.actions,
        stats: Some(FlowLineStats {
            duration_ms: now_ms.saturating_sub(rule.created_ms),
            packets: stats.packets,
            bytes: stats.bytes,
            idle_age: None,
            hard_age: None,
        }),
    }
}
