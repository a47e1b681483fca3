//! Random OpenFlow tables. No two overlapping rules of one table share a priority: their winner is undefined.

use crate::actions::{self, Place, Version};
use crate::matches::Match;
use crate::rng::Rng;
use crate::values::{PORTS, Values};
use std::collections::BTreeMap;

/// The table that rules learn into.
pub const LEARNED: u8 = 90;

/// What the rules of a case do besides deciding about packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Nothing that outlives a packet.
    Stateless,
    /// Rules that learn rules, stations and ends of connections from packets.
    Learning,
    /// Connection tracking. A trace of a packet would commit its connection.
    Tracking,
}

impl Theme {
    pub fn learns(self) -> bool {
        self == Theme::Learning
    }

    /// Whether each packet is traced before it comes.
    pub fn traces(self) -> bool {
        self != Theme::Tracking
    }
}

/// How a port treats VLANs when `NORMAL` switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortVlans {
    All,
    Access(u16),
    Trunk(Vec<u16>),
}

struct Rule {
    table: u8,
    priority: u16,
    matched: Match,
}

/// Several tables.
#[derive(Clone, Debug)]
pub struct Tables {
    /// What to load them with.
    pub version: Version,
    /// Their rules, a line each.
    pub lines: Vec<String>,
    pub theme: Theme,
    /// From port 1 on.
    pub vlans: Vec<PortVlans>,
}

/// Makes the rules of one to four tables, and what they need besides.
pub fn random(rng: &mut Rng, values: &Values) -> Tables {
    let version = *rng.pick(&[Version::Of10, Version::Of13, Version::Of15]);
    let theme = if rng.chance(30) { Theme::Learning } else { Theme::Stateless };
    let mut tables = vec![0];
    for _ in 0..rng.below(4) {
        tables.push(tables[tables.len() - 1] + 1 + rng.below(20) as u8);
    }
    let mut rules: Vec<Rule> = Vec::new();
    let mut lines = Vec::new();
    for &table in &tables {
        let n = 2 + rng.below(if table == 0 { 24 } else { 12 });
        for _ in 0..n {
            let matched = Match::random(rng, values, version);
            let priority = free_priority(rng, &rules, table, &matched);
            let place = Place { version, theme, table, tables: &tables, rule: lines.len() };
            let actions = actions::random(rng, values, &matched, &place);
            lines.push(line(table, priority, &matched.text(), &actions));
            rules.push(Rule { table, priority, matched });
        }
        if rng.chance(12) {
            conjunction(rng, values, version, table, &mut lines);
        }
        if rng.chance(60) {
            // A rule for the rest, below all others.
            let later: Vec<_> = tables.iter().filter(|t| **t > table).collect();
            let actions = match rng.below(3) {
                0 if !later.is_empty() => format!("goto_table:{}", rng.pick(&later)),
                1 if theme.learns() => "normal".into(),
                1 => "flood".into(),
                _ => format!("output:{}", 1 + rng.below(PORTS.into())),
            };
            lines.push(line(table, 0, "", &actions));
        }
    }
    Tables { version, lines, theme, vlans: (0..PORTS).map(|_| port_vlans(rng, values, theme)).collect() }
}

fn port_vlans(rng: &mut Rng, values: &Values, theme: Theme) -> PortVlans {
    match rng.below(4) {
        _ if !theme.learns() => PortVlans::All,
        0 => PortVlans::Access(values.vid(rng).clamp(1, 4094)),
        1 => {
            let mut vlans = vec![values.vid(rng).clamp(1, 4094), values.vid(rng).clamp(1, 4094)];
            vlans.dedup();
            PortVlans::Trunk(vlans)
        }
        _ => PortVlans::All,
    }
}

/// A conjunction of two or three clauses, each of some rules of a priority that no other rule has, and what follows
/// from it.
fn conjunction(rng: &mut Rng, values: &Values, version: Version, table: u8, lines: &mut Vec<String>) {
    let (id, priority) = (1 + rng.below(100), 200 + rng.below(20) as u16);
    let clauses = 2 + rng.below(2);
    // As a set: two rules of one match would be one.
    let mut matches = BTreeMap::new();
    for clause in 1..=clauses {
        for _ in 0..1 + rng.below(4) {
            let matched = Match::random(rng, values, version).text();
            if !matched.is_empty() {
                matches.entry(matched).or_insert(clause);
            }
        }
    }
    for (matched, clause) in matches {
        lines.push(line(table, priority, &matched, &format!("conjunction({id},{clause}/{clauses})")));
    }
    let port = 1 + rng.below(PORTS.into());
    lines.push(line(table, priority, &format!("conj_id={id}"), &format!("output:{port}")));
}

fn line(table: u8, priority: u16, matched: &str, actions: &str) -> String {
    let comma = if matched.is_empty() { "" } else { "," };
    format!("table={table},priority={priority}{comma}{matched} actions={actions}")
}

/// One of few priorities, raised until no overlapping rule has it.
fn free_priority(rng: &mut Rng, rules: &[Rule], table: u8, matched: &Match) -> u16 {
    // Mostly the closer look first, so that the rough rules do not hide the fine ones.
    let rank = if rng.chance(70) { matched.len().min(4) } else { 1 + rng.below(4) };
    let mut priority = 10 * (1 + rank as u16);
    while rules.iter().any(|r| r.table == table && r.priority == priority && r.matched.overlaps(matched)) {
        priority += 1;
    }
    priority
}
