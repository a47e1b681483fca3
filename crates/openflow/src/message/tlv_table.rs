//! The table that gives options of tunnels the fields tun_metadata0 to tun_metadata63. Source: Open vSwitch,
//! `NXT_TLV_TABLE_MOD`, `NXT_TLV_TABLE_REQUEST`, `NXT_TLV_TABLE_REPLY`.

use crate::Error;
use crate::wire::{Reader, Writer};

/// Bytes of values that a table's options may have together.
pub const MAX_OPTION_SPACE: u32 = 256;

/// Fields of a table.
pub const MAX_FIELDS: u16 = 64;

/// The longest value of an option, bytes.
const MAX_OPTION_SIZE: u8 = 124;

/// An option and its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlvMapping {
    /// The option's class.
    pub class: u16,
    /// The option's type.
    pub option: u8,
    /// Bytes of its value, in fours.
    pub size: u8,
    /// The number of the field, below [`MAX_FIELDS`].
    pub field: u16,
}

/// What a message does to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlvTableCommand {
    /// Adds mappings.
    Add,
    /// Deletes mappings, by their options.
    Delete,
    /// Deletes all mappings.
    Clear,
}

/// A change of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlvTableMod {
    /// What is done.
    pub command: TlvTableCommand,
    /// The mappings that it is about.
    pub mappings: Vec<TlvMapping>,
}

const COMMANDS: [TlvTableCommand; 3] = [TlvTableCommand::Add, TlvTableCommand::Delete, TlvTableCommand::Clear];

pub(super) fn read_mod(r: &mut Reader<'_>) -> Result<TlvTableMod, Error> {
    let command = COMMANDS.get(usize::from(r.u16()?)).copied().ok_or(Error::TlvModBadCommand)?;
    r.skip(6)?;
    Ok(TlvTableMod { command, mappings: read_mappings(r)? })
}

pub(super) fn put_mod(m: &TlvTableMod, w: &mut Writer) {
    w.u16(m.command as u16);
    w.zeros(6);
    m.mappings.iter().for_each(|mapping| put_mapping(mapping, w));
}

/// Reads a reply: what the limits are is known.
pub(super) fn read_reply(r: &mut Reader<'_>) -> Result<Vec<TlvMapping>, Error> {
    r.skip(16)?;
    read_mappings(r)
}

pub(super) fn put_reply(mappings: &[TlvMapping], w: &mut Writer) {
    w.u32(MAX_OPTION_SPACE);
    w.u16(MAX_FIELDS);
    w.zeros(10);
    mappings.iter().for_each(|mapping| put_mapping(mapping, w));
}

fn read_mappings(r: &mut Reader<'_>) -> Result<Vec<TlvMapping>, Error> {
    let mut mappings = Vec::new();
    while !r.is_empty() {
        let (class, option, size, field) = (r.u16()?, r.u8()?, r.u8()?, r.u16()?);
        r.skip(2)?;
        if size == 0 || size > MAX_OPTION_SIZE || size % 4 != 0 {
            return Err(Error::TlvModBadOptLen);
        }
        if field >= MAX_FIELDS {
            return Err(Error::TlvModBadFieldIdx);
        }
        mappings.push(TlvMapping { class, option, size, field });
    }
    Ok(mappings)
}

fn put_mapping(mapping: &TlvMapping, w: &mut Writer) {
    w.u16(mapping.class);
    w.u8(mapping.option);
    w.u8(mapping.size);
    w.u16(mapping.field);
    w.zeros(2);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, Version};

    const MAPPING: TlvMapping = TlvMapping { class: 0x102, option: 0x80, size: 4, field: 0 };

    /// A message as a peer sends it, with the bytes of its mapping behind its header and command.
    fn modification(command: u16, mapping: [u8; 8]) -> Vec<u8> {
        let mut bytes = vec![5, 4, 0, 32, 0, 0, 0, 1, 0, 0, 0x23, 0x20, 0, 0, 0, 24];
        bytes.extend(command.to_be_bytes());
        bytes.extend([0; 6]);
        bytes.extend(mapping);
        bytes
    }

    #[test]
    fn messages_are_read_as_they_are_written() {
        let modified = Message::TlvTableMod(TlvTableMod { command: TlvTableCommand::Add, mappings: vec![MAPPING] });
        for message in [modified, Message::TlvTableRequest, Message::TlvTableReply(vec![MAPPING; 2])] {
            for version in [Version::V10, Version::V13, Version::V15] {
                let bytes = message.write(version, 7);
                assert_eq!(Message::read(&bytes, false).unwrap(), (version, 7, message.clone()));
            }
        }
    }

    #[test]
    fn what_a_table_cannot_have_is_refused() {
        let read = |command, mapping| Message::read(&modification(command, mapping), false).map(|(_, _, m)| m);
        let expected = TlvTableMod { command: TlvTableCommand::Add, mappings: vec![MAPPING] };
        assert_eq!(read(0, [1, 2, 0x80, 4, 0, 0, 0, 0]), Ok(Message::TlvTableMod(expected)));
        assert_eq!(read(3, [1, 2, 0x80, 4, 0, 0, 0, 0]), Err(Error::TlvModBadCommand));
        for size in [0, 3, 128] {
            assert_eq!(read(0, [1, 2, 0x80, size, 0, 0, 0, 0]), Err(Error::TlvModBadOptLen), "{size}");
        }
        assert_eq!(read(0, [1, 2, 0x80, 4, 0, 64, 0, 0]), Err(Error::TlvModBadFieldIdx));
    }
}
