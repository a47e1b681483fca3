//! Scalar twin: eight bytes at a time.

use super::halves;

#[inline(always)]
pub fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(0u128, |sum, word| sum + u128::from(u64::from_ne_bytes(*word)));
    let sum = sum + u128::from(last(bytes, rest));
    halves(sum as u64) + (sum >> 64) as u64
}

/// The bytes behind the last whole word, as a word with zeros behind them.
#[inline(always)]
fn last(bytes: &[u8], rest: &[u8]) -> u64 {
    if rest.is_empty() {
        return 0;
    }
    // They are loaded with bytes before them, which are shifted out: copying them would be a call.
    let word = match bytes.last_chunk::<8>() {
        Some(last) => u64::from_le_bytes(*last) >> (8 * (8 - rest.len())),
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    u64::from_ne_bytes(word.to_le_bytes())
}
