//! Versions of the protocol.

/// A version, by its number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Version {
    /// OpenFlow 1.0.
    V10 = 1,
    /// OpenFlow 1.1: known by name, for the tables of numbers; never spoken.
    V11 = 2,
    /// OpenFlow 1.2: likewise.
    V12 = 3,
    /// OpenFlow 1.3.
    V13 = 4,
    /// OpenFlow 1.4.
    V14 = 5,
    /// OpenFlow 1.5.
    V15 = 6,
}

impl Version {
    /// The versions that this codec speaks.
    pub const SPOKEN: [Version; 4] = [Version::V10, Version::V13, Version::V14, Version::V15];

    /// The version of that number, if this codec speaks it.
    pub fn from_wire(number: u8) -> Option<Version> {
        Version::SPOKEN.into_iter().find(|v| *v as u8 == number)
    }

    /// Its bit in a hello's bitmap.
    pub fn bit(self) -> u32 {
        1 << self as u8
    }

    /// The bits of all versions spoken.
    pub fn all() -> u32 {
        Version::SPOKEN.into_iter().fold(0, |bits, v| bits | v.bit())
    }

    /// The highest version of a bitmap.
    pub fn highest(bitmap: u32) -> Option<Version> {
        Version::SPOKEN.into_iter().rev().find(|v| bitmap & v.bit() != 0)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenFlow 1.{}", *self as u8 - 1)
    }
}
