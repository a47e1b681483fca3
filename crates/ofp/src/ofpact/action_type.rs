//! What the table declares of an action, and finding its row.

use super::table::{ACTIONS, ActionId};
use super::{OfAction, Values};
use crate::Version;
use sluice_flow::FieldId;
use sluice_flow::field::Prereq;
use std::collections::HashMap;
use std::sync::OnceLock;

/// Experimenter ids of the actions that are not the standard's.
pub mod vendor {
    /// The standard's own numbers, which have no experimenter id.
    pub const STANDARD: u32 = 0;
    /// Nicira.
    pub const NICIRA: u32 = 0x0000_2320;
    /// The Open Networking Foundation.
    pub const ONF: u32 = 0x4f4e_4600;
}

/// A row of [`ACTIONS`].
#[derive(Clone, Copy, Debug)]
pub struct ActionType {
    /// Its id; also its place in the table.
    pub id: ActionId,
    /// Its names in text, the one that is printed first. None: it is written as another action with other arguments.
    pub names: &'static [&'static str],
    /// Its numbers on the wire.
    pub codes: &'static [Code],
    /// How its text is put together.
    pub text: Text,
    /// Its arguments, in the order of text and wire.
    pub args: &'static [Arg],
    /// Makes the action from its arguments; `None` if the argument list does not declare all of it.
    pub make: Option<fn(&Values) -> OfAction>,
    /// The field that it sets, for versions that say `set_field` instead.
    pub sets: Option<FieldId>,
    /// The instruction that it belongs to.
    pub instruction: Instruction,
    /// Whether an action set can hold it.
    pub in_action_set: bool,
    /// The match must fulfil one of these. In OpenFlow 1.0 the action leaves packets alone that fulfil none. The fields
    /// among the arguments have prerequisites of their own, in every version.
    pub prereqs: &'static [Prereq],
}

/// A number of an action on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Whose number it is; see [`vendor`].
    pub vendor: u32,
    /// First version that has it.
    pub from: Version,
    /// Last version that has it.
    pub to: Version,
    /// The number.
    pub number: u16,
    /// Which of the action's formats it stands for, from 0. Only actions that code reads have more than one.
    pub format: u8,
    /// Whether it is written. If not it is deprecated, and read all the same.
    pub written: bool,
}

/// How the text of an action is put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// `name`.
    Word,
    /// `name:ARG`.
    Colon,
    /// `name(ARG)`.
    Parentheses,
    /// `name(ARG)->BITS`.
    Arrow,
    /// By code of its own: `text/action_parse.rs` and `text/action_print.rs`.
    Own,
}

/// An argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// A number.
    Number(Number),
    /// One of these Ethernet types.
    EtherType(&'static [u16]),
    /// A type of service without the two bits of ECN.
    Tos,
    /// An Ethernet address.
    Mac,
    /// An IPv4 address.
    Ipv4,
    /// The number of a table, 0 to 254.
    Table,
    /// Bits of a field that are read.
    Source,
    /// Bits of a field that are written.
    Destination,
    /// One bit of a field that is written.
    Bit,
}

/// A number among the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// Bits that text can say.
    pub n_bits: u32,
    /// Bytes on the wire.
    pub n_bytes: u32,
    /// How it is printed.
    pub show: Show,
    /// Whether what is on the wire may have more bits than text can say; they are cut when the action is done.
    pub is_cut: bool,
}

/// How a number is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// `10`.
    Decimal,
    /// `0xa`, zero as `0`.
    Hexadecimal,
    /// `0x000a`.
    HexadecimalWord,
}

/// The instruction an action belongs to, in the order that OpenFlow 1.1 and later execute them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are the standard's")]
pub enum Instruction {
    Meter,
    Apply,
    Clear,
    Write,
    Metadata,
    Goto,
}

impl Instruction {
    /// Whether a version's flow-mods have it as an instruction of its own and not as an action.
    pub fn is_in(self, version: Version) -> bool {
        match self {
            Instruction::Apply => false,
            // OpenFlow 1.5 made it an action.
            Instruction::Meter => (Version::V13..Version::V15).contains(&version),
            _ => version >= Version::V11,
        }
    }
}

impl ActionType {
    /// The action of that name.
    pub fn by_name(name: &str) -> Option<&'static ActionType> {
        static INDEX: OnceLock<HashMap<&str, ActionId>> = OnceLock::new();
        let names = || ACTIONS.iter().flat_map(|action| action.names.iter().map(|name| (*name, action.id))).collect();
        INDEX.get_or_init(names).get(name).map(|id| id.row())
    }

    /// The action that a number means in a version, and in which of its formats.
    pub fn by_code(vendor: u32, number: u16, version: Version) -> Option<(&'static ActionType, u8)> {
        type Index = HashMap<(u32, u16, Version), (ActionId, u8)>;
        static INDEX: OnceLock<Index> = OnceLock::new();
        let codes = || {
            let codes = ACTIONS.iter().flat_map(|action| action.codes.iter().map(|code| (action.id, code)));
            let in_versions = codes.flat_map(|(id, code)| {
                let versions = Version::SPOKEN.into_iter().filter(|version| code.is_in(*version));
                versions.map(move |version| ((code.vendor, code.number, version), (id, code.format)))
            });
            in_versions.collect()
        };
        INDEX.get_or_init(codes).get(&(vendor, number, version)).map(|(id, format)| (id.row(), *format))
    }

    /// The number by which a version writes the action in one of its formats.
    pub fn code(&self, format: u8, version: Version) -> Option<&'static Code> {
        self.codes.iter().find(|code| code.written && code.format == format && code.is_in(version))
    }

    /// Its name, as it is printed.
    pub fn name(&self) -> Option<&'static str> {
        self.names.first().copied()
    }
}

impl Code {
    /// Whether a version has it.
    pub fn is_in(&self, version: Version) -> bool {
        (self.from..=self.to).contains(&version)
    }
}

impl ActionId {
    /// The action's row.
    pub fn row(self) -> &'static ActionType {
        &ACTIONS[self as usize]
    }
}

impl OfAction {
    /// The action's row in the table.
    pub fn action_type(&self) -> &'static ActionType {
        self.parts().0.row()
    }
}

impl Arg {
    /// A number of `n_bits` bits.
    pub const fn number(n_bits: u32) -> Arg {
        let n_bytes = n_bits.div_ceil(8).next_power_of_two();
        Arg::Number(Number { n_bits, n_bytes, show: Show::Decimal, is_cut: false })
    }

    /// A number of `n_bits` bits, printed in hexadecimal.
    pub const fn hexadecimal(n_bits: u32) -> Arg {
        let n_bytes = n_bits.div_ceil(8).next_power_of_two();
        Arg::Number(Number { n_bits, n_bytes, show: Show::Hexadecimal, is_cut: false })
    }

    /// A number of `n_bits` bits, of which the wire may have more.
    pub const fn cut(n_bits: u32, n_bytes: u32) -> Arg {
        Arg::Number(Number { n_bits, n_bytes, show: Show::Decimal, is_cut: true })
    }
}
