//! The text of actions whose rows declare all of their arguments.

use super::action_args::{arrow, table, writable};
use crate::OfAction;
use crate::ofpact::{ActionType, Arg, Number, Show, Text, Value, Values};
use sluice_flow::Mac;
use sluice_flow::text::{Delimiter, Pair, Piece, SyntaxError, number, value};
use std::fmt::{self, Formatter};
use std::net::Ipv4Addr;

/// Reads the arguments of an action and makes it.
pub(super) fn read(row: &ActionType, make: fn(&Values) -> OfAction, pair: &Pair<'_>) -> Result<OfAction, SyntaxError> {
    let mut values = Values::NONE;
    match (row.text, row.args) {
        (Text::Arrow, [first, second]) => {
            let (left, right) = sides(pair)?;
            values.0 = [read_arg(*first, left)?, read_arg(*second, right)?];
        }
        (_, [arg]) => values.0[0] = read_arg(*arg, pair.value)?,
        _ => {}
    }
    Ok(make(&values))
}

/// What stands on the two sides of `->`. Open vSwitch takes `NAME:ARG->BITS` as well as `NAME(ARG)->BITS`.
fn sides<'a>(pair: &Pair<'a>) -> Result<(Piece<'a>, Piece<'a>), SyntaxError> {
    match pair.delimiter {
        Delimiter::Parenthesis => {
            Ok((pair.value, pair.tail.strip_prefix("->").ok_or_else(|| pair.tail.error("->FIELD[BIT]"))?))
        }
        _ => arrow(pair.value),
    }
}

fn read_arg(arg: Arg, text: Piece<'_>) -> Result<Value, SyntaxError> {
    Ok(match arg {
        Arg::Number(Number { n_bits, .. }) => Value::Number(number::integer(text, n_bits)? as u64),
        Arg::EtherType(allowed) => Value::Number(ethertype(text, allowed)?.into()),
        Arg::Tos => match number::u8(text)? {
            tos if tos & 3 == 0 => Value::Number(tos.into()),
            _ => return Err(text.error("a multiple of 4 of at most 252")),
        },
        Arg::Mac => Value::Number(number::mac(text)?.number() as u64),
        Arg::Ipv4 => Value::Number(number::ipv4(text)?.to_bits().into()),
        Arg::Table => Value::Number(table(text)?.into()),
        Arg::Source => Value::Bits(value::parse_subfield(text)?),
        Arg::Destination => Value::Bits(writable(text)?),
        Arg::Bit => match writable(text)? {
            bit if bit.n_bits == 1 => Value::Bits(bit),
            _ => return Err(text.error("a single bit")),
        },
    })
}

fn ethertype(text: Piece<'_>, allowed: &[u16]) -> Result<u16, SyntaxError> {
    let names = || allowed.iter().map(|t| format!("{t:#06x}")).collect::<Vec<_>>().join(" or ");
    match number::u16(text) {
        Ok(n) if allowed.contains(&n) => Ok(n),
        _ => Err(text.error(names())),
    }
}

/// Writes an action with its arguments.
pub(super) fn show(f: &mut Formatter<'_>, row: &ActionType, values: &Values) -> fmt::Result {
    f.write_str(row.name().unwrap_or_default())?;
    let arg = |i: usize| {
        let shown = row.args.get(i).copied().zip(values.0.get(i).copied());
        fmt::from_fn(move |f| shown.map_or(Ok(()), |(arg, value)| show_arg(f, arg, value)))
    };
    match row.text {
        Text::Word | Text::Own => Ok(()),
        Text::Colon => write!(f, ":{}", arg(0)),
        Text::Parentheses => write!(f, "({})", arg(0)),
        Text::Arrow => write!(f, "({})->{}", arg(0), arg(1)),
    }
}

fn show_arg(f: &mut Formatter<'_>, arg: Arg, value: Value) -> fmt::Result {
    let number = match value {
        Value::Bits(bits) => return write!(f, "{bits}"),
        Value::Number(number) => number,
    };
    let show = match arg {
        Arg::Mac => return write!(f, "{}", Mac::from_number(number.into())),
        Arg::Ipv4 => return write!(f, "{}", Ipv4Addr::from_bits(number as u32)),
        Arg::Number(Number { show, .. }) => show,
        Arg::EtherType(_) => Show::HexadecimalWord,
        Arg::Tos | Arg::Table | Arg::Source | Arg::Destination | Arg::Bit => Show::Decimal,
    };
    match show {
        Show::Decimal => write!(f, "{number}"),
        Show::Hexadecimal => write!(f, "{}", number::show_hex(number.into())),
        Show::HexadecimalWord => write!(f, "{number:#06x}"),
    }
}
