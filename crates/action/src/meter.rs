//! The interface to the datapath's meters for the control threads that make and read them.

use sluice_ofp::MeterConfig;

/// The datapath's meters, by a number that is unique in the switch. Control threads only.
pub trait MeterStore: Send + Sync {
    /// Makes a meter with full buckets, in place of one of that number.
    fn set(&self, meter: u32, config: &MeterConfig, now_ms: u64);

    /// Removes it. Packets that still refer to it pass.
    fn remove(&self, meter: u32);

    /// What it has counted since it was made.
    fn stats(&self, meter: u32) -> Option<MeterStats>;
}

/// What a meter has counted, over all PMDs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeterStats {
    /// Packets that came to it.
    pub packets: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Packets and bytes that each band took.
    pub bands: Vec<(u64, u64)>,
}
