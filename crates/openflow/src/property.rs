//! Properties: type, length, value, filled up to a multiple of 8 bytes.

use crate::Error;
use crate::wire::{Reader, Writer};

/// Type of a property that is an experimenter's own.
pub(crate) const EXPERIMENTER: u16 = 0xffff;

/// Reads properties to the end of `r`; `f` gets each with its type.
pub(crate) fn each(r: Reader<'_>, mut f: impl FnMut(u16, &mut Reader<'_>) -> Result<(), Error>) -> Result<(), Error> {
    let mut r = r.or(Error::PropertyBadLen);
    while !r.is_empty() {
        let (kind, length) = (r.u16()?, usize::from(r.u16()?));
        let mut body = r.part(length.checked_sub(4).ok_or(Error::PropertyBadLen)?)?;
        f(kind, &mut body)?;
        r.skip((length.next_multiple_of(8) - length).min(r.len()))?;
    }
    Ok(())
}

/// The error of an unknown property. Source: Open vSwitch, `ofpprop_unknown`.
pub(crate) fn unknown(kind: u16, body: &mut Reader<'_>) -> Error {
    if kind != EXPERIMENTER {
        return Error::PropertyBadType;
    }
    match (body.u32(), body.u32()) {
        (Ok(0), Ok(_)) => Error::PropertyBadExperimenter,
        (Ok(_), Ok(_)) => Error::PropertyBadExpType,
        _ => Error::PropertyBadLen,
    }
}

/// Writes a property.
pub(crate) fn put(kind: u16, value: &[u8], w: &mut Writer) {
    let start = w.len();
    w.u16(kind);
    w.u16((4 + value.len()) as u16);
    w.put(value);
    w.pad8(start);
}

/// Writes a property whose value must begin at a multiple of 8 bytes, such as other properties.
pub(crate) fn put_nested(kind: u16, value: impl FnOnce(&mut Writer), w: &mut Writer) {
    let start = w.len();
    w.u16(kind);
    w.zeros(6);
    value(w);
    w.patch_u16(start + 2, w.len() - start);
    w.pad8(start);
}

/// The value of a property of one byte. Some have padding of three bytes behind it, so any length is accepted.
pub(crate) fn u8(body: &mut Reader<'_>) -> Result<u8, Error> {
    let value = body.u8()?;
    body.skip(body.len())?;
    Ok(value)
}

/// The value of a property of two bytes, perhaps with padding.
pub(crate) fn u16(body: &mut Reader<'_>) -> Result<u16, Error> {
    let value = body.u16()?;
    body.skip(body.len())?;
    Ok(value)
}

/// The value of a property of four bytes.
pub(crate) fn u32(body: &mut Reader<'_>) -> Result<u32, Error> {
    let value = body.u32()?;
    body.end()?;
    Ok(value)
}

/// The value of a property of eight bytes, behind padding of four.
pub(crate) fn u64(body: &mut Reader<'_>) -> Result<u64, Error> {
    body.skip(4)?;
    let value = body.u64()?;
    body.end()?;
    Ok(value)
}

/// Writes a property of one byte.
pub(crate) fn put_u8(kind: u16, value: u8, w: &mut Writer) {
    put(kind, &[value], w);
}

/// Writes a property of two bytes.
pub(crate) fn put_u16(kind: u16, value: u16, w: &mut Writer) {
    let [high, low] = value.to_be_bytes();
    put(kind, &[high, low, 0, 0], w);
}

/// Writes a property of four bytes.
pub(crate) fn put_u32(kind: u16, value: u32, w: &mut Writer) {
    put(kind, &value.to_be_bytes(), w);
}

/// Writes a property of eight bytes.
pub(crate) fn put_u64(kind: u16, value: u64, w: &mut Writer) {
    let mut body = [0; 12];
    body[4..].copy_from_slice(&value.to_be_bytes());
    put(kind, &body, w);
}
