//! The queues of AF_XDP ports.

use super::{Found, checksum, sys};
use crate::af_packet::PacketTx;
use crate::stats::QueueStats;
use crate::{Mtu, RxQueue, TxQueue};
use sluice_fate::{Counter, DropReason, Tally};
use sluice_mem::{Frame, FramePool};
use sluice_packet::{Buffers, Packet, PacketBatch};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A receive queue.
#[derive(Debug)]
pub(super) struct XdpRx {
    found: Found,
    mtu: Mtu,
    pool: Arc<dyn FramePool>,
    stats: Arc<QueueStats>,
}

impl XdpRx {
    pub(super) fn new(found: Found, mtu: Mtu, pool: Arc<dyn FramePool>, stats: Arc<QueueStats>) -> Self {
        XdpRx { found, mtu, pool, stats }
    }
}

impl RxQueue for XdpRx {
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let Some(socket) = self.found.socket() else { return };
        // Frames come from the kernel, so this PMD may not know the pool yet.
        buffers.add_pool(&self.pool);
        let mut receiver = socket.receiver();
        let (first, mut bytes, mut pieces) = (batch.len(), 0, 0);
        while !batch.is_full()
            && let Some((piece, more)) = socket.receive(&mut receiver)
        {
            pieces += 1;
            let received = match more {
                false => Ok(piece),
                true => {
                    let mut rest = || {
                        pieces += 1;
                        socket.receive(&mut receiver)
                    };
                    linearise(piece, &mut rest, &self.pool, buffers)
                }
            };
            let fate = received.and_then(|mut frame| {
                checksum::complete(frame.bytes_mut());
                if self.mtu.admits(frame.bytes()) {
                    return Ok(frame);
                }
                buffers.give_frame(frame);
                Err(DropReason::RxOversize)
            });
            match fate {
                Ok(frame) => {
                    bytes += frame.len();
                    batch.push(Packet::new(frame));
                }
                Err(why) => self.stats.drop_received(why, 1, tally),
            }
        }
        // As many as were used; buffers that an empty pool could not provide follow later.
        socket.refill(&mut receiver, pieces + REFILL, || buffers.take(&self.pool));
        socket.wake(&receiver);
        self.stats.carried(batch.len() - first, bytes);
    }
}

/// Buffers given to the kernel at each poll in addition to those used.
const REFILL: u32 = 8;

/// Copies the buffers of a packet into one frame.
fn linearise(
    first: Frame,
    rest: &mut dyn FnMut() -> Option<(Frame, bool)>,
    pool: &Arc<dyn FramePool>,
    buffers: &mut Buffers,
) -> Result<Frame, DropReason> {
    let mut whole = buffers.take(pool);
    let (mut len, mut next) = (0, Some((first, true)));
    let mut fits = true;
    while let Some((piece, more)) = next {
        let end = len + piece.len();
        match whole.as_mut().and_then(|whole| whole.bytes_mut().get_mut(len..end)) {
            Some(to) => to.copy_from_slice(piece.bytes()),
            None => fits = false,
        }
        len = end;
        buffers.give_frame(piece);
        next = if more { rest() } else { None };
    }
    let Some(mut whole) = whole else { return Err(DropReason::NoBuffer) };
    if !fits {
        buffers.give_frame(whole);
        return Err(DropReason::RxOversize);
    }
    whole.truncate(len);
    Ok(whole)
}

/// A transmit queue.
#[derive(Debug)]
pub(super) struct XdpTx {
    found: Found,
    mtu: Mtu,
    pool: Arc<dyn FramePool>,
    stats: Arc<QueueStats>,
    shaped: Shaped,
}

/// The way through the kernel's queueing discipline, which the rings of AF_XDP do not take.
#[derive(Debug)]
pub(super) struct Shaped {
    pub queue: PacketTx,
    /// Whether packets take it.
    pub is_used: Arc<AtomicBool>,
}

impl XdpTx {
    pub(super) fn new(
        found: Found,
        mtu: Mtu,
        pool: Arc<dyn FramePool>,
        stats: Arc<QueueStats>,
        shaped: Shaped,
    ) -> Self {
        XdpTx { found, mtu, pool, stats, shaped }
    }

    /// Counts a batch without a device to send it.
    fn without_device(&self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        self.stats.drop_unsent(DropReason::TxNoPort, batch.len(), tally);
        buffers.give_batch(batch);
    }
}

impl TxQueue for XdpTx {
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        buffers.add_pool(&self.pool);
        if self.shaped.is_used.load(Relaxed) {
            return self.shaped.queue.send_batch(batch, buffers, tally);
        }
        let Some(socket) = self.found.socket().cloned() else { return self.without_device(batch, buffers, tally) };
        let mut sender = socket.sender();
        socket.complete(&mut sender, u32::MAX, |frame| buffers.give_frame(frame));
        let (mut sent, mut bytes) = (0, 0);
        for packet in batch.drain(..) {
            let len = packet.frame.len();
            match hand_over(&socket, &mut sender, packet, self.mtu, &self.pool, buffers) {
                Ok(()) => {
                    sent += 1;
                    bytes += len;
                }
                Err(why) => self.stats.drop_unsent(why, 1, tally),
            }
        }
        match socket.kick(&sender) {
            Ok(()) => {
                tally[Counter::Sent] += sent as u64;
                self.stats.carried(sent, bytes);
            }
            // Queued packets stay in the ring of a device that is down or has disappeared.
            Err(_) => self.stats.drop_unsent(DropReason::TxNoPort, sent, tally),
        }
        socket.complete(&mut sender, u32::MAX, |frame| buffers.give_frame(frame));
    }
}

/// Queues a packet for sending: in its own frame, or copied into one of the socket's pool.
fn hand_over(
    socket: &sys::Socket,
    sender: &mut sys::Sender,
    packet: Packet,
    mtu: Mtu,
    pool: &Arc<dyn FramePool>,
    buffers: &mut Buffers,
) -> Result<(), DropReason> {
    if !mtu.admits(packet.bytes()) {
        buffers.give_frame(packet.frame);
        return Err(DropReason::TxOversize);
    }
    let frame = if packet.frame.pool() == pool.id() {
        packet.frame
    } else {
        let copied = buffers.copy_into(pool, &packet);
        buffers.give_frame(packet.frame);
        copied?.frame
    };
    let is_long = socket.pieces(frame.len()) > 1 && !socket.is_chained();
    socket.send(sender, frame).map_err(|frame| {
        buffers.give_frame(frame);
        if is_long { DropReason::TxOversize } else { DropReason::TxFull }
    })
}
