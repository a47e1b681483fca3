//! A Geneve tunnel: what leaves by it gets a header, what comes by it loses one.

use sluice_action::PortNo;
use sluice_flow::{Mac, PortNames, TunnelKey, tunnel_flags};
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{BridgeConfig, DeviceAddresses, Ofproto, PortConfig, TunnelPort};
use sluice_tunnel::header::{OuterLink, PerPacket, TunnelHeader};
use sluice_tunnel::{TunnelConfig, TunnelKind, parse};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Which way packets take.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From port 1 to port 2 of one bridge.
    Plain,
    /// From port 1 into the tunnel, and by port 2 out of another bridge.
    Encap,
    /// By port 1 into another bridge, out of the tunnel, and to port 2.
    Decap,
}

const OWN: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const REMOTE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 9, 1];
const REMOTE_MAC: [u8; 6] = [2, 0, 0, 0, 9, 2];
const KEY: u64 = 7;

/// The bridge by which outer packets come and go, and the datapath's numbers of its device and of the tunnel's port.
const UNDER: &str = "under";
const DEVICE: PortNo = PortNo(100);
const BACKEND: PortNo = PortNo(9);
/// Bits in front of an IPv4 address in an IPv4-mapped IPv6 address, and those of the network.
const PREFIX: u8 = 96 + 24;

fn config(remote: Ipv4Addr) -> TunnelConfig {
    let options = [("remote_ip".to_owned(), remote.to_string()), ("key".to_owned(), KEY.to_string())].into();
    parse("t", TunnelKind::Geneve, &options).expect("options of a tunnel").config
}

/// Adds ports 1 and 2, and what is between them.
pub fn add_ports(way: Way, bridge: &str, ofproto: &Ofproto) {
    let add = |bridge: &str, port| ofproto.add_port(bridge, port).expect("a free number");
    let [p1, p2] = [1, 2].map(|number| PortConfig::new(&format!("p{number}"), number, PortNo(number.into())));
    let tunnel = |number| PortConfig::tunnel("t", number, TunnelPort { config: config(REMOTE), backend: BACKEND });
    if way != Way::Plain {
        ofproto.add_bridge(BridgeConfig::new(UNDER), 0).expect("a bridge");
        add(UNDER, PortConfig::new(UNDER, 0xfffe, DEVICE));
    }
    match way {
        Way::Plain => [p1, p2].into_iter().for_each(|port| add(bridge, port)),
        Way::Encap => [(bridge, p1), (bridge, tunnel(2)), (UNDER, p2)].into_iter().for_each(|(to, port)| add(to, port)),
        Way::Decap => [(UNDER, p1), (bridge, tunnel(3)), (bridge, p2)].into_iter().for_each(|(to, port)| add(to, port)),
    }
    if way != Way::Plain {
        let device = DeviceAddresses { mac: Mac(OWN_MAC), addresses: vec![(OWN.to_ipv6_mapped(), PREFIX)] };
        let routes = device.routes(UNDER);
        ofproto.set_devices([(UNDER.to_owned(), device)].into(), routes);
        ofproto.set_neighbour(UNDER, REMOTE.to_ipv6_mapped(), Mac(REMOTE_MAC), 0);
        for rule in ["in_port=LOCAL,actions=output:2", "in_port=1,actions=LOCAL"] {
            let rule = FlowMod::parse(rule, FlowCommand::Add, &PortNames::NONE).expect("a rule");
            ofproto.flow_mod(UNDER, &rule, 0).expect("a table");
        }
    }
}

/// Frames as the other end sends them, each from a UDP port of its own.
pub fn encapsulated(frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let src: Ipv6Addr = REMOTE.to_ipv6_mapped();
    let config = config(OWN);
    let key = TunnelKey {
        id: KEY,
        src: src.to_bits(),
        dst: OWN.to_ipv6_mapped().to_bits(),
        flags: tunnel_flags::KEY,
        ttl: 64,
        tp_dst: config.dst_port,
        ..TunnelKey::default()
    };
    let link = OuterLink { link_dst: OWN_MAC, link_src: REMOTE_MAC, src };
    let header = TunnelHeader::build(&config, &key, &[], &link).expect("a header");
    let encapsulate = |(frame, source_port): (Vec<u8>, u16)| {
        let mut packet = [header.bytes(), &frame].concat();
        header.complete(&mut packet, PerPacket { source_port, ..PerPacket::default() }).expect("a short packet");
        packet
    };
    frames.into_iter().zip(32768..).map(encapsulate).collect()
}
