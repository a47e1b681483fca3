//! Scalar twin, and the specification.

/// Bit `i` is set where `tags[i]` is `tag`.
#[cfg_attr(target_arch = "x86_64", cfg(test))]
pub fn matching(tags: &[u32; super::LANES], tag: u32) -> u32 {
    tags.iter().enumerate().fold(0, |bits, (i, have)| bits | u32::from(*have == tag) << i)
}
