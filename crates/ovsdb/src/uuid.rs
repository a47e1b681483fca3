//! Row identifiers.

use std::fmt;
use std::str::FromStr;

/// A row's UUID.
///
/// Shape:  128 bits, written as 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12.
/// Source: RFC 7047 section 3.1; RFC 4122.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(u128);

impl Uuid {
    /// All zeros: the transaction id of a client that knows nothing yet, and the default of a column of UUIDs.
    pub const ZERO: Uuid = Uuid(0);

    /// A UUID from its number; its most significant byte is written first.
    pub const fn from_u128(bits: u128) -> Self {
        Uuid(bits)
    }

    /// The UUID as a number.
    pub const fn to_u128(self) -> u128 {
        self.0
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = |shift: u32, digits: u32| (self.0 >> shift) & ((1 << (4 * digits)) - 1);
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            group(96, 8),
            group(80, 4),
            group(64, 4),
            group(48, 4),
            group(0, 12)
        )
    }
}

/// The text is not a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID: expected 32 hexadecimal digits in groups of 8-4-4-4-12")]
pub struct BadUuid;

impl FromStr for Uuid {
    type Err = BadUuid;

    fn from_str(text: &str) -> Result<Self, BadUuid> {
        let bytes = text.as_bytes();
        if bytes.len() != 36 {
            return Err(BadUuid);
        }
        let mut bits = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            match (at, byte) {
                (8 | 13 | 18 | 23, b'-') => {}
                (8 | 13 | 18 | 23, _) => return Err(BadUuid),
                _ => {
                    let digit = char::from(byte).to_digit(16).ok_or(BadUuid)?;
                    bits = bits << 4 | u128::from(digit);
                }
            }
        }
        Ok(Uuid(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_number_agree() {
        let text = "02099acb-838a-4bb4-8f5c-eb1416e54a99";
        let uuid: Uuid = text.parse().unwrap();
        assert_eq!(uuid.to_u128(), 0x02099acb_838a_4bb4_8f5c_eb1416e54a99);
        assert_eq!(uuid.to_string(), text);
        assert_eq!(Uuid::ZERO.to_string(), "00000000-0000-0000-0000-000000000000");
    }

    #[test]
    fn other_texts_are_refused() {
        let hyphen_late = "02099acb8-38a-4bb4-8f5c-eb1416e54a99";
        let short = "02099acb-838a-4bb4-8f5c-eb1416e54a9";
        let letter = "02099acb-838a-4bb4-8f5c-eb1416e54a9g";
        let wide = "02099acb-838a-4bb4-8f5c-eb1416e54a\u{e9}";
        for text in ["", hyphen_late, short, letter, wide] {
            assert_eq!(text.parse::<Uuid>(), Err(BadUuid), "{text}");
        }
    }
}
