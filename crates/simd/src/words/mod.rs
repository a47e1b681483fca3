//! The sum of bytes as 16-bit words, for Internet checksums (RFC 1071).
//!
//! Modulo 2¹⁶ − 1, where 2¹⁶, 2³² and 2⁶⁴ are 1, so that wider words may be added up as well; and zero only if every byte
//! is. Words are in the machine's order: the sum in the other order is this one, folded, with its bytes swapped.

use crate::isa::{Isa, Set};

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512;
mod scalar;

/// Fewer bytes than this are added up by plain code: a call costs more than it saves.
const VECTORS_FROM: usize = 128;

/// Bytes that vectors add up before the sums of 32 bits could overflow.
const AT_ONCE: usize = 1 << 20;

/// A number congruent to the sum, of at most 36 bits. An odd last byte is the low half of a little-endian word, the high half
/// of a big-endian one.
#[inline]
pub fn sum(isa: Isa, bytes: &[u8]) -> u64 {
    if bytes.len() < VECTORS_FROM {
        return scalar::sum(bytes);
    }
    sum_many(isa, bytes)
}

#[inline(never)]
fn sum_many(isa: Isa, bytes: &[u8]) -> u64 {
    match isa.0 {
        Set::Scalar => scalar::sum(bytes),
        #[cfg(target_arch = "x86_64")]
        Set::Avx2 => in_parts(bytes, |part| avx2::sum(isa, part)),
        #[cfg(target_arch = "x86_64")]
        Set::Avx512 => in_parts(bytes, |part| avx512::sum(isa, part)),
        #[cfg(not(target_arch = "x86_64"))]
        Set::Avx2 | Set::Avx512 => scalar::sum(bytes),
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn in_parts(bytes: &[u8], sum: impl Fn(&[u8]) -> u64) -> u64 {
    bytes.chunks(AT_ONCE).fold(0, |total, part| halves(total) + sum(part))
}

/// The two halves of a number added up.
#[inline(always)]
fn halves(number: u64) -> u64 {
    (number & 0xffff_ffff) + (number >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::splitmix64;

    /// By the definition.
    fn plain(bytes: &[u8]) -> u64 {
        bytes.chunks(2).fold(0, |sum, word| {
            let word = [word[0], *word.get(1).unwrap_or(&0)];
            match (sum + u64::from(u16::from_le_bytes(word))) % 0xffff {
                0 if sum != 0 || word != [0, 0] => 0xffff,
                sum => sum,
            }
        })
    }

    fn folded(sum: u64) -> u64 {
        assert!(sum < 1 << 36, "{sum:#x}");
        if sum == 0 { 0 } else { (sum - 1) % 0xffff + 1 }
    }

    #[test]
    fn every_instruction_set_agrees_with_the_definition() {
        let mut seed = 1;
        let random: Vec<u8> = (0..5000).map(|_| splitmix64(&mut seed) as u8).collect();
        for bytes in [random, vec![0xff; 5000], vec![0; 5000]] {
            for size in (0..700).chain([1480, 1481, 4096, 4999]) {
                for from in [0, 1, 7] {
                    let bytes = &bytes[from..(from + size).min(5000)];
                    for isa in Isa::available() {
                        assert_eq!(folded(sum(isa, bytes)), plain(bytes), "{isa:?}, {size} bytes from {from}");
                        assert_eq!(folded(sum_many(isa, bytes)), plain(bytes), "{isa:?}, {size} bytes from {from}");
                    }
                }
            }
        }
    }

    #[test]
    fn long_sums_do_not_overflow() {
        let bytes = vec![0xff; 3 * AT_ONCE + 77];
        for isa in Isa::available() {
            assert_eq!(folded(sum(isa, &bytes)), plain(&bytes), "{isa:?}");
            assert_eq!(sum(isa, &vec![0; 3 * AT_ONCE + 77]), 0, "{isa:?}");
        }
    }
}
