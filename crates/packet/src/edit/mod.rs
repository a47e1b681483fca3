//! Rewriting headers in place, checksums included, and pushing and popping tags and labels.
//!
//! What Open vSwitch's userspace datapath does, byte for byte, but for its mistakes with checksums. It changes two bytes
//! in the data of later IPv4 fragments as if they were one; leaves behind that of an IPv6 packet in one fragment, or whose
//! source changes while a routing header has segments left; and computes anew the wrong one of a packet whose
//! neighbour-discovery flags or option type change. Here checksums are updated, not computed: one that was wrong stays as
//! wrong, so that damage stays visible. (`crates/action/tests/open_vswitch_edits.txt` has packets for each.)

mod place;
mod tags;

use crate::{Layers, checksum};
use place::{Place, Sum};
use sluice_fate::DropReason;

pub use tags::{pop_mpls, pop_vlan, push_mpls, push_vlan};

/// Why a packet could not be edited. The packet is unchanged then.
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
    /// Low byte of the ARP operation, which is all a key has of it. When all of it is written, the high byte becomes 0.
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
/// `layers` is of these bytes; it stays true. `value` and `mask` are read as far as the field is long (missing bytes
/// count as zero), bits of `value` outside the mask do not matter.
#[inline]
pub fn set(bytes: &mut [u8], layers: &Layers, field: Field, value: &[u8], mask: &[u8]) -> Result<(), EditError> {
    let place = place::of(bytes, layers, field).ok_or(EditError::NoHeader)?;
    if field == Field::ArpOp && mask.first() == Some(&0xff) {
        // As OVS does; otherwise an operation above 255 would keep its upper half.
        bytes[place.at - 1] = 0;
    }
    // Of a known size, so that fields are loads and stores rather than loops.
    match place.size {
        1 => rewrite::<1>(bytes, &place, value, mask),
        2 => rewrite::<2>(bytes, &place, value, mask),
        4 => rewrite::<4>(bytes, &place, value, mask),
        6 => rewrite::<6>(bytes, &place, value, mask),
        _ => rewrite::<16>(bytes, &place, value, mask),
    }
}

/// Rewrites a field of `N` bytes.
#[inline]
fn rewrite<const N: usize>(bytes: &mut [u8], place: &Place, value: &[u8], mask: &[u8]) -> Result<(), EditError> {
    let field = bytes.get_mut(place.at..).and_then(|rest| rest.first_chunk_mut::<N>()).ok_or(EditError::NoHeader)?;
    let before = *field;
    let (old, value, mask) = (word(&before), word(&place.bits_of::<N>(value)), word(&place.bits_of::<N>(mask)));
    let new = old & !mask | value & mask;
    if new == old {
        return Ok(());
    }
    let after = bytes_of::<N>(new);
    *field = after;
    if place.sums[0].is_none() {
        return Ok(());
    }
    let change = match (N, place.is_low_byte) {
        (1, true) => checksum::change(&[0, before[0]], &[0, after[0]]),
        (1, false) => checksum::change(&[before[0], 0], &[after[0], 0]),
        _ => checksum::change(&before, &after),
    };
    for sum in place.sums.iter().flatten() {
        match *sum {
            Sum::Internet { at } => put_checksum(bytes, at, |old| checksum::apply(old, change)),
            Sum::Udp { at } => put_checksum(bytes, at, |old| match old {
                0 => 0, // The sender computed none.
                // Zero would mean none, so it is written as the other zero.
                _ => Some(checksum::apply(old, change)).filter(|new| *new != 0).unwrap_or(0xffff),
            }),
            Sum::Sctp { l4, end } => {
                let behind = end.saturating_sub(place.at + N);
                put_crc(bytes, l4 + 8, checksum::crc32c_difference(&before, &after, behind));
            }
        }
    }
    Ok(())
}

/// A field as a number, so that its bits are changed at once.
#[inline]
fn word<const N: usize>(field: &[u8; N]) -> u128 {
    let mut bytes = [0; 16];
    bytes[..N].copy_from_slice(field);
    u128::from_le_bytes(bytes)
}

/// The number as a field.
#[inline]
fn bytes_of<const N: usize>(word: u128) -> [u8; N] {
    *word.to_le_bytes().first_chunk().expect("invariant: fields have at most 16 bytes")
}

/// Replaces the checksum at `at`, which the place was checked to have.
#[inline]
fn put_checksum(bytes: &mut [u8], at: usize, new: impl Fn(u16) -> u16) {
    if let Some(checksum) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        *checksum = new(u16::from_be_bytes(*checksum)).to_be_bytes();
    }
}

/// Changes SCTP's checksum at `at`, which is stored in the order of its bits, little-endian.
fn put_crc(bytes: &mut [u8], at: usize, change: u32) {
    if let Some(crc) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
        *crc = (u32::from_le_bytes(*crc) ^ change).to_le_bytes();
    }
}
