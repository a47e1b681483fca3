//! Packets between a guest's rings and the switch. Each packet is copied once in either direction.

use super::device::RingSlot;
use super::ring::{Chain, Ring, RingError};
use crate::offload::{LARGEST_FRAME, Position, VNET_HEADER, VnetHeader};
use crate::stats::QueueStats;
use crate::{Mtu, RxQueue, TxQueue};
use sluice_fate::{Counter, DropReason, Tally};
use sluice_mem::FramePool;
use sluice_packet::{Buffers, PacketBatch};
use std::sync::Arc;

/// The rings of a port, alternately for guest receive and transmit.
pub type Rings = Arc<[RingSlot]>;

/// The guest's transmit ring, from which we receive.
#[derive(Debug)]
pub struct GuestTransmit {
    rings: Rings,
    /// Its ring's number.
    index: usize,
    pool: Arc<dyn FramePool>,
    mtu: Mtu,
    stats: Arc<QueueStats>,
    chain: Chain,
    large: Option<Large>,
    /// The large frame's bytes; the buffer is reused.
    large_frame: Vec<u8>,
}

/// A large frame that is being split into segments, over as many polls as necessary.
#[derive(Clone, Copy, Debug)]
struct Large {
    header: VnetHeader,
    /// As [`crate::offload::Segments::position`].
    position: Position,
}

/// The result for a chain.
enum TxStep {
    /// A packet was appended.
    Packet,
    /// Segments follow.
    Large(Large),
    /// It cannot be made a packet.
    Dropped(DropReason),
}

impl GuestTransmit {
    pub fn new(rings: Rings, index: usize, pool: Arc<dyn FramePool>, mtu: Mtu, stats: Arc<QueueStats>) -> Self {
        GuestTransmit { rings, index, pool, mtu, stats, chain: Chain::default(), large: None, large_frame: Vec::new() }
    }

    /// Makes a packet of the current chain.
    fn take(&mut self, ring: &Ring, batch: &mut PacketBatch, buffers: &mut Buffers) -> Result<TxStep, RingError> {
        let mut header = [0; VNET_HEADER];
        let size = self.chain.len().saturating_sub(VNET_HEADER);
        if ring.read(&self.chain, 0, &mut header)? < VNET_HEADER || size > LARGEST_FRAME {
            return Ok(TxStep::Dropped(DropReason::RxError));
        }
        let header = VnetHeader::read(&header).expect("invariant: twelve bytes are a header");
        if header.is_large() {
            self.large_frame.resize(size, 0);
            ring.read(&self.chain, VNET_HEADER, &mut self.large_frame)?;
            return Ok(TxStep::Large(Large { header, position: Position::default() }));
        }
        if size > self.mtu.longest_frame() {
            return Ok(TxStep::Dropped(DropReason::RxOversize));
        }
        if buffers.fill(&self.pool, 1, size, batch) == 0 {
            return Ok(TxStep::Dropped(DropReason::NoBuffer));
        }
        let packet = batch.last_mut().expect("invariant: one was appended");
        packet.frame.truncate(size);
        let bytes = packet.bytes_mut();
        let read = ring.read(&self.chain, VNET_HEADER, bytes);
        let fate = match (read, header.complete(bytes)) {
            (Ok(_), Ok(())) if self.mtu.admits(bytes) => return Ok(TxStep::Packet),
            (Ok(_), Ok(())) => Ok(TxStep::Dropped(DropReason::RxOversize)),
            (Ok(_), Err(_)) => Ok(TxStep::Dropped(DropReason::RxError)),
            (Err(broken), _) => Err(broken),
        };
        buffers.give(batch.pop().into_iter());
        fate
    }

    /// Appends segments of the current large frame, as many as there is room for.
    fn cut(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let Some(large) = &mut self.large else { return };
        let mut drop = |reason| self.stats.drop_received(reason, 1, tally);
        let Ok(mut segments) = large.header.segments(&self.large_frame) else {
            drop(DropReason::RxError);
            self.large = None;
            return;
        };
        segments.seek(large.position);
        if segments.longest() > self.mtu.longest_frame().min(self.pool.frame_size()) {
            drop(DropReason::RxOversize);
            self.large = None;
            return;
        }
        while !segments.is_done() && !batch.is_full() {
            if buffers.fill(&self.pool, 1, segments.longest(), batch) == 0 {
                drop(DropReason::NoBuffer);
                self.large = None;
                return;
            }
            let packet = batch.last_mut().expect("invariant: one was appended");
            let len = segments.next_into(packet.bytes_mut()).expect("invariant: a frame holds the longest segment");
            packet.frame.truncate(len);
        }
        large.position = segments.position();
        if segments.is_done() {
            self.large = None;
        }
    }

    fn take_waiting(
        &mut self,
        ring: &mut Ring,
        batch: &mut PacketBatch,
        buffers: &mut Buffers,
        tally: &mut Tally,
    ) -> Result<(), RingError> {
        let mut waiting = ring.waiting()?;
        while waiting > 0 && !batch.is_full() && self.large.is_none() {
            ring.peek(0, false, &mut self.chain)?;
            match self.take(ring, batch, buffers)? {
                TxStep::Packet => {}
                TxStep::Dropped(reason) => self.stats.drop_received(reason, 1, tally),
                TxStep::Large(large) => {
                    self.large = Some(large);
                    self.cut(batch, buffers, tally);
                }
            }
            ring.use_next(&self.chain, 0)?;
            waiting -= 1;
        }
        ring.publish()
    }
}

impl RxQueue for GuestTransmit {
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let before = batch.len();
        self.cut(batch, buffers, tally);
        let rings = self.rings.clone();
        if let Some(mut state) = rings[self.index].try_lock()
            && let Some(ring) = &mut state.ring
            && self.take_waiting(ring, batch, buffers, tally) == Err(RingError)
        {
            state.ring = None;
            self.stats.errors(1);
        }
        let bytes = batch[before..].iter().map(|packet| packet.frame.len()).sum();
        self.stats.carried(batch.len() - before, bytes);
    }
}

/// The guest's receive ring, to which we send.
#[derive(Debug)]
pub struct GuestReceive {
    rings: Rings,
    index: usize,
    mtu: Mtu,
    stats: Arc<QueueStats>,
    /// The chains of one packet; several only if the guest merges buffers.
    chains: Vec<Chain>,
}

/// The result for a packet to the guest.
enum RxStep {
    Sent,
    /// The guest has no more buffers.
    Full,
    /// Its buffers are too short and it does not merge them.
    TooLong,
}

impl GuestReceive {
    pub fn new(rings: Rings, index: usize, mtu: Mtu, stats: Arc<QueueStats>) -> Self {
        GuestReceive { rings, index, mtu, stats, chains: Vec::new() }
    }

    fn give(&mut self, ring: &mut Ring, mergeable: bool, waiting: &mut u16, bytes: &[u8]) -> Result<RxStep, RingError> {
        let size = VNET_HEADER + bytes.len();
        let (mut n, mut room) = (0u16, 0);
        while room < size {
            if n == *waiting {
                return Ok(RxStep::Full);
            }
            if n == 1 && !mergeable {
                return Ok(RxStep::TooLong);
            }
            if self.chains.len() == usize::from(n) {
                self.chains.push(Chain::default());
            }
            ring.peek(n, true, &mut self.chains[usize::from(n)])?;
            // The first buffer must hold the whole header, and an empty buffer would loop for ever.
            let len = self.chains[usize::from(n)].len();
            if len == 0 || (n == 0 && len < VNET_HEADER) {
                return Err(RingError);
            }
            room += len;
            n += 1;
        }
        let mut header = [0; VNET_HEADER];
        header[10..12].copy_from_slice(&n.to_le_bytes());
        ring.write(&self.chains[0], 0, &header)?;
        let mut done = 0;
        for (i, chain) in self.chains[..usize::from(n)].iter().enumerate() {
            let skip = if i == 0 { VNET_HEADER } else { 0 };
            let written = ring.write(chain, skip, &bytes[done..])?;
            done += written;
            ring.use_next(chain, (skip + written) as u32)?;
        }
        *waiting -= n;
        Ok(RxStep::Sent)
    }

    fn give_all(
        &mut self,
        ring: &mut Ring,
        mergeable: bool,
        batch: &PacketBatch,
        tally: &mut Tally,
    ) -> Result<(), RingError> {
        let mut waiting = ring.waiting()?;
        let (mut sent, mut bytes) = (0, 0);
        let mut outcome = Ok(());
        for packet in batch.iter() {
            let given = match outcome {
                Ok(()) if self.mtu.admits(packet.bytes()) => self.give(ring, mergeable, &mut waiting, packet.bytes()),
                Ok(()) => Ok(RxStep::TooLong),
                Err(broken) => Err(broken),
            };
            match given {
                Ok(RxStep::Sent) => {
                    sent += 1;
                    bytes += packet.frame.len();
                }
                Ok(RxStep::Full) => self.stats.drop_unsent(DropReason::TxFull, 1, tally),
                Ok(RxStep::TooLong) => self.stats.drop_unsent(DropReason::TxOversize, 1, tally),
                Err(broken) => {
                    self.stats.drop_unsent(DropReason::TxNoPort, 1, tally);
                    outcome = Err(broken);
                }
            }
        }
        tally[Counter::Sent] += sent as u64;
        self.stats.carried(sent, bytes);
        outcome.and_then(|()| ring.publish())
    }
}

impl TxQueue for GuestReceive {
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let rings = self.rings.clone();
        let mut state = rings[self.index].lock();
        let mergeable = state.mergeable;
        match &mut state.ring {
            None => self.stats.drop_unsent(DropReason::TxNoPort, batch.len(), tally),
            Some(ring) => {
                if self.give_all(ring, mergeable, batch, tally) == Err(RingError) {
                    state.ring = None;
                    self.stats.errors(1);
                }
            }
        }
        drop(state);
        buffers.give(batch.drain(..));
    }
}

#[cfg(test)]
mod tests;
