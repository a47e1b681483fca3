//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Mac(pub [u8; 6]);

/// The text is no Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseMacError;

impl Mac {
    /// From the low 48 bits of a number.
    pub fn from_number(n: u128) -> Mac {
        let bytes = n.to_be_bytes();
        Mac(std::array::from_fn(|i| bytes[10 + i]))
    }

    /// As a number.
    pub fn number(self) -> u128 {
        self.0.iter().fold(0, |n, b| n << 8 | u128::from(*b))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = ParseMacError;

    /// Six groups of one or two hexadecimal digits, colons between.
    fn from_str(text: &str) -> Result<Mac, ParseMacError> {
        let mut bytes = [0; 6];
        let mut groups = text.split(':');
        for byte in &mut bytes {
            let group =
                groups.next().filter(|group| group.len() <= 2 && !group.starts_with('+')).ok_or(ParseMacError)?;
            *byte = u8::from_str_radix(group, 16).map_err(|_| ParseMacError)?;
        }
        if groups.next().is_none() { Ok(Mac(bytes)) } else { Err(ParseMacError) }
    }
}

/// What is expected.
impl fmt::Display for ParseMacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an Ethernet address (six pairs of hexadecimal digits, \":\" between)")
    }
}

impl std::error::Error for ParseMacError {}
