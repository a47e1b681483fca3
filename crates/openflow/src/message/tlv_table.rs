//! The table of Geneve options that stand for the fields `tun_metadata0` to `tun_metadata63`.
//!
//! Source: Open vSwitch, include/openflow/nicira-ext.h, `nx_tlv_map`.

use crate::Error;
use crate::wire::{Reader, Writer};

/// The fields that options can stand for.
pub const TLV_FIELDS: u16 = 64;

/// Longest value of an option, bytes. Source: RFC 8926.
const OPTION_MAX: u8 = 124;

/// An option that stands for a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlvMap {
    /// Class of the option.
    pub class: u16,
    /// Its type.
    pub kind: u8,
    /// Bytes of its value, a multiple of 4.
    pub length: u8,
    /// The field's number: `tun_metadata0` is 0.
    pub index: u16,
}

/// What a table-mod does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum TlvCommand {
    /// Adds mappings.
    Add = 0,
    /// Deletes the mappings of some fields.
    Delete = 1,
    /// Deletes all mappings.
    Clear = 2,
}

/// A change of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlvTableMod {
    /// What to do.
    pub command: TlvCommand,
    /// With these mappings.
    pub maps: Vec<TlvMap>,
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlvTableReply {
    /// Bytes that the values of all fields may have together.
    pub max_space: u32,
    /// Fields at most.
    pub max_fields: u16,
    /// The mappings, by field.
    pub maps: Vec<TlvMap>,
}

pub(super) fn read_mod(r: &mut Reader<'_>) -> Result<TlvTableMod, Error> {
    let command = match r.u16()? {
        0 => TlvCommand::Add,
        1 => TlvCommand::Delete,
        2 => TlvCommand::Clear,
        _ => return Err(Error::TlvModBadCommand),
    };
    r.skip(6)?;
    Ok(TlvTableMod { command, maps: read_maps(r)? })
}

pub(super) fn put_mod(m: &TlvTableMod, w: &mut Writer) {
    w.u16(m.command as u16);
    w.zeros(6);
    put_maps(&m.maps, w);
}

pub(super) fn read_reply(r: &mut Reader<'_>) -> Result<TlvTableReply, Error> {
    let (max_space, max_fields) = (r.u32()?, r.u16()?);
    r.skip(10)?;
    Ok(TlvTableReply { max_space, max_fields, maps: read_maps(r)? })
}

pub(super) fn put_reply(table: &TlvTableReply, w: &mut Writer) {
    w.u32(table.max_space);
    w.u16(table.max_fields);
    w.zeros(10);
    put_maps(&table.maps, w);
}

fn read_maps(r: &mut Reader<'_>) -> Result<Vec<TlvMap>, Error> {
    let mut maps = Vec::new();
    while !r.is_empty() {
        let map = TlvMap { class: r.u16()?, kind: r.u8()?, length: r.u8()?, index: r.u16()? };
        r.skip(2)?;
        if !map.length.is_multiple_of(4) || map.length > OPTION_MAX {
            return Err(Error::TlvModBadOptLen);
        }
        if map.index >= TLV_FIELDS {
            return Err(Error::TlvModBadFieldIdx);
        }
        maps.push(map);
    }
    Ok(maps)
}

fn put_maps(maps: &[TlvMap], w: &mut Writer) {
    for map in maps {
        w.u16(map.class);
        w.u8(map.kind);
        w.u8(map.length);
        w.u16(map.index);
        w.zeros(2);
    }
}
