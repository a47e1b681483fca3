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
        let receiver =
            Receiver { pool, mtu, stats, burst: Burst::default(), gso: None, gso_frame: Vec::new(), guest: 0 };
        GuestTransmit { slot, receiver }
    }
}

impl RxQueue for GuestTransmit {
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let before = batch.len();
        if let Some(mut slot) = self.slot.try_lock() {
            self.receiver.forget_other_than(slot.guest(), tally);
            if (slot.announced.is_none() || self.receiver.announce(&mut slot, batch, buffers))
                && let Some(ring) = slot.running()
                && self.receiver.split(batch, buffers, tally)
                && let Err(broken) = with_ring!(ring, ring => self.receiver.receive(ring, batch, buffers, tally))
            {
                self.slot.break_off(ring, broken);
                self.receiver.stats.errors(1);
            }
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
    gso: Option<GsoSplit>,
    /// The GSO frame's bytes; the buffer is reused.
    gso_frame: Vec<u8>,
    /// The guest that sent the GSO frame ([`SlotRing::guest`]).
    guest: u64,
}

/// A GSO frame that is being split into segments, over as many polls as necessary.
#[derive(Clone, Copy, Debug)]
struct GsoSplit {
    header: VnetHeader,
    /// As [`crate::offload::Segments::position`].
    position: Position,
}

/// The result for a chain.
enum TxStep {
    /// The frame has the packet.
    Packet,
    /// The segments of `gso` follow.
    Gso,
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
        let n = ring.gather(batch.room(), Access::Read, &mut self.burst)?;
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
                Ok(TxStep::Gso) => {
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
        self.split(batch, buffers, tally);
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
        if header.is_gso() {
            self.gso_frame.resize(size, 0);
            parts.read(&mut ring.view, &mut self.gso_frame)?;
            self.gso = Some(GsoSplit { header, position: Position::default() });
            return Ok(TxStep::Gso);
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

    /// Appends segments of the current GSO frame, as many as there is room for. Returns whether there is room for more packets.
    fn split(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) -> bool {
        let Some(gso) = &mut self.gso else { return !batch.is_full() };
        let segments = gso.header.segments(&self.gso_frame).map_err(|_| DropReason::RxError).and_then(|segments| {
            let longest = segments.longest();
            let is_admitted = self.mtu.admits_segment(&self.gso_frame, longest) && longest <= self.pool.frame_size();
            if is_admitted { Ok(segments) } else { Err(DropReason::RxOversize) }
        });
        let mut segments = match segments {
            Ok(segments) => segments,
            Err(reason) => {
                self.stats.drop_received(reason, 1, tally);
                self.gso = None;
                return !batch.is_full();
            }
        };
        segments.seek(gso.position);
        // A pool that is empty has a buffer at another poll.
        while !segments.is_done() && !batch.is_full() && buffers.fill(&self.pool, 1, segments.longest(), batch) != 0 {
            let packet = batch.last_mut().expect("invariant: one was appended");
            let len = segments.next_into(packet.bytes_mut()).expect("invariant: a frame holds the longest segment");
            packet.frame.truncate(len);
        }
        gso.position = segments.position();
        if segments.is_done() {
            self.gso = None;
        }
        self.gso.is_none() && !batch.is_full()
    }

    /// Drops what is left of a GSO frame if the guest that sent it has gone.
    #[inline]
    fn forget_other_than(&mut self, guest: u64, tally: &mut Tally) {
        if self.guest == guest {
            return;
        }
        self.guest = guest;
        if let Some(GsoSplit { header, position }) = self.gso.take()
            && let Ok(mut segments) = header.segments(&self.gso_frame)
        {
            segments.seek(position);
            self.stats.drop_received(DropReason::RxError, segments.left(), tally);
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
