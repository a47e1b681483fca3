//! The start and the end of a translation.

use super::protocol::{ethertype_of, ip_proto_of, is_mpls};
use super::tunnel::{ECN, ECN_CE};
use super::{ActionList, Failure, MAX_BYTES, Translator, tags};
use crate::bridge::SwitchState;
use crate::bridge_config::BridgeId;
use crate::ofproto::Shared;
use crate::port::{Attach, PortConfig};
use crate::recirc::{Frozen, FrozenActions};
use crate::trace::{TraceKind, Tracer};
use crate::tunnel::Tunnel;
use crate::xlate_cache::{Dependency, XcEntry};
use sluice_action::{Action, PortNo};
use sluice_fate::{DropReason, Limit};
use sluice_flow::geneve::OptionBytes;
use sluice_flow::{FlowKey, OfPort, PacketKey, tunnel_flags};
use sluice_flow::{ct_state, layout};
use sluice_ofp::OfAction;
use sluice_packet::headers::{ETHERNET_SIZE, ethertype, ip_proto};
use std::cell::Cell;
use std::sync::Arc;

/// Where a translation starts.
pub(crate) enum XlateStart<'a> {
    /// At the datapath port of a key from the datapath.
    Datapath(&'a PacketKey),
    /// In a bridge, with a key with an OpenFlow port.
    Bridge(BridgeId, &'a FlowKey),
    /// At a paused translation that a controller resumes, with a key with an OpenFlow port.
    Paused(&'a Frozen, &'a FlowKey),
}

/// What a translation starts from; `struct xlate_in` in Open vSwitch.
pub(crate) struct XlateIn<'a> {
    pub start: XlateStart<'a>,
    pub now_ms: u64,
    /// Whether a packet caused it, so that it has effects.
    pub side_effects: bool,
    /// The length of that packet.
    pub packet_len: Option<usize>,
    /// Actions to run instead of the tables.
    pub actions: Option<&'a [OfAction]>,
    /// Whether a controller sends the packet, with these actions.
    pub in_packet_out: bool,
    /// Whether the thread may wait for locks that control threads hold. A PMD may not.
    pub may_wait: bool,
}

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

/// Entries of the xlate cache of an ordinary translation: ports, one or two searches, their rules.
const XCACHE_ENTRIES: usize = 8;

/// What is said of a packet that came by the output port of a mirror.
pub(super) fn dropped_from_output(port: &PortConfig) -> String {
    format!("dropping packet received on port {}, which is reserved exclusively for mirroring", port.name)
}

/// The bridge that a translation begins in, and the OpenFlow port of a key that has one of the datapath.
fn first_bridge(state: &SwitchState, shared: &Shared, xin: &XlateIn<'_>) -> Option<(BridgeId, Option<OfPort>)> {
    let key = match xin.start {
        XlateStart::Datapath(key) => key,
        XlateStart::Bridge(bridge, _) => return Some((bridge, None)),
        XlateStart::Paused(frozen, _) => return Some((frozen.bridge, None)),
    };
    let (bridge, port) = match state.port_of(key) {
        Some(known) => known,
        // A controller's packet may have no input port; it is recirculated all the same.
        None => {
            let frozen = &shared.recirculations.thaw(key.recirc_id(), xin.now_ms)?.frozen;
            (frozen.bridge, frozen.in_port)
        }
    };
    Some((bridge, Some(port)))
}

/// The options of Geneve that a packet came with; out of line, since few come with any.
fn options_of(xin: &XlateIn<'_>) -> Option<Box<OptionBytes>> {
    let XlateStart::Datapath(key) = xin.start else { return None };
    let has_some = key.number(layout::TUN_FLAGS) & u64::from(tunnel_flags::OPTIONS) != 0;
    has_some.then(|| Box::new(key.options()))
}

impl<'a> Translator<'a> {
    /// Translates. `None` if no bridge has the port. `mask` becomes the megaflow's: it is the caller's, since a key of eight
    /// lines would be copied at each return.
    pub fn run(
        state: &'a SwitchState,
        shared: &'a Shared,
        xin: &XlateIn<'_>,
        mask: &mut PacketKey,
        tracer: Option<&'a mut Tracer>,
    ) -> Option<XlateOut> {
        let (bridge, in_port) = first_bridge(state, shared, xin)?;
        let bridge = state.bridge(bridge)?;
        let mut original = match xin.start {
            XlateStart::Datapath(key) => FlowKey::of_packet(key),
            XlateStart::Bridge(_, flow) | XlateStart::Paused(_, flow) => flow.clone(),
        };
        if let Some(port) = in_port {
            original.set_number(layout::IN_PORT, port.0.into());
        }
        original.set_number(layout::ACTSET_OUTPUT, OfPort::UNSET.0.into());
        let options = options_of(xin);
        let is_unfit = match options.as_deref().map(|list| bridge.tunnel_options.read(list)) {
            Some(Ok(fields)) => {
                original.tun_metadata = fields;
                false
            }
            read => read.is_some(),
        };
        let mut flow = original.clone();
        let mut base = original.clone();
        let mut wc = FlowKey::ZERO;
        // The datapath does not keep the tunnel metadata of a received packet.
        Tunnel::NONE.put(&mut base);
        let mut translator = Translator {
            state,
            shared,
            bridge,
            now_ms: xin.now_ms,
            ingress: (bridge.id, OfPort(original.number(layout::IN_PORT) as u16)),
            side_effects: xin.side_effects,
            packet_len: xin.packet_len,
            may_wait: xin.may_wait,
            is_busy: Cell::new(false),
            original: &mut original,
            flow: &mut flow,
            base: &mut base,
            options,
            wc: &mut wc,
            out: Vec::new(),
            out_bytes: 0,
            xcache: Vec::with_capacity(XCACHE_ENTRIES),
            stack: Vec::new(),
            action_set: Vec::new(),
            in_action_set: false,
            in_packet_out: xin.in_packet_out,
            depth: 0,
            resubmits: 0,
            steps: 0,
            nesting: 0,
            table: 0,
            rule: None,
            missed: false,
            cookie: u64::MAX,
            exit: false,
            freezing: false,
            frozen: FrozenActions::default(),
            hash: None,
            pause: None,
            in_bucket: false,
            tags_replaced: false,
            labels_popped: false,
            was_mpls: false,
            conntracked: false,
            sampling_bridge: None,
            outputs: super::sflow::Outputs::default(),
            mirrors: 0,
            mirror_snaplen: 0,
            ct_nat: None,
            failure: None,
            cacheable: true,
            is_slow: false,
            is_bfd: false,
            is_lacp: false,
            no_output: DropReason::Rules,
            tracer,
        };
        if is_unfit {
            translator.refuse_options();
        } else {
            translator.begin(xin);
        }
        Some(translator.finish(mask))
    }

    /// Drops a packet with an option of another length than the field's, or with one that is critical and has no field.
    /// Source: OVS ofproto/ofproto-dpif-xlate.c, `xlate_actions`.
    fn refuse_options(&mut self) {
        self.look_at_common_fields();
        self.no_output = DropReason::TunnelPop;
        self.error(|| "Invalid Geneve tunnel metadata".to_owned());
    }

    fn begin(&mut self, xin: &XlateIn<'_>) {
        self.look_at_common_fields();
        self.attribute(|_| "every translation".to_owned());
        let bridge = self.bridge;
        self.open(TraceKind::Bridge, || format!("bridge(\"{}\")", bridge.name()));
        let in_port = self.bridge.ports.get(&OfPort(self.number(layout::IN_PORT) as u16));
        let recirc_id = self.number(layout::RECIRC_ID) as u32;
        let thawed;
        let (frozen, is_paused) = match xin.start {
            XlateStart::Paused(frozen, _) => (Some(frozen), true),
            _ if recirc_id != 0 => {
                thawed = self.recirculation(recirc_id);
                let Some(recirculation) = &thawed else {
                    if self.is_busy.get() {
                        return;
                    }
                    self.error(|| format!("Recirculation context not found for ID {recirc_id:x}"));
                    return self.fail(Failure::NoRecirculation);
                };
                // A bond keeps its own, and what it sends does not depend on the bridge's ports.
                if recirculation.frozen.bond.is_none() {
                    self.xcache.push(XcEntry::Recirculation(Arc::clone(recirculation)));
                }
                (Some(&*recirculation.frozen), false)
            }
            _ => (None, false),
        };
        match frozen {
            Some(frozen) if !self.thaw(frozen) => return,
            Some(_) => {}
            None => self.conntracked = self.number(layout::CT_STATE) & u64::from(ct_state::TRACKED) != 0,
        }
        if let Some(bond) = frozen.and_then(|frozen| frozen.bond) {
            self.output_by_hash(bond);
            return self.tidy_mask();
        }
        // A translation that paused after its last action searches no table again.
        let left = frozen.map(|frozen| &frozen.actions).filter(|left| is_paused || !left.actions.is_empty());
        let list = match (left, xin.actions) {
            (Some(left), _) => Some(ActionList::frozen(left)),
            (None, Some(actions)) => Some(ActionList::of(actions)),
            (None, None) => None,
        };
        if frozen.is_none() {
            self.give_ethernet_header();
        }
        if list.is_none() {
            self.search_first_table();
        }
        let rule = self.rule;
        if frozen.is_none()
            && let Some(PortConfig { number, attach: Attach::Tunnel(_), .. }) = in_port
        {
            self.xcache.extend(bridge.vport_counts.get(number).cloned().map(XcEntry::VportRx));
        }
        if frozen.is_none()
            && let Some(port) = in_port
            && self.take_for_session(port)
        {
            return self.tidy_mask();
        }
        if let Some(port) = in_port
            && self.bridge.mirrors.has_output(port.number)
        {
            self.no_output = DropReason::PortNoReceive;
            return self.error(|| dropped_from_output(port));
        }
        // A packet that recirculates was sampled before.
        if frozen.is_none() {
            self.begin_sample();
        }
        if !self.take_congestion_mark() {
            self.no_output = DropReason::TunnelEcn;
            return;
        }
        if in_port.is_some_and(|port| port.no_receive || port.down) {
            self.no_output = DropReason::PortNoReceive;
            return;
        }
        self.mirror_received();
        if list.is_none() && self.missed {
            return self.report_miss();
        }
        if let (None, Some(rule)) = (&list, rule) {
            self.cookie = rule.cookie;
        }
        let of_rule = rule.map_or(&[][..], |rule| &rule.actions[..]);
        self.actions(list.unwrap_or(ActionList::of(of_rule)), true);
        if self.failure.is_some() {
            return;
        }
        self.end_of_pipeline();
        if self.bridge.has_in_band && !self.freezing {
            self.deliver_dhcp_reply();
        }
        // A trace shows the mask of a failure in the action set tidied, and that of a failure before it as it is.
        // Source: OVS ofproto/ofproto-dpif-xlate.c, `xlate_actions`.
        self.tidy_mask();
    }

    /// A packet that came without an Ethernet header gets one before rules see it, with zeros for addresses. Its bytes are
    /// counted without it. Source: OVS ofproto/ofproto-dpif-xlate.c, `xlate_actions`.
    fn give_ethernet_header(&mut self) {
        if self.flow.bare_type().is_some() {
            self.xcache.push(XcEntry::TunnelHeader(-(ETHERNET_SIZE as i16)));
            self.flow.set_bare_type(None);
        }
    }

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
    fn deliver_dhcp_reply(&mut self) {
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

    /// Adds the bits that every translation looks at.
    fn look_at_common_fields(&mut self) {
        for span in [layout::PACKET_TYPE, layout::IN_PORT, layout::DL_TYPE, layout::RECIRC_ID] {
            self.wc.get_mut(span).fill(0xff);
        }
        if self.is_ip() {
            self.wc.set_number(layout::NW_FRAG, 3);
        }
        if self.original.has_tunnel() {
            self.look_at_tunnel();
        }
    }

    /// Adds the fields of a tunnel, and those that its congestion mark changes.
    /// Source: OVS ofproto/tunnel.c, `tnl_wc_init`.
    fn look_at_tunnel(&mut self) {
        const DF_CSUM_KEY: u64 = 2 | 4 | 8;
        let is_ipv4 = self.original.number(layout::TUN_IPV4_DST) != 0;
        let (src, dst) = if is_ipv4 {
            (layout::TUN_IPV4_SRC, layout::TUN_IPV4_DST)
        } else {
            (layout::TUN_IPV6_SRC, layout::TUN_IPV6_DST)
        };
        let whole = [layout::TUN_ID, src, dst, layout::TUN_TOS, layout::TUN_PAYLOAD];
        whole.into_iter().for_each(|span| self.wc.get_mut(span).fill(0xff));
        self.wc.set_number(layout::TUN_FLAGS, DF_CSUM_KEY);
        if self.is_ip() && self.original.number(layout::TUN_TOS) & ECN == ECN_CE {
            self.look_at(layout::NW_TOS, ECN);
        }
    }

    fn finish(&mut self, mask: &mut PacketKey) -> XlateOut {
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
    fn tidy_mask(&mut self) {
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

    /// The datapath port of a port of this bridge.
    pub(super) fn datapath_port(&mut self, port: OfPort) -> Option<PortNo> {
        self.depend_on(Dependency::Port(port));
        self.bridge.ports.get(&port)?.datapath()
    }
}
