//! Frames of few hosts and few ports, so that packets meet the connections, rules and fragments of others.

use super::bench::PORTS;
use crate::input::Input;
use sluice_testkit::frame::{self, FrameBuilder};

/// Data that helpers of connections read, and some that they do not.
const PAYLOADS: [&[u8]; 6] = [
    b"",
    b"PORT 10,0,0,1,4,1\r\n",
    b"227 Entering Passive Mode (10,0,0,2,4,2).\r\n",
    b"EPRT |1|10.0.0.1|1025|\r\n",
    b"\0\x01file\0octet\0",
    b"0123456789abcdef",
];

/// Transport ports: helpers', and some that NAT chooses.
const TRANSPORT_PORTS: [u16; 8] = [21, 53, 69, 80, 1000, 1025, 1026, 40_000];

/// A port of the switch, and a frame that comes in there. `places` says which host is behind which port. Hosts move
/// between bursts only: of an address that two ports show at a time, either may be learned last.
pub fn frame(input: &mut Input, places: u8) -> (u16, Vec<u8>) {
    let place = input.byte();
    let mut builder = frame::ethernet().macs(mac(place.wrapping_add(places)), mac(place >> 2));
    let shape = input.byte();
    if shape & 0x80 != 0 {
        builder = builder.vlan(5);
    }
    if shape & 0xc0 == 0xc0 {
        builder = builder.mpls(16, 0, 64);
    }
    let mut bytes = network(builder, shape, input).build();
    if shape & 0x60 == 0x60 {
        bytes.truncate(input.byte().into());
    }
    (1 + u16::from(place) % PORTS, bytes)
}

fn mac(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, 1 + n % 4]
}

fn host4(n: u8) -> [u8; 4] {
    [10, 0, 0, [1, 2, 3, 9][usize::from(n % 4)]]
}

fn host6(n: u8) -> [u8; 16] {
    [0xfc, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 + n % 4]
}

fn network(builder: FrameBuilder, shape: u8, input: &mut Input) -> FrameBuilder {
    let hosts = input.byte();
    let (src, dst) = (hosts, hosts >> 2);
    match shape % 16 {
        0..=6 => transport(builder.ipv4(host4(src), host4(dst)), shape, input),
        7 => {
            let offset = [0, 0, 8, 185][usize::from(hosts >> 6)];
            transport(builder.ipv4(host4(src), host4(dst)).fragment(offset, hosts & 0x10 == 0), shape, input)
        }
        8 | 9 => transport(builder.ipv6(host6(src), host6(dst)), shape, input),
        10 => builder.arp(1 + u16::from(hosts >> 7), mac(src), host4(src), mac(dst), host4(dst)),
        11 => {
            // An error about a packet that the other host sent.
            let mut inside = Input(input.bytes(3));
            let about = transport(frame::ethernet().ipv4(host4(dst), host4(src)), shape, &mut inside).build();
            builder.ipv4(host4(src), host4(dst)).icmp(3, hosts >> 6).payload(&about[14..])
        }
        12 => builder.ipv4(host4(src), host4(dst)).icmp([8, 0][usize::from(hosts >> 7)], 0),
        13 => builder.ipv6(host6(src), host6(dst)).neighbour_solicit(host6(src)),
        14 => builder.ipv4(host4(src), host4(dst)).ttl(1).tcp(1000, 80),
        _ => builder.ethertype(0x88cc).payload(input.bytes(20)),
    }
}

fn transport(builder: FrameBuilder, shape: u8, input: &mut Input) -> FrameBuilder {
    let (ports, kind) = (input.byte(), input.byte());
    let src = TRANSPORT_PORTS[usize::from(ports & 7)];
    let dst = TRANSPORT_PORTS[usize::from(ports >> 3 & 7)];
    let payload = PAYLOADS[usize::from(kind >> 4) % PAYLOADS.len()];
    match shape % 3 {
        0 => builder.udp(src, dst).payload(payload),
        1 if ports & 0x80 != 0 => builder.sctp(src, dst),
        // SYN, SYN and ACK, ACK, ACK, data, FIN, RST, none.
        _ => {
            let flags = [0x02, 0x12, 0x10, 0x10, 0x18, 0x11, 0x04, 0][usize::from(kind & 7)];
            builder.tcp(src, dst).tcp_flags(flags).payload(payload)
        }
    }
}
