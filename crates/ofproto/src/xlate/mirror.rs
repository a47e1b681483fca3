//! Mirrors: copies of what ports receive and send. Source: OVS ofproto/ofproto-dpif-xlate.c, `mirror_packet`.

use super::normal::Vlans;
use super::{Failure, MAX_NESTING, Translator, tags};
use crate::mirror::{Mirror, MirrorMask, MirrorTarget};
use crate::port::PortConfig;
use crate::xlate_cache::{Dependency, XcEntry};
use sluice_action::Action;
use std::sync::Arc;
use tags::{CFI, VID};

/// A copy longer than any packet is not cut.
const SNAPLEN_WHOLE: u16 = u16::MAX;

impl Translator<'_> {
    /// Copies the packet for the mirrors of what its input port receives.
    pub(super) fn mirror_received(&mut self) {
        if self.bridge.mirrors.is_idle() {
            return;
        }
        let bridge = self.bridge;
        if let Some(port) = bridge.ports.get(&self.in_port()) {
            self.mirror(port, bridge.mirrors.of_port(port.number).sources);
        }
    }

    /// Copies the packet for the mirrors of what a port sends.
    pub(super) fn mirror_sent(&mut self, port: &PortConfig) {
        if !self.bridge.mirrors.is_idle() {
            self.mirror(port, self.bridge.mirrors.of_port(port.number).destinations);
        }
    }

    /// Copies the packet of a port for those of the mirrors that have none of it yet.
    fn mirror(&mut self, port: &PortConfig, mirrors: MirrorMask) {
        let mut left = mirrors & !self.mirrors;
        if left == 0 {
            return;
        }
        let received = Vlans::of(self.flow);
        if !self.is_vlan_admitted(port, received.outer_vid()) {
            return;
        }
        let vlans = self.inside(received, &port.vlan);
        let bridge = self.bridge;
        while left != 0 && self.failure.is_none() {
            let bit = left.trailing_zeros();
            left &= left - 1;
            let Some(mirror) = bridge.mirrors.get(bit) else { continue };
            if !mirror.config.vlans.is_empty() {
                tags::look_at_tci(self.wc, 0, VID | CFI);
            }
            if mirror.selects(vlans.outer_vid()) {
                self.mirrors |= mirror.duplicates;
                self.copy_for(mirror, vlans);
                // The copy itself may have been mirrored.
                left &= !self.mirrors;
            }
        }
    }

    /// Sends a copy where a mirror wants it.
    fn copy_for(&mut self, mirror: &Mirror, vlans: Vlans) {
        // Copies of copies nest as lists of actions do.
        if self.nesting >= MAX_NESTING {
            return self.fail(Failure::TooDeep);
        }
        self.nesting += 1;
        self.xcache.push(XcEntry::Mirror(Arc::clone(&mirror.counts)));
        let before = std::mem::replace(&mut self.mirror_snaplen, mirror.config.snaplen);
        match mirror.target {
            Some(MirrorTarget::Port(number)) => {
                if let Some(port) = self.bridge.ports.get(&number) {
                    self.output_with(port, vlans);
                }
            }
            Some(MirrorTarget::Vlan(vid)) => self.copy_to_vlan(vid, vlans),
            None => {}
        }
        self.mirror_snaplen = before;
        self.nesting -= 1;
    }

    /// Sends a copy to all ports of a VLAN, unless the packet came from it or is for bridges.
    fn copy_to_vlan(&mut self, vid: u16, vlans: Vlans) {
        if vlans.outer_vid() == vid || self.is_reserved_destination() {
            return;
        }
        self.depend_on(Dependency::AllPorts);
        let vlans = vlans.with_outer_vid(vid);
        let bridge = self.bridge;
        if !self.charge(bridge.ports.len()) {
            return;
        }
        for port in bridge.port_order.iter().filter_map(|number| bridge.ports.get(number)) {
            if vlans.are_carried_by(&port.vlan) && !bridge.mirrors.has_output(port.number) {
                self.output_with(port, vlans);
            }
        }
    }

    /// Whether a copy may leave by a port: one that is to be cut may not leave by a patch port.
    pub(super) fn admits_copy(&mut self, port: &PortConfig) -> bool {
        let is_admitted = self.mirror_snaplen == 0 || port.datapath().is_some();
        if !is_admitted {
            self.warn("Mirror truncate to ODPP_NONE, skipping output");
        }
        is_admitted
    }

    /// Cuts the copy that is sent next.
    pub(super) fn cut_copy(&mut self) {
        if (1..SNAPLEN_WHOLE).contains(&self.mirror_snaplen) {
            self.require_truncation();
            self.emit(Action::Trunc(self.mirror_snaplen.into()));
        }
    }
}
