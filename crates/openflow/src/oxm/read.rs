//! Matches from fields.

use super::entry::{OxmEntry, read_entry, valid_value};
use crate::wire::Reader;
use crate::{Error, match11};
use sluice_flow::field::{Field, FieldId, Place, ones};
use sluice_flow::{FieldValue, Match, Wide, layout};

/// `OFPMT_OXM`: the type of match that OpenFlow 1.2 and later have. Like Open vSwitch, this reads both types in each
/// version that has a type of match at all.
const MATCH_OXM: u16 = 1;

/// How strictly a list of fields is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// Every field must be known and have its prerequisites before it.
    Strict,
    /// Unknown fields are skipped.
    Loose,
    /// Unknown fields are skipped, and fields of the packet's headers are errors.
    Pipeline,
}

/// Reads a match of OpenFlow 1.1 or later, with its padding.
pub(crate) fn read_match(r: &mut Reader<'_>, strictness: Strictness) -> Result<Match, Error> {
    let mut matches = Match::ANY;
    read_match_into(&mut matches, r, strictness)?;
    Ok(matches)
}

/// [`read_match`] into a match of every packet.
pub(crate) fn read_match_into(matches: &mut Match, r: &mut Reader<'_>, strictness: Strictness) -> Result<(), Error> {
    let mut r2 = r.or(Error::MatchBadLen);
    let (kind, length) = (r2.u16()?, usize::from(r2.u16()?));
    match (kind, length) {
        (MATCH_OXM, _) => {}
        (match11::MATCH_STANDARD, match11::MATCH_STANDARD_SIZE) => {
            *matches = match11::read(&mut r2.part(length - 4)?)?;
            return r.skip(length);
        }
        (match11::MATCH_STANDARD, _) => return Err(Error::MatchBadLen),
        _ => return Err(Error::MatchBadType),
    }
    let fields = r2.part(length.checked_sub(4).ok_or(Error::MatchBadLen)?)?;
    r2.skip(length.next_multiple_of(8) - length)?;
    r.skip(length.next_multiple_of(8))?;
    read_all(matches, fields, strictness, false).map(drop)
}

/// Reads a match in Nicira's format: fields of `length` bytes, padded to a multiple of 8.
pub(crate) fn read_nxm_match(r: &mut Reader<'_>, length: usize, strictness: Strictness) -> Result<Match, Error> {
    read_padded(r, length, strictness, false).map(|(matches, ..)| matches)
}

/// The same where a cookie with its mask may be among the fields.
pub(crate) fn read_nxm_match_and_cookie(r: &mut Reader<'_>, length: usize) -> Result<(Match, u64, u64), Error> {
    read_padded(r, length, Strictness::Strict, true)
}

fn read_padded(
    r: &mut Reader<'_>,
    length: usize,
    strictness: Strictness,
    cookies: bool,
) -> Result<(Match, u64, u64), Error> {
    let mut padded = r.or(Error::MatchBadLen).part(length.next_multiple_of(8))?;
    r.skip(padded.len())?;
    let mut matches = Match::ANY;
    let (cookie, cookie_mask) = read_all(&mut matches, padded.part(length)?, strictness, cookies)?;
    Ok((matches, cookie, cookie_mask))
}

/// Reads fields with nothing around them.
pub(crate) fn read_fields(r: Reader<'_>, strictness: Strictness) -> Result<Match, Error> {
    let mut matches = Match::ANY;
    read_all(&mut matches, r.or(Error::MatchBadLen), strictness, false)?;
    Ok(matches)
}

/// Adds fields to a match. Returns a cookie and its mask, if they are among them.
fn read_all(
    matches: &mut Match,
    mut r: Reader<'_>,
    strictness: Strictness,
    cookies: bool,
) -> Result<(u64, u64), Error> {
    let (mut cookie, mut cookie_mask) = (0, 0);
    while !r.is_empty() {
        match read_entry(&mut r)? {
            OxmEntry::Field { field, value, mask, .. } => add(matches, field, value, mask, strictness)?,
            OxmEntry::Option { field, bits, .. } => add_option(matches, field, *bits)?,
            OxmEntry::Cookie { .. } if !cookies => return Err(Error::MatchBadField),
            OxmEntry::Cookie { .. } if cookie_mask != 0 => return Err(Error::MatchDupField),
            OxmEntry::Cookie { value, mask } => (cookie, cookie_mask) = (value, mask),
            OxmEntry::Unknown if strictness == Strictness::Strict => return Err(Error::MatchBadField),
            OxmEntry::Unknown => {}
        }
    }
    Ok((cookie, cookie_mask))
}

fn add(
    matches: &mut Match,
    field: &'static Field,
    value: u128,
    mask: u128,
    strictness: Strictness,
) -> Result<(), Error> {
    let all = ones(8 * field.n_bytes as u32);
    if !field.maskable && mask != 0 && mask != all {
        return Err(Error::MatchBadMask);
    }
    if !valid_value(field, value) {
        return Err(Error::MatchBadValue);
    }
    let tagged = field.id != FieldId::VlanPcp || matches.key.number(layout::VLAN0_TCI) & 0x1000 != 0;
    if strictness == Strictness::Strict && !(matches.satisfies(field.prereq) && tagged) {
        return Err(Error::MatchBadPrereq);
    }
    if place_of_its_own(field).read(&matches.mask) != 0 {
        return Err(Error::MatchDupField);
    }
    if strictness == Strictness::Pipeline && !is_of_pipeline(field.id) {
        return Err(Error::RequestPipelineFieldsOnly);
    }
    matches.set_masked(field.id, value, mask);
    Ok(())
}

/// Of a tunnel's option a mask of no bits says that it is there.
fn add_option(matches: &mut Match, field: &Field, [value, mask]: [Wide; 2]) -> Result<(), Error> {
    if field.is_present(&matches.mask) {
        return Err(Error::MatchDupField);
    }
    matches.set_masked_wide(field.id, value, mask);
    Ok(())
}

/// Whether OpenFlow calls a field one of the pipeline, rather than one of the packet's header.
/// Source: Open vSwitch, `mf_is_pipeline_field`, which leaves out what only it knows of.
fn is_of_pipeline(id: FieldId) -> bool {
    match id {
        FieldId::TunTtl | FieldId::TunTos => false,
        FieldId::InPort | FieldId::InPortOxm | FieldId::Metadata | FieldId::PacketType => true,
        _ => (FieldId::TunId..=FieldId::TunMetadata63).contains(&id) || (FieldId::Reg0..=FieldId::Xxreg3).contains(&id),
    }
}

/// The bits that no other field of the same match has.
fn place_of_its_own(field: &Field) -> Place {
    match field.id {
        FieldId::VlanVid => Place { n_bits: 12, ..field.place },
        FieldId::IpDscp => Place { lsb: 2, n_bits: 6, ..field.place },
        _ => field.place,
    }
}

/// Reads what [`super::put_field_masks`] writes: fields whose value is a mask of their bits, in the order of
/// their ids.
pub(crate) fn read_field_masks(mut r: Reader<'_>) -> Result<Vec<(FieldId, FieldValue)>, Error> {
    let mut masks: Vec<(FieldId, FieldValue)> = Vec::new();
    while !r.is_empty() {
        match read_entry(&mut r)? {
            OxmEntry::Field { field, .. } | OxmEntry::Option { field, .. }
                if masks.iter().any(|(id, _)| *id == field.id) =>
            {
                return Err(Error::MatchDupField);
            }
            OxmEntry::Field { field, value, .. } => masks.push((field.id, value.into())),
            OxmEntry::Option { field, bits, .. } => masks.push((field.id, bits[0].into())),
            OxmEntry::Cookie { .. } | OxmEntry::Unknown => return Err(Error::MatchBadField),
        }
    }
    masks.sort_by_key(|(id, _)| *id as usize);
    Ok(masks)
}
