//! The queues of a dummy port.

use super::device::DummyDevice;
use crate::{RxQueue, TxQueue};
use sluice_fate::{Counter, DropReason, Tally};
use sluice_mem::FramePool;
use sluice_packet::{Buffers, Packet, PacketBatch};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A receive queue.
pub(super) struct DummyRx {
    device: Arc<DummyDevice>,
    queue: usize,
    pool: Arc<dyn FramePool>,
}

impl DummyRx {
    pub fn new(device: Arc<DummyDevice>, queue: usize, pool: Arc<dyn FramePool>) -> Self {
        DummyRx { device, queue, pool }
    }
}

impl RxQueue for DummyRx {
    /// One packet a call, as in OVS: each packet finds what the one before it has set up.
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        if !self.device.has_waiting(self.queue) {
            if self.device.is_pmd {
                // A PMD that only has such ports would keep the core from the test that drives it.
                std::thread::yield_now();
            }
            return;
        }
        // Without a buffer, packets wait in the device.
        let Some(mut frame) = buffers.take(&self.pool) else { return };
        match self.device.take(self.queue, frame.len()) {
            Some(Ok(packet)) => {
                frame.truncate(packet.len());
                frame.bytes_mut().copy_from_slice(&packet);
                batch.push(Packet::new(frame));
            }
            Some(Err(())) => {
                tally[Counter::Received] += 1;
                tally.drop(DropReason::RxOversize, 1);
                buffers.give_frame(frame);
            }
            None => buffers.give_frame(frame),
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        // A queue that one can wait for belongs to the main worker.
        (!self.device.is_pmd).then(|| self.device.readiness(self.queue))
    }
}

/// A transmit queue.
pub(super) struct DummyTx {
    device: Arc<DummyDevice>,
    queue: usize,
}

impl DummyTx {
    pub fn new(device: Arc<DummyDevice>, queue: usize) -> Self {
        DummyTx { device, queue }
    }
}

impl TxQueue for DummyTx {
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let sent = batch.iter().filter(|packet| self.device.send(self.queue, packet.bytes())).count();
        tally[Counter::Sent] += sent as u64;
        tally.drop(DropReason::TxOversize, batch.len() - sent);
        buffers.give_batch(batch);
    }
}
