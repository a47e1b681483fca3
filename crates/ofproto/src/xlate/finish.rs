//! The end of a translation, and what it yields.

use super::protocol::{ethertype_of, ip_proto_of, is_mpls};
use super::{Failure, MAX_BYTES, Translator, tags};
use crate::port::PortConfig;
use crate::tunnel::Tunnel;
use crate::xlate_cache::XcEntry;
use sluice_action::Action;
use sluice_fate::{DropReason, Limit};
use sluice_flow::{FlowKey, OfPort, PacketKey, layout};
use sluice_packet::headers::{ethertype, ip_proto};

/// What a translation yields; `struct xlate_out` in Open vSwitch.
pub(crate) struct XlateOut {
    pub actions: Vec<Action>,
    /// Only if it is traced.
    pub trace: Option<Box<XlateTrace>>,
    pub xcache: Vec<XcEntry>,
    pub failure: Option<Failure>,
    pub cacheable: bool,
    /// An action is not one that the datapath can do.
    pub is_slow: bool,
    /// The packet belongs to a BFD session.
    pub is_bfd: bool,
    /// The packet is of LACP.
    pub is_lacp: bool,
    pub no_output: DropReason,
    /// Something was locked, and the thread may not wait: nothing else of this is valid.
    pub is_busy: bool,
}

/// The keys of a translation, for a trace.
pub(crate) struct XlateTrace {
    /// The bits that were looked at, without registers and metadata.
    pub wc: FlowKey,
    /// The key before and after the translation.
    pub original: FlowKey,
    pub flow: FlowKey,
}

impl Translator<'_> {
    /// Runs the action set, or finishes the freeze that came before it.
    pub(super) fn end_of_pipeline(&mut self) {
        if !self.freezing {
            self.run_action_set();
        }
        if self.freezing {
            self.finish_freezing();
        }
    }

    /// Sends a DHCP reply to the LOCAL port as well, whatever the rules say: the switch may get the address by it from
    /// which it reaches its controllers. As in OVS, other packets do not look at these fields.
    /// Source: OVS ofproto/in-band.c, `in_band_must_output_to_local_port`.
    pub(super) fn deliver_dhcp_reply(&mut self) {
        const SERVER: u64 = 67;
        const CLIENT: u64 = 68;
        let flow = &self.flow;
        let is_udp = ethertype_of(flow) == ethertype::IPV4 && ip_proto_of(flow) == ip_proto::UDP;
        let ports = (flow.number(layout::TP_SRC), flow.number(layout::TP_DST));
        let local = self.bridge.ports.get(&OfPort::LOCAL).and_then(PortConfig::datapath);
        let is_sent = self.out.iter().any(|action| matches!(action, Action::Output(port) if Some(*port) == local));
        if !is_udp || ports != (SERVER, CLIENT) || is_sent {
            return;
        }
        for span in [layout::NW_PROTO, layout::TP_SRC, layout::TP_DST, layout::DL_TYPE] {
            self.wc.get_mut(span).fill(0xff);
        }
        self.detail("outputting DHCP packet to local port for in-band control");
        self.output(OfPort::LOCAL, 0, false);
    }

    /// What comes of the translation; the mask is the megaflow's.
    pub(super) fn finish(&mut self, mask: &mut PacketKey) -> XlateOut {
        if self.failure.is_none() {
            self.tidy_mask();
        }
        let keys = || XlateTrace { wc: self.wc.clone(), original: self.original.clone(), flow: self.flow.clone() };
        let trace = self.tracer.is_some().then(|| Box::new(keys()));
        if let Some(failure) = self.failure {
            self.tidy_mask();
            self.out.clear();
            self.no_output = failure.drop_reason();
        } else if let Some(Action::Clone(actions)) = self.out.pop_if(|last| matches!(last, Action::Clone(_))) {
            // A clone at the end of the list needs no copy.
            self.out.extend_from_slice(&actions);
        }
        if self.failure.is_none() {
            self.complete_sample();
        }
        // More actions than an attribute of Netlink holds go to userspace in OVS, too.
        let is_oversize = self.out_bytes > MAX_BYTES && self.failure.is_none();
        if is_oversize && self.side_effects {
            Limit::ActionList.hit();
        }
        self.put_datapath_mask(mask);
        XlateOut {
            actions: std::mem::take(&mut self.out),
            trace,
            xcache: std::mem::take(&mut self.xcache),
            failure: self.failure,
            cacheable: self.cacheable && !is_oversize && !self.failure.is_some_and(Failure::is_passing),
            is_slow: self.is_slow || is_oversize,
            is_bfd: self.is_bfd,
            is_lacp: self.is_lacp,
            no_output: self.no_output,
            is_busy: self.is_busy.get(),
        }
    }

    /// Removes bits from the mask that packets do not have, or that this packet did not have.
    pub(super) fn tidy_mask(&mut self) {
        use layout::*;
        let wc = &mut *self.wc;
        wc.lines[REGS.line()] = sluice_flow::Line::ZERO;
        [METADATA, ACTSET_OUTPUT, CONJ_ID].into_iter().for_each(|span| wc.get_mut(span).fill(0));
        let is_icmp = match ethertype_of(self.flow) {
            ethertype::IPV4 => ip_proto_of(self.flow) == ip_proto::ICMP,
            ethertype::IPV6 => ip_proto_of(self.flow) == ip_proto::ICMPV6,
            _ => false,
        };
        if is_icmp {
            [TP_SRC, TP_DST].into_iter().for_each(|span| wc.set_number(span, wc.number(span) & 0xff));
        }
        for i in 0..tags::MAX_TAGS {
            if tags::tag(wc, i).tci != 0 {
                tags::look_at_tci(wc, i, tags::CFI);
            }
        }
        if self.flow.number(NW_FRAG) & 2 != 0 {
            [TP_SRC, TP_DST].into_iter().for_each(|span| wc.get_mut(span).fill(0));
        }
        if !is_mpls(self.original) {
            (0..tags::MAX_LABELS).for_each(|i| tags::set_label(wc, i, 0));
        }
        for i in 0..tags::MAX_TAGS {
            if !ethertype::is_vlan(tags::tag(self.original, i).tpid) {
                tags::set_tag(wc, i, tags::Tag::default());
            }
        }
        if !self.original.has_tunnel() {
            Tunnel::NONE.put(wc);
        } else if !wc.tun_metadata.is_none()
            && let Some(bridge) = self.state.bridge(self.ingress.0)
        {
            bridge.tunnel_options.complete(&mut wc.tun_metadata);
        }
        if self.original.bare_type().is_some() {
            [DL_SRC, DL_DST].into_iter().for_each(|span| wc.get_mut(span).fill(0));
        }
    }

    /// Writes the mask for the datapath. It always tells whether there are tags: actions of a translation without tags would
    /// do the wrong thing to a packet with one. The bits of the outer tag are those that OVS's datapath adds; that of
    /// the inner tag is added only here. Tags behind the limit are in no packet's key.
    fn put_datapath_mask(&mut self, mask: &mut PacketKey) {
        let wc = &mut *self.wc;
        if tags::tag(wc, 0).tci == 0 {
            tags::look_at_tci(wc, 0, tags::VID | tags::CFI);
        }
        if u64::from(tags::tag(self.original, 0).tci) & tags::CFI != 0 {
            tags::look_at_tci(wc, 1, tags::CFI);
        }
        tags::cut(wc, self.state.vlan_limit);
        wc.copy_packet_mask(mask);
        if let Some(options) = self.options_mask() {
            mask.put_options_mask(&options);
        }
    }
}
