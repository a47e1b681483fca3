//! Where a field is in a packet, and which checksums cover it.

use super::Field;
use crate::headers::*;
use crate::{Ip, Layers};

/// Where a field is in a packet.
pub(super) struct FieldSpan {
    /// Its first byte.
    pub at: usize,
    /// Bytes, at most 16.
    pub size: usize,
    /// For a field of one byte: whether it is the low half of its checksum word.
    pub is_low_byte: bool,
    /// By how many bits the value is shifted to the left in the `size` bytes.
    shift: u32,
    /// Which bits of the first four bytes belong to the field; the others keep their value.
    bits: u32,
    /// The checksums that cover it.
    pub sums: [Option<CoveringSum>; 2],
}

/// A checksum that covers a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum CoveringSum {
    /// An Internet checksum.
    Internet {
        /// Where it is.
        at: usize,
    },
    /// A UDP checksum, whose zero means that there is none.
    Udp {
        /// Where it is.
        at: usize,
    },
    /// An SCTP packet's CRC32c.
    Sctp {
        /// Where the SCTP header begins.
        l4: usize,
        /// Where the packet ends.
        end: usize,
    },
}

/// The flow label in the first word of an IPv6 header, behind version and traffic class.
const IPV6_LABEL_BITS: u32 = 0x000f_ffff;
/// The traffic class there.
const IPV6_CLASS_BITS: u32 = 0x0ff0_0000;

impl FieldSpan {
    /// A field of `size` bytes that no checksum covers.
    fn new(at: usize, size: usize) -> Self {
        FieldSpan { at, size, is_low_byte: false, shift: 0, bits: u32::MAX, sums: [None; 2] }
    }

    /// A field at `offset` in the header at `header`, covered by `sum` alone.
    fn in_header(header: usize, offset: usize, size: usize, sum: CoveringSum) -> Self {
        FieldSpan { is_low_byte: offset % 2 == 1, sums: [Some(sum), None], ..FieldSpan::new(header + offset, size) }
    }

    /// A value or mask as the `N` bytes of this field. Bytes missing from `value` are zero.
    #[inline]
    pub fn bits_of<const N: usize>(&self, value: &[u8]) -> [u8; N] {
        let mut out = value.first_chunk::<N>().copied().unwrap_or_else(|| padded(value));
        if N == 4 && self.bits != u32::MAX {
            // A flow label is the low bits of a word, a traffic class one byte in the middle of it.
            let word = if self.shift > 0 { u32::from(out[0]) << self.shift } else { number(&out) };
            out.copy_from_slice(&(word & self.bits).to_be_bytes()[..N]);
        }
        out
    }
}

/// A value with zeros behind it.
fn padded<const N: usize>(value: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.iter_mut().zip(value).for_each(|(to, from)| *to = *from);
    out
}

/// Bytes as a big-endian number.
fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |n, byte| n << 8 | u32::from(*byte))
}

/// Where `field` is, if the packet has its whole header.
#[inline]
pub(super) fn of(bytes: &[u8], layers: &Layers, field: Field) -> Option<FieldSpan> {
    use Field::*;
    match field {
        EthernetDst => Some(FieldSpan::new(0, 6)),
        EthernetSrc => Some(FieldSpan::new(6, 6)),
        Mpls => (layers.labels > 0).then(|| FieldSpan::new(layers.l2_end, MPLS_SIZE)),
        ArpOp | ArpSha | ArpSpa | ArpTha | ArpTpa => arp(bytes, layers, field),
        Ipv4Src | Ipv4Dst | Ipv4Tos | Ipv4Ttl => ipv4(layers, field),
        Ipv6Src | Ipv6Dst | Ipv6Label | Ipv6TrafficClass | Ipv6HopLimit => ipv6(layers, field),
        TcpSrc | TcpDst | UdpSrc | UdpDst | SctpSrc | SctpDst | IcmpType | IcmpCode => l4(bytes, layers, field),
        NdReserved | NdTarget | NdOptionType | NdSourceLink | NdTargetLink => nd(bytes, layers, field),
    }
}

fn arp(bytes: &[u8], layers: &Layers, field: Field) -> Option<FieldSpan> {
    let is_arp = matches!(layers.ethertype, ethertype::ARP | ethertype::RARP);
    if !is_arp || !bytes.get(layers.l3..)?.starts_with(&ARP_IPV4_OVER_ETHERNET) || bytes.len() - layers.l3 < ARP_SIZE {
        return None;
    }
    let (offset, size) = match field {
        Field::ArpOp => (7, 1),
        Field::ArpSha => (8, 6),
        Field::ArpSpa => (14, 4),
        Field::ArpTha => (18, 6),
        _ => (24, 4),
    };
    Some(FieldSpan::new(layers.l3 + offset, size))
}

fn ipv4(layers: &Layers, field: Field) -> Option<FieldSpan> {
    let ip = layers.ip.filter(|ip| !ip.v6)?;
    let header_sum = CoveringSum::Internet { at: layers.l3 + 10 };
    let (offset, size, is_address) = match field {
        Field::Ipv4Src => (12, 4, true),
        Field::Ipv4Dst => (16, 4, true),
        Field::Ipv4Tos => (1, 1, false),
        _ => (8, 1, false),
    };
    let mut place = FieldSpan::in_header(layers.l3, offset, size, header_sum);
    place.sums[1] = if is_address { address_sum(layers, &ip) } else { None };
    Some(place)
}

fn ipv6(layers: &Layers, field: Field) -> Option<FieldSpan> {
    let ip = layers.ip.filter(|ip| ip.v6)?;
    let mut place = match field {
        Field::Ipv6Src => FieldSpan::new(layers.l3 + 8, 16),
        Field::Ipv6Dst => FieldSpan::new(layers.l3 + 24, 16),
        Field::Ipv6HopLimit => FieldSpan::new(layers.l3 + 7, 1),
        Field::Ipv6TrafficClass => FieldSpan { shift: 20, bits: IPV6_CLASS_BITS, ..FieldSpan::new(layers.l3, 4) },
        _ => FieldSpan { bits: IPV6_LABEL_BITS, ..FieldSpan::new(layers.l3, 4) },
    };
    place.sums[0] = match field {
        Field::Ipv6Src => address_sum(layers, &ip),
        // With a routing header, the L4 checksum is over the final destination, which is not in this field.
        Field::Ipv6Dst if !ip.rerouted => address_sum(layers, &ip),
        _ => None,
    };
    Some(place)
}

/// The L4 checksum that covers the addresses, if the packet has the L4 header.
fn address_sum(layers: &Layers, ip: &Ip) -> Option<CoveringSum> {
    let (proto, l4) = layers.l4()?;
    let size = ip.end - l4;
    match proto {
        ip_proto::TCP if size >= TCP_SIZE => Some(CoveringSum::Internet { at: l4 + 16 }),
        ip_proto::UDP if size >= UDP_SIZE => Some(CoveringSum::Udp { at: l4 + 6 }),
        ip_proto::ICMPV6 if ip.v6 && size >= 4 => Some(CoveringSum::Internet { at: l4 + 2 }),
        _ => None,
    }
}

fn l4(bytes: &[u8], layers: &Layers, field: Field) -> Option<FieldSpan> {
    let (proto, l4) = layers.l4()?;
    let end = layers.ip?.end;
    let size = end - l4;
    let (offset, sum) = match (field, proto) {
        (Field::TcpSrc | Field::TcpDst, ip_proto::TCP) => {
            let tcp_size = usize::from(*bytes.get(l4 + 12)? >> 4) * 4;
            if size < TCP_SIZE || tcp_size < TCP_SIZE || tcp_size > size {
                return None;
            }
            (if field == Field::TcpSrc { 0 } else { 2 }, CoveringSum::Internet { at: l4 + 16 })
        }
        (Field::UdpSrc, ip_proto::UDP) if size >= UDP_SIZE => (0, CoveringSum::Udp { at: l4 + 6 }),
        (Field::UdpDst, ip_proto::UDP) if size >= UDP_SIZE => (2, CoveringSum::Udp { at: l4 + 6 }),
        (Field::SctpSrc, ip_proto::SCTP) if size >= SCTP_SIZE => (0, CoveringSum::Sctp { l4, end }),
        (Field::SctpDst, ip_proto::SCTP) if size >= SCTP_SIZE => (2, CoveringSum::Sctp { l4, end }),
        (Field::IcmpType | Field::IcmpCode, ip_proto::ICMP | ip_proto::ICMPV6) if size >= ICMP_SIZE => {
            let offset = if field == Field::IcmpType { 0 } else { 1 };
            return Some(FieldSpan::in_header(l4, offset, 1, CoveringSum::Internet { at: l4 + 2 }));
        }
        _ => return None,
    };
    Some(FieldSpan::in_header(l4, offset, 2, sum))
}

/// Fields of ICMPv6 neighbour discovery.
fn nd(bytes: &[u8], layers: &Layers, field: Field) -> Option<FieldSpan> {
    let (proto, l4) = layers.l4()?;
    let message = bytes.get(l4..layers.ip?.end)?;
    let header = message.first_chunk::<{ nd::SIZE }>()?;
    let is_nd = proto == ip_proto::ICMPV6 && matches!(header[0], nd::SOLICIT | nd::ADVERT) && header[1] == 0;
    if !is_nd {
        return None;
    }
    let sum = CoveringSum::Internet { at: l4 + 2 };
    let (offset, size) = match field {
        Field::NdReserved => (4, 4),
        Field::NdTarget => (8, 16),
        Field::NdOptionType if message.len() >= nd::SIZE + 8 => (nd::SIZE, 1),
        Field::NdSourceLink => (link_option(message, nd::SOURCE_LINK_ADDRESS)?, 6),
        Field::NdTargetLink => (link_option(message, nd::TARGET_LINK_ADDRESS)?, 6),
        _ => return None,
    };
    Some(FieldSpan::in_header(l4, offset, size, sum))
}

/// Where the link-layer address is, if the first option that has one is of `kind`. As in OVS, a message has only one.
fn link_option(message: &[u8], kind: u8) -> Option<usize> {
    let mut at = nd::SIZE;
    while let Some(&[option, units, ..]) = message.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        if matches!(option, nd::SOURCE_LINK_ADDRESS | nd::TARGET_LINK_ADDRESS) && units == 1 {
            return (option == kind).then_some(at + 2);
        }
        if units == 0 {
            return None;
        }
        at += usize::from(units) * 8;
    }
    None
}
