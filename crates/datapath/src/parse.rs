//! The stage `parse`: from bytes to keys.

use crate::walk::Context;
use sluice_fate::DropReason;
use sluice_flow::{Metadata, PacketKey, extract_with};
use sluice_packet::{BATCH_MAX, PacketBatch};
use sluice_simd::isa::Kernel;
use sluice_simd::{Isa, VectorOps};

/// Packets ahead of the one being read whose first bytes are asked for.
const PREFETCH_AHEAD: usize = 4;

/// Reads the keys of packets just received by a port. Packets that have none leave the batch, by name.
#[inline]
pub(crate) fn parse(
    batch: &mut PacketBatch,
    port: &Metadata,
    keys: &mut [PacketKey; BATCH_MAX],
    isa: Isa,
    context: &mut Context<'_, '_>,
) {
    while let Err(at) = isa.run(ReadKeys { batch, port, keys }) {
        let packet = batch.remove(at);
        crate::tx::discard(packet, DropReason::RxRunt, context.buffers, context.tally);
    }
}

/// [`read_keys`], compiled for each instruction set.
struct ReadKeys<'a> {
    batch: &'a PacketBatch,
    port: &'a Metadata,
    keys: &'a mut [PacketKey; BATCH_MAX],
}

impl Kernel for ReadKeys<'_> {
    type Output = Result<(), usize>;

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> Result<(), usize> {
        read_keys(ops, self.batch, self.port, self.keys)
    }
}

/// Reads all keys, or says which packet has none.
#[inline(always)]
fn read_keys<V: VectorOps>(
    ops: V,
    batch: &PacketBatch,
    port: &Metadata,
    keys: &mut [PacketKey; BATCH_MAX],
) -> Result<(), usize> {
    batch.iter().take(PREFETCH_AHEAD).for_each(|packet| packet.frame.prefetch());
    for (i, (packet, key)) in batch.iter().zip(keys).enumerate() {
        if let Some(ahead) = batch.get(i + PREFETCH_AHEAD) {
            ahead.frame.prefetch();
        }
        extract_with(ops, packet.bytes(), port, key).map_err(|_| i)?;
    }
    Ok(())
}
