//! Seldom used actions, and seldom used names of others.

use super::{Version, Writer};
use crate::values::{ipv4_text, ipv6_text};

impl Writer<'_> {
    pub(super) fn seldom(&mut self) {
        match self.rng.below(6) {
            0 => self.portless(),
            1 => self.push("ct_clear".to_owned()),
            2 => self.tunnel(),
            3 => self.moved_out(),
            4 if self.has_vlan == Some(true) => {
                let (vid, pcp) = (self.values.vid(self.rng), self.rng.below(8));
                let action = match self.rng.below(3) {
                    0 => format!("set_vlan_vid:{vid}"),
                    1 => format!("set_vlan_pcp:{pcp}"),
                    _ => format!("set_field:{pcp}->vlan_pcp"),
                };
                self.push(action);
            }
            _ => self.parts(),
        }
    }

    /// A search, or an output, as if the packet had come in by no port.
    fn portless(&mut self) {
        let later = self.later_tables();
        match self.rng.below(3) {
            0 if !later.is_empty() => {
                let (port, table) = (*self.rng.pick(&["NONE", "CONTROLLER"]), *self.rng.pick(&later));
                self.push(format!("resubmit({port},{table})"));
            }
            _ => {
                self.push("load:0xffff->NXM_OF_IN_PORT[]".to_owned());
                self.output();
            }
        }
    }

    /// The tunnel that an output would go through; no port here is one.
    fn tunnel(&mut self) {
        let (v4, v6) = (self.values.ipv4(self.rng), self.values.ipv6(self.rng));
        let action = match self.rng.below(5) {
            0 => format!("set_field:{}->tun_src", ipv4_text(v4)),
            1 => format!("load:{v4:#x}->NXM_NX_TUN_IPV4_DST[]"),
            2 => format!("set_field:{}->tun_ipv6_dst", ipv6_text(v6)),
            3 => "set_field:5->tun_gbp_id".to_owned(),
            _ => "move:NXM_NX_TUN_IPV4_DST[]->NXM_NX_REG2[]".to_owned(),
        };
        self.push(action);
    }

    /// Fields that can be read and not written.
    fn moved_out(&mut self) {
        let mut choices = vec!["NXM_NX_DP_HASH[0..7]", "NXM_NX_CT_MARK[8..15]", "NXM_NX_CT_STATE[0..7]"];
        match self.protocol {
            p if p.is_mpls() => choices.push("OXM_OF_MPLS_LABEL[0..7]"),
            p if p.ports() == Some("tcp") => choices.push("NXM_NX_TCP_FLAGS[0..7]"),
            p if p.is_ipv4() || p.is_ipv6() => choices.extend(["NXM_NX_IP_TTL[0..7]", "NXM_OF_IP_PROTO[0..7]"]),
            p if p.is_arp() => choices.push("NXM_OF_ARP_OP[0..7]"),
            _ => {}
        }
        if self.place.version != Version::Of10 {
            choices.push("OXM_OF_ACTSET_OUTPUT[0..7]");
        }
        let from = *self.rng.pick(&choices);
        let to = self.rng.below(3);
        self.push(format!("move:{from}->NXM_NX_REG{to}[0..7]"));
    }

    /// Parts of headers by the names that later versions of the protocol have for them.
    fn parts(&mut self) {
        let (small, address) = (self.rng.below(4), self.values.ipv4(self.rng));
        let action = match self.protocol {
            p if p.is_ipv4() || p.is_ipv6() => match self.rng.below(2) {
                0 => format!("set_field:{small}->nw_ecn"),
                _ => format!("set_field:{}->nw_ttl", 1 + small),
            },
            p if p.is_mpls() => match self.rng.below(2) {
                0 => format!("set_field:{small}->mpls_tc"),
                _ => format!("set_field:{}->mpls_ttl", 1 + small),
            },
            p if p.is_arp() => match self.rng.below(2) {
                0 => format!("set_field:{}->arp_op", 1 + small),
                _ => format!("set_field:{}->arp_tpa", ipv4_text(address)),
            },
            _ => return self.register(),
        };
        self.push(action);
    }
}
