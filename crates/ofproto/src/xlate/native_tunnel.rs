//! Headers of tunnels, pushed and popped here: the way of the outer packet, and packets that are for this switch.
//! Source: Open vSwitch ofproto/ofproto-dpif-xlate.c, `native_tunnel_output`, `terminate_native_tunnel`.

use super::protocol::{ethertype_of, ip_proto_of};
use super::tunnel::TunnelOutput;
use super::{Translator, tags};
use crate::bridge::Bridge;
use crate::effects::Effect;
use crate::features::Feature;
use crate::neighbours::NeighbourRequest;
use crate::port::{PortConfig, TunnelPort};
use crate::routes::{DeviceAddresses, Path, address};
use crate::xlate_cache::{Dependency, XcEntry};
use sluice_action::{Action, TunnelPush};
use sluice_fate::DropReason;
use sluice_flow::layout::{self, Span};
use sluice_flow::{FlowKey, Mac, TunnelKey};
use sluice_packet::headers::{ethertype, ip_proto};
use sluice_tunnel::header::{OuterLink, PerPacket, TunnelHeader};
use sluice_tunnel::solicited_node;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// ARP's reply, and neighbour discovery's advertisement.
const ARP_REPLY: u64 = 2;
const ND_ADVERT: u64 = 136;

/// The bridge's port by which an outer packet leaves, and the packet's way.
struct Egress<'a> {
    bridge: &'a Bridge,
    port: &'a PortConfig,
    device: &'a DeviceAddresses,
    path: Path,
}

impl<'a> Translator<'a> {
    /// Pushes the header of a tunnel, whose fields the flow has, and goes on in the bridge by which it leaves.
    pub(super) fn push_tunnel(&mut self, tunnel: &TunnelPort, output: TunnelOutput) {
        let key = TunnelKey::of_flow(self.flow);
        match self.egress(&key).and_then(|egress| Some((self.header(tunnel, &key, &egress)?, egress))) {
            Some((header, egress)) => self.send_outer(tunnel, header, &egress, output),
            None => self.no_output = DropReason::TunnelPush,
        }
    }

    /// The way of the outer packet.
    fn egress(&mut self, key: &TunnelKey) -> Option<Egress<'a>> {
        let state = self.state;
        if state.routes.has_marks() {
            self.look_at(layout::PKT_MARK, u64::MAX);
        }
        let mark = self.number(layout::PKT_MARK) as u32;
        // What has no source maps the source of IPv4 that is none.
        let src = Some(Ipv6Addr::from_bits(key.src)).filter(|_| !matches!(key.src, 0 | 0xffff_0000_0000));
        let found = state.routes.lookup(mark, Ipv6Addr::from_bits(key.dst), src).and_then(|path| {
            let (bridge, number) = state.by_name.get(&path.device)?;
            let bridge = state.bridge(*bridge)?;
            let (port, device) = (bridge.ports.get(number)?, state.routes.device(&path.device)?);
            Some(Egress { bridge, port, device, path })
        });
        if found.is_none() {
            self.warn("native tunnel routing failed");
        }
        found
    }

    /// The header of the outer packet, if the next hop's address is known.
    fn header(&mut self, tunnel: &TunnelPort, key: &TunnelKey, egress: &Egress<'_>) -> Option<TunnelHeader> {
        let Egress { bridge, device, path, .. } = egress;
        let next_hop = path.gateway.unwrap_or(Ipv6Addr::from_bits(key.dst));
        self.detail(&format!("tunneling to {} via {}", address(next_hop), path.device));
        self.xcache.push(XcEntry::Depends { bridge: bridge.id, on: Dependency::Neighbour(next_hop) });
        let Some(mac) = self.shared.neighbours.lookup(bridge.name(), next_hop, self.now_ms) else {
            self.ask_for(next_hop, egress);
            return None;
        };
        self.xcache.push(XcEntry::Neighbour { bridge: bridge.id, ip: next_hop, mac });
        let (from, to) = (address(path.src), address(next_hop));
        self.detail(&format!("tunneling from {} {from} to {mac} {to}", device.mac));
        let link = OuterLink { link_dst: mac.0, link_src: device.mac.0, src: path.src };
        let options = self.options_to_send();
        let built = TunnelHeader::build(&tunnel.config, key, &options, &link);
        if built.is_err() {
            self.warn("native tunnel header build failed");
        }
        built.ok()
    }

    /// Has the next hop be asked for its address. What is sent meanwhile is dropped, and not by a megaflow.
    fn ask_for(&mut self, next_hop: Ipv6Addr, egress: &Egress<'_>) {
        let Egress { bridge, device, path, .. } = egress;
        let kind = if next_hop.to_ipv4_mapped().is_some() { "ARP" } else { "ND" };
        let (name, target) = (bridge.name(), address(next_hop));
        self.detail(&format!("neighbor cache miss for {target} on bridge {name}, sending {kind} request"));
        self.cacheable = false;
        if self.side_effects {
            let src = device.src_for(next_hop).unwrap_or(path.src);
            let (bridge, device, mac) = (name.to_owned(), path.device.clone(), device.mac);
            let request = NeighbourRequest { bridge, device, mac, src, target: next_hop };
            self.shared.neighbours.ask(request, self.now_ms);
            self.shared.effects.wake_if_awaited();
        }
    }

    /// Pushes the header, and lets the outer packet enter the bridge that it leaves by, as if its device had sent it. What
    /// that bridge looks at is the same for all packets of the tunnel, so it is not matched.
    fn send_outer(&mut self, tunnel: &TunnelPort, header: TunnelHeader, egress: &Egress<'a>, output: TunnelOutput) {
        let Some(out_port) = egress.port.datapath() else { return };
        let outer = outer_key(self.flow, &header);
        let size = i16::try_from(header.growth()).expect("invariant: a header has some hundred bytes at most");
        self.xcache.push(XcEntry::TunnelHeader(size));
        let push = Action::TunnelPush(Arc::new(TunnelPush { backend: tunnel.backend, header, out_port }));
        let cut = if output.truncated { self.out.pop_if(|last| matches!(last, Action::Trunc(_))) } else { None };
        let before = Box::new((self.flow.clone(), self.base.clone(), self.wc.clone()));
        let actions = self.nested(|t| {
            t.out.extend(cut);
            t.emit(push);
            let pushed = t.out.len();
            (*t.flow, *t.base, *t.wc) = (outer.clone(), outer, FlowKey::ZERO);
            t.cross(egress.bridge, egress.port, true);
            if t.out.len() == pushed {
                t.out.clear();
            }
        });
        (*self.flow, *self.base, *self.wc) = *before;
        self.xcache.push(XcEntry::TunnelHeader(-size));
        match output.last {
            true => self.out.extend_from_slice(&actions),
            false if actions.is_empty() => {}
            false => self.out.push(Action::Clone(actions)),
        }
    }

    /// What takes the header off a packet that leaves by a port with an address, if the packet came to that address by a
    /// tunnel. Otherwise it may tell of a neighbour.
    pub(super) fn tunnel_to_pop(&mut self, port: &PortConfig) -> Option<Action> {
        let state = self.state;
        if state.tunnels.is_empty() || !self.can(Feature::TnlPushPop) {
            return None;
        }
        let device = state.routes.device(&port.name).filter(|device| !device.addresses.is_empty())?;
        let found = self.listening(device);
        match found {
            Some(_) => self.learn_outer_source(),
            None => self.snoop_neighbour(device),
        }
        found
    }

    /// The same without regard to neighbours. Fields are looked at layer by layer, as far as the layer before agrees.
    fn listening(&mut self, device: &DeviceAddresses) -> Option<Action> {
        let state = self.state;
        self.look_at_whole(&[layout::DL_TYPE, layout::DL_DST]);
        tags::look_at_tci(self.wc, 0, tags::VID | tags::CFI);
        if self.flow.get(layout::DL_DST) != device.mac.0 || tags::tag(self.flow, 0).tci != 0 {
            return None;
        }
        let (span, to) = match ethertype_of(self.flow) {
            ethertype::IPV4 => (layout::NW_DST, ipv4(self.flow, layout::NW_DST)),
            ethertype::IPV6 => (layout::IPV6_DST, wide(self.flow, layout::IPV6_DST)),
            _ => return None,
        };
        self.look_at_whole(&[span, layout::NW_PROTO]);
        self.look_at(layout::NW_FRAG, 3);
        let proto = ip_proto_of(self.flow);
        let is_own = device.addresses.iter().any(|(own, _)| *own == to);
        if !is_own || self.number(layout::NW_FRAG) != 0 || !state.tunnels.listens_to(proto) {
            return None;
        }
        let port = if proto == ip_proto::UDP {
            self.look_at_whole(&[layout::TP_DST]);
            self.number(layout::TP_DST) as u16
        } else {
            0
        };
        let listening = state.tunnels.listening(proto, port)?;
        let (backend, kind) = (listening.backend, listening.kind);
        Some(Action::TunnelPop { backend, kind })
    }

    fn look_at_whole(&mut self, spans: &[Span]) {
        spans.iter().for_each(|span| self.wc.get_mut(*span).fill(0xff));
    }

    /// The outer packet's sender is a neighbour, or comes by one.
    fn learn_outer_source(&mut self) {
        let src = match ethertype_of(self.flow) {
            ethertype::IPV4 => ipv4(self.flow, layout::NW_SRC),
            _ => wide(self.flow, layout::IPV6_SRC),
        };
        self.learn_neighbour(src, layout::DL_SRC);
    }

    /// An answer to ARP or neighbour discovery, or a gratuitous one, tells of a neighbour.
    fn snoop_neighbour(&mut self, device: &DeviceAddresses) {
        let is_own = |to: Ipv6Addr| device.addresses.iter().any(|(own, _)| *own == to);
        match ethertype_of(self.flow) {
            ethertype::ARP => {
                self.look_at_whole(&[layout::NW_SRC, layout::NW_DST]);
                let (from, to) = (ipv4(self.flow, layout::NW_SRC), ipv4(self.flow, layout::NW_DST));
                if from != to && !is_own(to) {
                    return;
                }
                self.look_at_whole(&[layout::NW_PROTO, layout::ARP_SHA]);
                if from == to || self.number(layout::NW_PROTO) == ARP_REPLY {
                    self.learn_neighbour(from, layout::ARP_SHA);
                }
            }
            ethertype::IPV6 if ip_proto_of(self.flow) == ip_proto::ICMPV6 => {
                self.look_at_whole(&[layout::NW_PROTO, layout::IPV6_DST, layout::TP_SRC]);
                let to = wide(self.flow, layout::IPV6_DST);
                let mut own = device.addresses.iter().filter(|(own, _)| own.to_ipv4_mapped().is_none());
                let is_for_us = own.any(|(own, _)| to == *own || to == solicited_node(*own));
                if !is_for_us || self.number(layout::TP_SRC) != ND_ADVERT {
                    return;
                }
                self.look_at_whole(&[layout::ARP_THA, layout::ND_TARGET, layout::IPV6_SRC]);
                self.learn_neighbour(wide(self.flow, layout::ND_TARGET), layout::ARP_THA);
            }
            _ => {}
        }
    }

    /// The neighbour of that address has the Ethernet address that stands at `span`, if a packet says so.
    fn learn_neighbour(&mut self, ip: Ipv6Addr, span: Span) {
        let mac = Mac(self.flow.get(span).try_into().expect("invariant: an Ethernet address has six bytes"));
        if !self.side_effects || mac == Mac([0; 6]) {
            return;
        }
        let (bridge, now_ms) = (self.bridge.id, self.now_ms);
        if self.shared.neighbours.needs(&(self.bridge.name().to_owned(), ip), mac, now_ms) {
            self.shared.effects.put(Effect::Neighbour { bridge, ip, mac, now_ms });
        }
    }
}

fn ipv4(flow: &FlowKey, span: Span) -> Ipv6Addr {
    Ipv4Addr::from_bits(flow.number(span) as u32).to_ipv6_mapped()
}

fn wide(flow: &FlowKey, span: Span) -> Ipv6Addr {
    Ipv6Addr::from_bits(flow.get(span).iter().fold(0, |n, byte| n << 8 | u128::from(*byte)))
}

/// The key of the packet with its header: what tables know of it besides its bytes stays.
fn outer_key(flow: &FlowKey, header: &TunnelHeader) -> FlowKey {
    use layout::*;
    let mut known = sluice_flow::PacketKey::ZERO;
    // A header by itself has all that its packets have in common, once its lengths are right.
    let mut bytes = header.bytes().to_vec();
    let completed = header.complete(&mut bytes, PerPacket::default());
    let read = sluice_flow::extract(&bytes, &sluice_flow::Metadata::of_port(0), &mut known);
    debug_assert!(completed.is_ok() && read.is_ok(), "invariant: a header is short, and begins with Ethernet");
    let mut outer = FlowKey::of_packet(&known);
    for span in [IN_PORT, RECIRC_ID, PKT_MARK, SKB_PRIORITY, ACTSET_OUTPUT] {
        outer.set(span, flow.get(span));
    }
    outer
}
