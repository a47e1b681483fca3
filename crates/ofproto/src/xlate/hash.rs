//! The hashes of `multipath`, `bundle` and groups.
//!
//! Users depend on their values: two switches in a row, or one switch before and after an upgrade, must choose the same
//! link. So these are OVS's, bit for bit: Bob Jenkins's lookup3 over the fields, MurmurHash3 ([`sluice_flow::hash`]) to
//! mix words.
//! Source: `lib/jhash.c`, `lib/flow.c` of 3.1.

use super::protocol::{ethertype_of, ip_proto_of, is_ip};
use super::tags;
use sluice_flow::FlowKey;
use sluice_flow::hash::{murmur_add, murmur_finish, symmetric_l3l4};
use sluice_flow::layout::{self, Span};
use sluice_ofp::ofpact::{HashFields, MultipathAlgorithm};
use sluice_packet::headers::{ethertype, ip_proto};

/// Jenkins's lookup3 of bytes, as little-endian words.
pub fn jenkins(bytes: &[u8], basis: u32) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(bytes.len() as u32).wrapping_add(basis);
    let mut s = [start; 3];
    let mut blocks = bytes.chunks_exact(12);
    for block in &mut blocks {
        add_block(&mut s, block);
        mix(&mut s);
    }
    if !blocks.remainder().is_empty() {
        let mut last = [0; 12];
        last[..blocks.remainder().len()].copy_from_slice(blocks.remainder());
        add_block(&mut s, &last);
        finish(&mut s);
    }
    s[2]
}

fn add_block(s: &mut [u32; 3], block: &[u8]) {
    let (words, _) = block.as_chunks::<4>();
    s.iter_mut().zip(words).for_each(|(s, w)| *s = s.wrapping_add(u32::from_le_bytes(*w)));
}

fn mix(s: &mut [u32; 3]) {
    // Step i subtracts the left neighbour of word i and mixes in that neighbour, rotated; then adds the right one to
    // it.
    for (i, rotate) in [4, 6, 8, 16, 19, 4].into_iter().enumerate() {
        let (at, left, right) = (i % 3, (i + 2) % 3, (i + 1) % 3);
        s[at] = s[at].wrapping_sub(s[left]) ^ s[left].rotate_left(rotate);
        s[left] = s[left].wrapping_add(s[right]);
    }
}

fn finish(s: &mut [u32; 3]) {
    for (i, rotate) in [14, 11, 25, 16, 4, 14, 24].into_iter().enumerate() {
        let (at, from) = ((i + 2) % 3, (i + 1) % 3);
        s[at] = (s[at] ^ s[from]).wrapping_sub(s[from].rotate_left(rotate));
    }
}

/// Adds a truth to a hash. Source: `lib/hash.h`, `hash_boolean`.
pub fn of_bool(is_true: bool, basis: u32) -> u32 {
    const OF_TRUE: u32 = 0xc2b7_3583;
    const OF_FALSE: u32 = 0xe90f_1258;
    (if is_true { OF_TRUE } else { OF_FALSE }) ^ basis.rotate_left(1)
}

/// The hash of two words.
pub fn two_words(x: u32, y: u32) -> u32 {
    murmur_finish(murmur_add(murmur_add(x, 0), y), 8)
}

/// The link, of `links`, that a hash selects.
pub fn choose_link(hash: u32, algorithm: MultipathAlgorithm, links: u32, arg: u32) -> u16 {
    let link = match algorithm {
        MultipathAlgorithm::ModuloN => hash % links,
        MultipathAlgorithm::HashThreshold if links == 1 => 0,
        MultipathAlgorithm::HashThreshold => hash / (u32::MAX / links + 1),
        MultipathAlgorithm::Hrw if links <= 64 => highest_weight(hash, links),
        MultipathAlgorithm::Hrw => hash_again(hash, links, 0),
        MultipathAlgorithm::IterHash => hash_again(hash, links, arg),
    };
    link as u16
}

/// The link with the highest weight; of equal ones the first.
fn highest_weight(hash: u32, links: u32) -> u32 {
    (0..links).rev().max_by_key(|&link| two_words(hash, link)).unwrap_or(0)
}

/// Hashes until the remainder is a link. `modulo` is used if it is between `links` and about twice that.
fn hash_again(hash: u32, links: u32, modulo: u32) -> u32 {
    let modulo = if modulo < links || modulo / 2 > links { links.next_power_of_two() } else { modulo };
    let mut tries = (0..).map(|i| two_words(hash, i) % modulo);
    tries.find(|&link| link < links).unwrap_or(0)
}

/// The hash of a set of fields, starting from `basis`.
pub fn of_fields(key: &FlowKey, fields: HashFields, basis: u16) -> u32 {
    let basis = basis.into();
    let address = |v4: Span, v6: Span| match ethertype_of(key) {
        ethertype::IPV4 => jenkins(key.get(v4), basis),
        ethertype::IPV6 => jenkins(key.get(v6), basis),
        _ => basis,
    };
    match fields {
        HashFields::EthSrc => jenkins(key.get(layout::DL_SRC), basis),
        HashFields::SymmetricL4 => symmetric_l4(key, basis),
        HashFields::SymmetricL3L4 => symmetric_l3l4(&key.packet_part(), basis, false),
        HashFields::SymmetricL3L4Udp => symmetric_l3l4(&key.packet_part(), basis, true),
        HashFields::NwSrc => address(layout::NW_SRC, layout::IPV6_SRC),
        HashFields::NwDst => address(layout::NW_DST, layout::IPV6_DST),
        HashFields::SymmetricL3 => {
            let mut bytes = [0; 20];
            bytes[..16].copy_from_slice(&both_addresses(key));
            bytes[16..18].copy_from_slice(key.get(layout::DL_TYPE));
            jenkins(&bytes, basis)
        }
    }
}

fn xor<const N: usize>(key: &FlowKey, a: Span, b: Span) -> [u8; N] {
    let (a, b) = (key.get(a), key.get(b));
    std::array::from_fn(|i| a[i] ^ b[i])
}

/// The exclusive or of IP source and destination; zeros for other packets.
fn both_addresses(key: &FlowKey) -> [u8; 16] {
    let mut out = [0; 16];
    match ethertype_of(key) {
        ethertype::IPV4 => out[..4].copy_from_slice(&xor::<4>(key, layout::NW_SRC, layout::NW_DST)),
        ethertype::IPV6 => out = xor(key, layout::IPV6_SRC, layout::IPV6_DST),
        _ => {}
    }
    out
}

fn both_vids(key: &FlowKey) -> [u8; 2] {
    let vids = (0..tags::MAX_TAGS).fold(0, |v, i| v ^ tags::tag(key, i).tci & tags::VID as u16);
    vids.to_be_bytes()
}

fn symmetric_l4(key: &FlowKey, basis: u32) -> u32 {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&both_addresses(key));
    bytes[16..18].copy_from_slice(key.get(layout::DL_TYPE));
    bytes[18..20].copy_from_slice(&both_vids(key));
    if is_ip(key) {
        let proto = ip_proto_of(key);
        if matches!(proto, ip_proto::TCP | ip_proto::SCTP) {
            bytes[20..22].copy_from_slice(&xor::<2>(key, layout::TP_SRC, layout::TP_DST));
        }
        bytes[28] = proto;
    }
    bytes[22..28].copy_from_slice(&xor::<6>(key, layout::DL_SRC, layout::DL_DST));
    jenkins(&bytes, basis)
}

/// Adds the bits that [`of_fields`] reads to the mask.
///
/// As OVS, except that its `symmetric_l3l4` hashes the Ethernet header of non-IP packets without matching it.
pub fn look_at_fields(key: &FlowKey, wc: &mut FlowKey, fields: HashFields) {
    use layout::*;
    let exact = |wc: &mut FlowKey, spans: &[Span]| spans.iter().for_each(|&span| wc.get_mut(span).fill(0xff));
    let addresses: &[Span] = match ethertype_of(key) {
        ethertype::IPV4 => &[NW_SRC, NW_DST],
        ethertype::IPV6 => &[IPV6_SRC, IPV6_DST],
        _ => &[],
    };
    let proto = ip_proto_of(key);
    match fields {
        HashFields::EthSrc => exact(wc, &[DL_SRC]),
        HashFields::SymmetricL4 => {
            exact(wc, &[DL_SRC, DL_DST]);
            exact(wc, addresses);
            if is_ip(key) {
                exact(wc, &[NW_PROTO]);
                if proto == ip_proto::ICMP {
                    wc.set_number(TP_SRC, 0xff);
                    wc.set_number(TP_DST, 0xff);
                } else if proto != ip_proto::UDP {
                    exact(wc, &[TP_SRC, TP_DST]);
                }
            }
            (0..tags::MAX_TAGS).for_each(|i| tags::look_at_tci(wc, i, tags::VID | tags::CFI));
        }
        HashFields::SymmetricL3L4 | HashFields::SymmetricL3L4Udp => {
            if addresses.is_empty() {
                exact(wc, &[DL_SRC, DL_DST]);
                (0..tags::MAX_TAGS).for_each(|i| tags::look_at_tci(wc, i, tags::VID | tags::CFI));
                return;
            }
            exact(wc, addresses);
            exact(wc, &[NW_PROTO]);
            let udp = fields == HashFields::SymmetricL3L4Udp && proto == ip_proto::UDP;
            if (matches!(proto, ip_proto::TCP | ip_proto::SCTP) || udp) && key.number(NW_FRAG) == 0 {
                exact(wc, &[TP_SRC, TP_DST]);
            }
        }
        HashFields::NwSrc => exact(wc, addresses.get(..1).unwrap_or_default()),
        HashFields::NwDst => exact(wc, addresses.get(1..).unwrap_or_default()),
        HashFields::SymmetricL3 => exact(wc, addresses),
    }
}
