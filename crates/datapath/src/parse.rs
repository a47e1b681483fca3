//! The stage `parse`: from bytes to keys, and on to the hashes of the index that is asked first, if that is large.

use crate::CaptureVerdict;
use crate::batch::Batch;
use crate::capture::Cause;
use crate::context::Context;
use crate::first_index::{FirstIndex, HashKind};
use sluice_action::PortNo;
use sluice_fate::DropReason;
use sluice_flow::{Metadata, PacketKey, ParseError, extract_with};
use sluice_packet::{BATCH_MAX, Packet, PacketBatch};
use sluice_simd::isa::Kernel;
use sluice_simd::vector_ops::TOGETHER;
use sluice_simd::{Isa, VectorOps};

/// Packets ahead of the one being read whose first bytes are prefetched.
const PREFETCH_AHEAD: usize = 4;

/// Reads the keys of packets just received by a port, and hashes them for the index that is asked first, if that is large.
/// Packets that cannot be parsed are dropped with a reason.
#[inline]
pub(crate) fn parse(
    port: &Metadata,
    isa: Isa,
    first: FirstIndex<'_>,
    batch: &mut Batch<'_, '_>,
    context: &mut Context<'_, '_>,
) {
    batch.hash_kind = first.hash_kind();
    let read = match first {
        FirstIndex::Near => isa.run(ReadKeys { packets: batch.packets, port, keys: batch.keys }),
        _ => read_and_fetch(isa, port, first, batch),
    };
    if let Err(at) = read {
        drop_runts(port, isa, at, batch, context);
    }
}

/// Drops the packet at `at`, which has no key, and others like it behind it; reads the keys of the rest, each once, so that
/// a sender of runts costs the others little. The index that is asked first hashes them later.
#[cold]
#[inline(never)]
fn drop_runts(port: &Metadata, isa: Isa, mut at: usize, batch: &mut Batch<'_, '_>, context: &mut Context<'_, '_>) {
    batch.hash_kind = HashKind::Stale;
    while let Some(packet) = batch.packets.get(at) {
        if isa.run(ReadKey { packet, port, key: &mut batch.keys[at] }).is_ok() {
            at += 1;
            continue;
        }
        let packet = batch.packets.remove(at);
        if let Some(taps) = &mut context.taps {
            let cause = Cause { in_port: PortNo(port.in_port()), flow: None };
            taps.looked_up(&packet, &PacketKey::ZERO, CaptureVerdict::Dropped(DropReason::RxRunt), cause);
        }
        context.discard(packet, DropReason::RxRunt);
    }
}

/// Reads one key.
struct ReadKey<'a> {
    packet: &'a Packet,
    port: &'a Metadata,
    key: &'a mut PacketKey,
}

impl Kernel for ReadKey<'_> {
    type Output = Result<(), ParseError>;

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> Self::Output {
        extract_with(ops, self.packet.bytes(), self.port, self.key)
    }
}

/// Reads all keys, or says which packet has none; compiled for each instruction set.
struct ReadKeys<'a> {
    packets: &'a PacketBatch,
    port: &'a Metadata,
    keys: &'a mut [PacketKey; BATCH_MAX],
}

impl Kernel for ReadKeys<'_> {
    type Output = Result<(), usize>;

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> Result<(), usize> {
        let ReadKeys { packets, port, keys } = self;
        packets.iter().take(PREFETCH_AHEAD).for_each(|packet| packet.frame.prefetch());
        for (i, (packet, key)) in packets.iter().zip(keys).enumerate() {
            if let Some(ahead) = packets.get(i + PREFETCH_AHEAD) {
                ahead.frame.prefetch();
            }
            extract_with(ops, packet.bytes(), port, key).map_err(|_| i)?;
        }
        Ok(())
    }
}

/// [`ReadKeys`], with the lines of what is asked first. A function of its own: batches that fetch none would pay for its
/// registers.
#[inline(never)]
fn read_and_fetch(isa: Isa, port: &Metadata, first: FirstIndex<'_>, batch: &mut Batch<'_, '_>) -> Result<(), usize> {
    isa.run(ReadAndFetch { packets: batch.packets, port, first, keys: batch.keys, hashes: batch.hashes })
}

struct ReadAndFetch<'a> {
    packets: &'a PacketBatch,
    port: &'a Metadata,
    first: FirstIndex<'a>,
    keys: &'a mut [PacketKey; BATCH_MAX],
    hashes: &'a mut [u64; BATCH_MAX],
}

impl Kernel for ReadAndFetch<'_> {
    type Output = Result<(), usize>;

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> Result<(), usize> {
        let ReadAndFetch { packets, port, first, keys, hashes } = self;
        packets.iter().take(PREFETCH_AHEAD).for_each(|packet| packet.frame.prefetch());
        let (keys, _) = keys.as_chunks_mut::<TOGETHER>();
        let (hashes, _) = hashes.as_chunks_mut::<TOGETHER>();
        for (at, (keys, hashes)) in keys.iter_mut().zip(hashes).take(packets.len().div_ceil(TOGETHER)).enumerate() {
            let begin = at * TOGETHER;
            let together = &packets[begin..packets.len().min(begin + TOGETHER)];
            for (i, (packet, key)) in together.iter().zip(keys.iter_mut()).enumerate() {
                if let Some(ahead) = packets.get(begin + i + PREFETCH_AHEAD) {
                    ahead.frame.prefetch();
                }
                extract_with(ops, packet.bytes(), port, key).map_err(|_| begin + i)?;
            }
            first.hash_and_prefetch(ops, keys, together.len(), hashes);
        }
        Ok(())
    }
}
