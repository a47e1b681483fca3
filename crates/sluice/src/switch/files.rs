//! A bridge's files of meters, groups and rules: read and checked whole before anything changes, applied where they say
//! something else than when they were last applied.

use super::Switch;
use super::groups::GroupFile;
use super::meters::MeterFile;
use super::rules::FlowFile;
use crate::config::{Bridge, Config};
use anyhow::Result;
use sluice_flow::OfPort;
use sluice_ofp::{BUCKET_ALL, GroupCommand, GroupMod, MeterCommand, MeterMod};
use sluice_ofproto::BundleChange;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// What a bridge's files say.
#[derive(Debug)]
pub struct Files {
    meters: Option<MeterFile>,
    groups: Option<GroupFile>,
    flows: Option<FlowFile>,
}

/// What files said when they were last applied.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    meters: Listed,
    groups: Listed,
    flows: Option<String>,
}

/// The text of a file, and the numbers of what it lists. A file that is not there lists nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Listed {
    text: String,
    ids: BTreeSet<u32>,
}

impl Files {
    /// Reads the files of a bridge.
    ///
    /// # Errors
    /// If one cannot be read or something in it is wrong: with file, line and column.
    pub fn read(config: &Config, bridge: &Bridge) -> Result<Self> {
        let ports = bridge.port.iter().map(|port| (port.name.as_str(), OfPort(port.ofport as u16)));
        let names = ports.chain([(bridge.name.as_str(), OfPort::LOCAL)]).collect();
        let resolve = |file: &Option<PathBuf>| file.as_ref().map(|file| config.resolve(file));
        Ok(Files {
            meters: resolve(&bridge.meters).map(|path| MeterFile::read(&path)).transpose()?,
            groups: resolve(&bridge.groups).map(|path| GroupFile::read(&path, &names)).transpose()?,
            flows: resolve(&bridge.flows).map(|path| FlowFile::read(&path, &names)).transpose()?,
        })
    }

    fn applied(&self) -> Applied {
        let meters = self.meters.as_ref().map(|file| Listed { text: file.text.clone(), ids: file.ids() });
        let groups = self.groups.as_ref().map(|file| Listed { text: file.text.clone(), ids: file.ids() });
        Applied {
            meters: meters.unwrap_or_default(),
            groups: groups.unwrap_or_default(),
            flows: self.flows.as_ref().map(|file| file.text.clone()),
        }
    }
}

impl Switch {
    /// Makes a bridge's meters, groups and rules what the files say now, each kind if its file says something else than
    /// when it was last applied; which kinds those were. What commands have added stays, save that rules are replaced as
    /// a whole. A meter or group that is no longer listed is deleted with the rules that use it.
    ///
    /// # Errors
    /// If the tables refuse something: with the file and the place in it.
    pub(super) fn apply_files(&self, bridge: &str, files: &Files) -> Result<Vec<&'static str>> {
        let last = self.setup().applied.get(bridge).cloned();
        let is_first = last.is_none();
        let last = last.unwrap_or_default();
        let now = files.applied();
        let mut replaced = Vec::new();
        if now.meters != last.meters {
            files.meters.as_ref().map_or(Ok(()), |file| file.apply(&self.ofproto, bridge, self.now_ms()))?;
            replaced.push("meters");
        }
        if now.groups != last.groups {
            files.groups.as_ref().map_or(Ok(()), |file| file.apply(&self.ofproto, bridge, self.now_ms()))?;
            replaced.push("groups");
        }
        if let Some(flows) = &files.flows
            && now.flows != last.flows
        {
            match is_first {
                true => flows.add(&self.ofproto, bridge, self.now_ms())?,
                false => flows.replace(&self.ofproto, bridge, self.now_ms())?,
            }
            replaced.push("rules");
        }
        self.delete_groups(bridge, last.groups.ids.difference(&now.groups.ids))?;
        self.delete_meters(bridge, last.meters.ids.difference(&now.meters.ids))?;
        // A file of rules that is no longer named leaves its rules where they are.
        let flows = now.flows.clone().or(last.flows);
        self.setup().applied.insert(bridge.to_owned(), Applied { flows, ..now });
        if !replaced.is_empty() {
            self.revalidator.hurry();
        }
        Ok(replaced)
    }

    fn delete_groups<'a>(&self, bridge: &str, ids: impl Iterator<Item = &'a u32>) -> Result<()> {
        let delete = |id: &u32| GroupMod {
            command: GroupCommand::Delete,
            group: *id,
            command_bucket: BUCKET_ALL,
            config: Default::default(),
        };
        let gone = ids.map(|id| BundleChange::Group(delete(id)));
        self.ofproto.ordered_bundle(bridge, gone, None, self.now_ms()).map_err(|(_, error)| error)?;
        Ok(())
    }

    fn delete_meters<'a>(&self, bridge: &str, ids: impl Iterator<Item = &'a u32>) -> Result<()> {
        for id in ids {
            let gone = MeterMod { command: MeterCommand::Delete, meter: *id, config: Default::default() };
            self.ofproto.meter_mod(bridge, &gone, self.now_ms())?;
        }
        Ok(())
    }
}
