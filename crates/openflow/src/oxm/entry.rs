//! One field: header, value, mask.

use super::Numbering;
use crate::wire::{Reader, Writer};
use crate::{Error, Version};
use sluice_flow::field::{FIELDS, Field, FieldId, Oxm, OxmClass, ones};
use sluice_flow::{OfPort, TUN_METADATA_BYTES, Wide};
use std::ops::RangeInclusive;
use std::sync::OnceLock;

/// Class of fields whose experimenter's id follows their header.
const EXPERIMENTER_CLASS: u16 = 0xffff;

/// The header of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OxmHeader {
    class: OxmClass,
    number: u8,
    has_mask: bool,
    /// Bytes that follow, without an experimenter's id.
    length: usize,
}

impl OxmHeader {
    fn read(r: &mut Reader<'_>) -> Result<OxmHeader, Error> {
        let (class, field, length) = (r.u16()?, r.u8()?, usize::from(r.u8()?));
        let (class, length) = match class {
            EXPERIMENTER_CLASS => (OxmClass::Experimenter(r.u32()?), length.checked_sub(4).ok_or(Error::MatchBadLen)?),
            0 => (OxmClass::Nxm0, length),
            1 => (OxmClass::Nxm1, length),
            0x1000 => (OxmClass::Ericsson, length),
            0x8001 => (OxmClass::PacketRegs, length),
            0x8000 => (OxmClass::Basic, length),
            // Not a field of this build, and not a number of the class Basic.
            _ => return Ok(OxmHeader { class: OxmClass::Basic, number: 0xff, has_mask: field & 1 != 0, length }),
        };
        Ok(OxmHeader { class, number: field >> 1, has_mask: field & 1 != 0, length })
    }

    /// The field that it names, if the size agrees.
    fn field(&self) -> Option<&'static Field> {
        let field = lookup(self.class, self.number)?;
        let is_of_any_length = field.id.tunnel_option().is_some() && self.has_option_length();
        (is_of_any_length || self.length == field.n_bytes * (1 + usize::from(self.has_mask))).then_some(field)
    }

    /// Whether an option may have that length: with a mask, twice as many bytes as the value has.
    fn has_option_length(&self) -> bool {
        let parts = 1 + usize::from(self.has_mask);
        self.length.is_multiple_of(parts) && self.length / parts <= TUN_METADATA_BYTES
    }

    /// The bytes of the field's value, which of a tunnel option are as many as the sender likes.
    fn width(&self, field: &Field) -> usize {
        match field.id.tunnel_option() {
            Some(_) => self.length / (1 + usize::from(self.has_mask)),
            None => field.n_bytes,
        }
    }

    fn put(width: usize, oxm: Oxm, has_mask: bool, w: &mut Writer) {
        let id = if let OxmClass::Experimenter(id) = oxm.class { Some(id) } else { None };
        let length = width * (1 + usize::from(has_mask)) + if id.is_some() { 4 } else { 0 };
        w.u16(oxm.class.code());
        w.u8(oxm.number << 1 | u8::from(has_mask));
        w.u8(length as u8);
        if let Some(id) = id {
            w.u32(id);
        }
    }
}

/// The field of a number. The common classes have an index: flow-mods come by the million.
fn lookup(class: OxmClass, number: u8) -> Option<&'static Field> {
    type Index = [[Option<FieldId>; 128]; 3];
    static INDEX: OnceLock<Box<Index>> = OnceLock::new();
    const CLASSES: [OxmClass; 3] = [OxmClass::Nxm0, OxmClass::Nxm1, OxmClass::Basic];
    let Some(at) = CLASSES.iter().position(|c| *c == class) else { return Field::by_oxm(class, number) };
    let index = INDEX.get_or_init(|| {
        let mut index = Box::new([[None; 128]; 3]);
        for field in &FIELDS {
            for oxm in field.oxm.iter().flatten() {
                if let Some(at) = CLASSES.iter().position(|c| *c == oxm.class) {
                    index[at][usize::from(oxm.number)] = Some(field.id);
                }
            }
        }
        index
    });
    index[at].get(usize::from(number)).copied().flatten().map(FieldId::field)
}

/// How a field is numbered; `None` for fields that have no number at all.
pub(crate) fn numbered(field: &Field, numbering: Numbering) -> Option<Oxm> {
    let mut known = field.oxm.iter().flatten();
    let first = *known.next()?;
    Some(known.fold(first, |best, oxm| if oxm.since <= numbering.since() { *oxm } else { best }))
}

/// A field's number in the class of OpenFlow's own fields, if a version has one.
pub(crate) fn basic_number(field: &Field, version: Version) -> Option<u8> {
    let oxm = numbered(field, Numbering::Oxm(version))?;
    (oxm.class == OxmClass::Basic && oxm.since <= version as u8).then_some(oxm.number)
}

/// A field as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OxmEntry {
    /// A known field. Without a mask on the wire, the mask is all ones.
    Field { field: &'static Field, value: u128, mask: u128, has_mask: bool },
    /// A tunnel's option, whose value and mask may be longer.
    Option { field: &'static Field, bits: Box<[Wide; 2]>, has_mask: bool },
    /// Nicira's cookie field, which only some messages may have.
    Cookie { value: u64, mask: u64 },
    /// An unknown field.
    Unknown,
}

/// Number of the cookie's field in Nicira's second class.
const COOKIE: u8 = 30;

/// Numbers of `tun_metadata0` to `tun_metadata63` in Nicira's second class.
const TUNNEL_OPTIONS: RangeInclusive<u8> = 40..=103;

/// The error of an unknown field: tunnel options exist but are not mapped.
fn unknown(header: &OxmHeader, otherwise: Error) -> Error {
    let is_option = header.class == OxmClass::Nxm1 && TUNNEL_OPTIONS.contains(&header.number);
    if is_option { Error::FlowModInvalidTlvField } else { otherwise }
}

/// Reads a field with value and mask.
pub(crate) fn read_entry(r: &mut Reader<'_>) -> Result<OxmEntry, Error> {
    let header = OxmHeader::read(r)?;
    let mut payload = r.part(header.length)?;
    let is_cookie = (header.class, header.number) == (OxmClass::Nxm1, COOKIE)
        && header.length == 8 * (1 + usize::from(header.has_mask));
    let field = header.field();
    let width = match field {
        Some(field) => header.width(field),
        None if is_cookie => 8,
        None => return consistent_unknown(&header, payload.rest()),
    };
    if let Some(field) = field.filter(|field| field.is_wide()) {
        return option(field, &header, &mut payload, width);
    }
    let value = payload.number(width)?;
    let mask = match field {
        _ if header.has_mask => payload.number(width)?,
        Some(field) => ones(8 * field.n_bytes as u32),
        None => ones(8 * width as u32),
    };
    if value & !mask != 0 {
        return Err(Error::MatchBadWildcards);
    }
    Ok(match field {
        Some(field) => OxmEntry::Field { field, value, mask, has_mask: header.has_mask },
        None => OxmEntry::Cookie { value: value as u64, mask: mask as u64 },
    })
}

/// Reads a tunnel's option. Bytes that are not sent are zeros in front.
fn option(field: &'static Field, header: &OxmHeader, r: &mut Reader<'_>, width: usize) -> Result<OxmEntry, Error> {
    let value = Wide::from_be(r.take(width)?);
    let mask = if header.has_mask { Wide::from_be(r.take(width)?) } else { field.all_ones_wide() };
    if !value.and_not(&mask).is_zero() {
        return Err(Error::MatchBadWildcards);
    }
    Ok(OxmEntry::Option { field, bits: Box::new([value, mask]), has_mask: header.has_mask })
}

/// Checks that an unknown field has no value bits outside its mask.
fn consistent_unknown(header: &OxmHeader, payload: &[u8]) -> Result<OxmEntry, Error> {
    if header.has_mask {
        let (value, mask) = payload.split_at(payload.len() / 2);
        if value.iter().zip(mask).any(|(v, m)| v & !m != 0) {
            return Err(Error::MatchBadWildcards);
        }
    }
    match unknown(header, Error::MatchBadField) {
        Error::MatchBadField => Ok(OxmEntry::Unknown),
        error => Err(error),
    }
}

/// Reads the header of a field without value, as the later actions name fields.
pub(crate) fn field_header(r: &mut Reader<'_>) -> Result<&'static Field, Error> {
    let header = OxmHeader::read(r)?;
    match header.field() {
        Some(_) if header.has_mask => Err(Error::MatchBadMask),
        Some(field) => Ok(field),
        None => Err(unknown(&header, Error::MatchBadField)),
    }
}

/// Checks the header of a field that an action sets: the field must be known and have that size.
pub(crate) fn expect_settable(r: Reader<'_>) -> Result<(), Error> {
    let header = OxmHeader::read(&mut r.or(Error::MatchBadLen))?;
    match (header.field(), lookup(header.class, header.number)) {
        (Some(_), _) => Ok(()),
        (None, Some(_)) => Err(Error::ActionBadSetLen),
        (None, None) => Err(unknown(&header, Error::ActionBadSetType)),
    }
}

/// Reads the 32 bits that name a field in Nicira's older actions, where an unknown field is an error of the action.
pub(crate) fn read_nxm_field(r: &mut Reader<'_>) -> Result<&'static Field, Error> {
    let header = OxmHeader::read(&mut r.part(4)?.or(Error::ActionBadSetType))?;
    match (header.field(), lookup(header.class, header.number)) {
        (Some(_), _) if header.has_mask => Err(Error::MatchBadMask),
        (Some(field), _) => Ok(field),
        (None, Some(known)) if header.length != known.n_bytes => Err(Error::ActionBadSetLen),
        (None, Some(_)) => Err(Error::ActionBadSetType),
        (None, None) => Err(unknown(&header, Error::ActionBadSetType)),
    }
}

/// Writes the header of a field without value. A field that has no number gets an unused one.
pub(crate) fn put_field_header(field: FieldId, numbering: Numbering, w: &mut Writer) {
    let field = field.field();
    match numbered(field, numbering) {
        Some(oxm) => OxmHeader::put(width(field, 0, w), oxm, false, w),
        None => w.u32(0),
    }
}

/// Writes the header of a field as a table's features name it, if it has a number. A tunnel option has there the most bytes
/// that one may have.
pub(crate) fn put_header(field: &Field, has_mask: bool, numbering: Numbering, w: &mut Writer) {
    if let Some(oxm) = numbered(field, numbering) {
        OxmHeader::put(field.n_bytes, oxm, has_mask, w);
    }
}

/// Writes a field with its value, and with its mask unless that is `None`.
pub(crate) fn put_entry(field: &'static Field, value: u128, mask: Option<u128>, numbering: Numbering, w: &mut Writer) {
    if field.is_wide() {
        return put_option(field, value.into(), mask.map(Wide::from), numbering, w);
    }
    let Some(oxm) = numbered(field, numbering) else { return };
    OxmHeader::put(field.n_bytes, oxm, mask.is_some(), w);
    w.number(value, field.n_bytes);
    if let Some(mask) = mask {
        w.number(mask, field.n_bytes);
    }
}

/// [`put_entry`] of a tunnel's option.
pub(crate) fn put_option(field: &Field, value: Wide, mask: Option<Wide>, numbering: Numbering, w: &mut Writer) {
    let Some(oxm) = numbered(field, numbering) else { return };
    let width = match mask.filter(|_| length(field, w).is_none()) {
        Some(mask) => width(field, value.or(&mask).bit_len(), w),
        None => width(field, value.bit_len(), w),
    };
    let all = Wide::ones(8 * width as u32);
    // A mask of all bits is none. An option without bytes has the mask of one that only has to be there.
    let mask = mask.map(|mask| mask.and(&all)).filter(|mask| *mask != all || width == 0 || length(field, w).is_none());
    OxmHeader::put(width, oxm, mask.is_some(), w);
    w.put(&value.to_be(width));
    if let Some(mask) = mask {
        w.put(&mask.to_be(width));
    }
}

/// The bytes of a tunnel option in the writer's messages, if it is known what the bridge maps it to.
fn length(field: &Field, w: &Writer) -> Option<usize> {
    w.option_lengths.get(field.id.tunnel_option()?)
}

/// Whether a mask has all bits that an option of the field has.
pub(crate) fn is_whole_option(field: &Field, mask: Wide, w: &Writer) -> bool {
    let all = length(field, w).map_or(field.all_ones_wide(), |length| Wide::ones(8 * length as u32));
    all.and_not(&mask).is_zero() && !mask.is_zero()
}

/// The bytes in which a number of the field is written. A tunnel option is as long as the bridge maps it. If that is not known,
/// or too short for the number, as many words are written as the number takes, at least one; peers take what is missing
/// for zeros.
fn width(field: &Field, n_bits: u32, w: &Writer) -> usize {
    if !field.is_wide() {
        return field.n_bytes;
    }
    let needed = 4 * n_bits.div_ceil(32) as usize;
    length(field, w).map_or(needed.max(4), |length| length.max(needed))
}

/// Whether a number is a value of the field.
pub(crate) fn valid_value(field: &Field, value: u128) -> bool {
    match field.id {
        FieldId::VlanVid => value <= 0x1fff,
        FieldId::ArpOp => value <= 0xff,
        FieldId::IpDscp => value & !0xfc == 0,
        FieldId::NshTtl => value <= 63,
        FieldId::InPortOxm | FieldId::ActsetOutput => OfPort::from_of11(value as u32).is_some(),
        FieldId::CtState => value <= 0xff,
        _ => value <= ones(field.n_bits),
    }
}
