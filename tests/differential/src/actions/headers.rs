//! Actions on the headers of a packet.

use super::{Version, Writer};
use crate::matches::Protocol;
use crate::values::{ipv4_text, ipv6_text, mac_text};

impl Writer<'_> {
    pub(super) fn ethernet(&mut self) {
        let mac = self.values.mac(self.rng);
        let side = *self.rng.pick(&["src", "dst"]);
        let masked = self.masks_survive();
        let action = match self.rng.below(5) {
            0 => format!("mod_dl_{side}:{}", mac_text(mac)),
            1 => format!("set_field:{}->eth_{side}", mac_text(mac)),
            2 if masked => format!("set_field:{}/ff:ff:00:00:00:00->eth_{side}", mac_text(mac & 0xffff_0000_0000)),
            3 => format!("load:{mac:#x}->NXM_OF_ETH_{}[]", side.to_uppercase()),
            _ => format!("load:{:#x}->NXM_OF_ETH_{}[8..15]", mac & 0xff, side.to_uppercase()),
        };
        self.push(action);
    }

    pub(super) fn vlan(&mut self) {
        let (vid, pcp) = (self.values.vid(self.rng), self.rng.below(8));
        // With OpenFlow 1.3, OVS puts a push_vlan before mod_vlan_* unless the rule demands a tag; and in 1.0 there is
        // neither push_vlan nor the field vlan_vid.
        let old = self.place.version == Version::Of10;
        match self.rng.below(6) {
            0 | 1 if !old && self.has_vlan != Some(true) => self.register(),
            2 if !old && self.has_vlan != Some(true) => self.register(),
            3 if old => self.push(format!("load:{:#x}->NXM_OF_VLAN_TCI[]", 0x1000 | vid)),
            0 => {
                self.has_vlan = Some(true);
                self.push(format!("mod_vlan_vid:{vid}"));
            }
            1 => {
                self.has_vlan = Some(true);
                self.push(format!("mod_vlan_pcp:{pcp}"));
            }
            2 => {
                self.has_vlan = None;
                self.push("strip_vlan".into());
            }
            3 => {
                // OVS refuses a third tag where it can tell.
                if self.tags == 2 {
                    return self.register();
                }
                self.tags += 1;
                let tpid = *self.rng.pick(&["0x8100", "0x88a8"]);
                self.has_vlan = Some(true);
                self.push(format!("push_vlan:{tpid}"));
                self.push(format!("set_field:{}->vlan_vid", 0x1000 | vid));
            }
            4 if self.has_vlan == Some(true) && !old => self.push(format!("set_field:{}->vlan_vid", 0x1000 | vid)),
            4 => self.push(format!("load:{:#x}->NXM_OF_VLAN_TCI[]", 0x1000 | vid)),
            _ if self.has_vlan == Some(true) && !old => {
                self.has_vlan = None;
                self.push("pop_vlan".into());
            }
            _ => {
                self.has_vlan = None;
                self.push("load:0->NXM_OF_VLAN_TCI[]".into());
            }
        }
    }

    pub(super) fn r#move(&mut self) {
        let reg = self.rng.below(3);
        let mut choices = vec![
            "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]".to_owned(),
            "move:NXM_OF_ETH_DST[0..15]->NXM_OF_ETH_SRC[16..31]".to_owned(),
            format!("move:NXM_OF_IN_PORT[]->NXM_NX_REG{reg}[0..15]"),
            format!("move:NXM_NX_REG{reg}[]->NXM_NX_REG{}[]", (reg + 1) % 3),
            format!("move:NXM_OF_VLAN_TCI[0..11]->NXM_NX_REG{reg}[4..15]"),
        ];
        match self.protocol {
            p if p.is_ipv4() => choices.extend([
                format!("move:NXM_OF_IP_SRC[]->NXM_NX_REG{reg}[]"),
                "move:NXM_OF_IP_SRC[0..7]->NXM_OF_IP_DST[8..15]".to_owned(),
                format!("move:NXM_NX_REG{reg}[]->NXM_OF_IP_DST[]"),
            ]),
            p if p.is_ipv6() => choices.extend([
                format!("move:NXM_NX_IPV6_SRC[32..63]->NXM_NX_REG{reg}[]"),
                "move:NXM_NX_IPV6_DST[]->NXM_NX_IPV6_SRC[]".to_owned(),
            ]),
            p if p.is_arp() => choices.extend([
                "move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[]".to_owned(),
                "move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[]".to_owned(),
            ]),
            _ => {}
        }
        let action = self.rng.pick(&choices).clone();
        self.push(action);
    }

    pub(super) fn network(&mut self) {
        let side = *self.rng.pick(&["src", "dst"]);
        let masked = self.masks_survive();
        let action = if self.protocol.is_ipv4() {
            let address = self.values.ipv4(self.rng);
            match self.rng.below(9) {
                0 => format!("mod_nw_{side}:{}", ipv4_text(address)),
                1 => format!("set_field:{}->ip_{side}", ipv4_text(address)),
                2 if masked => format!("set_field:{}/255.255.0.0->ip_{side}", ipv4_text(address & 0xffff_0000)),
                3 => format!("load:{address:#x}->NXM_OF_IP_{}[]", side.to_uppercase()),
                4 => format!("mod_nw_tos:{}", self.rng.below(64) << 2),
                5 => format!("mod_nw_ecn:{}", self.rng.below(4)),
                6 => format!("mod_nw_ttl:{}", 1 + self.rng.below(255)),
                7 if masked => format!("set_field:{}->ip_dscp", self.rng.below(64)),
                _ => "dec_ttl".into(),
            }
        } else if self.protocol.is_ipv6() {
            let address = self.values.ipv6(self.rng);
            match self.rng.below(6) {
                0 => format!("set_field:{}->ipv6_{side}", ipv6_text(address)),
                1 if masked => format!("set_field:{}/ffff:ffff::->ipv6_{side}", ipv6_text(address >> 96 << 96)),
                2 => format!("load:{:#x}->NXM_NX_IPV6_{}[0..63]", address as u64, side.to_uppercase()),
                3 if self.place.version != Version::Of10 => {
                    format!("set_field:{}->ipv6_label", self.rng.pick(&self.values.labels))
                }
                4 => format!("mod_nw_ttl:{}", 1 + self.rng.below(255)),
                _ => "dec_ttl".into(),
            }
        } else if self.protocol.is_arp() {
            let (mac, address) = (self.values.mac(self.rng), self.values.ipv4(self.rng));
            match self.rng.below(5) {
                0 => "load:0x2->NXM_OF_ARP_OP[]".into(),
                4 => format!("set_field:{}->arp_tha", mac_text(mac)),
                1 => format!("set_field:{}->arp_sha", mac_text(mac)),
                2 => format!("set_field:{}->arp_spa", ipv4_text(address)),
                _ => format!("load:{address:#x}->NXM_OF_ARP_TPA[]"),
            }
        } else if self.protocol.is_mpls() {
            return self.label();
        } else if self.place.version != Version::Of10 {
            return self.register();
        } else {
            // Nothing is known of the packet: these do nothing where they do not fit.
            match self.rng.below(4) {
                0 => format!("mod_nw_{side}:{}", ipv4_text(self.values.ipv4(self.rng))),
                1 => format!("mod_tp_{side}:{}", self.values.l4_port(self.rng)),
                2 => format!("mod_nw_tos:{}", self.rng.below(64) << 2),
                _ => format!("mod_dl_{side}:{}", mac_text(self.values.mac(self.rng))),
            }
        };
        self.push(action);
    }

    pub(super) fn transport(&mut self) {
        let side = *self.rng.pick(&["src", "dst"]);
        let port = self.values.l4_port(self.rng);
        if let Some(prefix) = self.protocol.ports() {
            let action = match self.rng.below(4) {
                0 if prefix != "sctp" => format!("mod_tp_{side}:{port}"),
                1 if prefix != "sctp" => {
                    format!("load:{port:#x}->NXM_OF_{}_{}[]", prefix.to_uppercase(), side.to_uppercase())
                }
                2 if self.masks_survive() => format!("set_field:{}/0xff00->{prefix}_{side}", port & 0xff00),
                _ => format!("set_field:{port}->{prefix}_{side}"),
            };
            return self.push(action);
        }
        let new = self.place.version != Version::Of10;
        match self.protocol {
            Protocol::Icmp if new => {
                let kind = self.rng.below(20);
                self.push(format!("set_field:{kind}->icmp_type"));
            }
            Protocol::Icmp6 if new => {
                let code = self.rng.below(4);
                self.push(format!("set_field:{code}->icmpv6_code"));
            }
            Protocol::Nd(kind) if new => {
                let (mac, address) = (self.values.mac(self.rng), self.values.ipv6(self.rng));
                let link = if kind == 135 { "nd_sll" } else { "nd_tll" };
                self.push(format!("set_field:{}->nd_target", ipv6_text(address)));
                self.push(format!("set_field:{}->{link}", mac_text(mac)));
                match self.rng.below(5) {
                    0 => self.push("set_field:5->nd_reserved".to_owned()),
                    1 => self.push("set_field:1->nd_options_type".to_owned()),
                    _ => {}
                }
            }
            _ => self.register(),
        }
    }
}
