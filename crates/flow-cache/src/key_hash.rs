//! The hash of a key, and that of a flow.

use sluice_flow::{LINE_SIZE, PacketKey, layout};
use sluice_packet::BATCH_MAX;
use sluice_simd::vector_ops::TOGETHER;
use sluice_simd::{HashKey, VectorOps, compare, hash};

/// The hash of a key: the low bits select a bucket, the high 32 are the tag.
///
/// Of the connection fields only those in line 0 count: state, zone and mark. The others (line 2) usually follow from
/// the packet's own addresses; packets that differ only there share an entry.
pub fn key_hash(secret: &HashKey, key: &PacketKey) -> u64 {
    let mut sum = secret.line(0, &compare::words(&key.lines[0].0));
    if presence(key) & FURTHER != 0 {
        for line in FURTHER_LINES {
            if presence(key) >> line & 1 != 0 {
                sum = sum.wrapping_add(secret.line(line, &compare::words(&key.lines[line].0)));
            }
        }
    }
    hash::finish(sum)
}

/// A hash of the flow to which `key` belongs under `mask`: the same for all its packets, all 64 bits well distributed.
///
/// Costs what the lines cost in which the masked key has bits: for IPv4 that is one.
pub fn flow_hash(secret: &HashKey, key: &PacketKey, mask: &PacketKey) -> u64 {
    let mut first = compare::words(&key.lines[0].and(&mask.lines[0]).0);
    first[layout::PRESENCE.offset / 8] &= !(0xff << (layout::PRESENCE.offset % 8 * 8));
    let mut sum = secret.line(0, &first);
    let both = presence(key) & presence(mask);
    for i in 1..layout::PACKET_LINES {
        if both >> i & 1 == 0 {
            continue;
        }
        // A packet that has no such line belongs to the same flow as one whose line is zero under the mask.
        let line = key.lines[i].and(&mask.lines[i]);
        if !line.is_zero() {
            sum = sum.wrapping_add(secret.line(i, &compare::words(&line.0)));
        }
    }
    hash::finish(sum)
}

/// The lines behind line 0 that count. A line that a key does not have adds nothing. Of a tunnel's options the first line
/// alone counts: packets that differ behind its 60 bytes share an entry.
const FURTHER_LINES: [usize; 3] = [layout::IPV6_SRC.line(), layout::TUN_ID.line(), layout::OPTIONS_LINE];
/// The same as bits of the presence byte.
const FURTHER: u8 = 1 << FURTHER_LINES[0] | 1 << FURTHER_LINES[1] | 1 << FURTHER_LINES[2];

/// Fewer keys than this are hashed one by one if some have further lines.
const FEW: usize = 3;

/// Which further lines a key has.
#[inline(always)]
fn presence(key: &PacketKey) -> u8 {
    key.lines[0].0[layout::PRESENCE.offset]
}

/// The hashes of the first `n` keys. Hashes behind them are overwritten.
#[inline(always)]
pub fn key_hashes<V: VectorOps>(
    ops: V,
    secret: &HashKey,
    keys: &[PacketKey; BATCH_MAX],
    n: usize,
    hashes: &mut [u64; BATCH_MAX],
) {
    // Few batches have further lines, and the others need not ask about each packet.
    if further_lines(&keys[..n]) == 0 {
        hashes_of_lines::<V, false>(ops, secret, keys, n, hashes);
    } else {
        hashes_of_lines::<V, true>(ops, secret, keys, n, hashes);
    }
}

/// [`key_hashes`] of as many keys as are hashed together, of which the first `n` count.
#[inline(always)]
pub fn hashes_together<V: VectorOps>(
    ops: V,
    secret: &HashKey,
    keys: &[PacketKey; TOGETHER],
    n: usize,
    hashes: &mut [u64; TOGETHER],
) {
    if further_lines(&keys[..n]) == 0 {
        hashes_of_some::<V, false>(ops, secret, keys, n, hashes);
    } else {
        hashes_of_some::<V, true>(ops, secret, keys, n, hashes);
    }
}

/// The further lines that some key has.
#[inline(always)]
fn further_lines(keys: &[PacketKey]) -> u8 {
    let mut all = 0;
    for key in keys {
        all |= presence(key);
    }
    all & FURTHER
}

/// [`key_hashes`]; of line 0 only if the keys have no other line that counts.
#[inline(always)]
fn hashes_of_lines<V: VectorOps, const HAS_FURTHER: bool>(
    ops: V,
    secret: &HashKey,
    keys: &[PacketKey; BATCH_MAX],
    n: usize,
    hashes: &mut [u64; BATCH_MAX],
) {
    // Plain loops: an iterator's closures would be functions of their own, not compiled for the instruction set.
    let (keys, _) = keys.as_chunks::<TOGETHER>();
    let (hashes, _) = hashes.as_chunks_mut::<TOGETHER>();
    for at in 0..n.div_ceil(TOGETHER).min(BATCH_MAX / TOGETHER) {
        hashes_of_some::<V, HAS_FURTHER>(ops, secret, &keys[at], n - at * TOGETHER, &mut hashes[at]);
    }
}

#[inline(always)]
fn hashes_of_some<V: VectorOps, const HAS_FURTHER: bool>(
    ops: V,
    secret: &HashKey,
    keys: &[PacketKey; TOGETHER],
    n: usize,
    hashes: &mut [u64; TOGETHER],
) {
    if HAS_FURTHER && n < FEW {
        for i in 0..n {
            hashes[i] = key_hash(secret, &keys[i]);
        }
        return;
    }
    let mut sums = ops.sums(secret.addends_of_line(0), lines_of(keys, 0));
    if HAS_FURTHER {
        for line in FURTHER_LINES {
            add_line(ops, secret, keys, line, &mut sums);
        }
    }
    for i in 0..TOGETHER {
        hashes[i] = hash::finish(sums[i]);
    }
}

/// One line of some keys, as it is stored.
#[inline(always)]
fn lines_of(keys: &[PacketKey; TOGETHER], line: usize) -> [&[u8; LINE_SIZE]; TOGETHER] {
    let mut lines = [&keys[0].lines[line].0; TOGETHER];
    for i in 0..TOGETHER {
        lines[i] = &keys[i].lines[line].0;
    }
    lines
}

/// Adds what a further line adds to the sums of those keys that have it.
#[inline(always)]
fn add_line<V: VectorOps>(
    ops: V,
    secret: &HashKey,
    keys: &[PacketKey; TOGETHER],
    line: usize,
    sums: &mut [u64; TOGETHER],
) {
    let mut any = 0;
    for key in keys {
        any |= presence(key) >> line;
    }
    if any & 1 == 0 {
        return;
    }
    let further = ops.sums(secret.addends_of_line(line), lines_of(keys, line));
    for i in 0..TOGETHER {
        // All bits if the key has the line: what a line that is absent holds has no meaning.
        let has = 0u64.wrapping_sub(u64::from(presence(&keys[i]) >> line & 1));
        sums[i] = sums[i].wrapping_add(further[i] & has);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sluice_action::agree_under;
    use sluice_flow::Line;
    use sluice_simd::Isa;
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
                // What an absent line holds is no part of the key.
                key.lines[1..].iter_mut().for_each(|line| line.0.fill(i as u8));
                if i == v6_at {
                    key.set(layout::IPV6_SRC, &[3; 16]);
                }
                if v6_at < 8 && i % 3 == 1 {
                    key.set(layout::TUN_ID, &[i as u8; 8]);
                }
                if v6_at < 8 && i % 5 == 1 {
                    key.put_options(&[0, 1, 1, 0]);
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

    /// A key or a mask: line 0 with one of two values, and some further lines, which may be zero.
    fn some_lines() -> impl Strategy<Value = PacketKey> {
        (0..2u8, prop::collection::vec((1..layout::PACKET_LINES, 0..3u8), 0..4)).prop_map(|(first, further)| {
            let mut key = PacketKey::ZERO;
            key.set(layout::NW_SRC, &[10, 0, 0, first]);
            for (i, byte) in further {
                key.put_line(i, Line([byte; LINE_SIZE]));
            }
            key
        })
    }

    proptest! {
        #[test]
        fn packets_of_one_flow_have_one_hash(a in some_lines(), b in some_lines(), mask in some_lines()) {
            let hash = |key| flow_hash(&HashKey::from_seed(5), key, &mask);
            prop_assert_eq!(hash(&a) == hash(&b), agree_under(&mask, &a, &b));
        }
    }

    /// Passes of a packet differ only in recirculation id and connection state. They must not share a bucket or a tag.
    #[test]
    fn passes_of_a_packet_have_hashes_of_their_own() {
        let secret = HashKey::from_seed(3);
        let spans = [layout::RECIRC_ID, layout::CT_STATE, layout::CT_ZONE, layout::CT_MARK];
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
