//! The tables of a bridge as text, for a switch that takes this one's place.

use super::Switch;
use crate::desired::{Source, Sources};
use crate::error::Error;
use sluice_flow::PortNames;
use sluice_ofp::text::FlowLine;
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::RuleEntry;
use std::fmt::Write as _;

impl Switch {
    /// What the tables of a bridge hold, in `ovs-ofctl`'s syntax and with numbers for ports; rules of the switch's own
    /// are left out. Counters and ages are not in it.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn tables(&self, bridge: &str) -> Result<Sources, Error> {
        let mut meters = String::new();
        for meter in self.ofproto.meters(bridge)? {
            _ = writeln!(meters, "meter={} {}", meter.id, meter.config.to_string().replace('\n', " "));
        }
        let mut groups = String::new();
        for group in self.ofproto.groups(bridge)? {
            _ = writeln!(groups, "{}", group.config.display(group.id, &PortNames::NONE));
        }
        let mut rules = String::new();
        for entry in self.ofproto.rules(bridge, &FlowMod::new(FlowCommand::Delete))? {
            _ = writeln!(rules, "{}", line(&entry).display(&PortNames::NONE));
        }
        let source = |text| Some(Source::new(format!("tables of {bridge}"), text));
        Ok(Sources { meters: source(meters), groups: source(groups), rules: source(rules), keeps_rules: false })
    }

    /// Makes the tables of a bridge hold what a switch before this one had in them, and nothing else. A later
    /// [`Switch::reconfigure`] still compares with what the tables were loaded with before.
    ///
    /// # Errors
    /// If something is written wrongly, or the tables refuse it: with its place.
    pub fn restore_tables(&self, bridge: &str, tables: &Sources) -> Result<(), Error> {
        self.setup().assembly.restore(bridge, tables, self.now_ms())
    }
}

fn line(entry: &RuleEntry) -> FlowLine<'_> {
    let rule = &entry.rule;
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
        stats: None,
    }
}
