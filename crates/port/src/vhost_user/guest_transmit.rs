//! The guest's transmit ring, from which we receive. Each packet is copied once.

use super::memory::View;
use super::ring::{Access, Broken, Buffer, Burst, Chain, RingFormat, RunningRing, with_ring};
use super::send_rarp;
use super::slot::{RingSlot, SlotRing};
use crate::offload::{LARGEST_FRAME, Position, VNET_HEADER, VnetHeader};
use crate::stats::QueueStats;
use crate::{Mtu, RxQueue};
use sluice_fate::{DropReason, Tally};
use sluice_mem::{Frame, FramePool};
use sluice_packet::{Buffers, PacketBatch};
use std::sync::Arc;

/// A receive queue of the port: the guest's transmit ring.
#[derive(Debug)]
pub struct GuestTransmit {
    slot: Arc<RingSlot>,
    receiver: Receiver,
}

impl GuestTransmit {
    pub fn new(slot: Arc<RingSlot>, pool: Arc<dyn FramePool>, mtu: Mtu, stats: Arc<QueueStats>) -> Self {
        let receiver = Receiver { pool, mtu, stats, burst: Burst::default(), large: None, large_frame: Vec::new() };
        GuestTransmit { slot, receiver }
    }
}

impl RxQueue for GuestTransmit {
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let before = batch.len();
        self.receiver.cut(batch, buffers, tally);
        if let Some(mut slot) = self.slot.try_lock()
            && (slot.announced.is_none() || self.receiver.announce(&mut slot, batch, buffers))
            && let Some(ring) = slot.running()
            && !batch.is_full()
            && let Err(broken) = with_ring!(ring, ring => self.receiver.receive(ring, batch, buffers, tally))
        {
            self.slot.break_off(ring, broken);
            self.receiver.stats.errors(1);
        }
        let bytes = batch[before..].iter().map(|packet| packet.frame.len()).sum();
        self.receiver.stats.carried(batch.len() - before, bytes);
    }

    fn waiting(&self) -> Option<usize> {
        self.slot.try_lock()?.running()?.backlog()
    }
}

/// Makes packets of chains.
#[derive(Debug)]
struct Receiver {
    pool: Arc<dyn FramePool>,
    mtu: Mtu,
    stats: Arc<QueueStats>,
    burst: Burst,
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
    /// The frame has the packet.
    Packet,
    /// The segments of `large` follow.
    Large,
    /// It cannot be made a packet.
    Dropped(DropReason),
}

impl Receiver {
    /// Announces the guest in its place. Returns whether the batch has space for what it sends.
    #[cold]
    #[inline(never)]
    fn announce(&self, slot: &mut SlotRing, batch: &mut PacketBatch, buffers: &mut Buffers) -> bool {
        // A pool that is empty has a buffer at another poll.
        let guest = slot.announced.filter(|_| slot.running().is_some() && !batch.is_full());
        if let Some(packet) = guest.and_then(|guest| buffers.write(&self.pool, &send_rarp::frame(guest)).ok()) {
            batch.push(packet);
            slot.announced = None;
        }
        !batch.is_full()
    }

    /// Appends packets of waiting chains.
    fn receive<F: RingFormat>(
        &mut self,
        ring: &mut RunningRing<F>,
        batch: &mut PacketBatch,
        buffers: &mut Buffers,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        self.burst.clear();
        let n = ring.gather(batch.remaining_capacity(), Access::Read, &mut self.burst)?;
        if n == 0 {
            return Ok(());
        }
        let first = batch.len();
        let frames = buffers.fill(&self.pool, n, self.pool.frame_size(), batch);
        let mut kept = first;
        let mut outcome = Ok(());
        for at in 0..n {
            let chain = self.burst.chains()[at];
            let step = match batch.get_mut(kept) {
                Some(packet) => self.take(&chain, ring, &mut packet.frame),
                None => Ok(TxStep::Dropped(DropReason::NoBuffer)),
            };
            match step {
                Ok(TxStep::Packet) => kept += 1,
                Ok(TxStep::Dropped(reason)) => self.stats.drop_received(reason, 1, tally),
                Ok(TxStep::Large) => {
                    ring.put_used(&chain, 0);
                    break;
                }
                Err(broken) => {
                    outcome = Err(broken);
                    break;
                }
            }
            ring.put_used(&chain, 0);
        }
        if kept < first + frames {
            buffers.give(batch.drain(kept..));
        }
        self.cut(batch, buffers, tally);
        ring.publish();
        ring.look_ahead(n);
        outcome
    }

    /// Copies the packet of a chain into `frame`, a buffer from the port's pool.
    ///
    /// Nearly all packets are in one buffer, or behind one that has the header alone; they are short enough with any
    /// tags, and their headers leave nothing to do.
    #[inline(always)]
    fn take<F>(&mut self, chain: &Chain, ring: &mut RunningRing<F>, frame: &mut Frame) -> Result<TxStep, Broken> {
        let header_size = ring.features.header() as u32;
        let (header, packet, skip) = match self.burst.buffers(chain) {
            [whole] => (whole, whole, header_size),
            [header, packet] if header.len == header_size => (header, packet, 0),
            _ => return self.take_parts(chain, ring, frame),
        };
        let (mut work, size) = ([0; 2], packet.len.wrapping_sub(skip) as usize);
        if size <= self.mtu.always_admitted()
            && let Some(bytes) = frame.bytes_mut().get_mut(..size)
        {
            ring.view.read(header.address, &mut work)?;
            if VnetHeader::leaves_nothing(work) {
                ring.view.read(packet.address.wrapping_add(u64::from(skip)), bytes)?;
                frame.truncate(size);
                return Ok(TxStep::Packet);
            }
        }
        self.take_parts(chain, ring, frame)
    }

    /// The same for any chain.
    #[inline(never)]
    fn take_parts<F>(&mut self, chain: &Chain, ring: &mut RunningRing<F>, frame: &mut Frame) -> Result<TxStep, Broken> {
        let header_size = ring.features.header();
        let len = chain.len as usize;
        if len < header_size || len - header_size > LARGEST_FRAME {
            return Ok(TxStep::Dropped(DropReason::RxError));
        }
        let size = len - header_size;
        let mut parts = Parts { rest: self.burst.buffers(chain), skip: 0 };
        let mut header = [0; VNET_HEADER];
        parts.read(&mut ring.view, &mut header[..header_size])?;
        let header = VnetHeader::read(&header).expect("invariant: twelve bytes are a header");
        if header.is_large() {
            self.large_frame.resize(size, 0);
            parts.read(&mut ring.view, &mut self.large_frame)?;
            self.large = Some(Large { header, position: Position::default() });
            return Ok(TxStep::Large);
        }
        if size > self.mtu.longest_frame() || size > frame.len() {
            return Ok(TxStep::Dropped(DropReason::RxOversize));
        }
        let bytes = &mut frame.bytes_mut()[..size];
        parts.read(&mut ring.view, bytes)?;
        if header.complete(bytes).is_err() {
            return Ok(TxStep::Dropped(DropReason::RxError));
        }
        if !self.mtu.admits(bytes) {
            return Ok(TxStep::Dropped(DropReason::RxOversize));
        }
        frame.truncate(size);
        Ok(TxStep::Packet)
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
}

/// What is left to read of a chain's buffers.
struct Parts<'a> {
    rest: &'a [Buffer],
    /// Bytes of the first one that were read.
    skip: u32,
}

impl Parts<'_> {
    /// Copies the next bytes into `out`, until it is full. There are as many left.
    #[inline]
    fn read(&mut self, view: &mut View, mut out: &mut [u8]) -> Result<(), Broken> {
        while let ([part, later @ ..], false) = (self.rest, out.is_empty()) {
            let left = part.len - self.skip;
            let (now, behind) = out.split_at_mut(out.len().min(left as usize));
            view.read(part.address.wrapping_add(u64::from(self.skip)), now)?;
            self.skip += now.len() as u32;
            if self.skip == part.len {
                (self.rest, self.skip) = (later, 0);
            }
            out = behind;
        }
        Ok(())
    }
}
