//! Which of a bucket's sixteen 16-bit signatures equal the wanted one?
//!
//! Exact on every instruction set: bit `i` of the result is set if and only if `signatures[i] == wanted`.

mod scalar;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod sse2;

/// Signatures in a bucket.
pub const SLOTS: usize = 16;

/// Bit `i` is set where `signatures[i]` is `wanted`.
#[inline(always)]
pub fn matching(signatures: &[u16; SLOTS], wanted: u16) -> u16 {
    #[cfg(target_arch = "x86_64")]
    return sse2::matching(signatures, wanted);
    #[cfg(not(target_arch = "x86_64"))]
    scalar::matching(signatures, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random numbers from a small range, so that equal and duplicate slots are common.
    fn next(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn every_instruction_set_agrees_with_scalar() {
        let mut state = 0x5eed;
        for round in 0..20_000 {
            let high = if round % 2 == 0 { 0x8000 } else { 0 };
            let signatures: [u16; SLOTS] = std::array::from_fn(|_| high | (next(&mut state) >> 20) as u16 & 3);
            let wanted = high | (next(&mut state) >> 20) as u16 & 3;
            assert_eq!(matching(&signatures, wanted), scalar::matching(&signatures, wanted), "{signatures:?} {wanted}");
        }
    }

    #[test]
    fn slots_keep_their_order() {
        for slot in 0..SLOTS {
            let mut signatures = [0xffff; SLOTS];
            signatures[slot] = 7;
            assert_eq!(matching(&signatures, 7), 1 << slot);
            assert_eq!(scalar::matching(&signatures, 7), 1 << slot);
        }
    }
}
