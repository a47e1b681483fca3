//! Groups from text.

use crate::desired::Source;
use crate::error::Error;
use sluice_flow::PortNames;
use sluice_ofp::{GroupCommand, GroupMod};
use sluice_ofproto::{BundleChange, Ofproto};
use std::collections::BTreeSet;

/// The groups of a source.
#[derive(Debug)]
pub(crate) struct Groups {
    pub source: Source,
    groups: Vec<GroupMod>,
}

impl Groups {
    /// Reads groups, whose ports may be named.
    pub fn parse(source: &Source, ports: &PortNames) -> Result<Self, Error> {
        let groups = GroupMod::parse_file(&source.text, ports).map_err(|error| source.error(error))?;
        Ok(Groups { source: source.clone(), groups })
    }

    /// The numbers of the groups that are there once they have been loaded.
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

    /// Makes the changes, all or none. A group that is there already is changed.
    pub fn load(&self, ofproto: &Ofproto, bridge: &str, now_ms: u64) -> Result<(), Error> {
        let there: BTreeSet<u32> = ofproto.groups(bridge)?.iter().map(|group| group.id).collect();
        let changes = self.groups.iter().map(|change| match change.command {
            GroupCommand::Add if there.contains(&change.group) => {
                GroupMod { command: GroupCommand::Modify, ..change.clone() }
            }
            _ => change.clone(),
        });
        let loaded = ofproto.ordered_bundle(bridge, changes.map(BundleChange::Group), None, now_ms);
        loaded.map_err(|(i, error)| self.source.error(format!("group {} of the file: {error}", i + 1)))?;
        Ok(())
    }
}
