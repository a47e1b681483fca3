//! The queue from one PMD to the owner of a capture: bounded in packets and in bytes, and the PMD never waits.
//!
//! The channel below has room for all packets that the bound admits, so that sending finds a free place at once. The
//! bound is lowered by the receiver after it has taken a packet, so that the sender never comes to a place that is just
//! being read.

use super::CapturedPacket;
use sluice_fate::Limit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, SyncSender};

/// Packets that wait at most.
pub(super) const PACKETS_MAX: usize = 4096;

/// Bytes of packets that wait at most.
const BYTES_MAX: usize = 8 << 20;

/// What both ends know.
#[derive(Debug, Default)]
struct Fill {
    packets: AtomicUsize,
    bytes: AtomicUsize,
    overruns: AtomicU64,
}

/// The PMD's end.
#[derive(Debug)]
pub(super) struct Sender {
    fill: Arc<Fill>,
    channel: SyncSender<CapturedPacket>,
}

/// The owner's end.
#[derive(Debug)]
pub(super) struct Receiver {
    fill: Arc<Fill>,
    channel: mpsc::Receiver<CapturedPacket>,
}

/// A queue.
pub(super) fn queue() -> (Sender, Receiver) {
    let (fill, (sender, receiver)) = (Arc::new(Fill::default()), mpsc::sync_channel(PACKETS_MAX));
    (Sender { fill: Arc::clone(&fill), channel: sender }, Receiver { fill, channel: receiver })
}

impl Sender {
    /// Whether a packet of which `len` bytes are kept finds room. If not, an overrun is counted.
    pub fn admits(&self, len: usize) -> bool {
        let Fill { packets, bytes, overruns } = &*self.fill;
        let has_room =
            packets.load(Ordering::Acquire) < PACKETS_MAX && bytes.load(Ordering::Acquire) + len <= BYTES_MAX;
        if !has_room {
            overruns.fetch_add(1, Ordering::Relaxed);
            Limit::CapturedPackets.hit();
        }
        has_room
    }

    /// Puts a packet in, for which there was room.
    pub fn send(&self, packet: CapturedPacket) {
        self.fill.packets.fetch_add(1, Ordering::Relaxed);
        self.fill.bytes.fetch_add(packet.bytes.len(), Ordering::Relaxed);
        // Without its owner the capture is about to end.
        let _ = self.channel.try_send(packet);
    }
}

impl Receiver {
    /// Takes what waits.
    pub fn take(&self, into: &mut Vec<CapturedPacket>) {
        while let Ok(packet) = self.channel.try_recv() {
            self.fill.bytes.fetch_sub(packet.bytes.len(), Ordering::Release);
            self.fill.packets.fetch_sub(1, Ordering::Release);
            into.push(packet);
        }
    }

    /// How many packets wait, and how many may.
    pub fn usage(&self) -> (usize, usize) {
        (self.fill.packets.load(Ordering::Relaxed), PACKETS_MAX)
    }

    pub fn overruns(&self) -> u64 {
        self.fill.overruns.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{CapturePoint, CaptureVerdict};
    use proptest::prelude::*;

    fn packet(len: usize) -> CapturedPacket {
        CapturedPacket {
            time_ns: 0,
            bytes: vec![0; len].into(),
            len,
            point: CapturePoint::Received,
            port: None,
            in_port: None,
            verdict: CaptureVerdict::Sent,
            flow: None,
            pmd: 0,
        }
    }

    proptest! {
        /// Whatever is offered and taken, no bound is passed, and each packet is taken once or is an overrun.
        #[test]
        fn bounds_hold_and_overruns_count(steps in prop::collection::vec((0usize..3000, 0usize..3, any::<bool>()), 1..40)) {
            let (sender, receiver) = queue();
            let (mut taken, mut offered) = (Vec::new(), 0u64);
            for (n, size, takes) in steps {
                let len = [60, 1500, 65_535][size];
                for _ in 0..n {
                    offered += 1;
                    if sender.admits(len) {
                        sender.send(packet(len));
                    }
                }
                prop_assert!(sender.fill.packets.load(Ordering::Relaxed) <= PACKETS_MAX);
                prop_assert!(sender.fill.bytes.load(Ordering::Relaxed) <= BYTES_MAX);
                if takes {
                    receiver.take(&mut taken);
                    prop_assert_eq!(sender.fill.bytes.load(Ordering::Relaxed), 0);
                }
            }
            receiver.take(&mut taken);
            prop_assert_eq!(taken.len() as u64 + receiver.overruns(), offered);
        }
    }

    #[test]
    fn a_sender_without_its_receiver_goes_on() {
        let (sender, receiver) = queue();
        drop(receiver);
        let before = Limit::CapturedPackets.count();
        let sent = (0..2 * PACKETS_MAX).filter(|_| sender.admits(60)).map(|_| sender.send(packet(60))).count();
        assert_eq!(sent, PACKETS_MAX);
        assert!(Limit::CapturedPackets.count() >= before + PACKETS_MAX as u64);
    }
}
