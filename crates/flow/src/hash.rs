//! Hashes of packets that choose among links and buckets.
//!
//! MurmurHash3 over the fields, as Open vSwitch has it, so that the same bucket is chosen. They are not keyed, so an
//! attacker can predict them; the caches use a keyed hash of their own. Source: OVS, `lib/hash.h` (without SSE 4.2, as
//! Debian builds it), `lib/flow.c`.

use crate::{PacketKey, layout};
use sluice_packet::BATCH_MAX;
use sluice_packet::headers::{ethertype, has_ports, ip_proto};
use sluice_simd::isa::Kernel;
use sluice_simd::{Isa, VectorOps};

/// One word into a MurmurHash3.
#[inline(always)]
pub fn murmur_add(hash: u32, data: u32) -> u32 {
    let data = data.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    (hash ^ data).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

/// Ends a MurmurHash3.
#[inline(always)]
pub fn murmur_finish(hash: u32, last: u32) -> u32 {
    let mut h = hash ^ last;
    h = (h ^ h >> 16).wrapping_mul(0x85eb_ca6b);
    h = (h ^ h >> 13).wrapping_mul(0xc2b2_ae35);
    h ^ h >> 16
}

/// The MurmurHash3 of bytes, read as little-endian words.
pub fn murmur(bytes: &[u8], basis: u32) -> u32 {
    let add = |hash, chunk: &[u8]| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        murmur_add(hash, u32::from_le_bytes(word))
    };
    murmur_finish(bytes.chunks(4).fold(basis, add), bytes.len() as u32)
}

/// The hash of addresses, protocol and ports, the same for both directions. Of a packet that is not IP: of its Ethernet
/// header. `udp`: the ports of UDP count, too, which they do not where fragments might have to follow the first.
pub fn symmetric_l3l4(key: &PacketKey, basis: u32, udp: bool) -> u32 {
    let add_xor = |hash, a: &[u8], b: &[u8]| {
        let word = |chunk: &[u8]| u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        a.chunks_exact(4).zip(b.chunks_exact(4)).fold(hash, |h, (a, b)| murmur_add(h, word(a) ^ word(b)))
    };
    let mut hash = match key.number(layout::DL_TYPE) as u16 {
        ethertype::IPV4 => add_xor(basis, key.get(layout::NW_SRC), key.get(layout::NW_DST)),
        ethertype::IPV6 => add_xor(basis, key.get(layout::IPV6_SRC), key.get(layout::IPV6_DST)),
        _ => return symmetric_l2(key, basis),
    };
    let proto = key.number(layout::NW_PROTO) as u8;
    hash = murmur_add(hash, proto.into());
    let has_ports = matches!(proto, ip_proto::TCP | ip_proto::SCTP) || udp && proto == ip_proto::UDP;
    if has_ports && key.number(layout::NW_FRAG) == 0 {
        let ports = (key.number(layout::TP_SRC) ^ key.number(layout::TP_DST)) as u16;
        hash = murmur_add(hash, ports.swap_bytes().into());
    }
    murmur_finish(hash, basis)
}

/// The hash of both Ethernet addresses together, the type, and all VLAN ids together.
fn symmetric_l2(key: &PacketKey, basis: u32) -> u32 {
    let mut bytes = [0; 12];
    bytes[..2].copy_from_slice(key.get(layout::DL_TYPE));
    let vids = [layout::VLAN0_TCI, layout::VLAN1_TCI].map(|tci| key.number(tci) as u16 & 0xfff);
    bytes[2..4].copy_from_slice(&(vids[0] ^ vids[1]).to_be_bytes());
    let addresses = key.get(layout::DL_SRC).iter().zip(key.get(layout::DL_DST));
    bytes[4..10].iter_mut().zip(addresses).for_each(|(to, (a, b))| *to = a ^ b);
    let word = |chunk: &[u8]| u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
    murmur_finish(bytes.chunks_exact(4).map(word).fold(basis, murmur_add), basis)
}

/// The hash of addresses, protocol and ports; of a packet that is not IP, of nothing.
#[inline]
pub fn five_tuple(key: &PacketKey, basis: u32) -> u32 {
    let word = |chunk: &[u8]| u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
    let add = |hash, bytes: &[u8]| bytes.chunks_exact(4).map(word).fold(hash, murmur_add);
    let mut hash = match key.number(layout::DL_TYPE) as u16 {
        ethertype::IPV4 | ethertype::ARP => add(add(basis, key.get(layout::NW_SRC)), key.get(layout::NW_DST)),
        ethertype::IPV6 => add(add(basis, key.get(layout::IPV6_SRC)), key.get(layout::IPV6_DST)),
        _ => return murmur_finish(basis, FIVE_TUPLE),
    };
    let proto = key.number(layout::NW_PROTO) as u8;
    hash = murmur_add(hash, proto.into());
    if has_ports(proto) {
        hash = murmur_add(hash, ports_of(key));
    }
    murmur_finish(hash, FIVE_TUPLE)
}

/// [`five_tuple`] of each packet of a batch.
#[inline]
pub fn five_tuples(isa: Isa, keys: &[PacketKey], basis: u32) -> [u32; BATCH_MAX] {
    isa.run(FiveTuples { keys, basis })
}

/// Hashes a batch. If it is at least half full and all packets are of IPv4 and have ports, they are hashed side by side.
struct FiveTuples<'a> {
    keys: &'a [PacketKey],
    basis: u32,
}

impl Kernel for FiveTuples<'_> {
    type Output = [u32; BATCH_MAX];

    #[inline(always)]
    fn run<V: VectorOps>(self, _ops: V) -> [u32; BATCH_MAX] {
        let FiveTuples { keys, basis } = self;
        let mut hashes = [0; BATCH_MAX];
        let mut one_by_one = || {
            hashes.iter_mut().zip(keys).for_each(|(hash, key)| *hash = five_tuple(key, basis));
            hashes
        };
        if keys.len() < BATCH_MAX / 2 {
            return one_by_one();
        }
        let (mut sources, mut destinations) = ([0; BATCH_MAX], [0; BATCH_MAX]);
        let (mut protos, mut ports) = ([0; BATCH_MAX], [0; BATCH_MAX]);
        let mut are_v4 = true;
        let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        for (i, key) in keys.iter().take(BATCH_MAX).enumerate() {
            let proto = key.number(layout::NW_PROTO) as u8;
            are_v4 &= key.number(layout::DL_TYPE) as u16 == ethertype::IPV4 && has_ports(proto);
            (sources[i], destinations[i]) = (word(key.get(layout::NW_SRC)), word(key.get(layout::NW_DST)));
            (protos[i], ports[i]) = (proto.into(), ports_of(key));
        }
        if !are_v4 {
            return one_by_one();
        }
        for (i, hash) in hashes.iter_mut().enumerate() {
            let words = [sources[i], destinations[i], protos[i], ports[i]];
            *hash = murmur_finish(words.into_iter().fold(basis, murmur_add), FIVE_TUPLE);
        }
        hashes
    }
}

/// The ports as one word.
#[inline(always)]
fn ports_of(key: &PacketKey) -> u32 {
    (key.number(layout::TP_SRC) << 16 | key.number(layout::TP_DST)) as u32
}

/// What [`five_tuple`] ends with. Source: OVS, `flow_hash_5tuple`.
const FIVE_TUPLE: u32 = 42;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Span;
    use proptest::prelude::*;

    proptest! {
        /// The hashes of a batch are those of its packets, on every instruction set.
        #[test]
        fn a_batch_has_the_hashes_of_its_packets(
            words in prop::collection::vec(any::<[u8; 20]>(), 0..=BATCH_MAX),
            kinds in prop_oneof![3 => Just(vec![(0x0800u16, 17u8)]), 1 => prop::collection::vec(
                prop::sample::select(vec![(0x0800, 6), (0x0800, 1), (0x0800, 47), (0x0806, 1), (0x86dd, 17), (0x88cc, 0)]), 1..4,
            )],
            basis: u32,
        ) {
            let key = |(words, (dl_type, proto)): (&[u8; 20], &(u16, u8))| {
                let mut key = PacketKey::ZERO;
                key.set(layout::DL_TYPE, &dl_type.to_be_bytes());
                key.set(layout::NW_PROTO, &[*proto]);
                for (span, at) in [(layout::NW_SRC, 0), (layout::NW_DST, 4), (layout::TP_SRC, 8), (layout::TP_DST, 10)] {
                    key.set(span, &words[at..at + span.size]);
                }
                key.set(layout::IPV6_DST, &words[4..]);
                key
            };
            let keys: Vec<PacketKey> = words.iter().zip(kinds.iter().cycle()).map(key).collect();
            let expected: Vec<u32> = keys.iter().map(|key| five_tuple(key, basis)).collect();
            for isa in Isa::available() {
                let hashes = five_tuples(isa, &keys, basis);
                prop_assert_eq!(&hashes[..keys.len()], &expected[..], "{:?}", isa);
            }
        }
    }

    fn key(dl_type: u64, proto: u8, swap: bool) -> PacketKey {
        let mut key = PacketKey::ZERO;
        let pairs: [(Span, Span, &[u8], &[u8]); 3] = [
            (layout::DL_SRC, layout::DL_DST, &[2, 0, 0, 0, 0, 1], &[2, 0, 0, 0, 0, 9]),
            (layout::NW_SRC, layout::NW_DST, &[10, 0, 0, 1], &[10, 0, 0, 200]),
            (layout::TP_SRC, layout::TP_DST, &[0, 80], &[200, 7]),
        ];
        key.set(layout::DL_TYPE, &(dl_type as u16).to_be_bytes());
        key.set(layout::NW_PROTO, &[proto]);
        for (a, b, x, y) in pairs {
            let (x, y) = if swap { (y, x) } else { (x, y) };
            key.set(a, x);
            key.set(b, y);
        }
        key
    }

    #[test]
    fn both_directions_have_the_same_symmetric_hash() {
        for (dl_type, proto) in [(0x0800, 6), (0x0800, 17), (0x0800, 1), (0x0806, 0), (0x86dd, 6)] {
            for udp in [false, true] {
                let hash = |swap| symmetric_l3l4(&key(dl_type, proto, swap), 5, udp);
                assert_eq!(hash(false), hash(true), "{dl_type:x} {proto}");
            }
        }
        assert_ne!(five_tuple(&key(0x0800, 6, false), 0), five_tuple(&key(0x0800, 6, true), 0));
    }

    #[test]
    fn ports_count_where_they_should() {
        let other_port = |mut key: PacketKey| {
            key.set(layout::TP_SRC, &[1, 1]);
            key
        };
        let differs = |proto, udp| {
            let key = key(0x0800, proto, false);
            symmetric_l3l4(&key, 0, udp) != symmetric_l3l4(&other_port(key), 0, udp)
        };
        assert!(differs(6, false) && !differs(17, false) && differs(17, true));
        assert_ne!(five_tuple(&key(0x0800, 17, false), 0), five_tuple(&other_port(key(0x0800, 17, false)), 0));
    }

    #[test]
    fn bytes_at_the_end_count() {
        assert_ne!(murmur(&[1, 2, 3, 4, 5], 0), murmur(&[1, 2, 3, 4, 6], 0));
        assert_ne!(murmur(&[1, 2, 3, 4, 0], 0), murmur(&[1, 2, 3, 4], 0));
    }
}
