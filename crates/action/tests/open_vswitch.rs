//! Edits against what Open vSwitch did to the same packets.
//!
//! `open_vswitch_edits.txt` has, tabs between, a packet, an action of `ovs-ofctl`, and the packet that came out of
//! `ovs-ofctl packet-out BRIDGE "in_port=1 packet=… actions=ACTION,output:2"`: Debian's OVS 3.1, userspace datapath.
//! Lines that begin with `!` are those where we differ on purpose; the heading says why.

use sluice_action::{Action, Header, MaskedField, edit};
use sluice_flow::layout::{self, Span};
use sluice_packet::VlanLimit;
use sluice_testkit::pool::TestPool;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A field's header, its place in a key, and how many of that place's last bytes the text gives (0: all).
fn field_of(name: &str, is_v6: bool) -> (Header, Span, usize) {
    use layout::*;
    let ip = if is_v6 { Header::Ipv6 } else { Header::Ipv4 };
    match name {
        "eth_src" => (Header::Ethernet, DL_SRC, 0),
        "eth_dst" => (Header::Ethernet, DL_DST, 0),
        "ip_src" => (Header::Ipv4, NW_SRC, 0),
        "ip_dst" => (Header::Ipv4, NW_DST, 0),
        "nw_ttl" => (ip, NW_TTL, 0),
        "nw_tos" => (ip, NW_TOS, 0),
        "ipv6_src" => (Header::Ipv6, IPV6_SRC, 0),
        "ipv6_dst" => (Header::Ipv6, IPV6_DST, 0),
        "ipv6_label" => (Header::Ipv6, IPV6_LABEL, 0),
        "tcp_src" => (Header::Tcp, TP_SRC, 0),
        "tcp_dst" => (Header::Tcp, TP_DST, 0),
        "udp_src" => (Header::Udp, TP_SRC, 0),
        "udp_dst" => (Header::Udp, TP_DST, 0),
        "sctp_src" => (Header::Sctp, TP_SRC, 0),
        "sctp_dst" => (Header::Sctp, TP_DST, 0),
        "icmp_type" => (Header::Icmp, TP_SRC, 1),
        "icmp_code" => (Header::Icmp, TP_DST, 1),
        "icmpv6_type" => (Header::Icmpv6, TP_SRC, 1),
        "icmpv6_code" => (Header::Icmpv6, TP_DST, 1),
        "nd_target" => (Header::Nd, ND_TARGET, 0),
        "nd_sll" => (Header::Nd, ARP_SHA, 0),
        "nd_tll" => (Header::Nd, ARP_THA, 0),
        "nd_reserved" => (Header::Nd, ND_RESERVED, 0),
        "nd_options_type" => (Header::Nd, TCP_FLAGS, 1),
        "arp_spa" => (Header::Arp, NW_SRC, 0),
        "arp_tpa" => (Header::Arp, NW_DST, 0),
        "arp_sha" => (Header::Arp, ARP_SHA, 0),
        "arp_tha" => (Header::Arp, ARP_THA, 0),
        "arp_op" => (Header::Arp, NW_PROTO, 0),
        _ => panic!("the corpus has a field this test does not know: {name}"),
    }
}

fn bytes_of(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// A value as the last bytes of a field of `size` bytes.
fn value_of(text: &str, size: usize) -> [u8; 16] {
    let bytes = if let Ok(number) = text.parse::<u64>() {
        number.to_be_bytes()[8 - size.min(8)..].to_vec()
    } else if let Ok(address) = text.parse::<Ipv4Addr>() {
        address.octets().to_vec()
    } else if let Ok(address) = text.parse::<Ipv6Addr>() {
        address.octets().to_vec()
    } else {
        text.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
    };
    let mut value = [0; 16];
    value[..size].copy_from_slice(&bytes);
    value
}

/// `set_field:VALUE[/MASK]->FIELD`
fn action_of(text: &str, packet: &[u8]) -> Action {
    let (values, name) = text.strip_prefix("set_field:").unwrap().split_once("->").unwrap();
    let is_v6 = sluice_packet::Layers::of(packet).unwrap().ethertype == 0x86dd;
    let (header, span, last) = field_of(name, is_v6);
    let (value, mask) = match values.split_once('/') {
        Some((value, mask)) => (value_of(value, span.size), value_of(mask, span.size)),
        // A type of service is set without its two ECN bits.
        None if name == "nw_tos" => (value_of(values, 1), value_of("252", 1)),
        None => {
            let mut mask = [0; 16];
            mask[if last == 0 { 0 } else { span.size - last }..span.size].fill(0xff);
            (value_of(values, span.size), mask)
        }
    };
    Action::Set { header, fields: [MaskedField { span, value, mask }].into() }
}

#[test]
fn edits_are_those_of_open_vswitch() {
    let mut pool = TestPool::new();
    let mut compared = 0;
    for line in include_str!("open_vswitch_edits.txt").lines().filter(|line| !line.starts_with('#')) {
        let is_difference = line.starts_with('!');
        let [before, action, after] = *line.trim_start_matches('!').split('\t').collect::<Vec<_>>() else {
            panic!("{line}")
        };
        let before = bytes_of(before);
        let mut packet = pool.packet(&before);
        edit(&action_of(action, &before), &mut packet, VlanLimit::MAX)
            .unwrap_or_else(|error| panic!("{error}\n{line}"));
        let got = pool.take_bytes(packet);
        assert_eq!(got == bytes_of(after), !is_difference, "\n{line}\n{got:02x?}");
        compared += 1;
    }
    assert!(compared > 100, "the corpus has but {compared} edits");
}
