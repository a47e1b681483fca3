//! Extraction: from the bytes of a packet to its key.
//!
//! The reading is Open vSwitch's (3.1): a header counts when all of it is there and its lengths make sense; otherwise
//! the fields are those of the headers in front of it. The one error is a packet too short for an Ethernet header.
//!
//! Three paths, the same answers. [`commonest`] makes the key of most packets by shuffles, where the processor has wide
//! ones: [`extract_with`]. [`ordinary`] reads what nearly every packet is (IPv4 without options, IPv6 without
//! extension headers, a whole L4 header) from a few fixed places and writes whole lines: line 0, for IPv6 line 1 too.
//! [`general`] walks over the headers with [`Layers`] and copies field by field. The plain twin, written apart from
//! all, is in crate `oracle`.
//!
//! Layer offsets are not handed out: most packets are never edited, so edits walk again ([`Layers::of`]).

mod commonest;
mod general;
mod ordinary;

use crate::{PacketKey, layout};
use sluice_fate::DropReason;
use sluice_packet::{Layers, VlanLimit};
use sluice_simd::VectorOps;
use sluice_simd::vector_ops::Scalar;

/// Why a packet has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Shorter than an Ethernet header.
    #[error("the frame is shorter than an Ethernet header")]
    Runt,
}

impl From<ParseError> for DropReason {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Runt => DropReason::RxRunt,
        }
    }
}

/// What is known about a packet besides its bytes, in the form of a key's line 0.
///
/// Make one per port and reuse it: a packet just received has nothing but its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))] // so that vectors of it are loaded by one instruction
pub struct Metadata {
    /// The words of line 0, little-endian, presence byte zero; all but the first three are zero.
    words: [u64; 8],
    vlan_limit: VlanLimit,
}

/// Bytes of line 0 that [`Metadata`] fills: everything in front of the Ethernet header.
const METADATA_SIZE: usize = 24;
/// Bit of a little-endian tag that says in a key that the tag is there: CFI, in the TCI's first byte.
const TAG_PRESENT: u32 = u32::from_le_bytes([0, 0, 0x10, 0]);
const _: () = assert!(layout::PRESENCE.offset == METADATA_SIZE - 1 && layout::DL_DST.offset == METADATA_SIZE);

impl Metadata {
    /// A packet just received by a port, of which as many tags are read as a key holds.
    #[inline]
    pub const fn of_port(in_port: u32) -> Self {
        Metadata { words: [in_port.swap_bytes() as u64, 0, 0, 0, 0, 0, 0, 0], vlan_limit: VlanLimit::MAX }
    }

    /// The same of a packet of which no more tags are read than `vlan_limit` allows.
    #[inline]
    pub const fn with_vlan_limit(self, vlan_limit: VlanLimit) -> Self {
        Metadata { vlan_limit, ..self }
    }

    /// The port.
    pub const fn in_port(&self) -> u32 {
        (self.words[0] as u32).swap_bytes()
    }

    /// The same of a packet that came by another port, as the first pass: without recirculation id. What a tunnel port takes
    /// out of a tunnel begins anew there.
    #[inline]
    pub const fn at_port(mut self, in_port: u32) -> Self {
        self.words[0] = in_port.swap_bytes() as u64;
        self
    }

    /// The same without a hash and without a connection: port, recirculation id and mark.
    #[inline]
    pub const fn without_hash_and_connection(mut self) -> Self {
        const MARK: u64 = !0 << (8 * (layout::PKT_MARK.offset - layout::DP_HASH.offset));
        (self.words[1], self.words[2]) = (self.words[1] & MARK, 0);
        self
    }

    /// Makes a key one that says this and nothing of the packet's bytes.
    #[inline]
    pub fn put(&self, key: &mut PacketKey) {
        key.lines[0] = crate::Line::from_words(self.words);
    }

    /// Adds this to a key made of a packet's bytes without it.
    #[inline(always)]
    pub fn add_to(&self, key: &mut PacketKey) {
        let (words, _) = key.lines[0].0.as_chunks_mut::<8>();
        for (to, word) in words.iter_mut().zip(self.words).take(METADATA_SIZE / 8) {
            *to = (u64::from_le_bytes(*to) | word).to_le_bytes();
        }
    }

    /// What a key says besides the packet's bytes: port, recirculation id, hash, mark and connection.
    #[inline]
    pub fn of_key(key: &PacketKey) -> Self {
        let words = key.lines[0].words();
        // The presence byte is the last one of word 2.
        let words = [words[0], words[1], words[2] & (u64::MAX >> 8), 0, 0, 0, 0, 0];
        Metadata { words, vlan_limit: VlanLimit::MAX }
    }
}

/// Reads a packet's key. Every field not in the packet or `metadata` is zero afterwards, whatever `key` held.
///
/// Only the lines the packet needs are written; for ordinary IPv4 that is line 0.
#[inline(always)]
pub fn extract(bytes: &[u8], metadata: &Metadata, key: &mut PacketKey) -> Result<(), ParseError> {
    extract_with(Scalar, bytes, metadata, key)
}

/// [`extract`], with an instruction set's vector operations.
#[inline(always)]
pub fn extract_with<V: VectorOps>(
    ops: V,
    bytes: &[u8],
    metadata: &Metadata,
    key: &mut PacketKey,
) -> Result<(), ParseError> {
    let is_done = V::SHUFFLES && commonest::read(ops, bytes, metadata, key) || ordinary::read(bytes, metadata, key);
    if is_done { Ok(()) } else { general::extract(bytes, metadata, key) }
}

/// Four bytes at `at` as a little-endian number. `at` is a constant that fits.
#[inline(always)]
fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("invariant: callers pass a header that has these bytes"))
}

/// Reads a packet's key anew after its bytes have changed, keeping what the key knows besides them.
///
/// As in OVS, the original tuple stays only if the packet is still of its kind (IPv4 or IPv6), and its ports only if
/// the packet has an L4 header.
pub fn extract_again(bytes: &[u8], vlan_limit: VlanLimit, key: &mut PacketKey) -> Result<(), ParseError> {
    let layers = Layers::with_vlan_limit(bytes, vlan_limit).ok_or(ParseError::Runt)?;
    let before = *key;
    let has_l4 = general::read(bytes, &layers, &Metadata::of_key(&before), key);
    general::keep_connection(&before, &layers, has_l4, key);
    general::keep_tunnel(&before, key);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ethernet, IPv4 and UDP from 10.0.0.1:1000 to 10.0.0.2:2000.
    fn udp() -> Vec<u8> {
        let mut packet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        packet.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend([0x03, 0xe8, 0x07, 0xd0, 0, 8, 0, 0]);
        packet
    }

    #[test]
    fn an_ordinary_packet_fills_line_0() {
        let mut key = PacketKey { lines: [crate::Line([0xff; 64]); crate::layout::PACKET_LINES] };
        extract(&udp(), &Metadata::of_port(7), &mut key).unwrap();
        assert_eq!(key.in_port(), 7);
        assert_eq!(key.get(layout::DL_DST), [2, 0, 0, 0, 0, 2]);
        assert_eq!(key.number(layout::DL_TYPE), 0x0800);
        assert_eq!(key.get(layout::NW_DST), [10, 0, 0, 2]);
        assert_eq!((key.number(layout::NW_PROTO), key.number(layout::NW_TTL)), (17, 64));
        assert_eq!((key.number(layout::TP_SRC), key.number(layout::TP_DST)), (1000, 2000));
        assert_eq!(key.number(layout::PRESENCE), 0);
    }

    #[test]
    fn metadata_can_be_reduced_and_stand_for_itself() {
        let mut key = PacketKey::ZERO;
        let fields = [
            (layout::RECIRC_ID, 7),
            (layout::DP_HASH, 8),
            (layout::PKT_MARK, 9),
            (layout::CT_MARK, 10),
            (layout::CT_STATE, 11),
            (layout::IPV6_LABEL, 12),
        ];
        fields.into_iter().for_each(|(span, n)| key.set(span, &u32::to_be_bytes(n)[4 - span.size..]));
        let metadata = Metadata::of_key(&key).without_hash_and_connection();
        let numbers = |key: &PacketKey| fields.map(|(span, _)| key.number(span));
        let mut reduced = key;
        metadata.put(&mut reduced);
        assert_eq!(numbers(&reduced), [7, 0, 9, 0, 0, 0]);
        metadata.at_port(3).put(&mut key);
        assert_eq!((key.in_port(), numbers(&key)), (3, [0, 0, 9, 0, 0, 0]));
    }

    #[test]
    fn a_runt_is_an_error_by_name() {
        let error = extract(&udp()[..13], &Metadata::of_port(7), &mut PacketKey::default()).unwrap_err();
        assert_eq!(DropReason::from(error), DropReason::RxRunt);
        assert!(extract(&udp()[..14], &Metadata::of_port(7), &mut PacketKey::default()).is_ok());
    }
}
