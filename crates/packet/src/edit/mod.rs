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
    /// Low byte of the ARP operation.
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
pub fn set(bytes: &mut [u8], layers: &Layers, field: Field, value: &[u8], mask: &[u8]) -> Result<(), EditError> {
    let place = place::of(bytes, layers, field).ok_or(EditError::NoHeader)?;
    let old = bytes.get(place.at..place.at + place.size).ok_or(EditError::NoHeader)?;
    let mut before = [0; 16];
    before[..place.size].copy_from_slice(old);
    let mut after = before;
    let (value, mask) = (place.bits_of(value), place.bits_of(mask));
    for i in 0..place.size {
        after[i] = before[i] & !mask[i] | value[i] & mask[i];
    }
    if after == before {
        return Ok(());
    }
    bytes[place.at..place.at + place.size].copy_from_slice(&after[..place.size]);
    place.sums.iter().flatten().for_each(|sum| update(bytes, &place, *sum, &before, &after));
    Ok(())
}

/// Brings a checksum up to date after a field has changed.
fn update(bytes: &mut [u8], place: &Place, sum: Sum, before: &[u8; 16], after: &[u8; 16]) {
    match sum {
        Sum::Internet { at } => put_checksum(bytes, at, |old| changed(old, place, before, after)),
        Sum::Udp { at } => put_checksum(bytes, at, |old| match old {
            0 => 0, // The sender computed none.
            // Zero would mean none, so it is written as the other zero.
            _ => Some(changed(old, place, before, after)).filter(|new| *new != 0).unwrap_or(0xffff),
        }),
        Sum::Sctp { l4, end } => {
            let behind = end.saturating_sub(place.at + place.size);
            let change = checksum::crc32c_difference(&before[..place.size], &after[..place.size], behind);
            // The checksum is stored in the order of its bits, little-endian.
            if let Some(crc) = bytes.get_mut(l4 + 8..).and_then(|rest| rest.first_chunk_mut::<4>()) {
                *crc = (u32::from_le_bytes(*crc) ^ change).to_le_bytes();
            }
        }
    }
}

/// The checksum after the field at `place` has changed. A field of one byte is half a word.
fn changed(old: u16, place: &Place, before: &[u8; 16], after: &[u8; 16]) -> u16 {
    match place.size {
        1 if place.is_low_byte => checksum::update(old, &[0, before[0]], &[0, after[0]]),
        1 => checksum::update(old, &[before[0], 0], &[after[0], 0]),
        size => checksum::update(old, &before[..size], &after[..size]),
    }
}

/// Replaces the checksum at `at`, which the place was checked to have.
fn put_checksum(bytes: &mut [u8], at: usize, new: impl Fn(u16) -> u16) {
    if let Some(checksum) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        *checksum = new(u16::from_be_bytes(*checksum)).to_be_bytes();
    }
}
