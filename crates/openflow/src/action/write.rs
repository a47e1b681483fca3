//! Writing actions, in the format that a version has for them.
//!
//! Actions that a version lacks (a meter in OpenFlow 1.0) are left out, as in Open vSwitch.

use super::{EXPERIMENTER, declared, large, nested, put_bits_and_field};
use crate::Version::{self, V10, V11, V15};
use crate::oxm::{Numbering, is_whole_option, put_entry, put_field_header, put_option};
use crate::wire::Writer;
use sluice_flow::field::{Field, FieldId, ones};
use sluice_flow::{Mac, OfPort, SubField, Wide};
use sluice_ofp::OfAction;
use sluice_ofp::ofpact::{ActionId, ActionType, SetOption, Value, vendor};
use sluice_packet::headers::ethertype;
use std::net::Ipv4Addr;

/// Writes actions one after the other.
pub(crate) fn put_list(actions: &[OfAction], version: Version, w: &mut Writer) {
    actions.iter().for_each(|action| put(action, version, w));
}

/// Writes one action in one of its formats: header, what `body` writes, zeros up to a multiple of 8 bytes. Nothing if
/// the version lacks it.
fn put_format(action: ActionId, format: u8, version: Version, w: &mut Writer, body: impl FnOnce(&mut Writer, usize)) {
    let Some(code) = action.row().code(format, version) else { return };
    let start = w.len();
    if code.vendor == vendor::STANDARD {
        w.u16(code.number);
        w.u16(0);
    } else {
        w.u16(EXPERIMENTER);
        w.u16(0);
        w.u32(code.vendor);
        w.u16(code.number);
    }
    body(w, start);
    w.pad8(start);
    w.patch_u16(start + 2, w.len() - start);
}

/// Writes one action in its first format.
fn put_first(action: ActionId, version: Version, w: &mut Writer, body: impl FnOnce(&mut Writer)) {
    put_format(action, 0, version, w, |w, _| body(w));
}

/// Writes an action whose row declares its arguments. Where the version has no number for it, or a deprecated one, that
/// is a `set_field` if it sets a field, else nothing.
fn put_declared(action: &OfAction, version: Version, w: &mut Writer) {
    let (id, values) = action.parts();
    let row: &ActionType = id.row();
    match (row.code(0, version), row.sets, values.0[0]) {
        (None, Some(field), Value::Number(number)) => {
            let number = if field == FieldId::IpDscpShifted { number >> 2 } else { number };
            set(field, number.into(), version, w);
        }
        _ => put_format(id, 0, version, w, |w, start| declared::put(row, &values, start, w)),
    }
}

fn put(action: &OfAction, version: Version, w: &mut Writer) {
    let first = |id, w: &mut Writer, body: &mut dyn FnMut(&mut Writer)| put_first(id, version, w, body);
    match action {
        OfAction::Output { port, max_len } => put_output(*port, *max_len, version, w),
        OfAction::OutputTrunc { port, max_len } => first(ActionId::OutputTrunc, w, &mut |w| {
            w.u16(port.0);
            w.u32(*max_len);
        }),
        OfAction::OutputReg { src, max_len } => put_output_reg(*src, *max_len, version, w),
        OfAction::Controller(c) => {
            let format = large::needs_controller2(c).into();
            put_format(ActionId::Controller, format, version, w, |w, _| large::put_controller(c, w));
        }
        OfAction::Enqueue { port, queue } => put_enqueue(*port, *queue, version, w),
        OfAction::Bundle(b) => {
            let id = if b.dst.is_some() { ActionId::BundleLoad } else { ActionId::Bundle };
            first(id, w, &mut |w| large::put_bundle(b, w));
        }
        OfAction::SetField { field, value, mask } => put_set_field(field.field(), *value, *mask, version, w),
        OfAction::SetOption(set) => put_set_option(set, version, w),
        OfAction::Load { dst, value } => put_load(*dst, *value, version, w),
        OfAction::Move { src, dst } => put_move(*src, *dst, version, w),
        OfAction::SetVlanVid { vid, push_if_needed } => put_vlan_vid(*vid, *push_if_needed, version, w),
        OfAction::SetVlanPcp { pcp, push_if_needed } => put_vlan_pcp(*pcp, *push_if_needed, version, w),
        OfAction::StripVlan | OfAction::PopVlan => put_pop_vlan(version, w),
        OfAction::DecTtl { controllers, .. } => put_dec_ttl(controllers, version, w),
        OfAction::SetTunnel { id, wide: false } if version < Version::V12 && *id > u64::from(u32::MAX) => {
            put_declared(&OfAction::SetTunnel { id: *id, wide: true }, version, w);
        }
        OfAction::FinTimeout { idle, hard } => first(ActionId::FinTimeout, w, &mut |w| {
            w.u16(*idle);
            w.u16(*hard);
        }),
        OfAction::Resubmit { port, table, with_ct_orig } => put_resubmit(*port, *table, *with_ct_orig, version, w),
        OfAction::Learn(learn) => {
            let format = large::needs_learn2(learn).into();
            put_format(ActionId::Learn, format, version, w, |w, _| large::put_learn(learn, w));
        }
        OfAction::Conjunction { id, clause, n_clauses } => first(ActionId::Conjunction, w, &mut |w| {
            w.u8(*clause);
            w.u8(*n_clauses);
            w.u32(*id);
        }),
        OfAction::Multipath(m) => first(ActionId::Multipath, w, &mut |w| large::put_multipath(m, w)),
        OfAction::Note(bytes) => first(ActionId::Note, w, &mut |w| w.put(bytes)),
        OfAction::Sample(s) => {
            put_format(ActionId::Sample, large::sample_format(s), version, w, |w, _| large::put_sample(s, w));
        }
        OfAction::StackPush(sub) => put_stack(ActionId::StackPush, *sub, version, w),
        OfAction::StackPop(sub) => put_stack(ActionId::StackPop, *sub, version, w),
        OfAction::DeleteField(field) => first(ActionId::DeleteField, w, &mut |w| {
            let start = w.len();
            put_field_header(*field, Numbering::Nxm, w);
            w.zeros(start + 14 - w.len());
        }),
        OfAction::WriteMetadata { metadata, mask } => first(ActionId::WriteMetadata, w, &mut |w| {
            w.zeros(6);
            w.u64(*metadata);
            w.u64(*mask);
        }),
        OfAction::GotoTable(table) if version == V10 => put_resubmit(OfPort::IN_PORT, Some(*table), false, version, w),
        OfAction::Clone(_) | OfAction::Conntrack(_) | OfAction::Nat(_) => put_nested(action, version, w),
        OfAction::Encap { .. } | OfAction::Decap { .. } => put_encapsulation(action, version, w),
        _ => put_declared(action, version, w),
    }
}

/// Actions that have others within them, and `nat`, which is within `ct`.
fn put_nested(action: &OfAction, version: Version, w: &mut Writer) {
    let (id, _) = action.parts();
    put_first(id, version, w, |w| match action {
        OfAction::Conntrack(ct) => {
            nested::put_ct(ct, w);
            put_list(&ct.actions, version, w);
        }
        OfAction::Nat(nat) => nested::put_nat(nat, w),
        other => {
            w.zeros(6);
            put_list(other.nested(), version, w);
        }
    });
}

fn put_encapsulation(action: &OfAction, version: Version, w: &mut Writer) {
    let (id, _) = action.parts();
    put_first(id, version, w, |w| match action {
        OfAction::Encap { packet_type, properties } => nested::put_encap(*packet_type, properties, w),
        OfAction::Decap { packet_type } => {
            w.zeros(2);
            w.u32(packet_type.unwrap_or(nested::NEXT_PROTOCOL));
        }
        _ => {}
    });
}

/// One action under two names, of which each version has one.
fn put_pop_vlan(version: Version, w: &mut Writer) {
    let action = if version == V10 { OfAction::StripVlan } else { OfAction::PopVlan };
    put_declared(&action, version, w);
}

fn put_dec_ttl(controllers: &[u16], version: Version, w: &mut Writer) {
    if controllers == [0] {
        return put_first(ActionId::DecTtl, version, w, |_| {});
    }
    put_format(ActionId::DecTtl, 1, version, w, |w, _| {
        w.u16(controllers.len() as u16);
        w.zeros(4);
        controllers.iter().for_each(|id| w.u16(*id));
    });
}

fn put_output(port: OfPort, max_len: u16, version: Version, w: &mut Writer) {
    if version == V10 {
        return put_first(ActionId::Output, version, w, |w| {
            w.u16(port.0);
            w.u16(max_len);
        });
    }
    put_format(ActionId::Output, 1, version, w, |w, _| {
        w.u32(port.to_of11());
        w.u16(max_len);
    });
}

/// From OpenFlow 1.1 on it takes three actions.
fn put_enqueue(port: OfPort, queue: u32, version: Version, w: &mut Writer) {
    if version == V10 {
        return put_first(ActionId::Enqueue, version, w, |w| {
            w.u16(port.0);
            w.zeros(6);
            w.u32(queue);
        });
    }
    put_declared(&OfAction::SetQueue(queue), version, w);
    put_output(port, u16::MAX, version, w);
    put_declared(&OfAction::PopQueue, version, w);
}

/// `set_field` of a whole field, before OpenFlow 1.2 a `load`.
fn set(field: FieldId, value: u128, version: Version, w: &mut Writer) {
    if version < Version::V12 {
        return put_load(SubField::whole(field), value, version, w);
    }
    put_first(ActionId::SetField, version, w, |w| put_entry(field.field(), value, None, Numbering::Oxm(version), w));
}

/// OpenFlow 1.0's action adds a tag where there is none; later that takes an action of its own.
fn put_vlan_vid(vid: u16, push: bool, version: Version, w: &mut Writer) {
    if version == V10 {
        return put_declared(&OfAction::SetVlanVid { vid, push_if_needed: true }, version, w);
    }
    if push {
        put_declared(&OfAction::PushVlan { tpid: ethertype::VLAN }, version, w);
    }
    if version == V11 {
        return put_declared(&OfAction::SetVlanVid { vid, push_if_needed: false }, version, w);
    }
    set(FieldId::VlanVid, u128::from(vid | 0x1000), version, w);
}

fn put_vlan_pcp(pcp: u8, push: bool, version: Version, w: &mut Writer) {
    if version == V10 {
        return put_declared(&OfAction::SetVlanPcp { pcp, push_if_needed: true }, version, w);
    }
    if push {
        put_declared(&OfAction::PushVlan { tpid: ethertype::VLAN }, version, w);
    }
    if version == V11 {
        return put_declared(&OfAction::SetVlanPcp { pcp, push_if_needed: false }, version, w);
    }
    set(FieldId::VlanPcp, pcp.into(), version, w);
}

/// OpenFlow 1.5 has `set_field` with masks; before, a part of a field is Nicira's `load`, and OpenFlow 1.0 and 1.1 have
/// actions of their own for some fields.
fn put_set_field(field: &'static Field, value: u128, mask: u128, version: Version, w: &mut Writer) {
    let exact = mask & field.all_ones() == field.all_ones();
    match version {
        V15 => {
            let mask = (!exact).then_some(mask);
            put_first(ActionId::SetField, version, w, |w| put_entry(field, value, mask, Numbering::Oxm(version), w));
        }
        V10 | V11 => put_set_field_legacy(field, value, mask, version, w),
        _ if exact => {
            put_first(ActionId::SetField, version, w, |w| put_entry(field, value, None, Numbering::Oxm(version), w));
        }
        _ => put_loads(field, value, mask, version, w),
    }
}

/// The same of a tunnel's option.
fn put_set_option(set: &SetOption, version: Version, w: &mut Writer) {
    let field = set.field.field();
    let is_whole = is_whole_option(field, set.mask, w);
    if version >= Version::V12 && (is_whole || version == V15) {
        let mask = (!is_whole).then_some(set.mask);
        return put_first(ActionId::SetField, version, w, |w| {
            put_option(field, set.value, mask, Numbering::Oxm(version), w);
        });
    }
    let mut start = 0;
    while !set.mask.shr(start).is_zero() {
        let rest = set.mask.shr(start).low() as u64;
        if rest == 0 {
            start += u64::BITS;
            continue;
        }
        start += rest.trailing_zeros();
        let n_bits = (set.mask.shr(start).low() as u64).trailing_ones().min(field.n_bits - start);
        let value = set.value.shr(start).low() & ones(n_bits);
        put_load(SubField { field: field.id, start, n_bits }, value, version, w);
        start += n_bits;
    }
}

fn put_set_field_legacy(field: &'static Field, value: u128, mask: u128, version: Version, w: &mut Writer) {
    let is10 = version == V10;
    let vid = OfAction::SetVlanVid { vid: value as u16 & 0xfff, push_if_needed: is10 };
    let pcp = |pcp| OfAction::SetVlanPcp { pcp, push_if_needed: is10 };
    let action = match field.id {
        FieldId::VlanTci if value & 0x1000 != 0 => {
            // OpenFlow 1.1's actions leave a packet without a tag alone.
            if !is10 {
                put_declared(&OfAction::PushVlan { tpid: ethertype::VLAN }, version, w);
            }
            put_declared(&vid, version, w);
            pcp((value >> 13) as u8 & 7)
        }
        FieldId::VlanTci => return put_pop_vlan(version, w),
        FieldId::VlanVid | FieldId::DlVlan => vid,
        FieldId::VlanPcp | FieldId::DlVlanPcp => pcp(value as u8),
        FieldId::EthSrc => OfAction::ModDlSrc(Mac::from_number(value)),
        FieldId::EthDst => OfAction::ModDlDst(Mac::from_number(value)),
        FieldId::Ipv4Src => OfAction::ModNwSrc(Ipv4Addr::from_bits(value as u32)),
        FieldId::Ipv4Dst => OfAction::ModNwDst(Ipv4Addr::from_bits(value as u32)),
        FieldId::IpDscp => OfAction::ModNwTos(value as u8),
        FieldId::IpDscpShifted => OfAction::ModNwTos((value as u8) << 2),
        FieldId::IpEcn => OfAction::ModNwEcn(value as u8),
        FieldId::TcpSrc | FieldId::UdpSrc => OfAction::ModTpSrc(value as u16),
        FieldId::TcpDst | FieldId::UdpDst => OfAction::ModTpDst(value as u16),
        _ => return put_loads(field, value, mask, version, w),
    };
    put_declared(&action, version, w);
}

/// A load for every run of ones of the mask, 64 bits at most each; what has only an experimenter's number takes the
/// longer form.
fn put_loads(field: &'static Field, value: u128, mask: u128, version: Version, w: &mut Writer) {
    if large::needs_long_header(field.id) {
        let partly = (mask & field.all_ones() != field.all_ones()).then_some(mask);
        return put_format(ActionId::SetField, 1, version, w, |w, _| {
            put_entry(field, value, partly, Numbering::Nxm, w);
        });
    }
    let mut start = 0;
    while start < field.n_bits {
        let rest = mask >> start & ones(field.n_bits - start);
        if rest == 0 {
            return;
        }
        start += rest.trailing_zeros();
        let n_bits = (mask >> start).trailing_ones().min(64).min(field.n_bits - start);
        put_load(SubField { field: field.id, start, n_bits }, value >> start & ones(n_bits), version, w);
        start += n_bits;
    }
}

fn put_load(dst: SubField, value: u128, version: Version, w: &mut Writer) {
    let field = dst.field.field();
    if version == V15 || large::needs_long_header(dst.field) {
        let (format, numbering) = if version == V15 { (0, Numbering::Oxm(version)) } else { (1, Numbering::Nxm) };
        let is_whole = dst.is_whole();
        return put_format(ActionId::SetField, format, version, w, |w, _| {
            if field.is_wide() {
                let mask = (!is_whole).then(|| dst.mask_wide());
                return put_option(field, Wide::from(value).shl(dst.start), mask, numbering, w);
            }
            put_entry(field, value << dst.start, (!is_whole).then(|| dst.mask()), numbering, w);
        });
    }
    put_first(ActionId::Load, version, w, |w| {
        put_bits_and_field(dst, w);
        w.u64(value as u64);
    });
}

fn put_move(src: SubField, dst: SubField, version: Version, w: &mut Writer) {
    let format = if version == V15 { 2 } else { 0 };
    put_format(ActionId::Move, format, version, w, |w, _| {
        w.u16(dst.n_bits as u16);
        w.u16(src.start as u16);
        w.u16(dst.start as u16);
        let numbering = if version == V15 {
            w.zeros(2);
            Numbering::Oxm(version)
        } else {
            Numbering::Nxm
        };
        put_field_header(src.field, numbering, w);
        put_field_header(dst.field, numbering, w);
    });
}

fn put_output_reg(src: SubField, max_len: u16, version: Version, w: &mut Writer) {
    if large::needs_long_header(src.field) {
        return put_format(ActionId::OutputReg, 1, version, w, |w, _| {
            w.u16(super::bits_of(src));
            w.u16(max_len);
            put_field_header(src.field, Numbering::Nxm, w);
        });
    }
    put_first(ActionId::OutputReg, version, w, |w| {
        put_bits_and_field(src, w);
        w.u16(max_len);
    });
}

fn put_resubmit(port: OfPort, table: Option<u8>, with_ct: bool, version: Version, w: &mut Writer) {
    let format = match table {
        None if !with_ct => 0,
        _ if !with_ct => 1,
        _ => 2,
    };
    put_format(ActionId::Resubmit, format, version, w, |w, _| {
        w.u16(port.0);
        if format != 0 {
            w.u8(table.unwrap_or(255));
        }
    });
}

fn put_stack(action: ActionId, sub: SubField, version: Version, w: &mut Writer) {
    put_first(action, version, w, |w| {
        w.u16(sub.start as u16);
        let start = w.len();
        put_field_header(sub.field, Numbering::Nxm, w);
        w.u16(sub.n_bits as u16);
        w.zeros(start + 12 - w.len());
    });
}

/// Whether a version's flow-mods have it as an instruction of its own and not as an action.
pub(crate) fn is_instruction(action: &OfAction, version: Version) -> bool {
    action.action_type().instruction.is_in(version)
}

/// Whether a version has an action, and all actions in it, in lists of actions.
pub(crate) fn can_say(action: &OfAction, version: Version) -> bool {
    let mut w = Writer::default();
    put(action, version, &mut w);
    let nested = match action {
        OfAction::Clone(nested) => &nested[..],
        _ => &[],
    };
    w.len() != 0 && !is_instruction(action, version) && nested.iter().all(|action| can_say(action, version))
}

#[cfg(test)]
mod tests;
