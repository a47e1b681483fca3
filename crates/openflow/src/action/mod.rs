//! Actions on the wire. What the actions are, with their numbers and most of their arguments, is declared in
//! [`sluice_ofp::ofpact`]; here is the code for arguments that are lists, options or other actions.

mod declared;
mod large;
mod nested;
mod read;
mod write;

use crate::wire::{Reader, Writer};
use crate::{Error, Version};
use read::read_list;
use sluice_flow::SubField;
use sluice_ofp::OfAction;
use sluice_ofp::consistency::Within;
use sluice_ofp::ofpact::{ACTIONS, ActionId, ActionType, vendor};

pub(crate) use write::{can_say, is_instruction, put_list};

/// Levels of nested actions at most.
const DEPTH_MAX: usize = 32;

/// Reads actions to the end of `r`.
pub(crate) fn read(r: Reader<'_>, version: Version, within: Within) -> Result<Vec<OfAction>, Error> {
    read_list(r, version, within, 0)
}

/// Type of an action whose number is an experimenter's own.
const EXPERIMENTER: u16 = 0xffff;

/// A format that an action has on the wire: see [`sluice_ofp::ofpact::Code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Format {
    action: ActionId,
    format: u8,
    vendor: u32,
}

impl Format {
    /// What a number means in a version.
    fn of(vendor: u32, number: u16, version: Version) -> Option<Format> {
        let (row, format) = ActionType::by_code(vendor, number, version)?;
        Some(Format { action: row.id, format, vendor })
    }

    /// Bytes of an action's header: type and length, behind them an experimenter's id and number.
    fn header_size(self) -> usize {
        if self.vendor == vendor::STANDARD { 4 } else { 10 }
    }
}

/// The numbers of the standard's own actions in a version, those aside that `set_field` has replaced: all that are
/// deprecated, and two of them are written all the same.
pub(crate) fn standard_actions(version: Version) -> impl Iterator<Item = u16> {
    let codes = ACTIONS.iter().flat_map(|row| row.codes);
    let standard = codes.filter(move |code| code.vendor == vendor::STANDARD && code.is_in(version) && code.written);
    standard.map(|code| code.number).filter(move |n| version == Version::V10 || *n == 0 || *n >= 11)
}

/// `(start << 6) | (n_bits - 1)`, as Nicira's actions name bits of a field.
fn bits_of(sub: SubField) -> u16 {
    (sub.start << 6 | (sub.n_bits - 1) & 0x3f) as u16
}

/// A bit range of a field that an action reads.
fn source(field: &'static sluice_flow::Field, start: u32, n_bits: u32) -> Result<SubField, Error> {
    if n_bits == 0 || start + n_bits > field.n_bits {
        return Err(Error::ActionBadSetLen);
    }
    Ok(SubField { field: field.id, start, n_bits })
}

/// A bit range of a field that an action writes.
fn destination(field: &'static sluice_flow::Field, start: u32, n_bits: u32) -> Result<SubField, Error> {
    if !field.writable {
        return Err(Error::ActionBadSetArgument);
    }
    source(field, start, n_bits)
}

/// Reads start and number of bits from 16 bits.
fn read_bits(r: &mut Reader<'_>) -> Result<(u32, u32), Error> {
    let bits = u32::from(r.u16()?);
    Ok((bits >> 6, (bits & 0x3f) + 1))
}

/// Writes start and number of bits, then the field, as most of Nicira's actions have it.
fn put_bits_and_field(sub: SubField, w: &mut Writer) {
    w.u16(bits_of(sub));
    crate::oxm::put_field_header(sub.field, crate::oxm::Numbering::Nxm, w);
}
