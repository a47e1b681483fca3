//! Numbers and addresses, read and written as Open vSwitch does.

use super::SyntaxError;
use super::piece::Piece;
use crate::Wide;
use crate::field::ones;
use crate::mac::{Mac, ParseMacError};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Reads a number of at most `n_bits` bits: decimal, `0x` hexadecimal, or octal with a leading zero. Where 32 or 64
/// bits are wanted, `-1` means all ones.
pub fn integer(text: Piece<'_>, n_bits: u32) -> Result<u128, SyntaxError> {
    let wrong = || text.error(expected(n_bits));
    let (negative, digits) = match text.text.strip_prefix('-') {
        Some(rest) if n_bits == 32 || n_bits == 64 => (true, rest),
        _ => (false, text.text),
    };
    let value = magnitude(digits).ok_or_else(wrong)?;
    let value = if negative { value.wrapping_neg() & ones(n_bits) } else { value };
    if value > ones(n_bits) { Err(wrong()) } else { Ok(value) }
}

/// The same of more bits than a `u128` has.
pub fn wide_integer(text: Piece<'_>, n_bits: u32) -> Result<Wide, SyntaxError> {
    if n_bits <= u128::BITS {
        return integer(text, n_bits).map(Wide::from);
    }
    let (digits, radix) = radix_of(text.text);
    let value = Wide::from_digits(digits, radix).filter(|value| value.bit_len() <= n_bits);
    value.ok_or_else(|| text.error(expected(n_bits)))
}

/// A number of at most so many bits in words, with its range if that is short enough to be read.
pub fn expected(n_bits: u32) -> String {
    let range = if n_bits <= 32 { format!(", 0 to {}", ones(n_bits)) } else { String::new() };
    format!("a number of at most {n_bits} bits{range}")
}

/// The digits of a number and their radix.
fn radix_of(digits: &str) -> (&str, u32) {
    match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    }
}

fn magnitude(digits: &str) -> Option<u128> {
    let (digits, radix) = radix_of(digits);
    // from_str_radix takes a sign, which is not ours to accept here.
    if digits.starts_with(['+', '-']) {
        return None;
    }
    u128::from_str_radix(digits, radix).ok()
}

macro_rules! sized {
    ($($(#[doc = $doc:literal])+ $name:ident -> $type:ty;)+) => {
        $($(#[doc = $doc])+
        pub fn $name(text: Piece<'_>) -> Result<$type, SyntaxError> {
            integer(text, <$type>::BITS).map(|n| n as $type)
        })+
    };
}

sized! {
    /// A number of 8 bits.
    u8 -> u8;
    /// A number of 16 bits.
    u16 -> u16;
    /// A number of 32 bits.
    u32 -> u32;
    /// A number of 64 bits.
    u64 -> u64;
}

/// Reads hexadecimal digits, two a byte, with dots or spaces between bytes allowed.
pub fn hex_bytes(text: Piece<'_>) -> Result<Vec<u8>, SyntaxError> {
    let digits: Vec<u8> = text.text.bytes().filter(|b| !matches!(b, b'.' | b' ')).collect();
    let (pairs, odd) = digits.as_chunks::<2>();
    let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
    let bytes: Option<Vec<u8>> = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    bytes.filter(|_| odd.is_empty()).ok_or_else(|| text.error("pairs of hexadecimal digits"))
}

/// Reads an Ethernet address.
pub fn mac(text: Piece<'_>) -> Result<Mac, SyntaxError> {
    text.text.parse().map_err(|e: ParseMacError| text.error(e.to_string()))
}

/// Reads an IPv4 address.
pub fn ipv4(text: Piece<'_>) -> Result<Ipv4Addr, SyntaxError> {
    text.text.parse().map_err(|_| text.error("an IPv4 address"))
}

/// Reads an IPv6 address.
pub fn ipv6(text: Piece<'_>) -> Result<Ipv6Addr, SyntaxError> {
    text.text.parse().map_err(|_| text.error("an IPv6 address"))
}

/// Reads `VALUE`, `VALUE/PREFIX` or `VALUE/MASK` of an address of `n_bits`, given how one address is read.
pub fn masked_address(
    text: Piece<'_>,
    n_bits: u32,
    address: impl Fn(Piece<'_>) -> Result<u128, SyntaxError>,
) -> Result<(u128, u128), SyntaxError> {
    let Some((value, mask)) = text.split_once("/") else {
        return Ok((address(text)?, ones(n_bits)));
    };
    let value = address(value)?;
    let is_prefix = !mask.is_empty() && mask.text.bytes().all(|b| b.is_ascii_digit());
    let mask = match mask.text.parse::<u32>() {
        Ok(n) if is_prefix && n <= n_bits => prefix_mask(n, n_bits),
        _ if is_prefix => return Err(mask.error(format!("a prefix length of at most {n_bits}"))),
        _ => address(mask).map_err(|e| SyntaxError {
            expected: format!("a prefix length or a mask written as {}", e.expected),
            ..e
        })?,
    };
    Ok((value, mask))
}

fn prefix_mask(n: u32, n_bits: u32) -> u128 {
    ones(n_bits) & !ones(n_bits - n)
}

/// The prefix length of a mask of `n_bits`, if it is one.
pub fn prefix_length(mask: u128, n_bits: u32) -> Option<u32> {
    let n = (mask << (128 - n_bits)).leading_ones();
    (mask == prefix_mask(n, n_bits)).then_some(n)
}

/// An address and its mask: `/24` where the mask is a prefix, else written out, nothing where it is exact.
struct MaskedAddress<A: Fn(u128) -> D, D: fmt::Display> {
    value: u128,
    mask: u128,
    n_bits: u32,
    address: A,
}

impl<A: Fn(u128) -> D, D: fmt::Display> fmt::Display for MaskedAddress<A, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", (self.address)(self.value))?;
        match prefix_length(self.mask, self.n_bits) {
            Some(n) if n == self.n_bits => Ok(()),
            Some(n) => write!(f, "/{n}"),
            None => write!(f, "/{}", (self.address)(self.mask)),
        }
    }
}

/// An IPv4 address with its mask.
pub fn show_ipv4(value: u128, mask: u128) -> impl fmt::Display {
    MaskedAddress { value, mask, n_bits: 32, address: |n| Ipv4Addr::from(n as u32) }
}

/// An IPv6 address with its mask.
pub fn show_ipv6(value: u128, mask: u128) -> impl fmt::Display {
    MaskedAddress { value, mask, n_bits: 128, address: |n| Ip6(Ipv6Addr::from(n)) }
}

/// An IPv6 address as the C library writes it: as Rust does, but `::a.b.c.d` for addresses whose first 96 bits are
/// zero and next 16 are not.
pub struct Ip6(pub Ipv6Addr);

impl fmt::Display for Ip6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.segments() {
            [0, 0, 0, 0, 0, 0, high, low] if high != 0 => {
                write!(f, "::{}", Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
            }
            _ => self.0.fmt(f),
        }
    }
}

/// An Ethernet address with its mask; an exact one is left out.
pub fn show_mac(value: u128, mask: u128) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        write!(f, "{}", Mac::from_number(value))?;
        if mask == ones(48) { Ok(()) } else { write!(f, "/{}", Mac::from_number(mask)) }
    })
}

/// A number in hexadecimal, zero as `0`.
pub fn show_hex(value: u128) -> impl fmt::Display {
    fmt::from_fn(move |f| if value == 0 { f.write_str("0") } else { write!(f, "{value:#x}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_three_bases() {
        let read = |text, bits| integer(Piece::new(text), bits).ok();
        assert_eq!(
            (read("10", 8), read("0x10", 8), read("010", 8), read("0", 1)),
            (Some(10), Some(16), Some(8), Some(0))
        );
        assert_eq!(
            (read("256", 8), read("-1", 8), read("", 8), read("0x", 8), read("1 ", 8)),
            (None, None, None, None, None)
        );
        assert_eq!((read("-1", 64), read("-2", 32)), (Some(u128::from(u64::MAX)), Some(0xffff_fffe)));
        assert_eq!((read("0xffffffffffffffffffffffffffffffff", 128), read("+1", 8)), (Some(u128::MAX), None));
    }

    #[test]
    fn masks_as_prefix_or_written_out() {
        let read = |text| masked_address(Piece::new(text), 32, |t| ipv4(t).map(|a| u128::from(u32::from(a)))).ok();
        assert_eq!(read("10.0.0.0/8"), Some((0x0a00_0000, 0xff00_0000)));
        assert_eq!(read("10.0.0.0/255.0.0.255"), Some((0x0a00_0000, 0xff00_00ff)));
        assert_eq!(
            (read("1.2.3.4/33"), read("1.2.3.4/"), read("1.2.3/8"), read("1.2.3.4/0")),
            (None, None, None, Some((0x0102_0304, 0)))
        );
        assert_eq!(show_ipv4(0x0a00_0000, 0xff00_00ff).to_string(), "10.0.0.0/255.0.0.255");
        assert_eq!(show_ipv6(1 << 127, 1 << 127).to_string(), "8000::/1");
        assert_eq!(Ip6("::1.2.3.4".parse().unwrap()).to_string(), "::1.2.3.4");
        assert_eq!(Ip6("::102".parse().unwrap()).to_string(), "::102");
    }
}
