//! Numbers of up to 1024 bits: the values of fields that are too long for a machine's own numbers.

use std::fmt;

/// A number of 1024 bits. The value of a Geneve option, which has at most 124 bytes, fits.
///
/// Shape:  sixteen words of 64 bits, the lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wide(pub [u64; WIDE_WORDS]);

/// Words of a [`Wide`].
pub const WIDE_WORDS: usize = 16;
/// Bits of a word.
const WORD_BITS: u32 = u64::BITS;
/// Bytes of a [`Wide`].
const WIDE_BYTES: usize = WIDE_WORDS * 8;

impl Wide {
    /// No bit.
    pub const ZERO: Wide = Wide([0; WIDE_WORDS]);

    /// The number whose low `n` bits are set.
    pub fn ones(n: u32) -> Wide {
        let word = |i: usize| match n.saturating_sub(WORD_BITS * i as u32) {
            0 => 0,
            n if n >= WORD_BITS => u64::MAX,
            n => (1 << n) - 1,
        };
        Wide(std::array::from_fn(word))
    }

    /// The low 128 bits.
    pub fn low(&self) -> u128 {
        u128::from(self.0[1]) << WORD_BITS | u128::from(self.0[0])
    }

    /// Whether no bit is set.
    pub fn is_zero(&self) -> bool {
        self.0 == [0; WIDE_WORDS]
    }

    /// How many bits it takes: the place of the highest bit that is set, counted from 1.
    pub fn bit_len(&self) -> u32 {
        let top = self.0.iter().rposition(|word| *word != 0);
        top.map_or(0, |i| WORD_BITS * (i as u32 + 1) - self.0[i].leading_zeros())
    }

    /// The number that stands in these bytes, the highest first; of more than 128 bytes the last ones.
    pub fn from_be(bytes: &[u8]) -> Wide {
        let mut out = Wide::ZERO;
        for (i, byte) in bytes.iter().rev().take(WIDE_BYTES).enumerate() {
            out.0[i / 8] |= u64::from(*byte) << (8 * (i % 8));
        }
        out
    }

    /// Writes its low bytes, the highest first, as many as there is space for.
    pub fn put_be(&self, to: &mut [u8]) {
        let byte = |i: usize| self.0.get(i / 8).map_or(0, |word| (word >> (8 * (i % 8))) as u8);
        to.iter_mut().rev().enumerate().for_each(|(i, to)| *to = byte(i));
    }

    /// Its low `n` bytes, the highest first.
    pub fn to_be(&self, n: usize) -> Vec<u8> {
        let mut bytes = vec![0; n];
        self.put_be(&mut bytes);
        bytes
    }

    /// The bits that both have.
    pub fn and(&self, other: &Wide) -> Wide {
        Wide(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// The bits that `other` does not have.
    pub fn and_not(&self, other: &Wide) -> Wide {
        Wide(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// The bits that either has.
    pub fn or(&self, other: &Wide) -> Wide {
        Wide(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// `value` where `mask` has ones, and its own bits elsewhere.
    pub fn replaced(&self, value: &Wide, mask: &Wide) -> Wide {
        self.and_not(mask).or(&value.and(mask))
    }

    /// Moves the bits up; those that leave at the top are lost.
    pub fn shl(&self, n: u32) -> Wide {
        let (words, bits) = ((n / WORD_BITS) as usize, n % WORD_BITS);
        let at = |i: usize| i.checked_sub(words).map_or(0, |i| self.0[i]);
        let from_below = |i: usize| if bits == 0 || i == 0 { 0 } else { at(i - 1) >> (WORD_BITS - bits) };
        Wide(std::array::from_fn(|i| at(i) << bits | from_below(i)))
    }

    /// Moves the bits down; those that leave at the bottom are lost.
    pub fn shr(&self, n: u32) -> Wide {
        let (words, bits) = ((n / WORD_BITS) as usize, n % WORD_BITS);
        let at = |i: usize| self.0.get(i + words).copied().unwrap_or(0);
        let from_above = |i: usize| if bits == 0 { 0 } else { at(i + 1) << (WORD_BITS - bits) };
        Wide(std::array::from_fn(|i| at(i) >> bits | from_above(i)))
    }

    /// Reads digits; `None` if one is none of that radix, or if the number has more bits.
    pub fn from_digits(digits: &str, radix: u32) -> Option<Wide> {
        let mut out = Wide::ZERO;
        for digit in digits.chars() {
            let mut carry = u128::from(digit.to_digit(radix)?);
            for word in &mut out.0 {
                let sum = u128::from(*word) * u128::from(radix) + carry;
                (*word, carry) = (sum as u64, sum >> WORD_BITS);
            }
            if carry != 0 {
                return None;
            }
        }
        (!digits.is_empty()).then_some(out)
    }
}

impl Default for Wide {
    fn default() -> Self {
        Wide::ZERO
    }
}

impl From<u128> for Wide {
    fn from(value: u128) -> Self {
        let mut out = Wide::ZERO;
        (out.0[0], out.0[1]) = (value as u64, (value >> WORD_BITS) as u64);
        out
    }
}

/// In hexadecimal, zero as `0`.
impl fmt::Display for Wide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(top) = self.0.iter().rposition(|word| *word != 0) else { return f.write_str("0") };
        write!(f, "{:#x}", self.0[top])?;
        self.0[..top].iter().rev().try_for_each(|word| write!(f, "{word:016x}"))
    }
}

/// A number that is kept: short ones without an allocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldValue(Kept);

/// A number of more than 128 bits stands in a box, each other as it is: two equal numbers are kept alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Kept {
    Short(u128),
    Long(Box<Wide>),
}

impl FieldValue {
    /// The number.
    pub fn wide(&self) -> Wide {
        match &self.0 {
            Kept::Short(value) => (*value).into(),
            Kept::Long(wide) => **wide,
        }
    }

    /// The memory that it takes beside itself.
    pub fn boxed_bytes(&self) -> usize {
        if matches!(self.0, Kept::Long(_)) { size_of::<Wide>() } else { 0 }
    }

    /// Its low 128 bits.
    pub fn low(&self) -> u128 {
        match &self.0 {
            Kept::Short(value) => *value,
            Kept::Long(wide) => wide.low(),
        }
    }
}

impl From<u128> for FieldValue {
    fn from(value: u128) -> Self {
        FieldValue(Kept::Short(value))
    }
}

impl From<Wide> for FieldValue {
    fn from(value: Wide) -> Self {
        FieldValue(if value.bit_len() <= 128 { Kept::Short(value.low()) } else { Kept::Long(Box::new(value)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wide() -> impl Strategy<Value = Wide> {
        // Words of zeros and of ones are common, so that edges meet the limits of words.
        let word = prop_oneof![Just(0), Just(u64::MAX), any::<u64>()];
        proptest::collection::vec(word, WIDE_WORDS).prop_map(|words| Wide(std::array::from_fn(|i| words[i])))
    }

    /// The plain twin: one bit after another, the lowest first.
    fn bits(n: &Wide) -> Vec<bool> {
        (0..1024).map(|i| n.0[i / 64] >> (i % 64) & 1 != 0).collect()
    }

    proptest! {
        #[test]
        fn it_shifts_bit_by_bit(n in wide(), by in 0..1100u32) {
            let bit = |i: i64| usize::try_from(i).ok().and_then(|i| bits(&n).get(i).copied()).unwrap_or(false);
            let by_i = i64::from(by);
            prop_assert_eq!(bits(&n.shl(by)), (0..1024).map(|i| bit(i - by_i)).collect::<Vec<_>>());
            prop_assert_eq!(bits(&n.shr(by)), (0..1024).map(|i| bit(i + by_i)).collect::<Vec<_>>());
            prop_assert_eq!(bits(&Wide::ones(by)), (0..1024).map(|i| i < by).collect::<Vec<_>>());
            prop_assert_eq!(n.bit_len(), bits(&n).iter().rposition(|bit| *bit).map_or(0, |i| i as u32 + 1));
        }

        #[test]
        fn bytes_and_text_come_back(n in wide(), size in 0..140usize) {
            prop_assert_eq!(Wide::from_be(&n.to_be(size)), n.and(&Wide::ones(8 * size as u32)));
            let text = n.to_string();
            prop_assert_eq!(Wide::from_digits(text.trim_start_matches("0x"), 16), Some(n));
            let kept = FieldValue::from(n);
            prop_assert_eq!((kept.wide(), kept.low()), (n, n.low()));
            let low = n.low();
            prop_assert_eq!(Wide::from_digits(&low.to_string(), 10), Some(low.into()));
            prop_assert_eq!(FieldValue::from(Wide::from(low)), FieldValue::from(low));
        }
    }

    #[test]
    fn what_is_no_number_of_1024_bits_is_refused() {
        assert_eq!(Wide::from_digits(&"f".repeat(256), 16), Some(Wide::ones(1024)));
        assert_eq!(Wide::from_digits(&format!("1{}", "0".repeat(256)), 16), None);
        assert_eq!(
            (Wide::from_digits("", 10), Wide::from_digits("+1", 10), Wide::from_digits("8", 8)),
            (None, None, None)
        );
        assert_eq!(Wide::ZERO.to_string(), "0");
    }
}
