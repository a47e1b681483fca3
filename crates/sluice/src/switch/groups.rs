//! Groups, as commands and files change and show them.

use super::Switch;
use super::rules::read_file;
use anyhow::{Result, anyhow};
use sluice_flow::PortNames;
use sluice_ofp::{GroupCommand, GroupMod};
use sluice_ofproto::{BundleChange, GroupEntry, Ofproto};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// A file of groups.
#[derive(Debug)]
pub struct GroupFile {
    path: PathBuf,
    /// What it says.
    pub text: String,
    groups: Vec<GroupMod>,
}

impl GroupFile {
    /// Reads a file of groups, whose ports may be named.
    ///
    /// # Errors
    /// If it cannot be read, or a line is wrong: with file, line and column.
    pub fn read(path: &Path, ports: &PortNames) -> Result<Self> {
        let text = read_file(path)?;
        let groups = GroupMod::parse_file(&text, ports).map_err(|e| anyhow!("{}: {e}", path.display()))?;
        Ok(GroupFile { path: path.into(), text, groups })
    }

    /// The numbers of the groups that are there once it has been applied.
    pub fn ids(&self) -> BTreeSet<u32> {
        let mut ids = BTreeSet::new();
        for change in &self.groups {
            match change.command {
                GroupCommand::Delete => ids.remove(&change.group),
                _ => ids.insert(change.group),
            };
        }
        ids
    }

    /// Makes its changes, all or none. A group that is there already is changed.
    ///
    /// # Errors
    /// If one is refused: with the file and its place among the groups.
    pub fn apply(&self, ofproto: &Ofproto, bridge: &str, now_ms: u64) -> Result<()> {
        let there: BTreeSet<u32> = ofproto.groups(bridge)?.iter().map(|group| group.id).collect();
        let over = |change: &GroupMod| change.command == GroupCommand::Add && there.contains(&change.group);
        let changes = self.groups.iter().map(|change| match over(change) {
            true => BundleChange::Group(GroupMod { command: GroupCommand::Modify, ..change.clone() }),
            false => BundleChange::Group(change.clone()),
        });
        let applied = ofproto.ordered_bundle(bridge, changes, None, now_ms);
        applied.map_err(|(i, e)| anyhow!("{}: group {} of the file: {e}", self.path.display(), i + 1))?;
        Ok(())
    }
}

impl Switch {
    /// Makes one change of the groups.
    ///
    /// # Errors
    /// If the text is wrong or the change is refused.
    pub fn change_group(&self, bridge: &str, command: GroupCommand, text: &str) -> Result<()> {
        let group_mod = GroupMod::parse(text, command, &self.port_names(bridge))?;
        self.ofproto.group_mod(bridge, &group_mod, self.now_ms())?;
        self.revalidator.hurry();
        Ok(())
    }

    /// `bridge/dump-groups`: a line a group.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn dump_groups(&self, bridge: &str) -> Result<String> {
        let names = self.port_names(bridge);
        let line = |group: GroupEntry| format!(" {}\n", group.config.display(group.id, &names));
        Ok(self.ofproto.groups(bridge)?.into_iter().map(line).collect())
    }

    /// `bridge/dump-group-stats`: a line a group, with what the megaflows carried until now.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn dump_group_stats(&self, bridge: &str) -> Result<String> {
        self.revalidator.wait();
        let now_ms = self.now_ms();
        Ok(self.ofproto.groups(bridge)?.iter().map(|group| stats_line(group, now_ms)).collect())
    }
}

/// As `ovs-ofctl dump-group-stats` prints it.
fn stats_line(group: &GroupEntry, now_ms: u64) -> String {
    let duration_ms = now_ms.saturating_sub(group.created_ms);
    let mut line = format!(
        " group_id={},duration={}.{:03}s,ref_count={},packet_count={},byte_count={}",
        group.id,
        duration_ms / 1000,
        duration_ms % 1000,
        group.ref_count,
        group.counts.0,
        group.counts.1
    );
    for (i, (packets, bytes)) in group.buckets.iter().enumerate() {
        let _ = write!(line, ",bucket{i}:packet_count={packets},byte_count={bytes}");
    }
    line + "\n"
}
