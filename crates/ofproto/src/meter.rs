//! Meters of bridges. Each one is a meter of the datapath, under another number.

use sluice_action::{MeterStats, MeterStore};
use sluice_fate::Limit;
use sluice_ofp::MeterConfig;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Bands of a meter, at most. Source: OVS lib/dpif-netdev.c, MAX_BANDS.
pub const BANDS_MAX: usize = 8;
/// Meters of the switch, at most. Source: as before, MAX_METERS.
pub const METERS_MAX: u32 = 1 << 18;

/// A bridge's meters, by number.
pub(crate) type Meters = BTreeMap<u32, Meter>;

/// A meter of a bridge.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    /// Its number in the datapath.
    pub datapath: u32,
    pub config: MeterConfig,
    pub created_ms: u64,
}

/// A meter with its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterEntry {
    /// Its number.
    pub id: u32,
    /// Its configuration.
    pub config: MeterConfig,
    /// When it was added, milliseconds.
    pub created_ms: u64,
    /// Number of rules that use it.
    pub flow_count: u32,
    /// Its counters.
    pub stats: MeterStats,
}

/// The datapath's meters and their numbers in use.
#[derive(Default)]
pub(crate) struct DatapathMeters {
    pub store: Option<Arc<dyn MeterStore>>,
    /// Numbers from here on were never used.
    unused: u32,
    /// Numbers that were used, the one that was freed first in front. To look for a free one among those in use would take
    /// milliseconds while all are, with each request.
    freed: VecDeque<u32>,
}

impl DatapathMeters {
    /// A number for a new meter. A number freed recently comes last, because packets under way may still use it.
    pub fn allocate(&mut self) -> Option<u32> {
        if self.unused < METERS_MAX {
            self.unused += 1;
            return Some(self.unused - 1);
        }
        let free = self.freed.pop_front();
        if free.is_none() {
            Limit::Meters.hit();
        }
        free
    }

    /// Removes a deleted meter from the datapath, which frees its number.
    pub fn remove(&mut self, number: u32) {
        self.freed.push_back(number);
        if let Some(store) = &self.store {
            store.remove(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meters_have_a_bound_and_numbers_are_used_again() {
        let (mut meters, before) = (DatapathMeters::default(), Limit::Meters.count());
        assert!((0..METERS_MAX).all(|number| meters.allocate() == Some(number)));
        assert_eq!((meters.allocate(), Limit::Meters.count()), (None, before + 1));
        meters.remove(7);
        assert_eq!((meters.allocate(), meters.allocate()), (Some(7), None));
        [9, 8].into_iter().for_each(|number| meters.remove(number));
        assert_eq!((meters.allocate(), meters.allocate()), (Some(9), Some(8)), "the one freed last comes last");
        // A flood of requests that are refused, or of meters that come and go while all others are in use.
        for _ in 0..METERS_MAX {
            assert_eq!(meters.allocate(), None);
            meters.remove(3);
            assert_eq!(meters.allocate(), Some(3));
        }
    }
}
