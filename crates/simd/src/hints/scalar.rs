//! Scalar twin, and the specification.

use super::Hints;

pub fn find(lines: &[Hints], at: &[u32], wanted: &[u16], out: &mut [u16]) {
    for ((at, wanted), out) in at.iter().zip(wanted).zip(out) {
        let Hints { signatures, hints } = &lines[*at as usize];
        *out = signatures.iter().zip(hints).find(|(have, _)| *have == wanted).map_or(0, |(_, hint)| *hint);
    }
}
