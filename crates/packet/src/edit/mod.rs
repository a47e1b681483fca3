//! Rewriting headers in place, including checksums; pushing and popping tags and labels.
//!
//! The result is that of Open vSwitch's userspace datapath, byte for byte, except for its checksum mistakes:
//!
//! - it changes two bytes in the data of later IPv4 fragments as if they were a checksum;
//! - it does not update the checksum of an IPv6 packet in a single fragment, nor that of one whose source changes while
//!   a routing header has segments left;
//! - it recomputes a wrong checksum when neighbour-discovery flags or an option type change.
//!
//! Here checksums are updated, never recomputed: a wrong checksum stays wrong, so that damage remains visible.
//! `crates/action/tests/open_vswitch_edits.txt` has a packet for each case.

mod span;
mod tags;

use crate::{Layers, checksum};
use sluice_fate::DropReason;
use span::{CoveringSum, FieldSpan};

pub use tags::{pop_mpls, pop_vlan, push_mpls, push_vlan, set_ethernet};

/// Why a packet could not be edited. The packet is then unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditError {
    /// No room in front of the packet for another header.
    NoHeadroom,
    /// The packet has no such header, or not all of it.
    NoHeader,
}

impl std::fmt::Display for EditError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            EditError::NoHeadroom => "no room in front of the packet for another header",
            EditError::NoHeader => "the packet does not have the header to be edited, or not all of it",
        })
    }
}

impl std::error::Error for EditError {}

impl From<EditError> for DropReason {
    fn from(error: EditError) -> Self {
        match error {
            EditError::NoHeadroom => DropReason::NoHeadroom,
            EditError::NoHeader => DropReason::ActionMismatch,
        }
    }
}

/// A header field that can be rewritten. Values are in network byte order; those of single bytes are one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// Ethernet source address, 6 bytes.
    EthernetSrc,
    /// Ethernet destination address, 6 bytes.
    EthernetDst,
    /// The outermost MPLS label stack entry, 4 bytes.
    Mpls,
    /// Low byte of the ARP operation; a key has only this byte. Writing all of it sets the high byte to 0.
    ArpOp,
    /// ARP sender protocol address, 4 bytes.
    ArpSpa,
    /// ARP target protocol address, 4 bytes.
    ArpTpa,
    /// ARP sender hardware address, 6 bytes.
    ArpSha,
    /// ARP target hardware address, 6 bytes.
    ArpTha,
    /// IPv4 source, 4 bytes.
    Ipv4Src,
    /// IPv4 destination, 4 bytes.
    Ipv4Dst,
    /// IPv4 type of service.
    Ipv4Tos,
    /// IPv4 time to live.
    Ipv4Ttl,
    /// IPv6 source, 16 bytes.
    Ipv6Src,
    /// IPv6 destination, 16 bytes.
    Ipv6Dst,
    /// IPv6 flow label, the low 20 bits of 4 bytes.
    Ipv6Label,
    /// IPv6 traffic class.
    Ipv6TrafficClass,
    /// IPv6 hop limit.
    Ipv6HopLimit,
    /// TCP source port, 2 bytes.
    TcpSrc,
    /// TCP destination port, 2 bytes.
    TcpDst,
    /// UDP source port, 2 bytes.
    UdpSrc,
    /// UDP destination port, 2 bytes.
    UdpDst,
    /// SCTP source port, 2 bytes.
    SctpSrc,
    /// SCTP destination port, 2 bytes.
    SctpDst,
    /// ICMP or ICMPv6 type.
    IcmpType,
    /// ICMP or ICMPv6 code.
    IcmpCode,
    /// Neighbour-discovery reserved field, 4 bytes.
    NdReserved,
    /// Neighbour-discovery target, 16 bytes.
    NdTarget,
    /// Type of the first neighbour-discovery option.
    NdOptionType,
    /// Source link-layer address, 6 bytes, if it is the first such option.
    NdSourceLink,
    /// Target link-layer address, 6 bytes, if it is the first such option.
    NdTargetLink,
}

/// Rewrites the bits of a field that `mask` selects, and the checksums that cover it.
///
/// `layers` is the result of parsing these bytes, and stays valid. Bytes missing from `value` and `mask` count as zero;
/// bits of `value` outside the mask are ignored.
#[inline]
pub fn set(bytes: &mut [u8], layers: &Layers, field: Field, value: &[u8], mask: &[u8]) -> Result<(), EditError> {
    let span = span::of(bytes, layers, field).ok_or(EditError::NoHeader)?;
    if field == Field::ArpOp && mask.first() == Some(&0xff) {
        // As in OVS. Otherwise an operation above 255 would keep its high byte.
        bytes[span.at - 1] = 0;
    }
    // Constant sizes, so that fields are loads and stores instead of loops.
    match span.size {
        1 => rewrite::<1>(bytes, &span, value, mask),
        2 => rewrite::<2>(bytes, &span, value, mask),
        4 => rewrite::<4>(bytes, &span, value, mask),
        6 => rewrite::<6>(bytes, &span, value, mask),
        _ => rewrite::<16>(bytes, &span, value, mask),
    }
}

/// Rewrites a field of `N` bytes.
#[inline]
fn rewrite<const N: usize>(bytes: &mut [u8], span: &FieldSpan, value: &[u8], mask: &[u8]) -> Result<(), EditError> {
    let field = bytes.get_mut(span.at..).and_then(|rest| rest.first_chunk_mut::<N>()).ok_or(EditError::NoHeader)?;
    let before = *field;
    let (old, value, mask) = (word(&before), word(&span.bits_of::<N>(value)), word(&span.bits_of::<N>(mask)));
    let new = old & !mask | value & mask;
    if new == old {
        return Ok(());
    }
    let after = bytes_of::<N>(new);
    *field = after;
    if span.sums[0].is_none() {
        return Ok(());
    }
    let change = match (N, span.is_low_byte) {
        (1, true) => checksum::change(&[0, before[0]], &[0, after[0]]),
        (1, false) => checksum::change(&[before[0], 0], &[after[0], 0]),
        _ => checksum::change(&before, &after),
    };
    for sum in span.sums.iter().flatten() {
        match *sum {
            CoveringSum::Internet { at } => put_checksum(bytes, at, |old| checksum::apply(old, change)),
            CoveringSum::Udp { at } => put_checksum(bytes, at, |old| checksum::apply_udp(old, change)),
            CoveringSum::Sctp { l4, end } => {
                let behind = end.saturating_sub(span.at + N);
                put_crc(bytes, l4 + 8, checksum::crc32c_difference(&before, &after, behind));
            }
        }
    }
    Ok(())
}

/// A field as a number, so that all its bits change at once.
#[inline]
fn word<const N: usize>(field: &[u8; N]) -> u128 {
    let mut bytes = [0; 16];
    bytes[..N].copy_from_slice(field);
    u128::from_le_bytes(bytes)
}

/// A number as a field.
#[inline]
fn bytes_of<const N: usize>(word: u128) -> [u8; N] {
    *word.to_le_bytes().first_chunk().expect("invariant: fields have at most 16 bytes")
}

/// Replaces the checksum at `at`, whose presence was checked.
#[inline]
fn put_checksum(bytes: &mut [u8], at: usize, new: impl Fn(u16) -> u16) {
    if let Some(checksum) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        *checksum = new(u16::from_be_bytes(*checksum)).to_be_bytes();
    }
}

/// Changes SCTP's checksum at `at`, which is stored little-endian.
fn put_crc(bytes: &mut [u8], at: usize, change: u32) {
    if let Some(crc) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
        *crc = (u32::from_le_bytes(*crc) ^ change).to_le_bytes();
    }
}
