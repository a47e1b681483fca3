//! The stage `parse`: from bytes to keys.

use crate::CaptureVerdict;
use crate::batch::Batch;
use crate::capture::Cause;
use crate::context::Context;
use sluice_action::PortNo;
use sluice_fate::DropReason;
use sluice_flow::{Metadata, PacketKey, extract_with};
use sluice_packet::{BATCH_MAX, PacketBatch};
use sluice_simd::isa::Kernel;
use sluice_simd::{Isa, VectorOps};

/// Packets ahead of the one being read whose first bytes are prefetched.
const PREFETCH_AHEAD: usize = 4;

/// Reads the keys of packets just received by a port. Packets that cannot be parsed are dropped with a reason.
#[inline]
pub(crate) fn parse(port: &Metadata, isa: Isa, batch: &mut Batch<'_, '_>, context: &mut Context<'_, '_>) {
    while let Err(at) = isa.run(ReadKeys { packets: batch.packets, port, keys: batch.keys }) {
        let packet = batch.packets.remove(at);
        if let Some(taps) = &mut context.taps {
            let cause = Cause { in_port: PortNo(port.in_port()), flow: None };
            taps.looked_up(&packet, &PacketKey::ZERO, CaptureVerdict::Dropped(DropReason::RxRunt), cause);
        }
        context.discard(packet, DropReason::RxRunt);
    }
}

/// [`read_keys`], compiled for each instruction set.
struct ReadKeys<'a> {
    packets: &'a PacketBatch,
    port: &'a Metadata,
    keys: &'a mut [PacketKey; BATCH_MAX],
}

impl Kernel for ReadKeys<'_> {
    type Output = Result<(), usize>;

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> Result<(), usize> {
        read_keys(ops, self.packets, self.port, self.keys)
    }
}

/// Reads all keys, or says which packet has none.
#[inline(always)]
fn read_keys<V: VectorOps>(
    ops: V,
    packets: &PacketBatch,
    port: &Metadata,
    keys: &mut [PacketKey; BATCH_MAX],
) -> Result<(), usize> {
    packets.iter().take(PREFETCH_AHEAD).for_each(|packet| packet.frame.prefetch());
    for (i, (packet, key)) in packets.iter().zip(keys).enumerate() {
        if let Some(ahead) = packets.get(i + PREFETCH_AHEAD) {
            ahead.frame.prefetch();
        }
        extract_with(ops, packet.bytes(), port, key).map_err(|_| i)?;
    }
    Ok(())
}
