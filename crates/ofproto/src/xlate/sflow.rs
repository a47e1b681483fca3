//! Samples for sFlow: an action in front of all others takes them, and says what becomes of the packet. Source: Open vSwitch
//! ofproto/ofproto-dpif-xlate.c, `compose_sflow_action`, `fix_sflow_action`; ofproto/ofproto-dpif-sflow.c,
//! `dpif_sflow_read_actions`.

use super::{Translator, tags};
use crate::port::{Attach, PortConfig};
use crate::sflow::SFlowSettings;
use sluice_action::{Action, LabelChange, PortNo, SFlowAction};
use sluice_flow::{OfPort, layout};
use sluice_ofp::METER_SLOWPATH;
use sluice_packet::headers::ip_proto;
use sluice_sflow::{Output, SampledTunnel};
use sluice_tunnel::TunnelKind;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The outputs of a translation.
#[derive(Clone, Copy, Default)]
pub(super) struct Outputs {
    count: u32,
    /// The last one's datapath port.
    last: Option<PortNo>,
}

impl Outputs {
    /// Counts one.
    pub fn add(&mut self, port: PortNo) {
        self.count += 1;
        self.last = Some(port);
    }

    /// Counts one by a bond, which may leave by another member later.
    pub fn add_bond(&mut self) {
        self.count += 1;
        self.last = None;
    }
}

impl Translator<'_> {
    /// Notes that packets of the bridge are sampled. [`Translator::complete_sample`] makes the action, once it is known what
    /// becomes of them.
    pub(super) fn begin_sample(&mut self) {
        let has_port = self.number(layout::IN_PORT) != u64::from(OfPort::NONE.0);
        self.sampling_bridge = Some(self.bridge).filter(|bridge| has_port && bridge.sflow.is_some());
    }

    /// Puts the action that samples in front of the others.
    pub(super) fn complete_sample(&mut self) {
        let Some(bridge) = self.sampling_bridge else { return };
        let Some(settings) = &bridge.sflow else { return };
        let in_port = bridge.ports.get(&OfPort(self.original.number(layout::IN_PORT) as u16));
        let (ingress_protocol, ingress_port) = in_port.map_or((0, 0), protocol_of);
        let Outputs { count, last } = self.outputs;
        let mut path = Path { ports: bridge.ports.values().collect(), ..Path::default() };
        path.read(&self.out);
        let meter = bridge.meters.get(&METER_SLOWPATH).map(|meter| meter.datapath);
        self.xcache.push(crate::xlate_cache::XcEntry::Depends {
            bridge: bridge.id,
            on: crate::xlate_cache::Dependency::Meter(METER_SLOWPATH),
        });
        let action = SFlowAction {
            probability: settings.probability,
            header_len: settings.header_len,
            bridge: bridge.id.0,
            meter,
            input: in_port.and_then(PortConfig::datapath).map_or(0, |port| settings.ifindex(port)),
            output: Output::to(count, last.map_or(0, |port| settings.ifindex(port))),
            dst_tci: tags::tag(self.base, 0).tci,
            ingress_protocol,
            ingress_port,
            egress: path.tunnel().filter(|_| count == 1),
            labels: path.labels.filter(|_| count == 1),
        };
        self.out.insert(0, Action::SFlow(Arc::new(action)));
    }
}

impl SFlowSettings {
    fn ifindex(&self, port: PortNo) -> u32 {
        self.ifindexes.get(&port).copied().unwrap_or(0)
    }
}

/// The protocol, and the UDP port, of a tunnel's packets; 0: it has none, or is no tunnel.
fn protocol_of(port: &PortConfig) -> (u8, u16) {
    match &port.attach {
        Attach::Tunnel(tunnel) if tunnel.config.kind == TunnelKind::Gre => (ip_proto::GRE, 0),
        Attach::Tunnel(tunnel) if tunnel.config.kind.default_port().is_some() => {
            (ip_proto::UDP, tunnel.config.dst_port)
        }
        _ => (0, 0),
    }
}

/// What actions do to a packet, as far as samples tell of it.
#[derive(Default)]
struct Path<'a> {
    ports: Vec<&'a PortConfig>,
    tunnels: u32,
    tunnel: Option<SampledTunnel>,
    is_popped: bool,
    labels: Option<LabelChange>,
}

impl Path<'_> {
    fn read(&mut self, actions: &[Action]) {
        self.labels.get_or_insert_default();
        for action in actions {
            match action {
                Action::TunnelPush(push) => self.push(sampled(push.header.kind(), push.header.bytes())),
                Action::SetTunnel(set) => {
                    let ipv4 = |address| Ipv6Addr::from_bits(address).to_ipv4_mapped();
                    let key = &set.key;
                    self.push(ipv4(key.dst).map(|dst| SampledTunnel {
                        protocol: 0,
                        tos: key.tos,
                        src: ipv4(key.src).unwrap_or(Ipv4Addr::UNSPECIFIED),
                        dst,
                        src_port: 0,
                        dst_port: key.tp_dst,
                        vni: key.id as u32,
                    }));
                }
                Action::Output(port) => self.leave_by(*port),
                Action::TunnelPop { .. } => self.is_popped = true,
                Action::PushMpls { lse, .. } => self.labels.get_or_insert_default().push(*lse),
                Action::PopMpls { .. } => self.labels.get_or_insert_default().pop(),
                Action::Clone(nested) => self.read(nested),
                _ => {}
            }
        }
    }

    fn push(&mut self, tunnel: Option<SampledTunnel>) {
        self.tunnels += 1;
        self.tunnel = tunnel;
    }

    /// A tunnel whose header the device makes has the protocol of the port.
    fn leave_by(&mut self, port: PortNo) {
        let serves = |config: &&&PortConfig| matches!(&config.attach, Attach::Tunnel(tunnel) if tunnel.backend == port);
        if let Some(tunnel) = &mut self.tunnel
            && tunnel.protocol == 0
            && let Some(config) = self.ports.iter().find(serves)
        {
            tunnel.protocol = protocol_of(config).0;
        }
    }

    /// The tunnel, if there is exactly one.
    fn tunnel(&self) -> Option<SampledTunnel> {
        self.tunnel.filter(|_| self.tunnels == 1 && !self.is_popped)
    }
}

/// The header that a tunnel puts in front of packets, if it is IPv4.
fn sampled(kind: TunnelKind, header: &[u8]) -> Option<SampledTunnel> {
    const IP_AT: usize = 14;
    const L4_AT: usize = IP_AT + 20;
    let bytes = |at: usize, len: usize| header.get(at..at + len);
    let number = |at, len| bytes(at, len).map_or(0, |found| found.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)));
    if bytes(IP_AT, 1)?.first()? >> 4 != 4 {
        return None;
    }
    let protocol = number(IP_AT + 9, 1) as u8;
    let has_ports = protocol == ip_proto::UDP;
    let vni = match kind {
        TunnelKind::Vxlan | TunnelKind::Geneve => number(L4_AT + 8 + 4, 4) >> 8,
        TunnelKind::Gre => gre_key(number(L4_AT, 2)).map_or(0, |at| number(L4_AT + at, 4)),
        _ => 0,
    };
    Some(SampledTunnel {
        protocol,
        tos: number(IP_AT + 1, 1) as u8,
        src: Ipv4Addr::from_bits(number(IP_AT + 12, 4)),
        dst: Ipv4Addr::from_bits(number(IP_AT + 16, 4)),
        src_port: if has_ports { number(L4_AT, 2) as u16 } else { 0 },
        dst_port: if has_ports { number(L4_AT + 2, 2) as u16 } else { 0 },
        vni,
    })
}

/// Where the key of a GRE header with these flags stands.
fn gre_key(flags: u32) -> Option<usize> {
    const CSUM: u32 = 0x8000;
    const KEY: u32 = 0x2000;
    (flags & KEY != 0).then_some(if flags & CSUM != 0 { 8 } else { 4 })
}
