//! Finding rules of a bridge: those that a request selects, and those that a change would add.

use crate::action_refs::{outputs_to, sends_to_group};
use crate::bridge::{Bridge, LearnedCookie, Rules};
use crate::bridge_config::N_TABLES;
use crate::expiry::RulePlace;
use crate::rule::Rule;
use sluice_classifier::{Criteria, LATEST, RuleId, Walk};
use sluice_flow::OfPort;
use sluice_ofp::FlowMod;
use std::collections::{BTreeMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The rules of a table, if it has any.
pub(crate) fn rules_of(bridge: &Bridge, table: u8) -> Option<&Rules> {
    bridge.tables[usize::from(table)].rules.as_deref()
}

/// The tables that a request is about.
fn tables_of(fm: &FlowMod) -> RangeInclusive<u8> {
    match fm.table.filter(|&t| t != 255) {
        Some(table) => table..=table,
        None => 0..=(N_TABLES as u8 - 1),
    }
}

/// Whether a request is about a rule that its match covers.
fn is_wanted(rule: &Rule, fm: &FlowMod, by_output: bool) -> bool {
    rule.openflow_priority().is_some()
        && (rule.cookie ^ fm.cookie) & fm.cookie_mask == 0
        && (!by_output || fm.out_port.is_none_or(|port| port == OfPort::NONE || outputs_to(&rule.actions, port)))
        && (!by_output || fm.out_group.is_none_or(|group| sends_to_group(&rule.actions, group)))
}

/// A search for the rules that a request lists, which lets go of the tables in between.
pub(crate) struct RuleSearch<'a> {
    request: &'a FlowMod,
    criteria: Criteria,
    tables: RangeInclusive<u8>,
    /// How far it has come in the table that it is in.
    walk: Option<(u8, Walk)>,
}

impl<'a> RuleSearch<'a> {
    /// The beginning of a search for what a request asks for, strictly or not.
    pub fn new(request: &'a FlowMod) -> Self {
        RuleSearch { request, criteria: Criteria::new(&request.matches), tables: tables_of(request), walk: None }
    }

    /// Looks at the next rules, one for each of `steps`, and gives those that are wanted and visible to `found`. Returns true
    /// once the search has seen every rule.
    pub fn go_on(
        &mut self,
        bridge: &Bridge,
        version: u64,
        steps: &mut usize,
        mut found: impl FnMut(&Arc<Rule>),
    ) -> bool {
        loop {
            if self.walk.is_none() {
                let Some(table) = self.tables.next() else { return true };
                self.walk = rules_of(bridge, table).map(|rules| (table, rules.walk()));
            }
            let Some((table, walk)) = &mut self.walk else { continue };
            if let Some(rules) = rules_of(bridge, *table) {
                let is_done = rules.go_on(walk, &self.criteria, version, steps, |rule| {
                    if is_wanted(rule.payload(), self.request, true) {
                        found(rule.payload());
                    }
                });
                if !is_done {
                    return false;
                }
            }
            self.walk = None;
        }
    }
}

/// The rules that a modification or deletion selects, table by table.
pub(crate) fn select(bridge: &Bridge, fm: &FlowMod, strict: bool, by_output: bool) -> Vec<(u8, RuleId)> {
    let criteria = Criteria::new(&fm.matches);
    let wanted = |rule: &Arc<Rule>| is_wanted(rule, fm, by_output);
    let mut out = Vec::new();
    for table in tables_of(fm) {
        let Some(rules) = rules_of(bridge, table) else { continue };
        if strict {
            let found = rules.find_exact(&fm.matches, fm.priority.into(), LATEST);
            out.extend(found.filter(|r| wanted(r.payload())).map(|r| (table, r.id())));
        } else {
            out.extend(rules.covered(&criteria, LATEST).filter(|r| wanted(r.payload())).map(|r| (table, r.id())));
        }
    }
    out
}

/// The rules that were learned into tables with such cookies. Each table is looked through once.
pub(crate) fn learned_with(bridge: &Bridge, learned: &[LearnedCookie]) -> Vec<RulePlace> {
    let mut cookies = BTreeMap::<u8, HashSet<u64>>::new();
    // Most teachers have taught nothing that is left.
    let has_any =
        |one: &&LearnedCookie| bridge.tables.get(usize::from(one.table)).is_some_and(|t| t.cookies.of(one.cookie) != 0);
    learned.iter().filter(has_any).for_each(|one| _ = cookies.entry(one.table).or_default().insert(one.cookie));
    let tables = cookies.iter().filter_map(|(table, cookies)| Some((*table, cookies, rules_of(bridge, *table)?)));
    let places = tables.flat_map(|(table, cookies, rules)| {
        let learned = rules.iter(LATEST).filter(|rule| cookies.contains(&rule.payload().cookie));
        learned.map(move |rule| (table, rule.id()))
    });
    places.collect()
}

/// Whether `replace-flows` leaves a rule as it is, with its counters.
pub(crate) fn is_same(rule: &Rule, fm: &FlowMod) -> bool {
    rule.cookie == fm.new_cookie.unwrap_or(0)
        && rule.idle_timeout() == fm.idle_timeout
        && rule.hard_timeout() == fm.hard_timeout
        && rule.importance == fm.importance
        && *rule.actions == *fm.actions
}

/// The rule that a `learn` would add, if an identical one exists. Its timeouts may differ: a modification keeps them,
/// and `fin_timeout` may have lowered them. Where a limit is checked, such a rule counts as another one, as in OVS.
pub(crate) fn is_learned<'b>(bridge: &'b Bridge, fm: &FlowMod, limit: u32, version: u64) -> Option<&'b Arc<Rule>> {
    let found = rules_of(bridge, fm.table?)?.find_exact(&fm.matches, fm.priority.into(), version)?;
    let same = |rule: &Rule| {
        let timeouts = (rule.idle_timeout(), rule.hard_timeout());
        rule.cookie == fm.new_cookie.unwrap_or(0)
            && rule.flags == fm.flags
            && *rule.actions == *fm.actions
            && (limit == 0 || timeouts == (fm.idle_timeout, fm.hard_timeout))
    };
    Some(found.payload()).filter(|rule| same(rule))
}

#[cfg(test)]
mod tests {
    use crate::Ofproto;
    use crate::rules::RULES_AT_ONCE;
    use sluice_flow::PortNames;
    use sluice_ofp::{FlowCommand, FlowMod};
    use std::collections::BTreeSet;

    const PIECE: usize = RULES_AT_ONCE as usize;

    fn flow(text: &str, command: FlowCommand) -> FlowMod {
        FlowMod::parse(text, command, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    /// 40,000 rules of three masks in three tables are listed while others come, change and go between the pieces: no piece
    /// is longer than it may be, and each rule that stays is listed once, in order.
    #[test]
    fn rules_are_searched_in_pieces_while_they_change() {
        let ofproto = Ofproto::new();
        ofproto.add_bridge(crate::BridgeConfig::new("br0"), 0).unwrap();
        let text = |i: u32| {
            let (table, cookie) = (i % 3, i % 2);
            let what = match i % 5 {
                0 => format!("udp,tp_dst={}", i / 5 % 60_000),
                1 => format!("tcp,tp_dst={}", i / 5 % 60_000),
                _ => format!("ip,nw_src=10.{}.{}.{}", i >> 16, i >> 8 & 255, i & 255),
            };
            format!("table={table},cookie={cookie:#x},priority={},{what},actions=drop", 1 + i % 7)
        };
        let rules: Vec<_> = (0..40_000).map(|i| flow(&text(i), FlowCommand::Add)).collect();
        ofproto.bundle("br0", &rules, 0).unwrap();
        let mut wanted = flow("cookie=1/1", FlowCommand::Delete);
        wanted.table = None;
        let address = |rule: &std::sync::Arc<crate::Rule>| std::sync::Arc::as_ptr(rule).addr();
        let before: Vec<usize> = ofproto.select("br0", &wanted).unwrap().iter().map(address).collect();
        assert_eq!(before.len(), 20_000);

        // Kept, so that no new rule gets the address of one that has gone.
        let kept = ofproto.select("br0", &wanted).unwrap();
        let mut pieces = Vec::new();
        let found = ofproto.select_in_pieces("br0", &wanted, |steps| {
            let n = pieces.len() as u32;
            pieces.push(steps);
            // Those with an even number go, or those near the place of the search.
            let gone: Vec<_> = (0..300).map(|i| n * 3_001 + i).filter(|i| i % 3 != 0 && *i < 40_000).collect();
            for i in gone {
                let delete = text(i).replace(&format!("cookie={:#x},", i % 2), "").replace(",actions=drop", "");
                ofproto.flow_mod("br0", &flow(&delete, FlowCommand::DeleteStrict), 0).unwrap();
            }
            for i in 0..100 {
                let add = text(50_000 + n * 100 + i);
                ofproto.flow_mod("br0", &flow(&add, FlowCommand::Add), 0).unwrap();
            }
        });
        let found: Vec<usize> = found.unwrap().iter().map(address).collect();
        assert!(pieces.len() >= 40_000 / PIECE && pieces.iter().all(|steps| *steps <= PIECE), "{pieces:?}");
        let now: BTreeSet<usize> = ofproto.select("br0", &wanted).unwrap().iter().map(address).collect();
        let stay: Vec<usize> = before.iter().copied().filter(|it| now.contains(it)).collect();
        assert!(stay.len() > 17_000 && stay.len() < before.len(), "{}", stay.len());
        let both: BTreeSet<usize> = stay.iter().copied().collect();
        assert_eq!(found.iter().copied().filter(|it| both.contains(it)).collect::<Vec<_>>(), stay);
        let once: BTreeSet<usize> = found.iter().copied().collect();
        assert_eq!(once.len(), found.len(), "none is listed twice");
        drop(kept);
    }

    /// A bridge that goes between two pieces ends the search.
    #[test]
    fn a_bridge_that_goes_meanwhile_ends_the_search() {
        let ofproto = Ofproto::new();
        ofproto.add_bridge(crate::BridgeConfig::new("br0"), 0).unwrap();
        let rules: Vec<_> =
            (0..2 * PIECE as u32).map(|i| flow(&format!("reg0={i},actions=drop"), FlowCommand::Add)).collect();
        ofproto.bundle("br0", &rules, 0).unwrap();
        let all = FlowMod::new(FlowCommand::Delete);
        assert_eq!(ofproto.select("br0", &all).unwrap().len(), 2 * PIECE);
        assert!(ofproto.select_in_pieces("br0", &all, |_| ofproto.remove_bridge("br0").unwrap_or(())).is_err());
    }
}
