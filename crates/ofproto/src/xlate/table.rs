//! Searching tables.

use super::{ActionList, Failure, MAX_BYTES, MAX_DEPTH, MAX_RESUBMITS, RunMode, Translator};
use crate::bridge_config::{FragmentMode, N_TABLES, TableMiss};
use crate::rule::Rule;
use crate::search_key::SearchKey;
use crate::table_counts::TableCounts;
use crate::trace::TraceKind;
use crate::trace_command::port_names;
use crate::xlate_cache::XcEntry;
use sluice_flow::layout::{self, Span};
use sluice_flow::{DEFAULT_PRIORITY, Match, OfPort, PortNames};
use sluice_ofp::ofpact::{ControllerAction, PacketInReason};
use std::sync::Arc;

/// The fields that a search uses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchBy {
    Packet,
    /// The original tuple of the packet's connection instead of the packet's own addresses and ports.
    Connection,
}

/// The fields that a search may see otherwise than actions do.
const SEARCHED_SPANS: [Span; 3] = [layout::IN_PORT, layout::TP_SRC, layout::TP_DST];

/// What happens to packets that no rule matches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Misses {
    /// What the table says.
    Configured,
    Dropped,
}

/// The result of a search.
enum SearchResult<'a> {
    Rule(&'a Arc<Rule>),
    /// No rule matches, and the packet goes to controllers for that reason.
    Miss,
    Nothing,
    /// The bridge drops fragments.
    Fragment,
}

impl<'a> Translator<'a> {
    /// The first search of a translation, in the current table.
    pub(super) fn search_first_table(&mut self) {
        let in_port = OfPort(self.number(layout::IN_PORT) as u16);
        let found = self.search_from(in_port);
        self.open_table(self.table, in_port, &found);
        self.missed = matches!(found, SearchResult::Miss);
        if let SearchResult::Rule(rule) = found {
            self.rule = Some(rule);
        }
    }

    /// Searches a table and runs the actions of the rule it finds, if any.
    pub(super) fn go_to_table(&mut self, in_port: OfPort, table: u8, last: bool, manner: RunMode) {
        self.enter(in_port, table, SearchBy::Packet, Misses::Configured, last, manner);
    }

    /// The same for `resubmit`, for which a table's configuration about misses does not count.
    pub(super) fn search_and_go(&mut self, in_port: OfPort, table: u8, by: SearchBy, last: bool, manner: RunMode) {
        self.enter(in_port, table, by, Misses::Dropped, last, manner);
    }

    fn enter(&mut self, in_port: OfPort, table: u8, by: SearchBy, misses: Misses, last: bool, manner: RunMode) {
        if self.was_mpls {
            return self.trigger_freeze();
        }
        if !self.may_resubmit() {
            return;
        }
        let old_table = std::mem::replace(&mut self.table, table);
        if by == SearchBy::Connection && !self.swap_tuple() {
            self.table = old_table;
            return;
        }
        let found = match misses {
            Misses::Configured => self.search_from(in_port),
            Misses::Dropped => self.search(in_port),
        };
        if by == SearchBy::Connection {
            self.swap_tuple_back();
        }
        let section = self.open_table(self.table, in_port, &found);
        match found {
            SearchResult::Rule(rule) => self.recurse(Some(rule), table <= old_table, last, manner),
            SearchResult::Miss => self.report_miss(),
            SearchResult::Nothing | SearchResult::Fragment => self.recurse(None, table <= old_table, last, manner),
        }
        self.close(section);
        self.table = old_table;
    }

    fn recurse(&mut self, rule: Option<&'a Arc<Rule>>, deeper: bool, last: bool, manner: RunMode) {
        let old = (self.rule, self.cookie, self.in_bucket);
        self.in_bucket = false;
        self.resubmits += 1;
        self.depth += usize::from(deeper);
        self.rule = rule;
        self.cookie = rule.map_or(0, |rule| rule.cookie);
        let actions = rule.map_or(&[][..], |rule| &rule.actions[..]);
        match manner {
            RunMode::Inline => self.actions(ActionList::of(actions), last),
            RunMode::Cloned => self.cloned(actions, last),
        }
        (self.rule, self.cookie, self.in_bucket) = old;
        self.depth -= usize::from(deeper);
    }

    /// Whether the limits allow another resubmit. If not, the translation fails or ends.
    pub(super) fn may_resubmit(&mut self) -> bool {
        if self.depth >= MAX_DEPTH {
            self.error(|| format!("over max translation depth {MAX_DEPTH}"));
            self.fail(Failure::TooDeep);
        } else if self.resubmits >= MAX_RESUBMITS {
            self.error(|| format!("over {MAX_RESUBMITS} resubmit actions"));
            self.fail(Failure::TooManyResubmits);
        } else if self.out_bytes > MAX_BYTES {
            self.error(|| "resubmits yielded over 64 kB of actions".to_owned());
            self.exit = true;
        } else if self.stack.iter().map(|s| s.n_bytes as usize + 1).sum::<usize>() > MAX_BYTES {
            self.error(|| "resubmits yielded over 64 kB of stack".to_owned());
            self.fail(Failure::StackTooDeep);
        } else {
            return true;
        }
        false
    }

    /// Hands the packet to controllers because no rule matches it.
    pub(super) fn report_miss(&mut self) {
        let (rule, cookie) = (self.rule.take(), std::mem::take(&mut self.cookie));
        let reason = PacketInReason::ImplicitMiss;
        self.send_to_controller(&ControllerAction { reason, ..ControllerAction::default() });
        (self.rule, self.cookie) = (rule, cookie);
    }

    /// Searches the current table for a packet from `in_port`, and those behind it as long as they say so. The table in
    /// which the search ends is the current one then.
    fn search_from(&mut self, in_port: OfPort) -> SearchResult<'a> {
        loop {
            let found = self.search(in_port);
            let SearchResult::Nothing = found else { return found };
            let miss = self.bridge.tables.get(usize::from(self.table)).map_or(TableMiss::Drop, |table| table.miss);
            let next = self.table.saturating_add(1);
            let reports = match miss {
                // The last table is the switch's own.
                TableMiss::Continue if usize::from(next) + 1 < N_TABLES => {
                    self.table = next;
                    continue;
                }
                TableMiss::Continue | TableMiss::Controller => true,
                TableMiss::Default => self.bridge.misses_to_controllers,
                TableMiss::Drop => false,
            };
            let port = self.bridge.ports.get(&self.in_port());
            let reports = reports && !port.is_some_and(|port| port.no_packet_in);
            return if reports { SearchResult::Miss } else { SearchResult::Nothing };
        }
    }

    /// Searches the current table for a packet from `in_port`. The key has what the search is to see only meanwhile: a copy
    /// of it for each search would cost more than most searches.
    fn search(&mut self, in_port: OfPort) -> SearchResult<'a> {
        let before = cfg!(debug_assertions).then(|| self.flow.clone());
        let kept = SEARCHED_SPANS.map(|span| self.flow.number(span));
        let is_fragment = self.prepare_search(in_port);
        let found = self.search_prepared(is_fragment);
        SEARCHED_SPANS.into_iter().zip(kept).for_each(|(span, value)| self.flow.set_number(span, value));
        debug_assert!(before.is_none_or(|before| before == *self.flow), "a search leaves the key as it was");
        found
    }

    fn search_prepared(&mut self, is_fragment: bool) -> SearchResult<'a> {
        let Some(table) = self.bridge.tables.get(usize::from(self.table)) else { return SearchResult::Nothing };
        if is_fragment && self.bridge.fragments == FragmentMode::Drop {
            self.note_search(&table.counts, true);
            return SearchResult::Fragment;
        }
        // The bits so far were looked at by the action that leads here.
        self.attribute_to_actor();
        let version = self.state.tables_version;
        let rules = table.rules.as_deref();
        let found = rules.and_then(|rules| rules.lookup(self.flow, version, Some(&mut *self.wc))).map(|r| r.payload());
        self.note_search(&table.counts, found.is_some());
        let (bridge, number) = (self.bridge, self.table);
        self.attribute(|_| format!("search of table {number}, bridge \"{}\"", bridge.name()));
        match found {
            Some(rule) => {
                self.xcache.push(XcEntry::Rule { rule: Arc::clone(rule), times: 1 });
                SearchResult::Rule(rule)
            }
            None => SearchResult::Nothing,
        }
    }

    /// Makes the key that of a search for a packet from `in_port`; whether the packet is a fragment. Changes no field but
    /// [`SEARCHED_SPANS`].
    fn prepare_search(&mut self, in_port: OfPort) -> bool {
        // The mask of every IP packet has the fragment bits.
        let is_fragment = self.number(layout::NW_FRAG) & 1 != 0;
        if is_fragment && self.bridge.fragments == FragmentMode::Normal {
            [layout::TP_SRC, layout::TP_DST].into_iter().for_each(|span| self.flow.set_number(span, 0));
        }
        self.flow.set_number(layout::IN_PORT, in_port.0.into());
        is_fragment
    }

    /// Notes a search with the key as it is.
    fn note_search(&mut self, counts: &Arc<TableCounts>, matched: bool) {
        let key = SearchKey::new(self.original, self.flow);
        let (bridge, table, counts) = (self.bridge.id, self.table, Arc::clone(counts));
        self.xcache.push(XcEntry::Table { bridge, table, matched, counts, key, times: 1 });
    }

    fn open_table(&mut self, table: u8, in_port: OfPort, found: &SearchResult<'_>) -> usize {
        if self.tracer.is_none() {
            return 0;
        }
        let names = match &self.tracer {
            Some(tracer) if tracer.names => port_names(self.bridge),
            _ => PortNames::NONE,
        };
        let text = match found {
            SearchResult::Miss | SearchResult::Nothing => "No match.".to_owned(),
            SearchResult::Fragment => "Packets are IP fragments and the fragment handling mode is \"drop\".".to_owned(),
            SearchResult::Rule(rule) => self.rule_text(rule, &names),
        };
        let section = self.open(TraceKind::Table, || format!("{table:2}. {text}"));
        if let SearchResult::Rule(rule) = found {
            let flow = self.flow.clone();
            self.prepare_search(in_port);
            let clauses = self.clauses(rule, self.flow);
            *self.flow = flow;
            for clause in clauses {
                self.say(TraceKind::Detail, || format!("conj. {}", clause.display(&names)));
            }
        }
        section
    }

    /// The match of a rule.
    pub(super) fn match_of(&self, rule: &Rule) -> Option<Match> {
        let rules = self.bridge.tables[usize::from(rule.table)].rules.as_deref()?;
        Some(rules.match_of(rules.rule(*rule.id.get()?)?))
    }

    fn rule_text(&self, rule: &Rule, names: &PortNames) -> String {
        let shown = |matches: Match| matches.display(names, DEFAULT_PRIORITY).to_string();
        let mut text = self.match_of(rule).map(shown).unwrap_or_default();
        if !text.is_empty() {
            text.push_str(", ");
        }
        text += &format!("priority {}", rule.priority);
        if rule.cookie != 0 {
            text += &format!(", cookie {:#x}", rule.cookie);
        }
        text
    }
}
