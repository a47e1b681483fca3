//! Tunnel ports: which one a packet belongs to, and what leaves by one, as `ofproto/trace` tells it.

mod options;

use sluice_action::{Action, MegaflowStore, Miss, PortNo, Translation, Upcall, UpcallResult};
use sluice_fate::DropReason;
use sluice_flow::geneve::OptionKind;
use sluice_flow::{Mac, Metadata, PacketKey, PortNames, extract};
use sluice_flow_cache::MegaflowTable;
use sluice_ofp::{FlowCommand, FlowMod, GroupCommand, GroupMod};
use sluice_ofproto::{BridgeConfig, DeviceAddresses, Error, Ofproto, PortConfig, TunnelPort};

use sluice_simd::HashKey;
use sluice_tunnel::{TunnelKind, parse};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

const INNER: &str = "eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),\
                     ipv4(src=192.168.0.1,dst=192.168.0.2,proto=6,tos=TOS,ttl=128,frag=no),tcp(src=8,dst=9)";

fn tunnel(kind: TunnelKind, options: &str, backend: u32) -> TunnelPort {
    let pairs = options.split_whitespace().filter_map(|pair| pair.split_once('='));
    let options = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    TunnelPort { config: parse("t", kind, &options).unwrap().config, backend: PortNo(backend) }
}

/// A switch that pushes no headers itself, with an ordinary port 9, these GRE tunnels as ports 1, 2 and so on, and these rules.
fn switch(tunnels: &[&str], rules: &[&str]) -> Ofproto {
    let ofproto = Ofproto::new();
    ofproto.add_bridge(BridgeConfig { datapath_type: "dummy".into(), ..BridgeConfig::new("br0") }, 0).unwrap();
    ofproto.add_port("br0", PortConfig::new("p9", 9, PortNo(9))).unwrap();
    ofproto.set_feature("tnl_push_pop", "false").unwrap();
    for (number, options) in (1..).zip(tunnels) {
        let tunnel = tunnel(TunnelKind::Gre, options, 1);
        ofproto.add_port("br0", PortConfig::tunnel(&format!("t{number}"), number, tunnel)).unwrap();
    }
    for rule in rules {
        let rule = FlowMod::parse(rule, FlowCommand::Add, &PortNames::NONE).unwrap();
        ofproto.flow_mod("br0", &rule, 0).unwrap();
    }
    ofproto
}

fn trace(ofproto: &Ofproto, outer: &str, tos: u8) -> Result<String, String> {
    let flow = format!("{outer},{}", INNER.replace("TOS", &tos.to_string()));
    ofproto.trace(&["ovs-dummy", &flow], 0)
}

/// The last line of a trace.
fn actions(ofproto: &Ofproto, outer: &str, tos: u8) -> String {
    let text = trace(ofproto, outer, tos).unwrap();
    text.lines().last().and_then(|line| line.strip_prefix("Datapath actions: ")).unwrap_or(&text).to_owned()
}

#[test]
fn the_configuration_is_in_what_leaves() {
    for (options, tos, expected) in [
        ("remote_ip=1.1.1.1 local_ip=2.2.2.2 key=5", 4, "tun_id=0x5,src=2.2.2.2,dst=1.1.1.1,ttl=64,flags(df|key)"),
        ("remote_ip=1.1.1.1", 1, "dst=1.1.1.1,tos=0x1,ttl=64,flags(df)"),
        ("remote_ip=1.1.1.1", 3, "dst=1.1.1.1,tos=0x2,ttl=64,flags(df)"),
        ("remote_ip=1.1.1.1 tos=inherit ttl=inherit", 5, "dst=1.1.1.1,tos=0x5,ttl=128,flags(df)"),
        ("remote_ip=::1 csum=true df_default=false tos=8", 0, "ipv6_dst=::1,tos=0x8,ttl=64,flags(csum)"),
    ] {
        let ofproto = switch(&[options], &["actions=1"]);
        assert_eq!(actions(&ofproto, "in_port(9)", tos), format!("set(tunnel({expected})),1"), "{options}");
    }
}

#[test]
fn rules_choose_what_is_left_to_them_and_later_actions_do_not_see_the_rest() {
    let tunnels = ["remote_ip=1.1.1.1 key=flow", "remote_ip=flow key=3", "remote_ip=flow key=3 local_ip=flow"];
    let rule = "actions=set_tunnel:7,1,set_field:4.4.4.4->tun_dst,2,set_field:5.5.5.5->tun_src,3,2";
    let ofproto = switch(&tunnels, &[rule]);
    let set = |fields| format!("set(tunnel({fields},ttl=64,flags(df|key))),1");
    let expected = [
        set("tun_id=0x7,dst=1.1.1.1"),
        set("tun_id=0x3,dst=4.4.4.4"),
        set("tun_id=0x3,src=5.5.5.5,dst=4.4.4.4"),
        set("tun_id=0x3,dst=4.4.4.4"),
    ];
    assert_eq!(actions(&ofproto, "in_port(9)", 0), expected.join(","));
    let mark = switch(&["remote_ip=1.1.1.1 egress_pkt_mark=6"], &["actions=1"]);
    assert_eq!(actions(&mark, "in_port(9)", 0), "set(tunnel(dst=1.1.1.1,ttl=64,flags(df))),set(skb_mark(0x6)),1");
}

#[test]
fn a_packet_comes_by_the_port_that_wants_it() {
    let tunnels = ["remote_ip=1.1.1.1", "remote_ip=1.1.1.1 local_ip=2.2.2.2 in_key=5", "remote_ip=flow key=flow"];
    let rules = ["in_port=1,actions=9", "in_port=2,actions=drop", "in_port=3,tun_id=8,tun_src=3.3.3.3,actions=IN_PORT"];
    let ofproto = switch(&tunnels, &rules);
    let from = |id: u32, src: &str| format!("tunnel(tun_id={id},src={src},dst=2.2.2.2,ttl=64,flags(key)),in_port(1)");
    assert_eq!(actions(&ofproto, &from(0, "1.1.1.1"), 0), "9");
    assert_eq!(actions(&ofproto, &from(5, "1.1.1.1"), 0), "drop");
    let back = "set(tunnel(tun_id=0x8,dst=2.2.2.2,ttl=64,flags(df|key))),1";
    assert_eq!(actions(&switch(&["remote_ip=flow key=flow"], &["actions=IN_PORT"]), &from(8, "3.3.3.3"), 0), "drop");
    assert_ne!(actions(&ofproto, &from(8, "3.3.3.3"), 0), back, "not to its own address");
    let one = switch(&["remote_ip=1.1.1.1"], &["actions=9"]);
    assert_eq!(trace(&one, &from(0, "9.9.9.9"), 0).unwrap_err(), "no OpenFlow tunnel port for this packet");
    let text = trace(&one, &from(0, "1.1.1.1"), 0).unwrap();
    let megaflow = "Megaflow: recirc_id=0,eth,ip,tun_id=0,tun_src=1.1.1.1,tun_dst=2.2.2.2,tun_tos=0,\
                    tun_flags=-df-csum+key,in_port=1,nw_frag=no\n";
    assert!(text.contains(megaflow), "{text}");
}

#[test]
fn packets_without_ethernet_have_a_port_of_their_own_and_get_addresses() {
    let tunnels =
        ["remote_ip=1.1.1.1 packet_type=legacy_l3", "remote_ip=1.1.1.1", "remote_ip=2.2.2.9 packet_type=legacy_l3"];
    let rules = [
        "in_port=1,ip,actions=9,set_field:00:00:00:00:00:07->eth_dst,9,3",
        "in_port=1,mpls,actions=pop_mpls:0x0800,dec_ttl,9",
        "in_port=2,actions=drop",
        "in_port=9,actions=3,9,IN_PORT",
    ];
    let ofproto = switch(&tunnels, &rules);
    let outer = "tunnel(src=1.1.1.1,dst=2.2.2.2,ttl=64,flags()),in_port(1)";
    let run = |key: &str| {
        let text = ofproto.trace(&["ovs-dummy", &format!("{outer},{key}")], 0).unwrap();
        let last = text.lines().last().and_then(|line| line.strip_prefix("Datapath actions: ")).unwrap();
        (last.to_owned(), text)
    };
    let zeros = "00:00:00:00:00:00";
    let (actions_of_ip, text) =
        run("packet_type(ns=1,id=0x800),eth_type(0x0800),ipv4(src=1.2.3.4,dst=4.3.2.1,proto=17,ttl=9,frag=no)");
    let set = "set(tunnel(dst=2.2.2.9,ttl=64,flags(df)))";
    assert_eq!(
        actions_of_ip,
        format!("push_eth(src={zeros},dst={zeros}),9,set(eth(dst=00:00:00:00:00:07)),9,{set},pop_eth,1")
    );
    let megaflow = "Megaflow: recirc_id=0,packet_type=(1,0x800),ip,tun_id=0,tun_src=1.1.1.1,tun_dst=2.2.2.2,tun_tos=0,\
                    tun_flags=-df-csum-key,in_port=1,nw_ecn=0,nw_frag=no\n";
    assert!(text.contains(megaflow), "{text}");
    let (of_labels, _) = run("packet_type(ns=1,id=0x8847),eth_type(0x8847),mpls(label=9,tc=0,ttl=64,bos=1)");
    assert_eq!(of_labels, format!("push_eth(src={zeros},dst={zeros}),pop_mpls(eth_type=0x800),recirc(0x1)"));
    assert_eq!(actions(&ofproto, outer, 0), "drop", "a frame belongs to the other port");
    let other =
        "set(tunnel(dst=2.2.2.9,ttl=64,flags(df))),pop_eth,1,push_eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),9";
    assert_eq!(actions(&ofproto, "in_port(9)", 0), other);
}

#[test]
fn no_address_is_learned_of_packets_without_ethernet() {
    let ofproto = switch(&["remote_ip=1.1.1.1 packet_type=legacy_l3", "remote_ip=1.1.1.1"], &["actions=NORMAL"]);
    let outer = "tunnel(src=1.1.1.1,dst=2.2.2.2,ttl=64,flags()),in_port(1)";
    let bare =
        format!("{outer},packet_type(ns=1,id=0x800),eth_type(0x0800),ipv4(src=1.2.3.4,dst=4.3.2.1,proto=17,frag=no)");
    let text = ofproto.trace(&["ovs-dummy", &bare, "-generate"], 0).unwrap();
    assert!(!text.contains("learned that"), "{text}");
    let frame = format!("{outer},{}", INNER.replace("TOS", "0"));
    let text = ofproto.trace(&["ovs-dummy", &frame, "-generate"], 0).unwrap();
    assert!(text.contains("learned that 50:54:00:00:00:05 is on port t2 in VLAN 0"), "{text}");
}

#[test]
fn a_tag_does_not_leave_without_an_ethernet_header() {
    let ofproto = switch(&["remote_ip=1.1.1.1 packet_type=legacy_l3"], &["actions=1,9,strip_vlan,1"]);
    let tagged = "in_port(8),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x8100),vlan(vid=7,pcp=0),\
                  encap(eth_type(0x0800),ipv4(src=1.2.3.4,dst=4.3.2.1,proto=17,tos=0,ttl=9,frag=no))";
    ofproto.add_port("br0", PortConfig::new("p8", 8, PortNo(8))).unwrap();
    let text = ofproto.trace(&["ovs-dummy", tagged], 0).unwrap();
    let expected = "Datapath actions: 9,set(tunnel(dst=1.1.1.1,ttl=64,flags(df))),pop_vlan,pop_eth,1";
    assert_eq!(text.lines().last(), Some(expected), "{text}");
    assert!(text.contains("a packet with a VLAN tag cannot leave without an Ethernet header"), "{text}");
}

#[test]
fn a_mark_of_congestion_goes_into_the_inner_packet_or_the_packet_goes() {
    let ofproto = switch(&["remote_ip=1.1.1.1"], &["actions=9"]);
    let marked = "tunnel(src=1.1.1.1,dst=2.2.2.2,tos=0x3,ttl=64,flags()),in_port(1)";
    assert_eq!(actions(&ofproto, marked, 3), "9");
    assert_eq!(actions(&ofproto, marked, 2), "set(ipv4(tos=0x3/0x3)),9");
    assert_eq!(actions(&ofproto, marked, 0), "drop");
}

#[test]
fn no_two_ports_are_the_same_tunnel() {
    let ofproto = switch(&["remote_ip=1.1.1.1 key=1", "remote_ip=1.1.1.1 key=2"], &[]);
    let same = PortConfig::tunnel("t3", 3, tunnel(TunnelKind::Gre, "remote_ip=1.1.1.1 key=2 ttl=9", 1));
    let error = ofproto.add_port("br0", same).unwrap_err();
    let expected =
        "t3: attempting to add tunnel port with same config as port 't2' (::->1.1.1.1, key=0x2, legacy_l2, dp port=1)";
    assert_eq!(error.to_string(), expected);
    let change = |options| ofproto.set_tunnel("br0", "t1", tunnel(TunnelKind::Gre, options, 1));
    assert!(matches!(change("remote_ip=1.1.1.1 key=2"), Err(Error::TunnelTaken { .. })));
    change("remote_ip=1.1.1.1 key=3").unwrap();
    change("remote_ip=1.1.1.1 key=3 csum=true").unwrap();
    assert_eq!(ofproto.tunnels().len(), 2);
    ofproto.remove_port("br0", "t1").unwrap();
    ofproto.remove_bridge("br0").unwrap();
    assert!(ofproto.tunnels().is_empty());
}

/// A bridge `br0` with a VXLAN tunnel to 1.1.2.92 as port 1, and the bridge `under`, whose device has 1.1.2.88.
fn underlay() -> Ofproto {
    let ofproto = switch(&[], &["in_port=9,actions=1", "in_port=1,actions=9"]);
    ofproto.set_feature("tnl_push_pop", "true").unwrap();
    let vxlan = tunnel(TunnelKind::Vxlan, "remote_ip=1.1.2.92 key=123", 4789);
    ofproto.add_port("br0", PortConfig::tunnel("t1", 1, vxlan)).unwrap();
    ofproto.add_bridge(BridgeConfig { datapath_type: "dummy".into(), ..BridgeConfig::new("under") }, 0).unwrap();
    ofproto.add_port("under", PortConfig::new("under", 0xfffe, PortNo(100))).unwrap();
    ofproto.add_port("under", PortConfig::new("p2", 2, PortNo(2))).unwrap();
    for rule in ["in_port=LOCAL,udp,nw_dst=1.1.2.92,actions=2", "in_port=2,actions=LOCAL"] {
        let rule = FlowMod::parse(rule, FlowCommand::Add, &PortNames::NONE).unwrap();
        ofproto.flow_mod("under", &rule, 0).unwrap();
    }
    let own = "1.1.2.88".parse::<std::net::Ipv4Addr>().unwrap().to_ipv6_mapped();
    let device = DeviceAddresses { mac: Mac([0xaa, 0x55, 0xaa, 0x55, 0, 0]), addresses: vec![(own, 120)] };
    let routes = device.routes("under");
    ofproto.set_devices([("under".to_owned(), device)].into(), routes);
    ofproto
}

fn far_end() -> std::net::Ipv6Addr {
    "1.1.2.92".parse::<std::net::Ipv4Addr>().unwrap().to_ipv6_mapped()
}

#[test]
fn a_header_is_pushed_once_the_next_hop_is_known() {
    let ofproto = underlay();
    let unknown = trace(&ofproto, "in_port(9)", 0).unwrap();
    assert!(unknown.contains("neighbor cache miss for 1.1.2.92 on bridge under, sending ARP request"), "{unknown}");
    assert_eq!(actions(&ofproto, "in_port(9)", 0), "drop");
    assert!(ofproto.take_neighbour_requests().is_empty(), "a trace asks nobody");
    ofproto.set_neighbour("under", far_end(), "f8:bc:12:44:34:b6".parse().unwrap(), 0);
    let push = "tnl_push(tnl_port(4789),header(size=50,type=4,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),\
                ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0x2,ttl=64,frag=0x4000),udp(src=0,dst=4789,csum=0x0),\
                vxlan(flags=0x8000000,vni=0x7b)),out_port(100)),2";
    assert_eq!(actions(&ofproto, "in_port(9)", 2), push);
    let more = FlowMod::parse("in_port=9,actions=1,IN_PORT", FlowCommand::Add, &PortNames::NONE).unwrap();
    ofproto.flow_mod("br0", &more, 0).unwrap();
    assert_eq!(actions(&ofproto, "in_port(9)", 2), format!("clone({push}),9"));
    ofproto.set_devices(Default::default(), Vec::new());
    assert!(trace(&ofproto, "in_port(9)", 0).unwrap().contains("native tunnel routing failed"));
}

/// The translation of a frame by that port of the datapath.
fn translate(ofproto: &Ofproto, frame: &[u8], port: u32) -> (PacketKey, Translation) {
    let mut key = PacketKey::ZERO;
    extract(frame, &Metadata::of_port(port), &mut key).unwrap();
    match ofproto.upcall().translate(&Miss { key: &key, bytes: frame, now_ms: 0 }) {
        UpcallResult::Translated(translation) => (key, translation),
        fate => panic!("{fate:?}"),
    }
}

/// Hosts that make addresses up have no megaflows translated again but those that are sent to these.
#[test]
fn a_neighbour_concerns_the_megaflows_that_are_sent_to_it() {
    let ofproto = underlay();
    ofproto.set_neighbour("under", far_end(), "f8:bc:12:44:34:b6".parse().unwrap(), 0);
    let table = Arc::new(MegaflowTable::new(64, &HashKey::from_seed(1)).unwrap());
    ofproto.set_store(table.clone());
    let frame = [&[2; 12][..], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &[3; 30]].concat();
    for port in [9, 2] {
        let (key, translation) = translate(&ofproto, &frame, port);
        table.install(0, &key, &translation, 0, |_| true, |_, _, _| ());
    }
    let suspended = || {
        let mut count = 0;
        table.for_each(&mut |flow| count += usize::from(flow.is_suspended));
        count
    };
    let spoofed = "1.1.2.93".parse::<std::net::Ipv4Addr>().unwrap().to_ipv6_mapped();
    ofproto.set_neighbour("under", spoofed, Mac([2; 6]), 0);
    assert_eq!((table.len(), suspended()), (2, 0));
    ofproto.set_neighbour("under", far_end(), Mac([2; 6]), 0);
    assert_eq!(suspended(), 1);
    ofproto.revalidate(&*table, 0, u64::MAX);
    // The one that is sent, and the one that is not, are silent for long enough to be forgotten.
    ofproto.tick(16 * 60 * 1000);
    assert_eq!(suspended(), 1);
}

/// An advertisement, sent to that address, that the neighbour has an Ethernet address.
fn advertisement(to: Ipv6Addr, neighbour: Ipv6Addr) -> Vec<u8> {
    let mut frame = [&[2; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255]].concat();
    frame.extend(neighbour.octets());
    frame.extend(to.octets());
    frame.extend([136, 0, 0, 0, 0x60, 0, 0, 0]);
    frame.extend(neighbour.octets());
    frame.extend([2, 1, 6, 6, 6, 6, 6, 6]);
    frame
}

#[test]
fn a_neighbour_is_learned_of_advertisements_to_an_own_address_and_to_its_group() {
    let v6 = |text: &str| text.parse::<Ipv6Addr>().unwrap();
    for (to, is_learned) in [
        ("2001:cafe::88", true),
        ("ff02::1:ff00:88", true),
        ("2001:cafe::89", false),
        ("ff02::1:ff00:89", false),
        ("ff02::1", false),
        // The device's IPv4 address is 1.1.2.88, which has no such group.
        ("ff02::1:ff01:258", false),
    ] {
        let ofproto = underlay();
        let own4 = Ipv4Addr::new(1, 1, 2, 88).to_ipv6_mapped();
        let addresses = vec![(own4, 120), (v6("2001:cafe::88"), 24)];
        let device = DeviceAddresses { mac: Mac([0xaa, 0x55, 0xaa, 0x55, 0, 0]), addresses };
        let routes = device.routes("under");
        ofproto.set_devices([("under".to_owned(), device)].into(), routes);
        translate(&ofproto, &advertisement(v6(to), v6("2001:cafe::93")), 2);
        ofproto.tick(0);
        assert_eq!(ofproto.neighbours(0).contains("2001:cafe::93"), is_learned, "{to}: {}", ofproto.neighbours(0));
    }
}

#[test]
fn a_packet_to_an_own_address_is_popped_if_a_tunnel_listens() {
    let ofproto = underlay();
    let outer = |dst: &str, ip: &str, port: u16| {
        let flow = format!(
            "in_port(2),eth(src=f8:bc:12:44:34:b6,dst={dst}),eth_type(0x0800),\
             ipv4(src=1.1.2.92,dst={ip},proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst={port})"
        );
        let text = ofproto.trace(&["ovs-dummy", &flow], 0).unwrap();
        text.lines().last().unwrap_or_default().to_owned()
    };
    assert_eq!(outer("aa:55:aa:55:00:00", "1.1.2.88", 4789), "Datapath actions: tnl_pop(4789)");
    for (dst, ip, port) in [
        ("aa:55:aa:55:00:01", "1.1.2.88", 4789),
        ("aa:55:aa:55:00:00", "1.1.2.87", 4789),
        ("aa:55:aa:55:00:00", "1.1.2.88", 6081),
    ] {
        assert_eq!(outer(dst, ip, port), "Datapath actions: 100", "{dst} {ip} {port}");
    }
    let inner = "tunnel(tun_id=0x7b,src=1.1.2.92,dst=1.1.2.88,ttl=64,flags(key)),in_port(4789)";
    assert_eq!(actions(&ofproto, inner, 0), "9");
}

/// A Geneve tunnel with options mapped to `tun_metadata0` (4 bytes) and `tun_metadata1` (8 bytes), and these rules.
fn with_options(push: bool, rules: &[&str]) -> Ofproto {
    let ofproto = underlay();
    ofproto.set_feature("tnl_push_pop", if push { "true" } else { "false" }).unwrap();
    let geneve = tunnel(TunnelKind::Geneve, "remote_ip=1.1.2.92 key=5", 6081);
    ofproto.add_port("br0", PortConfig::tunnel("g7", 7, geneve)).unwrap();
    ofproto.set_neighbour("under", far_end(), "f8:bc:12:44:34:b6".parse().unwrap(), 0);
    let kind = |kind, length| OptionKind { class: 0x102, kind, length };
    ofproto.map_tunnel_options("br0", &[(0, kind(0x80, 4)), (1, kind(1, 8))]);
    let delete = FlowMod::parse("", FlowCommand::Delete, &PortNames::NONE).unwrap();
    ofproto.flow_mod("br0", &delete, 0).unwrap();
    for rule in rules {
        let rule = FlowMod::parse(rule, FlowCommand::Add, &PortNames::NONE).unwrap();
        ofproto.flow_mod("br0", &rule, 0).unwrap();
    }
    ofproto
}

#[test]
fn options_that_rules_set_are_pushed() {
    let rules = ["actions=set_field:0x20003->tun_metadata0,move:tun_metadata0[0..15]->tun_metadata1[48..63],7"];
    let options = "{class=0x102,type=0x80,len=4,0x20003}{class=0x102,type=0x1,len=8,0x3000000000000}";
    let set = format!("set(tunnel(tun_id=0x5,dst=1.1.2.92,ttl=64,tp_dst=6081,geneve({options}),flags(df|key))),6081");
    assert_eq!(actions(&with_options(false, &rules), "in_port(9)", 0), set);
    let pushed = actions(&with_options(true, &rules), "in_port(9)", 0);
    assert!(pushed.contains(&format!("geneve(crit,vni=0x5,options({options}))")), "{pushed}");
    let deleted = ["actions=set_field:1->tun_metadata0,set_field:2->tun_metadata1,delete_field:tun_metadata0,7"];
    let text = actions(&with_options(false, &deleted), "in_port(9)", 0);
    assert!(text.contains("geneve({class=0x102,type=0x1,len=8,0x2})"), "{text}");
}

#[test]
fn options_of_packets_are_matched() {
    let rules = [
        "priority=3,tun_metadata0=0xb/0xf,actions=load:1->tun_metadata1[0..31],9",
        "priority=2,tun_metadata0,actions=push:tun_metadata0[],pop:reg0,9,controller",
        "priority=1,tun_metadata1,actions=drop",
    ];
    let ofproto = with_options(true, &rules);
    let of = |options: &str| {
        let tunnel = "tunnel(tun_id=0x5,src=1.1.2.92,dst=1.1.2.88,ttl=64,geneve(OPTIONS),flags(key)),in_port(6081)";
        let text = trace(&ofproto, &tunnel.replace("OPTIONS", options), 0).unwrap();
        let megaflow = text.lines().find_map(|line| line.strip_prefix("Megaflow: ")).unwrap().to_owned();
        let said = megaflow.split(',').filter(|item| item.starts_with("tun_metadata"));
        said.collect::<Vec<_>>().join(",")
    };
    let unknown = "{class=0x102,type=0x7f,len=8,0xb}{class=0xffff,type=0,len=124}";
    assert_eq!(of(&format!("{{class=0x102,type=0x80,len=4,0x1b}}{unknown}")), "tun_metadata0=0xb/0xf,tun_metadata1=NP");
    assert!(of("{class=0x102,type=0x80,len=4,0xc}").starts_with("tun_metadata0=0xc"));
    assert_eq!(of("{class=0x102,type=0x1,len=8,0x1}"), "tun_metadata0=NP,tun_metadata1");
    assert_eq!(of(unknown), "tun_metadata0=NP,tun_metadata1=NP");
}

#[test]
fn a_rule_names_only_options_that_are_mapped_and_bits_that_they_have() {
    let ofproto = with_options(true, &[]);
    let add = |text: &str| {
        let rule = FlowMod::parse(text, FlowCommand::Add, &PortNames::NONE).unwrap();
        ofproto.flow_mod("br0", &rule, 0)
    };
    for text in ["tun_metadata2=1,actions=drop", "tun_metadata3,actions=drop"] {
        assert!(matches!(add(text), Err(Error::UnmappedOption(_))), "{text}");
    }
    for text in ["push:tun_metadata2[0..3]", "clone(move:tun_metadata2[0..31]->reg0)", "set_field:1->tun_metadata2"] {
        assert!(matches!(add(&format!("actions={text}")), Err(Error::UnmappedOption("tun_metadata2"))), "{text}");
    }
    let beyond = Error::OptionBits { field: "tun_metadata0", length: 4 };
    assert_eq!(add("actions=move:tun_metadata0[32..47]->reg0[0..15]"), Err(beyond));
    add("actions=move:tun_metadata1[32..47]->reg0[0..15]").unwrap();
}

#[test]
fn options_that_pass_through_are_matched() {
    let of = |push: bool, rule: &str, options: &str| {
        let ofproto = with_options(push, &[rule]);
        let geneve = tunnel(TunnelKind::Geneve, "remote_ip=1.1.2.92 key=6", 6081);
        ofproto.add_port("br0", PortConfig::tunnel("g8", 8, geneve)).unwrap();
        let tunnel = "tunnel(tun_id=0x5,src=1.1.2.92,dst=1.1.2.88,ttl=64,geneve(OPTIONS),flags(key)),in_port(6081)";
        let text = trace(&ofproto, &tunnel.replace("OPTIONS", options), 0).unwrap();
        let line = |start| text.lines().find_map(|line| line.strip_prefix(start)).unwrap().to_owned();
        let megaflow = line("Megaflow: ");
        let said = megaflow.split(',').filter(|item| item.starts_with("tun_metadata"));
        (said.collect::<Vec<_>>().join(","), line("Datapath actions: "))
    };
    let option = "{class=0x102,type=0x80,len=4,0x1b}";
    for push in [false, true] {
        let (matched, actions) = of(push, "actions=8", option);
        assert_eq!(matched, "tun_metadata0=0x1b");
        assert!(actions.contains(option), "{actions}");
    }
    assert_eq!(of(true, "ip,actions=ct(table=1)", option).0, "tun_metadata0=0x1b", "kept in a frozen state");
    assert_eq!(of(true, "actions=9", option).0, "", "not kept");
}

/// A tunnel counts inner packets, and the rules of the bridge by which they leave count outer ones.
#[test]
fn packets_count_for_tunnels_without_their_headers_and_for_the_underlay_with_them() {
    let ofproto = underlay();
    ofproto.set_neighbour("under", far_end(), "f8:bc:12:44:34:b6".parse().unwrap(), 0);
    let table = Arc::new(MegaflowTable::new(64, &HashKey::from_seed(1)).unwrap());
    ofproto.set_store(table.clone());
    let frame = sluice_testkit::frame::ethernet().ipv4([1; 4], [2; 4]).udp(1, 2).build();
    let len = frame.len() as u64;
    let (_, sent) = translate(&ofproto, &frame, 9);
    assert!(matches!(sent.actions[0], Action::TunnelPush(_)), "{:?}", sent.actions);
    ofproto.upcall().credit(&sent.xcache, 3, 3 * len, 0, 0);
    let bytes = |bridge: &str| -> Vec<u64> {
        let rules = ofproto.rules(bridge, &FlowMod::new(FlowCommand::Delete)).unwrap();
        rules.iter().map(|entry| entry.rule.stats().bytes).filter(|bytes| *bytes != 0).collect()
    };
    assert_eq!((bytes("br0"), bytes("under")), (vec![3 * len], vec![3 * (len + 50)]));
    let stats = ofproto.vport_stats_named("t1").unwrap();
    assert_eq!([stats.rx_packets, stats.rx_bytes, stats.tx_packets, stats.tx_bytes], [0, 0, 3, 3 * len]);
}

/// A tunnel whose outer packets go into the tunnel again, twice each time, by a rule, by NORMAL and by buckets of a group: one
/// packet ends by name, and so does a trace of it.
#[test]
fn outer_packets_that_enter_their_own_tunnel_end_by_name() {
    for (rule, bucket) in [("2,2", ""), ("NORMAL,2", ""), ("group:1", "output:2"), ("clone(2),clone(clone(2)),2", "")] {
        let ofproto = underlay();
        let again = tunnel(TunnelKind::Vxlan, "remote_ip=1.1.2.92 key=124", 4789);
        ofproto.remove_port("under", "p2").unwrap();
        ofproto.add_port("under", PortConfig::tunnel("t2", 2, again)).unwrap();
        ofproto.set_neighbour("under", far_end(), "f8:bc:12:44:34:b6".parse().unwrap(), 0);
        if !bucket.is_empty() {
            let buckets = format!(",bucket=actions={bucket}").repeat(4);
            let text = format!("group_id=1,type=all{buckets}");
            let group = GroupMod::parse(&text, GroupCommand::Add, &PortNames::NONE).unwrap();
            ofproto.group_mod("under", &group, 0).unwrap();
        }
        let all =
            FlowMod::parse(&format!("priority=65535,actions={rule}"), FlowCommand::Add, &PortNames::NONE).unwrap();
        ofproto.flow_mod("under", &all, 0).unwrap();
        let frame = [&[2; 12][..], &[8, 0, 69, 0, 0, 20, 0, 0, 0, 0, 64, 17], &[3; 30]].concat();
        let (_, translation) = translate(&ofproto, &frame, 9);
        let ends = [DropReason::RecursionTooDeep, DropReason::TooManyResubmits, DropReason::TranslationWork];
        assert!(ends.contains(&translation.no_output), "{rule}: {:?}", translation.no_output);
        assert!(translation.actions.is_empty(), "{rule}: {} actions", translation.actions.len());
        let shown = trace(&ofproto, "in_port(9)", 0).unwrap();
        assert!(shown.len() < 8 << 20, "{rule}: a trace of {} bytes", shown.len());
    }
}
