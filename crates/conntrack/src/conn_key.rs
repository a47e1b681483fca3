//! From a packet to the key of its connection.
//!
//! As in Open vSwitch, fragments, wrong checksums, ports of zero, and ICMP messages that the tracker does not know have
//! no connection. SCTP and all protocols other than TCP, UDP and ICMP are told apart by addresses only.

use crate::inner;
use crate::request::Checksums;
use crate::tuple::{Endpoint, Tuple};
use sluice_packet::headers::*;
use sluice_packet::{Layers, checksum};
use sluice_simd::Isa;
use std::ops::Range;

/// A packet's connection key, and where its headers are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnKey {
    /// Where its IP header begins.
    pub l3: usize,
    /// Where the L4 header begins.
    pub l4: usize,
    /// Where the IP packet ends.
    pub end: usize,
    /// The tuple as the packet's sender sees it. For an ICMP error: that of the packet inside, as the error's sender
    /// sees it.
    pub tuple: Tuple,
    /// Whether it is an ICMP error about a packet of the connection.
    pub related: bool,
}

impl ConnKey {
    /// Whether it is TCP or UDP of this connection, without IPv6 extension headers.
    pub fn is_plain(&self) -> bool {
        !self.related && self.tuple.has_ports() && !(self.tuple.v6 && self.l4 != self.l3 + IPV6_SIZE)
    }
}

/// ICMP types. Source: RFC 792.
pub(crate) mod icmp {
    pub const ECHO_REPLY: u8 = 0;
    pub const UNREACHABLE: u8 = 3;
    pub const SOURCE_QUENCH: u8 = 4;
    pub const REDIRECT: u8 = 5;
    pub const ECHO: u8 = 8;
    pub const TIME_EXCEEDED: u8 = 11;
    pub const PARAMETER_PROBLEM: u8 = 12;
    pub const TIMESTAMP: u8 = 13;
    pub const TIMESTAMP_REPLY: u8 = 14;
    pub const INFORMATION: u8 = 15;
    pub const INFORMATION_REPLY: u8 = 16;
}

/// ICMPv6 types. Source: RFC 4443.
pub(crate) mod icmpv6 {
    pub const UNREACHABLE: u8 = 1;
    pub const TOO_BIG: u8 = 2;
    pub const TIME_EXCEEDED: u8 = 3;
    pub const PARAMETER_PROBLEM: u8 = 4;
    pub const ECHO: u8 = 128;
    pub const ECHO_REPLY: u8 = 129;
}

/// The ICMP type of the reply to a request, or of the request for a reply; `None` for other messages.
pub(crate) fn answer_type(v6: bool, kind: u8) -> Option<u8> {
    if v6 {
        return match kind {
            icmpv6::ECHO => Some(icmpv6::ECHO_REPLY),
            icmpv6::ECHO_REPLY => Some(icmpv6::ECHO),
            _ => None,
        };
    }
    Some(match kind {
        icmp::ECHO => icmp::ECHO_REPLY,
        icmp::ECHO_REPLY => icmp::ECHO,
        icmp::TIMESTAMP => icmp::TIMESTAMP_REPLY,
        icmp::TIMESTAMP_REPLY => icmp::TIMESTAMP,
        icmp::INFORMATION => icmp::INFORMATION_REPLY,
        icmp::INFORMATION_REPLY => icmp::INFORMATION,
        _ => return None,
    })
}

/// Whether an ICMP message is an error, which carries the packet that it is about.
fn is_error(v6: bool, kind: u8) -> bool {
    if v6 {
        let errors = [icmpv6::UNREACHABLE, icmpv6::TOO_BIG, icmpv6::TIME_EXCEEDED, icmpv6::PARAMETER_PROBLEM];
        return errors.contains(&kind);
    }
    let errors = [icmp::UNREACHABLE, icmp::SOURCE_QUENCH, icmp::REDIRECT, icmp::TIME_EXCEEDED, icmp::PARAMETER_PROBLEM];
    errors.contains(&kind)
}

/// Extracts the key of a packet in `zone`; `None` if the packet cannot belong to a connection.
#[inline]
pub(crate) fn read(bytes: &[u8], zone: u16, checksums: Checksums) -> Option<ConnKey> {
    let layers = Layers::of(bytes)?;
    let ip = layers.ip?;
    let payload = ip.payload?;
    if payload.frag != 0 || checksums == Checksums::Bad {
        return None;
    }
    let header = bytes.get(layers.l3..payload.l4)?;
    let verify = match checksums {
        Checksums::Unknown(isa) => Some(isa),
        Checksums::Good | Checksums::Bad => None,
    };
    if verify.is_some() && !ip.v6 && checksum::internet(header) != 0 {
        return None;
    }
    let mut tuple = addresses(header, ip.v6, payload.proto, zone)?;
    let l4 = bytes.get(payload.l4..ip.end)?;
    if !is_sound(l4, &tuple, verify) {
        return None;
    }
    let related = name_ends(&mut tuple, l4)?;
    Some(ConnKey { l3: layers.l3, l4: payload.l4, end: ip.end, tuple, related })
}

/// Range of L4 header and payload, and the protocol, of a valid TCP or UDP packet over untagged IPv4 without options;
/// `None` for all other packets, and wherever [`read`] returns `None`.
#[inline]
pub(crate) fn plain_l4_range_v4(isa: Isa, bytes: &[u8]) -> Option<(Range<usize>, u8)> {
    const L3: usize = ETHERNET_SIZE;
    const L4: usize = L3 + IPV4_SIZE;

    let start = bytes.first_chunk::<{ L4 + UDP_SIZE }>()?;
    let total = usize::from(u16::from_be_bytes([start[L3 + 2], start[L3 + 3]]));
    let padding = (bytes.len() - L3).wrapping_sub(total);
    let is_whole = u16::from_be_bytes([start[L3 + 6], start[L3 + 7]]) & 0x3fff == 0;
    let is_ipv4 = start[L3 - 2..L3] == ethertype::IPV4.to_be_bytes() && start[L3] & 0x0f == 5;
    let header: &[u8; IPV4_SIZE] = start[L3..].first_chunk()?;
    if !is_ipv4 || !is_whole || total < IPV4_SIZE + UDP_SIZE || padding > usize::from(u16::MAX) {
        return None;
    }
    let l4 = &bytes[L4..L3 + total];
    let has_ports = start[L4..L4 + 2] != [0, 0] && start[L4 + 2..L4 + 4] != [0, 0];
    let is_sum_free = header[9] == ip_proto::UDP && start[L4 + 6..L4 + 8] == [0, 0];
    if checksum::finish(checksum::native_sum(header)) != 0 || !has_ports {
        return None;
    }
    // The pseudo header: both addresses, protocol, and the size of what the checksum covers.
    let [high, low] = ((total - IPV4_SIZE) as u16).to_be_bytes();
    let pseudo = || checksum::native_sum(&header[12..]) + checksum::native_sum(&[0, header[9], high, low]);
    let is_sound = matches!(header[9], ip_proto::UDP | ip_proto::TCP)
        && lengths_fit(l4, header[9])
        && (is_sum_free || checksum::finish(pseudo() + checksum::native_sum_by(isa, l4)) == 0);
    is_sound.then_some((L4..L3 + total, header[9]))
}

/// The same over untagged IPv6 without extension headers.
#[inline]
pub(crate) fn plain_l4_range_v6(isa: Isa, bytes: &[u8]) -> Option<(Range<usize>, u8)> {
    const L3: usize = ETHERNET_SIZE;
    const L4: usize = L3 + IPV6_SIZE;

    let start = bytes.first_chunk::<{ L4 + UDP_SIZE }>()?;
    let size = [start[L3 + 4], start[L3 + 5]];
    let total = usize::from(u16::from_be_bytes(size));
    let padding = (bytes.len() - L4).wrapping_sub(total);
    let is_ipv6 = start[L3 - 2..L3] == ethertype::IPV6.to_be_bytes();
    let proto = start[L3 + 6];
    if !is_ipv6 || !matches!(proto, ip_proto::UDP | ip_proto::TCP) || padding > usize::from(u16::MAX) {
        return None;
    }
    let l4 = &bytes[L4..L4 + total];
    let has_ports = start[L4..L4 + 2] != [0, 0] && start[L4 + 2..L4 + 4] != [0, 0];
    if !has_ports || !lengths_fit(l4, proto) {
        return None;
    }
    // The pseudo header: both addresses, protocol, and the size of what the checksum covers, which is never absent.
    let pseudo = checksum::native_sum(&start[L3 + 8..L4]) + checksum::native_sum(&[0, proto, size[0], size[1]]);
    (checksum::finish(pseudo + checksum::native_sum_by(isa, l4)) == 0).then_some((L4..L4 + total, proto))
}

/// The tuple of an IP header, without ports.
pub(crate) fn addresses(header: &[u8], v6: bool, proto: u8, zone: u16) -> Option<Tuple> {
    let mut tuple = Tuple { v6, proto, zone, ..Tuple::default() };
    if v6 {
        tuple.src.addr = *header.get(8..)?.first_chunk()?;
        tuple.dst.addr = *header.get(24..)?.first_chunk()?;
    } else {
        tuple.src.addr[..4].copy_from_slice(header.get(12..16)?);
        tuple.dst.addr[..4].copy_from_slice(header.get(16..20)?);
    }
    Some(tuple)
}

/// Whether the L4 header is whole, its own lengths fit, and its checksum, if it is to be looked at, is right.
fn is_sound(l4: &[u8], tuple: &Tuple, verify: Option<Isa>) -> bool {
    let is_sum_right = || verify.is_none_or(|isa| sum_is_right(isa, l4, tuple));
    lengths_fit(l4, tuple.proto)
        && match tuple.proto {
            ip_proto::UDP => !tuple.v6 && l4[6..UDP_SIZE] == [0, 0] || is_sum_right(),
            ip_proto::TCP => is_sum_right(),
            ip_proto::ICMP if !tuple.v6 => is_sum_right(),
            ip_proto::ICMPV6 if tuple.v6 => is_sum_right(),
            _ => true,
        }
}

/// Whether the L4 header is whole and its own lengths fit.
#[inline]
fn lengths_fit(l4: &[u8], proto: u8) -> bool {
    match proto {
        ip_proto::TCP => {
            let size = l4.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4);
            (TCP_SIZE..=l4.len()).contains(&size)
        }
        ip_proto::UDP => l4.first_chunk::<UDP_SIZE>().is_some_and(|header| {
            (UDP_SIZE..=l4.len()).contains(&usize::from(u16::from_be_bytes([header[4], header[5]])))
        }),
        _ => true,
    }
}

/// Like Open vSwitch, ignores the final destination in a routing header.
fn sum_is_right(isa: Isa, l4: &[u8], tuple: &Tuple) -> bool {
    let pseudo = match tuple.proto {
        ip_proto::ICMP if !tuple.v6 => 0,
        // Behind an IPv4 address there are zeros.
        proto => {
            let [high, low] = (l4.len() as u16).to_be_bytes();
            let addresses = checksum::native_sum(&tuple.src.addr) + checksum::native_sum(&tuple.dst.addr);
            addresses + checksum::native_sum(&[0, proto, high, low])
        }
    };
    checksum::finish(pseudo + checksum::native_sum_by(isa, l4)) == 0
}

/// Fills in the ends from the L4 header. Returns whether the packet is an ICMP error.
fn name_ends(tuple: &mut Tuple, l4: &[u8]) -> Option<bool> {
    match tuple.proto {
        ip_proto::TCP | ip_proto::UDP => ports(tuple, l4)?,
        ip_proto::ICMP if !tuple.v6 => return icmp_ends(tuple, l4),
        ip_proto::ICMPV6 if tuple.v6 => return icmp_ends(tuple, l4),
        _ => {}
    }
    Some(false)
}

/// Reads the ports, which must not be zero.
pub(crate) fn ports(tuple: &mut Tuple, l4: &[u8]) -> Option<()> {
    tuple.src.port = be16(l4, 0).filter(|port| *port != 0)?;
    tuple.dst.port = be16(l4, 2).filter(|port| *port != 0)?;
    Some(())
}

/// Reads identifier and types of a request or reply; `None` if it is neither.
pub(crate) fn question(tuple: &mut Tuple, l4: &[u8]) -> Option<()> {
    let &[kind, code, _, _, id_high, id_low, ..] = l4.first_chunk::<ICMP_SIZE>()?;
    let answer = answer_type(tuple.v6, kind).filter(|_| code == 0)?;
    let port = u16::from_be_bytes([id_high, id_low]);
    tuple.src = Endpoint { port, icmp_type: kind, ..tuple.src };
    tuple.dst = Endpoint { port, icmp_type: answer, ..tuple.dst };
    Some(())
}

fn icmp_ends(tuple: &mut Tuple, l4: &[u8]) -> Option<bool> {
    let message = l4.first_chunk::<ICMP_SIZE>()?;
    if !is_error(tuple.v6, message[0]) {
        return question(tuple, l4).map(|()| false);
    }
    let inside = inner::of(&l4[ICMP_SIZE..], tuple.v6, tuple.zone)?;
    // The error's receiver must be the sender of the packet inside.
    if inside.tuple.src.addr != tuple.dst.addr {
        return None;
    }
    *tuple = inside.tuple.reversed();
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sluice_testkit::plain_checksum::internet;

    /// TCP or UDP with a payload of `payload` and `padding` behind it, its checksums right.
    fn packet(v6: bool, proto: u8, payload: &[u8], padding: usize) -> Vec<u8> {
        let mut l4 = vec![0x12, 0x34, 0, 80];
        match proto {
            ip_proto::TCP => l4.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]),
            _ => l4.extend([0, (UDP_SIZE + payload.len()) as u8, 0, 0]),
        }
        l4.extend(payload);
        let addresses = if v6 { (0..32).collect() } else { vec![10, 0, 0, 1, 10, 0, 0, 2] };
        let pseudo = [&addresses[..], &[0, proto, 0, l4.len() as u8], &l4].concat();
        let at = if proto == ip_proto::TCP { 16 } else { 6 };
        l4[at..at + 2].copy_from_slice(&internet(&pseudo).to_be_bytes());
        let mut ip = match v6 {
            true => vec![0x60, 0, 0, 0, 0, l4.len() as u8, proto, 64],
            false => vec![0x45, 0, 0, (IPV4_SIZE + l4.len()) as u8, 0, 0, 0, 0, 64, proto, 0, 0],
        };
        ip.extend(addresses);
        if !v6 {
            let sum = internet(&ip).to_be_bytes();
            ip[10..12].copy_from_slice(&sum);
        }
        let ethertype = if v6 { ethertype::IPV6 } else { ethertype::IPV4 }.to_be_bytes().to_vec();
        [vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], ethertype, ip, l4, vec![0; padding]].concat()
    }

    proptest! {
        /// The short ways against the long one: whole packets, and those of which a byte is another, whose IP checksum may
        /// be mended and whose UDP checksum may be absent.
        #[test]
        fn plain_packets_are_those_that_are_read(
            (tcp, payload, padding) in (any::<bool>(), prop::collection::vec(any::<u8>(), 0..160), 0..7usize),
            change in prop::option::of((12..ETHERNET_SIZE + IPV6_SIZE + 21, any::<u8>())),
            (v6, mends, has_no_sum) in any::<(bool, bool, bool)>(),
        ) {
            let mut bytes = packet(v6, if tcp { ip_proto::TCP } else { ip_proto::UDP }, &payload, padding);
            if let Some((at, byte)) = change && at < bytes.len() {
                bytes[at] = byte;
            }
            let l4 = ETHERNET_SIZE + if v6 { IPV6_SIZE } else { IPV4_SIZE };
            if mends && !v6 {
                bytes[ETHERNET_SIZE + 10..ETHERNET_SIZE + 12].fill(0);
                let sum = internet(&bytes[ETHERNET_SIZE..l4]).to_be_bytes();
                bytes[ETHERNET_SIZE + 10..ETHERNET_SIZE + 12].copy_from_slice(&sum);
            }
            if has_no_sum && !tcp {
                bytes[l4 + 6..l4 + 8].fill(0);
            }
            let isa = Isa::best();
            for (plain, is_v6) in [(plain_l4_range_v4(isa, &bytes), false), (plain_l4_range_v6(isa, &bytes), true)] {
                let l4 = ETHERNET_SIZE + if is_v6 { IPV6_SIZE } else { IPV4_SIZE };
                let read = read(&bytes, 0, Checksums::default()).filter(|key| key.l4 == l4 && key.tuple.v6 == is_v6);
                let is_plain = |key: &ConnKey| matches!(key.tuple.proto, ip_proto::TCP | ip_proto::UDP);
                let want = read.filter(is_plain).map(|key| (key.l4..key.end, key.tuple.proto));
                prop_assert_eq!(&plain, &want);
                prop_assert!(change.is_some() || is_v6 != v6 || has_no_sum && !tcp || plain.is_some());
            }
        }
    }
}
