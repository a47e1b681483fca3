//! What every level of the hierarchy has in common.

use crate::Megaflow;
use sluice_flow::{PacketKey, layout};
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::{HashKey, Isa, compare, hash};
use sluice_sync::Slots;

/// One pass of a batch through the lookup.
#[derive(Clone, Copy)]
pub struct Pass<'a, 'g> {
    /// The packets' keys, by arrival.
    pub keys: &'a [PacketKey; BATCH_MAX],
    /// Their hashes ([`key_hash`]).
    pub hashes: &'a [u64; BATCH_MAX],
    /// The records, under the guard of this pass.
    pub flows: Slots<'g, Megaflow>,
    /// The vector instructions to use.
    pub isa: Isa,
}

/// What was found, by arrival.
pub type Hits<'g> = [Option<&'g Megaflow>; BATCH_MAX];

/// A level of the hierarchy.
pub trait LookupStage {
    /// For each packet in `miss`, looks up its key; on a hit writes `hits`. Returns the packets still missing.
    ///
    /// A hit is verified: the key under the megaflow's mask equals the megaflow's key. The result is a subset of
    /// `miss`; `hits` is written only where this stage hit.
    fn lookup<'g>(&mut self, pass: &Pass<'_, 'g>, miss: BatchMask, hits: &mut Hits<'g>) -> BatchMask;
}

/// The hash of a key: low bits pick a bucket, the high 32 are the tag.
///
/// Of all that is known of a connection, only what stands in line 0 counts: state, zone and mark. The rest (line 2)
/// follows from the packet's own addresses as a rule; packets that differ there alone share an entry.
#[inline(always)]
pub fn key_hash(secret: &HashKey, key: &PacketKey) -> u64 {
    const FURTHER: u64 =
        (1 << layout::IPV6_SRC.line() | 1 << layout::TUN_ID.line()) << (layout::PRESENCE.offset % 8 * 8);
    let words = compare::words(&key.lines[0].0);
    let mut sum = secret.line(0, &words);
    if words[layout::PRESENCE.offset / 8] & FURTHER != 0 {
        sum = sum.wrapping_add(further_lines(secret, key));
    }
    hash::finish(sum)
}

#[inline(never)]
fn further_lines(secret: &HashKey, key: &PacketKey) -> u64 {
    let line = |i: usize| secret.line(i, &compare::words(&key.line(i).0));
    line(layout::IPV6_SRC.line()).wrapping_add(line(layout::TUN_ID.line()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes of one packet differ in where they come from and in what connection tracking has found, and in nothing
    /// else: they must not meet in one bucket, or under one tag.
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
