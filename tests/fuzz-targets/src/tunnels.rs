//! Target `tunnels`: what a hostile network sends to tunnel ports.
//!
//! The first byte chooses a kind of tunnel, IPv4 or IPv6, and whether the header is completed: lengths and checksums set
//! right, so that bytes behind them are reached. The second byte chooses which of the tunnel's options there are. The rest
//! is the packet from IP on.

use crate::input::Input;
use sluice_flow::geneve::{GeneveOption, OptionKind, OptionMap};
use sluice_flow::{PacketKey, TUN_METADATA_FIELDS, TunMetadata, TunnelKey, tunnel_flags};
use sluice_testkit::plain_checksum::internet;
use sluice_tunnel::header::{OuterLink, PerPacket, TunnelHeader, Unbuildable, pop};
use sluice_tunnel::{TunnelConfig, TunnelKind, parse};
use std::net::Ipv6Addr;

const IP_AT: usize = 14;
const PROTO_UDP: u8 = 17;
const PROTO_GRE: u8 = 47;
/// Flags of GTP-U that say what is optional.
const GTPU_OPTIONAL: u8 = 7;

/// A packet is refused by name, or popped: then its inner frame is bytes of the packet, and the header that is built of
/// its fields is read as the same fields again, in front of the same frame.
pub fn tunnels(data: &[u8]) {
    let mut input = Input(data);
    let (choice, options) = (input.byte(), input.byte());
    let kind = TunnelKind::ALL[usize::from(choice & 7) % TunnelKind::ALL.len()];
    let is_ipv6 = choice & 8 != 0;
    let mut packet =
        [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], if is_ipv6 { &[0x86, 0xdd] } else { &[8, 0] }].concat();
    packet.extend(input.0);
    if choice & 16 != 0 {
        complete(&mut packet, kind, is_ipv6);
    }
    // Each kind may get any other's packets, of which it takes none but its family's.
    for other in TunnelKind::ALL {
        if other != kind {
            check(other, options, &packet);
        }
    }
    check(kind, options, &packet);
    // What is cut off is not read.
    if let Ok(popped) = pop(kind, &packet) {
        assert!(pop(kind, &packet[..popped.inner.end.saturating_sub(1)]).is_err(), "a cut packet was read");
    }
}

fn check(kind: TunnelKind, options: u8, packet: &[u8]) {
    let Ok(popped) = pop(kind, packet) else { return };
    let inner = packet.get(popped.inner.clone()).expect("the inner frame lies in the packet");
    assert!(popped.inner.start > IP_AT, "no header was in front of it");
    let tunnel = popped.tunnel;
    // A tunnel with these options sends what was received, with the fields that it can carry.
    let config = config(kind, options, &tunnel);
    let link = OuterLink { link_dst: [2; 6], link_src: [4; 6], src: Ipv6Addr::from_bits(tunnel.src) };
    let known = known_options(&packet[popped.options]);
    let header = match TunnelHeader::build(&config, &tunnel, &known, &link) {
        Ok(header) => header,
        // A source that maps an IPv4 address in an IPv6 header, or the other end.
        Err(Unbuildable::Family) => return,
        // A GRE tunnel takes ERSPAN's packets and the other way round.
        Err(error) => {
            let is_other = kind.is_erspan() != (tunnel.erspan_ver != 0);
            return assert!(is_other, "{kind:?} cannot send what it received, {error}: {tunnel:?}");
        }
    };
    assert_eq!(header.bytes().len() - header.growth(), if tunnel.payload_type == 0 { 0 } else { IP_AT });
    let mut sent = vec![0; header.bytes().len()];
    sent.extend(inner);
    let per_packet = PerPacket { source_port: 40_000, sequence: 3, timestamp: 5 };
    if header.complete(&mut sent, per_packet).is_err() {
        // Its header was shorter than this one.
        return assert!(sent.len() > usize::from(u16::MAX), "{} bytes are not too long", sent.len());
    }
    let again = pop(kind, &sent).unwrap_or_else(|error| panic!("{kind:?}: {error}: {tunnel:?}"));
    assert_eq!(&sent[again.inner.clone()], inner, "the frame has changed");
    assert_eq!(again.inner.start, header.bytes().len());
    assert_eq!(known_options(&sent[again.options.clone()]), known, "the options have changed");
    // A GRE tunnel that reads ERSPAN sends it without what only ERSPAN has.
    let is_other = kind.is_erspan() != (tunnel.erspan_ver != 0);
    assert_eq!(carried(again.tunnel, is_other), carried(tunnel, is_other), "the fields have changed");
}

/// The options of a header for which there are fields: one without a value, some of one and of two words, one of three and
/// one that is as long as can be. None if the list of options is longer than it may be. A key keeps the list as it is, and a
/// change of one byte that the mask of all fields does not have changes no field.
fn known_options(list: &[u8]) -> Vec<GeneveOption> {
    let kind = |(class, kind, length)| OptionKind { class, kind, length };
    let mut map = OptionMap::default();
    let kinds = [(0x102, 0x80, 4), (0x102, 1, 0), (0x102, 2, 8), (0xffff, 0, 4), (0x102, 3, 12), (0x102, 4, 124)];
    for (i, known) in kinds.map(kind).into_iter().enumerate() {
        assert!(map.set(2 * i, known), "there is room for {known}");
    }
    let (mut key, mut of_mask) = (PacketKey::ZERO, PacketKey::ZERO);
    key.put_options(list);
    assert_eq!(&key.options()[..], list, "a key has other options");
    let read = map.read(list);
    let asked = read.clone().unwrap_or_default();
    of_mask.put_options_mask(&map.mask(list, &whole(&asked)));
    let mask = of_mask.options();
    for (at, _) in list.iter().enumerate().filter(|(at, _)| mask.all()[*at] == 0) {
        let mut other = list.to_vec();
        other[at] ^= 0xff;
        assert_eq!(map.read(&other), read, "byte {at} is not in the mask");
    }
    read.map(|fields| map.options_of(&fields)).unwrap_or_default()
}

/// The mask of all that fields say.
fn whole(fields: &TunMetadata) -> TunMetadata {
    let mut mask = TunMetadata::NONE;
    (0..TUN_METADATA_FIELDS).filter(|i| fields.has(*i)).for_each(|i| {
        mask.set_present(i, true);
        mask.set_value(i, sluice_flow::Wide::ones(992));
    });
    mask
}

/// The fields that must be the same. Checksums are an option, and IPv6 has UDP's always. What is optional of GTP-U is not
/// sent.
fn carried(mut tunnel: TunnelKey, only_outer: bool) -> TunnelKey {
    tunnel.flags &= !tunnel_flags::CSUM;
    tunnel.gtpu_flags &= !GTPU_OPTIONAL;
    match only_outer {
        true => {
            TunnelKey { src: tunnel.src, dst: tunnel.dst, tos: tunnel.tos, ttl: tunnel.ttl, ..TunnelKey::default() }
        }
        false => tunnel,
    }
}

/// A tunnel that can carry these fields.
fn config(kind: TunnelKind, options: u8, tunnel: &TunnelKey) -> TunnelConfig {
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let ends = ["remote_ip", "local_ip", "key"].map(|key| pair(key, "flow"));
    let mut config = parse("t", kind, &ends.into()).expect("a tunnel").config;
    config.gbp = tunnel.gbp_id != 0 || tunnel.gbp_flags != 0;
    // A bare packet has its type in the header of VXLAN-GPE only.
    config.gpe = kind == TunnelKind::Vxlan && !config.gbp && (options & 1 != 0 || tunnel.payload_type != 0);
    config.seq = options & 2 != 0 && kind.is_gre() && !kind.is_erspan();
    config
}

/// Sets lengths and checksums right, as far as the packet has them.
fn complete(packet: &mut [u8], kind: TunnelKind, is_ipv6: bool) {
    let l4_at = IP_AT + if is_ipv6 { 40 } else { 20 };
    if packet.len() < l4_at + 8 || packet.len() > usize::from(u16::MAX) {
        return;
    }
    let proto = if kind.is_gre() { PROTO_GRE } else { PROTO_UDP };
    let len = packet.len();
    let sized = |from: usize| ((len - from) as u16).to_be_bytes();
    let (whole, behind) = (sized(IP_AT), sized(l4_at));
    let (front, l4) = packet.split_at_mut(l4_at);
    let ip = &mut front[IP_AT..];
    if is_ipv6 {
        ip[0] = 0x60 | ip[0] & 15;
        ip[4..6].copy_from_slice(&behind);
        ip[6] = proto;
    } else {
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&whole);
        ip[9] = proto;
        ip[10..12].fill(0);
        let sum = internet(ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    if kind == TunnelKind::Gtpu && l4.len() >= 16 {
        let behind_gtpu = sized(l4_at + 16);
        l4[10..12].copy_from_slice(&behind_gtpu);
    }
    if proto == PROTO_UDP {
        l4[4..6].copy_from_slice(&behind);
        if l4[6..8] != [0, 0] {
            l4[6..8].fill(0);
            let addresses = if is_ipv6 { &ip[8..40] } else { &ip[12..20] };
            let sum = internet(&[addresses, &[0, proto], &behind, l4].concat());
            let sum = if sum == 0 { 0xffff } else { sum };
            l4[6..8].copy_from_slice(&sum.to_be_bytes());
        }
    } else if l4[0] & 0x80 != 0 {
        l4[4..6].fill(0);
        let sum = internet(l4);
        l4[4..6].copy_from_slice(&sum.to_be_bytes());
    }
}
