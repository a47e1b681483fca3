//! The queue of packets that are to be looked up again.

use crate::batch::{Batch, Origin};
use sluice_conntrack::CachedConn;
use sluice_flow::PacketKey;
use sluice_packet::Packet;
use std::collections::VecDeque;

/// Packets that wait for another pass, in the order in which they asked for it.
#[derive(Debug)]
pub(crate) struct RecircQueue {
    /// How often a packet may be recirculated.
    depth_max: u8,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    packet: Packet,
    key: PacketKey,
    origin: Origin,
    conn: CachedConn,
}

impl RecircQueue {
    /// An empty queue.
    pub fn new(depth_max: u8) -> Self {
        RecircQueue { depth_max, waiting: VecDeque::new() }
    }

    /// Whether a packet may take another pass.
    #[inline]
    pub fn admits(&self, origin: &Origin) -> bool {
        origin.depth < self.depth_max
    }

    /// Whether a packet may take this many more passes.
    #[inline]
    pub fn admits_passes(&self, origin: &Origin, passes: usize) -> bool {
        usize::from(origin.depth) + passes <= usize::from(self.depth_max)
    }

    /// Lets a packet wait for another pass under this key. `origin` is that of the new pass.
    pub fn push(&mut self, packet: Packet, key: &PacketKey, origin: Origin, conn: CachedConn) {
        self.waiting.push_back(Waiting { packet, key: *key, origin, conn });
    }

    /// Whether no packet waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Moves the first packets that wait into an empty batch.
    pub fn take(&mut self, batch: &mut Batch<'_, '_>) {
        let n = batch.limit().min(self.waiting.len());
        for (i, waiting) in self.waiting.drain(..n).enumerate() {
            batch.packets.push(waiting.packet);
            batch.keys[i] = waiting.key;
            batch.origins[i] = waiting.origin;
            batch.conns[i] = waiting.conn;
        }
        batch.begin_recirculated();
    }
}
