//! The stage `recirculation`: packets that are to be looked up again.

use sluice_conntrack::CachedConn;
use sluice_flow::PacketKey;
use sluice_packet::{BATCH_MAX, Packet, PacketBatch};
use std::collections::VecDeque;

/// Packets waiting for another pass, in the order they asked for it.
#[derive(Debug)]
pub(crate) struct Recirc {
    /// How often a packet may be recirculated.
    pub max: u8,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    packet: Packet,
    key: PacketKey,
    origin: Origin,
    carried: CachedConn,
}

/// Where a packet in the stages stems from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Origin {
    /// The number, within the burst, of the packet that was received.
    pub arrival: u32,
    /// How often it has been recirculated.
    pub depth: u8,
    /// The number of its recording (`compose`), 0 if it is on none.
    pub recording: u16,
}

impl Recirc {
    /// Nobody waits.
    pub fn new(max: u8) -> Self {
        Recirc { max, waiting: VecDeque::new() }
    }

    /// Lets a packet wait for another pass under this key. `origin` is that of the new pass.
    pub fn push(&mut self, packet: Packet, key: PacketKey, origin: Origin, carried: CachedConn) {
        self.waiting.push_back(Waiting { packet, key, origin, carried });
    }

    /// Whether nobody waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Moves up to `max` waiting packets into an empty batch, with their keys, origins and connections.
    pub fn take(
        &mut self,
        max: usize,
        batch: &mut PacketBatch,
        keys: &mut [PacketKey; BATCH_MAX],
        origins: &mut [Origin; BATCH_MAX],
        carried: &mut [CachedConn; BATCH_MAX],
    ) {
        let n = max.min(BATCH_MAX).min(self.waiting.len());
        for (i, waiting) in self.waiting.drain(..n).enumerate() {
            batch.push(waiting.packet);
            keys[i] = waiting.key;
            origins[i] = waiting.origin;
            carried[i] = waiting.carried;
        }
    }
}
