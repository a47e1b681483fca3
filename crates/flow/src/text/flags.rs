//! Fields that are sets of named bits: `ct_state`, `tcp_flags`, `tun_flags`.

use super::SyntaxError;
use super::number::integer;
use super::piece::Piece;
use crate::ct_state;
use std::fmt;

/// Names of bits, from bit 0 up; the field has no more bits than names.
pub struct Flags {
    /// Name of each bit, the lowest first.
    pub names: &'static [&'static str],
    /// The bits that text may set.
    pub allowed: u128,
}

/// Connection state. Source: `ovs-fields(7)`, `ct_state`.
pub static CT_STATE: Flags = Flags { names: &ct_state::NAMES, allowed: 0xff };

/// TCP flags; the bits without a name are written as numbers. Source: `ovs-fields(7)`, `tcp_flags`.
pub static TCP: Flags = Flags {
    names: &["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]"],
    allowed: 0xfff,
};

/// Tunnel flags, of which only `oam` can be matched. Source: `ovs-fields(7)`, `tun_flags`.
pub static TUNNEL: Flags = Flags { names: &["oam", "df", "csum", "key"], allowed: 1 };

impl Flags {
    /// All bits that have a name.
    pub fn all(&self) -> u128 {
        (1 << self.names.len()) - 1
    }

    /// Reads `+a-b`, `a|b`, `VALUE/MASK` or a number, into value and mask.
    pub fn parse(&self, text: Piece<'_>) -> Result<(u128, u128), SyntaxError> {
        let (value, mask) = match text.text.as_bytes().first() {
            Some(b'+' | b'-') => self.parse_signed(text)?,
            _ => match text.split_once("/") {
                Some((value, mask)) => (integer(value, 32)?, integer(mask, 32)?),
                None => (self.parse_listed(text)?, self.all()),
            },
        };
        match value & !self.allowed {
            0 => Ok((value, mask & self.all())),
            _ => Err(text.error(self.expected())),
        }
    }

    fn expected(&self) -> String {
        let allowed = |(i, name): (usize, &&'static str)| (self.allowed >> i & 1 != 0).then_some(*name);
        let names: Vec<_> = self.names.iter().enumerate().filter_map(allowed).collect();
        format!("flags written +a-b or a|b, of {}", names.join(", "))
    }

    fn bit(&self, name: &str) -> Option<u128> {
        self.names.iter().position(|n| *n == name).map(|i| 1 << i)
    }

    fn parse_signed(&self, text: Piece<'_>) -> Result<(u128, u128), SyntaxError> {
        let (mut value, mut mask) = (0, 0);
        let mut rest = text;
        while !rest.is_empty() {
            let (sign, after) = rest.split_at(1);
            let (name, next) = after.split_at(after.text.find(['+', '-']).unwrap_or(after.text.len()));
            let bit =
                self.bit(name.text).filter(|b| b & self.allowed != 0).ok_or_else(|| name.error(self.expected()))?;
            if mask & bit != 0 {
                return Err(name.error("each flag once"));
            }
            mask |= bit;
            value |= if sign.text == "+" { bit } else { 0 };
            rest = next;
        }
        Ok((value, mask))
    }

    fn parse_listed(&self, text: Piece<'_>) -> Result<u128, SyntaxError> {
        if text.is_empty() {
            return Err(text.error(self.expected()));
        }
        text.words(&['|']).into_iter().try_fold(0, |value, word| {
            let bit = self.bit(word.text).map_or_else(|| integer(word, 32), Ok);
            bit.map(|bit| value | bit).map_err(|_| word.error(self.expected()))
        })
    }

    /// `a|b` when every bit of `of` is in the mask, else `+a-b`.
    pub fn show(&'static self, value: u128, mask: u128, of: u128) -> impl fmt::Display {
        fmt::from_fn(move |f| match mask & of {
            m if m == of => self.write_listed(f, value & of, "|"),
            0 => f.write_str("0/0"),
            m => self
                .bits(m)
                .try_for_each(|(i, name)| write!(f, "{}{name}", if value >> i & 1 != 0 { '+' } else { '-' })),
        })
    }

    /// The names of the bits that are set, `0` if none is.
    pub fn write_listed(&self, f: &mut fmt::Formatter<'_>, value: u128, separator: &str) -> fmt::Result {
        if value == 0 {
            return f.write_str("0");
        }
        self.bits(value).enumerate().try_for_each(|(n, (_, name))| {
            let gap = if n == 0 { "" } else { separator };
            write!(f, "{gap}{name}")
        })
    }

    fn bits(&self, value: u128) -> impl Iterator<Item = (usize, &'static str)> {
        self.names.iter().enumerate().filter(move |(i, _)| value >> i & 1 != 0).map(|(i, name)| (i, *name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_flags() {
        let read = |text| TCP.parse(Piece::new(text)).ok();
        assert_eq!(read("+syn-ack"), Some((2, 0x12)));
        assert_eq!(read("syn|ack"), Some((0x12, 0xfff)));
        assert_eq!(
            (read("0x12"), read("0x2/0x12"), read("0")),
            (Some((0x12, 0xfff)), Some((2, 0x12)), Some((0, 0xfff)))
        );
        assert_eq!(
            (read("+syn+syn"), read("+bad"), read(""), read("0x1000"), read("+")),
            (None, None, None, None, None)
        );
        assert_eq!(TCP.show(2, 0x12, 0xfff).to_string(), "+syn-ack");
        assert_eq!(TCP.show(0x12, 0xfff, 0xfff).to_string(), "syn|ack");
        assert_eq!(
            (TCP.show(0, 0xfff, 0xfff).to_string(), TCP.show(0, 0, 0xfff).to_string()),
            ("0".into(), "0/0".into())
        );
    }
}
