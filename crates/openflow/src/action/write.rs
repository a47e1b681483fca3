//! Writing actions, in the form that a version has for them.
//!
//! What a version cannot say at all (a meter in OpenFlow 1.0) is left out, as Open vSwitch does.

use super::codes::{Form, number};
use super::{large, nested, put_bits_and_field};
use crate::Version::{self, V10, V13, V15};
use crate::oxm::{Numbering, put_entry, put_field_header};
use crate::wire::Writer;
use sluice_flow::field::{Field, FieldId, ones};
use sluice_flow::{OfPort, SubField};
use sluice_ofp::OfAction;

const EXPERIMENTER: u16 = 0xffff;

/// Writes actions one after the other.
pub(crate) fn put_list(actions: &[OfAction], version: Version, w: &mut Writer) {
    actions.iter().for_each(|action| put(action, version, w));
}

/// Writes one action: header, what `body` writes, zeros up to a multiple of 8 bytes. Nothing if the version lacks it.
fn put_form(form: Form, version: Version, w: &mut Writer, body: impl FnOnce(&mut Writer)) {
    let Some((vendor, number)) = number(form, version) else { return };
    let start = w.len();
    if vendor == 0 {
        w.u16(number);
        w.u16(0);
    } else {
        w.u16(EXPERIMENTER);
        w.u16(0);
        w.u32(vendor);
        w.u16(number);
    }
    body(w);
    w.pad8(start);
    w.patch_u16(start + 2, w.len() - start);
}

/// An action whose argument is a 32-bit number: Nicira's have two bytes before it.
fn put_u32(form: Form, version: Version, value: u32, w: &mut Writer) {
    let nicira = number(form, version).is_some_and(|(vendor, _)| vendor != 0);
    put_form(form, version, w, |w| {
        w.zeros(if nicira { 2 } else { 0 });
        w.u32(value);
    });
}

fn put_u16(form: Form, version: Version, value: u16, w: &mut Writer) {
    put_form(form, version, w, |w| w.u16(value));
}

fn put_u8(form: Form, version: Version, value: u8, w: &mut Writer) {
    put_form(form, version, w, |w| w.u8(value));
}

fn put_none(form: Form, version: Version, w: &mut Writer) {
    put_form(form, version, w, |_| {});
}

fn put(action: &OfAction, version: Version, w: &mut Writer) {
    match action {
        OfAction::Output { port, max_len } => put_output(*port, *max_len, version, w),
        OfAction::Enqueue { port, queue } => put_enqueue(*port, *queue, version, w),
        OfAction::Group(group) => put_u32(Form::Group, version, *group, w),
        OfAction::SetField { field, value, mask } => put_set_field(field.field(), *value, *mask, version, w),
        OfAction::Load { dst, value } => put_load(*dst, *value, version, w),
        OfAction::Move { src, dst } => put_move(*src, *dst, version, w),
        OfAction::SetVlanVid { vid, push_if_needed } => put_vlan_vid(*vid, *push_if_needed, version, w),
        OfAction::SetVlanPcp { pcp, push_if_needed } => put_vlan_pcp(*pcp, *push_if_needed, version, w),
        OfAction::StripVlan | OfAction::PopVlan if version == V10 => put_none(Form::StripVlan, version, w),
        OfAction::StripVlan | OfAction::PopVlan => put_none(Form::PopVlan, version, w),
        OfAction::PushVlan { tpid } => put_u16(Form::PushVlan, version, *tpid, w),
        OfAction::ModDlSrc(mac) => put_mac(Form::SetDlSrc, FieldId::EthSrc, mac.0, version, w),
        OfAction::ModDlDst(mac) => put_mac(Form::SetDlDst, FieldId::EthDst, mac.0, version, w),
        OfAction::ModNwSrc(ip) => put_or_set(Form::SetNwSrc, FieldId::Ipv4Src, u32::from(*ip), 4, version, w),
        OfAction::ModNwDst(ip) => put_or_set(Form::SetNwDst, FieldId::Ipv4Dst, u32::from(*ip), 4, version, w),
        OfAction::ModNwTos(tos) if version == V10 => put_u8(Form::SetNwTos, version, *tos, w),
        OfAction::ModNwTos(tos) => set(FieldId::IpDscpShifted, u128::from(tos >> 2), version, w),
        OfAction::ModNwEcn(ecn) => put_ecn(*ecn, version, w),
        OfAction::ModNwTtl(ttl) if version == V10 => {
            put_load(SubField::whole(FieldId::IpTtl), (*ttl).into(), version, w)
        }
        OfAction::ModNwTtl(ttl) => put_u8(Form::SetNwTtl, version, *ttl, w),
        // Which protocol's port is meant, only the match knows; the deprecated forms need not know it.
        OfAction::ModTpSrc(port) => put_u16(Form::SetTpSrc, version, *port, w),
        OfAction::ModTpDst(port) => put_u16(Form::SetTpDst, version, *port, w),
        OfAction::SetMplsLabel(label) => put_or_set(Form::SetMplsLabel, FieldId::MplsLabel, *label, 4, version, w),
        OfAction::SetMplsTc(tc) => put_or_set(Form::SetMplsTc, FieldId::MplsTc, (*tc).into(), 1, version, w),
        OfAction::SetMplsTtl(ttl) => put_u8(Form::SetMplsTtl, version, *ttl, w),
        OfAction::DecMplsTtl => put_none(Form::DecMplsTtl, version, w),
        OfAction::PushMpls { ethertype } => put_u16(Form::PushMpls, version, *ethertype, w),
        OfAction::PopMpls { ethertype } => put_u16(Form::PopMpls, version, *ethertype, w),
        OfAction::SetQueue(queue) => put_u32(Form::SetQueue, version, *queue, w),
        OfAction::SetTunnel { id, wide } => put_tunnel(*id, *wide, version, w),
        OfAction::Meter(meter) => put_u32(Form::Meter, version, *meter, w),
        _ => put_nicira(action, version, w),
    }
}

/// The actions that only Nicira has, and instructions that OpenFlow 1.0 writes as actions.
fn put_nicira(action: &OfAction, version: Version, w: &mut Writer) {
    let form = |form, w: &mut Writer, body: &mut dyn FnMut(&mut Writer)| put_form(form, version, w, body);
    match action {
        OfAction::OutputTrunc { port, max_len } => form(Form::OutputTrunc, w, &mut |w| {
            w.u16(port.0);
            w.u32(*max_len);
        }),
        OfAction::OutputReg { src, max_len } => put_output_reg(*src, *max_len, version, w),
        OfAction::Controller(c) if large::needs_controller2(c) => {
            form(Form::Controller2, w, &mut |w| large::put_controller(c, w))
        }
        OfAction::Controller(c) => form(Form::Controller, w, &mut |w| large::put_controller(c, w)),
        OfAction::Bundle(b) => {
            let kind = if b.dst.is_some() { Form::BundleLoad } else { Form::Bundle };
            form(kind, w, &mut |w| large::put_bundle(b, w))
        }
        OfAction::DecTtl { controllers, .. } if *controllers == [0] => put_none(Form::DecNwTtl, version, w),
        OfAction::DecTtl { controllers, .. } => form(Form::DecTtlIds, w, &mut |w| {
            w.u16(controllers.len() as u16);
            w.zeros(4);
            controllers.iter().for_each(|id| w.u16(*id));
        }),
        OfAction::DecNshTtl => put_none(Form::DecNshTtl, version, w),
        OfAction::PopQueue => put_none(Form::PopQueue, version, w),
        OfAction::Exit => put_none(Form::Exit, version, w),
        OfAction::CtClear => put_none(Form::CtClear, version, w),
        OfAction::DeleteField(field) => form(Form::DeleteField, w, &mut |w| {
            let start = w.len();
            put_field_header(*field, Numbering::Nxm, w);
            w.zeros(start + 14 - w.len());
        }),
        OfAction::Encap { packet_type, properties } => {
            form(Form::Encap, w, &mut |w| nested::put_encap(*packet_type, properties, w))
        }
        OfAction::Decap { packet_type } => form(Form::Decap, w, &mut |w| {
            w.zeros(2);
            w.u32(packet_type.unwrap_or(nested::NEXT_PROTOCOL));
        }),
        OfAction::FinTimeout { idle, hard } => form(Form::FinTimeout, w, &mut |w| {
            w.u16(*idle);
            w.u16(*hard);
        }),
        OfAction::Resubmit { port, table, with_ct_orig } => put_resubmit(*port, *table, *with_ct_orig, version, w),
        OfAction::Learn(learn) => {
            let kind = if large::needs_learn2(learn) { Form::Learn2 } else { Form::Learn };
            form(kind, w, &mut |w| large::put_learn(learn, w))
        }
        OfAction::Conjunction { id, clause, n_clauses } => form(Form::Conjunction, w, &mut |w| {
            w.u8(*clause);
            w.u8(*n_clauses);
            w.u32(*id);
        }),
        OfAction::Multipath(m) => form(Form::Multipath, w, &mut |w| large::put_multipath(m, w)),
        OfAction::Note(bytes) => form(Form::Note, w, &mut |w| w.put(bytes)),
        OfAction::Sample(s) => form(large::sample_form(s), w, &mut |w| large::put_sample(s, w)),
        OfAction::StackPush(sub) => put_stack(Form::StackPush, *sub, version, w),
        OfAction::StackPop(sub) => put_stack(Form::StackPop, *sub, version, w),
        OfAction::Clone(actions) => form(Form::Clone, w, &mut |w| {
            w.zeros(6);
            put_list(actions, version, w);
        }),
        OfAction::Conntrack(ct) => form(Form::Ct, w, &mut |w| {
            nested::put_ct(ct, w);
            put_list(&ct.actions, version, w);
        }),
        OfAction::Nat(nat) => form(Form::Nat, w, &mut |w| nested::put_nat(nat, w)),
        OfAction::CheckPktLarger { dst, pkt_len } => form(Form::CheckPktLarger, w, &mut |w| {
            w.u16(*pkt_len);
            w.u16(dst.start as u16);
            let start = w.len();
            put_field_header(dst.field, Numbering::Nxm, w);
            w.zeros(start + 10 - w.len());
        }),
        OfAction::WriteMetadata { metadata, mask } if version == V10 => form(Form::WriteMetadata, w, &mut |w| {
            w.zeros(6);
            w.u64(*metadata);
            w.u64(*mask);
        }),
        OfAction::GotoTable(table) if version == V10 => put_resubmit(OfPort::IN_PORT, Some(*table), false, version, w),
        _ => {}
    }
}

fn put_output(port: OfPort, max_len: u16, version: Version, w: &mut Writer) {
    if version == V10 {
        return put_form(Form::Output10, version, w, |w| {
            w.u16(port.0);
            w.u16(max_len);
        });
    }
    put_form(Form::Output, version, w, |w| {
        w.u32(port.to_of11());
        w.u16(max_len);
    });
}

/// From OpenFlow 1.1 on it takes three actions.
fn put_enqueue(port: OfPort, queue: u32, version: Version, w: &mut Writer) {
    if version == V10 {
        return put_form(Form::Enqueue, version, w, |w| {
            w.u16(port.0);
            w.zeros(6);
            w.u32(queue);
        });
    }
    put_u32(Form::SetQueue, version, queue, w);
    put_output(port, 0, version, w);
    put_none(Form::PopQueue, version, w);
}

/// `set_field` of a whole field.
fn set(field: FieldId, value: u128, version: Version, w: &mut Writer) {
    put_form(Form::SetField, version, w, |w| put_entry(field.field(), value, None, Numbering::Oxm(version), w));
}

/// OpenFlow 1.0's own form, or `set_field`.
fn put_or_set(form: Form, field: FieldId, value: u32, n_bytes: usize, version: Version, w: &mut Writer) {
    match (version, n_bytes) {
        (V10, 1) => put_u8(form, version, value as u8, w),
        (V10, _) => put_u32(form, version, value, w),
        _ => set(field, value.into(), version, w),
    }
}

fn put_mac(form: Form, field: FieldId, mac: [u8; 6], version: Version, w: &mut Writer) {
    if version == V10 {
        return put_form(form, version, w, |w| w.put(&mac));
    }
    set(field, mac.iter().fold(0, |n, b| n << 8 | u128::from(*b)), version, w);
}

fn put_vlan_vid(vid: u16, push: bool, version: Version, w: &mut Writer) {
    if version == V10 {
        return put_u16(Form::SetVlanVid10, version, vid, w);
    }
    if push {
        put_u16(Form::PushVlan, version, 0x8100, w);
    }
    set(FieldId::VlanVid, u128::from(vid | 0x1000), version, w);
}

fn put_vlan_pcp(pcp: u8, push: bool, version: Version, w: &mut Writer) {
    if version == V10 {
        return put_u8(Form::SetVlanPcp10, version, pcp, w);
    }
    if push {
        put_u16(Form::PushVlan, version, 0x8100, w);
    }
    set(FieldId::VlanPcp, pcp.into(), version, w);
}

fn put_ecn(ecn: u8, version: Version, w: &mut Writer) {
    match version {
        V10 => put_load(SubField::whole(FieldId::IpEcn), ecn.into(), version, w),
        _ => set(FieldId::IpEcn, ecn.into(), version, w),
    }
}

fn put_tunnel(id: u64, wide: bool, version: Version, w: &mut Writer) {
    match u32::try_from(id) {
        _ if version > V10 => set(FieldId::TunId, id.into(), version, w),
        Ok(id) if !wide => put_u32(Form::SetTunnel, version, id, w),
        _ => put_form(Form::SetTunnel64, version, w, |w| {
            w.zeros(6);
            w.u64(id);
        }),
    }
}

/// OpenFlow 1.5 has `set_field` with masks; before, a part of a field is Nicira's `load`, and OpenFlow 1.0 has actions of
/// its own for some fields.
fn put_set_field(field: &'static Field, value: u128, mask: u128, version: Version, w: &mut Writer) {
    let exact = mask & field.all_ones() == field.all_ones();
    match version {
        V15 => {
            let mask = (!exact).then_some(mask);
            put_form(Form::SetField, version, w, |w| put_entry(field, value, mask, Numbering::Oxm(version), w));
        }
        V10 => put_set_field10(field, value, mask, w),
        _ if exact => {
            put_form(Form::SetField, version, w, |w| put_entry(field, value, None, Numbering::Oxm(version), w));
        }
        _ => put_loads(field, value, mask, version, w),
    }
}

fn put_set_field10(field: &'static Field, value: u128, mask: u128, w: &mut Writer) {
    let mac = || -> [u8; 6] { value.to_be_bytes()[10..].try_into().expect("invariant: 16 less 10 is 6") };
    match field.id {
        FieldId::VlanTci if value & 0x1000 != 0 => {
            put_u16(Form::SetVlanVid10, V10, value as u16 & 0xfff, w);
            put_u8(Form::SetVlanPcp10, V10, (value >> 13) as u8 & 7, w);
        }
        FieldId::VlanTci => put_none(Form::StripVlan, V10, w),
        FieldId::VlanVid | FieldId::DlVlan => put_u16(Form::SetVlanVid10, V10, value as u16 & 0xfff, w),
        FieldId::VlanPcp | FieldId::DlVlanPcp => put_u8(Form::SetVlanPcp10, V10, value as u8, w),
        FieldId::EthSrc => put_form(Form::SetDlSrc, V10, w, |w| w.put(&mac())),
        FieldId::EthDst => put_form(Form::SetDlDst, V10, w, |w| w.put(&mac())),
        FieldId::Ipv4Src => put_u32(Form::SetNwSrc, V10, value as u32, w),
        FieldId::Ipv4Dst => put_u32(Form::SetNwDst, V10, value as u32, w),
        FieldId::IpDscp => put_u8(Form::SetNwTos, V10, value as u8, w),
        FieldId::IpDscpShifted => put_u8(Form::SetNwTos, V10, (value as u8) << 2, w),
        FieldId::IpEcn => put_ecn(value as u8, V10, w),
        FieldId::TcpSrc | FieldId::UdpSrc => put_u16(Form::SetTpSrc, V10, value as u16, w),
        FieldId::TcpDst | FieldId::UdpDst => put_u16(Form::SetTpDst, V10, value as u16, w),
        _ => put_loads(field, value, mask, V10, w),
    }
}

/// A load for every run of ones of the mask, 64 bits at most each; what has only an experimenter's number takes the
/// longer form.
fn put_loads(field: &'static Field, value: u128, mask: u128, version: Version, w: &mut Writer) {
    if large::needs_long_header(field.id) {
        let partly = (mask & field.all_ones() != field.all_ones()).then_some(mask);
        return put_form(Form::RegLoad2, version, w, |w| put_entry(field, value, partly, Numbering::Nxm, w));
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
        let (form, numbering) =
            if version == V15 { (Form::SetField, Numbering::Oxm(version)) } else { (Form::RegLoad2, Numbering::Nxm) };
        let mask = (!dst.is_whole()).then(|| dst.mask());
        return put_form(form, version, w, |w| put_entry(field, value << dst.start, mask, numbering, w));
    }
    put_form(Form::RegLoad, version, w, |w| {
        put_bits_and_field(dst, w);
        w.u64(value as u64);
    });
}

fn put_move(src: SubField, dst: SubField, version: Version, w: &mut Writer) {
    let form = if version == V15 { Form::CopyField } else { Form::RegMove };
    put_form(form, version, w, |w| {
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
        return put_form(Form::OutputReg2, version, w, |w| {
            w.u16(super::bits_of(src));
            w.u16(max_len);
            put_field_header(src.field, Numbering::Nxm, w);
        });
    }
    put_form(Form::OutputReg, version, w, |w| {
        put_bits_and_field(src, w);
        w.u16(max_len);
    });
}

fn put_resubmit(port: OfPort, table: Option<u8>, with_ct: bool, version: Version, w: &mut Writer) {
    match table {
        None if !with_ct => put_u16(Form::Resubmit, version, port.0, w),
        _ => put_form(if with_ct { Form::ResubmitTableCt } else { Form::ResubmitTable }, version, w, |w| {
            w.u16(port.0);
            w.u8(table.unwrap_or(255));
        }),
    }
}

fn put_stack(form: Form, sub: SubField, version: Version, w: &mut Writer) {
    put_form(form, version, w, |w| {
        w.u16(sub.start as u16);
        let start = w.len();
        put_field_header(sub.field, Numbering::Nxm, w);
        w.u16(sub.n_bits as u16);
        w.zeros(start + 12 - w.len());
    });
}

/// Whether a version's flow-mods have it as an instruction of its own and not as an action.
pub(crate) fn is_instruction(action: &OfAction, version: Version) -> bool {
    match action {
        OfAction::Meter(_) => version < V15 && version >= V13,
        OfAction::ClearActions
        | OfAction::WriteActions(_)
        | OfAction::WriteMetadata { .. }
        | OfAction::GotoTable(_) => version >= V13,
        _ => false,
    }
}

/// Whether a version has words for an action, with all that is in it, among actions.
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
