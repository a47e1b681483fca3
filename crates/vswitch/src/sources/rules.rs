//! Rules from text.

use crate::desired::Source;
use sluice_flow::{Match, PortNames};
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{Ofproto, RuleEntry};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What makes a rule another one: a table has one of each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RuleKey {
    table: u8,
    priority: u16,
    matches: Match,
}

impl RuleKey {
    fn of(rule: &FlowMod) -> Self {
        RuleKey { table: rule.table.unwrap_or(0), priority: rule.priority, matches: rule.matches.clone() }
    }

    /// That of a rule in a table; `None` for one that is hidden from OpenFlow.
    fn of_entry(entry: &RuleEntry) -> Option<Self> {
        let priority = u16::try_from(entry.rule.priority).ok()?;
        Some(RuleKey { table: entry.rule.table, priority, matches: entry.matches.clone() })
    }

    /// The deletion of that rule.
    fn delete(&self) -> FlowMod {
        FlowMod {
            table: Some(self.table),
            priority: self.priority,
            matches: self.matches.clone(),
            ..FlowMod::new(FlowCommand::DeleteStrict)
        }
    }
}

/// A hash of all that a rule says.
fn fingerprint(rule: &FlowMod) -> u64 {
    let mut hasher = DefaultHasher::new();
    let FlowMod { new_cookie, idle_timeout, hard_timeout, importance, flags, actions, .. } = rule;
    format!("{new_cookie:?} {idle_timeout} {hard_timeout} {importance} {flags:?} {actions:?}").hash(&mut hasher);
    hasher.finish()
}

/// The rules of a source.
#[derive(Debug)]
pub(crate) struct Rules {
    pub source: Source,
    rules: Vec<FlowMod>,
}

impl Rules {
    /// Reads rules, whose ports may be named.
    pub fn parse(source: &Source, ports: &PortNames) -> Result<Self, crate::Error> {
        let rules = FlowMod::parse_file(&source.text, ports).map_err(|error| source.error(error))?;
        Ok(Rules { source: source.clone(), rules })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Adds the rules to those of a bridge, all or none.
    pub fn add(&self, ofproto: &Ofproto, bridge: &str, now_ms: u64) -> Result<(), crate::Error> {
        ofproto.bundle(bridge, &self.rules, now_ms).map_err(|error| self.refused(&error))?;
        Ok(())
    }

    /// What it lists: each rule by what makes it another one, with a hash of the rest.
    pub fn listed(&self) -> HashMap<RuleKey, u64> {
        self.rules.iter().map(|rule| (RuleKey::of(rule), fingerprint(rule))).collect()
    }

    /// How many rules of a bridge neither these list nor those that were loaded last.
    pub fn strangers(
        &self,
        ofproto: &Ofproto,
        bridge: &str,
        last: &HashMap<RuleKey, u64>,
    ) -> Result<usize, crate::Error> {
        let listed = self.listed();
        let rules = ofproto.rules(bridge, &FlowMod::new(FlowCommand::Delete))?;
        let keys = rules.iter().filter_map(RuleKey::of_entry);
        Ok(keys.filter(|key| !listed.contains_key(key) && !last.contains_key(key)).count())
    }

    /// Makes a bridge have these rules in the place of those that were loaded last; others stay. All or none.
    pub fn merge(
        &self,
        ofproto: &Ofproto,
        bridge: &str,
        last: &HashMap<RuleKey, u64>,
        now_ms: u64,
    ) -> Result<(), crate::Error> {
        let listed = self.listed();
        let gone = last.keys().filter(|key| !listed.contains_key(key)).map(RuleKey::delete);
        let gone: Vec<FlowMod> = gone.collect();
        let is_new = |rule: &&FlowMod| last.get(&RuleKey::of(rule)) != Some(&fingerprint(rule));
        let changes: Vec<FlowMod> = gone.iter().chain(self.rules.iter().filter(is_new)).cloned().collect();
        let number = |index: usize| {
            let nth = self.rules.iter().enumerate().filter(|(_, rule)| is_new(rule)).nth(index - gone.len() - 1);
            nth.map_or(index, |(i, _)| i + 1)
        };
        let refused = |error| match error {
            sluice_ofproto::Error::InBundle { index, error } if index > gone.len() => {
                self.refused(&sluice_ofproto::Error::InBundle { index: number(index), error })
            }
            other => self.refused(&other),
        };
        ofproto.bundle(bridge, &changes, now_ms).map_err(refused)?;
        Ok(())
    }

    /// Makes a bridge's rules these, all or none; those that are the same stay as they are.
    pub fn replace(&self, ofproto: &Ofproto, bridge: &str, now_ms: u64) -> Result<(), crate::Error> {
        ofproto.replace_flows(bridge, &self.rules, now_ms).map_err(|error| self.refused(&error))?;
        Ok(())
    }

    /// Why the tables refused the rules: with the line of the one to blame.
    fn refused(&self, error: &sluice_ofproto::Error) -> crate::Error {
        let sluice_ofproto::Error::InBundle { index, error } = error else { return self.source.error(error) };
        // As the text was read: comments and blank lines do not count.
        let says_something = |line: &str| !line.split('#').next().unwrap_or("").trim().is_empty();
        let lines = self.source.text.split('\n').enumerate().filter(|(_, line)| says_something(line));
        let line = lines.map(|(i, _)| i + 1).nth(index.saturating_sub(1)).unwrap_or(*index);
        self.source.error(format!("line {line}: {error}"))
    }
}
