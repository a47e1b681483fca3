//! Random actions in `ovs-ofctl` syntax that are consistent with a match.

use crate::matches::{Match, Protocol};
use crate::rng::Rng;
use crate::values::{PORTS, Values, ipv4_text, ipv6_text, mac_text};

/// The OpenFlow version a table is loaded with. A few actions exist in one of them only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Of10,
    Of13,
}

/// Where a rule stands, which limits what it may do.
pub struct Place<'a> {
    pub version: Version,
    pub table: u8,
    /// All the tables that have rules, ascending.
    pub tables: &'a [u8],
}

/// Writes a rule's actions.
pub fn random(rng: &mut Rng, values: &Values, matched: &Match, place: &Place) -> String {
    if rng.chance(7) {
        return "drop".into();
    }
    let mut writer = Writer { rng, values, matched, place, out: Vec::new(), has_vlan: matched.vlan, tags: 0 };
    writer.tags = usize::from(matched.vlan == Some(true));
    let edits = writer.rng.below(4);
    for _ in 0..edits {
        writer.edit();
    }
    let jumps = writer.rng.weighted(&[5, 4, 1]);
    for _ in 0..jumps {
        writer.resubmit();
    }
    let outputs = writer.rng.weighted(&[2, 6, 3]);
    for _ in 0..outputs {
        if writer.rng.chance(20) {
            writer.edit();
        }
        writer.output();
    }
    writer.goto_table();
    if writer.out.is_empty() { "drop".into() } else { writer.out.join(",") }
}

struct Writer<'a> {
    rng: &'a mut Rng,
    values: &'a Values,
    matched: &'a Match,
    place: &'a Place<'a>,
    out: Vec<String>,
    /// Whether a VLAN tag is known to be there at this point of the list.
    has_vlan: Option<bool>,
    /// How many tags are known to be there at most.
    tags: usize,
}

impl Writer<'_> {
    fn push(&mut self, action: String) {
        self.out.push(action);
    }

    /// Over OpenFlow 1.0, ovs-ofctl sends `set_field` of an old field without its mask.
    fn masks_survive(&self) -> bool {
        self.place.version != Version::Of10
    }

    fn later_tables(&self) -> Vec<u8> {
        self.place.tables.iter().copied().filter(|t| *t > self.place.table).collect()
    }

    fn output(&mut self) {
        let action = match self.rng.weighted(&[70, 8, 10, 12]) {
            0 => format!("output:{}", 1 + self.rng.below(PORTS.into())),
            1 => "in_port".into(),
            2 => "flood".into(),
            _ => "all".into(),
        };
        self.push(action);
    }

    fn resubmit(&mut self) {
        let later = self.later_tables();
        // Now and then into its own table or back: endless recursion must end at the limit.
        let table = if later.is_empty() || self.rng.chance(1) {
            if !self.rng.chance(3) {
                return;
            }
            *self.rng.pick(self.place.tables)
        } else {
            *self.rng.pick(&later)
        };
        let action = if self.rng.chance(15) {
            format!("resubmit({},{table})", 1 + self.rng.below(PORTS.into()))
        } else {
            format!("resubmit(,{table})")
        };
        self.push(action);
    }

    fn goto_table(&mut self) {
        let later = self.later_tables();
        if !later.is_empty() && self.rng.chance(35) {
            let table = *self.rng.pick(&later);
            self.push(format!("goto_table:{table}"));
        }
    }

    fn edit(&mut self) {
        match self.rng.weighted(&[20, 18, 12, 14, 20, 16]) {
            0 => self.register(),
            1 => self.ethernet(),
            2 => self.vlan(),
            3 => self.r#move(),
            4 => self.network(),
            _ => self.transport(),
        }
    }

    fn register(&mut self) {
        let (reg, word) = (self.rng.below(3), self.values.word(self.rng));
        let action = match self.rng.below(5) {
            0 => format!("load:{:#x}->NXM_NX_REG{reg}[]", word & 0xffff_ffff),
            1 => {
                let (low, width) = (self.rng.below(24), 1 + self.rng.below(8));
                format!("load:{:#x}->NXM_NX_REG{reg}[{low}..{}]", word & ((1 << width) - 1), low + width - 1)
            }
            2 => format!("set_field:{:#x}->reg{reg}", word & 0xffff_ffff),
            3 => format!("set_field:{:#x}/{:#x}->reg{reg}", word & 0xff0f, 0xff0f),
            _ => format!("set_field:{word:#x}->metadata"),
        };
        self.push(action);
    }

    fn ethernet(&mut self) {
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

    fn vlan(&mut self) {
        let (vid, pcp) = (self.values.vid(self.rng), self.rng.below(8));
        // With OpenFlow 1.3, OVS puts a push_vlan before mod_vlan_* unless the rule demands a tag; and in 1.0 there is
        // neither push_vlan nor the field vlan_vid.
        let old = self.place.version == Version::Of10;
        match self.rng.below(6) {
            0 | 1 if !old && self.matched.vlan != Some(true) => self.register(),
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
            _ => self.push("load:0->NXM_OF_VLAN_TCI[]".into()),
        }
    }

    fn r#move(&mut self) {
        let reg = self.rng.below(3);
        let mut choices = vec![
            "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]".to_owned(),
            "move:NXM_OF_ETH_DST[0..15]->NXM_OF_ETH_SRC[16..31]".to_owned(),
            format!("move:NXM_OF_IN_PORT[]->NXM_NX_REG{reg}[0..15]"),
            format!("move:NXM_NX_REG{reg}[]->NXM_NX_REG{}[]", (reg + 1) % 3),
            format!("move:NXM_OF_VLAN_TCI[0..11]->NXM_NX_REG{reg}[4..15]"),
        ];
        match self.matched.protocol {
            p if p.is_ipv4() => choices.extend([
                format!("move:NXM_OF_IP_SRC[]->NXM_NX_REG{reg}[]"),
                "move:NXM_OF_IP_SRC[0..7]->NXM_OF_IP_DST[8..15]".to_owned(),
                format!("move:NXM_NX_REG{reg}[]->NXM_OF_IP_DST[]"),
            ]),
            p if p.is_ipv6() => choices.extend([
                format!("move:NXM_NX_IPV6_SRC[32..63]->NXM_NX_REG{reg}[]"),
                "move:NXM_NX_IPV6_DST[]->NXM_NX_IPV6_SRC[]".to_owned(),
            ]),
            Protocol::Arp => choices.extend([
                "move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[]".to_owned(),
                "move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[]".to_owned(),
            ]),
            _ => {}
        }
        let action = self.rng.pick(&choices).clone();
        self.push(action);
    }

    fn network(&mut self) {
        let side = *self.rng.pick(&["src", "dst"]);
        let masked = self.masks_survive();
        let action = if self.matched.protocol.is_ipv4() {
            let address = self.values.ipv4(self.rng);
            match self.rng.below(9) {
                0 => format!("mod_nw_{side}:{}", ipv4_text(address)),
                1 => format!("set_field:{}->ip_{side}", ipv4_text(address)),
                2 if masked => format!("set_field:{}/255.255.0.0->ip_{side}", ipv4_text(address & 0xffff_0000)),
                3 => format!("load:{address:#x}->NXM_OF_IP_{}[]", side.to_uppercase()),
                4 => format!("mod_nw_tos:{}", self.rng.below(64) << 2),
                5 => format!("mod_nw_ecn:{}", self.rng.below(4)),
                6 => format!("mod_nw_ttl:{}", 1 + self.rng.below(255)),
                7 => format!("set_field:{}->ip_dscp", self.rng.below(64)),
                _ => "dec_ttl".into(),
            }
        } else if self.matched.protocol.is_ipv6() {
            let address = self.values.ipv6(self.rng);
            match self.rng.below(6) {
                0 => format!("set_field:{}->ipv6_{side}", ipv6_text(address)),
                1 if masked => format!("set_field:{}/ffff:ffff::->ipv6_{side}", ipv6_text(address >> 96 << 96)),
                2 => format!("load:{:#x}->NXM_NX_IPV6_{}[0..63]", address as u64, side.to_uppercase()),
                3 if self.place.version == Version::Of13 => {
                    format!("set_field:{}->ipv6_label", self.rng.pick(&self.values.labels))
                }
                4 => format!("mod_nw_ttl:{}", 1 + self.rng.below(255)),
                _ => "dec_ttl".into(),
            }
        } else if self.matched.protocol == Protocol::Arp {
            let (mac, address) = (self.values.mac(self.rng), self.values.ipv4(self.rng));
            match self.rng.below(4) {
                0 => "load:0x2->NXM_OF_ARP_OP[]".into(),
                1 => format!("set_field:{}->arp_sha", mac_text(mac)),
                2 => format!("set_field:{}->arp_spa", ipv4_text(address)),
                _ => format!("load:{address:#x}->NXM_OF_ARP_TPA[]"),
            }
        } else if self.place.version == Version::Of13 {
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

    fn transport(&mut self) {
        let side = *self.rng.pick(&["src", "dst"]);
        let port = self.values.l4_port(self.rng);
        if let Some(prefix) = self.matched.protocol.ports() {
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
        let new = self.place.version == Version::Of13;
        match self.matched.protocol {
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
            }
            _ => self.register(),
        }
    }
}
