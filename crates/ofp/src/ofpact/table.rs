//! The actions that there are: each declared once, for text, wire and consistency checks.
//!
//! What an action does is in the crate `ofproto`. Actions whose arguments are lists, options or other actions declare
//! here what they can, and have code for the rest: their text in `ofp/src/text`, their wire format in
//! `openflow/src/action`. Source: the OpenFlow specifications, `ovs-actions(7)`, and Open vSwitch 3.1, `ofp-actions.c`.

use super::action_type::{ActionType, Arg, Code, Instruction, Number, Show, Text, vendor};
use super::{OfAction, Values};
use crate::Version::{self, V10, V11, V12, V13, V14, V15};
use sluice_flow::field::Prereq;
use sluice_flow::{FieldId, Mac};
use sluice_packet::headers::ethertype;
use std::net::Ipv4Addr;

/// An action of OpenFlow or of Nicira's extensions to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the table has name and arguments of each; docs/flow-language.md explains them")]
#[repr(u8)]
pub enum ActionId {
    Output,
    ModVlanVid,
    SetVlanVid,
    ModVlanPcp,
    SetVlanPcp,
    PushVlan,
    StripVlan,
    PopVlan,
    ModDlSrc,
    ModDlDst,
    ModNwSrc,
    ModNwDst,
    ModNwTos,
    ModNwEcn,
    ModTpSrc,
    ModTpDst,
    Enqueue,
    SetMplsLabel,
    SetMplsTc,
    SetMplsTtl,
    DecMplsTtl,
    PushMpls,
    PopMpls,
    SetQueue,
    Group,
    ModNwTtl,
    DecTtl,
    SetField,
    Load,
    Move,
    Meter,
    Resubmit,
    SetTunnel,
    SetTunnel64,
    PopQueue,
    Note,
    Multipath,
    Bundle,
    BundleLoad,
    OutputReg,
    Learn,
    Exit,
    FinTimeout,
    Controller,
    WriteMetadata,
    StackPush,
    StackPop,
    Sample,
    Conjunction,
    Conntrack,
    Nat,
    OutputTrunc,
    Clone,
    CtClear,
    DebugRecirc,
    DebugSlow,
    Encap,
    Decap,
    DecNshTtl,
    CheckPktLarger,
    DeleteField,
    ClearActions,
    WriteActions,
    GotoTable,
}

use ActionId as Id;

/// A number of the standard's.
const fn of(from: Version, to: Version, number: u16) -> Code {
    Code { vendor: vendor::STANDARD, from, to, number, format: 0, written: true }
}

/// A number of Nicira's.
const fn nx(from: Version, to: Version, number: u16) -> Code {
    Code { vendor: vendor::NICIRA, from, to, number, format: 0, written: true }
}

/// A number of the ONF's.
const fn onf(from: Version, to: Version, number: u16) -> Code {
    Code { vendor: vendor::ONF, from, to, number, format: 0, written: true }
}

impl Code {
    /// The number of another of the action's formats.
    const fn format(self, format: u8) -> Code {
        Code { format, ..self }
    }

    /// Deprecated: `set_field` is written instead.
    const fn read_only(self) -> Code {
        Code { written: false, ..self }
    }
}

/// An action whose arguments code reads and writes.
const fn action(id: Id, names: &'static [&'static str], codes: &'static [Code]) -> ActionType {
    ActionType {
        id,
        names,
        codes,
        text: Text::Own,
        args: &[],
        make: None,
        sets: None,
        instruction: Instruction::Apply,
        in_action_set: true,
        prereqs: &[],
    }
}

impl ActionType {
    /// Declares the text, the arguments and what they make.
    const fn args(self, text: Text, args: &'static [Arg], make: fn(&Values) -> OfAction) -> ActionType {
        ActionType { text, args, make: Some(make), ..self }
    }

    const fn sets(self, field: FieldId) -> ActionType {
        ActionType { sets: Some(field), ..self }
    }

    const fn instruction(self, instruction: Instruction) -> ActionType {
        ActionType { instruction, ..self }
    }

    const fn not_in_action_set(self) -> ActionType {
        ActionType { in_action_set: false, ..self }
    }

    const fn needs(self, prereqs: &'static [Prereq]) -> ActionType {
        ActionType { prereqs, ..self }
    }
}

const PORTS: &[Prereq] = &[Prereq::Tcp, Prereq::Udp, Prereq::Sctp];
const VLAN_TYPES: &[u16] = &[ethertype::VLAN, ethertype::QINQ];
const MPLS_TYPES: &[u16] = &[ethertype::MPLS, ethertype::MPLS_MULTICAST];
const ETHERTYPE: Arg = Arg::Number(Number { n_bits: 16, n_bytes: 2, show: Show::HexadecimalWord, is_cut: false });
/// The key of a tunnel, of which `set_tunnel` has 32 bits on the wire.
const NARROW_TUNNEL_ID: Arg = Arg::Number(Number { n_bits: 64, n_bytes: 4, show: Show::Hexadecimal, is_cut: false });

/// The table, in the order of [`ActionId`].
pub static ACTIONS: [ActionType; ActionId::GotoTable as usize + 1] = [
    action(Id::Output, &["output", "in_port"], &[of(V10, V10, 0), of(V11, V15, 0).format(1)]),
    action(Id::ModVlanVid, &["mod_vlan_vid"], &[of(V10, V10, 1)])
        .args(Text::Colon, &[Arg::number(12)], |v| OfAction::SetVlanVid { vid: v.u16(0), push_if_needed: true }),
    action(Id::SetVlanVid, &["set_vlan_vid"], &[of(V11, V11, 1), of(V12, V15, 1).read_only()])
        .args(Text::Colon, &[Arg::number(12)], |v| OfAction::SetVlanVid { vid: v.u16(0), push_if_needed: false })
        .needs(&[Prereq::VlanVid]),
    action(Id::ModVlanPcp, &["mod_vlan_pcp"], &[of(V10, V10, 2)])
        .args(Text::Colon, &[Arg::number(3)], |v| OfAction::SetVlanPcp { pcp: v.u8(0), push_if_needed: true }),
    action(Id::SetVlanPcp, &["set_vlan_pcp"], &[of(V11, V11, 2), of(V12, V15, 2).read_only()])
        .args(Text::Colon, &[Arg::number(3)], |v| OfAction::SetVlanPcp { pcp: v.u8(0), push_if_needed: false })
        .needs(&[Prereq::VlanVid]),
    action(Id::PushVlan, &["push_vlan"], &[of(V11, V15, 17)])
        .args(Text::Colon, &[Arg::EtherType(VLAN_TYPES)], |v| OfAction::PushVlan { tpid: v.u16(0) }),
    action(Id::StripVlan, &["strip_vlan"], &[of(V10, V10, 3)])
        .args(Text::Word, &[], |_| OfAction::StripVlan)
        .needs(&[Prereq::VlanVid]),
    action(Id::PopVlan, &["pop_vlan"], &[of(V11, V15, 18)])
        .args(Text::Word, &[], |_| OfAction::PopVlan)
        .needs(&[Prereq::VlanVid]),
    action(Id::ModDlSrc, &["mod_dl_src"], &[of(V10, V10, 4), of(V11, V11, 3), of(V12, V15, 3).read_only()])
        .args(Text::Colon, &[Arg::Mac], |v| OfAction::ModDlSrc(Mac::from_number(v.u64(0).into())))
        .sets(FieldId::EthSrc),
    action(Id::ModDlDst, &["mod_dl_dst"], &[of(V10, V10, 5), of(V11, V11, 4), of(V12, V15, 4).read_only()])
        .args(Text::Colon, &[Arg::Mac], |v| OfAction::ModDlDst(Mac::from_number(v.u64(0).into())))
        .sets(FieldId::EthDst),
    action(Id::ModNwSrc, &["mod_nw_src"], &[of(V10, V10, 6), of(V11, V11, 5), of(V12, V15, 5).read_only()])
        .args(Text::Colon, &[Arg::Ipv4], |v| OfAction::ModNwSrc(Ipv4Addr::from_bits(v.u32(0))))
        .sets(FieldId::Ipv4Src)
        .needs(&[Prereq::Ipv4]),
    action(Id::ModNwDst, &["mod_nw_dst"], &[of(V10, V10, 7), of(V11, V11, 6), of(V12, V15, 6).read_only()])
        .args(Text::Colon, &[Arg::Ipv4], |v| OfAction::ModNwDst(Ipv4Addr::from_bits(v.u32(0))))
        .sets(FieldId::Ipv4Dst)
        .needs(&[Prereq::Ipv4]),
    action(Id::ModNwTos, &["mod_nw_tos"], &[of(V10, V10, 8), of(V11, V11, 7), of(V12, V15, 7).read_only()])
        .args(Text::Colon, &[Arg::Tos], |v| OfAction::ModNwTos(v.u8(0)))
        .sets(FieldId::IpDscpShifted)
        .needs(&[Prereq::IpAny]),
    action(Id::ModNwEcn, &["mod_nw_ecn"], &[of(V11, V11, 8), of(V12, V15, 8).read_only()])
        .args(Text::Colon, &[Arg::number(2)], |v| OfAction::ModNwEcn(v.u8(0)))
        .sets(FieldId::IpEcn)
        .needs(&[Prereq::IpAny]),
    // Which protocol's port is meant, only the match knows; the deprecated numbers need not know it.
    action(Id::ModTpSrc, &["mod_tp_src"], &[of(V10, V15, 9)])
        .args(Text::Colon, &[Arg::number(16)], |v| OfAction::ModTpSrc(v.u16(0)))
        .needs(PORTS),
    action(Id::ModTpDst, &["mod_tp_dst"], &[of(V10, V15, 10)])
        .args(Text::Colon, &[Arg::number(16)], |v| OfAction::ModTpDst(v.u16(0)))
        .needs(PORTS),
    action(Id::Enqueue, &["enqueue"], &[of(V10, V10, 11)]).not_in_action_set(),
    action(Id::SetMplsLabel, &["set_mpls_label"], &[nx(V10, V10, 30), of(V11, V11, 13), of(V12, V15, 13).read_only()])
        .args(Text::Parentheses, &[Arg::cut(20, 4)], |v| OfAction::SetMplsLabel(v.u32(0)))
        .sets(FieldId::MplsLabel)
        .needs(&[Prereq::Mpls]),
    action(Id::SetMplsTc, &["set_mpls_tc"], &[nx(V10, V10, 31), of(V11, V11, 14), of(V12, V15, 14).read_only()])
        .args(Text::Parentheses, &[Arg::cut(3, 1)], |v| OfAction::SetMplsTc(v.u8(0)))
        .sets(FieldId::MplsTc)
        .needs(&[Prereq::Mpls]),
    action(Id::SetMplsTtl, &["set_mpls_ttl"], &[nx(V10, V10, 25), of(V11, V15, 15)])
        .args(Text::Parentheses, &[Arg::number(8)], |v| OfAction::SetMplsTtl(v.u8(0)))
        .needs(&[Prereq::Mpls]),
    action(Id::DecMplsTtl, &["dec_mpls_ttl"], &[nx(V10, V10, 26), of(V11, V15, 16)])
        .args(Text::Word, &[], |_| OfAction::DecMplsTtl)
        .needs(&[Prereq::Mpls]),
    action(Id::PushMpls, &["push_mpls"], &[nx(V10, V10, 23), of(V11, V15, 19)])
        .args(Text::Colon, &[Arg::EtherType(MPLS_TYPES)], |v| OfAction::PushMpls { ethertype: v.u16(0) })
        .needs(&[Prereq::Ethernet]),
    action(Id::PopMpls, &["pop_mpls"], &[nx(V10, V10, 24), of(V11, V15, 20)])
        .args(Text::Colon, &[ETHERTYPE], |v| OfAction::PopMpls { ethertype: v.u16(0) })
        .needs(&[Prereq::Mpls]),
    action(Id::SetQueue, &["set_queue"], &[nx(V10, V10, 4), of(V11, V15, 21)]).args(
        Text::Colon,
        &[Arg::number(32)],
        |v| OfAction::SetQueue(v.u32(0)),
    ),
    action(Id::Group, &["group"], &[nx(V10, V10, 40), of(V11, V15, 22)])
        .args(Text::Colon, &[Arg::number(32)], |v| OfAction::Group(v.u32(0))),
    action(Id::ModNwTtl, &["mod_nw_ttl", "set_nw_ttl"], &[of(V11, V15, 23)])
        .args(Text::Colon, &[Arg::number(8)], |v| OfAction::ModNwTtl(v.u8(0)))
        .sets(FieldId::IpTtl)
        .needs(&[Prereq::IpAny]),
    action(Id::DecTtl, &["dec_ttl"], &[nx(V10, V10, 18), of(V11, V15, 24), nx(V10, V15, 21).format(1)])
        .needs(&[Prereq::IpAny]),
    action(Id::SetField, &["set_field"], &[of(V12, V15, 25), nx(V10, V14, 33).format(1)]),
    action(Id::Load, &["load"], &[nx(V10, V14, 7)]),
    action(Id::Move, &["move"], &[of(V15, V15, 28).format(2), onf(V13, V14, 3200).format(1), nx(V10, V14, 6)]),
    action(Id::Meter, &["meter"], &[of(V15, V15, 29)])
        .args(Text::Colon, &[Arg::number(32)], |v| OfAction::Meter(v.u32(0)))
        .instruction(Instruction::Meter),
    action(Id::Resubmit, &["resubmit"], &[nx(V10, V15, 1), nx(V10, V15, 14).format(1), nx(V10, V15, 44).format(2)]),
    action(Id::SetTunnel, &["set_tunnel"], &[nx(V10, V11, 2), nx(V12, V15, 2).read_only()])
        .args(Text::Colon, &[NARROW_TUNNEL_ID], |v| OfAction::SetTunnel {
            id: v.u64(0),
            wide: v.u64(0) > u64::from(u32::MAX),
        })
        .sets(FieldId::TunId),
    action(Id::SetTunnel64, &["set_tunnel64"], &[nx(V10, V11, 9), nx(V12, V15, 9).read_only()])
        .args(Text::Colon, &[Arg::hexadecimal(64)], |v| OfAction::SetTunnel { id: v.u64(0), wide: true })
        .sets(FieldId::TunId),
    action(Id::PopQueue, &["pop_queue"], &[nx(V10, V15, 5)])
        .args(Text::Word, &[], |_| OfAction::PopQueue)
        .not_in_action_set(),
    action(Id::Note, &["note"], &[nx(V10, V15, 8)]).not_in_action_set(),
    action(Id::Multipath, &["multipath"], &[nx(V10, V15, 10)]).not_in_action_set(),
    action(Id::Bundle, &["bundle"], &[nx(V10, V15, 12)]).not_in_action_set(),
    action(Id::BundleLoad, &["bundle_load"], &[nx(V10, V15, 13)]).not_in_action_set(),
    action(Id::OutputReg, &[], &[nx(V10, V15, 15), nx(V10, V15, 32).format(1)]).not_in_action_set(),
    action(Id::Learn, &["learn"], &[nx(V10, V15, 16), nx(V10, V15, 45).format(1)]).not_in_action_set(),
    action(Id::Exit, &["exit"], &[nx(V10, V15, 17)]).args(Text::Word, &[], |_| OfAction::Exit).not_in_action_set(),
    action(Id::FinTimeout, &["fin_timeout"], &[nx(V10, V15, 19)]).not_in_action_set(),
    action(Id::Controller, &["controller"], &[nx(V10, V15, 20), nx(V10, V15, 37).format(1)]).not_in_action_set(),
    // From OpenFlow 1.1 on an instruction; the number is read all the same.
    action(Id::WriteMetadata, &["write_metadata"], &[nx(V10, V10, 22), nx(V11, V15, 22).read_only()])
        .instruction(Instruction::Metadata),
    action(Id::StackPush, &["push"], &[nx(V10, V15, 27)])
        .args(Text::Colon, &[Arg::Source], |v| OfAction::StackPush(v.subfield(0)))
        .not_in_action_set(),
    action(Id::StackPop, &["pop"], &[nx(V10, V15, 28)])
        .args(Text::Colon, &[Arg::Destination], |v| OfAction::StackPop(v.subfield(0)))
        .not_in_action_set(),
    action(Id::Sample, &["sample"], &[nx(V10, V15, 29), nx(V10, V15, 38).format(1), nx(V10, V15, 41).format(2)])
        .not_in_action_set(),
    action(Id::Conjunction, &["conjunction"], &[nx(V10, V15, 34)]).not_in_action_set(),
    action(Id::Conntrack, &["ct"], &[nx(V10, V15, 35)]),
    action(Id::Nat, &["nat"], &[nx(V10, V15, 36)]),
    action(Id::OutputTrunc, &[], &[nx(V10, V15, 39)]).not_in_action_set(),
    action(Id::Clone, &["clone"], &[nx(V10, V15, 42)]).not_in_action_set(),
    action(Id::CtClear, &["ct_clear"], &[nx(V10, V15, 43)]).args(Text::Word, &[], |_| OfAction::CtClear),
    action(Id::DebugRecirc, &["debug_recirc"], &[nx(V10, V15, 255)])
        .args(Text::Word, &[], |_| OfAction::DebugRecirc)
        .not_in_action_set(),
    action(Id::DebugSlow, &["debug_slow"], &[nx(V10, V15, 254)])
        .args(Text::Word, &[], |_| OfAction::DebugSlow)
        .not_in_action_set(),
    action(Id::Encap, &["encap"], &[nx(V13, V15, 46)]),
    action(Id::Decap, &["decap"], &[nx(V13, V15, 47)]),
    action(Id::DecNshTtl, &["dec_nsh_ttl"], &[nx(V13, V15, 48)])
        .args(Text::Word, &[], |_| OfAction::DecNshTtl)
        .needs(&[Prereq::Nsh]),
    action(Id::CheckPktLarger, &["check_pkt_larger"], &[nx(V10, V15, 49)])
        .args(Text::Arrow, &[Arg::number(16), Arg::Bit], |v| OfAction::CheckPktLarger {
            pkt_len: v.u16(0),
            dst: v.subfield(1),
        })
        .not_in_action_set(),
    action(Id::DeleteField, &["delete_field"], &[nx(V10, V15, 50)]).not_in_action_set(),
    action(Id::ClearActions, &["clear_actions"], &[])
        .args(Text::Word, &[], |_| OfAction::ClearActions)
        .instruction(Instruction::Clear),
    action(Id::WriteActions, &["write_actions"], &[]).instruction(Instruction::Write),
    action(Id::GotoTable, &["goto_table"], &[])
        .args(Text::Colon, &[Arg::Table], |v| OfAction::GotoTable(v.u8(0)))
        .instruction(Instruction::Goto),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ofpact::Value;
    use std::collections::BTreeSet;

    #[test]
    fn rows_stand_in_the_order_of_their_ids() {
        ACTIONS.iter().enumerate().for_each(|(i, row)| assert_eq!(row.id as usize, i, "{:?}", row.id));
    }

    #[test]
    fn a_name_means_one_action() {
        let names: Vec<_> = ACTIONS.iter().flat_map(|row| row.names).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        for name in names {
            assert!(ActionType::by_name(name).is_some_and(|row| row.names.contains(name)), "{name}");
        }
    }

    #[test]
    fn a_number_means_one_action() {
        for version in Version::SPOKEN {
            for row in &ACTIONS {
                for code in row.codes.iter().filter(|code| code.is_in(version)) {
                    let found = ActionType::by_code(code.vendor, code.number, version);
                    assert_eq!(found.map(|(row, format)| (row.id, format)), Some((row.id, code.format)));
                    assert!(!code.written || row.code(code.format, version) == Some(code), "{:?}", row.id);
                }
            }
        }
    }

    #[test]
    fn what_a_row_makes_is_its_action() {
        let bit = sluice_flow::SubField { field: FieldId::Reg0, start: 0, n_bits: 1 };
        for row in &ACTIONS {
            let Some(make) = row.make else { continue };
            let mut values = Values::NONE;
            for (value, arg) in values.0.iter_mut().zip(row.args) {
                *value = match arg {
                    Arg::Source | Arg::Destination | Arg::Bit => Value::Bits(bit),
                    _ => Value::Number(0),
                };
            }
            assert_eq!(make(&values).parts(), (row.id, values));
        }
    }
}
