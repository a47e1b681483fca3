//! Limits of the packets that a controller gets: one for those that no rule matches, one for the others.
//! Source: Open vSwitch, `connmgr.c`.

use crate::hub::Packet;
use crate::settings::RateLimit;
use sluice_openflow::PacketInLimit;
use std::sync::Arc;

/// Both limits of a connection.
pub struct Limits([PacketInLimit<Arc<Packet>>; 2]);

impl Limits {
    /// The same limit for packets of each sort.
    pub fn new(limit: RateLimit, now_ms: u64) -> Self {
        Limits([(); 2].map(|()| PacketInLimit::new(limit.packets_per_s, limit.burst, now_ms)))
    }

    /// The packet, if it may go now; else it waits.
    pub fn offer(&mut self, packet: &Arc<Packet>, now_ms: u64) -> Option<Arc<Packet>> {
        let port = packet.in_port().0;
        self.0[usize::from(packet.is_miss())].offer(port, Arc::clone(packet), now_ms)
    }

    /// The next that waits and may go now.
    pub fn next(&mut self, now_ms: u64) -> Option<Arc<Packet>> {
        self.0.iter_mut().find_map(|limit| limit.next(now_ms))
    }

    /// In how many milliseconds the next may go.
    pub fn wait_ms(&self) -> Option<u64> {
        self.0.iter().filter_map(PacketInLimit::wait_ms).min()
    }

    /// Packets that are lost.
    pub fn lost(&self) -> u64 {
        self.0.iter().map(PacketInLimit::lost).sum()
    }
}
