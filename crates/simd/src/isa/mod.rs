//! Which vector instructions this machine has, and which of them are used.
//!
//! Code that depends on the instruction set takes an [`Isa`] and works on a batch, so that the choice costs one branch
//! a batch. Where the compiler vectorises plain code well, nothing is written by hand: a [`Kernel`] is compiled once
//! for each instruction set ([`Isa::run`]). `Scalar` is plain code for the instruction set that the whole program is
//! built for.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod compiled;

use crate::vector_ops::VectorOps;
use std::fmt;

/// Code for a batch, compiled once for each instruction set.
pub trait Kernel {
    /// Its result.
    type Output;

    /// Runs with the instruction set's vector operations. Only inlined code is compiled for the instruction set, so
    /// this function and all that it calls are `#[inline(always)]`.
    fn run<V: VectorOps>(self, ops: V) -> Self::Output;
}

/// An instruction set that this machine has. Only [`Isa::best`], [`Isa::available`] and [`Isa::named`] make one, after
/// they have asked the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Isa(pub(crate) Set);

/// The instruction sets that kernels are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Set {
    Scalar,
    /// AVX2, BMI1, BMI2 and LZCNT: since Haswell and Zen.
    Avx2,
    /// AVX-512 F, BW, DQ, VL and VBMI: servers since Ice Lake and Zen 4. Those before it use AVX2.
    Avx512,
}

/// An instruction set that this machine does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoIsa {
    /// What was asked for.
    pub name: String,
}

impl Isa {
    /// Plain code, which runs everywhere.
    pub const SCALAR: Isa = Isa(Set::Scalar);

    /// Every instruction set there are kernels for, by name.
    pub const NAMES: [&str; 3] = ["scalar", "avx2", "avx512"];

    /// Those that this machine has, the plainest first.
    pub fn available() -> Vec<Isa> {
        let all = [Set::Scalar, Set::Avx2, Set::Avx512];
        all.into_iter().filter(|set| set.is_here()).map(Isa).collect()
    }

    /// The widest that this machine has.
    pub fn best() -> Isa {
        *Isa::available().last().expect("invariant: plain code runs everywhere")
    }

    /// The instruction set of that name, if this machine has it.
    pub fn named(name: &str) -> Result<Isa, NoIsa> {
        let known = Isa::available().into_iter().find(|isa| isa.name() == name);
        known.ok_or_else(|| NoIsa { name: name.to_owned() })
    }

    /// Runs a kernel compiled for this instruction set. The result is that of plain code.
    #[inline]
    pub fn run<W: Kernel>(self, kernel: W) -> W::Output {
        #[cfg(target_arch = "x86_64")]
        return compiled::run(self, kernel);
        #[cfg(not(target_arch = "x86_64"))]
        kernel.run(crate::vector_ops::Scalar)
    }

    /// Its name, as in a configuration.
    pub fn name(self) -> &'static str {
        Isa::NAMES[self.0 as usize]
    }
}

impl fmt::Display for NoIsa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has: Vec<_> = Isa::available().into_iter().map(|isa| format!("\"{}\"", isa.name())).collect();
        match Isa::NAMES.contains(&self.name.as_str()) {
            true => write!(f, "this CPU lacks \"{}\"; it has {}", self.name, has.join(", ")),
            false => write!(f, "\"{}\" is unknown; this CPU has {}", self.name, has.join(", ")),
        }
    }
}

impl std::error::Error for NoIsa {}

impl Set {
    #[cfg(target_arch = "x86_64")]
    fn is_here(self) -> bool {
        match self {
            Set::Scalar => true,
            Set::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("lzcnt")
            }
            Set::Avx512 => {
                Set::Avx2.is_here()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vbmi")
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn is_here(self) -> bool {
        self == Set::Scalar
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The environment's `REQUIRE_ISA` names the set that must have been tested; the property tests of every operation
    /// cover [`Isa::available`].
    #[test]
    fn what_is_required_is_here_and_the_rest_is_named() {
        let has: Vec<_> = Isa::available().into_iter().map(Isa::name).collect();
        for name in Isa::NAMES {
            if !has.contains(&name) {
                println!("SKIPPED kernels of {name}: this CPU lacks it");
            }
        }
        let required = std::env::var("REQUIRE_ISA").unwrap_or_default();
        for name in required.split(',').filter(|name| !name.is_empty()) {
            assert!(has.contains(&name), "REQUIRE_ISA: {}", Isa::named(name).unwrap_err());
        }
    }

    #[test]
    fn work_is_done_once_on_every_set() {
        struct Sum<'a>(&'a [u64], &'a mut u32);
        impl Kernel for Sum<'_> {
            type Output = u64;
            #[inline(always)]
            fn run<V: VectorOps>(self, _: V) -> u64 {
                *self.1 += 1;
                self.0.iter().fold(0, |sum, n| sum.wrapping_add(n.wrapping_mul(*n)))
            }
        }
        let numbers: Vec<u64> = (0..1000).map(|n| n << 40 | n).collect();
        let mut runs = 0;
        let want = Isa::SCALAR.run(Sum(&numbers, &mut runs));
        assert!(Isa::available().into_iter().all(|isa| isa.run(Sum(&numbers, &mut runs)) == want));
        assert_eq!(runs as usize, 1 + Isa::available().len());
    }

    #[test]
    fn names_and_errors() {
        assert_eq!(Isa::named("scalar"), Ok(Isa::SCALAR));
        assert!(Isa::available().into_iter().all(|isa| Isa::named(isa.name()) == Ok(isa)));
        let error = Isa::named("mmx").unwrap_err().to_string();
        assert!(error.starts_with("\"mmx\" is unknown; this CPU has \"scalar\""), "{error}");
    }
}
