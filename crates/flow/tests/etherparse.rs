//! Extraction against the `etherparse` crate, for every packet that it accepts too.
//!
//! It is stricter (it refuses wrong versions and cut headers) and knows less (neither MPLS nor SCTP); where it accepts
//! a layer, the key must say the same of it.

use etherparse::{LinkExtSlice, LinkSlice, NetSlice, SlicedPacket, TcpSlice, TransportSlice};
use proptest::prelude::*;
use sluice_flow::{FlowKey, Metadata, PacketKey, extract, layout};
use sluice_testkit::arbitrary::packets;

fn key_of(packet: &[u8]) -> FlowKey {
    let mut key = PacketKey::ZERO;
    extract(packet, &Metadata::of_port(1), &mut key).expect("etherparse found an Ethernet header");
    FlowKey::of_packet(&key)
}

fn tcp_flags(tcp: &TcpSlice<'_>) -> u64 {
    let bits = [tcp.fin(), tcp.syn(), tcp.rst(), tcp.psh(), tcp.ack(), tcp.urg(), tcp.ece(), tcp.cwr(), tcp.ns()];
    bits.iter().rev().fold(0, |n, bit| n << 1 | u64::from(*bit))
}

/// What is compared of the link layer. Returns whether the key looked as far as etherparse did.
fn same_link(key: &FlowKey, sliced: &SlicedPacket<'_>) -> Result<bool, TestCaseError> {
    let Some(LinkSlice::Ethernet2(link)) = &sliced.link else { return Ok(false) };
    prop_assert_eq!(key.get(layout::DL_DST), link.destination());
    prop_assert_eq!(key.get(layout::DL_SRC), link.source());
    let mut ethertype = link.ether_type();
    for (i, ext) in sliced.link_exts.iter().enumerate() {
        let LinkExtSlice::Vlan(vlan) = ext else { return Ok(false) };
        // 0x9100 is a tag for etherparse, not for OVS.
        if !matches!(ethertype.0, 0x8100 | 0x88a8) {
            return Ok(false);
        }
        let (tpid, tci) = match i {
            0 => (layout::VLAN0_TPID, layout::VLAN0_TCI),
            1 => (layout::VLAN1_TPID, layout::VLAN1_TCI),
            // The key has room for two.
            _ => return Ok(false),
        };
        prop_assert_eq!(key.number(tpid), u64::from(ethertype.0));
        let (pcp, vid) = (u64::from(vlan.priority_code_point().value()), u64::from(vlan.vlan_identifier().value()));
        prop_assert_eq!(key.number(tci), pcp << 13 | 0x1000 | vid);
        ethertype = vlan.ether_type();
    }
    // Below 0x600 it is a length.
    Ok(ethertype.0 >= 0x600 && key.number(layout::DL_TYPE) == u64::from(ethertype.0))
}

fn same_net(key: &FlowKey, net: &NetSlice<'_>) -> Result<bool, TestCaseError> {
    match net {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            prop_assert_eq!(key.get(layout::NW_SRC), header.source());
            prop_assert_eq!(key.get(layout::NW_DST), header.destination());
            prop_assert_eq!(key.number(layout::NW_TTL), u64::from(header.ttl()));
            let tos = header.dcp().value() << 2 | header.ecn().value();
            prop_assert_eq!(key.number(layout::NW_TOS), u64::from(tos));
            prop_assert_eq!(key.number(layout::NW_PROTO), u64::from(header.protocol().0));
            let later = header.fragments_offset().value() > 0;
            prop_assert_eq!(key.number(layout::NW_FRAG), u64::from(ip.is_payload_fragmented()) | u64::from(later) << 1);
            // OVS has no AH in IPv4.
            Ok(header.protocol() == ip.payload_ip_number())
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            prop_assert_eq!(key.get(layout::IPV6_SRC), header.source());
            prop_assert_eq!(key.get(layout::IPV6_DST), header.destination());
            // etherparse stops at headers out of the recommended order; those OVS goes on through are not compared.
            if key.number(layout::NW_PROTO) != u64::from(ip.payload().ip_number.0) || key.number(layout::NW_FRAG) == 3 {
                return Ok(false);
            }
            // A payload length of 0 means "all that is there" to etherparse (a jumbogram), nothing to OVS.
            if header.payload_length() == 0 {
                return Ok(false);
            }
            prop_assert_eq!(key.number(layout::IPV6_LABEL), u64::from(header.flow_label().value()));
            prop_assert_eq!(key.number(layout::NW_TTL), u64::from(header.hop_limit()));
            prop_assert_eq!(key.number(layout::NW_TOS), u64::from(header.traffic_class()));
            if ip.is_payload_fragmented() {
                prop_assert_eq!(key.number(layout::NW_FRAG), 1);
            }
            Ok(true)
        }
        NetSlice::Arp(arp) => {
            let arp = arp.to_packet();
            if arp.hw_addr_type.0 == 1
                && arp.proto_addr_type.0 == 0x0800
                && arp.sender_hw_addr().len() == 6
                && arp.sender_protocol_addr().len() == 4
            {
                prop_assert_eq!(key.get(layout::ARP_SHA), arp.sender_hw_addr());
                prop_assert_eq!(key.get(layout::ARP_THA), arp.target_hw_addr());
                prop_assert_eq!(key.get(layout::NW_SRC), arp.sender_protocol_addr());
                prop_assert_eq!(key.get(layout::NW_DST), arp.target_protocol_addr());
                let op = arp.operation.0;
                prop_assert_eq!(key.number(layout::NW_PROTO), u64::from(if op < 256 { op } else { 0 }));
            }
            Ok(false)
        }
    }
}

fn same_transport(key: &FlowKey, transport: &TransportSlice<'_>) -> Result<(), TestCaseError> {
    let ports = (key.number(layout::TP_SRC), key.number(layout::TP_DST));
    match transport {
        TransportSlice::Tcp(tcp) => {
            prop_assert_eq!(ports, (tcp.source_port().into(), tcp.destination_port().into()));
            prop_assert_eq!(key.number(layout::TCP_FLAGS) & 0x1ff, tcp_flags(tcp));
        }
        TransportSlice::Udp(udp) => prop_assert_eq!(ports, (udp.source_port().into(), udp.destination_port().into())),
        TransportSlice::Icmpv4(icmp) => prop_assert_eq!(ports, (icmp.type_u8().into(), icmp.code_u8().into())),
        TransportSlice::Icmpv6(icmp) => prop_assert_eq!(ports, (icmp.type_u8().into(), icmp.code_u8().into())),
        TransportSlice::Igmp(igmp) => {
            prop_assert_eq!(ports, (igmp.type_u8().into(), igmp.max_resp_code_or_reserved().into()));
            prop_assert_eq!(key.get(layout::ND_RESERVED), igmp.bytes4to7());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn what_etherparse_finds_the_key_says(packet in packets()) {
        let Ok(sliced) = SlicedPacket::from_ethernet(&packet) else { return Ok(()) };
        let key = key_of(&packet);
        if !same_link(&key, &sliced)? {
            return Ok(());
        }
        let Some(net) = &sliced.net else { return Ok(()) };
        if !same_net(&key, net)? {
            return Ok(());
        }
        if let Some(transport) = &sliced.transport {
            same_transport(&key, transport)?;
        }
    }
}
