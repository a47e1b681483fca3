//! `NORMAL`: forwarding like a learning switch with VLANs.
//!
//! A packet's VLAN comes from its tag or from its input port. The packet goes to the port where the MAC table has its
//! destination in that VLAN, otherwise to all ports of the VLAN. The output port decides how it is tagged.

use super::start::dropped_from_output;
use super::{Translator, tags};
use crate::mac::{DEFAULT_AGE_S, LearnPacket, MacTable};
use crate::port::{PortConfig, PriorityTags, VlanMode};
use crate::xlate_cache::{Dependency, XcEntry};
use parking_lot::{RwLock, RwLockReadGuard};
use sluice_flow::layout::Span;
use sluice_flow::{FlowKey, Mac, OfPort, layout};
use sluice_packet::headers::ethertype;
use sluice_sync::try_in_passing;
use std::sync::LazyLock;
use tags::{CFI, PCP, Tag, VID};

/// What a void translation goes on with.
static NO_MACS: LazyLock<RwLock<MacTable>> = LazyLock::new(|| RwLock::new(MacTable::new(DEFAULT_AGE_S, 0)));

/// The VLAN tags of a packet, outer first; zeros mean no tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Vlans([Vlan; tags::MAX_TAGS]);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Vlan {
    tpid: u16,
    vid: u16,
    /// The priority, in its position in a TCI.
    pcp: u16,
}

impl Vlans {
    pub fn of(key: &FlowKey) -> Self {
        let mut out = Vlans::default();
        for (i, to) in out.0.iter_mut().enumerate() {
            let Tag { tpid, tci } = tags::tag(key, i);
            if !ethertype::is_vlan(tpid) || u64::from(tci) & CFI == 0 {
                break;
            }
            *to = Vlan { tpid, vid: tci & VID as u16, pcp: tci & PCP as u16 };
        }
        out
    }

    /// The VLAN id of the outer tag; 0 without one.
    pub fn outer_vid(self) -> u16 {
        self.0[0].vid
    }

    /// The same tags, but for the VLAN id of the outer one.
    pub fn with_outer_vid(mut self, vid: u16) -> Self {
        self.0[0].vid = vid;
        self
    }

    /// Whether a frame with these tags may leave by a port.
    pub fn are_carried_by(self, port: &VlanMode) -> bool {
        port.carries(self.0[0].vid, self.0[1].vid)
    }

    /// The tags inside the bridge, for a packet from a port.
    fn inside(mut self, port: &VlanMode) -> Self {
        let [outer, _] = self.0;
        let tpid = if outer.tpid == 0 { ethertype::VLAN } else { outer.tpid };
        match port {
            VlanMode::Trunk(_) => {}
            VlanMode::Access(vid) => self.0 = [Vlan { tpid, vid: *vid, pcp: outer.pcp }, Vlan::default()],
            VlanMode::NativeTagged { vlan, .. } | VlanMode::NativeUntagged { vlan, .. } => {
                if outer.vid == 0 {
                    self.0[0] = Vlan { tpid, vid: *vlan, pcp: outer.pcp };
                }
            }
            VlanMode::Dot1qTunnel { vlan, tpid, .. } => {
                self.0 = [Vlan { tpid: *tpid, vid: *vlan, pcp: 0 }, outer];
            }
        }
        self
    }

    /// The tags outside the bridge, for a packet to a port.
    fn outside(mut self, port: &VlanMode) -> Self {
        match port {
            VlanMode::Trunk(_) | VlanMode::NativeTagged { .. } => {}
            VlanMode::Access(_) => self = Vlans::default(),
            VlanMode::NativeUntagged { vlan, .. } => {
                if self.0[0].vid == *vlan {
                    self.0 = [self.0[1], Vlan::default()];
                }
            }
            VlanMode::Dot1qTunnel { .. } => self.0 = [self.0[1], Vlan::default()],
        }
        self
    }

    /// Writes the tags to a key. An outer tag without VLAN id and priority is left out. (OVS leaves out such an inner
    /// tag, too, and so loses a customer's tag of VLAN 0.)
    fn put(self, key: &mut FlowKey, priority_tags: PriorityTags) {
        let keep_all = priority_tags == PriorityTags::Always;
        for (i, vlan) in self.0.into_iter().enumerate() {
            let mut tag = Tag { tci: vlan.vid | vlan.pcp, ..tags::tag(key, i) };
            if tag.tci != 0 || (i > 0 || keep_all) && vlan.tpid != 0 {
                tag.tci |= CFI as u16;
                tag.tpid = if vlan.tpid == 0 { ethertype::VLAN } else { vlan.tpid };
            }
            tags::set_tag(key, i, tag);
        }
    }
}

impl Translator<'_> {
    pub(super) fn normal(&mut self) {
        [layout::DL_SRC, layout::DL_DST].into_iter().for_each(|span| self.wc.get_mut(span).fill(0xff));
        tags::look_at_tci(self.wc, 0, VID | CFI);
        let in_port = self.in_port();
        self.depend_on(Dependency::Port(in_port));
        let bridge = self.bridge;
        let port = bridge.ports.get(&in_port);
        let from_controller = matches!(in_port, OfPort::CONTROLLER | OfPort::NONE);
        if port.is_none() && !from_controller {
            self.error(|| format!("received packet on unknown port {}", in_port.0));
            return self.warn("no input bundle, dropping");
        }
        let received = Vlans::of(self.flow);
        let trunk = VlanMode::Trunk(None);
        let mode = port.map_or(&trunk, |p| &p.vlan);
        if self.is_cut_in_tag() {
            return self.warn("partial VLAN tag, dropping");
        }
        if let Some(port) = port
            && bridge.mirrors.has_output(port.number)
        {
            self.error(|| dropped_from_output(port));
            return self.warn("input port is mirror output port, dropping");
        }
        if let Some(port) = port
            && !self.is_vlan_admitted(port, received.0[0].vid)
        {
            return self.warn("disallowed VLAN VID for this input port, dropping");
        }
        let vlans = self.inside(received, mode);
        if port.is_some() && !self.bridge.config.normal.forward_bpdu && self.is_reserved_destination() {
            return self.detail("packet has reserved destination MAC, dropping");
        }
        // Gratuitous ARP matters only to bonds, but OVS looks for it always.
        let is_gratuitous = self.is_gratuitous_arp();
        if !self.is_admitted_by_bond(in_port, vlans.0[0].vid, is_gratuitous) {
            return;
        }
        // What came without an Ethernet header has no source address to learn.
        if !from_controller && !port.is_some_and(PortConfig::is_bare_tunnel) {
            let is_from_bond = bridge.bonds.of(in_port).is_some();
            let packet = LearnPacket { is_gratuitous, is_from_bond };
            self.learn_mac(bridge.bonds.lead(in_port), vlans.0[0].vid, packet);
        }
        self.forward(in_port, vlans);
    }

    /// The tags inside the bridge of a packet from a port.
    pub(super) fn inside(&mut self, received: Vlans, mode: &VlanMode) -> Vlans {
        // An access port's VLAN replaces all tags.
        self.tags_replaced |= matches!(mode, VlanMode::Access(_)) && tags::tag_count(self.base) > 1;
        received.inside(mode)
    }

    fn is_cut_in_tag(&self) -> bool {
        ethertype::is_vlan(self.ethertype()) && u64::from(tags::tag(self.flow, 0).tci) & CFI == 0
    }

    pub(super) fn is_vlan_admitted(&mut self, port: &PortConfig, vid: u16) -> bool {
        let admitted = port.vlan.admits(vid);
        if !admitted {
            let name = &port.name;
            self.error(|| match &port.vlan {
                VlanMode::Access(own) => format!(
                    "dropping VLAN {vid} tagged packet received on port {name} configured as VLAN {own} access port"
                ),
                VlanMode::Dot1qTunnel { .. } => {
                    format!("dropping VLAN {vid} packet received on dot1q-tunnel port {name} that excludes this VLAN")
                }
                _ => {
                    format!("dropping VLAN {vid} packet received on port {name} not configured for trunking VLAN {vid}")
                }
            });
        }
        admitted
    }

    /// Whether the destination is reserved for protocols between bridges.
    pub(super) fn is_reserved_destination(&self) -> bool {
        // Protocols of Extreme and Cisco. Cisco's CFM has eight addresses, tested below.
        const PROTOCOLS: [u64; 7] = [
            0x00e0_2b00_0000,
            0x00e0_2b00_0004,
            0x00e0_2b00_0006,
            0x0100_0c00_0000,
            0x0100_0ccc_cccc,
            0x0100_0ccc_cccd,
            0x0100_0ccd_cdcd,
        ];
        let dst = self.number(layout::DL_DST);
        let is_ieee = dst & !0xf == 0x0180_c200_0000;
        is_ieee || dst & !0x7 == 0x0100_0ccc_ccc0 || PROTOCOLS.contains(&dst)
    }

    fn is_gratuitous_arp(&mut self) -> bool {
        const REQUEST: u64 = 1;
        const REPLY: u64 = 2;
        if self.ethertype() != ethertype::ARP || self.number(layout::DL_DST) != 0xffff_ffff_ffff {
            return false;
        }
        self.look_at(layout::NW_PROTO, 0xff);
        if self.number(layout::NW_PROTO) != REQUEST {
            return self.number(layout::NW_PROTO) == REPLY;
        }
        [layout::NW_SRC, layout::NW_DST].into_iter().for_each(|span| self.wc.get_mut(span).fill(0xff));
        self.number(layout::NW_SRC) == self.number(layout::NW_DST)
    }

    pub(super) fn mac(&self, span: Span) -> Mac {
        Mac(self.flow.get(span).try_into().expect("invariant: an Ethernet address has six bytes"))
    }

    fn learn_mac(&mut self, port: OfPort, vlan: u16, packet: LearnPacket) {
        let mac = self.mac(layout::DL_SRC);
        let bridge = self.bridge;
        let is_new = self.side_effects && self.tracer.is_some() && self.macs().may_learn(vlan, mac) && {
            let is_static = self.macs().is_static(vlan, mac) == Some(true);
            !is_static && self.lookup_mac(vlan, mac) != Some(port)
        };
        self.xcache.push(XcEntry::MacLearn { bridge: bridge.id, vlan, mac, port, packet });
        if let (true, Some(config)) = (is_new, bridge.ports.get(&port)) {
            self.detail(&format!("learned that {} is on port {} in VLAN {vlan}", mac, config.name));
        }
    }

    /// The MAC table. If it is locked and this thread may not wait: an empty one, for a translation that is void.
    pub(super) fn macs(&self) -> RwLockReadGuard<'_, MacTable> {
        if self.may_wait {
            return self.bridge.macs.read();
        }
        try_in_passing(|| self.bridge.macs.try_read()).unwrap_or_else(|| {
            self.is_busy.set(true);
            NO_MACS.read()
        })
    }

    /// The port of an address. What this packet itself has taught is not in the MAC table yet, so its entries come
    /// first.
    pub(super) fn lookup_mac(&self, vlan: u16, mac: Mac) -> Option<OfPort> {
        let macs = self.macs();
        let own = |entry: &XcEntry| match entry {
            XcEntry::MacLearn { bridge, vlan: v, mac: m, port, .. }
                if (*bridge, *v, *m) == (self.bridge.id, vlan, mac) =>
            {
                Some(*port)
            }
            _ => None,
        };
        let is_learning = self.side_effects && macs.may_learn(vlan, mac) && macs.is_static(vlan, mac) != Some(true);
        let own = if is_learning { self.xcache.iter().rev().find_map(own) } else { None };
        own.or_else(|| macs.lookup(vlan, mac))
    }

    fn forward(&mut self, in_port: OfPort, vlans: Vlans) {
        let bridge = self.bridge;
        let dst = self.mac(layout::DL_DST);
        self.xcache.push(XcEntry::MacLookup { bridge: bridge.id, vlan: vlans.0[0].vid, mac: dst });
        match self.lookup_mac(vlans.0[0].vid, dst) {
            Some(port) if bridge.mirrors.has_output(port) => {
                self.depend_on(Dependency::Port(port));
                self.warn("learned port is a mirror port, dropping");
            }
            Some(port) if bridge.bonds.lead(port) == bridge.bonds.lead(in_port) => {
                self.detail("learned port is input port, dropping")
            }
            Some(port) => match bridge.ports.get(&port) {
                // `output_to` records the dependency on the port.
                Some(config) => {
                    self.detail("forwarding to learned port");
                    self.output_with(config, vlans);
                }
                None => {
                    self.depend_on(Dependency::Port(port));
                    self.warn("learned port is unknown, dropping");
                }
            },
            None => {
                self.detail("no learned MAC for destination, flooding");
                self.depend_on(Dependency::AllPorts);
                for port in &bridge.port_order {
                    let Some(config) = bridge.ports.get(port) else { continue };
                    if config.vlan == VlanMode::Access(vlans.0[0].vid) {
                        // Frames with a second VLAN do not leave here. OVS 3.1 does not match that.
                        tags::look_at_tci(self.wc, 1, VID);
                    }
                    // A bond gets one copy, for which its lead stands.
                    let is_other = bridge.bonds.lead(*port) == *port && bridge.bonds.lead(in_port) != *port;
                    let is_floodable = is_other && !config.no_flood && !bridge.mirrors.has_output(*port);
                    if is_floodable && vlans.are_carried_by(&config.vlan) {
                        self.output_with(config, vlans);
                    }
                }
            }
        }
    }

    /// Outputs to a port with its tags.
    pub(super) fn output_with(&mut self, port: &PortConfig, vlans: Vlans) {
        let before = [0, 1].map(|i| tags::tag(self.flow, i));
        if let VlanMode::Dot1qTunnel { cvlans: Some(_), .. } = port.vlan {
            tags::look_at_tci(self.wc, 1, 0xffff);
        }
        let mut outside = vlans.outside(&port.vlan);
        if port.priority_tags != PriorityTags::Never {
            outside.0[0].pcp = tags::tag(self.flow, 0).tci & PCP as u16;
        }
        if outside.0[0].vid == 0 && tags::tag_count(self.flow) > 0 {
            // Without a VLAN id, the priority decides whether there is a tag. OVS 3.1 does not match it. The outer tag
            // may have been the inner one before.
            tags::look_at_tci(self.wc, 0, PCP);
            tags::look_at_tci(self.wc, 1, VID | PCP);
        }
        outside.put(self.flow, port.priority_tags);
        match self.bridge.bonds.of(port.number) {
            Some(bond) => self.output_to_bond(port, bond, outside.outer_vid()),
            None => self.output_to(port.number, false, false),
        }
        before.into_iter().enumerate().for_each(|(i, tag)| tags::set_tag(self.flow, i, tag));
    }
}
