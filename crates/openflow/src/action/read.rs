//! Reading actions.

use super::codes::{Form, form};
use super::{DEPTH_MAX, destination, large, nested, read_bits, source};
use crate::error::{NICIRA, ONF};
use crate::oxm::{Entry, expect_settable, field_header, read_entry, read_nxm_field, valid_value};
use crate::wire::Reader;
use crate::{Error, Version, consistency};
use sluice_flow::field::{FieldId, ones};
use sluice_flow::{Mac, OfPort, SubField};
use sluice_ofp::OfAction;
use sluice_ofp::consistency::Within;
use std::net::Ipv4Addr;

/// Type of an action whose number is an experimenter's own.
const EXPERIMENTER: u16 = 0xffff;

/// Reads actions to the end of `r`, which stand within something, so many levels deep.
pub(crate) fn read_list(r: Reader<'_>, version: Version, within: Within, depth: usize) -> Result<Vec<OfAction>, Error> {
    if depth > DEPTH_MAX {
        return Err(Error::ActionTooMany);
    }
    // Source: Open vSwitch calls the list's own length the message's affair.
    if !r.len().is_multiple_of(8) {
        return Err(Error::RequestBadLen);
    }
    let mut r = r.or(Error::ActionBadLen);
    let mut actions = Vec::new();
    while !r.is_empty() {
        let (kind, length) = match r.rest() {
            [a, b, c, d, ..] => (u16::from_be_bytes([*a, *b]), usize::from(u16::from_be_bytes([*c, *d]))),
            _ => return Err(Error::ActionBadLen),
        };
        if length < 8 || !length.is_multiple_of(8) {
            return Err(Error::ActionBadLen);
        }
        let mut body = r.part(length)?;
        body.skip(4)?;
        let form = match kind {
            EXPERIMENTER => {
                let vendor = body.u32()?;
                if vendor != NICIRA && vendor != ONF {
                    return Err(Error::ActionBadVendor);
                }
                form(vendor, body.u16()?, version).ok_or(Error::ActionBadVendorType)?
            }
            _ => form(0, kind, version).ok_or(Error::ActionBadType)?,
        };
        if length < least(form) {
            return Err(Error::ActionBadLen);
        }
        read_form(form, kind == EXPERIMENTER, &mut body, version, depth, &mut actions)?;
        body.end()?;
    }
    consistency::order(&actions, within)?;
    Ok(actions)
}

/// Bytes of an action at least, where its content might be found wrong before it is found too short.
fn least(form: Form) -> usize {
    match form {
        Form::RegMove | Form::RegLoad | Form::OutputReg | Form::StackPush | Form::StackPop | Form::Ct => 24,
        Form::Multipath | Form::Bundle | Form::BundleLoad | Form::Learn => 32,
        _ => 8,
    }
}

/// A value of up to 32 bits: beside the header in the standard's actions, behind two or no bytes of gap in Nicira's.
struct Argument<'a, 'b> {
    r: &'b mut Reader<'a>,
    nicira: bool,
}

impl Argument<'_, '_> {
    fn u8(self) -> Result<u8, Error> {
        let value = self.r.u8()?;
        self.r.skip(if self.nicira { 5 } else { 3 })?;
        Ok(value)
    }

    fn u16(self) -> Result<u16, Error> {
        let value = self.r.u16()?;
        self.r.skip(if self.nicira { 4 } else { 2 })?;
        Ok(value)
    }

    fn u32(self) -> Result<u32, Error> {
        self.r.skip(if self.nicira { 2 } else { 0 })?;
        self.r.u32()
    }

    fn none(self) -> Result<(), Error> {
        self.r.skip(if self.nicira { 6 } else { 4 })
    }
}

/// What a number of at most `bits` bits is.
fn small<T: Into<u32> + Copy>(value: T, bits: u32) -> Result<T, Error> {
    if value.into() >> bits == 0 { Ok(value) } else { Err(Error::ActionBadArgument) }
}

fn read_form(
    form: Form,
    nicira: bool,
    r: &mut Reader<'_>,
    version: Version,
    depth: usize,
    actions: &mut Vec<OfAction>,
) -> Result<(), Error> {
    let arg = Argument { r: &mut *r, nicira };
    let action = match form {
        Form::Output10 => OfAction::Output { port: sendable(OfPort(arg.r.u16()?))?, max_len: arg.r.u16()? },
        Form::Output => {
            let port = sendable(port11(arg.r.u32()?)?)?;
            let max_len = arg.r.u16()?;
            arg.r.skip(6)?;
            OfAction::Output { port, max_len }
        }
        Form::SetVlanVid10 | Form::SetVlanVid => {
            OfAction::SetVlanVid { vid: small(arg.u16()?, 12)?, push_if_needed: form == Form::SetVlanVid10 }
        }
        Form::SetVlanPcp10 | Form::SetVlanPcp => {
            OfAction::SetVlanPcp { pcp: small(arg.u8()?, 3)?, push_if_needed: form == Form::SetVlanPcp10 }
        }
        Form::PushVlan => OfAction::PushVlan { tpid: one_of(arg.u16()?, [0x8100, 0x88a8])? },
        Form::StripVlan => arg.none().map(|()| OfAction::StripVlan)?,
        Form::PopVlan => arg.none().map(|()| OfAction::PopVlan)?,
        Form::SetDlSrc | Form::SetDlDst => {
            let mac = Mac(arg.r.array()?);
            arg.r.skip(6)?;
            if form == Form::SetDlSrc { OfAction::ModDlSrc(mac) } else { OfAction::ModDlDst(mac) }
        }
        Form::SetNwSrc => OfAction::ModNwSrc(Ipv4Addr::from(arg.u32()?)),
        Form::SetNwDst => OfAction::ModNwDst(Ipv4Addr::from(arg.u32()?)),
        Form::SetNwTos => match arg.u8()? {
            tos if tos & 3 != 0 => return Err(Error::ActionBadArgument),
            tos => OfAction::ModNwTos(tos),
        },
        Form::SetNwEcn => OfAction::ModNwEcn(small(arg.u8()?, 2)?),
        Form::SetTpSrc => OfAction::ModTpSrc(arg.u16()?),
        Form::SetTpDst => OfAction::ModTpDst(arg.u16()?),
        Form::Enqueue => {
            let port = OfPort(arg.r.u16()?);
            arg.r.skip(6)?;
            if !(port.is_ordinary() || port == OfPort::IN_PORT || port == OfPort::LOCAL) {
                return Err(Error::ActionBadOutPort);
            }
            OfAction::Enqueue { port, queue: arg.r.u32()? }
        }
        // What does not fit is cut when it is done, as Open vSwitch does.
        Form::SetMplsLabel => OfAction::SetMplsLabel(arg.u32()?),
        Form::SetMplsTc => OfAction::SetMplsTc(arg.u8()?),
        Form::SetMplsTtl => OfAction::SetMplsTtl(arg.u8()?),
        Form::DecMplsTtl => arg.none().map(|()| OfAction::DecMplsTtl)?,
        Form::PushMpls => OfAction::PushMpls { ethertype: one_of(arg.u16()?, [0x8847, 0x8848])? },
        Form::PopMpls => OfAction::PopMpls { ethertype: arg.u16()? },
        Form::SetQueue => OfAction::SetQueue(arg.u32()?),
        Form::Group => OfAction::Group(arg.u32()?),
        Form::SetNwTtl => OfAction::ModNwTtl(arg.u8()?),
        Form::DecNwTtl => arg.none().map(|()| OfAction::DecTtl { controllers: vec![0], listed: false })?,
        Form::Meter => OfAction::Meter(arg.u32()?),
        Form::SetField => set_field(r, version)?,
        Form::RegLoad2 => set_field(r, Version::V15)?,
        Form::SetTunnel => OfAction::SetTunnel { id: arg.u32()?.into(), wide: false },
        Form::PopQueue => arg.none().map(|()| OfAction::PopQueue)?,
        Form::Exit => arg.none().map(|()| OfAction::Exit)?,
        Form::CtClear => arg.none().map(|()| OfAction::CtClear)?,
        Form::DecNshTtl => arg.none().map(|()| OfAction::DecNshTtl)?,
        _ => return read_nicira(form, r, version, depth, actions),
    };
    actions.push(action);
    Ok(())
}

/// The forms that are longer than a header and a number.
fn read_nicira(
    form: Form,
    r: &mut Reader<'_>,
    version: Version,
    depth: usize,
    actions: &mut Vec<OfAction>,
) -> Result<(), Error> {
    let action = match form {
        Form::RegLoad => reg_load(r)?,
        Form::RegMove | Form::CopyField | Form::CopyField13 => copy_field(form, r)?,
        Form::DecTtlIds => large::read_dec_ttl(r)?,
        Form::Resubmit => {
            let port = OfPort(r.u16()?);
            r.skip(4)?;
            OfAction::Resubmit { port, table: None, with_ct_orig: false }
        }
        Form::ResubmitTable | Form::ResubmitTableCt => {
            let (port, table) = (OfPort(r.u16()?), r.u8()?);
            r.zeros(3).map_err(|_| Error::ActionBadArgument)?;
            let with_ct_orig = form == Form::ResubmitTableCt;
            OfAction::Resubmit { port, table: Some(table).filter(|t| *t != 255), with_ct_orig }
        }
        Form::SetTunnel64 => {
            r.skip(6)?;
            OfAction::SetTunnel { id: r.u64()?, wide: true }
        }
        Form::Note => OfAction::Note(r.take(r.len())?.to_vec()),
        Form::OutputReg | Form::OutputReg2 => output_reg(form, r)?,
        Form::StackPush | Form::StackPop => stack(form, r)?,
        Form::FinTimeout => {
            let (idle, hard) = (r.u16()?, r.u16()?);
            r.zeros(2)?;
            OfAction::FinTimeout { idle, hard }
        }
        Form::WriteMetadata => {
            r.zeros(6)?;
            let (metadata, mask) = (r.u64()?, r.u64()?);
            OfAction::WriteMetadata { metadata: metadata & mask, mask }
        }
        Form::Conjunction => conjunction(r)?,
        Form::OutputTrunc => {
            let (port, max_len) = (OfPort(r.u16()?), r.u32()?);
            if max_len < 14 {
                return Err(Error::ActionBadArgument);
            }
            OfAction::OutputTrunc { port, max_len }
        }
        Form::CheckPktLarger => {
            let (pkt_len, start) = (r.u16()?, r.u16()?);
            let dst = destination(field_header(r)?, start.into(), 1)?;
            r.skip(r.len())?;
            OfAction::CheckPktLarger { dst, pkt_len }
        }
        Form::DeleteField => {
            let field = field_header(r)?;
            r.skip(r.len())?;
            OfAction::DeleteField(field.id)
        }
        Form::Multipath => large::read_multipath(r)?,
        Form::Bundle | Form::BundleLoad => large::read_bundle(form == Form::BundleLoad, r)?,
        Form::Learn | Form::Learn2 => large::read_learn(form == Form::Learn2, r)?,
        Form::Controller => large::read_controller(r)?,
        Form::Controller2 => large::read_controller2(r)?,
        Form::Sample | Form::Sample2 | Form::Sample3 => large::read_sample(form, r)?,
        Form::Ct => nested::read_ct(r, version, depth)?,
        Form::Nat => nested::read_nat(r)?,
        Form::Clone => {
            r.skip(6)?;
            OfAction::Clone(read_list(r.part(r.len())?, version, Within::Clone, depth + 1)?)
        }
        Form::Encap => nested::read_encap(r)?,
        Form::Decap => {
            r.skip(2)?;
            let packet_type = r.u32()?;
            r.skip(r.len())?;
            OfAction::Decap { packet_type: Some(packet_type).filter(|t| *t != nested::NEXT_PROTOCOL) }
        }
        _ => return Err(Error::ActionBadType),
    };
    actions.push(action);
    Ok(())
}

/// A port number of 32 bits.
pub(super) fn port11(number: u32) -> Result<OfPort, Error> {
    OfPort::from_of11(number).ok_or(Error::ActionBadOutPort)
}

fn sendable(port: OfPort) -> Result<OfPort, Error> {
    if port.can_be_sent_to() { Ok(port) } else { Err(Error::ActionBadOutPort) }
}

fn one_of(value: u16, known: [u16; 2]) -> Result<u16, Error> {
    if known.contains(&value) { Ok(value) } else { Err(Error::ActionBadArgument) }
}

/// Reads a field with its value, and before OpenFlow 1.5 without a mask.
fn set_field(r: &mut Reader<'_>, version: Version) -> Result<OfAction, Error> {
    expect_settable(*r)?;
    let mut body = r.part(r.len())?.or(Error::MatchBadLen);
    let Entry::Field { field, value, mask, has_mask } = read_entry(&mut body)? else {
        return Err(Error::ActionBadSetType);
    };
    if has_mask && version < Version::V15 {
        return Err(Error::ActionBadSetMask);
    }
    body.zeros(body.len()).map_err(|_| Error::ActionBadSetArgument)?;
    let all = ones(8 * field.n_bytes as u32);
    let tag_missing = field.id == FieldId::VlanVid && value & mask & 0x1000 == 0;
    let port = field.id == FieldId::InPortOxm;
    if port || !field.writable || !valid_value(field, value) || tag_missing {
        return Err(Error::ActionBadSetArgument);
    }
    if !field.maskable && mask != all {
        return Err(Error::ActionBadSetMask);
    }
    let mask = mask & field.match_ones();
    Ok(OfAction::SetField { field: field.id, value: value & mask, mask })
}

fn reg_load(r: &mut Reader<'_>) -> Result<OfAction, Error> {
    let (start, n_bits) = read_bits(r)?;
    let dst = destination(read_nxm_field(r)?, start, n_bits)?;
    let value = u128::from(r.u64()?);
    // Only the bits of the range may be set.
    if value & !ones(n_bits) != 0 {
        return Err(Error::ActionBadArgument);
    }
    Ok(OfAction::Load { dst, value })
}

fn copy_field(form: Form, r: &mut Reader<'_>) -> Result<OfAction, Error> {
    if form == Form::CopyField13 {
        r.skip(2)?;
    }
    let (n_bits, from, to) = (r.u16()?.into(), r.u16()?.into(), r.u16()?.into());
    if form != Form::RegMove {
        r.skip(2)?;
    }
    let (src, dst) = (field_header(r)?, field_header(r)?);
    r.skip(r.len())?;
    Ok(OfAction::Move { src: source(src, from, n_bits)?, dst: destination(dst, to, n_bits)? })
}

fn output_reg(form: Form, r: &mut Reader<'_>) -> Result<OfAction, Error> {
    let (start, n_bits) = read_bits(r)?;
    if form == Form::OutputReg {
        let src = source(read_nxm_field(r)?, start, n_bits)?;
        let max_len = r.u16()?;
        r.zeros(6)?;
        return Ok(OfAction::OutputReg { src, max_len });
    }
    let max_len = r.u16()?;
    let src = source(field_header(r)?, start, n_bits)?;
    r.zeros(r.len())?;
    Ok(OfAction::OutputReg { src, max_len })
}

fn stack(form: Form, r: &mut Reader<'_>) -> Result<OfAction, Error> {
    let start = r.u16()?.into();
    let field = field_header(r)?;
    let n_bits = r.u16()?.into();
    r.zeros(r.len()).map_err(|_| Error::RequestMustBeZero)?;
    let sub: SubField;
    Ok(if form == Form::StackPush {
        sub = source(field, start, n_bits)?;
        OfAction::StackPush(sub)
    } else {
        sub = destination(field, start, n_bits)?;
        OfAction::StackPop(sub)
    })
}

fn conjunction(r: &mut Reader<'_>) -> Result<OfAction, Error> {
    let (clause, n_clauses, id) = (r.u8()?, r.u8()?, r.u32()?);
    if !(2..=64).contains(&n_clauses) || clause >= n_clauses {
        return Err(Error::ActionBadConjunction);
    }
    Ok(OfAction::Conjunction { id, clause, n_clauses })
}
