//! Random packets from few values: every header the switch knows, options, extension headers, fragments, tags,
//! padding, broken lengths, and cuts in the middle.

use crate::rng::Rng;
use crate::table::Theme;
use crate::values::Values;

/// A packet's bytes, at least an Ethernet header of them.
pub fn random(rng: &mut Rng, values: &Values, theme: Theme) -> Vec<u8> {
    let mut packet = ethernet(rng, values);
    tags(rng, values, theme, &mut packet);
    match rng.weighted(&[55, 25, 10, 4, 3, 3]) {
        0 => ipv4(rng, values, &mut packet),
        1 => ipv6(rng, values, &mut packet),
        2 => arp(rng, values, &mut packet),
        3 => mpls(rng, values, &mut packet),
        4 => llc(rng, &mut packet),
        _ => other(rng, &mut packet),
    }
    if rng.chance(20) {
        packet.resize(packet.len() + 1 + rng.below(24), 0);
    }
    if rng.chance(7) {
        packet.truncate(14 + rng.below(packet.len() - 13));
    }
    packet
}

fn put16(packet: &mut Vec<u8>, value: u16) {
    packet.extend(value.to_be_bytes());
}

fn put32(packet: &mut Vec<u8>, value: u32) {
    packet.extend(value.to_be_bytes());
}

fn put_mac(packet: &mut Vec<u8>, mac: u64) {
    packet.extend(&mac.to_be_bytes()[2..]);
}

fn ethernet(rng: &mut Rng, values: &Values) -> Vec<u8> {
    let mut packet = Vec::with_capacity(128);
    put_mac(&mut packet, values.mac(rng));
    put_mac(&mut packet, values.mac(rng));
    packet
}

fn tags(rng: &mut Rng, values: &Values, theme: Theme, packet: &mut Vec<u8>) {
    for i in 0..rng.weighted(&[65, 25, 8, 2]) {
        put16(packet, *rng.pick(&[0x8100, 0x8100, 0x88a8]));
        let cfi = if rng.chance(5) { 0x1000 } else { 0 };
        let tci = values.vid(rng) | (rng.below(8) as u16) << 13 | cfi;
        // OVS's NORMAL takes off an inner tag of VLAN 0 and priority 0: see docs/translation.md.
        put16(packet, if i > 0 && theme.learns() && tci & 0xefff == 0 { 0x2000 } else { tci });
    }
}

fn other(rng: &mut Rng, packet: &mut Vec<u8>) {
    put16(packet, *rng.pick(&[0x88cc, 0x9000, 0x8902, 0x0600]));
    payload(rng, packet, 46);
}

/// An 802.3 frame: a length instead of a type, with or without a SNAP header.
fn llc(rng: &mut Rng, packet: &mut Vec<u8>) {
    put16(packet, 38);
    if rng.chance(60) {
        packet.extend([0xaa, 0xaa, 3, 0, 0, 0]);
        put16(packet, *rng.pick(&[0x0800, 0x88cc, 0x0101]));
        packet.resize(packet.len() + 30, 0);
    } else {
        packet.extend([0x42, 0x42, 3]);
        packet.resize(packet.len() + 35, 0);
    }
}

fn mpls(rng: &mut Rng, values: &Values, packet: &mut Vec<u8>) {
    put16(packet, *rng.pick(&[0x8847, 0x8847, 0x8848]));
    let n = 1 + rng.below(4);
    for i in 0..n {
        let label = *rng.pick(&values.labels);
        put32(packet, label << 12 | (rng.below(8) as u32) << 9 | u32::from(i + 1 == n) << 8 | 64);
    }
    payload(rng, packet, 40);
}

fn arp(rng: &mut Rng, values: &Values, packet: &mut Vec<u8>) {
    put16(packet, if rng.chance(15) { 0x8035 } else { 0x0806 });
    put16(packet, if rng.chance(3) { 6 } else { 1 });
    put16(packet, 0x0800);
    packet.extend(if rng.chance(3) { [8, 4] } else { [6, 4] });
    put16(packet, *rng.pick(&[1, 1, 2, 2, 3, 300]));
    for _ in 0..2 {
        put_mac(packet, values.mac(rng));
        put32(packet, values.ipv4(rng));
    }
    if rng.chance(50) {
        packet.resize(packet.len() + 18, 0);
    }
}

fn payload(rng: &mut Rng, packet: &mut Vec<u8>, most: usize) {
    let n = rng.below(most + 1);
    packet.extend((0..n).map(|i| i as u8));
}

fn ipv4(rng: &mut Rng, values: &Values, packet: &mut Vec<u8>) {
    put16(packet, 0x0800);
    let at = packet.len();
    let options = if rng.chance(12) { 4 * (1 + rng.below(3)) } else { 0 };
    let ihl = if rng.chance(1) { rng.below(16) } else { 5 + options / 4 };
    let protocol = *rng.pick(&[1_u8, 6, 6, 6, 17, 17, 17, 132, 47, 2]);
    let (more, offset) = fragment(rng);
    let (source, destination) = (values.ipv4(rng), values.ipv4(rng));
    packet.extend([if rng.chance(1) { 0x60 } else { 0x40 } | ihl as u8, tos(rng)]);
    put16(packet, 0);
    put16(packet, rng.next() as u16);
    let dont = if more == 0 && offset == 0 && rng.chance(40) { 0x4000 } else { 0 };
    put16(packet, dont | more << 13 | offset);
    packet.extend([ttl(rng), protocol, 0, 0]);
    put32(packet, source);
    put32(packet, destination);
    packet.resize(packet.len() + options, 1);
    let l4 = packet.len();
    if offset == 0 {
        transport(rng, values, packet, protocol);
    } else {
        payload(rng, packet, 32);
    }
    let total = (packet.len() - at) as u16;
    let claimed = match rng.below(100) {
        0 => total.wrapping_add(8),
        1 => total.saturating_sub(6),
        2 => 10,
        _ => total,
    };
    packet[at + 2..at + 4].copy_from_slice(&claimed.to_be_bytes());
    let sum = checksum(&packet[at..l4], 0);
    packet[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
    let pseudo = [&source.to_be_bytes()[..], &destination.to_be_bytes()[..]].concat();
    transport_checksum(rng, packet, l4, protocol, &pseudo, offset == 0 && more == 0);
}

fn ipv6(rng: &mut Rng, values: &Values, packet: &mut Vec<u8>) {
    put16(packet, 0x86dd);
    let at = packet.len();
    let protocol = *rng.pick(&[6_u8, 6, 17, 17, 58, 58, 58, 132, 47, 59]);
    let (source, destination) = (values.ipv6(rng), values.ipv6(rng));
    let version = if rng.chance(1) { 5 } else { 6 };
    put32(packet, version << 28 | u32::from(tos(rng)) << 20 | *rng.pick(&values.labels));
    put16(packet, 0);
    packet.extend([0, ttl(rng)]);
    packet.extend(source.to_be_bytes());
    packet.extend(destination.to_be_bytes());
    let mut next = at + 6;
    let mut whole = true;
    let mut later = false;
    for _ in 0..rng.weighted(&[75, 15, 7, 3]) {
        let kind = *rng.pick(&[0_u8, 43, 44, 44, 60, 51]);
        packet[next] = kind;
        next = packet.len();
        match kind {
            44 => {
                let (more, offset) = fragment(rng);
                whole &= more == 0 && offset == 0;
                later |= offset != 0;
                packet.extend([0, 0]);
                put16(packet, offset << 3 | more);
                put32(packet, rng.next() as u32);
            }
            51 => packet.extend([0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 9, 9, 9, 9]),
            _ => {
                let more = rng.below(2);
                packet.extend([0, more as u8, 1, 4]);
                packet.resize(packet.len() + 4 + 8 * more, 0);
            }
        }
    }
    packet[next] = protocol;
    let l4 = packet.len();
    if later {
        payload(rng, packet, 32)
    } else {
        transport(rng, values, packet, protocol)
    }
    let length = (packet.len() - at - 40) as u16;
    let claimed = if rng.chance(2) { length.wrapping_add(4) } else { length };
    packet[at + 4..at + 6].copy_from_slice(&claimed.to_be_bytes());
    let pseudo = [&source.to_be_bytes()[..], &destination.to_be_bytes()[..]].concat();
    transport_checksum(rng, packet, l4, protocol, &pseudo, whole);
}

fn tos(rng: &mut Rng) -> u8 {
    *rng.pick(&[0, 0, 0, 0xb8, 0x20, 1, 3])
}

fn ttl(rng: &mut Rng) -> u8 {
    *rng.pick(&[64, 64, 64, 2, 1, 0])
}

/// More-fragments bit and offset in units of 8 bytes.
fn fragment(rng: &mut Rng) -> (u16, u16) {
    match rng.below(12) {
        0 => (1, 0),
        1 => (1, 100),
        2 => (0, 185),
        _ => (0, 0),
    }
}

fn transport(rng: &mut Rng, values: &Values, packet: &mut Vec<u8>, protocol: u8) {
    let (source, destination) = (values.l4_port(rng), values.l4_port(rng));
    match protocol {
        6 => {
            put16(packet, source);
            put16(packet, destination);
            put32(packet, 1000);
            put32(packet, 2000);
            let options = if rng.chance(20) { 4 } else { 0 };
            let words = if rng.chance(2) { rng.below(16) } else { 5 + options / 4 };
            let flags = *rng.pick(&[0x02_u16, 0x10, 0x12, 0x18, 0x11, 0x04, 0x100]);
            put16(packet, (words as u16) << 12 | flags);
            put16(packet, 65535);
            packet.extend([0; 4]);
            packet.resize(packet.len() + options, 1);
            payload(rng, packet, 20);
        }
        17 => {
            let at = packet.len();
            put16(packet, source);
            put16(packet, destination);
            packet.extend([0; 4]);
            payload(rng, packet, 20);
            let length = (packet.len() - at) as u16;
            packet[at + 4..at + 6].copy_from_slice(&length.to_be_bytes());
        }
        132 => {
            put16(packet, source);
            put16(packet, destination);
            put32(packet, 7);
            let at = packet.len();
            put32(packet, 0);
            packet.extend([0, 3, 0, 20]);
            payload(rng, packet, 16);
            let crc = crc32c(&packet[at - 8..]);
            packet[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        }
        1 => {
            packet.extend([*rng.pick(&[8, 0, 3, 11]), rng.below(3) as u8, 0, 0, 0, 1, 0, 2]);
            payload(rng, packet, 28);
        }
        58 => icmpv6(rng, values, packet),
        _ => payload(rng, packet, 40),
    }
}

fn icmpv6(rng: &mut Rng, values: &Values, packet: &mut Vec<u8>) {
    let kind = *rng.pick(&[128, 129, 135, 135, 136, 136, 133]);
    let code = if rng.chance(10) { 1 } else { 0 };
    packet.extend([kind, code, 0, 0]);
    put32(packet, if kind == 136 && rng.chance(50) { 0x6000_0000 } else { 0 });
    if kind == 135 || kind == 136 {
        packet.extend(values.ipv6(rng).to_be_bytes());
        for _ in 0..rng.weighted(&[25, 55, 15, 5]) {
            // Source or target link-layer address, or an unknown option; sometimes with a broken length.
            let option = *rng.pick(&[1_u8, 1, 2, 2, 14]);
            let length = if rng.chance(4) { rng.below(4) as u8 } else { 1 };
            packet.extend([option, length]);
            put_mac(packet, if rng.chance(5) { 0 } else { values.mac(rng) });
        }
    } else {
        payload(rng, packet, 24);
    }
}

/// Fills in TCP's, UDP's and ICMP's checksum; UDP over IPv4 sometimes goes without.
fn transport_checksum(rng: &mut Rng, packet: &mut [u8], l4: usize, protocol: u8, pseudo: &[u8], whole: bool) {
    let place = match protocol {
        6 => 16,
        17 => 6,
        1 | 58 => 2,
        _ => return,
    };
    let length = packet.len() - l4;
    if length < place + 2 || !whole && rng.chance(50) || protocol == 17 && pseudo.len() == 8 && rng.chance(20) {
        return;
    }
    let mut start = 0;
    if protocol != 1 {
        start = sum(pseudo, 0) + u32::from(protocol) + length as u32;
    }
    let mut value = checksum(&packet[l4..], start);
    if protocol == 17 && value == 0 {
        value = 0xffff;
    }
    packet[l4 + place..l4 + place + 2].copy_from_slice(&value.to_be_bytes());
}

fn sum(bytes: &[u8], start: u32) -> u32 {
    bytes.chunks(2).fold(start, |s, w| s + u32::from(w[0]) * 256 + u32::from(*w.get(1).unwrap_or(&0)))
}

fn checksum(bytes: &[u8], start: u32) -> u16 {
    let mut total = sum(bytes, start);
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    !total as u16
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, b| {
        (0..8).fold(crc ^ u32::from(*b), |c, _| if c & 1 != 0 { c >> 1 ^ 0x82f6_3b78 } else { c >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standards() {
        // Source: RFC 1071 section 3; RFC 3720 appendix B.4 (32 bytes of zeroes).
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7], 0), !0xddf2);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }
}
