//! Packets that the switch takes for itself, whatever the rules say: those of BFD sessions and of LACP. Source: Open vSwitch
//! ofproto/ofproto-dpif-xlate.c, `process_special`; lib/bfd.c, `bfd_should_process_flow`.

use super::Translator;
use super::protocol::{ethertype_of, ip_proto_of};
use crate::port::PortConfig;
use crate::xlate_cache::Dependency;
use sluice_action::Action;
use sluice_bfd::{Config, DEFAULT_SRC_IP, UDP_PORT};
use sluice_flow::layout;
use sluice_packet::headers::{ethertype, ip_proto};

/// Of the fragment bits, the one of later fragments.
const LATER: u64 = 2;

impl Translator<'_> {
    /// Hands a packet of a protocol that the port speaks with its neighbour to that session; then nothing else happens to it.
    pub(super) fn take_for_session(&mut self, port: &PortConfig) -> bool {
        self.take_for_bfd(port) || self.take_for_lacp(port)
    }

    fn take_for_lacp(&mut self, port: &PortConfig) -> bool {
        if !port.lacp {
            return false;
        }
        self.depend_on(Dependency::Port(port.number));
        if ethertype_of(self.flow) != sluice_lacp::ETHERTYPE {
            return false;
        }
        self.commit();
        self.emit(Action::Lacp { bridge: self.bridge.id.0, port: port.number.0 });
        self.is_lacp = true;
        true
    }

    fn take_for_bfd(&mut self, port: &PortConfig) -> bool {
        let Some(config) = &port.bfd else { return false };
        self.depend_on(Dependency::Port(port.number));
        if !self.is_of_session(config) {
            return false;
        }
        self.commit();
        self.emit(Action::Bfd { bridge: self.bridge.id.0, port: port.number.0 });
        self.is_bfd = true;
        true
    }

    /// Looks at fields in Open vSwitch's order.
    fn is_of_session(&mut self, config: &Config) -> bool {
        if let Some(mac) = config.remote_dst_mac {
            self.wc.get_mut(layout::DL_DST).fill(0xff);
            if self.flow.get(layout::DL_DST) != mac {
                return false;
            }
        }
        if ethertype_of(self.flow) != ethertype::IPV4 {
            return false;
        }
        self.wc.get_mut(layout::NW_PROTO).fill(0xff);
        if ip_proto_of(self.flow) != ip_proto::UDP || self.number(layout::NW_FRAG) & LATER != 0 {
            return false;
        }
        self.wc.get_mut(layout::TP_DST).fill(0xff);
        if self.number(layout::TP_DST) != u64::from(UDP_PORT) {
            return false;
        }
        let is_to_us = self.number(layout::NW_DST) == u64::from(config.src_ip.to_bits());
        let decides = config.src_ip != DEFAULT_SRC_IP;
        // A packet to another address, too, must not share its megaflow with the session's. Open vSwitch's may.
        if is_to_us || decides {
            self.wc.get_mut(layout::NW_DST).fill(0xff);
        }
        if !is_to_us && decides {
            return false;
        }
        if !config.check_tnl_key {
            return true;
        }
        self.wc.get_mut(layout::TUN_ID).fill(0xff);
        self.number(layout::TUN_ID) == 0
    }
}
