//! The guest's receive ring, to which we send. Each packet is copied once.
//!
//! A guest that is slower than we are has a full ring now and then, and room again a moment later. So what it took is
//! published, and the rest is tried again, as often as the port's option says, as long as each attempt gets some packets
//! through. Source: Open vSwitch lib/netdev-dpdk.c, `netdev_dpdk_vhost_send`.
//!
//! A guest that takes GSO frames gets consecutive segments as one ([`crate::gro`]). The largest frame has more segments than
//! a batch has packets, so those of a frame that is open at the end of a batch are kept until the next one.

use super::ring::{Access, Broken, Burst, Chain, Ring, RingFormat, RunningRing};
use super::slot::RingSlot;
use crate::gro::{GsoFrame, GuestTso};
use crate::offload::VNET_HEADER;
use crate::stats::QueueStats;
use crate::{Mtu, TxQueue};
use arrayvec::ArrayVec;
use sluice_fate::{Counter, DropReason, Tally};
use sluice_packet::{BATCH_MAX, Buffers, Packet, PacketBatch};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The header of a packet in one chain: nothing is left to do.
const HEADER: [u8; VNET_HEADER] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

/// The most packets of an open frame that are kept. The largest frame has 45 segments of 1448 bytes.
const KEPT_MAX: usize = 64;

/// A transmit queue of the port: the guest's receive ring.
#[derive(Debug)]
pub struct GuestReceive {
    slot: Arc<RingSlot>,
    mtu: Mtu,
    /// How often a batch is tried again.
    retries_max: Arc<AtomicU8>,
    stats: Arc<QueueStats>,
    burst: Burst,
    /// The packets of a GSO frame that the next batch may continue.
    kept: Vec<Packet>,
}

/// Packets to send.
#[derive(Clone, Copy)]
struct Outgoing<'a> {
    packets: &'a [Packet],
    /// How many of them, the first ones, were kept.
    were_kept: usize,
    /// Whether those of an open frame at the end are to be kept.
    may_keep: bool,
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
    pub fn new(slot: Arc<RingSlot>, mtu: Mtu, retries_max: Arc<AtomicU8>, stats: Arc<QueueStats>) -> Self {
        GuestReceive { slot, mtu, retries_max, stats, burst: Burst::default(), kept: Vec::new() }
    }

    /// Sends packets, except those that are to be kept, the last ones. Returns how many these are.
    #[inline(always)]
    fn transmit(&mut self, outgoing: Outgoing<'_>, tally: &mut Tally) -> usize {
        let mut slot = self.slot.lock();
        let Some(ring) = slot.running() else {
            self.stats.drop_unsent(DropReason::TxNoPort, outgoing.packets.len(), tally);
            return 0;
        };
        self.burst.clear();
        let (burst, mtu) = (&mut self.burst, self.mtu);
        let (retries_max, stats) = (&*self.retries_max, &*self.stats);
        let sender = Sender {
            burst,
            next: 0,
            mtu,
            retries_max,
            stats,
            outgoing,
            sent: 0,
            bytes: 0,
            long: 0,
            unmerged_left: 0,
            kept: 0,
        };
        let (kept, outcome) = match ring {
            Ring::Split(ring) => sender.send_all(ring, tally),
            Ring::Packed(ring) => sender.send_all(ring, tally),
            Ring::RecordedSplit(ring) => sender.send_all_recorded(ring, tally),
            Ring::RecordedPacked(ring) => sender.send_all_recorded(ring, tally),
        };
        if let Err(broken) = outcome {
            self.slot.break_off(ring, broken);
            self.stats.errors(1);
        }
        kept
    }

    /// Sends the packets that were kept and those of `batch` behind them.
    #[inline(never)]
    fn send_behind_kept(&mut self, batch: &mut PacketBatch, may_keep: bool, buffers: &mut Buffers, tally: &mut Tally) {
        let mut packets = std::mem::take(&mut self.kept);
        let were_kept = packets.len();
        tally[Counter::Released] += were_kept as u64;
        packets.extend(batch.drain(..));
        let kept = self.transmit(Outgoing { packets: &packets, were_kept, may_keep }, tally);
        tally[Counter::Held] += kept as u64;
        buffers.give(packets.drain(..packets.len() - kept));
        self.kept = packets;
    }
}

impl TxQueue for GuestReceive {
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        if !self.kept.is_empty() {
            return self.send_behind_kept(batch, true, buffers, tally);
        }
        let kept = self.transmit(Outgoing { packets: batch, were_kept: 0, may_keep: true }, tally);
        if kept != 0 {
            tally[Counter::Held] += kept as u64;
            let kept_from = batch.len() - kept;
            self.kept.extend(batch.drain(kept_from..));
        }
        buffers.give_batch(batch);
    }

    fn keeps_packets(&self) -> bool {
        !self.kept.is_empty()
    }

    fn send_kept(&mut self, buffers: &mut Buffers, tally: &mut Tally) {
        if !self.kept.is_empty() {
            self.send_behind_kept(&mut PacketBatch::new(), false, buffers, tally);
        }
    }
}

/// Writes packets into a ring.
struct Sender<'a> {
    burst: &'a mut Burst,
    /// The first chain of the burst that is not used.
    next: usize,
    mtu: Mtu,
    retries_max: &'a AtomicU8,
    stats: &'a QueueStats,
    outgoing: Outgoing<'a>,
    /// Packets that were sent, their bytes, and packets that were too long.
    sent: usize,
    bytes: usize,
    long: usize,
    /// Packets at the front that are sent one by one: their GSO frame had no room. To merge them again would check their
    /// sums once more for each of them.
    unmerged_left: usize,
    /// Packets at the end that are to be kept.
    kept: usize,
}

// All of it is compiled into one function a format, so that its counts stay in registers.
impl Sender<'_> {
    #[inline(always)]
    fn send_all<F: RingFormat>(mut self, ring: &mut RunningRing<F>, tally: &mut Tally) -> (usize, Result<(), Broken>) {
        let n = self.outgoing.packets.len();
        let (mut outcome, mut retries) = (Ok(()), 0);
        loop {
            let before = self.sent;
            outcome = outcome.and_then(|()| self.send_until_full(ring));
            ring.publish();
            let is_over = outcome.is_err() || self.sent + self.long + self.kept == n;
            // A guest that had no room for one packet has none for the next one at once.
            if is_over || self.sent == before || retries >= self.retries_max.load(Relaxed) {
                break;
            }
            retries += 1;
        }
        ring.look_ahead(n);
        let left = n - self.sent - self.long - self.kept;
        let reason = if outcome.is_ok() { DropReason::TxFull } else { DropReason::TxNoPort };
        self.stats.drop_unsent(reason, left, tally);
        self.stats.drop_unsent(DropReason::TxOversize, self.long, tally);
        tally[Counter::Sent] += self.sent as u64;
        self.stats.carried(self.sent, self.bytes);
        self.stats.retried(retries.into());
        (self.kept, outcome)
    }

    /// The same for rings with records, which few guests have: a function of its own takes no registers from the others.
    #[inline(never)]
    fn send_all_recorded<F: RingFormat>(
        self,
        ring: &mut RunningRing<F>,
        tally: &mut Tally,
    ) -> (usize, Result<(), Broken>) {
        self.send_all(ring, tally)
    }

    /// Sends packets until the guest has no more buffers. The burst keeps what is left of it, so that its bound is one
    /// for all attempts.
    #[inline(always)]
    fn send_until_full<F: RingFormat>(&mut self, ring: &mut RunningRing<F>) -> Result<(), Broken> {
        let packets = &self.outgoing.packets[self.sent + self.long..];
        let waiting = self.burst.chains().len() - self.next;
        ring.gather(packets.len().saturating_sub(waiting), Access::Write, self.burst)?;
        if let Some(tso) = ring.features.guest_tso() {
            return self.send_merged(ring, packets, tso);
        }
        for packet in packets {
            if !self.send_and_count(ring, packet)? {
                break;
            }
        }
        Ok(())
    }

    /// The same for a guest that takes GSO frames.
    #[inline(never)]
    fn send_merged<F: RingFormat>(
        &mut self,
        ring: &mut RunningRing<F>,
        mut packets: &[Packet],
        tso: GuestTso,
    ) -> Result<(), Broken> {
        // Sums are not worth checking for a guest without a buffer.
        while let (Some(packet), Some(_)) = (packets.first(), self.chain(ring, self.next)?) {
            if self.unmerged_left == 0
                && let Some(frame) = GsoFrame::of(packets, std::mem::take(&mut self.outgoing.were_kept), tso)
            {
                let is_open = frame.is_open && frame.packets == packets.len();
                if is_open && self.outgoing.may_keep && frame.packets <= KEPT_MAX {
                    self.kept = frame.packets;
                    break;
                }
                if self.send_gso(ring, &frame, packets)? {
                    let segments;
                    (segments, packets) = packets.split_at(frame.packets);
                    self.sent += segments.len();
                    self.bytes += segments.iter().map(|segment| segment.frame.len()).sum::<usize>();
                    continue;
                }
                self.unmerged_left = frame.packets;
            }
            if !self.send_and_count(ring, packet)? {
                break;
            }
            self.unmerged_left = self.unmerged_left.saturating_sub(1);
            packets = &packets[1..];
        }
        Ok(())
    }

    /// Sends a packet, or drops it as too long; false if the guest has no more buffers.
    #[inline(always)]
    fn send_and_count<F: RingFormat>(&mut self, ring: &mut RunningRing<F>, packet: &Packet) -> Result<bool, Broken> {
        match self.send(ring, packet.bytes())? {
            RxStep::Sent => {
                self.sent += 1;
                self.bytes += packet.frame.len();
            }
            RxStep::TooLong => self.long += 1,
            RxStep::Full => return Ok(false),
        }
        Ok(true)
    }

    /// Writes the GSO frame that begins with the first of `packets`; false if it has no room, or its packets are too long.
    fn send_gso<F: RingFormat>(
        &mut self,
        ring: &mut RunningRing<F>,
        gso: &GsoFrame,
        packets: &[Packet],
    ) -> Result<bool, Broken> {
        let segments = &packets[..gso.packets];
        if !segments.iter().all(|segment| self.mtu.admits(segment.bytes())) {
            return Ok(false);
        }
        let header_size = ring.features.header();
        let payload: usize = segments.iter().map(|segment| gso.payload(segment).len()).sum();
        let size = header_size + gso.headers.len() + payload;
        let (mut n, mut room) = (0, 0);
        while room < size {
            if n != 0 && !ring.features.merges() {
                return Ok(false);
            }
            let Some(chain) = self.chain(ring, self.next + n)? else { return Ok(false) };
            if n == 0 && (chain.len as usize) < header_size {
                return Err(Broken::Header);
            }
            n += 1;
            room += chain.len as usize;
        }
        let header = gso.vnet_header(n as u16);
        let mut parts =
            ArrayVec::<&[u8], { KEPT_MAX + BATCH_MAX + 2 }>::from_iter([&header[..header_size], &gso.headers]);
        parts.extend(segments.iter().map(|segment| gso.payload(segment)));
        self.write(ring, &mut parts, n)?;
        self.next += n;
        Ok(true)
    }

    /// Writes a packet into as many chains as it takes.
    #[inline(always)]
    fn send<F: RingFormat>(&mut self, ring: &mut RunningRing<F>, packet: &[u8]) -> Result<RxStep, Broken> {
        if !self.mtu.admits(packet) {
            return Ok(RxStep::TooLong);
        }
        let header_size = ring.features.header();
        let size = header_size + packet.len();
        let Some(chain) = self.chain(ring, self.next)? else { return Ok(RxStep::Full) };
        let room = chain.len as usize;
        if room < header_size {
            return Err(Broken::Header);
        }
        // Nearly always one buffer has room for all.
        if let [buffer] = self.burst.buffers(&chain)
            && size <= room
        {
            ring.view.write_behind(buffer.address, &HEADER[..header_size], packet)?;
            ring.put_used(&chain, size as u32);
            self.next += 1;
            return Ok(RxStep::Sent);
        }
        self.send_spread(ring, packet, room)
    }

    /// Writes a packet into one chain of several buffers, or into several chains, of which the first has `room`.
    #[inline(never)]
    fn send_spread<F: RingFormat>(
        &mut self,
        ring: &mut RunningRing<F>,
        packet: &[u8],
        mut room: usize,
    ) -> Result<RxStep, Broken> {
        let header_size = ring.features.header();
        let size = header_size + packet.len();
        let mut n = 1;
        while room < size {
            if !ring.features.merges() {
                return Ok(RxStep::TooLong);
            }
            let Some(more) = self.chain(ring, self.next + n)? else { return Ok(RxStep::Full) };
            n += 1;
            room += more.len as usize;
        }
        let mut header = HEADER;
        header[10..].copy_from_slice(&(n as u16).to_le_bytes());
        self.write(ring, &mut [&header[..header_size], packet], n)?;
        self.next += n;
        Ok(RxStep::Sent)
    }

    /// The burst's chain `at`, which is gathered now if it was not.
    #[inline(always)]
    fn chain<F: RingFormat>(&mut self, ring: &mut RunningRing<F>, at: usize) -> Result<Option<Chain>, Broken> {
        if let Some(chain) = self.burst.chains().get(at) {
            return Ok(Some(*chain));
        }
        ring.gather(1, Access::Write, self.burst)?;
        Ok(self.burst.chains().get(at).copied())
    }

    /// Writes the parts of a frame, header first, to the next `n` chains, which have room for them, and marks these as used.
    #[inline]
    fn write<F: RingFormat>(&mut self, ring: &mut RunningRing<F>, parts: &mut [&[u8]], n: usize) -> Result<(), Broken> {
        let mut at = 0;
        for chain in &self.burst.chains()[self.next..self.next + n] {
            let mut written = 0;
            for buffer in self.burst.buffers(chain) {
                let (mut address, mut room) = (buffer.address, buffer.len as usize);
                while room != 0
                    && let Some(part) = parts.get_mut(at)
                {
                    let now = part.split_off(..room.min(part.len())).expect("invariant: not beyond its end");
                    if !now.is_empty() {
                        ring.view.write(address, now)?;
                    }
                    address = address.wrapping_add(now.len() as u64);
                    room -= now.len();
                    written += now.len();
                    at += usize::from(part.is_empty());
                }
            }
            ring.put_used(chain, written as u32);
        }
        Ok(())
    }
}
