//! Outputs to tunnels, and what is special about packets that came by one. Source: Open vSwitch ofproto/tunnel.c,
//! `tnl_port_send`, `tnl_process_ecn`.

use super::protocol::ethertype_of;
use super::{Translator, tags};
use crate::features::Feature;
use crate::port::TunnelPort;
use crate::tunnel::Tunnel;
use crate::xlate_cache::XcEntry;
use sluice_action::{Action, SetTunnel};
use sluice_fate::DropReason;
use sluice_flow::geneve::{GeneveOption, OptionBytes};
use sluice_flow::layout::{self, Span};
use sluice_flow::{FieldId, FlowKey, OfPort, TUN_METADATA_FIELDS, TunnelKey, tunnel_flags};
use sluice_tunnel::{Endpoint, Erspan, Inherited, Key, PayloadKind, TunnelConfig, TunnelKind};
use std::net::Ipv6Addr;

/// How a packet is sent to a tunnel.
#[derive(Clone, Copy)]
pub(super) struct TunnelOutput {
    /// Nothing comes after it.
    pub last: bool,
    /// Only the first part of the packet is sent.
    pub truncated: bool,
}

/// The bits of a type of service that mark congestion; the mark itself; one of the two that say it may be set.
pub(super) const ECN: u64 = 3;
pub(super) const ECN_CE: u64 = 3;
const ECN_ECT_0: u64 = 2;
/// The other bits.
const DSCP: u64 = 0xfc;

impl Translator<'_> {
    /// Takes over the congestion mark of the tunnel that the packet came by. False if the packet is not capable of one.
    pub(super) fn take_congestion_mark(&mut self) -> bool {
        let is_marked = self.flow.has_tunnel() && self.number(layout::TUN_TOS) & ECN == ECN_CE;
        if !is_marked || !self.is_ip() {
            return true;
        }
        let tos = self.number(layout::NW_TOS);
        if tos & ECN == 0 {
            if self.side_effects || self.tracer.is_some() {
                tracing::warn!(
                    target: "tunnel", rate_limit = 1,
                    "dropping tunnel packet marked ECN CE but is not ECN capable"
                );
            }
            return false;
        }
        self.flow.set_number(layout::NW_TOS, tos | ECN_CE);
        true
    }

    /// Outputs to a tunnel: the packet leaves by the datapath port that serves it, with the tunnel's fields beside it.
    /// Later actions do not see what the port has set of them.
    pub(super) fn output_to_tunnel(&mut self, port: OfPort, tunnel: &TunnelPort, output: TunnelOutput) {
        let before = Tunnel::of(self.flow);
        self.set_tunnel_fields(&tunnel.config);
        if destination(self.flow) == destination(self.original) {
            before.put(self.flow);
            return self.warn("Not tunneling to our own address");
        }
        if tunnel.config.payload == PayloadKind::Bare {
            if tags::tag(self.flow, 0).tci != 0 {
                before.put(self.flow);
                self.no_output = DropReason::TunnelPush;
                return self.warn("a packet with a VLAN tag cannot leave without an Ethernet header");
            }
            self.flow.set_bare_type(Some(ethertype_of(self.flow)));
        }
        self.xcache.extend(self.bridge.vport_counts.get(&port).cloned().map(XcEntry::VportTx));
        if self.can(Feature::TnlPushPop) {
            self.detail("output to native tunnel");
            self.commit();
            self.push_tunnel(tunnel, output);
            before.put(self.flow);
        } else {
            self.detail("output to kernel tunnel");
            self.commit_tunnel(tunnel.config.kind);
            before.put(self.flow);
            self.commit();
            self.emit(Action::Output(tunnel.backend));
        }
        self.flow.set_bare_type(None);
    }

    /// Sets the fields that the port's configuration does not leave to rules.
    fn set_tunnel_fields(&mut self, config: &TunnelConfig) {
        put_address(self.flow, config.local, layout::TUN_IPV4_SRC, layout::TUN_IPV6_SRC);
        put_address(self.flow, config.remote, layout::TUN_IPV4_DST, layout::TUN_IPV6_DST);
        self.flow.set_number(layout::TUN_TP_DST, config.dst_port.into());
        if let Some(id) = config.out_key.number() {
            self.flow.set_number(layout::TUN_ID, id);
        }
        let ttl = self.inherited(config.ttl, layout::NW_TTL, 0xff);
        self.flow.set_number(layout::TUN_TTL, ttl);
        let mut tos = self.inherited(config.tos, layout::NW_TOS, DSCP);
        if self.is_ip() {
            self.look_at(layout::NW_TOS, ECN);
            tos |= match self.number(layout::NW_TOS) & ECN {
                ECN_CE => ECN_ECT_0,
                ecn => ecn,
            };
        }
        self.flow.set_number(layout::TUN_TOS, tos);
        let flags = [
            (config.dont_fragment, tunnel_flags::DF),
            (config.csum, tunnel_flags::CSUM),
            (config.out_key != Key::Absent, tunnel_flags::KEY),
        ];
        let set = flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | u64::from(flag));
        let kept = self.number(layout::TUN_FLAGS) & u64::from(tunnel_flags::OAM);
        self.flow.set_number(layout::TUN_FLAGS, kept | set);
        if let Some(mark) = config.egress_pkt_mark {
            self.flow.set_number(layout::PKT_MARK, mark.into());
            self.look_at(layout::PKT_MARK, u64::MAX);
        }
        let Erspan { version, index, direction, hardware_id } = config.erspan;
        let fields = [
            (layout::TUN_ERSPAN_VER, version.map(u32::from)),
            (layout::TUN_ERSPAN_IDX, index),
            (layout::TUN_ERSPAN_DIR, direction.map(u32::from)),
            (layout::TUN_ERSPAN_HWID, hardware_id.map(u32::from)),
        ];
        for (span, value) in fields {
            value.into_iter().for_each(|value| self.flow.set_number(span, value.into()));
        }
    }

    /// A field of the outer header: the bits of `mask` of the inner one, if they are inherited and the packet has them.
    fn inherited(&mut self, how: Inherited, inner: Span, mask: u64) -> u64 {
        match how {
            Inherited::Is(value) => value.into(),
            Inherited::Inherit if self.is_ip() => {
                self.look_at(inner, mask);
                self.number(inner) & mask
            }
            Inherited::Inherit if inner == layout::NW_TTL => sluice_tunnel::DEFAULT_TTL.into(),
            Inherited::Inherit => 0,
        }
    }

    /// Emits the tunnel's fields, if the datapath's packet has others. Of the fields that are of one type only, those of
    /// another are left out.
    fn commit_tunnel(&mut self, kind: TunnelKind) {
        let tunnel = Tunnel::of(self.flow);
        if tunnel == Tunnel::of(self.base) {
            return;
        }
        tunnel.clone().put(self.base);
        let mut key = TunnelKey::of_flow(self.flow);
        if kind != TunnelKind::Gtpu {
            (key.gtpu_flags, key.gtpu_msgtype) = (0, 0);
        }
        if !kind.is_erspan() {
            key.erspan_ver = 0;
        }
        if kind != TunnelKind::Vxlan {
            (key.gbp_id, key.gbp_flags) = (0, 0);
        }
        let options = match kind {
            TunnelKind::Geneve => self.options_to_send().into(),
            _ => Box::default(),
        };
        self.emit(Action::SetTunnel(Box::new(SetTunnel { key, options })));
    }

    /// The options of Geneve that the packet leaves with.
    pub(super) fn options_to_send(&mut self) -> Vec<GeneveOption> {
        if self.flow.tun_metadata.is_none() {
            return Vec::new();
        }
        self.look_at_options();
        self.bridge.tunnel_options.options_of(&self.flow.tun_metadata)
    }

    /// Adds to the mask the options of Geneve that the packet came with and still has: what is kept of them, in a header or in
    /// a frozen state, is the same for all packets of the megaflow. Which options a packet has is always in the mask.
    pub(super) fn look_at_options(&mut self) {
        let kept = self.original.tun_metadata.present() & self.flow.tun_metadata.present();
        for field in (0..TUN_METADATA_FIELDS).filter(|i| kept >> i & 1 != 0).filter_map(FieldId::tun_metadata) {
            field.field().set_mask_wide(self.wc, field.field().all_ones_wide());
        }
    }

    /// The mask of the options that the packet came with, for the datapath. `None`: it came by no tunnel.
    pub(super) fn options_mask(&self) -> Option<OptionBytes> {
        if !self.original.has_tunnel() {
            return None;
        }
        match (&self.options, self.state.bridge(self.ingress.0)) {
            (Some(list), Some(bridge)) => Some(bridge.tunnel_options.mask(list, &self.wc.tun_metadata)),
            _ => Some(OptionBytes::NONE),
        }
    }
}

/// The other end of the tunnel, an IPv4 one as the IPv6 address that maps it; 0: there is no tunnel.
fn destination(flow: &FlowKey) -> u128 {
    let mut narrow = FlowKey::ZERO;
    narrow.set(layout::TUN_IPV4_DST, flow.get(layout::TUN_IPV4_DST));
    narrow.set(layout::TUN_IPV6_DST, flow.get(layout::TUN_IPV6_DST));
    TunnelKey::of_flow(&narrow).dst
}

/// Sets an address of the tunnel, unless rules choose it.
fn put_address(flow: &mut FlowKey, end: Endpoint, narrow: Span, wide: Span) {
    let address = match end {
        Endpoint::Flow => return,
        Endpoint::Any => Ipv6Addr::UNSPECIFIED,
        Endpoint::Address(address) => address,
    };
    let (v4, v6) = match address.to_ipv4_mapped() {
        Some(v4) => (v4.to_bits(), Ipv6Addr::UNSPECIFIED),
        None => (0, address),
    };
    flow.set_number(narrow, v4.into());
    flow.set(wide, &v6.octets());
}
