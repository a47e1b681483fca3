//! Groups, as commands and files change and show them.

use super::Switch;
use super::rules::read_flow_file;
use anyhow::{Result, anyhow};
use sluice_flow::{GroupCommand, GroupMod, PortNames};
use sluice_ofproto::{Change, GroupEntry, Ofproto};
use std::fmt::Write as _;
use std::path::Path;

/// Adds the groups of a file to a bridge, all or none.
///
/// # Errors
/// If the file cannot be read, a line is wrong, or a group is refused: with the file, and the line or the group.
pub fn load(ofproto: &Ofproto, bridge: &str, file: &Path, ports: &PortNames, now_ms: u64) -> Result<()> {
    let text = read_flow_file(file)?;
    let groups = GroupMod::parse_file(&text, ports).map_err(|e| anyhow!("{}: {e}", file.display()))?;
    let changes: Vec<_> = groups.into_iter().map(Change::Group).collect();
    let loaded = ofproto.ordered_bundle(bridge, &changes, now_ms);
    loaded.map_err(|(i, e)| anyhow!("{}: group {} of the file: {e}", file.display(), i + 1))?;
    Ok(())
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
