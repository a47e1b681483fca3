//! Which actions may stand together, in which order, within which others, and behind which match.

use super::SyntaxError;
use super::action_parse::Within;
use super::piece::Piece;
use crate::field::{Field, FieldId, Place, Prereq};
use crate::layout;
use crate::ofpact::{ConntrackZone, LearnSource, LearnTarget, NatAddresses};
use crate::{Match, OfAction, SubField};

/// An action and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Placed<'a> {
    pub action: OfAction,
    pub at: Piece<'a>,
}

/// The instruction an action belongs to, in the order that OpenFlow 1.1 and later execute them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Instruction {
    Meter,
    Apply,
    Clear,
    Write,
    Metadata,
    Goto,
}

fn instruction(action: &OfAction) -> Instruction {
    match action {
        OfAction::Meter(_) => Instruction::Meter,
        OfAction::ClearActions => Instruction::Clear,
        OfAction::WriteActions(_) => Instruction::Write,
        OfAction::WriteMetadata { .. } => Instruction::Metadata,
        OfAction::GotoTable(_) => Instruction::Goto,
        _ => Instruction::Apply,
    }
}

/// Checks order and nesting.
pub(crate) fn order(placed: &[Placed<'_>], within: Within) -> Result<(), SyntaxError> {
    if placed.iter().any(|p| matches!(p.action, OfAction::Conjunction { .. })) {
        let stranger = placed.iter().find(|p| !matches!(p.action, OfAction::Conjunction { .. } | OfAction::Note(_)));
        return match stranger {
            None => Ok(()),
            Some(p) => Err(p.at.conflict(format!("{} beside conjunction", p.at.text), "only conjunction and note")),
        };
    }
    let mut before: Option<(&Placed<'_>, Instruction)> = None;
    for p in placed {
        nesting(p, within)?;
        let now = instruction(&p.action);
        if within != Within::Flow && now != Instruction::Apply && now != Instruction::Meter {
            return Err(p.at.conflict(format!("{} within another action", p.at.text), "actions, not instructions"));
        }
        if let Some((earlier, then)) = before
            && (now < then || now == then && now != Instruction::Apply)
        {
            return Err(p.at.conflict(
                format!("{} behind {}", p.at.text, earlier.at.text),
                "each at most once and in this order: meter, actions, clear_actions, write_actions, write_metadata, \
                 goto_table",
            ));
        }
        before = Some((p, now));
    }
    Ok(())
}

/// The field that an action writes, if it is one of those that `ct(exec(…))` may hold.
fn written(action: &OfAction) -> Option<FieldId> {
    match action {
        OfAction::SetField { field, .. } => Some(*field),
        OfAction::Load { dst, .. } | OfAction::Move { dst, .. } => Some(dst.field),
        _ => None,
    }
}

fn nesting(p: &Placed<'_>, within: Within) -> Result<(), SyntaxError> {
    let of_connection = written(&p.action).is_some_and(|f| matches!(f, FieldId::CtMark | FieldId::CtLabel));
    let what = p.at.text;
    match within {
        Within::Ct if of_connection => Ok(()),
        Within::Ct => Err(p
            .at
            .conflict(format!("{what} within ct(exec(…))"), "only set_field, load and move to ct_mark or ct_label")),
        _ if of_connection => Err(p.at.conflict(
            format!("{what} to a field of the connection"),
            "ct_mark and ct_label to be set only within ct(exec(…))",
        )),
        _ if matches!(p.action, OfAction::Nat(_)) => Err(p.at.conflict("nat on its own", "nat only within ct(…)")),
        Within::Flow => Ok(()),
        _ if matches!(p.action, OfAction::Meter(_)) => {
            Err(p.at.conflict("meter within another action", "meter only in the flow itself"))
        }
        Within::WriteActions if !p.action.in_action_set() => {
            Err(p.at.conflict(format!("{what} within write_actions"), "an action that an action set can hold"))
        }
        _ => Ok(()),
    }
}

/// Checks that every field an action reads or writes has its prerequisites, given what the flow matches and what the
/// actions before it did to the headers.
pub(crate) fn prerequisites(placed: &[Placed<'_>], matches: &Match, table: u8) -> Result<(), SyntaxError> {
    let mut state = *matches;
    placed.iter().try_for_each(|p| one(&p.action, p.at, &mut state, table))
}

fn list(actions: &[OfAction], at: Piece<'_>, matches: &Match, table: u8) -> Result<(), SyntaxError> {
    let mut state = *matches;
    actions.iter().try_for_each(|action| one(action, at, &mut state, table))
}

fn needs(at: Piece<'_>, state: &Match, field: FieldId) -> Result<(), SyntaxError> {
    let field: &Field = field.field();
    let tag_missing = field.id == FieldId::VlanVid && !state.satisfies(Prereq::VlanVid);
    if state.satisfies(field.prereq) && !tag_missing {
        return Ok(());
    }
    let prereq = if tag_missing { Prereq::VlanVid } else { field.prereq };
    Err(at.conflict(
        format!("{} of {} where the match does not say {}", at.text, field.name, prereq.remedy()),
        format!("{} in the match", prereq.remedy()),
    ))
}

fn one(action: &OfAction, at: Piece<'_>, state: &mut Match, table: u8) -> Result<(), SyntaxError> {
    match action {
        OfAction::SetField { field, value, .. } => {
            needs(at, state, *field)?;
            if *field == FieldId::VlanTci {
                set_tag(state, value >> 12 & 1 != 0);
            }
            Ok(())
        }
        OfAction::Load { dst, value } => {
            needs(at, state, dst.field)?;
            if dst.field == FieldId::VlanTci && dst.is_whole() {
                set_tag(state, value >> 12 & 1 != 0);
            }
            Ok(())
        }
        OfAction::Move { src, dst } => needs(at, state, src.field).and_then(|()| needs(at, state, dst.field)),
        OfAction::OutputReg { src, .. } | OfAction::StackPush(src) => needs(at, state, src.field),
        OfAction::StackPop(dst) | OfAction::CheckPktLarger { dst, .. } => needs(at, state, dst.field),
        OfAction::Multipath(m) => needs(at, state, m.dst.field),
        OfAction::Bundle(b) => b.dst.map_or(Ok(()), |dst| needs(at, state, dst.field)),
        OfAction::Learn(learn) => learned(learn, at, state),
        OfAction::Clone(actions) | OfAction::WriteActions(actions) => list(actions, at, state, table),
        OfAction::Conntrack(ct) => conntrack(ct, at, state, table),
        OfAction::Resubmit { with_ct_orig: true, .. } if !state.satisfies(Prereq::CtValid) => {
            Err(at.conflict("resubmit with ct", Prereq::CtValid.remedy()))
        }
        OfAction::GotoTable(to) if *to <= table => {
            Err(at.conflict(format!("goto_table:{to} in table {table}"), format!("a table above {table}")))
        }
        _ => headers(action, at, state),
    }
}

/// What actions do to the headers, as far as prerequisites of later actions depend on it.
fn headers(action: &OfAction, at: Piece<'_>, state: &mut Match) -> Result<(), SyntaxError> {
    match action {
        OfAction::SetVlanVid { .. } | OfAction::SetVlanPcp { .. } => set_tag(state, true),
        OfAction::PushVlan { .. } => {
            if state.key.number(layout::VLAN1_TCI) & 0x1000 != 0 {
                return Err(at.conflict("push_vlan of a third tag", "at most two tags"));
            }
            let outer = state.key.number(layout::VLAN0_TCI);
            state.key.set_number(layout::VLAN1_TCI, outer);
            set_tag(state, true);
        }
        OfAction::StripVlan | OfAction::PopVlan => {
            let inner = state.key.number(layout::VLAN1_TCI);
            state.key.set_number(layout::VLAN0_TCI, inner);
            state.key.set_number(layout::VLAN1_TCI, 0);
        }
        OfAction::PushMpls { ethertype } => {
            state.set(FieldId::EthType, u128::from(*ethertype));
            Place::whole(layout::NW_PROTO).write(&mut state.key, 0);
            Place::whole(layout::NW_PROTO).write(&mut state.mask, 0);
        }
        OfAction::PopMpls { ethertype } => state.set(FieldId::EthType, u128::from(*ethertype)),
        OfAction::Encap { packet_type, .. } => state.set(FieldId::PacketType, u128::from(*packet_type)),
        OfAction::Decap { .. } => {
            let dl_type = state.dl_type().filter(|_| state.is_ethernet()).unwrap_or(0xffff);
            state.set(FieldId::PacketType, u128::from(0x1_0000 | dl_type));
        }
        _ => {}
    }
    Ok(())
}

fn set_tag(state: &mut Match, present: bool) {
    Place { span: layout::VLAN0_TCI, lsb: 12, n_bits: 1 }.write(&mut state.key, u128::from(present));
}

fn learned(learn: &crate::ofpact::Learn, at: Piece<'_>, state: &Match) -> Result<(), SyntaxError> {
    let mut target = Match::ANY;
    for spec in &learn.specs {
        if let LearnSource::Field(src) = spec.source {
            needs(at, state, src.field)?;
        }
        match spec.target {
            LearnTarget::Match(dst) => {
                needs(at, &target, dst.field)?;
                if let LearnSource::Value(value) = spec.source {
                    let SubField { field, start, .. } = dst;
                    target.set_masked(field, value << start, dst.mask());
                }
            }
            LearnTarget::Load(dst) => needs(at, &target, dst.field)?,
            LearnTarget::Output => {}
        }
    }
    Ok(())
}

fn conntrack(ct: &crate::ofpact::Conntrack, at: Piece<'_>, state: &Match, table: u8) -> Result<(), SyntaxError> {
    let wrong = |needs: &str| Err(at.conflict(format!("ct where the match does not say {needs}"), needs.to_owned()));
    if !state.satisfies(Prereq::IpAny) {
        return wrong("ip or ipv6");
    }
    match ct.alg {
        21 if !state.satisfies(Prereq::Tcp) => return wrong("tcp, for alg=ftp"),
        69 if !state.satisfies(Prereq::Udp) => return wrong("udp, for alg=tftp"),
        _ => {}
    }
    if let ConntrackZone::Field(zone) = ct.zone {
        needs(at, state, zone.field)?;
    }
    for action in &ct.actions {
        if let OfAction::Nat(nat) = action {
            match nat.addresses {
                Some(NatAddresses::V4(..)) if !state.satisfies(Prereq::Ipv4) => return wrong("ip, for an IPv4 nat"),
                Some(NatAddresses::V6(..)) if !state.satisfies(Prereq::Ipv6) => return wrong("ipv6, for an IPv6 nat"),
                _ => {}
            }
        }
    }
    list(&ct.actions, at, state, table)
}
