//! Timeouts of conntrack zones. Source: Open vSwitch vswitchd/bridge.c, `datapath_reconfigure`.

use super::{DummyOverride, Plan};
use crate::records::Records;
use sluice_conntrack::{Timeout, TimeoutPolicy};
use std::collections::BTreeMap;

impl Plan {
    /// Takes over what rows of table `Datapath` say. One datapath serves all types, and so their zones are the same:
    /// of two types that differ about a zone, the one whose name comes last counts.
    pub(super) fn add_datapaths(&mut self, records: &Records, dummies: DummyOverride) {
        let is_known = |kind: &str| dummies.datapath_types().contains(&kind);
        for datapath in records.datapaths.iter().filter(|datapath| is_known(&datapath.kind)) {
            self.datapaths.push(datapath.uuid);
            for (zone, timeouts) in &datapath.ct_zones {
                let Ok(zone) = u16::try_from(*zone) else { continue };
                self.state.datapath.zone_timeouts.insert(zone, policy(timeouts));
            }
        }
    }
}

/// The timeouts that mean something here. Names of timeouts that only the kernel's datapath has are ignored, as in Open
/// vSwitch's userspace datapath.
fn policy(timeouts: &BTreeMap<String, i64>) -> TimeoutPolicy {
    let known = |(name, seconds): (&String, &i64)| Some((Timeout::named(name)?, u32::try_from(*seconds).ok()?));
    TimeoutPolicy { seconds: timeouts.iter().filter_map(known).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_of_the_kernel_and_impossible_ones_are_ignored() {
        let row = [("icmp_first", 10), ("tcp_unack", 5), ("udp_first", -1), ("udp_single", 1 << 40)];
        let row = row.into_iter().map(|(name, seconds)| (name.to_owned(), seconds)).collect();
        assert_eq!(policy(&row).seconds, [(Timeout::IcmpFirst, 10)]);
    }
}
