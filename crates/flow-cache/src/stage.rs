//! What every level of the hierarchy has in common.

use crate::Megaflow;
use sluice_flow::{PacketKey, layout};
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::{HashKey, compare, hash};
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

/// The hash of a whole key: low bits pick a bucket, the high 32 are the tag.
#[inline(always)]
pub fn key_hash(secret: &HashKey, key: &PacketKey) -> u64 {
    let words = compare::words(&key.lines[0].0);
    let mut sum = secret.line(0, &words);
    if words[layout::PRESENCE.offset / 8] >> (layout::PRESENCE.offset % 8 * 8) & 0xff != 0 {
        sum = sum.wrapping_add(further_lines(secret, key));
    }
    hash::finish(sum)
}

#[inline(never)]
fn further_lines(secret: &HashKey, key: &PacketKey) -> u64 {
    (1..4).fold(0, |sum: u64, i| sum.wrapping_add(secret.line(i, &compare::words(&key.line(i).0))))
}
