//! Numbers as the C library reads them: options of existing configurations must mean here what they mean in Open vSwitch.

/// The number at the start of the text in any notation of C, and what follows it; 0 if there is none.
fn prefix(text: &str, base: u32) -> (i128, &str) {
    let text = text.trim_ascii_start();
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let hexadecimal = hexadecimal.filter(|rest| rest.starts_with(|c: char| c.is_ascii_hexdigit()));
    let (base, digits) = match (base, hexadecimal) {
        (0 | 16, Some(rest)) => (16, rest),
        (0, None) if digits.starts_with('0') => (8, digits),
        (0, None) => (10, digits),
        (base, _) => (base, digits),
    };
    let end = digits.find(|c: char| !c.is_digit(base)).unwrap_or(digits.len());
    let value = digits[..end].chars().filter_map(|c| c.to_digit(base));
    let value = value.fold(0i128, |n, digit| (n * i128::from(base) + i128::from(digit)).min(u64::MAX.into()));
    (if is_negative { -value } else { value }, &digits[end..])
}

/// `strtoull(text, NULL, 0)`.
pub fn unsigned(text: &str) -> u64 {
    prefix(text, 0).0 as u64
}

/// `atoi(text)`.
pub fn decimal(text: &str) -> i32 {
    prefix(text, 10).0 as i32
}

/// `strtol(text, NULL, 16)`.
pub fn hexadecimal(text: &str) -> i32 {
    prefix(text, 16).0 as i32
}

/// `strtol(text, &end, 0)` if it reads the whole text.
pub fn whole(text: &str) -> Option<i32> {
    let (value, rest) = prefix(text, 0);
    rest.is_empty().then_some(value as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_c() {
        assert_eq!([unsigned("0x1f"), unsigned("010"), unsigned("12abc"), unsigned("")], [31, 8, 12, 0]);
        assert_eq!(unsigned("99999999999999999999999"), u64::MAX);
        assert_eq!([decimal("64"), decimal("0x10"), decimal("-3"), decimal("x")], [64, 0, -3, 0]);
        assert_eq!([hexadecimal("0x1f"), hexadecimal("1f"), hexadecimal("0xz")], [31, 31, 0]);
        assert_eq!([whole("0x10"), whole("16 "), whole("")], [Some(16), None, Some(0)]);
    }
}
