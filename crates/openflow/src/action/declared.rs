//! Actions whose rows declare all of their arguments, on the wire.
//!
//! Arguments stand one after the other behind the action's header, numbers at multiples of their size counted from the
//! header's start, and zeros fill up to a multiple of 8 bytes.

use super::{Format, bits_of, destination, read_bits, source};
use crate::Error;
use crate::oxm::{Numbering, field_header, put_field_header};
use crate::wire::{Reader, Writer};
use sluice_flow::SubField;
use sluice_ofp::OfAction;
use sluice_ofp::ofpact::{ActionType, Arg, Number, Value, Values};

/// Reads the arguments of an action and makes it. `r` stands behind the header.
pub(super) fn read(format: Format, r: &mut Reader<'_>) -> Result<OfAction, Error> {
    let row = format.action.row();
    let make = row.make.ok_or(Error::ActionBadType)?;
    let mut values = Values::NONE;
    let mut at = format.header_size();
    let mut has_field = false;
    for (value, arg) in values.0.iter_mut().zip(row.args) {
        *value = match arg_size(*arg) {
            Some(n_bytes) => {
                let gap = gap(at, n_bytes);
                r.skip(gap)?;
                at += gap + n_bytes;
                Value::Number(checked(*arg, r.number(n_bytes)? as u64)?)
            }
            None => {
                has_field = true;
                Value::Bits(read_subfield(*arg, r)?)
            }
        };
    }
    // The name of a field is longer where it is an experimenter's.
    r.skip(if has_field { r.len() } else { gap(at, 8) })?;
    Ok(make(&values))
}

/// Zeros before a number of `n_bytes` bytes.
fn gap(at: usize, n_bytes: usize) -> usize {
    // Only numbers are aligned: an Ethernet address is bytes.
    if n_bytes.is_power_of_two() { at.next_multiple_of(n_bytes) - at } else { 0 }
}

/// Bytes of an argument; `None` for bits of a field.
fn arg_size(arg: Arg) -> Option<usize> {
    match arg {
        Arg::Number(Number { n_bytes, .. }) => Some(n_bytes as usize),
        Arg::EtherType(_) => Some(2),
        Arg::Tos | Arg::Table => Some(1),
        Arg::Mac => Some(6),
        Arg::Ipv4 => Some(4),
        Arg::Source | Arg::Destination | Arg::Bit => None,
    }
}

/// A number, if the argument can be that.
fn checked(arg: Arg, number: u64) -> Result<u64, Error> {
    let is_right = match arg {
        Arg::Number(Number { n_bits, is_cut, .. }) => is_cut || n_bits >= 64 || number >> n_bits == 0,
        Arg::EtherType(allowed) => allowed.iter().any(|known| u64::from(*known) == number),
        Arg::Tos => number & 3 == 0,
        _ => true,
    };
    if is_right { Ok(number) } else { Err(Error::ActionBadArgument) }
}

/// The lowest bit and the field; how many bits stands beside the lowest unless it can only be one.
fn read_subfield(arg: Arg, r: &mut Reader<'_>) -> Result<SubField, Error> {
    let (start, n_bits) = if arg == Arg::Bit { (r.u16()?.into(), 1) } else { read_bits(r)? };
    let field = field_header(r)?;
    if arg == Arg::Source { source(field, start, n_bits) } else { destination(field, start, n_bits) }
}

/// Writes the arguments behind the header.
pub(super) fn put(row: &ActionType, values: &Values, start: usize, w: &mut Writer) {
    for (arg, value) in row.args.iter().zip(values.0) {
        match (value, arg_size(*arg)) {
            (Value::Number(number), Some(n_bytes)) => {
                w.zeros(gap(w.len() - start, n_bytes));
                w.number(number.into(), n_bytes);
            }
            (Value::Bits(bits), _) => {
                w.u16(if *arg == Arg::Bit { bits.start as u16 } else { bits_of(bits) });
                put_field_header(bits.field, Numbering::Nxm, w);
            }
            (Value::Number(_), None) => {}
        }
    }
}
