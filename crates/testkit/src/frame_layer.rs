//! One header of a frame under construction, and how headers become bytes.

use crate::plain_checksum::{crc32c, internet};

/// A header, or bytes.
#[derive(Clone, Debug)]
pub(crate) enum Layer {
    Ethernet { src: [u8; 6], dst: [u8; 6], ethertype: Option<u16> },
    Vlan { tpid: u16, tci: u16, ethertype: Option<u16> },
    Snap { ethertype: Option<u16> },
    Llc([u8; 3]),
    Mpls { lse: u32, multicast: bool },
    Arp { reverse: bool, op: u16, sha: [u8; 6], spa: [u8; 4], tha: [u8; 6], tpa: [u8; 4] },
    Ipv4 { src: [u8; 4], dst: [u8; 4], tos: u8, ttl: u8, proto: Option<u8>, fragment: u16, options: Vec<u8> },
    Ipv6 { src: [u8; 16], dst: [u8; 16], tos: u8, ttl: u8, proto: Option<u8>, label: u32 },
    Extension { kind: u8, proto: Option<u8>, body: Vec<u8> },
    Tcp { src_port: u16, dst_port: u16, flags: u16, options: Vec<u8> },
    Udp { src_port: u16, dst_port: u16, with_checksum: bool },
    Sctp { src_port: u16, dst_port: u16 },
    Icmp { v6: bool, kind: u8, code: u8, rest: [u8; 4] },
    Igmp { kind: u8, code: u8, group: [u8; 4] },
    Raw(Vec<u8>),
}

/// How the preceding header must announce what follows.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    Nothing,
    Ethertype(u16),
    Proto(u8),
    /// An 802.2 header: the Ethernet type is a length.
    Length,
}

/// The frame's bytes, built from the last layer to the first.
pub(crate) fn assemble(layers: &[Layer]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut next = Next::Nothing;
    for (i, layer) in layers.iter().enumerate().rev() {
        let header;
        (header, next) = match layer {
            Layer::Tcp { .. } | Layer::Udp { .. } | Layer::Sctp { .. } | Layer::Icmp { .. } | Layer::Igmp { .. } => {
                transport(layer, &layers[..i], &bytes)
            }
            Layer::Ipv4 { .. } | Layer::Ipv6 { .. } | Layer::Extension { .. } => network(layer, next, bytes.len()),
            _ => link(layer, next, bytes.len()),
        };
        bytes.splice(0..0, header);
    }
    bytes
}

/// Ethernet, tags, labels, ARP and bytes.
fn link(layer: &Layer, next: Next, behind: usize) -> (Vec<u8>, Next) {
    let ethertype = |told: &Option<u16>| match (told, next) {
        (Some(told), _) => *told,
        (None, Next::Ethertype(ethertype)) => ethertype,
        (None, Next::Length) => behind as u16,
        (None, Next::Nothing | Next::Proto(_)) => 0xffff,
    };
    match layer {
        Layer::Ethernet { src, dst, ethertype: told } => {
            ([&dst[..], src, &ethertype(told).to_be_bytes()].concat(), Next::Nothing)
        }
        Layer::Vlan { tpid, tci, ethertype: told } => {
            ([tci.to_be_bytes(), ethertype(told).to_be_bytes()].concat(), Next::Ethertype(*tpid))
        }
        Layer::Snap { ethertype: told } => {
            ([&[0xaa, 0xaa, 3, 0, 0, 0][..], &ethertype(told).to_be_bytes()].concat(), Next::Length)
        }
        Layer::Llc(header) => (header.to_vec(), Next::Length),
        Layer::Mpls { lse, multicast } => {
            let is_last = !matches!(next, Next::Ethertype(0x8847 | 0x8848));
            let ethertype = if *multicast { 0x8848 } else { 0x8847 };
            ((lse | u32::from(is_last) << 8).to_be_bytes().to_vec(), Next::Ethertype(ethertype))
        }
        Layer::Arp { reverse, op, sha, spa, tha, tpa } => {
            let fixed = [0, 1, 8, 0, 6, 4];
            let bytes = [&fixed[..], &op.to_be_bytes(), sha, spa, tha, tpa].concat();
            (bytes, Next::Ethertype(if *reverse { 0x8035 } else { 0x0806 }))
        }
        Layer::Raw(bytes) => (bytes.clone(), Next::Nothing),
        _ => unreachable!("assemble sends only these here"),
    }
}

/// IPv4, IPv6 and its extension headers.
fn network(layer: &Layer, next: Next, behind: usize) -> (Vec<u8>, Next) {
    let proto = |told: &Option<u8>| match (told, next) {
        (Some(told), _) => *told,
        (None, Next::Proto(proto)) => proto,
        (None, _) => 59, // No next header.
    };
    match layer {
        Layer::Ipv4 { src, dst, tos, ttl, proto: told, fragment, options } => {
            let size = 20 + options.len();
            let total = ((size + behind) as u16).to_be_bytes();
            let fixed = [0x40 | (size / 4) as u8, *tos, total[0], total[1], 0x12, 0x34];
            let mut bytes =
                [&fixed[..], &fragment.to_be_bytes(), &[*ttl, proto(told), 0, 0], src, dst, options].concat();
            let sum = internet(&bytes);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            (bytes, Next::Ethertype(0x0800))
        }
        Layer::Ipv6 { src, dst, tos, ttl, proto: told, label } => {
            let word = 6 << 28 | u32::from(*tos) << 20 | label & 0x000f_ffff;
            let size = (behind as u16).to_be_bytes();
            let bytes = [&word.to_be_bytes()[..], &size, &[proto(told), *ttl], src, dst].concat();
            (bytes, Next::Ethertype(0x86dd))
        }
        Layer::Extension { kind, proto: told, body } => {
            let size = body.len() + 2;
            let units = match kind {
                44 => 0,
                51 => size / 4 - 2,
                _ => size / 8 - 1,
            };
            ([&[proto(told), units as u8][..], body].concat(), Next::Proto(*kind))
        }
        _ => unreachable!("assemble sends only these here"),
    }
}

/// L4 headers, with their checksums over `payload` and the pseudo header of the IP header in `outer`.
fn transport(layer: &Layer, outer: &[Layer], payload: &[u8]) -> (Vec<u8>, Next) {
    let (header, checksum_at, proto) = match layer {
        Layer::Tcp { src_port, dst_port, flags, options } => {
            let words = (20 + options.len()) / 4;
            let control = (words << 12) as u16 | flags;
            let fixed = [0, 0, 0, 1, 0, 0, 0, 2]; // Sequence and acknowledgement numbers.
            let window = [0x10, 0, 0, 0, 0, 0];
            let ports = [src_port.to_be_bytes(), dst_port.to_be_bytes()].concat();
            ([&ports[..], &fixed, &control.to_be_bytes(), &window, options].concat(), Some(16), 6)
        }
        Layer::Udp { src_port, dst_port, with_checksum } => {
            let size = (8 + payload.len()) as u16;
            let words = [*src_port, *dst_port, size, 0];
            (words.map(u16::to_be_bytes).concat(), with_checksum.then_some(6), 17)
        }
        Layer::Sctp { src_port, dst_port } => {
            let ports = [src_port.to_be_bytes(), dst_port.to_be_bytes()].concat();
            let mut header = [&ports[..], &[0, 0, 0, 7, 0, 0, 0, 0]].concat();
            let crc = crc32c(&[&header[..], payload].concat());
            header[8..12].copy_from_slice(&crc.to_le_bytes());
            (header, None, 132)
        }
        Layer::Icmp { v6, kind, code, rest } => {
            ([&[*kind, *code, 0, 0][..], rest].concat(), Some(2), if *v6 { 58 } else { 1 })
        }
        Layer::Igmp { kind, code, group } => ([&[*kind, *code, 0, 0][..], group].concat(), Some(2), 2),
        _ => unreachable!("assemble sends only these here"),
    };
    let mut header = header;
    if let Some(at) = checksum_at {
        let pseudo = pseudo_header(proto, outer, header.len() + payload.len());
        let sum = internet(&[&pseudo[..], &header, payload].concat());
        // In UDP zero means "no checksum", so a computed zero is written as all ones.
        let sum = if sum == 0 && proto == 17 { 0xffff } else { sum };
        header[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    (header, Next::Proto(proto))
}

/// The pseudo header of the nearest IP header; ICMP and IGMP have none.
fn pseudo_header(proto: u8, outer: &[Layer], size: usize) -> Vec<u8> {
    if matches!(proto, 1 | 2) {
        return Vec::new();
    }
    let size = (size as u32).to_be_bytes();
    // A routing header with segments left has the final destination.
    let rerouted =
        outer.iter().rev().take_while(|layer| !matches!(layer, Layer::Ipv6 { .. })).find_map(|layer| match layer {
            Layer::Extension { kind: 43, body, .. } if body[1] > 0 => body.last_chunk::<16>(),
            _ => None,
        });
    let ip = outer.iter().rev().find(|layer| matches!(layer, Layer::Ipv4 { .. } | Layer::Ipv6 { .. }));
    match ip {
        Some(Layer::Ipv4 { src, dst, .. }) => [&src[..], dst, &[0, proto], &size[2..]].concat(),
        Some(Layer::Ipv6 { src, dst, .. }) => [&src[..], rerouted.unwrap_or(dst), &size, &[0, 0, 0, proto]].concat(),
        _ => Vec::new(),
    }
}
