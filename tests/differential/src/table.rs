//! Random OpenFlow tables. No two overlapping rules of one table share a priority: their winner is undefined.

use crate::actions::{self, Place, Version};
use crate::matches::Match;
use crate::rng::Rng;
use crate::values::Values;

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
}

/// Makes the rules of one to four tables.
pub fn random(rng: &mut Rng, values: &Values) -> Tables {
    let version = *rng.pick(&[Version::Of10, Version::Of13]);
    let mut tables = vec![0];
    for _ in 0..rng.below(4) {
        tables.push(tables[tables.len() - 1] + 1 + rng.below(20) as u8);
    }
    let mut rules: Vec<Rule> = Vec::new();
    let mut lines = Vec::new();
    for &table in &tables {
        let n = 2 + rng.below(if table == 0 { 24 } else { 12 });
        let place = Place { version, table, tables: &tables };
        for _ in 0..n {
            let matched = Match::random(rng, values);
            let priority = free_priority(rng, &rules, table, &matched);
            let actions = actions::random(rng, values, &matched, &place);
            lines.push(line(table, priority, &matched.text(), &actions));
            rules.push(Rule { table, priority, matched });
        }
        if rng.chance(60) {
            // A rule for the rest, below all others.
            let later: Vec<_> = tables.iter().filter(|t| **t > table).collect();
            let actions = match rng.below(3) {
                0 if !later.is_empty() => format!("goto_table:{}", rng.pick(&later)),
                1 => "flood".into(),
                _ => format!("output:{}", 1 + rng.below(crate::values::PORTS.into())),
            };
            lines.push(line(table, 0, "", &actions));
        }
    }
    Tables { version, lines }
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
