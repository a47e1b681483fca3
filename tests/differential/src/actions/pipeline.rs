//! Actions that lead a packet through tables and lists, and instructions.

use super::{Version, Writer};
use crate::matches::Protocol;
use crate::table::LEARNED;
use crate::values::PORTS;

impl Writer<'_> {
    pub(super) fn resubmit(&mut self) {
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
        let port = self.port();
        let action =
            if self.rng.chance(15) { format!("resubmit({port},{table})") } else { format!("resubmit(,{table})") };
        self.push(action);
    }

    /// What OpenFlow 1.1 has besides the list of actions, in the order it demands.
    pub(super) fn instructions(&mut self) {
        let new = self.place.version != Version::Of10;
        if new && self.rng.chance(3) {
            self.push("clear_actions".to_owned());
        }
        if new && self.rng.chance(12) {
            let set = self.inner(|writer| writer.action_set());
            self.push(format!("write_actions({set})"));
        }
        if new && self.rng.chance(5) {
            let word = self.values.word(self.rng);
            self.push(format!("write_metadata:{:#x}/{:#x}", word & 0xff00_ffff, 0xff00_ffff_u32));
        }
        let later = self.later_tables();
        if !later.is_empty() && self.rng.chance(35) {
            let table = *self.rng.pick(&later);
            self.push(format!("goto_table:{table}"));
        }
    }

    fn action_set(&mut self) {
        let port = self.port();
        for _ in 0..self.rng.below(3) {
            match self.rng.below(3) {
                0 => self.register(),
                1 => self.ethernet(),
                _ => self.metadata(),
            }
        }
        if self.rng.chance(15) && (self.protocol.is_ipv4() || self.protocol.is_ipv6()) {
            self.push("dec_ttl".to_owned());
        }
        if self.rng.chance(85) {
            self.push(format!("output:{port}"));
        } else if let Some(table) = self.later_tables().first() {
            self.push(format!("resubmit(,{table})"));
        }
    }

    pub(super) fn clone_packet(&mut self) {
        if self.depth >= 2 {
            return self.output();
        }
        let list = self.inner(|writer| {
            for _ in 0..writer.rng.below(3) {
                writer.edit();
            }
            writer.one_of(super::STEPS);
        });
        self.push(format!("clone({list})"));
        if self.rng.chance(60) {
            self.output();
        }
    }

    pub(super) fn multipath(&mut self) {
        let mut fields = vec!["eth_src", "symmetric_l4", "symmetric_l3l4", "symmetric_l3l4+udp"];
        if self.protocol.is_ipv4() {
            fields.extend(["nw_src", "nw_dst", "symmetric_l3"]);
        }
        let fields = *self.rng.pick(&fields);
        let algorithm = *self.rng.pick(&["modulo_n", "hash_threshold", "hrw", "iter_hash"]);
        let (basis, links, argument) =
            (self.rng.below(3), 1 + self.rng.below(usize::from(PORTS) + 2), self.rng.below(4));
        self.push(format!("multipath({fields},{basis},{algorithm},{links},{argument},NXM_NX_REG1[0..15])"));
        if self.rng.chance(70) {
            self.push("output:NXM_NX_REG1[0..15]".to_owned());
        }
    }

    pub(super) fn check_packet_length(&mut self) {
        // In OVS the second branch has no action set where the first had one: see docs/translation.md.
        if self.place.version != Version::Of10 {
            return self.output();
        }
        let length = *self.rng.pick(&[60, 64, 80, 100]);
        let bit = self.rng.below(4);
        self.push(format!("check_pkt_larger({length})->NXM_NX_REG0[{bit}]"));
        self.resubmit();
        if self.rng.chance(50) {
            self.output();
        }
    }

    pub(super) fn dec_ttl(&mut self) {
        if self.protocol.is_ipv4() || self.protocol.is_ipv6() {
            let action = *self.rng.pick(&["dec_ttl", "dec_ttl(1,2)"]);
            self.push(action.to_owned());
        }
        self.output();
    }

    /// Actions that do nothing to the packet.
    pub(super) fn nothing(&mut self) {
        const SAMPLE: &str = "sample(probability=1000,collector_set_id=1,obs_domain_id=2,obs_point_id=3)";
        let action = *self.rng.pick(&["note:01.02.03", SAMPLE]);
        self.push(action.to_owned());
        self.output();
    }

    pub(super) fn exit(&mut self) {
        self.output();
        self.push("exit".to_owned());
        self.output();
    }

    pub(super) fn push_label(&mut self) {
        let ethertype = *self.rng.pick(&[0x8847_u16, 0x8848]);
        self.push(format!("push_mpls:{ethertype:#06x}"));
        self.behind_label = Some(self.protocol);
        self.protocol = if ethertype == 0x8847 { Protocol::Mpls } else { Protocol::Mplsm };
        if self.rng.chance(60) {
            self.label();
        }
    }

    /// Sets a part of the outer label.
    pub(super) fn label(&mut self) {
        let label = *self.rng.pick(&self.values.labels);
        let action = match self.rng.below(5) {
            0 => format!("set_mpls_label({label})"),
            1 => format!("set_mpls_tc({})", self.rng.below(8)),
            2 => format!("set_mpls_ttl({})", self.rng.below(256)),
            3 => "dec_mpls_ttl".to_owned(),
            _ if self.place.version == Version::Of10 => format!("load:{label}->OXM_OF_MPLS_LABEL[]"),
            _ => format!("set_field:{label}->mpls_label"),
        };
        self.push(action);
    }

    /// Behind the last label the packet comes round again, and goes on with what follows.
    pub(super) fn pop_label(&mut self) {
        if !self.protocol.is_mpls() {
            return self.output();
        }
        let types =
            [(0x0800, Protocol::Ip), (0x86dd, Protocol::Ipv6), (0x8847, Protocol::Mpls), (0x8848, Protocol::Mplsm)];
        // OVS ends if what was pushed is popped as something else; see `ovs-ends`.
        let (ethertype, protocol) = match self.behind_label.take() {
            Some(p) if p.is_ipv4() => types[0],
            Some(p) if p.is_ipv6() => types[1],
            Some(p) if p.is_mpls() => types[2],
            Some(_) => return self.output(),
            None => *self.rng.pick(&types),
        };
        self.push(format!("pop_mpls:{ethertype:#06x}"));
        self.protocol = protocol;
        for _ in 0..self.rng.below(3) {
            self.edit();
        }
        self.resubmit();
        self.output();
    }

    pub(super) fn learn(&mut self) {
        if !self.place.theme.learns() {
            return self.output();
        }
        // A priority of its own, so that rules which two rules make never meet at one.
        let priority = 100 + self.place.rule;
        let mut what = vec![format!("table={LEARNED},priority={priority}")];
        let options = [
            "idle_timeout=100",
            "hard_timeout=200",
            "cookie=0x5",
            "delete_learned",
            "send_flow_rem",
            "fin_idle_timeout=50",
            "fin_hard_timeout=60",
        ];
        what.extend(options.iter().filter(|_| self.rng.chance(15)).map(|o| (*o).to_owned()));
        if self.rng.chance(20) {
            what.push(format!("limit={},result_dst=NXM_NX_REG0[31]", 1 + self.rng.below(3)));
        }
        let mut matches = vec![
            "NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]",
            "NXM_OF_ETH_DST[]",
            "NXM_OF_VLAN_TCI[0..11]",
            "NXM_OF_IN_PORT[]",
            "NXM_NX_REG0[0..7]=NXM_NX_REG1[8..15]",
            "reg1=0x0",
        ];
        if self.protocol.is_ipv4() {
            matches.extend(["eth_type=0x800,NXM_OF_IP_DST[]=NXM_OF_IP_SRC[]", "eth_type=0x800,NXM_OF_IP_PROTO[]"]);
        }
        what.push((*self.rng.pick(&matches)).to_owned());
        for action in [
            "load:0x7->NXM_NX_REG2[]",
            "load:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]",
            "load:NXM_OF_IN_PORT[]->NXM_NX_REG1[0..15]",
        ] {
            if self.rng.chance(25) {
                what.push(action.to_owned());
            }
        }
        what.push("output:NXM_OF_IN_PORT[]".to_owned());
        self.push(format!("learn({})", what.join(",")));
        self.push(format!("resubmit(,{LEARNED})"));
    }

    pub(super) fn fin_timeout(&mut self) {
        if self.place.theme.learns() && self.matched.protocol == Protocol::Tcp && self.protocol == Protocol::Tcp {
            let (idle, hard) = (20 + self.rng.below(50), 50 + self.rng.below(50));
            self.push(format!("fin_timeout(idle_timeout={idle},hard_timeout={hard})"));
        }
        self.output();
    }
}
