//! What the tables of a bridge hold, from text: meters, groups and rules. Text is read whole before anything changes,
//! and loaded where it is another than what was loaded last.

mod groups;
mod meters;
mod rules;

use crate::desired::{Source, Sources};
use crate::error::Error;
use groups::Groups;
use meters::Meters;
use rules::{RuleKey, Rules};
use sluice_flow::PortNames;
use sluice_ofp::{BUCKET_ALL, GroupCommand, GroupMod, MeterCommand, MeterMod};
use sluice_ofproto::{BundleChange, Ofproto};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// What tables hold: a kind of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// Meters.
    Meters,
    /// Groups.
    Groups,
    /// Rules.
    Rules {
        /// How many went that no source had listed: commands, controllers or packets had added them.
        removed: usize,
    },
}

/// What the text of a bridge's sources says.
#[derive(Debug)]
pub struct ParsedSources {
    meters: Option<Meters>,
    groups: Option<Groups>,
    rules: Option<Rules>,
    keeps_rules: bool,
}

/// What was loaded last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loaded {
    meters: Listed,
    groups: Listed,
    rules: Option<Arc<str>>,
    /// Those that it lists.
    listed: Arc<HashMap<RuleKey, u64>>,
}

/// A text, and the numbers of what it lists. A source that is not there lists nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Listed {
    text: Arc<str>,
    ids: BTreeSet<u32>,
}

impl ParsedSources {
    /// Reads the text.
    ///
    /// # Errors
    /// If something is written wrongly: with its place.
    pub(crate) fn parse(sources: &Sources, ports: &PortNames) -> Result<Self, Error> {
        Ok(ParsedSources {
            meters: sources.meters.as_ref().map(Meters::parse).transpose()?,
            groups: sources.groups.as_ref().map(|source| Groups::parse(source, ports)).transpose()?,
            rules: sources.rules.as_ref().map(|source| Rules::parse(source, ports)).transpose()?,
            keeps_rules: sources.keeps_rules,
        })
    }

    fn loaded(&self) -> Loaded {
        let listed = |text: &Arc<str>, ids| Listed { text: Arc::clone(text), ids };
        Loaded {
            meters: self.meters.as_ref().map_or_else(Listed::default, |m| listed(&m.source.text, m.ids())),
            groups: self.groups.as_ref().map_or_else(Listed::default, |g| listed(&g.source.text, g.ids())),
            rules: self.rules.as_ref().map(|rules| Arc::clone(&rules.source.text)),
            listed: Arc::default(),
        }
    }

    /// Loads what is another text than in `last`, and deletes meters and groups that `last` lists and these sources do
    /// not. Rules are added the first time, and replaced as a whole after that.
    pub(crate) fn load(
        &self,
        ofproto: &Ofproto,
        bridge: &str,
        last: Option<&Loaded>,
        now_ms: u64,
    ) -> Result<(Loaded, Vec<SourceKind>), Error> {
        let is_first = last.is_none();
        let last = last.cloned().unwrap_or_default();
        let mut now = self.loaded();
        let mut kinds = Vec::new();
        if now.meters != last.meters {
            self.meters.as_ref().map_or(Ok(()), |meters| meters.load(ofproto, bridge, now_ms))?;
            let source = self.meters.as_ref().map(|meters| &meters.source);
            log_loaded(bridge, "meters", now.meters.ids.len(), source);
            kinds.push(SourceKind::Meters);
        }
        if now.groups != last.groups {
            self.groups.as_ref().map_or(Ok(()), |groups| groups.load(ofproto, bridge, now_ms))?;
            let source = self.groups.as_ref().map(|groups| &groups.source);
            log_loaded(bridge, "groups", now.groups.ids.len(), source);
            kinds.push(SourceKind::Groups);
        }
        if let Some(rules) = &self.rules
            && now.rules != last.rules
        {
            now.listed = Arc::new(rules.listed());
            let mut removed = 0;
            if is_first {
                rules.add(ofproto, bridge, now_ms)?;
            } else if self.keeps_rules {
                rules.merge(ofproto, bridge, &last.listed, now_ms)?;
            } else {
                removed = rules.strangers(ofproto, bridge, &last.listed)?;
                rules.replace(ofproto, bridge, now_ms)?;
            }
            log_loaded(bridge, "rules", rules.len(), Some(&rules.source));
            kinds.push(SourceKind::Rules { removed });
        } else {
            now.listed = Arc::clone(&last.listed);
        }
        let gone = last.groups.ids.difference(&now.groups.ids).map(|id| BundleChange::Group(delete_group(*id)));
        ofproto.ordered_bundle(bridge, gone, None, now_ms).map_err(|(_, error)| error)?;
        for id in last.meters.ids.difference(&now.meters.ids) {
            let gone = MeterMod { command: MeterCommand::Delete, meter: *id, config: Default::default() };
            ofproto.meter_mod(bridge, &gone, now_ms)?;
        }
        // Rules that no source names any longer stay where they are.
        let rules = now.rules.clone().or(last.rules);
        Ok((Loaded { rules, ..now }, kinds))
    }
}

/// Makes a bridge's rules those of a text, all or none; its ports may be named.
pub(crate) fn replace_rules(ofproto: &Ofproto, bridge: &str, source: &Source, now_ms: u64) -> Result<(), Error> {
    let ports = ofproto.ports(bridge)?;
    let names = ports.iter().map(|port| (port.name.as_str(), port.number)).collect();
    let rules = Rules::parse(source, &names)?;
    rules.replace(ofproto, bridge, now_ms)?;
    log_loaded(bridge, "rules", rules.len(), Some(source));
    Ok(())
}

/// Says what was loaded, and from where.
fn log_loaded(bridge: &str, what: &str, count: usize, source: Option<&Source>) {
    match source {
        Some(Source { origin, .. }) => tracing::info!("bridge {bridge}: {what} loaded from {origin}: {count}"),
        None => tracing::info!("bridge {bridge}: no file lists {what} any more; those of the last one are gone"),
    }
}

fn delete_group(group: u32) -> GroupMod {
    GroupMod { command: GroupCommand::Delete, group, command_bucket: BUCKET_ALL, config: Default::default() }
}
