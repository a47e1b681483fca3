//! Rules, as `bridge/dump-flows` and the end of a run show them.

use sluice_ofp::text::{FlowLine, FlowLineStats};
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{Error, Ofproto, RuleEntry};

/// Rules of which the text is made at a time.
const RULES_AT_ONCE: usize = 512;

/// A bridge's rules, hidden ones first, one a line, with their counters as of `now_ms`; `show` writes a line. Some at a time:
/// matches and text of all of them take gigabytes where there are millions. Rules that go meanwhile are left out.
pub fn dump(
    ofproto: &Ofproto,
    bridge: &str,
    now_ms: u64,
    show: impl Fn(&FlowLine<'_>) -> String + 'static,
) -> Result<impl Iterator<Item = String> + 'static, Error> {
    let lines =
        move |entries: &[RuleEntry]| entries.iter().map(|entry| show(&line(entry, now_ms)) + "\n").collect::<String>();
    let hidden = lines(&ofproto.hidden_rules(bridge)?);
    let rules = ofproto.select(bridge, &FlowMod::new(FlowCommand::Delete))?;
    let (ofproto, bridge, mut at) = (ofproto.clone(), bridge.to_owned(), 0);
    let more = std::iter::from_fn(move || {
        let some = rules.get(at..rules.len().min(at + RULES_AT_ONCE)).filter(|some| !some.is_empty())?;
        at += some.len();
        // A bridge that has gone has no rules.
        Some(lines(&ofproto.entries(&bridge, some).unwrap_or_default()))
    });
    Ok(std::iter::once(hidden).chain(more))
}

/// At most `n` of a bridge's rules, and how many more there are. What it costs depends on `n` alone.
pub fn dump_some(
    ofproto: &Ofproto,
    bridge: &str,
    n: usize,
    now_ms: u64,
    show: impl Fn(&FlowLine<'_>) -> String,
) -> Result<(String, usize), Error> {
    let hidden = ofproto.hidden_rules(bridge)?;
    let (rules, count) = ofproto.some_rules(bridge, n)?;
    let more = count.saturating_sub(rules.len());
    Ok((hidden.iter().chain(&rules).map(|entry| show(&line(entry, now_ms)) + "\n").collect(), more))
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
