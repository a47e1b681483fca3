//! Packets that differ and are meant to.

use crate::compare::Difference;
use std::ops::Range;

/// Whether an output differs, and every pair of packets that differ does so in the way that `check` tells.
pub fn each_packet_pair(difference: &Difference, check: fn(&[u8], &[u8]) -> bool) -> bool {
    let packets = |text: &str| text.split_whitespace().map(bytes).collect::<Vec<_>>();
    let (peer, ours) = (packets(&difference.peer), packets(&difference.ours));
    difference.kind == "output"
        && peer.len() == ours.len()
        && peer.iter().zip(&ours).all(|(p, o)| p == o || p.len() == o.len() && check(p, o))
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks_exact(2).map(|d| d[0] << 4 | d[1]).collect()
}

/// Ethernet type behind the tags, and where the packet of that type begins.
fn network(packet: &[u8]) -> Option<(u16, usize)> {
    let mut at = 12;
    loop {
        let ethertype = u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]);
        at += 2;
        match ethertype {
            0x8100 | 0x88a8 => at += 2,
            _ => return Some((ethertype, at)),
        }
    }
}

/// The same behind MPLS labels, where the version tells the type.
fn behind_labels(packet: &[u8]) -> Option<(u16, usize)> {
    let (ethertype, mut at) = network(packet)?;
    if !matches!(ethertype, 0x8847 | 0x8848) {
        return Some((ethertype, at));
    }
    while packet.get(at + 2)? & 1 == 0 {
        at += 4;
    }
    match packet.get(at + 4)? >> 4 {
        4 => Some((0x0800, at + 4)),
        6 => Some((0x86dd, at + 4)),
        _ => None,
    }
}

/// Whether two packets are equal outside these bytes.
fn differ_only_in(a: &[u8], b: &[u8], bytes: Range<usize>) -> bool {
    a.iter().zip(b).enumerate().all(|(i, (x, y))| x == y || bytes.contains(&i))
}

/// Where a transport checksum would be in what is at `l4`.
fn checksum(protocol: u8, l4: usize) -> Option<Range<usize>> {
    let at = match protocol {
        6 => l4 + 16,
        17 => l4 + 6,
        58 => l4 + 2,
        _ => return None,
    };
    Some(at..at + 2)
}

pub fn is_later_fragment_data(a: &[u8], b: &[u8]) -> bool {
    let Some((0x0800, l3)) = behind_labels(a) else { return false };
    let is_later = a.len() > l3 + 20 && u16::from_be_bytes([a[l3 + 6], a[l3 + 7]]) & 0x1fff != 0;
    let l4 = l3 + 4 * usize::from(a[l3] & 15);
    let edited = match a[l3 + 9] {
        // Type, code and checksum.
        1 => Some(l4..l4 + 4),
        protocol => checksum(protocol, l4),
    };
    is_later && edited.is_some_and(|bytes| differ_only_in(a, b, bytes))
}

/// An IPv6 packet's extension headers.
#[derive(Default)]
struct Extensions {
    /// There is a fragment header that says "the first and the last".
    is_lone_fragment: bool,
    /// There is a routing header with segments left.
    is_rerouted: bool,
    /// Where the transport checksum is.
    checksum: Option<Range<usize>>,
}

fn extensions(packet: &[u8]) -> Extensions {
    let mut out = Extensions::default();
    let Some((0x86dd, l3)) = behind_labels(packet) else { return out };
    let (mut next, mut at) = (packet.get(l3 + 6).copied(), l3 + 40);
    while let Some(kind @ (0 | 43 | 44 | 51 | 60)) = next {
        let Some(header) = packet.get(at..at + 8) else { return out };
        out.is_lone_fragment |= kind == 44 && header[2] == 0 && header[3] & 0xf9 == 0;
        out.is_rerouted |= kind == 43 && header[3] > 0;
        next = Some(header[0]);
        at += match kind {
            44 => 8,
            51 => 4 * (usize::from(header[1]) + 2),
            _ => 8 * (usize::from(header[1]) + 1),
        };
    }
    out.checksum = next.and_then(|protocol| checksum(protocol, at));
    out
}

pub fn is_lone_fragment_checksum(a: &[u8], b: &[u8]) -> bool {
    let Extensions { is_lone_fragment, checksum, .. } = extensions(a);
    is_lone_fragment && checksum.is_some_and(|bytes| differ_only_in(a, b, bytes))
}

pub fn is_rerouted_checksum(a: &[u8], b: &[u8]) -> bool {
    let Extensions { is_rerouted, checksum, .. } = extensions(a);
    is_rerouted && checksum.is_some_and(|bytes| differ_only_in(a, b, bytes))
}

/// An ICMPv6 error about a TCP packet, which Open vSwitch has translated as though it had a TCP header itself: what is
/// in place of that header's checksum (the beginning of the address inside) differs, the checksum inside, and that of
/// the error. Ours must be right.
pub fn is_error_taken_for_tcp(peer: &[u8], ours: &[u8]) -> bool {
    const INNER: usize = 8;
    let Some((0x86dd, l3)) = behind_labels(ours) else { return false };
    let (l4, end) = (l3 + 40, ours.len());
    let inner = l4 + INNER;
    let is_error = ours.get(l3 + 6) == Some(&58) && ours.get(l4).is_some_and(|kind| (1..=4).contains(kind));
    if !is_error || end < inner + 60 || ours[inner + 6] != 6 {
        return false;
    }
    let allowed = [l4 + 2..l4 + 4, inner + 8..inner + 10, inner + 56..inner + 58];
    let pairs = peer.iter().zip(ours).enumerate();
    let is_meant = |i: usize| allowed.iter().any(|bytes| bytes.contains(&i));
    let len = u16::from_be_bytes([ours[inner + 4], ours[inner + 5]]);
    let Some(tcp) = ours.get(inner + 40..inner + 40 + usize::from(len)) else { return false };
    let pseudo = [&ours[inner + 8..inner + 40], &[0, 0], &len.to_be_bytes(), &[0, 0, 0, 6]].concat();
    pairs.into_iter().all(|(i, (p, o))| p == o || is_meant(i)) && sums_to_zero(&pseudo, tcp)
}

/// Whether two pieces, the first of even length, contain their own right Internet checksum.
fn sums_to_zero(first: &[u8], second: &[u8]) -> bool {
    let words = first.chunks(2).chain(second.chunks(2));
    let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0))).sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// Open vSwitch sends ARP packets that have no whole header for Ethernet and IPv4, Sluice none of them.
pub fn is_cut_arp(difference: &Difference) -> bool {
    let is_cut = |packet: Vec<u8>| {
        let Some((0x0806, at)) = network(&packet) else { return false };
        packet.len() < at + 28 || packet[at..at + 6] != [0, 1, 8, 0, 6, 4]
    };
    difference.kind == "output"
        && difference.ours.is_empty()
        && difference.peer.split_whitespace().map(bytes).all(is_cut)
}

/// Open vSwitch writes the type where an 802.3 frame has its length, Sluice where its SNAP header has the type. Then
/// Open vSwitch takes the frame for one without a SNAP header, and puts further labels in front of that.
pub fn is_type_in_place_of_length(peer: &[u8], ours: &[u8]) -> bool {
    const SNAP: [u8; 6] = [0xaa, 0xaa, 3, 0, 0, 0];
    let Some((length, at)) = network(ours) else { return false };
    let has_header = length < 0x600 && ours[at..].iter().zip(SNAP).all(|(byte, expected)| *byte == expected);
    // A truncated output may have lost it.
    let is_type = ours.get(at + 6..at + 8).is_none_or(|kind| kind == &peer[at - 2..at]);
    let is_moved_behind = |labels: usize| {
        let header = at + 4 * labels;
        peer.iter().enumerate().all(|(i, byte)| match i {
            _ if i < at - 2 || i >= header + 8 => *byte == ours[i],
            _ if i < at => true,
            _ if i < header => ours.get(i + 8).is_none_or(|label| label == byte),
            _ => SNAP.get(i - header).is_none_or(|expected| expected == byte),
        })
    };
    has_header && is_type && (0..=2).any(is_moved_behind)
}

/// Only the drop eligible bit of tags differs.
pub fn is_drop_eligible_bit(a: &[u8], b: &[u8]) -> bool {
    let Some((_, l3)) = network(a) else { return false };
    // A tag's control information is behind its type.
    let is_control = |i: usize| i >= 14 && (i - 14).is_multiple_of(4) && i + 4 <= l3;
    a.iter().zip(b).enumerate().all(|(i, (x, y))| x == y || x ^ y == 0x10 && is_control(i))
}

/// Open vSwitch writes a label over the type of the tag that is there, Sluice behind the tag.
pub fn is_label_at_third_tag(peer: &[u8], ours: &[u8]) -> bool {
    let (Some(p), Some(o)) = (peer.get(12..22), ours.get(12..22)) else { return false };
    let is_tag = matches!(o[..2], [0x81, 0x00] | [0x88, 0xa8]);
    let is_same_label = p[..6] == o[4..] && p[6..8] == o[2..4] && matches!(p[..2], [0x88, 0x47 | 0x48]);
    is_tag && is_same_label && differ_only_in(peer, ours, 12..22)
}

/// The same packets left because of one, in another order.
pub fn are_copies_in_other_order(difference: &Difference) -> bool {
    let sorted = |text: &str| {
        let mut packets: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        packets.sort();
        packets
    };
    difference.kind == "output" && sorted(&difference.peer) == sorted(&difference.ours)
}

/// A truncated packet is a tag longer on one side: the tag was put on behind the truncation there, since a flood of
/// NORMAL had taken it off for the last of its ports.
pub fn is_cut_before_tag(difference: &Difference) -> bool {
    let Difference { kind: "output", peer, ours, trace, .. } = difference else { return false };
    let packets = |text: &str| text.split_whitespace().map(bytes).collect::<Vec<_>>();
    let (peer, ours) = (packets(peer), packets(ours));
    let is_tagged = |packet: &[u8]| matches!(packet.get(12..14), Some([0x81, 0] | [0x88, 0xa8]));
    let is_cut = |p: &Vec<u8>, o: &Vec<u8>| {
        p.len().abs_diff(o.len()) == 4 && is_tagged(p) && p.iter().zip(o).all(|(p, o)| p == o)
    };
    ["NORMAL", "push_vlan(", "trunc("].iter().all(|text| trace.contains(text))
        && peer.len() == ours.len()
        && peer.iter().zip(&ours).all(|(p, o)| p == o || is_cut(p, o))
}

/// Behind the outer tag Sluice has a tag of VLAN and priority 0, which Open vSwitch takes off: in packets, or in what a
/// trace says of outputs.
pub fn is_inner_tag_of_zero(difference: &Difference) -> bool {
    let Difference { kind, peer, ours, trace, .. } = difference;
    let is_without = |peer: &Vec<u8>, ours: &Vec<u8>| match ours.get(12..20) {
        Some([0x81 | 0x88, _, _, _, 0x81, 0, 0, 0] | [0x81 | 0x88, _, _, _, 0x88, 0xa8, 0, 0]) => {
            [&ours[..16], &ours[20..]].concat() == *peer
        }
        _ => false,
    };
    let packets = |text: &str| text.split_whitespace().map(bytes).collect::<Vec<_>>();
    match *kind {
        "output" => {
            let (peer, ours) = (packets(peer), packets(ours));
            peer.len() == ours.len() && peer.iter().zip(&ours).all(|(p, o)| p == o || is_without(p, o))
        }
        "actions" => trace.contains("NORMAL") && ours.replace("[vid=0,pcp=0 vid=", "[vid=") == *peer,
        _ => false,
    }
}
