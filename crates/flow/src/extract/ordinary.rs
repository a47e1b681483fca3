//! The path of ordinary packets: up to two VLAN tags, then IPv4 without options or IPv6 without extension headers, then
//! a whole L4 header.
//!
//! Each header is asked for once, whole; its fields are then loads at fixed offsets, and lines are written as words.

use super::{Metadata, TAG_PRESENT, half};
use crate::{Line, PacketKey};
use sluice_packet::VlanLimit;
use sluice_packet::headers::*;

/// What L2 puts into line 0, and what follows it.
struct Ethernet<'a> {
    /// Destination and the first two bytes of the source.
    word3: u64,
    /// The rest of the source, and the outer tag.
    word4: u64,
    /// The inner tag and the Ethernet type. The last two bytes are for the TCP flags.
    word5: u64,
    ethertype: u16,
    payload: &'a [u8],
}

/// What L4 puts into line 0.
struct L4 {
    /// Ports, or type and code.
    ports: u32,
    /// TCP flags as the last two bytes of word 5.
    tcp_flags: u64,
}

/// Writes the key of an ordinary packet; `false` if the packet is not one, and then the key is as it was.
#[inline(always)]
pub(super) fn read(bytes: &[u8], metadata: &Metadata, key: &mut PacketKey) -> bool {
    let Some(ethernet) = ethernet(bytes, metadata.vlan_limit) else { return false };
    match ethernet.ethertype {
        ethertype::IPV4 => ipv4(&ethernet, metadata, key).is_some(),
        ethertype::IPV6 => ipv6(&ethernet, metadata, key).is_some(),
        _ => false,
    }
}

/// Addresses, tags and type of a frame long enough for what its types announce.
#[inline(always)]
fn ethernet(bytes: &[u8], vlan_limit: VlanLimit) -> Option<Ethernet<'_>> {
    let frame = bytes.first_chunk::<ETHERNET_SIZE>()?;
    let (mut word4, mut word5) = (u64::from(half(frame, 8)), 0);
    let mut ethertype = u16::from_be_bytes([frame[12], frame[13]]);
    let mut payload = &bytes[ETHERNET_SIZE..];
    if ethertype::is_vlan(ethertype) {
        let frame = bytes.first_chunk::<{ ETHERNET_SIZE + VLAN_SIZE }>()?;
        word4 |= u64::from(half(frame, 12) | TAG_PRESENT) << 32;
        ethertype = u16::from_be_bytes([frame[16], frame[17]]);
        payload = &bytes[ETHERNET_SIZE + VLAN_SIZE..];
        if ethertype::is_vlan(ethertype) && vlan_limit == VlanLimit::MAX {
            let frame = bytes.first_chunk::<{ ETHERNET_SIZE + 2 * VLAN_SIZE }>()?;
            word5 = u64::from(half(frame, 16) | TAG_PRESENT);
            ethertype = u16::from_be_bytes([frame[20], frame[21]]);
            payload = &bytes[ETHERNET_SIZE + 2 * VLAN_SIZE..];
        }
    }
    word5 |= u64::from(ethertype.swap_bytes()) << 32;
    Some(Ethernet { word3: word(frame, 0), word4, word5, ethertype, payload })
}

/// IPv4 and L4. The checks are those of `Layers`.
#[inline(always)]
fn ipv4(ethernet: &Ethernet<'_>, metadata: &Metadata, key: &mut PacketKey) -> Option<()> {
    let packet = ethernet.payload;
    // With the smallest L4 header that counts.
    let header = packet.first_chunk::<{ IPV4_SIZE + UDP_SIZE }>()?;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let padding = packet.len().wrapping_sub(total);
    if header[0] & 0x0f != 5 || total < IPV4_SIZE + UDP_SIZE || padding > usize::from(u16::MAX) {
        return None;
    }
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
    let (frag, l4) = if fragment & 0x1fff == 0 {
        // 0x2000 is "more fragments".
        ((fragment >> 13) as u8 * FRAG_ANY, l4(header[9], &packet[IPV4_SIZE..], total - IPV4_SIZE)?)
    } else {
        (FRAG_ANY | FRAG_LATER, L4 { ports: 0, tcp_flags: 0 })
    };
    let [w0, w1, w2, ..] = metadata.words;
    let word7 = ip_word(header[9], header[1], header[8], frag) | u64::from(l4.ports) << 32;
    let word5 = ethernet.word5 | l4.tcp_flags;
    key.lines[0] = Line::from_words([w0, w1, w2, ethernet.word3, ethernet.word4, word5, word(header, 12), word7]);
    Some(())
}

/// IPv6 and L4; line 1 besides line 0.
#[inline(always)]
fn ipv6(ethernet: &Ethernet<'_>, metadata: &Metadata, key: &mut PacketKey) -> Option<()> {
    /// Line 1 in the presence byte, which is the last of word 2.
    const LINE_1: u64 = 0x02 << 56;

    let packet = ethernet.payload;
    let header = packet.first_chunk::<{ IPV6_SIZE + UDP_SIZE }>()?;
    let size = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let padding = (packet.len() - IPV6_SIZE).wrapping_sub(size);
    // Of the protocols with an L4 header none is an extension header; others take the general path.
    let is_plain = matches!(header[6], ip_proto::TCP | ip_proto::UDP | ip_proto::ICMPV6 | ip_proto::SCTP);
    if !is_plain || size < UDP_SIZE || padding > usize::from(u16::MAX) {
        return None;
    }
    let l4 = l4(header[6], &packet[IPV6_SIZE..], size)?;
    let traffic_class = header[0] << 4 | header[1] >> 4;
    let [w0, w1, w2, ..] = metadata.words;
    let word7 = ip_word(header[6], traffic_class, header[7], 0) | u64::from(l4.ports) << 32;
    let word5 = ethernet.word5 | l4.tcp_flags;
    key.lines[0] = Line::from_words([w0, w1, w2 | LINE_1, ethernet.word3, ethernet.word4, word5, 0, word7]);
    let (src, dst) = ([word(header, 8), word(header, 16)], [word(header, 24), word(header, 32)]);
    // The label is the low 20 bits of the first four bytes.
    let label = u64::from(half(header, 0) & u32::from_le_bytes([0, 0x0f, 0xff, 0xff]));
    key.lines[1] = Line::from_words([src[0], src[1], dst[0], dst[1], 0, 0, label, 0]);
    Some(())
}

/// The L4 header at the front of `packet`, of which `size` bytes, at least eight, belong to the IP packet.
///
/// `None` where other lines are needed, or where a TCP or SCTP header is not whole.
#[inline(always)]
fn l4(proto: u8, packet: &[u8], size: usize) -> Option<L4> {
    let header = packet.first_chunk::<UDP_SIZE>()?;
    let ports = half(header, 0);
    // Tests in order of frequency; a jump table would be an indirect branch for mixed traffic to mispredict.
    if proto == ip_proto::UDP {
        return Some(L4 { ports, tcp_flags: 0 });
    }
    if proto == ip_proto::TCP {
        let tcp = packet.first_chunk::<TCP_SIZE>()?;
        let tcp_size = usize::from(tcp[12] >> 4) * 4;
        let tcp_flags = u64::from(tcp[12] & 0x0f) << 48 | u64::from(tcp[13]) << 56;
        return (TCP_SIZE..=size).contains(&tcp_size).then_some(L4 { ports, tcp_flags });
    }
    match proto {
        ip_proto::SCTP => (size >= SCTP_SIZE).then_some(L4 { ports, tcp_flags: 0 }),
        // Neighbour discovery has more fields, and so has IGMP.
        ip_proto::ICMPV6 if matches!(header[0], nd::SOLICIT | nd::ADVERT) => None,
        ip_proto::IGMP => None,
        // Type and code, a byte each, become numbers of two bytes.
        ip_proto::ICMP | ip_proto::ICMPV6 => {
            Some(L4 { ports: u32::from_le_bytes([0, header[0], 0, header[1]]), tcp_flags: 0 })
        }
        _ => Some(L4 { ports: 0, tcp_flags: 0 }),
    }
}

/// Protocol, type of service, time to live and fragment: the first half of word 7.
#[inline(always)]
fn ip_word(proto: u8, tos: u8, ttl: u8, frag: u8) -> u64 {
    u64::from(u32::from_le_bytes([proto, tos, ttl, frag]))
}

/// Eight bytes at `at` as a little-endian word. `at` is a constant that fits.
#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("invariant: callers pass a header that has these bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ethernet, `tags`, and an IP packet whose header, of IPv4 or IPv6, is followed by 24 bytes of L4.
    fn packet(tags: &[u16], v6: bool, proto: u8) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        tags.iter().for_each(|tpid| bytes.extend([tpid.to_be_bytes(), [0, 5]].concat()));
        if v6 {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, proto, 64]);
            bytes.extend([7; 32]);
        } else {
            bytes.extend([0x08, 0x00, 0x45, 0, 0, 44, 0, 0, 0, 0, 64, proto, 0, 0]);
            bytes.extend([7; 8]);
        }
        bytes.extend([0x50; 24]);
        bytes
    }

    #[test]
    fn ordinary_packets_do_not_take_the_general_path() {
        for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100]] {
            for v6 in [false, true] {
                for proto in
                    [ip_proto::UDP, ip_proto::TCP, ip_proto::SCTP, if v6 { ip_proto::ICMPV6 } else { ip_proto::ICMP }]
                {
                    let mut key = PacketKey::ZERO;
                    let is_ordinary = read(&packet(tags, v6, proto), &Metadata::of_port(1), &mut key);
                    assert!(is_ordinary, "tags {tags:04x?}, IPv6 {v6}, protocol {proto}");
                }
            }
        }
    }
}
