//! What all levels of the lookup share: the batch, its hits, and the hash of a key.

use crate::{FlowCounters, Megaflow};
use sluice_flow::{PacketKey, layout};
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::vector_ops::TOGETHER;
use sluice_simd::{HashKey, Isa, VectorOps, compare, hash};
use sluice_sync::Slots;

/// A batch in one pass through the lookup.
#[derive(Clone, Copy)]
pub struct LookupBatch<'a, 'g> {
    /// The packets' keys, by arrival.
    pub keys: &'a [PacketKey; BATCH_MAX],
    /// Their hashes ([`key_hashes`]).
    pub hashes: &'a [u64; BATCH_MAX],
    /// The records, read under the guard of this pass.
    pub flows: Slots<'g, Megaflow>,
    /// The counters that count hits.
    pub counters: &'a FlowCounters,
    /// The vector instructions to use.
    pub isa: Isa,
}

/// The megaflows found, in arrival order.
pub type Hits<'g> = [Option<&'g Megaflow>; BATCH_MAX];

/// A cache in front of the subtables.
pub trait LookupStage {
    /// For each packet in `miss`, looks up its key; on a hit writes `hits`. Returns the packets still missing.
    ///
    /// A hit is verified: the key under the megaflow's mask equals the megaflow's key. The result is a subset of
    /// `miss`; `hits` is written only where this stage hit.
    fn lookup<'g, V: VectorOps>(
        &mut self,
        ops: V,
        batch: &LookupBatch<'_, 'g>,
        miss: BatchMask,
        hits: &mut Hits<'g>,
    ) -> BatchMask;
}

/// The hash of a key: the low bits select a bucket, the high 32 are the tag.
///
/// Of the connection fields only those in line 0 count: state, zone and mark. The others (line 2) usually follow from
/// the packet's own addresses; packets that differ only there share an entry.
pub fn key_hash(secret: &HashKey, key: &PacketKey) -> u64 {
    let first = secret.line(0, &compare::words(&key.lines[0].0));
    let has_further = key.lines[0].0[layout::PRESENCE.offset] & FURTHER != 0;
    hash::finish(if has_further { first.wrapping_add(further_lines(secret, key)) } else { first })
}

/// The further lines that count, as bits of the presence byte.
const FURTHER: u8 = 1 << layout::IPV6_SRC.line() | 1 << layout::TUN_ID.line() | 1 << layout::TUN_OPTIONS.line();

/// The hashes of the first `n` keys. Hashes behind them are overwritten.
#[inline(always)]
pub fn key_hashes<V: VectorOps>(
    ops: V,
    secret: &HashKey,
    keys: &[PacketKey; BATCH_MAX],
    n: usize,
    hashes: &mut [u64; BATCH_MAX],
) {
    // Plain loops: an iterator's closures would be functions of their own, not compiled for the instruction set.
    let (keys_together, _) = keys.as_chunks::<TOGETHER>();
    let (hashes_together, _) = hashes.as_chunks_mut::<TOGETHER>();
    for at in 0..n.div_ceil(TOGETHER).min(BATCH_MAX / TOGETHER) {
        let [a, b, c, d, e, f, g, h] = &keys_together[at];
        let keys = [a, b, c, d, e, f, g, h];
        let mut lines = [&a.lines[0].0; TOGETHER];
        for i in 0..TOGETHER {
            lines[i] = &keys[i].lines[0].0;
        }
        let sums = ops.sums(secret.addends_of_line(0), lines);
        for i in 0..TOGETHER {
            hashes_together[at][i] = hash::finish(sums[i]);
        }
    }
    let mut presence = 0;
    for key in &keys[..n] {
        presence |= key.lines[0].0[layout::PRESENCE.offset];
    }
    if presence & FURTHER != 0 {
        hash_one_by_one(secret, &keys[..n], hashes);
    }
}

#[inline(never)]
fn hash_one_by_one(secret: &HashKey, keys: &[PacketKey], hashes: &mut [u64; BATCH_MAX]) {
    hashes.iter_mut().zip(keys).for_each(|(hash, key)| *hash = key_hash(secret, key));
}

#[inline(never)]
fn further_lines(secret: &HashKey, key: &PacketKey) -> u64 {
    let line = |i: usize| secret.line(i, &compare::words(&key.line(i).0));
    let sum = line(layout::IPV6_SRC.line()).wrapping_add(line(layout::TUN_ID.line()));
    // Few packets have options, and the others need not pay for them.
    let options = layout::TUN_OPTIONS.line();
    let has_options = key.lines[0].0[layout::PRESENCE.offset] >> options & 1 != 0;
    if has_options { sum.wrapping_add(line(options)) } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_simd::isa::Kernel;

    /// [`key_hashes`] of a batch.
    struct Hash<'a>(&'a [PacketKey; BATCH_MAX], usize, &'a mut [u64; BATCH_MAX]);

    impl Kernel for Hash<'_> {
        type Output = ();

        #[inline(always)]
        fn run<V: VectorOps>(self, ops: V) {
            key_hashes(ops, &HashKey::from_seed(7), self.0, self.1, self.2)
        }
    }

    #[test]
    fn a_batch_has_the_hashes_of_its_keys() {
        for (n, v6_at) in [(0, 0), (1, 1), (7, 3), (8, 8), (9, 8), (31, 40), (32, 31)] {
            let mut keys = [PacketKey::ZERO; BATCH_MAX];
            for (i, key) in keys.iter_mut().enumerate() {
                key.set(layout::NW_SRC, &[10, 0, 0, i as u8]);
                if i == v6_at {
                    key.set(layout::IPV6_SRC, &[3; 16]);
                }
            }
            let want = keys.each_ref().map(|key| key_hash(&HashKey::from_seed(7), key));
            for isa in Isa::available() {
                let mut hashes = [0; BATCH_MAX];
                isa.run(Hash(&keys, n, &mut hashes));
                assert_eq!(hashes[..n], want[..n], "{isa:?}, {n} keys, IPv6 at {v6_at}");
            }
        }
    }

    /// Passes of a packet differ only in recirculation id and connection state. They must not share a bucket or a tag.
    #[test]
    fn passes_of_a_packet_have_hashes_of_their_own() {
        let secret = HashKey::from_seed(3);
        let spans = [layout::RECIRC_ID, layout::CT_STATE, layout::CT_ZONE, layout::CT_MARK, layout::CT_LABEL];
        let buckets: u64 = 2048;
        let (mut same_bucket, mut pairs) = (0, 0);
        for flow in 0..2000u32 {
            let mut first = PacketKey::ZERO;
            first.set(layout::NW_SRC, &flow.to_be_bytes());
            for span in spans {
                let mut later = first;
                later.set(span, &[1; 16][..span.size]);
                let (a, b) = (key_hash(&secret, &first), key_hash(&secret, &later));
                assert_ne!(a >> 32, b >> 32, "{span:?} is not in the tag");
                same_bucket += u64::from(a % buckets == b % buckets);
                pairs += 1;
            }
        }
        assert!(same_bucket * buckets < 4 * pairs, "{same_bucket} of {pairs} meet, by chance 1 in {buckets} does");
    }
}
