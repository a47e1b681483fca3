//! A cache line of sixteen signatures and sixteen hints: finds the hint beside a signature.
//!
//! Exact on every instruction set: the result is the hint in the first slot whose signature is the wanted one, 0 if
//! there is none. The lines of a batch are given by index, so that their loads overlap.

use crate::isa::{Isa, Set};

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512;
mod scalar;

/// Slots of a line.
pub const SLOTS: usize = 16;

/// Sixteen signatures and the hints beside them. Their meaning is the caller's; a hint of 0 stands for none.
///
/// Shape:  64 bytes, one cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, zerocopy::FromZeros)]
#[repr(C, align(64))]
pub struct Hints {
    /// By slot.
    pub signatures: [u16; SLOTS],
    /// By slot.
    pub hints: [u16; SLOTS],
}

const _: () = assert!(size_of::<Hints>() == 64);

impl Hints {
    /// All zero.
    pub const EMPTY: Hints = Hints { signatures: [0; SLOTS], hints: [0; SLOTS] };
}

/// For each `i`: the hint beside `wanted[i]` in line `at[i]`, 0 if that line has no such signature.
///
/// # Panics
/// If a line is out of range, or `wanted` or `out` is shorter than `at`.
#[inline]
pub fn find(isa: Isa, lines: &[Hints], at: &[u32], wanted: &[u16], out: &mut [u16]) {
    let n = at.len();
    let (wanted, out) = (&wanted[..n], &mut out[..n]);
    match isa.0 {
        Set::Scalar => scalar::find(lines, at, wanted, out),
        #[cfg(target_arch = "x86_64")]
        Set::Avx2 => avx2::find(isa, lines, at, wanted, out),
        #[cfg(target_arch = "x86_64")]
        Set::Avx512 => avx512::find(isa, lines, at, wanted, out),
        #[cfg(not(target_arch = "x86_64"))]
        Set::Avx2 | Set::Avx512 => scalar::find(lines, at, wanted, out),
    }
}

/// For each `i`: the hint beside `wanted[i]` in line `first[i]`, or else in line `second[i]`; 0 if neither has such a
/// signature.
///
/// # Panics
/// If a line is out of range, or `second`, `wanted` or `out` is shorter than `first`.
#[inline]
pub fn find_either(isa: Isa, lines: &[Hints], first: &[u32], second: &[u32], wanted: &[u16], out: &mut [u16]) {
    let n = first.len();
    let (second, wanted, out) = (&second[..n], &wanted[..n], &mut out[..n]);
    match isa.0 {
        Set::Scalar => scalar::find_either(lines, first, second, wanted, out),
        #[cfg(target_arch = "x86_64")]
        Set::Avx2 => avx2::find_either(isa, lines, first, second, wanted, out),
        #[cfg(target_arch = "x86_64")]
        Set::Avx512 => avx512::find_either(isa, lines, first, second, wanted, out),
        #[cfg(not(target_arch = "x86_64"))]
        Set::Avx2 | Set::Avx512 => scalar::find_either(lines, first, second, wanted, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::splitmix64;

    /// Signatures from few values, so that equal and duplicate slots are common, not 1 in 65,536.
    #[test]
    fn every_instruction_set_agrees_with_scalar() {
        let mut state = 0x5eed;
        let mut draw = |n: u64| splitmix64(&mut state) % n;
        for round in 0..20_000u64 {
            let high = if round % 2 == 0 { 0xfff0 } else { 0 };
            let lines: Vec<Hints> = (0..1 + draw(5))
                .map(|_| Hints {
                    signatures: std::array::from_fn(|_| high | draw(12) as u16),
                    hints: std::array::from_fn(|_| [0, 1, 0x7fff, 0x8000, 0xffff][draw(5) as usize]),
                })
                .collect();
            let n = draw(33) as usize;
            let at: Vec<u32> = (0..n).map(|_| draw(lines.len() as u64) as u32).collect();
            let wanted: Vec<u16> = (0..n).map(|_| high | draw(16) as u16).collect();
            let second: Vec<u32> = (0..n).map(|_| draw(lines.len() as u64) as u32).collect();
            let (mut want, mut want_either) = (vec![0; n], vec![0; n]);
            scalar::find(&lines, &at, &wanted, &mut want);
            scalar::find_either(&lines, &at, &second, &wanted, &mut want_either);
            for isa in Isa::available() {
                let mut got = vec![0xa5a5; n + 1];
                find(isa, &lines, &at, &wanted, &mut got);
                assert_eq!(got[..n], want[..], "{isa:?}");
                assert_eq!(got[n], 0xa5a5, "{isa:?} wrote behind its output");
                find_either(isa, &lines, &at, &second, &wanted, &mut got);
                assert_eq!(got[..n], want_either[..], "{isa:?}, either line");
                assert_eq!(got[n], 0xa5a5, "{isa:?} wrote behind its output");
            }
        }
    }

    #[test]
    fn the_first_slot_of_a_signature_answers() {
        for slot in 0..SLOTS {
            let mut line = Hints::EMPTY;
            line.signatures[slot..].fill(7);
            line.hints = std::array::from_fn(|i| 100 + i as u16);
            for isa in Isa::available() {
                let mut out = [0; 2];
                find(isa, &[line], &[0, 0], &[7, 8], &mut out);
                assert_eq!(out, [100 + slot as u16, 0], "{isa:?}");
            }
        }
    }
}
