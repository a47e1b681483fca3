//! The rows of a vector Bloom filter: which bits are set in all rows of a key?
//!
//! The rows of a key are `start`, and then every `step`th, modulo a power of two. Exact on every instruction set: the
//! result is the AND of the rows. With vectors the rows of several keys are read together, so that their cache misses
//! overlap.

use crate::isa::{Isa, Set};

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512;
mod scalar;

/// Rows behind those in use, so that reading four bytes at the last one stays inside.
pub const PADDING: usize = 3;

/// A row of bits: 8, 16, 32 or 64.
pub trait Row: Copy + Default + Into<u64> + std::ops::BitAnd<Output = Self> + private::Sealed {
    /// All bits.
    const ALL: Self;
}

mod private {
    /// Only the integers of this module have vector code.
    pub trait Sealed {}
}

macro_rules! rows {
    ($($width:ty)+) => {$(
        impl private::Sealed for $width {}
        impl Row for $width {
            const ALL: Self = <$width>::MAX;
        }
    )+};
}

rows!(u8 u16 u32 u64);

/// The rows of some keys: for key `i`, `start[i]`, `start[i] + step[i]`, … modulo the number of rows.
#[derive(Clone, Copy, Debug)]
pub struct Probes<'a> {
    /// The first row of each key.
    pub start: &'a [u32],
    /// From one row to the next.
    pub step: &'a [u32],
    /// Rows of a key.
    pub n: u32,
    /// Number of rows less one.
    pub mask: u32,
}

/// For each key: the AND of its rows.
///
/// # Panics
/// If `rows` is not the number of rows and [`PADDING`] long, or `out` or the steps are fewer than the starts.
#[inline]
pub fn intersect<R: Row>(isa: Isa, rows: &[R], probes: Probes<'_>, out: &mut [u64]) {
    let n = probes.start.len();
    let (probes, out) = (Probes { step: &probes.step[..n], ..probes }, &mut out[..n]);
    assert_eq!(rows.len(), probes.mask as usize + 1 + PADDING, "the rows and their padding");
    match isa.0 {
        Set::Scalar => scalar::intersect(rows, probes, out),
        #[cfg(target_arch = "x86_64")]
        Set::Avx2 => avx2::intersect(isa, rows, probes, out),
        #[cfg(target_arch = "x86_64")]
        Set::Avx512 => avx512::intersect(isa, rows, probes, out),
        #[cfg(not(target_arch = "x86_64"))]
        Set::Avx2 | Set::Avx512 => scalar::intersect(rows, probes, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::splitmix64;

    /// Rows with nearly all bits set, so that some are left after a few.
    fn agrees<R: Row + TryFrom<u64>>(bits: u32)
    where
        <R as TryFrom<u64>>::Error: std::fmt::Debug,
    {
        let mut state = 0x5eed ^ u64::from(bits);
        let mut draw = |n: u64| splitmix64(&mut state) % n;
        for _ in 0..2000 {
            let mask = (1u32 << draw(7)) - 1;
            let width = u64::MAX >> (64 - bits);
            let rows: Vec<R> = (0..mask as usize + 1 + PADDING)
                .map(|_| {
                    R::try_from(width & !(1 << draw(u64::from(bits))) & !(1 << draw(64)) | 1 << (bits - 1)).unwrap()
                })
                .collect();
            let n = draw(66) as usize;
            let start: Vec<u32> = (0..n).map(|_| draw(1 << 32) as u32).collect();
            let step: Vec<u32> = (0..n).map(|_| draw(1 << 32) as u32 | 1).collect();
            let probes = Probes { start: &start, step: &step, n: draw(17) as u32, mask };
            let mut want = vec![0; n];
            scalar::intersect(&rows, probes, &mut want);
            for isa in Isa::available() {
                let mut got = vec![0xa5a5; n + 1];
                intersect(isa, &rows, probes, &mut got);
                assert_eq!(got[..n], want[..], "{isa:?}, {bits} bits");
                assert_eq!(got[n], 0xa5a5, "{isa:?} wrote behind its output");
            }
        }
    }

    #[test]
    fn every_instruction_set_agrees_with_scalar() {
        agrees::<u8>(8);
        agrees::<u16>(16);
        agrees::<u32>(32);
        agrees::<u64>(64);
    }

    #[test]
    fn a_bit_is_left_if_every_row_has_it() {
        let rows: [u8; 4 + PADDING] = [0b111, 0b011, 0b101, 0b001, 0, 0, 0];
        let probes = Probes { start: &[0, 1, 2], step: &[1, 3, 1], n: 2, mask: 3 };
        for isa in Isa::available() {
            let mut out = [0; 3];
            intersect(isa, &rows, probes, &mut out);
            assert_eq!(out, [0b011, 0b011, 0b001], "{isa:?}");
        }
    }
}
