//! The effect of OpenFlow tables on a packet, directly from the specification: the twin of `sluice-ofproto`'s
//! translation.
//!
//! No masks, no caches, no datapath actions: rules are searched one by one, actions change the key, and an output
//! records the key of that moment. Supports the basic actions, the stack, the action set, clones and exit. Returns
//! [`None`] where limits cut a translation short, since OVS then drops the packet.

use crate::LinearClassifier;
use sluice_flow::field::Prereq;
use sluice_flow::layout::{self, SHARED_LINES, Span};
use sluice_flow::{FieldId, FlowKey, OfPort, SubField};
use sluice_ofp::OfAction;
use sluice_packet::headers::{ethertype, ip_proto};
use std::collections::{BTreeMap, BTreeSet};

/// A packet sent to a port, or to the controller (`OfPort::CONTROLLER`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Where to.
    pub port: OfPort,
    /// Its key at that moment; see [`as_sent`].
    pub key: FlowKey,
}

/// A bridge: tables, and the ports it has.
#[derive(Clone, Debug, Default)]
pub struct Pipeline {
    /// Rules by table; the payload is their actions.
    pub tables: BTreeMap<u8, LinearClassifier<Vec<OfAction>>>,
    /// Ports.
    pub ports: BTreeSet<OfPort>,
}

/// A packet being processed.
struct Walk<'a> {
    pipeline: &'a Pipeline,
    key: FlowKey,
    stack: Vec<u128>,
    set: Vec<OfAction>,
    table: u8,
    depth: usize,
    resubmits: usize,
    exit: bool,
    over: bool,
    sent: Vec<Sent>,
}

impl Pipeline {
    /// The outputs of a packet. `None` if it takes too many steps.
    pub fn run(&self, key: &FlowKey) -> Option<Vec<Sent>> {
        let mut walk = Walk {
            pipeline: self,
            key: key.clone(),
            stack: Vec::new(),
            set: Vec::new(),
            table: 0,
            depth: 0,
            resubmits: 0,
            exit: false,
            over: false,
            sent: Vec::new(),
        };
        walk.key.set_number(layout::ACTSET_OUTPUT, OfPort::UNSET.0.into());
        let actions = walk.search(walk.in_port());
        walk.list(&actions);
        walk.finish();
        (!walk.over).then_some(walk.sent)
    }
}

/// The part of a key that is visible on the wire.
pub fn as_sent(key: &FlowKey) -> FlowKey {
    let mut out = FlowKey::ZERO;
    out.lines[..SHARED_LINES].copy_from_slice(&key.lines[..SHARED_LINES]);
    for span in [layout::IN_PORT, layout::RECIRC_ID, layout::DP_HASH, layout::TUN_ID] {
        out.get_mut(span).fill(0);
    }
    let tags = count_tags(&out);
    for (tpid, tci) in TAGS.into_iter().skip(tags) {
        out.get_mut(tpid).fill(0);
        out.get_mut(tci).fill(0);
    }
    // Fields other than ports cannot be set: the key has the value, the packet has not.
    let has_ports = match (out.number(layout::DL_TYPE) as u16, out.number(layout::NW_PROTO) as u8) {
        (ethertype::IPV4 | ethertype::IPV6, ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP)
        | (ethertype::IPV4, ip_proto::ICMP)
        | (ethertype::IPV6, ip_proto::ICMPV6) => out.number(layout::NW_FRAG) & 2 == 0,
        _ => false,
    };
    if !has_ports {
        out.set_number(layout::TP_SRC, 0);
        out.set_number(layout::TP_DST, 0);
    }
    out
}

const TAGS: [(Span, Span); 2] = [(layout::VLAN0_TPID, layout::VLAN0_TCI), (layout::VLAN1_TPID, layout::VLAN1_TCI)];

fn count_tags(key: &FlowKey) -> usize {
    TAGS.iter().take_while(|(_, tci)| key.number(*tci) & 0x1000 != 0).count()
}

impl Walk<'_> {
    fn in_port(&self) -> OfPort {
        OfPort(self.key.number(layout::IN_PORT) as u16)
    }

    fn dl_type(&self) -> u16 {
        self.key.number(layout::DL_TYPE) as u16
    }

    fn is_ip(&self) -> bool {
        matches!(self.dl_type(), ethertype::IPV4 | ethertype::IPV6)
    }

    /// The actions of the rule that wins in the current table, as if the packet had come by `in_port`.
    fn search(&self, in_port: OfPort) -> Vec<OfAction> {
        let Some(table) = self.pipeline.tables.get(&self.table) else { return Vec::new() };
        let mut key = self.key.clone();
        key.set_number(layout::IN_PORT, in_port.0.into());
        if key.number(layout::NW_FRAG) & 1 != 0 {
            key.set_number(layout::TP_SRC, 0);
            key.set_number(layout::TP_DST, 0);
        }
        table.winners(&key, 1).first().map(|rule| rule.payload.clone()).unwrap_or_default()
    }

    fn go(&mut self, in_port: OfPort, table: u8) {
        if self.depth >= 64 || self.resubmits >= 4096 || self.sent.len() > 2000 {
            self.over = true;
            return;
        }
        let old = std::mem::replace(&mut self.table, table);
        let actions = self.search(in_port);
        let deeper = usize::from(table <= old);
        self.resubmits += 1;
        self.depth += deeper;
        self.list(&actions);
        self.depth -= deeper;
        self.table = old;
    }

    fn list(&mut self, actions: &[OfAction]) {
        for action in actions {
            if self.exit || self.over || !self.action(action) {
                break;
            }
        }
    }

    /// Executes the action set.
    fn finish(&mut self) {
        let set = std::mem::take(&mut self.set);
        let last = |is: fn(&OfAction) -> bool| set.iter().rev().find(|a| is(a)).cloned();
        let output = last(|a| matches!(a, OfAction::Output { .. }));
        let Some(end) = output.or_else(|| last(|a| matches!(a, OfAction::Resubmit { .. }))) else { return };
        let mut list: Vec<OfAction> = Vec::new();
        list.extend(last(|a| matches!(a, OfAction::StripVlan | OfAction::PopVlan)));
        list.extend(last(|a| matches!(a, OfAction::PushVlan { .. })));
        list.extend(last(|a| matches!(a, OfAction::DecTtl { .. })));
        list.extend(set.iter().filter(|a| matches!(a, OfAction::SetField { .. } | OfAction::Load { .. })).cloned());
        list.push(end);
        self.list(&list);
    }

    /// False: stop this action list.
    fn action(&mut self, action: &OfAction) -> bool {
        match action {
            OfAction::Output { port, .. } => self.output(*port),
            OfAction::OutputReg { src, .. } => {
                let port = src.get(&self.key);
                if let Ok(port) = u16::try_from(port) {
                    self.output(OfPort(port));
                }
            }
            OfAction::Resubmit { port, table, .. } => {
                let in_port = if *port == OfPort::IN_PORT { self.in_port() } else { *port };
                self.go(in_port, table.unwrap_or(self.table));
            }
            OfAction::GotoTable(table) => self.go(self.in_port(), *table),
            OfAction::DecTtl { controllers, .. } if self.is_ip() => {
                let ttl = self.key.number(layout::NW_TTL);
                if ttl <= 1 {
                    controllers.iter().for_each(|_| self.send(OfPort::CONTROLLER));
                    return false;
                }
                self.key.set_number(layout::NW_TTL, ttl - 1);
            }
            OfAction::Exit => self.exit = true,
            OfAction::Clone(actions) => {
                let before = (self.key.clone(), self.stack.clone(), self.set.clone());
                self.list(actions);
                if !self.exit {
                    self.finish();
                }
                (self.key, self.stack, self.set) = before;
            }
            OfAction::WriteActions(actions) => {
                for action in actions {
                    if let OfAction::Output { port, .. } = action {
                        self.key.set_number(layout::ACTSET_OUTPUT, port.0.into());
                    }
                }
                self.set.extend_from_slice(actions);
            }
            OfAction::ClearActions => {
                self.set.clear();
                self.key.set_number(layout::ACTSET_OUTPUT, OfPort::UNSET.0.into());
            }
            _ => self.change(action),
        }
        true
    }

    fn send(&mut self, port: OfPort) {
        self.sent.push(Sent { port, key: as_sent(&self.key) });
    }

    fn output(&mut self, port: OfPort) {
        let in_port = self.in_port();
        let others: Vec<OfPort> = self.pipeline.ports.iter().copied().filter(|p| *p != in_port).collect();
        match port {
            OfPort::IN_PORT => self.send_if_there(in_port),
            OfPort::FLOOD | OfPort::ALL => others.into_iter().for_each(|p| self.send(p)),
            OfPort::CONTROLLER => self.send(port),
            OfPort::TABLE => self.go(in_port, 0),
            _ if port == in_port => {}
            _ => self.send_if_there(port),
        }
    }

    fn send_if_there(&mut self, port: OfPort) {
        if self.pipeline.ports.contains(&port) {
            self.send(port);
        }
    }

    /// Actions that change the key.
    fn change(&mut self, action: &OfAction) {
        let no_later_fragment = self.key.number(layout::NW_FRAG) & 2 == 0;
        match action {
            OfAction::SetField { field, value, mask } => self.write(*field, *value, *mask),
            OfAction::SetOption(set) => {
                let field = set.field.field();
                let value = field.get_wide(&self.key).replaced(&set.value, &set.mask);
                field.set_wide(&mut self.key, value);
            }
            OfAction::Load { dst, value } if dst.field.field().is_wide() => self.store(*dst, *value),
            OfAction::Load { dst, value } => self.write(dst.field, value << dst.start, dst.mask()),
            OfAction::Move { src, dst } if self.has(src.field) && self.has(dst.field) => {
                let value = src.get(&self.key);
                self.store(*dst, value);
            }
            OfAction::StackPush(src) => self.stack.push(src.get(&self.key)),
            OfAction::StackPop(dst) => {
                if let Some(value) = self.stack.pop() {
                    self.store(*dst, value);
                }
            }
            OfAction::SetVlanVid { vid, push_if_needed } => self.tag_bits(0x0fff, *vid, *push_if_needed),
            OfAction::SetVlanPcp { pcp, push_if_needed } => {
                self.tag_bits(0xe000, u16::from(*pcp) << 13, *push_if_needed);
            }
            OfAction::StripVlan | OfAction::PopVlan => self.pop_tag(),
            OfAction::PushVlan { tpid } => {
                let (outer, inner) = (TAGS[0], TAGS[1]);
                let (old_tpid, old_tci) = (self.key.number(outer.0), self.key.number(outer.1));
                self.key.set_number(inner.0, old_tpid);
                self.key.set_number(inner.1, old_tci);
                self.key.set_number(outer.0, (*tpid).into());
                self.key.set_number(outer.1, 0x1000);
            }
            OfAction::ModDlSrc(mac) => self.key.set(layout::DL_SRC, &mac.0),
            OfAction::ModDlDst(mac) => self.key.set(layout::DL_DST, &mac.0),
            OfAction::ModNwSrc(ip) if self.dl_type() == ethertype::IPV4 => self.key.set(layout::NW_SRC, &ip.octets()),
            OfAction::ModNwDst(ip) if self.dl_type() == ethertype::IPV4 => self.key.set(layout::NW_DST, &ip.octets()),
            OfAction::ModNwTtl(ttl) if self.is_ip() => self.key.set(layout::NW_TTL, &[*ttl]),
            OfAction::ModNwTos(tos) if self.is_ip() => {
                let ecn = self.key.number(layout::NW_TOS) & 3;
                self.key.set_number(layout::NW_TOS, u64::from(*tos) & 0xfc | ecn);
            }
            OfAction::ModTpSrc(port) if self.is_ip() && no_later_fragment => {
                self.key.set_number(layout::TP_SRC, (*port).into());
            }
            OfAction::ModTpDst(port) if self.is_ip() && no_later_fragment => {
                self.key.set_number(layout::TP_DST, (*port).into());
            }
            OfAction::WriteMetadata { metadata, mask } => {
                let old = self.key.number(layout::METADATA);
                self.key.set_number(layout::METADATA, old & !mask | metadata & mask);
            }
            _ => {}
        }
    }

    fn pop_tag(&mut self) {
        let n = count_tags(&self.key);
        if n == 0 {
            return;
        }
        let inner = [layout::VLAN1_TPID, layout::VLAN1_TCI].map(|span| self.key.number(span));
        let zero = if n == 1 { TAGS[0] } else { TAGS[1] };
        if n == 2 {
            self.key.set_number(layout::VLAN0_TPID, inner[0]);
            self.key.set_number(layout::VLAN0_TCI, inner[1]);
        }
        self.key.set_number(zero.0, 0);
        self.key.set_number(zero.1, 0);
    }

    fn tag_bits(&mut self, bits: u16, value: u16, push_if_needed: bool) {
        let (tpid, tci) = TAGS[0];
        let old = self.key.number(tci);
        if old & 0x1000 != 0 || push_if_needed {
            self.key.set_number(tci, old & !u64::from(bits) | u64::from(value & bits) | 0x1000);
            if self.key.number(tpid) == 0 {
                self.key.set_number(tpid, 0x8100);
            }
        }
    }

    fn write(&mut self, field: FieldId, value: u128, mask: u128) {
        if self.has(field) {
            let old = field.field().get(&self.key);
            field.field().set(&mut self.key, old & !mask | value & mask);
            self.give_tag_a_protocol();
        }
    }

    fn store(&mut self, dst: SubField, value: u128) {
        dst.set(&mut self.key, value);
        self.give_tag_a_protocol();
    }

    fn give_tag_a_protocol(&mut self) {
        let (tpid, tci) = TAGS[0];
        if self.key.number(tci) != 0 && self.key.number(tpid) == 0 {
            self.key.set_number(tpid, 0x8100);
        }
    }

    fn has(&self, field: FieldId) -> bool {
        let proto = self.key.number(layout::NW_PROTO) as u8;
        let ports = |p: u8| self.is_ip() && proto == p && self.key.number(layout::NW_FRAG) & 2 == 0;
        match field.field().prereq {
            Prereq::None | Prereq::Ethernet => true,
            Prereq::Arp => matches!(self.dl_type(), ethertype::ARP | ethertype::RARP),
            Prereq::VlanVid => count_tags(&self.key) > 0,
            Prereq::Ipv4 => self.dl_type() == ethertype::IPV4,
            Prereq::Ipv6 => self.dl_type() == ethertype::IPV6,
            Prereq::IpAny => self.is_ip(),
            Prereq::Mpls => matches!(self.dl_type(), ethertype::MPLS | ethertype::MPLS_MULTICAST),
            Prereq::Tcp => ports(ip_proto::TCP),
            Prereq::Udp => ports(ip_proto::UDP),
            Prereq::Sctp => ports(ip_proto::SCTP),
            Prereq::Icmpv4 => self.dl_type() == ethertype::IPV4 && proto == ip_proto::ICMP,
            Prereq::Icmpv6 => self.dl_type() == ethertype::IPV6 && proto == ip_proto::ICMPV6,
            _ => false,
        }
    }
}
