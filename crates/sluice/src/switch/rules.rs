//! Rules, as commands and files change and show them.

use super::Switch;
use crate::privileges::cannot_read;
use anyhow::{Result, anyhow};
use sluice_flow::PortNames;
use sluice_ofp::text::{FlowLine, FlowLineStats};
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{Error, Ofproto, RuleEntry};
use std::path::{Path, PathBuf};

/// Reads a file of rules, groups or meters.
///
/// # Errors
/// If it cannot be read: with the file, and what to do about it.
pub fn read_file(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| anyhow!("{}: {}", path.display(), cannot_read(&e)))
}

/// A file of rules.
#[derive(Debug)]
pub struct FlowFile {
    path: PathBuf,
    /// What it says.
    pub text: String,
    flows: Vec<FlowMod>,
}

impl FlowFile {
    /// Reads a file of rules, whose ports may be named.
    ///
    /// # Errors
    /// If it cannot be read, or a line is wrong: with file, line and column.
    pub fn read(path: &Path, names: &PortNames) -> Result<Self> {
        let text = read_file(path)?;
        let flows = FlowMod::parse_file(&text, names).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        Ok(FlowFile { path: path.into(), text, flows })
    }

    /// Adds its rules to those of a bridge, all or none.
    ///
    /// # Errors
    /// If one is refused: with file and line.
    pub fn add(&self, ofproto: &Ofproto, bridge: &str, now_ms: u64) -> Result<()> {
        ofproto.bundle(bridge, &self.flows, now_ms).map_err(|error| self.refused(&error))?;
        Ok(())
    }

    /// Makes a bridge's rules those of the file, all or none; those that are the same stay as they are.
    ///
    /// # Errors
    /// If one is refused: with file and line.
    pub fn replace(&self, ofproto: &Ofproto, bridge: &str, now_ms: u64) -> Result<()> {
        ofproto.replace_flows(bridge, &self.flows, now_ms).map_err(|error| self.refused(&error))?;
        Ok(())
    }

    /// Why the tables refused rules of the file: with the line of the one to blame.
    fn refused(&self, error: &Error) -> anyhow::Error {
        let path = self.path.display();
        let Error::InBundle { index, error } = error else { return anyhow!("{path}: {error}") };
        // The lines that flow files are read by: comments and blank ones do not count.
        let says_something = |line: &str| !line.split('#').next().unwrap_or("").trim().is_empty();
        let lines = self.text.split('\n').enumerate().filter(|(_, line)| says_something(line));
        let line = lines.map(|(i, _)| i + 1).nth(index.saturating_sub(1)).unwrap_or(*index);
        anyhow!("{path}: line {line}: {error}")
    }
}

/// A bridge's rules, one a line, with their counters as of `now_ms`; `show` writes a line.
pub fn dump(ofproto: &Ofproto, bridge: &str, now_ms: u64, show: impl Fn(&FlowLine<'_>) -> String) -> Result<String> {
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

impl Switch {
    /// Adds, changes or deletes rules by one line of flow text.
    ///
    /// # Errors
    /// If the text is wrong or the change is refused.
    pub fn change_flows(&self, bridge: &str, command: FlowCommand, text: &str) -> Result<()> {
        let names = self.port_names(bridge);
        let flow_mod = FlowMod::parse(text, command, &names)?;
        self.ofproto.flow_mod(bridge, &flow_mod, self.now_ms())?;
        self.revalidator.hurry();
        Ok(())
    }

    /// Makes a bridge's rules those of a file.
    ///
    /// # Errors
    /// If the file cannot be read or a line is wrong; nothing has changed then.
    pub fn replace_flows(&self, bridge: &str, file: &Path) -> Result<()> {
        let rules = FlowFile::read(file, &self.port_names(bridge))?;
        rules.replace(&self.ofproto, bridge, self.now_ms())?;
        self.revalidator.hurry();
        Ok(())
    }

    /// `bridge/dump-flows`, with what the megaflows carried until now.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn dump_flows(&self, bridge: &str) -> Result<String> {
        self.revalidator.wait();
        dump(&self.ofproto, bridge, self.now_ms(), |line| line.display_in_bridge().to_string())
    }
}
