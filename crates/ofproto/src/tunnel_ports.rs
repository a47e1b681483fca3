//! The ports that are tunnels, by what their packets have. Source: Open vSwitch ofproto/tunnel.c.
//!
//! A received packet belongs to the most specific port that wants it: exact keys go before keys that rules choose, then
//! given remote ends before those that rules choose, then given local ends before any and before those that rules
//! choose. So there are twelve classes, and a packet is looked for in each that has ports, until it is found.

use crate::bridge_config::BridgeId;
use crate::port::Attach;
use crate::port::{PortConfig, TunnelPort};
use crate::routes::address;
use sluice_action::PortNo;
use sluice_flow::{OfPort, PacketKey, TunnelKey, layout};
use sluice_packet::headers::ip_proto;
use sluice_tunnel::{Endpoint, Inherited, Key, PayloadKind, TunnelConfig, TunnelKind};
use std::collections::BTreeMap;
use std::fmt::{self, Display};

/// What a tunnel port's packets have. The order is that in which packets look for a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    key: Choice<u64>,
    remote: Choice<u128>,
    local: Local,
    payload: PayloadKind,
    /// The IP protocol and the UDP port: all that come by GRE are told apart by the rest alone.
    arrival: (u8, u16),
}

/// A value, or what rules choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Choice<T> {
    Is(T),
    Flow,
}

/// The local end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Local {
    Is(u128),
    Any,
    Flow,
}

impl Wanted {
    fn of(tunnel: &TunnelPort) -> Self {
        let TunnelConfig { in_key, remote, local, payload, .. } = tunnel.config;
        Wanted {
            key: in_key.number().map_or(Choice::Flow, Choice::Is),
            remote: match remote {
                Endpoint::Address(address) => Choice::Is(address.to_bits()),
                Endpoint::Any | Endpoint::Flow => Choice::Flow,
            },
            local: match local {
                Endpoint::Address(address) => Local::Is(address.to_bits()),
                Endpoint::Any => Local::Any,
                Endpoint::Flow => Local::Flow,
            },
            payload,
            arrival: arrival(tunnel),
        }
    }

    /// Its class, 0 to 11.
    fn class(&self) -> usize {
        let key = usize::from(self.key == Choice::Flow);
        let remote = usize::from(self.remote == Choice::Flow);
        let local = match self.local {
            Local::Is(_) => 0,
            Local::Any => 1,
            Local::Flow => 2,
        };
        6 * key + 3 * remote + local
    }
}

/// The ports that are tunnels.
#[derive(Debug, Default)]
pub(crate) struct TunnelPorts {
    ports: BTreeMap<Wanted, (BridgeId, OfPort)>,
    /// How many ports each class has.
    classes: [usize; 12],
    /// The datapath ports that serve them, by IP protocol and UDP port; several types come by GRE.
    listening: BTreeMap<((u8, u16), PortNo), Listening>,
}

/// A datapath port that serves tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listening {
    pub backend: PortNo,
    pub kind: TunnelKind,
    /// How many tunnels it serves.
    tunnels: usize,
}

/// The IP protocol and the UDP port by which the packets of a tunnel come.
fn arrival(tunnel: &TunnelPort) -> (u8, u16) {
    let proto = if tunnel.config.kind.is_gre() { ip_proto::GRE } else { ip_proto::UDP };
    (proto, tunnel.config.dst_port)
}

impl TunnelPorts {
    /// Adds a port that wants other packets than all the others.
    pub fn insert(&mut self, tunnel: &TunnelPort, port: (BridgeId, OfPort)) {
        let wanted = Wanted::of(tunnel);
        if self.ports.insert(wanted, port).is_none() {
            self.classes[wanted.class()] += 1;
            let Listening { tunnels, .. } = self
                .listening
                .entry((arrival(tunnel), tunnel.backend))
                .or_insert(Listening { backend: tunnel.backend, kind: tunnel.config.kind, tunnels: 0 });
            *tunnels += 1;
        }
    }

    /// What pops packets of that IP protocol to that UDP port, which is 0 for other protocols.
    pub fn listening(&self, proto: u8, port: u16) -> Option<&Listening> {
        let first = self.listening.range(((proto, port), PortNo(0))..).next()?;
        let ((arrival, _), listening) = first;
        (*arrival == (proto, port)).then_some(listening)
    }

    /// Whether packets of that IP protocol may be popped.
    pub fn listens_to(&self, proto: u8) -> bool {
        self.listening.keys().any(|((listening, _), _)| *listening == proto)
    }

    /// Whether there is no tunnel.
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// Removes a port.
    pub fn remove(&mut self, tunnel: &TunnelPort) {
        let wanted = Wanted::of(tunnel);
        if self.ports.remove(&wanted).is_some() {
            self.classes[wanted.class()] -= 1;
            if let Some(listening) = self.listening.get_mut(&(arrival(tunnel), tunnel.backend)) {
                listening.tunnels -= 1;
            }
            self.listening.retain(|_, listening| listening.tunnels != 0);
        }
    }

    /// The port that wants the same packets.
    pub fn same(&self, tunnel: &TunnelPort) -> Option<(BridgeId, OfPort)> {
        self.ports.get(&Wanted::of(tunnel)).copied()
    }

    /// All of them, the most specific first.
    pub fn iter(&self) -> impl Iterator<Item = (BridgeId, OfPort)> {
        self.ports.values().copied()
    }

    /// The port that a packet belongs to, if it came by a tunnel.
    pub fn receive(&self, key: &PacketKey) -> Option<(BridgeId, OfPort)> {
        if self.ports.is_empty() {
            return None;
        }
        let tunnel = TunnelKey::of_packet(key);
        if tunnel.dst == 0 {
            return None;
        }
        let served = |(_, backend): &&((u8, u16), PortNo)| backend.0 == key.in_port();
        // Also a packet that has got an Ethernet header since belongs to the port that it came by without one.
        let is_frame = key.number(layout::TUN_PAYLOAD) == 0;
        let payload = if is_frame { PayloadKind::Ethernet } else { PayloadKind::Bare };
        let &(arrival, _) = self.listening.keys().find(served)?;
        for key in [Choice::Is(tunnel.id), Choice::Flow] {
            for remote in [Choice::Is(tunnel.src), Choice::Flow] {
                for local in [Local::Is(tunnel.dst), Local::Any, Local::Flow] {
                    let wanted = Wanted { key, remote, local, payload, arrival };
                    if self.classes[wanted.class()] != 0
                        && let Some(port) = self.ports.get(&wanted)
                    {
                        return Some(*port);
                    }
                }
            }
        }
        None
    }
}

/// What distinguishes the tunnel. Source: `tnl_match_fmt`.
impl Display for TunnelPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TunnelConfig { in_key, remote, local, .. } = &self.config;
        let given = |end: &Endpoint| match end {
            Endpoint::Address(is) => address(*is),
            Endpoint::Any | Endpoint::Flow => "::".to_owned(),
        };
        match (local, remote) {
            (local, Endpoint::Address(remote)) => write!(f, "{}->{}", given(local), address(*remote))?,
            (Endpoint::Flow, _) => f.write_str("flow->flow")?,
            (local, _) => write!(f, "{}->flow", given(local))?,
        }
        match in_key.number() {
            None => f.write_str(", key=flow")?,
            Some(0) => f.write_str(", key=0")?,
            Some(key) => write!(f, ", key={key:#x}")?,
        }
        write!(f, ", {}, dp port={}", self.config.payload.name(), self.backend.0)
    }
}

impl PortConfig {
    /// The line of `ofproto/list-tunnels` about it, if it is a tunnel. Source: `tnl_port_format`.
    pub(crate) fn tunnel_line(&self) -> Option<String> {
        let Attach::Tunnel(tunnel) = &self.attach else { return None };
        let config = &tunnel.config;
        let mut out = format!("port {}: {} ({}: {tunnel}", tunnel.backend.0, self.name, config.kind.name());
        if config.out_key != config.in_key {
            out += &match config.out_key {
                Key::Absent => ", out_key=none".to_owned(),
                Key::Flow => ", out_key=flow".to_owned(),
                Key::Is(0) => ", out_key=0".to_owned(),
                Key::Is(key) => format!(", out_key={key:#x}"),
            };
        }
        out += &match config.ttl {
            Inherited::Inherit => ", ttl=inherit".to_owned(),
            Inherited::Is(ttl) => format!(", ttl={ttl}"),
        };
        match config.tos {
            Inherited::Inherit => out += ", tos=inherit",
            Inherited::Is(0) => {}
            Inherited::Is(tos) => out += &format!(", tos={tos:#x}"),
        }
        out += if config.dont_fragment { "" } else { ", df=false" };
        out += if config.csum { ", csum=true" } else { "" };
        Some(out + ")\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_flow::FlowKey;

    const ME: [u8; 4] = [2, 2, 2, 2];
    const PEER: [u8; 4] = [1, 1, 1, 1];

    fn tunnel(options: &str) -> TunnelPort {
        let pairs = options.split_whitespace().filter_map(|pair| pair.split_once('='));
        let options = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let config = sluice_tunnel::parse("t", TunnelKind::Gre, &options).unwrap().config;
        TunnelPort { config, backend: PortNo(1) }
    }

    fn packet(id: u64) -> PacketKey {
        let mut key = FlowKey::ZERO;
        key.set_number(layout::IN_PORT, 1);
        key.set_number(layout::TUN_ID, id);
        key.set(layout::TUN_IPV4_SRC, &PEER);
        key.set(layout::TUN_IPV4_DST, &ME);
        key.packet_part()
    }

    #[test]
    fn the_most_specific_port_gets_the_packet() {
        // From the least specific to the most specific: each takes the packet from the one before.
        let all = [
            "remote_ip=flow local_ip=flow key=flow",
            "remote_ip=flow key=flow",
            "remote_ip=flow local_ip=2.2.2.2 key=flow",
            "remote_ip=1.1.1.1 key=flow",
            "remote_ip=1.1.1.1 local_ip=2.2.2.2 key=flow",
            "remote_ip=flow local_ip=flow key=7",
            "remote_ip=flow key=7",
            "remote_ip=flow local_ip=2.2.2.2 key=7",
            "remote_ip=1.1.1.1 key=7",
            "remote_ip=1.1.1.1 local_ip=2.2.2.2 key=7",
        ];
        let mut ports = TunnelPorts::default();
        assert_eq!(ports.receive(&packet(7)), None);
        for (number, options) in (1..).zip(all) {
            let at = (BridgeId(0), OfPort(number));
            assert_eq!(ports.same(&tunnel(options)), None);
            ports.insert(&tunnel(options), at);
            assert_eq!(ports.receive(&packet(7)), Some(at), "{options}");
        }
        assert_eq!(ports.receive(&packet(8)), Some((BridgeId(0), OfPort(5))));
        assert_eq!(ports.receive(&PacketKey::ZERO), None, "it came by no tunnel");
        ports.remove(&tunnel(all[9]));
        assert_eq!(ports.receive(&packet(7)), Some((BridgeId(0), OfPort(9))));
        assert_eq!(ports.listening(ip_proto::GRE, 0).map(|listening| listening.tunnels), Some(9));
        all.iter().for_each(|options| ports.remove(&tunnel(options)));
        assert_eq!(ports.receive(&packet(7)), None);
        assert!(ports.is_empty() && !ports.listens_to(ip_proto::GRE));
    }

    #[test]
    fn a_port_tells_what_it_is() {
        let line = |options| PortConfig::tunnel("t", 1, tunnel(options)).tunnel_line().unwrap();
        let expected = "port 1: t (gre: ::->1.1.1.1, key=0, legacy_l2, dp port=1, ttl=64)\n";
        assert_eq!(line("remote_ip=1.1.1.1"), expected);
        let expected = "port 1: t (gre: flow->flow, key=flow, legacy_l2, dp port=1, out_key=0x5, ttl=inherit, tos=0x4, df=false, csum=true)\n";
        assert_eq!(
            line("remote_ip=flow local_ip=flow in_key=flow out_key=5 ttl=inherit tos=4 df_default=false csum=true"),
            expected
        );
    }
}
