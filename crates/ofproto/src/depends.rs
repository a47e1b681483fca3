//! Which megaflows a change affects: those whose translation used what has changed.
//!
//! A translation's xlate cache names each search with its key, each MAC entry, port, group and meter that it looked up,
//! found or not, and each table whose limit on learned rules it checked. A changed port affects the megaflows that came
//! in by it, that went or would have gone out of it, and all floods. A rule that is added, removed or modified affects
//! the megaflows that searched its table with a key that it may match: the key of any packet that the megaflow matches,
//! not only of the packet that made it.
//!
//! **What is known of those keys.** Their bits under the megaflow's mask equal those of its packet. Bits that actions
//! wrote before the search are also equal for all its packets, because everything the actions read is in the mask. If a
//! rule wants another value in a known bit, it cannot match; otherwise it may. See `changed_rules` for many rules,
//! and `dependency_index` for the megaflows that are asked at all.

use crate::bridge::Bridge;
use crate::bridge_config::BridgeId;
use crate::changed_rules::TableChanges;
use crate::groups::Groups;
use crate::port::{Attach, PortConfig};
use crate::xlate_cache::{Dependency, XcEntry, XlateCache};
use sluice_flow::{Mac, Match, PacketKey};
use std::collections::HashSet;

/// What has changed.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub everything: bool,
    /// Bridges of which anything may have changed, such as a setting.
    pub bridges: Vec<BridgeId>,
    pub tables: Vec<TableChanges>,
    pub mac_entries: HashSet<(BridgeId, u16, Mac)>,
    /// Ports, groups and meters that were added, removed or modified.
    pub dependencies: Vec<(BridgeId, Dependency)>,
}

impl Changes {
    /// Anything may have changed.
    pub fn everything() -> Self {
        Changes { everything: true, ..Changes::default() }
    }

    /// Something of a bridge has changed that xlate caches do not record.
    pub fn of_bridge(bridge: BridgeId) -> Self {
        Changes { bridges: vec![bridge], ..Changes::default() }
    }

    /// A port, group or meter was added, removed or modified.
    pub fn of(bridge: BridgeId, what: Dependency) -> Self {
        Changes { dependencies: vec![(bridge, what)], ..Changes::default() }
    }

    /// A port was added, removed or modified. This affects the megaflows that looked it up, or a MAC entry that was
    /// removed with it. A patch port affects all megaflows, and so
    /// does a tunnel: packets may belong to it now that belonged to another one.
    pub fn of_port(bridge: &Bridge, port: &PortConfig) -> Self {
        if let Attach::Patch(_) | Attach::Tunnel(_) = port.attach {
            return Changes::everything();
        }
        let mut changes = Changes::of(bridge.id, Dependency::Port(port.number));
        let mut macs = bridge.macs.write();
        changes.add_mac_entries(bridge.id, macs.take_changed());
        changes
    }

    /// Adds the groups that differ.
    pub fn add_groups(&mut self, bridge: BridgeId, old: &Groups, new: &Groups) {
        self.dependencies.extend(old.differences(new).into_iter().map(|id| (bridge, Dependency::Group(id))));
    }

    /// A rule with that match was added, removed or modified. `matches` is called only if its result is needed.
    pub fn add_rule(&mut self, bridge: BridgeId, table: u8, matches: impl FnOnce() -> Option<Match>) {
        let is_it = |changes: &TableChanges| (changes.bridge, changes.table) == (bridge, table);
        let at = self.tables.iter().position(is_it).unwrap_or_else(|| {
            self.tables.push(TableChanges::new(bridge, table));
            self.tables.len() - 1
        });
        self.tables[at].add(matches);
    }

    /// Makes room for `n` more changes of rules.
    pub fn reserve(&mut self, n: usize) {
        self.tables.iter_mut().for_each(|table| table.reserve(n));
    }

    /// MAC entries that were added, removed or moved.
    pub fn add_mac_entries(&mut self, bridge: BridgeId, entries: impl IntoIterator<Item = (u16, Mac)>) {
        self.mac_entries.extend(entries.into_iter().map(|(vlan, mac)| (bridge, vlan, mac)));
    }

    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        let Changes { everything, bridges, tables, mac_entries, dependencies } = self;
        !everything && bridges.is_empty() && tables.is_empty() && mac_entries.is_empty() && dependencies.is_empty()
    }

    /// Whether they may affect the megaflow with that mask and xlate cache.
    pub fn affect(&self, mask: &PacketKey, record: &XlateCache) -> bool {
        self.everything
            || record.lock().entries().iter().any(|event| match event {
                XcEntry::Table { bridge, table, key, .. } => {
                    self.bridges.contains(bridge)
                        || self.dependencies.contains(&(*bridge, Dependency::Port(key.in_port)))
                        || self.tables.iter().any(|changes| {
                            (changes.bridge, changes.table) == (*bridge, *table) && changes.affect(record, mask, key)
                        })
                }
                XcEntry::MacLookup { bridge, vlan, mac } => {
                    self.bridges.contains(bridge) || self.mac_entries.contains(&(*bridge, *vlan, *mac))
                }
                &XcEntry::Depends { bridge, on: Dependency::TableCapacity(table) } => {
                    let is_it = |changes: &TableChanges| (changes.bridge, changes.table) == (bridge, table);
                    self.bridges.contains(&bridge) || self.tables.iter().any(is_it)
                }
                &XcEntry::Depends { bridge, on } => self.bridges.contains(&bridge) || self.has_changed(bridge, on),
                // A translation after recirculation may search nothing, but it looks up its input port.
                XcEntry::Recirculation(recirculation) => {
                    let bridge = recirculation.frozen.bridge;
                    self.bridges.contains(&bridge) || self.has_changed(bridge, Dependency::AllPorts)
                }
                _ => false,
            })
    }
}

impl Changes {
    fn has_changed(&self, bridge: BridgeId, what: Dependency) -> bool {
        self.dependencies.iter().any(|(of, changed)| {
            *of == bridge
                && (*changed == what || what == Dependency::AllPorts && matches!(changed, Dependency::Port(_)))
        })
    }
}
