//! Scalar twin, and the specification.

use super::Hints;

pub fn find(lines: &[Hints], at: &[u32], wanted: &[u16], out: &mut [u16]) {
    for ((at, wanted), out) in at.iter().zip(wanted).zip(out) {
        let Hints { signatures, hints } = &lines[*at as usize];
        *out = signatures.iter().zip(hints).find(|(have, _)| *have == wanted).map_or(0, |(_, hint)| *hint);
    }
}

pub fn find_either(lines: &[Hints], first: &[u32], second: &[u32], wanted: &[u16], out: &mut [u16]) {
    for (i, out) in out.iter_mut().enumerate() {
        let slots = [first[i], second[i]].into_iter().flat_map(|at| {
            let Hints { signatures, hints } = &lines[at as usize];
            signatures.iter().zip(hints)
        });
        *out = slots.into_iter().find(|(have, _)| **have == wanted[i]).map_or(0, |(_, hint)| *hint);
    }
}
