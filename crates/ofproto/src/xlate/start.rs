//! The start of a translation, up to the first rule's actions.

use super::finish::XlateOut;
use super::tunnel::{ECN, ECN_CE};
use super::{ActionList, Failure, Translator};
use crate::bridge::SwitchState;
use crate::bridge_config::BridgeId;
use crate::ofproto::Shared;
use crate::port::{Attach, PortConfig};
use crate::recirc::{Frozen, FrozenActions, Recirculation};
use crate::trace::{TraceKind, Tracer};
use crate::tunnel::Tunnel;
use crate::xlate_cache::{Dependency, XcEntry};
use sluice_action::PortNo;
use sluice_fate::DropReason;
use sluice_flow::geneve::OptionBytes;
use sluice_flow::{FlowKey, OfPort, PacketKey, tunnel_flags};
use sluice_flow::{ct_state, layout};
use sluice_ofp::OfAction;
use sluice_packet::headers::ETHERNET_SIZE;
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

/// A pass of a packet through the tables.
enum Pass<'x> {
    First,
    /// After recirculation, with the state that the pass before froze.
    Recirculated(Arc<Recirculation>),
    /// After a controller resumed it.
    Resumed(&'x Frozen),
}

impl Pass<'_> {
    /// The state that the pass before froze.
    fn frozen(&self) -> Option<&Frozen> {
        match self {
            Pass::First => None,
            Pass::Recirculated(recirculation) => Some(&recirculation.frozen),
            Pass::Resumed(frozen) => Some(frozen),
        }
    }

    /// The actions that it left. A translation that was paused after its last action searches no table again.
    fn actions(&self) -> Option<&FrozenActions> {
        let left = &self.frozen()?.actions;
        (matches!(self, Pass::Resumed(_)) || !left.actions.is_empty()).then_some(left)
    }
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

    /// Runs the actions of the first rule, or those that a pass before left.
    fn begin(&mut self, xin: &XlateIn<'_>) {
        self.look_at_common_fields();
        self.attribute(|_| "every translation".to_owned());
        let bridge = self.bridge;
        self.open(TraceKind::Bridge, || format!("bridge(\"{}\")", bridge.name()));
        let in_port = self.bridge.ports.get(&OfPort(self.number(layout::IN_PORT) as u16));
        let Some(pass) = self.pass_of(xin) else { return };
        let frozen = pass.frozen();
        match frozen {
            Some(frozen) if !self.thaw(frozen) => return,
            Some(_) => {}
            None => self.conntracked = self.number(layout::CT_STATE) & u64::from(ct_state::TRACKED) != 0,
        }
        if let Some(bond) = frozen.and_then(|frozen| frozen.bond) {
            self.output_by_hash(bond);
            return self.tidy_mask();
        }
        let list = match (pass.actions(), xin.actions) {
            (Some(left), _) => Some(ActionList::frozen(left)),
            (None, Some(actions)) => Some(ActionList::of(actions)),
            (None, None) => None,
        };
        let is_first = frozen.is_none();
        if is_first {
            self.give_ethernet_header();
        }
        if list.is_none() {
            self.search_first_table();
        }
        let rule = self.rule;
        if !self.is_admitted(in_port, is_first) {
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

    /// Which pass of its packet this is. `None` if the state of the pass before is gone or locked.
    fn pass_of<'x>(&mut self, xin: &XlateIn<'x>) -> Option<Pass<'x>> {
        if let XlateStart::Paused(frozen, _) = xin.start {
            return Some(Pass::Resumed(frozen));
        }
        let recirc_id = self.number(layout::RECIRC_ID) as u32;
        if recirc_id == 0 {
            return Some(Pass::First);
        }
        let Some(recirculation) = self.recirculation(recirc_id) else {
            if !self.is_busy.get() {
                self.error(|| format!("Recirculation context not found for ID {recirc_id:x}"));
                self.fail(Failure::NoRecirculation);
            }
            return None;
        };
        // A bond keeps its own, and what it sends does not depend on the bridge's ports.
        if recirculation.frozen.bond.is_none() {
            self.xcache.push(XcEntry::Recirculation(Arc::clone(&recirculation)));
        }
        Some(Pass::Recirculated(recirculation))
    }

    /// Whether the port that the packet came by lets its rules' actions run: it may belong to a session, be a mirror's, or
    /// be down. Counts and samples the packet in its first pass.
    fn is_admitted(&mut self, in_port: Option<&PortConfig>, is_first: bool) -> bool {
        if is_first && let Some(port) = in_port {
            if let Attach::Tunnel(_) = port.attach {
                self.xcache.extend(self.bridge.vport_counts.get(&port.number).cloned().map(XcEntry::VportRx));
            }
            if self.take_for_session(port) {
                self.tidy_mask();
                return false;
            }
        }
        if let Some(port) = in_port
            && self.bridge.mirrors.has_output(port.number)
        {
            self.no_output = DropReason::PortNoReceive;
            self.error(|| dropped_from_output(port));
            return false;
        }
        if is_first {
            self.begin_sample();
        }
        if !self.take_congestion_mark() {
            self.no_output = DropReason::TunnelEcn;
            return false;
        }
        if in_port.is_some_and(|port| port.no_receive || port.down) {
            self.no_output = DropReason::PortNoReceive;
            return false;
        }
        true
    }

    /// A packet that came without an Ethernet header gets one before rules see it, with zeros for addresses. Its bytes are
    /// counted without it. Source: OVS ofproto/ofproto-dpif-xlate.c, `xlate_actions`.
    fn give_ethernet_header(&mut self) {
        if self.flow.bare_type().is_some() {
            self.xcache.push(XcEntry::TunnelHeader(-(ETHERNET_SIZE as i16)));
            self.flow.set_bare_type(None);
        }
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

    /// The datapath port of a port of this bridge.
    pub(super) fn datapath_port(&mut self, port: OfPort) -> Option<PortNo> {
        self.depend_on(Dependency::Port(port));
        self.bridge.ports.get(&port)?.datapath()
    }
}
