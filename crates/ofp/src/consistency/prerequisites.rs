//! What each action needs of the match, and of what the actions before it made of the packet.

use super::Clash;
use crate::OfAction;
use crate::ofpact::{Conntrack, ConntrackZone, Learn, LearnSource, LearnTarget, NatAddresses};
use sluice_flow::field::{FieldId, Place, Prereq};
use sluice_flow::layout;
use sluice_flow::{Match, OfPort, SubField};
use sluice_packet::headers::ip_proto;

/// Checks one action after the other against what the flow matches and what those before did to the headers.
#[derive(Clone, Debug)]
pub struct Prerequisites {
    state: Match,
    /// The flow's table, if it is known.
    table: Option<u8>,
    only_in_10: bool,
}

impl Prerequisites {
    /// What actions need behind a match, in a table if that is known.
    pub fn new(matches: &Match, table: Option<u8>) -> Self {
        Prerequisites { state: matches.clone(), table, only_in_10: false }
    }

    /// Checks a whole list.
    ///
    /// # Errors
    /// With what is wrong first.
    pub fn check_all(&mut self, actions: &[OfAction]) -> Result<(), Clash> {
        actions.iter().try_for_each(|action| self.check(action))
    }

    /// Whether an action changes headers that the match leaves open: done to the packets that have them in OpenFlow
    /// 1.0, forbidden later.
    pub fn only_in_10(&self) -> bool {
        self.only_in_10
    }

    /// Checks the next action.
    ///
    /// # Errors
    /// With what is wrong with it in every version.
    pub fn check(&mut self, action: &OfAction) -> Result<(), Clash> {
        let (id, values) = action.parts();
        values.subfields().try_for_each(|bits| self.needs(bits.field))?;
        let prereqs = id.row().prereqs;
        self.wants(prereqs.is_empty() || prereqs.iter().any(|prereq| self.state.satisfies(*prereq)));
        match action {
            OfAction::Output { port, .. } | OfAction::OutputTrunc { port, .. } => out_port(*port),
            OfAction::SetField { field, value, .. } => {
                self.sets(*field)?;
                if *field == FieldId::VlanTci {
                    self.set_tag(value >> 12 & 1 != 0);
                }
                Ok(())
            }
            OfAction::Load { dst, value } => {
                self.sets(dst.field)?;
                if dst.field == FieldId::VlanTci {
                    self.set_tag(value << dst.start >> 12 & 1 != 0);
                }
                Ok(())
            }
            OfAction::Bundle(b) => {
                b.dst.map_or(Ok(()), |dst| self.needs(dst.field))?;
                let member = |port: OfPort| match port {
                    OfPort::NONE => Ok(()),
                    OfPort::CONTROLLER => Err(Clash::OutPort(port)),
                    port => out_port(port),
                };
                b.members.iter().try_for_each(|port| member(*port))
            }
            OfAction::Learn(learn) => self.learned(learn),
            // Which packets an action set meets is not known when it is written.
            OfAction::WriteActions(actions) => self.clone().check_all(actions),
            OfAction::Clone(actions) => self.nested(actions),
            OfAction::Conntrack(ct) => self.conntrack(ct),
            OfAction::Resubmit { with_ct_orig: true, .. } => self.says(Prereq::CtValid),
            OfAction::GotoTable(to) if self.table.is_some_and(|table| *to <= table) => {
                Err(Clash::Backwards { to: *to })
            }
            _ => self.headers(action),
        }
    }

    fn nested(&mut self, actions: &[OfAction]) -> Result<(), Clash> {
        let mut inner = self.clone();
        let checked = inner.check_all(actions);
        self.only_in_10 |= inner.only_in_10;
        checked
    }

    fn needs(&self, field: FieldId) -> Result<(), Clash> {
        let prereq = field.field().prereq;
        if self.state.satisfies(prereq) { Ok(()) } else { Err(Clash::Lacks { field: Some(field), prereq }) }
    }

    /// What setting a field needs: an id, a tag to be in.
    fn sets(&self, field: FieldId) -> Result<(), Clash> {
        let prereq = Prereq::VlanVid;
        if field == FieldId::VlanVid && !self.state.satisfies(prereq) {
            return Err(Clash::Lacks { field: Some(field), prereq });
        }
        self.needs(field)
    }

    fn says(&self, prereq: Prereq) -> Result<(), Clash> {
        if self.state.satisfies(prereq) { Ok(()) } else { Err(Clash::Lacks { field: None, prereq }) }
    }

    /// What OpenFlow 1.0 does without.
    fn wants(&mut self, holds: bool) {
        self.only_in_10 |= !holds;
    }

    /// What actions do to the headers, as far as prerequisites of later actions depend on it.
    fn headers(&mut self, action: &OfAction) -> Result<(), Clash> {
        match action {
            OfAction::SetVlanVid { .. } | OfAction::SetVlanPcp { .. } => self.set_tag(true),
            OfAction::StripVlan | OfAction::PopVlan => {
                let inner = self.state.key.number(layout::VLAN1_TCI);
                self.state.key.set_number(layout::VLAN0_TCI, inner);
                self.state.key.set_number(layout::VLAN1_TCI, 0);
            }
            OfAction::PushVlan { .. } => {
                if self.state.key.number(layout::VLAN1_TCI) & 0x1000 != 0 {
                    return Err(Clash::ThirdTag);
                }
                let outer = self.state.key.number(layout::VLAN0_TCI);
                self.state.key.set_number(layout::VLAN1_TCI, outer);
                self.set_tag(true);
            }
            OfAction::FinTimeout { .. } => self.wants(self.state.key.number(layout::NW_PROTO) == ip_proto::TCP.into()),
            OfAction::PushMpls { ethertype } => {
                self.state.set(FieldId::EthType, u128::from(*ethertype));
                self.forget_protocol();
            }
            OfAction::PopMpls { ethertype } => {
                self.wants(self.state.is_ethernet());
                self.state.set(FieldId::EthType, u128::from(*ethertype));
            }
            OfAction::Encap { packet_type, .. } => {
                self.state.set(FieldId::PacketType, u128::from(*packet_type));
                if !self.state.satisfies(Prereq::IpAny) {
                    self.forget_protocol();
                }
            }
            OfAction::Decap { .. } => {
                let dl_type = self.state.dl_type().filter(|_| self.state.is_ethernet()).unwrap_or(0xffff);
                self.state.set(FieldId::PacketType, 0x1_0000 | u128::from(dl_type));
            }
            _ => {}
        }
        Ok(())
    }

    fn forget_protocol(&mut self) {
        Place::whole(layout::NW_PROTO).write(&mut self.state.key, 0);
        Place::whole(layout::NW_PROTO).write(&mut self.state.mask, 0);
    }

    fn set_tag(&mut self, present: bool) {
        Place { span: layout::VLAN0_TCI, lsb: 12, n_bits: 1 }.write(&mut self.state.key, u128::from(present));
    }

    fn learned(&self, learn: &Learn) -> Result<(), Clash> {
        let mut target = Prerequisites::new(&Match::ANY, None);
        for spec in &learn.specs {
            if let LearnSource::Field(src) = spec.source {
                self.needs(src.field)?;
            }
            match spec.target {
                LearnTarget::Match(dst) => {
                    target.needs(dst.field)?;
                    if let LearnSource::Value(value) = &spec.source {
                        let SubField { field, start, .. } = dst;
                        target.state.set_masked_wide(field, value.wide().shl(start), dst.mask_wide());
                    }
                }
                LearnTarget::Load(dst) => target.needs(dst.field)?,
                LearnTarget::Output => {}
            }
        }
        Ok(())
    }

    fn conntrack(&mut self, ct: &Conntrack) -> Result<(), Clash> {
        self.says(Prereq::IpAny)?;
        match ct.alg {
            FTP => self.says(Prereq::Tcp)?,
            TFTP => self.says(Prereq::Udp)?,
            _ => {}
        }
        if let ConntrackZone::Field(zone) = ct.zone {
            self.needs(zone.field)?;
        }
        for action in &ct.actions {
            match action {
                OfAction::Nat(nat) => match nat.addresses {
                    Some(NatAddresses::V4(..)) => self.says(Prereq::Ipv4)?,
                    Some(NatAddresses::V6(..)) => self.says(Prereq::Ipv6)?,
                    None => {}
                },
                _ => continue,
            }
        }
        self.nested(&ct.actions)
    }
}

/// Ports that name the protocols whose data connections are followed.
const FTP: u16 = 21;
const TFTP: u16 = 69;

fn out_port(port: OfPort) -> Result<(), Clash> {
    if port.can_be_sent_to() { Ok(()) } else { Err(Clash::OutPort(port)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(flow: &str) -> (Result<(), Clash>, bool) {
        // Actions alone are read without a look at the match.
        let (matches, actions) = flow.split_once('|').unwrap();
        let ports = sluice_flow::PortNames::NONE;
        let matches = Match::parse(matches, &ports).unwrap();
        let actions = OfAction::parse_list(actions, &ports).unwrap();
        let mut state = Prerequisites::new(&matches, Some(3));
        (state.check_all(&actions), state.only_in_10())
    }

    #[test]
    fn openflow_10_changes_headers_that_the_match_leaves_open() {
        for (flow, only_in_10) in [
            ("|dec_ttl", true),
            ("ipv6|dec_ttl", false),
            ("ipv6|mod_nw_src:1.2.3.4", true),
            ("ip|mod_tp_src:5", true),
            ("udp|mod_tp_src:5", false),
            ("|pop_vlan", true),
            ("|push_vlan:0x8100,pop_vlan", false),
            ("dl_vlan=5|pop_vlan,pop_vlan", true),
            ("|mod_vlan_vid:5,pop_vlan", false),
            ("|set_vlan_vid:5", true),
            ("|push_mpls:0x8847,set_mpls_ttl:5,pop_mpls:0x0800,dec_ttl", false),
            ("|clone(dec_ttl)", true),
            ("|write_actions(dec_ttl)", false),
        ] {
            assert_eq!(verdict(flow), (Ok(()), only_in_10), "{flow}");
        }
    }

    #[test]
    fn fields_need_their_headers_in_every_version() {
        let lacks = |field, prereq| Err(Clash::Lacks { field: Some(field), prereq });
        assert_eq!(verdict("ip|set_field:5->tcp_dst").0, lacks(FieldId::TcpDst, Prereq::Tcp));
        assert_eq!(verdict("|set_field:5->vlan_vid").0, lacks(FieldId::VlanVid, Prereq::VlanVid));
        assert_eq!(verdict("tcp|push_mpls:0x8847,set_field:5->tcp_dst").0, lacks(FieldId::TcpDst, Prereq::Tcp));
        assert_eq!(verdict("|ct(commit)").0, Err(Clash::Lacks { field: None, prereq: Prereq::IpAny }));
        assert_eq!(verdict("|goto_table:3").0, Err(Clash::Backwards { to: 3 }));
        assert_eq!(verdict("|push_vlan:0x8100,push_vlan:0x8100,push_vlan:0x8100").0, Err(Clash::ThirdTag));
    }
}
