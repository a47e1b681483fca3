//! Meters of bridges. Each one is a meter of the datapath, under another number.

use sluice_action::{MeterStats, MeterStore};
use sluice_fate::Limit;
use sluice_ofp::MeterConfig;
use std::collections::{BTreeMap, BTreeSet};
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
    used: BTreeSet<u32>,
    next: u32,
}

impl DatapathMeters {
    /// A number for a new meter. A number freed recently comes last, because packets under way may still use it.
    pub fn allocate(&mut self) -> Option<u32> {
        let free = (self.next..METERS_MAX).chain(0..self.next).find(|number| !self.used.contains(number));
        let free = free.or_else(|| {
            Limit::Meters.hit();
            None
        })?;
        self.used.insert(free);
        self.next = (free + 1) % METERS_MAX;
        Some(free)
    }

    /// Frees the number of a deleted meter.
    pub fn free(&mut self, number: u32) {
        self.used.remove(&number);
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
        meters.free(7);
        assert_eq!((meters.allocate(), meters.allocate()), (Some(7), None));
    }
}
