//! Reading actions.

use super::{DEPTH_MAX, EXPERIMENTER, Format, declared, destination, large, nested, read_bits, source};
use crate::oxm::{OxmEntry, expect_settable, field_header, read_entry, read_nxm_field, valid_value};
use crate::wire::Reader;
use crate::{Error, Version, consistency};
use sluice_flow::field::{Field, FieldId, ones};
use sluice_flow::{OfPort, SubField};
use sluice_ofp::OfAction;
use sluice_ofp::consistency::Within;
use sluice_ofp::ofpact::{ActionId, SetOption, vendor};

/// Reads actions to the end of `r`, which are nested `depth` levels deep.
pub(crate) fn read_list(r: Reader<'_>, version: Version, within: Within, depth: usize) -> Result<Vec<OfAction>, Error> {
    if depth > DEPTH_MAX {
        return Err(Error::ActionTooMany);
    }
    // Open vSwitch reports a wrong length of the list as an error of the message.
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
        let format = match kind {
            EXPERIMENTER => {
                let vendor = body.u32()?;
                if vendor != vendor::NICIRA && vendor != vendor::ONF {
                    return Err(Error::ActionBadVendor);
                }
                Format::of(vendor, body.u16()?, version).ok_or(Error::ActionBadVendorType)?
            }
            _ => Format::of(vendor::STANDARD, kind, version).ok_or(Error::ActionBadType)?,
        };
        if length < size_min(format) {
            return Err(Error::ActionBadLen);
        }
        actions.push(read_one(format, &mut body, version, depth)?);
        body.end()?;
    }
    consistency::order(&actions, within)?;
    Ok(actions)
}

/// The least bytes of an action, for actions whose content would else be checked before their length.
fn size_min(format: Format) -> usize {
    match (format.action, format.format) {
        (ActionId::Load | ActionId::StackPush | ActionId::StackPop | ActionId::Conntrack, _)
        | (ActionId::Move | ActionId::OutputReg, 0) => 24,
        (ActionId::Multipath | ActionId::Bundle | ActionId::BundleLoad, _) | (ActionId::Learn, 0) => 32,
        _ => 8,
    }
}

/// Reads one action behind its header.
fn read_one(format: Format, r: &mut Reader<'_>, version: Version, depth: usize) -> Result<OfAction, Error> {
    Ok(match (format.action, format.format) {
        (ActionId::Output, 0) => OfAction::Output { port: sendable(OfPort(r.u16()?))?, max_len: r.u16()? },
        (ActionId::Output, _) => {
            let port = sendable(port11(r.u32()?)?)?;
            let max_len = r.u16()?;
            r.skip(6)?;
            OfAction::Output { port, max_len }
        }
        (ActionId::Enqueue, _) => enqueue(r)?,
        (ActionId::DecTtl, 0) => {
            r.skip(format.header_size().next_multiple_of(8) - format.header_size())?;
            OfAction::DecTtl { controllers: vec![0], listed: false }
        }
        (ActionId::DecTtl, _) => large::read_dec_ttl(r)?,
        (ActionId::SetField, 0) => set_field(r, version)?,
        (ActionId::SetField, _) => set_field(r, Version::V15)?,
        (ActionId::Load, _) => reg_load(r)?,
        (ActionId::Move, number) => copy_field(number, r)?,
        (ActionId::Resubmit, 0) => {
            let port = OfPort(r.u16()?);
            r.skip(4)?;
            OfAction::Resubmit { port, table: None, with_ct_orig: false }
        }
        (ActionId::Resubmit, number) => {
            let (port, table) = (OfPort(r.u16()?), r.u8()?);
            r.zeros(3).map_err(|_| Error::ActionBadArgument)?;
            OfAction::Resubmit { port, table: Some(table).filter(|t| *t != 255), with_ct_orig: number == 2 }
        }
        (ActionId::Note, _) => OfAction::Note(r.take(r.len())?.to_vec()),
        (ActionId::OutputReg, number) => output_reg(number, r)?,
        (ActionId::StackPush, _) => OfAction::StackPush(stack(r, source)?),
        (ActionId::StackPop, _) => OfAction::StackPop(stack(r, destination)?),
        (ActionId::FinTimeout, _) => {
            let (idle, hard) = (r.u16()?, r.u16()?);
            r.zeros(2)?;
            OfAction::FinTimeout { idle, hard }
        }
        (ActionId::WriteMetadata, _) => {
            r.zeros(6)?;
            let (metadata, mask) = (r.u64()?, r.u64()?);
            OfAction::WriteMetadata { metadata: metadata & mask, mask }
        }
        (ActionId::Conjunction, _) => conjunction(r)?,
        (ActionId::OutputTrunc, _) => {
            let (port, max_len) = (OfPort(r.u16()?), r.u32()?);
            if max_len < 14 {
                return Err(Error::ActionBadArgument);
            }
            OfAction::OutputTrunc { port, max_len }
        }
        (ActionId::DeleteField, _) => {
            let field = field_header(r)?;
            r.skip(r.len())?;
            OfAction::DeleteField(field.id)
        }
        (ActionId::Multipath, _) => large::read_multipath(r)?,
        (ActionId::Bundle, _) => large::read_bundle(false, r)?,
        (ActionId::BundleLoad, _) => large::read_bundle(true, r)?,
        (ActionId::Learn, number) => large::read_learn(number == 1, r)?,
        (ActionId::Controller, 0) => large::read_controller(r)?,
        (ActionId::Controller, _) => large::read_controller2(r)?,
        (ActionId::Sample, number) => large::read_sample(number, r)?,
        (ActionId::Conntrack, _) => nested::read_ct(r, version, depth)?,
        (ActionId::Nat, _) => nested::read_nat(r)?,
        (ActionId::Clone, _) => {
            r.skip(6)?;
            OfAction::Clone(read_list(r.part(r.len())?, version, Within::Clone, depth + 1)?)
        }
        (ActionId::Encap, _) => nested::read_encap(r)?,
        (ActionId::Decap, _) => {
            r.skip(2)?;
            let packet_type = r.u32()?;
            r.skip(r.len())?;
            OfAction::Decap { packet_type: Some(packet_type).filter(|t| *t != nested::NEXT_PROTOCOL) }
        }
        _ => declared::read(format, r)?,
    })
}

/// A port number of 32 bits.
pub(super) fn port11(number: u32) -> Result<OfPort, Error> {
    OfPort::from_of11(number).ok_or(Error::ActionBadOutPort)
}

fn sendable(port: OfPort) -> Result<OfPort, Error> {
    if port.can_be_sent_to() { Ok(port) } else { Err(Error::ActionBadOutPort) }
}

fn enqueue(r: &mut Reader<'_>) -> Result<OfAction, Error> {
    let port = OfPort(r.u16()?);
    r.skip(6)?;
    if !(port.is_ordinary() || port == OfPort::IN_PORT || port == OfPort::LOCAL) {
        return Err(Error::ActionBadOutPort);
    }
    Ok(OfAction::Enqueue { port, queue: r.u32()? })
}

/// Reads a field with its value, and before OpenFlow 1.5 without a mask.
fn set_field(r: &mut Reader<'_>, version: Version) -> Result<OfAction, Error> {
    expect_settable(*r)?;
    let mut body = r.part(r.len())?.or(Error::MatchBadLen);
    let (field, value, mask, has_mask) = match read_entry(&mut body)? {
        OxmEntry::Field { field, value, mask, has_mask } => (field, value, mask, has_mask),
        OxmEntry::Option { has_mask: true, .. } if version < Version::V15 => return Err(Error::ActionBadSetMask),
        OxmEntry::Option { field, bits, .. } => {
            let [value, mask] = *bits;
            body.zeros(body.len()).map_err(|_| Error::ActionBadSetArgument)?;
            let set = SetOption { field: field.id, value: value.and(&mask), mask };
            return Ok(OfAction::SetOption(Box::new(set)));
        }
        _ => return Err(Error::ActionBadSetType),
    };
    if has_mask && version < Version::V15 {
        return Err(Error::ActionBadSetMask);
    }
    body.zeros(body.len()).map_err(|_| Error::ActionBadSetArgument)?;
    // A mask may have the field's own bits alone, as OVN's of `ip_dscp` has, or whole bytes.
    let all = field.match_ones();
    let tag_missing = field.id == FieldId::VlanVid && value & mask & 0x1000 == 0;
    let port = field.id == FieldId::InPortOxm;
    if port || !field.writable || !valid_value(field, value) || tag_missing {
        return Err(Error::ActionBadSetArgument);
    }
    if !field.maskable && mask & all != all {
        return Err(Error::ActionBadSetMask);
    }
    let mask = mask & all;
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

/// Nicira's format is 0, the ONF's of OpenFlow 1.3 is 1, that of OpenFlow 1.5 is 2.
fn copy_field(format: u8, r: &mut Reader<'_>) -> Result<OfAction, Error> {
    if format == 1 {
        r.skip(2)?;
    }
    let (n_bits, from, to) = (r.u16()?.into(), r.u16()?.into(), r.u16()?.into());
    if format != 0 {
        r.skip(2)?;
    }
    let (src, dst) = (field_header(r)?, field_header(r)?);
    r.skip(r.len())?;
    Ok(OfAction::Move { src: source(src, from, n_bits)?, dst: destination(dst, to, n_bits)? })
}

fn output_reg(format: u8, r: &mut Reader<'_>) -> Result<OfAction, Error> {
    let (start, n_bits) = read_bits(r)?;
    if format == 0 {
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

/// Bits of a field, the number of bits behind the field's name.
fn stack(r: &mut Reader<'_>, bits: fn(&'static Field, u32, u32) -> Result<SubField, Error>) -> Result<SubField, Error> {
    let start = r.u16()?.into();
    let field = field_header(r)?;
    let n_bits = r.u16()?.into();
    r.zeros(r.len()).map_err(|_| Error::RequestMustBeZero)?;
    bits(field, start, n_bits)
}

fn conjunction(r: &mut Reader<'_>) -> Result<OfAction, Error> {
    let (clause, n_clauses, id) = (r.u8()?, r.u8()?, r.u32()?);
    if !(2..=64).contains(&n_clauses) || clause >= n_clauses {
        return Err(Error::ActionBadConjunction);
    }
    Ok(OfAction::Conjunction { id, clause, n_clauses })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_a_field_without_masks_has_all_its_bits() {
        let read = |mask: u8| {
            // `ip_dscp`, six bits in a byte, with a mask, and the action's padding.
            let oxm = [0x80, 0, 8 << 1 | 1, 2, 0x0e, mask, 0, 0, 0, 0, 0, 0];
            set_field(&mut Reader::new(&oxm, Error::ActionBadLen), Version::V15)
        };
        let set = Ok(OfAction::SetField { field: FieldId::IpDscpShifted, value: 0x0e, mask: 0x3f });
        assert_eq!((read(0x3f), read(0xff), read(0x0f)), (set.clone(), set, Err(Error::ActionBadSetMask)));
    }
}
