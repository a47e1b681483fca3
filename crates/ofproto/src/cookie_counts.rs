//! How many rules of a table have each cookie, without those that are hidden from the latest version.
//!
//! A `learn` with a limit asks for it, with each packet that misses: counted then, a table of a million rules would take tens
//! of milliseconds of a PMD. So it is counted as rules come and go. It is no hash table, which would be copied as it grows
//! while the tables are locked.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// What a cookie that only one rule has takes, bytes.
pub(crate) const COOKIE_BYTES: usize = 32;

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct CookieCounts(BTreeMap<u64, u32>);

impl CookieCounts {
    /// A rule has come.
    pub fn add(&mut self, cookie: u64) {
        *self.0.entry(cookie).or_default() += 1;
    }

    /// A rule has gone, or is hidden.
    pub fn remove(&mut self, cookie: u64) {
        if let Entry::Occupied(mut count) = self.0.entry(cookie) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// How many rules have a cookie.
    pub fn of(&self, cookie: u64) -> u32 {
        self.0.get(&cookie).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use crate::rule_users::Used;
    use crate::{BridgeConfig, Ofproto};
    use proptest::prelude::*;
    use sluice_classifier::LATEST;
    use sluice_flow::PortNames;
    use sluice_ofp::{FlowCommand, FlowMod, GroupCommand, GroupMod, MeterCommand, MeterMod};
    use std::collections::{BTreeMap, BTreeSet};

    /// The counts of all tables, and what iterating over the rules gives.
    fn both(ofproto: &Ofproto) -> [BTreeMap<(usize, u64), u32>; 2] {
        let state = ofproto.state();
        let [mut kept, mut counted] = [BTreeMap::new(), BTreeMap::new()];
        for (number, table) in state.bridges[0].tables.iter().enumerate() {
            kept.extend(table.cookies.0.iter().map(|(cookie, n)| ((number, *cookie), *n)));
            for rule in table.rules.iter().flat_map(|rules| rules.iter(LATEST)) {
                *counted.entry((number, rule.payload().cookie)).or_default() += 1;
            }
        }
        [kept, counted]
    }

    /// The uses of groups and meters, and how many iterating over the rules gives.
    fn uses(ofproto: &Ofproto) -> [usize; 2] {
        let state = ofproto.state();
        let bridge = &state.bridges[0];
        let rules = bridge.tables.iter().flat_map(|table| table.rules.iter().flat_map(|rules| rules.iter(LATEST)));
        let places: Vec<_> =
            rules.filter(|r| r.payload().actions.len() == 2).map(|r| (r.payload().table, r.id())).collect();
        let of_group = bridge.users.of([Used::Group(1)]);
        assert_eq!(of_group, bridge.users.of([Used::Meter(1), Used::Meter(2)]));
        assert_eq!(of_group.iter().copied().collect::<BTreeSet<_>>(), places.iter().copied().collect());
        [bridge.users.len(), 2 * places.len()]
    }

    fn change((kind, table, priority, cookie): (u8, u8, u8, u8)) -> FlowMod {
        let one = format!("table={table},priority={priority}");
        let (text, command) = match kind {
            0..=2 => (format!("{one},cookie={cookie},actions=drop"), FlowCommand::Add),
            3 | 4 => (format!("{one},cookie={cookie},actions=meter:1,group:1"), FlowCommand::Add),
            5 => (format!("{one},cookie={cookie},actions=output:1"), FlowCommand::ModifyStrict),
            6 => (format!("table={table},cookie={cookie},actions=output:2"), FlowCommand::Modify),
            7 => (one, FlowCommand::DeleteStrict),
            8 => (format!("table={table},cookie={cookie}/-1"), FlowCommand::Delete),
            // Refused, so that all before it is undone.
            _ => (format!("{one},actions=group:77"), FlowCommand::Add),
        };
        FlowMod::parse(&text, command, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    proptest! {
        #[test]
        fn they_are_what_iterating_gives(
            bundles in prop::collection::vec(prop::collection::vec((0..10u8, 0..2u8, 0..6u8, 0..3u8), 1..12), 1..12),
        ) {
            let ofproto = Ofproto::new();
            ofproto.add_bridge(BridgeConfig::new("br0"), 0).unwrap();
            let meter = MeterMod::parse("meter=1,kbps,band=type=drop,rate=9", MeterCommand::Add).unwrap();
            ofproto.meter_mod("br0", &meter, 0).unwrap();
            let group = GroupMod::parse("group_id=1,type=all", GroupCommand::Add, &PortNames::NONE).unwrap();
            ofproto.group_mod("br0", &group, 0).unwrap();
            for changes in bundles {
                let changes: Vec<_> = changes.into_iter().map(change).collect();
                let _ = ofproto.bundle("br0", &changes, 0);
                let [kept, counted] = both(&ofproto);
                prop_assert_eq!(kept, counted);
                let [kept, counted] = uses(&ofproto);
                prop_assert_eq!(kept, counted);
            }
            let gone = MeterMod { command: MeterCommand::Delete, ..meter };
            ofproto.meter_mod("br0", &gone, 0).unwrap();
            prop_assert_eq!(uses(&ofproto), [0, 0]);
        }
    }
}
