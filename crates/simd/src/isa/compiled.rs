//! Plain code compiled anew for wider instruction sets.
//!
//! What is inlined into these functions may use the instructions they enable; the compiler vectorises it for them.

use super::{Isa, Set, Work};
use crate::verbs::{Avx2, Avx512, Scalar};

#[inline]
pub fn run<W: Work>(isa: Isa, work: W) -> W::Output {
    match isa.0 {
        Set::Scalar => work.run(Scalar),
        // SAFETY: an `Isa` of this set is made only on a processor that has it.
        Set::Avx2 => unsafe { with_avx2(work) },
        // SAFETY: as above.
        Set::Avx512 => unsafe { with_avx512(work) },
    }
}

#[inline(never)]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
fn with_avx2<W: Work>(work: W) -> W::Output {
    // SAFETY: this function is called only where they are.
    work.run(unsafe { Avx2::new() })
}

#[inline(never)]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
fn with_avx512<W: Work>(work: W) -> W::Output {
    // SAFETY: this function is called only where they are.
    work.run(unsafe { Avx512::new() })
}
