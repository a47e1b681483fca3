//! What one end sends the other end reads; what is broken is refused.

use super::*;
use crate::{TunnelConfig, parse};
use proptest::prelude::*;
use sluice_flow::geneve::{GeneveOption, OptionKind, OptionMap};
use sluice_flow::{TunnelKey, tunnel_flags};
use std::net::Ipv6Addr;

const KINDS: [TunnelKind; 7] = TunnelKind::ALL;
const LINK_DST: [u8; 6] = [0xf8, 0xbc, 0x12, 0x44, 0x34, 0xb6];
const LINK_SRC: [u8; 6] = [0xaa, 0x55, 0xaa, 0x55, 0, 0];

fn config(kind: TunnelKind, options: &str) -> TunnelConfig {
    let options = format!("remote_ip=flow local_ip=flow key=flow {options}");
    let pairs = options.split_whitespace().filter_map(|pair| pair.split_once('='));
    parse("t", kind, &pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()).unwrap().config
}

fn address(is_ipv6: bool, low: u32) -> Ipv6Addr {
    let prefix = if is_ipv6 { 0x2001_cafe << 96 } else { 0xffff << 32 };
    Ipv6Addr::from_bits(prefix | u128::from(low))
}

fn link(src: Ipv6Addr) -> OuterLink {
    OuterLink { link_dst: LINK_DST, link_src: LINK_SRC, src }
}

/// A whole packet of a tunnel.
fn packet(config: &TunnelConfig, tunnel: &TunnelKey, inner: &[u8]) -> Vec<u8> {
    let header = TunnelHeader::build(config, tunnel, &[], &link(Ipv6Addr::from_bits(tunnel.src))).unwrap();
    let mut packet = vec![0xee; header.bytes().len()];
    packet.extend(inner);
    let ethernet = if tunnel.payload_type == 0 { 0 } else { ETHERNET_SIZE };
    assert_eq!(header.growth() + ethernet, header.bytes().len());
    let per_packet = PerPacket { source_port: 40_000, sequence: 7, timestamp: 9 };
    header.complete(&mut packet, per_packet).unwrap();
    packet
}

/// A tunnel, its fields and a frame.
fn sent() -> impl Strategy<Value = (TunnelConfig, TunnelKey, Vec<u8>)> {
    let choices = (0..KINDS.len(), any::<[bool; 7]>(), any::<[u32; 4]>(), any::<[u8; 4]>());
    let frame = proptest::collection::vec(any::<u8>(), 14..200);
    (choices, frame).prop_map(
        |((kind, [is_ipv6, csum, key, oam, gbp, seq, bare], words, [tos, ttl, dir, ver]), mut frame)| {
            let kind = KINDS[kind];
            let payload_type = match kind {
                TunnelKind::Gtpu => [0x0800, 0x86dd][usize::from(ver & 1)],
                TunnelKind::Vxlan if bare => [0x0800, 0x86dd][usize::from(ver & 1)],
                TunnelKind::Gre | TunnelKind::Ip6Gre if bare => [0x0800, 0x86dd, 0x8847, 0x0806][usize::from(ver & 3)],
                _ => 0,
            };
            // GTP-U has no type of its payload but the version that IP has.
            frame[0] = if payload_type == 0x86dd { 0x60 } else { 0x45 };
            let exts = match kind {
                TunnelKind::Vxlan if payload_type != 0 => "exts=gpe",
                TunnelKind::Vxlan if gbp => "exts=gbp",
                _ => "",
            };
            let seq = if seq && !kind.is_erspan() && kind.is_gre() { "seq=true" } else { "" };
            let config = config(kind, &format!("{exts} {seq}"));
            let has_key = kind != TunnelKind::Gtpu && (key || !kind.is_gre() || kind.is_erspan());
            let id = match kind {
                TunnelKind::Gtpu => words[0],
                _ if !has_key => 0,
                TunnelKind::Vxlan | TunnelKind::Geneve => words[0] >> 8,
                _ if kind.is_erspan() => words[0] & 0x3ff,
                _ => words[0],
            };
            let has_csum = !kind.is_erspan() && (csum || is_ipv6 && !kind.is_gre());
            let mut flags = 0;
            flags |= if has_csum { tunnel_flags::CSUM } else { 0 };
            flags |= if has_key { tunnel_flags::KEY } else { 0 };
            flags |= if oam && kind == TunnelKind::Geneve { tunnel_flags::OAM } else { 0 };
            let version = if kind.is_erspan() { 1 + (ver & 1) } else { 0 };
            let tunnel = TunnelKey {
                id: id.into(),
                src: address(is_ipv6, words[1]).to_bits(),
                dst: address(is_ipv6, words[2]).to_bits(),
                flags,
                tos,
                ttl,
                gbp_id: if config.gbp { words[3] as u16 } else { 0 },
                gbp_flags: if config.gbp { (words[3] >> 16) as u8 & 0x48 } else { 0 },
                erspan_ver: version,
                erspan_idx: if version == 1 { words[3] & 0xf_ffff } else { 0 },
                erspan_dir: if version == 2 { dir & 1 } else { 0 },
                erspan_hwid: if version == 2 { dir >> 2 } else { 0 },
                gtpu_flags: if kind == TunnelKind::Gtpu { GTPU_VERSION } else { 0 },
                gtpu_msgtype: if kind == TunnelKind::Gtpu { GTPU_PACKET } else { 0 },
                payload_type,
                ..TunnelKey::default()
            };
            (config, tunnel, frame)
        },
    )
}

proptest! {
    #[test]
    fn the_other_end_reads_what_was_sent((config, tunnel, frame) in sent(), padding in 0..8usize) {
        let mut packet = packet(&config, &tunnel, &frame);
        packet.resize(packet.len() + padding, 0);
        let popped = pop(config.kind, &packet).unwrap();
        prop_assert_eq!(popped.tunnel, tunnel);
        // A plain header is read as one, if it has nothing else to say.
        let is_plain = TunnelKey { id: 0, src: 0, dst: 0, tos: 0, ttl: 0, ..tunnel }
            == TunnelKey { flags: tunnel_flags::KEY, ..TunnelKey::default() };
        let is_plain = is_plain && !config.kind.is_gre() && Ipv6Addr::from_bits(tunnel.dst).to_ipv4_mapped().is_some();
        prop_assert_eq!(pop_plain(config.kind, &packet), is_plain.then_some(tunnel));
        prop_assert_eq!(&packet[popped.inner], &frame[..]);
    }

    /// A plain header is completed as any other one.
    #[test]
    fn plain_headers_are_like_any((config, tunnel, frame) in sent(), source_port: u16) {
        let header = TunnelHeader::build(&config, &tunnel, &[], &link(Ipv6Addr::from_bits(tunnel.src))).unwrap();
        let per_packet = PerPacket { source_port, sequence: 7, timestamp: 9 };
        let mut fast = [&vec![0xee; header.bytes().len()], &frame[..]].concat();
        let mut any = [header.bytes(), &frame[..]].concat();
        header.complete(&mut fast, per_packet).unwrap();
        header.complete_any(&mut any, per_packet).unwrap();
        prop_assert_eq!(fast, any);
    }

    /// The packets are what a library that knows nothing of this one takes them for.
    #[test]
    fn outer_headers_are_right((config, tunnel, frame) in sent()) {
        let packet = packet(&config, &tunnel, &frame);
        let outer = etherparse::PacketHeaders::from_ethernet_slice(&packet).unwrap();
        let mut checksum = None;
        let payload = |l4_at: usize| &packet[l4_at + UDP_SIZE..];
        match outer.net {
            Some(etherparse::NetHeaders::Ipv4(ip, _)) => {
                if let Some(etherparse::TransportHeader::Udp(udp)) = &outer.transport {
                    checksum = Some(udp.calc_checksum_ipv4(&ip, payload(IP_AT + IPV4_SIZE)).unwrap());
                }
                prop_assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                prop_assert_eq!((ip.total_len as usize, ip.time_to_live), (packet.len() - IP_AT, tunnel.ttl));
            }
            Some(etherparse::NetHeaders::Ipv6(ip, _)) => {
                if let Some(etherparse::TransportHeader::Udp(udp)) = &outer.transport {
                    checksum = Some(udp.calc_checksum_ipv6(&ip, payload(IP_AT + IPV6_SIZE)).unwrap());
                }
                prop_assert_eq!((ip.payload_length as usize, ip.traffic_class), (packet.len() - IP_AT - IPV6_SIZE, tunnel.tos));
            }
            other => prop_assert!(false, "{other:?}"),
        }
        if let Some(etherparse::TransportHeader::Udp(udp)) = outer.transport {
            prop_assert_eq!((udp.source_port, udp.destination_port), (40_000, config.dst_port));
            let has_checksum = tunnel.flags & tunnel_flags::CSUM != 0;
            prop_assert_eq!(udp.checksum, if has_checksum { checksum.unwrap() } else { 0 });
        }
    }

    /// Whatever a header is like, reading it ends, and the inner frame lies in the packet.
    #[test]
    fn broken_headers_are_refused((config, tunnel, frame) in sent(), at in 0..120usize, to in any::<u8>(), cut in 0..120usize) {
        let whole = packet(&config, &tunnel, &frame);
        let mut broken = whole.clone();
        if let Some(byte) = broken.get_mut(at) {
            *byte = to;
        }
        for packet in [&broken[..], &whole[..cut.min(whole.len())]] {
            for kind in KINDS {
                let popped = pop(kind, packet);
                if let Some(tunnel) = pop_plain(kind, packet) {
                    let popped = popped.as_ref().map(|popped| (popped.tunnel, popped.inner.start));
                    prop_assert_eq!(popped, Ok((tunnel, PLAIN_SIZE)));
                }
                if let Ok(popped) = popped {
                    prop_assert!(packet.get(popped.inner).is_some());
                }
            }
        }
        prop_assert_eq!(pop(config.kind, &whole[..whole.len() - 1]), Err(PopError::Truncated));
    }
}

#[test]
fn each_fault_has_its_name() {
    let tunnel = TunnelKey {
        id: 123,
        src: address(false, 0x0101_0258).to_bits(),
        dst: address(false, 0x0101_025c).to_bits(),
        ttl: 64,
        flags: tunnel_flags::CSUM,
        ..TunnelKey::default()
    };
    let broken = |kind, at: usize, to: u8| {
        let mut packet = packet(&config(kind, ""), &tunnel, &[1; 60]);
        packet[at] = to;
        assert_eq!(pop_plain(kind, &packet), None);
        pop(kind, &packet).unwrap_err()
    };
    let l4 = IP_AT + IPV4_SIZE;
    assert_eq!(broken(TunnelKind::Vxlan, IP_AT, 0x46), PopError::Unknown, "options of IPv4");
    assert_eq!(broken(TunnelKind::Vxlan, IP_AT + 8, 63), PopError::Checksum, "of IPv4");
    assert_eq!(broken(TunnelKind::Vxlan, l4 + 50, 9), PopError::Checksum, "of UDP");
    assert_eq!(broken(TunnelKind::Gre, l4 + 50, 9), PopError::Checksum, "of GRE");
    assert_eq!(broken(TunnelKind::Gre, l4 + 1, 1), PopError::Unknown, "version of GRE");
    let no_sum = TunnelKey { flags: 0, ..tunnel };
    let broken = |kind, at: usize, to: u8| {
        let mut packet = packet(&config(kind, ""), &no_sum, &[1; 60]);
        packet[at] = to;
        assert_eq!(pop_plain(kind, &packet), None);
        pop(kind, &packet).unwrap_err()
    };
    assert_eq!(broken(TunnelKind::Vxlan, l4 + UDP_SIZE, 0), PopError::Unknown, "no VNI");
    assert_eq!(broken(TunnelKind::Vxlan, l4 + UDP_SIZE + 7, 1), PopError::Unknown, "reserved byte");
    assert_eq!(broken(TunnelKind::Geneve, l4 + UDP_SIZE, 0x40), PopError::Unknown, "version");
    assert_eq!(broken(TunnelKind::Geneve, l4 + UDP_SIZE, 0x3f), PopError::Truncated, "options beyond the end");
    assert_eq!(broken(TunnelKind::Geneve, l4 + UDP_SIZE + 3, 0), PopError::Unknown, "inner protocol");
    assert_eq!(broken(TunnelKind::Gre, l4 + 2, 0), PopError::Unknown, "inner protocol");
    assert_eq!(broken(TunnelKind::Vxlan, l4 + 5, 9), PopError::Truncated, "length of UDP");
}

/// A packet of GTP-U: flags, message and what follows the eight bytes of the fixed header.
fn gtpu(flags: u8, message: u8, behind: &[u8]) -> Vec<u8> {
    let ends = [2, 1].map(|low| address(false, low).to_bits());
    let tunnel = TunnelKey { id: 9, src: ends[0], dst: ends[1], payload_type: 0x0800, ttl: 64, ..TunnelKey::default() };
    let mut packet = packet(&config(TunnelKind::Gtpu, ""), &tunnel, behind);
    let at = IP_AT + IPV4_SIZE + UDP_SIZE;
    packet[at..at + 2].copy_from_slice(&[flags, message]);
    packet
}

#[test]
fn optional_parts_of_gtpu_are_skipped() {
    let payload = |packet: &[u8]| pop(TunnelKind::Gtpu, packet).map(|popped| packet[popped.inner].to_vec());
    let ip = [0x45, 1, 2, 3];
    for (flags, optional) in [
        (0x30, &[][..]),
        (0x32, &[0, 7, 0, 0]),
        (0x31, &[0, 0, 9, 0]),
        // Flags say that there is no extension header, whatever stands in its place.
        (0x33, &[0, 7, 9, 0x85]),
        // The container of a session of 5G, and a second header of two words behind it.
        (0x34, &[0, 0, 0, 0x85, 1, 0x10, 9, 0]),
        (0x36, &[0, 7, 0, 0x85, 1, 0x10, 9, 0x20, 2, 1, 2, 3, 4, 5, 6, 0]),
    ] {
        assert_eq!(payload(&gtpu(flags, 255, &[optional, &ip].concat())), Ok(ip.to_vec()), "{flags:#x} {optional:?}");
    }
    let faults = [
        (PopError::Unknown, "GTP'", gtpu(0x20, 255, &ip)),
        (PopError::Unknown, "version 2", gtpu(0x50, 255, &ip)),
        (PopError::Unknown, "an echo request", gtpu(0x32, 1, &[0, 1, 0, 0])),
        (PopError::Unknown, "neither IPv4 nor IPv6", gtpu(0x30, 255, &[0x55; 20])),
        (PopError::Unknown, "an extension header without a length", gtpu(0x34, 255, &[0, 0, 0, 0x85, 0, 0, 0, 0x85])),
        (PopError::Truncated, "an extension header beyond the end", gtpu(0x34, 255, &[0, 0, 0, 0x85, 9, 0, 0, 0])),
        (PopError::Truncated, "no payload", gtpu(0x30, 255, &[])),
        (PopError::Truncated, "half of what is optional", gtpu(0x32, 255, &[0, 1])),
    ];
    for (error, what, packet) in faults {
        assert_eq!(payload(&packet), Err(error), "{what}");
    }
    let mut longer = gtpu(0x30, 255, &ip);
    longer[IP_AT + IPV4_SIZE + UDP_SIZE + 3] += 1;
    assert_eq!(payload(&longer), Err(PopError::Truncated), "a length beyond the end");
}

#[test]
fn a_tunnel_carries_what_its_header_can_name() {
    let dst = address(false, 1).to_bits();
    let build = |kind, options, payload_type| {
        let tunnel = TunnelKey { dst, erspan_ver: 1, payload_type, ..TunnelKey::default() };
        TunnelHeader::build(&config(kind, options), &tunnel, &[], &link(address(false, 2))).map(|_| ())
    };
    let no = Err(Unbuildable::Payload);
    assert_eq!(build(TunnelKind::Gre, "", 0x8847), Ok(()));
    assert_eq!(build(TunnelKind::Vxlan, "", 0x0800), no);
    assert_eq!(build(TunnelKind::Vxlan, "exts=gpe", 0x0800), Ok(()));
    assert_eq!(build(TunnelKind::Vxlan, "exts=gpe", 0x8847), no);
    assert_eq!(build(TunnelKind::Geneve, "", 0x0800), no);
    assert_eq!(build(TunnelKind::Erspan, "", 0x0800), no);
    assert_eq!(build(TunnelKind::Gtpu, "", 0x86dd), Ok(()));
    assert_eq!([build(TunnelKind::Gtpu, "", 0), build(TunnelKind::Gtpu, "", 0x0806)], [no, no]);
}

#[test]
fn what_does_not_fit_is_not_built() {
    let tunnel = TunnelKey { dst: address(false, 1).to_bits(), flags: tunnel_flags::KEY, ..TunnelKey::default() };
    let build =
        |kind, tunnel: TunnelKey, src| TunnelHeader::build(&config(kind, ""), &tunnel, &[], &link(src)).unwrap_err();
    let id = |id| TunnelKey { id, ..tunnel };
    assert_eq!(build(TunnelKind::Vxlan, id(1 << 24), address(false, 2)), Unbuildable::Key);
    assert_eq!(build(TunnelKind::Gre, id(1 << 32), address(false, 2)), Unbuildable::Key);
    assert_eq!(build(TunnelKind::Erspan, id(1 << 10), address(false, 2)), Unbuildable::Key);
    assert_eq!(build(TunnelKind::Erspan, id(1), address(false, 2)), Unbuildable::ErspanVersion);
    assert_eq!(build(TunnelKind::Gre, id(1), address(true, 2)), Unbuildable::Family);
    let header = TunnelHeader::build(&config(TunnelKind::Vxlan, ""), &id(1), &[], &link(address(false, 2))).unwrap();
    assert_eq!(header.complete(&mut vec![0; 70_000], PerPacket::default()), Err(complete::TooLong));
}

#[test]
fn headers_are_ovs_text() {
    let tunnel = TunnelKey {
        id: 0x7b,
        dst: address(false, 0x0101_025c).to_bits(),
        ttl: 64,
        flags: tunnel_flags::DF | tunnel_flags::KEY,
        ..TunnelKey::default()
    };
    let text =
        |kind, tunnel, src| TunnelHeader::build(&config(kind, ""), &tunnel, &[], &link(src)).unwrap().to_string();
    let src = address(false, 0x0101_0258);
    let eth = "eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800)";
    let ip = |proto| format!("ipv4(src=1.1.2.88,dst=1.1.2.92,proto={proto},tos=0,ttl=64,frag=0x4000)");
    let udp = |port| format!("udp(src=0,dst={port},csum=0x0)");
    assert_eq!(
        text(TunnelKind::Gtpu, TunnelKey { payload_type: 0x0800, ..tunnel }, src),
        format!("size=50,type=110,{eth},{},{},gtpu(flags=0x30,msgtype=255,teid=0x7b)", ip(17), udp(2152))
    );
    assert_eq!(
        text(TunnelKind::Vxlan, tunnel, src),
        format!("size=50,type=4,{eth},{},{},vxlan(flags=0x8000000,vni=0x7b)", ip(17), udp(4789))
    );
    assert_eq!(
        text(TunnelKind::Geneve, tunnel, src),
        format!("size=50,type=5,{eth},{},{},geneve(vni=0x7b)", ip(17), udp(6081))
    );
    assert_eq!(
        text(TunnelKind::Gre, tunnel, src),
        format!("size=42,type=3,{eth},{},gre((flags=0x2000,proto=0x6558),key=0x7b)", ip(47))
    );
    let v6 = TunnelKey { dst: address(true, 0x5c).to_bits(), erspan_ver: 1, erspan_idx: 3, ..tunnel };
    assert_eq!(
        text(TunnelKind::Ip6Erspan, v6, address(true, 0x58)),
        "size=70,type=108,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x86dd),\
         ipv6(src=2001:cafe::58,dst=2001:cafe::5c,label=0,proto=47,tclass=0x0,hlimit=64),erspan(ver=1,sid=0x7b,idx=0x3)"
    );
    let v2 = TunnelKey { erspan_ver: 2, erspan_dir: 1, erspan_hwid: 0x15, ..tunnel };
    assert_eq!(
        text(TunnelKind::Erspan, v2, src),
        format!("size=54,type=107,{eth},{},erspan(ver=2,sid=0x7b,dir=1,hwid=0x15)", ip(47))
    );
}

#[test]
fn options_are_pushed_and_found_again() {
    let tunnel = TunnelKey {
        id: 0x7b,
        src: address(false, 0x0101_0258).to_bits(),
        dst: address(false, 0x0101_025c).to_bits(),
        ttl: 64,
        flags: tunnel_flags::KEY,
        ..TunnelKey::default()
    };
    let option = |kind, length, value: u128| GeneveOption::new(OptionKind { class: 0x102, kind, length }, value.into());
    let options = [option(0x80, 4, 0x2_0003), option(1, 0, 0), option(2, 8, 0x1234_5678_90ab_cdef)];
    let config = config(TunnelKind::Geneve, "");
    let link = link(Ipv6Addr::from_bits(tunnel.src));
    let header = TunnelHeader::build(&config, &tunnel, &options, &link).unwrap();
    let text = header.to_string();
    let end = "geneve(crit,vni=0x7b,options({class=0x102,type=0x80,len=4,0x20003}{class=0x102,type=0x1,len=0}\
               {class=0x102,type=0x2,len=8,0x1234567890abcdef}))";
    assert!(text.starts_with("size=74,type=5,") && text.ends_with(end), "{text}");
    let mut packet = header.bytes().to_vec();
    packet.extend([1; 60]);
    header.complete(&mut packet, PerPacket::default()).unwrap();
    let popped = pop(TunnelKind::Geneve, &packet).unwrap();
    assert_eq!((popped.tunnel, &packet[popped.inner]), (tunnel, &[1; 60][..]));
    let mut map = OptionMap::default();
    [(0, options[0].kind), (6, options[2].kind)].iter().for_each(|(i, kind)| assert!(map.set(*i, *kind)));
    let fields = map.read(&packet[popped.options]).unwrap();
    assert_eq!(map.options_of(&fields), [options[0].clone(), options[2].clone()]);
    let not_critical = TunnelHeader::build(&config, &tunnel, &options[1..], &link).unwrap();
    assert!(not_critical.to_string().contains("geneve(vni=0x7b,options("));
    let too_many = vec![option(2, 8, 0); 22];
    assert_eq!(TunnelHeader::build(&config, &tunnel, &too_many, &link), Err(Unbuildable::Options));
    assert!(TunnelHeader::build(&config, &tunnel, &too_many[..21], &link).is_ok());
}
