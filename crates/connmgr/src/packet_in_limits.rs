//! Limits of the packets that a controller gets: one for packets that no rule matches, one for the others.
//! Source: Open vSwitch, `connmgr.c`.

use crate::async_msg::PacketInMsg;
use crate::settings::RateLimit;
use sluice_openflow::{PacketInCounts, PacketInLimit};
use std::sync::Arc;

/// Both limits of a connection.
pub struct PacketInLimits([PacketInLimit<Arc<PacketInMsg>>; 2]);

impl PacketInLimits {
    /// The same limit for packets of either kind.
    pub fn new(limit: RateLimit, now_ms: u64) -> Self {
        PacketInLimits([(); 2].map(|()| PacketInLimit::new(limit.packets_per_s, limit.burst, now_ms)))
    }

    /// Returns the packet if it may be sent now; else it waits.
    pub fn offer(&mut self, packet: &Arc<PacketInMsg>, now_ms: u64) -> Option<Arc<PacketInMsg>> {
        let port = packet.in_port().0;
        self.0[usize::from(packet.is_miss())].offer(port, Arc::clone(packet), now_ms)
    }

    /// The next waiting packet that may be sent now.
    pub fn next(&mut self, now_ms: u64) -> Option<Arc<PacketInMsg>> {
        self.0.iter_mut().find_map(|limit| limit.next(now_ms))
    }

    /// Milliseconds until the next waiting packet may be sent.
    pub fn wait_ms(&self) -> Option<u64> {
        self.0.iter().filter_map(PacketInLimit::wait_ms).min()
    }

    /// The counts of both: first of packets that a rule sent.
    pub fn counts(&self) -> [PacketInCounts; 2] {
        self.0.each_ref().map(PacketInLimit::counts)
    }

    /// Packets that were lost because too many waited.
    pub fn lost(&self) -> u64 {
        self.0.iter().map(PacketInLimit::lost).sum()
    }
}
