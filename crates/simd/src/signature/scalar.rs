//! Scalar twin, and the specification.

#[cfg_attr(target_arch = "x86_64", cfg(test))]
pub fn matching(signatures: &[u16; super::SLOTS], wanted: u16) -> u16 {
    (0..super::SLOTS).fold(0, |mask, i| mask | u16::from(signatures[i] == wanted) << i)
}
