//! Reading options of Geneve as flows of a datapath have them: `{class=0x102,type=0x80,len=4,0xa/0xf}` and the next.

use super::datapath_parse::{NOT_TOO_LONG, masked_number};
use sluice_flow::geneve::{OptionBytes, OptionKind};
use sluice_flow::text::number::wide_integer;
use sluice_flow::text::{FlowTextError, Piece, SyntaxError};
use sluice_flow::{OptionFilter, TUN_METADATA_BYTES, Wide};

/// A filter of packets that have such options; the text is what stands in `geneve(…)`.
///
/// # Errors
/// If it is no such text.
pub fn parse_option_filter(text: &str) -> Result<OptionFilter, FlowTextError> {
    let (list, mask) = options(Piece::new(text)).map_err(|error| error.located(text))?;
    Ok(OptionFilter::of_lists(&list, &mask))
}

/// The list of options and its mask.
pub(super) fn options(text: Piece<'_>) -> Result<(OptionBytes, OptionBytes), SyntaxError> {
    let wrong = |at: Piece<'_>| at.error("an option of Geneve: {class=…,type=…,len=…,0xVALUE}");
    let mut rest = text;
    let (mut list, mut mask) = (Vec::new(), Vec::new());
    while !rest.text.is_empty() {
        let (option, behind) = rest.strip_prefix("{").and_then(|t| t.split_once("}")).ok_or_else(|| wrong(rest))?;
        rest = behind;
        let mut numbers = [(0, 0); 3];
        let mut parts = option;
        for ((name, bits), number) in [("class=", 16), ("type=", 8), ("len=", 8)].into_iter().zip(&mut numbers) {
            let (part, further) = parts.split_once(",").unwrap_or((parts, Piece::new("")));
            parts = further;
            *number = masked_number(part.strip_prefix(name).ok_or_else(|| wrong(option))?, bits)?;
        }
        let [class, kind, length] = numbers.map(|(value, _)| value as u16);
        if length > TUN_METADATA_BYTES as u16 || length % 4 != 0 {
            return Err(option.error(format!("a length that is a multiple of 4, up to {TUN_METADATA_BYTES}")));
        }
        let n_bits = 8 * u32::from(length);
        let (value, value_mask) = match parts.split_once("/") {
            _ if parts.text.is_empty() => (Wide::ZERO, Wide::ZERO),
            Some((value, mask)) => (wide_integer(value, n_bits)?, wide_integer(mask, n_bits)?),
            None => (wide_integer(parts, n_bits)?, Wide::ones(n_bits)),
        };
        list.extend(OptionKind { class, kind: kind as u8, length: length as u8 }.header());
        list.extend(value.to_be(length.into()));
        mask.extend((numbers[0].1 as u16).to_be_bytes());
        mask.extend([numbers[1].1 as u8, 0xff]);
        mask.extend(value_mask.to_be(length.into()));
    }
    let fit = |bytes: &[u8]| OptionBytes::new(bytes).ok_or_else(|| text.error(NOT_TOO_LONG));
    Ok((fit(&list)?, fit(&mask)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_written_like_a_flow() {
        let filter = parse_option_filter("{class=0x102,type=0x80,len=4,0xa/0xf}{class=0,type=0,len=0}").unwrap();
        assert!(filter.admits(&[0, 0, 0, 0, 1, 2, 0x80, 1, 0xff, 0xff, 0xff, 0xfa]));
        assert!(!filter.admits(&[1, 2, 0x80, 1, 0, 0, 0, 0xa]), "the second option is missing");
        for wrong in ["{class=1,type=2,len=3}", "{class=1,type=2", "{class=1}", "{type=1,class=1,len=4}", "x"] {
            assert!(parse_option_filter(wrong).is_err(), "{wrong}");
        }
    }
}
