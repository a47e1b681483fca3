//! Kernels compiled for wider instruction sets.
//!
//! Code that is inlined into these functions may use the instructions that they enable; the compiler vectorises it for
//! them.

use super::{Isa, Kernel, Set};
use crate::vector_ops::{Avx2, Avx512, Scalar};

#[inline]
pub fn run<W: Kernel>(isa: Isa, kernel: W) -> W::Output {
    match isa.0 {
        Set::Scalar => kernel.run(Scalar),
        // SAFETY: an `Isa` of this set is made only on a processor that has it.
        Set::Avx2 => unsafe { with_avx2(kernel) },
        // SAFETY: as above.
        Set::Avx512 => unsafe { with_avx512(kernel) },
    }
}

#[inline(never)]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
fn with_avx2<W: Kernel>(kernel: W) -> W::Output {
    // SAFETY: this function is called only where they are.
    kernel.run(unsafe { Avx2::new() })
}

#[inline(never)]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
fn with_avx512<W: Kernel>(kernel: W) -> W::Output {
    // SAFETY: this function is called only where they are.
    kernel.run(unsafe { Avx512::new() })
}
