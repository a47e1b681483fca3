//! Extraction against what Open vSwitch says of the same packets.
//!
//! `open_vswitch_packets.txt` has, tab between, a packet and the flow that `ovs-appctl ofproto/trace BRIDGE in_port=1
//! PACKET` printed for it: Debian's OVS 3.1, `other_config:vlan-limit=2`. A flow text names only what OpenFlow could
//! match, so a few key fields are not judged here; see [`unnamed`].

use sluice_flow::{FlowKey, Metadata, PacketKey, extract, layout};
use std::net::{Ipv4Addr, Ipv6Addr};

/// What the line's second half says when OVS refuses the packet.
const REFUSED: &str = "!Packet data too short for Ethernet";

fn bytes_of(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn mac(text: &str) -> Vec<u8> {
    text.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

fn number(text: &str) -> u64 {
    text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16)).unwrap()
}

fn tcp_flags(text: &str) -> u64 {
    let bits = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]"];
    let named = text.split('|').filter(|flag| !flag.is_empty() && *flag != "0");
    named.map(|flag| 1 << bits.iter().position(|bit| *bit == flag).unwrap_or_else(|| panic!("TCP flag {flag}"))).sum()
}

/// Ethernet type and IP protocol that a word without a value stands for.
fn shorthand(word: &str, key: &mut FlowKey) {
    let (ethertype, proto) = match word {
        "ip" => (0x0800, 0),
        "ipv6" => (0x86dd, 0),
        "arp" => (0x0806, 0),
        "rarp" => (0x8035, 0),
        "mpls" => (0x8847, 0),
        "mplsm" => (0x8848, 0),
        "icmp" => (0x0800, 1),
        "tcp" => (0x0800, 6),
        "udp" => (0x0800, 17),
        "sctp" => (0x0800, 132),
        "icmp6" => (0x86dd, 58),
        "tcp6" => (0x86dd, 6),
        "udp6" => (0x86dd, 17),
        "sctp6" => (0x86dd, 132),
        _ => panic!("the corpus has a word this test does not know: {word}"),
    };
    key.set_number(layout::DL_TYPE, ethertype);
    key.set_number(layout::NW_PROTO, proto);
}

/// Adds bits to a field of several named parts.
fn add(key: &mut FlowKey, span: layout::Span, bits: u64) {
    key.set_number(span, key.number(span) | bits);
}

fn field(name: &str, value: &str, key: &mut FlowKey) {
    use layout::*;
    let v4 = |value: &str| value.parse::<Ipv4Addr>().unwrap().octets();
    let v6 = |value: &str| value.parse::<Ipv6Addr>().unwrap().octets();
    match name {
        "in_port" => key.set_number(IN_PORT, number(value)),
        "dl_src" => key.set(DL_SRC, &mac(value)),
        "dl_dst" => key.set(DL_DST, &mac(value)),
        "dl_type" => key.set_number(DL_TYPE, number(value)),
        "vlan_tci" => key.set_number(VLAN0_TCI, number(value)),
        "vlan_tci1" => key.set_number(VLAN1_TCI, number(value)),
        "dl_vlan" => add(key, VLAN0_TCI, 0x1000 | number(value)),
        "dl_vlan1" => add(key, VLAN1_TCI, 0x1000 | number(value)),
        "dl_vlan_pcp" => add(key, VLAN0_TCI, number(value) << 13),
        "dl_vlan_pcp1" => add(key, VLAN1_TCI, number(value) << 13),
        "mpls_label" => add(key, MPLS0, number(value) << 12),
        "mpls_tc" => add(key, MPLS0, number(value) << 9),
        "mpls_bos" => add(key, MPLS0, number(value) << 8),
        "mpls_ttl" => add(key, MPLS0, number(value)),
        "mpls_lse1" => key.set_number(MPLS1, number(value)),
        "mpls_lse2" => key.set_number(MPLS2, number(value)),
        "nw_src" | "arp_spa" => key.set(NW_SRC, &v4(value)),
        "nw_dst" | "arp_tpa" => key.set(NW_DST, &v4(value)),
        "arp_sha" | "nd_sll" => key.set(ARP_SHA, &mac(value)),
        "arp_tha" | "nd_tll" => key.set(ARP_THA, &mac(value)),
        "arp_op" | "nw_proto" => key.set_number(NW_PROTO, number(value)),
        "ipv6_src" => key.set(IPV6_SRC, &v6(value)),
        "ipv6_dst" => key.set(IPV6_DST, &v6(value)),
        "ipv6_label" => key.set_number(IPV6_LABEL, number(value)),
        "nw_tos" | "nw_ecn" => add(key, NW_TOS, number(value)),
        "nw_ttl" => key.set_number(NW_TTL, number(value)),
        "nw_frag" => {
            let frag = ["no", "first", "?", "later"].iter().position(|frag| *frag == value).unwrap();
            key.set_number(NW_FRAG, frag as u64);
        }
        "tp_src" | "icmp_type" => key.set_number(TP_SRC, number(value)),
        "tp_dst" | "icmp_code" => key.set_number(TP_DST, number(value)),
        "tcp_flags" => key.set_number(TCP_FLAGS, tcp_flags(value)),
        "nd_target" => key.set(ND_TARGET, &v6(value)),
        _ => panic!("the corpus has a field this test does not know: {name}"),
    }
}

fn key_of_text(text: &str) -> FlowKey {
    let mut key = FlowKey::ZERO;
    for part in text.split(',') {
        match part.split_once('=') {
            Some((name, value)) => field(name, value, &mut key),
            None => shorthand(part, &mut key),
        }
    }
    key
}

/// What the flow text does not tell, set to zero in `key`.
fn unnamed(key: &mut FlowKey) {
    use layout::*;
    key.set_number(VLAN0_TPID, 0);
    key.set_number(VLAN1_TPID, 0);
    key.set_number(ND_RESERVED, 0);
    let (ethertype, proto) = (key.number(DL_TYPE), key.number(NW_PROTO));
    let is_ip = matches!(ethertype, 0x0800 | 0x86dd);
    if proto != 6 || !is_ip {
        key.set_number(TCP_FLAGS, 0); // Option type of neighbour discovery.
    }
    // Neighbour discovery in IPv4 has no fields in OpenFlow.
    if (ethertype, proto) == (0x0800, 58) {
        [ARP_SHA, ARP_THA].into_iter().for_each(|span| key.set_number(span, 0));
        key.set(ND_TARGET, &[0; 16]);
    }
}

#[test]
fn keys_are_those_of_open_vswitch() {
    let corpus = include_str!("open_vswitch_packets.txt");
    let mut compared = 0;
    for line in corpus.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (hex, text) = line.split_once('\t').unwrap();
        let mut key = PacketKey::ZERO;
        let result = extract(&bytes_of(hex), &Metadata::of_port(1), &mut key);
        assert_eq!(result.is_err(), text == REFUSED, "{line}");
        if result.is_ok() {
            let mut got = FlowKey::of_packet(&key);
            unnamed(&mut got);
            let mut want = key_of_text(text);
            unnamed(&mut want);
            assert_eq!(got, want, "\n{line}");
        }
        compared += 1;
    }
    assert!(compared > 50, "the corpus has but {compared} packets");
}
