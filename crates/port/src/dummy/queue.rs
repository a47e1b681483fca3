//! The queues of a dummy port.

use super::device::{DummyDevice, RxSignal};
use crate::{RxQueue, TxQueue};
use sluice_fate::{Counter, DropReason, Tally};
use sluice_mem::FramePool;
use sluice_packet::{Buffers, Packet, PacketBatch};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// A receive queue.
pub(super) struct DummyRx {
    device: Arc<DummyDevice>,
    queue: usize,
    signal: Arc<RxSignal>,
    pool: Arc<dyn FramePool>,
    is_pmd: bool,
}

impl DummyRx {
    pub fn new(device: Arc<DummyDevice>, queue: usize, pool: Arc<dyn FramePool>) -> Self {
        let (signal, is_pmd) = (device.signal(queue), device.shape().is_pmd);
        DummyRx { device, queue, signal, pool, is_pmd }
    }
}

impl RxQueue for DummyRx {
    /// One packet a call, as in OVS: each packet finds what the one before it has set up.
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        if !self.signal.is_raised() {
            if self.is_pmd {
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
        (!self.is_pmd).then(|| self.signal.as_fd())
    }
}

/// A transmit queue.
pub(super) struct DummyTx {
    device: Arc<DummyDevice>,
    pmd: usize,
}

impl DummyTx {
    pub fn new(device: Arc<DummyDevice>, pmd: usize) -> Self {
        DummyTx { device, pmd }
    }
}

impl TxQueue for DummyTx {
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let sent = batch.iter().filter(|packet| self.device.send(self.pmd, packet.bytes())).count();
        tally[Counter::Sent] += sent as u64;
        tally.drop(DropReason::TxOversize, batch.len() - sent);
        buffers.give_batch(batch);
    }
}
