//! Versions of the protocol.

/// A version, by its number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Version {
    /// OpenFlow 1.0.
    V10 = 1,
    /// OpenFlow 1.1.
    V11 = 2,
    /// OpenFlow 1.2.
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
    pub const SPOKEN: [Version; 6] =
        [Version::V10, Version::V11, Version::V12, Version::V13, Version::V14, Version::V15];

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

/// Versions, as the log and error messages name them. Source: Open vSwitch, `version_bitmap_to_string`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionBitmap(pub u32);

impl VersionBitmap {
    /// The versions that the sender of a hello without a bitmap speaks: that of its header and all before.
    pub fn up_to(version: u8) -> Self {
        VersionBitmap(u32::MAX.checked_shr(31 - u32::from(version.min(31))).unwrap_or(0) & !1)
    }
}

impl std::fmt::Display for VersionBitmap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let VersionBitmap(bits) = *self;
        match bits.checked_ilog2() {
            None => f.write_str("no versions"),
            Some(highest) if bits.is_power_of_two() => write!(f, "version {highest:#04x}"),
            Some(highest) if ((bits >> 1) + 1).is_power_of_two() => write!(f, "version {highest:#04x} and earlier"),
            Some(_) => {
                let each: Vec<String> =
                    (0..32).filter(|bit| bits >> bit & 1 != 0).map(|bit| format!("{bit:#04x}")).collect();
                write!(f, "versions {}", each.join(", "))
            }
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenFlow 1.{}", *self as u8 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmaps_are_named_as_in_open_vswitch() {
        let name = |bits| VersionBitmap(bits).to_string();
        assert_eq!(name(0), "no versions");
        assert_eq!(name(0x10), "version 0x04");
        assert_eq!(name(0x7e), "version 0x06 and earlier");
        assert_eq!(name(0x12), "versions 0x01, 0x04");
    }

    #[test]
    fn a_version_without_a_bitmap_stands_for_all_before() {
        assert_eq!([1, 4, 6, 200].map(|v| VersionBitmap::up_to(v).0), [2, 0x1e, 0x7e, 0xffff_fffe]);
        assert_eq!(VersionBitmap::up_to(0).0, 0);
    }
}
