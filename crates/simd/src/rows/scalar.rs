//! Scalar twin, and the specification.

use super::{Probes, Row};

pub fn intersect<R: Row>(rows: &[R], probes: Probes<'_>, out: &mut [u64]) {
    for ((start, step), out) in probes.start.iter().zip(probes.step).zip(out) {
        let mut row = *start;
        let mut bits = R::ALL;
        for _ in 0..probes.n {
            bits = bits & rows[(row & probes.mask) as usize];
            row = row.wrapping_add(*step);
        }
        *out = bits.into();
    }
}
