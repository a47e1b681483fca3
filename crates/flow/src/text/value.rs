//! Values of fields, read and written in the format the table gives.

use super::SyntaxError;
use super::flags;
use super::number::{integer, ipv4, ipv6, mac, masked_address, show_hex, show_ipv4, show_ipv6, show_mac, wide_integer};
use super::piece::Piece;
use crate::field::{Field, FieldId, Format, ones};
use crate::{OfPort, PortNames, SubField, Wide};
use std::fmt;

/// Reads a field's `VALUE` or `VALUE/MASK`. `*` matches anything. Without a mask, every bit that a match can examine is
/// matched.
pub fn parse(field: &Field, text: Piece<'_>, ports: &PortNames) -> Result<(u128, u128), SyntaxError> {
    if text.text == "*" {
        return Ok((0, 0));
    }
    let (value, mask) = match field.format {
        Format::Decimal | Format::Hexadecimal => numbers(field, text)?,
        Format::Ethernet => match text.split_once("/") {
            Some((value, mask)) => (mac(value)?.number(), mac(mask)?.number()),
            None => (mac(text)?.number(), ones(48)),
        },
        Format::Ipv4 => masked_address(text, 32, |t| ipv4(t).map(|a| u128::from(u32::from(a))))?,
        Format::Ipv6 => masked_address(text, 128, |t| ipv6(t).map(u128::from))?,
        Format::Port => (u128::from(ports.parse_piece(text)?.0), ones(16)),
        Format::PortOxm => (u128::from(ports.parse_piece(text)?.to_of11()), ones(32)),
        Format::CtState => exact_mask(field, flags::CT_STATE.parse(text)?, flags::CT_STATE.all()),
        Format::TcpFlags => flags::TCP.parse(text)?,
        Format::TunFlags => {
            let (value, mask) = flags::TUNNEL.parse(text)?;
            (value, mask & field.all_ones())
        }
        Format::Frag => fragment(text)?,
        Format::PacketType => (packet_type(text)?, ones(32)),
    };
    if !field.maskable && mask != 0 && mask & field.match_ones() != field.match_ones() {
        return Err(text.error(format!("no mask, since {} cannot have one", field.name)));
    }
    Ok((value, mask))
}

/// [`parse`], of any length.
pub fn parse_wide(field: &Field, text: Piece<'_>, ports: &PortNames) -> Result<(Wide, Wide), SyntaxError> {
    if !field.is_wide() {
        return parse(field, text, ports).map(|(value, mask)| (value.into(), mask.into()));
    }
    match text.split_once("/") {
        _ if text.text == "*" => Ok((Wide::ZERO, Wide::ZERO)),
        Some((value, mask)) => Ok((wide_integer(value, field.n_bits)?, wide_integer(mask, field.n_bits)?)),
        None => Ok((wide_integer(text, field.n_bits)?, field.all_ones_wide())),
    }
}

/// Reads a field's value where no mask is allowed.
pub fn parse_exact(field: &Field, text: Piece<'_>, ports: &PortNames) -> Result<u128, SyntaxError> {
    match parse(field, text, ports)? {
        (value, mask) if mask & field.match_ones() == field.match_ones() => Ok(value),
        _ => Err(text.error("a value without a mask")),
    }
}

/// Flags whose every named bit is in the mask are an exact match.
fn exact_mask(field: &Field, (value, mask): (u128, u128), all: u128) -> (u128, u128) {
    (value, if mask == all { field.match_ones() } else { mask })
}

fn numbers(field: &Field, text: Piece<'_>) -> Result<(u128, u128), SyntaxError> {
    let wire_bits = 8 * field.n_bytes as u32;
    let (value, mask) = match text.split_once("/") {
        // Open vSwitch takes masks as wide as the field is on the wire.
        Some((value, mask)) => (value, integer(mask, wire_bits)?),
        None => (text, ones(wire_bits)),
    };
    let number = integer(value, wire_bits)?;
    match wrong_value(field, number & mask) {
        Some(expected) => Err(value.error(expected)),
        None => Ok((number, mask & field.match_ones())),
    }
}

/// The values that are allowed, if `number` is not one of them.
pub fn wrong_value(field: &Field, number: u128) -> Option<String> {
    let range_of = |bits| (number > ones(bits)).then(|| super::number::expected(bits));
    match field.id {
        // 0xffff: no tag at all.
        FieldId::DlVlan if number == 0xffff => None,
        FieldId::VlanVid => range_of(13),
        FieldId::ArpOp => range_of(8),
        FieldId::IpDscp => (number & !0xfc != 0).then(|| "a multiple of 4 of at most 252".to_owned()),
        FieldId::NshTtl => range_of(6),
        _ => range_of(field.n_bits),
    }
}

/// Names of fragments: value and mask. Source: `ovs-fields(7)`, `ip_frag`.
const FRAGMENTS: [(&str, u128, u128); 7] =
    [("no", 0, 3), ("first", 1, 3), ("later", 3, 3), ("no", 0, 1), ("yes", 1, 1), ("not_later", 0, 2), ("later", 2, 2)];

fn fragment(text: Piece<'_>) -> Result<(u128, u128), SyntaxError> {
    let known = FRAGMENTS.iter().find(|(name, ..)| name.eq_ignore_ascii_case(text.text));
    known.map(|(_, value, mask)| (*value, *mask)).ok_or_else(|| text.error("no, yes, first, later or not_later"))
}

/// The name of a fragment match.
pub fn fragment_name(value: u128, mask: u128) -> &'static str {
    FRAGMENTS.iter().find(|(_, v, m)| (*v, *m) == (value & 3, mask & 3)).map_or("<error>", |(name, ..)| name)
}

fn packet_type(text: Piece<'_>) -> Result<u128, SyntaxError> {
    let wrong = || text.error("a packet type written (NAMESPACE,TYPE)");
    let inner = text.strip_prefix("(").and_then(|t| t.strip_suffix(")")).ok_or_else(wrong)?;
    let (space, kind) = inner.split_once(",").ok_or_else(wrong)?;
    Ok(integer(space.trim(), 16)? << 16 | integer(kind.trim(), 16)?)
}

/// A field's value with its mask, as `set_field` and `learn` print it. A mask of all ones is left out.
pub fn show<'a>(field: &'static Field, value: u128, mask: u128, ports: &'a PortNames) -> impl fmt::Display + 'a {
    let all = field.all_ones();
    fmt::from_fn(move |f| {
        let exact = mask & all == all;
        if mask == 0 {
            return f.write_str("ANY");
        }
        match field.format {
            Format::Ethernet => return write!(f, "{}", show_mac(value, mask)),
            Format::Ipv4 => return write!(f, "{}", show_ipv4(value, mask)),
            Format::Ipv6 => return write!(f, "{}", show_ipv6(value, mask)),
            Format::CtState => return write!(f, "{}", flags::CT_STATE.show(value, mask, flags::CT_STATE.all())),
            Format::TcpFlags => return write!(f, "{}", flags::TCP.show(value, mask, flags::TCP.all())),
            Format::TunFlags => return write!(f, "{}", flags::TUNNEL.show(value, mask, flags::TUNNEL.allowed)),
            Format::Frag => return f.write_str(fragment_name(value, mask)),
            Format::PacketType => return write!(f, "packet_type=({},{:#x})", value >> 16, value & 0xffff),
            Format::Port if exact => return write!(f, "{}", ports.display(OfPort(value as u16))),
            Format::PortOxm if exact => {
                let port = OfPort::from_of11(value as u32).unwrap_or(OfPort::NONE);
                return write!(f, "{}", ports.display(port));
            }
            Format::Hexadecimal => write!(f, "{}", show_hex(value))?,
            Format::Decimal | Format::Port | Format::PortOxm => write!(f, "{value}")?,
        }
        if exact { Ok(()) } else { write!(f, "/{}", show_hex(mask)) }
    })
}

/// [`show`], of any length.
pub fn show_wide<'a>(field: &'static Field, value: Wide, mask: Wide, ports: &'a PortNames) -> impl fmt::Display + 'a {
    fmt::from_fn(move |f| match () {
        () if !field.is_wide() => write!(f, "{}", show(field, value.low(), mask.low(), ports)),
        () if mask.is_zero() => f.write_str("ANY"),
        () if mask == field.all_ones_wide() => write!(f, "{value}"),
        () => write!(f, "{value}/{mask}"),
    })
}

impl Field {
    /// A value of the field as text, ports by number.
    pub fn display(&'static self, value: u128) -> impl fmt::Display {
        show(self, value, self.all_ones(), &PortNames::NONE)
    }
}

/// Reads `NAME`, `NAME[]`, `NAME[BIT]` or `NAME[FIRST..LAST]`.
pub fn parse_subfield(text: Piece<'_>) -> Result<SubField, SyntaxError> {
    let (name, range) = text.split_at(text.text.find('[').unwrap_or(text.text.len()));
    let field = parse_field_name(name)?;
    if range.is_empty() || range.text == "[]" {
        return Ok(SubField::whole(field.id));
    }
    let wrong = || range.error("[], [BIT] or [FIRST..LAST]");
    let inner = range.strip_prefix("[").and_then(|r| r.strip_suffix("]")).ok_or_else(wrong)?;
    let bit = |text: Piece<'_>| text.text.parse::<u32>().map_err(|_| wrong());
    let (first, last) = match inner.split_once("..") {
        Some((first, last)) => (bit(first)?, bit(last)?),
        None => (bit(inner)?, bit(inner)?),
    };
    if first > last || last >= field.n_bits {
        return Err(range.error(format!("bits of {}, 0 to {}, the lower first", field.name, field.n_bits - 1)));
    }
    Ok(SubField { field: field.id, start: first, n_bits: last - first + 1 })
}

/// Finds a field by any of its names; an NXM name may carry the suffix of its masked form, `_W`.
pub fn parse_field_name(name: Piece<'_>) -> Result<&'static Field, SyntaxError> {
    let unmasked = name.text.strip_suffix("_W").and_then(Field::by_oxm_name);
    unmasked.or_else(|| Field::by_name(name.text)).ok_or_else(|| name.error("the name of a field"))
}

impl PortNames {
    /// Reads a port: a number, a reserved name, or a configured name, quoted or not.
    pub fn parse_piece(&self, text: Piece<'_>) -> Result<OfPort, SyntaxError> {
        self.parse(text.text).ok_or_else(|| text.error("a port number or name"))
    }

    /// Reads a port as [`PortNames::display`] writes it; case does not matter in reserved names.
    pub fn parse(&self, text: &str) -> Option<OfPort> {
        if text.bytes().next()?.is_ascii_digit() && text.bytes().all(|b| b.is_ascii_digit()) {
            let number: u32 = text.parse().ok()?;
            return u16::try_from(number).ok().map(OfPort).or_else(|| OfPort::from_of11(number));
        }
        let reserved = OfPort::RESERVED.iter().chain(&[("NONE", OfPort::NONE)]);
        if let Some((_, port)) = reserved.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            return Some(*port);
        }
        match text.strip_prefix('"') {
            Some(quoted) => self.port(&unescaped(quoted.strip_suffix('"')?)?),
            None => self.port(text),
        }
    }
}

fn unescaped(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { chars.next()? } else { c });
    }
    Some(out)
}
