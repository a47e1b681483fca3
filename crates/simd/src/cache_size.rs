//! How much of a table a core's second-level cache keeps near, beside the packets: larger tables are prefetched.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Of a processor that does not say.
const USUAL: usize = 1 << 20;
/// Tests of debug builds have few flows, and go both ways.
const OF_TESTS: usize = 64 << 10;

/// [`l2_share`], once it is known.
static SHARE: AtomicUsize = AtomicUsize::new(0);

/// Half of the second-level cache, bytes. The other half is for packets, records and keys.
#[inline]
pub fn l2_share() -> usize {
    match SHARE.load(Ordering::Relaxed) {
        0 => measure(),
        share => share,
    }
}

/// Sets the size of the second-level cache, bytes. Counts of instructions need the same size on every machine.
pub fn set_l2(bytes: usize) {
    SHARE.store(bytes / 2, Ordering::Relaxed);
}

#[cold]
fn measure() -> usize {
    set_l2(if cfg!(debug_assertions) { OF_TESTS } else { l2_bytes().unwrap_or(USUAL) });
    SHARE.load(Ordering::Relaxed)
}

/// The second-level cache, bytes. Source: Intel's manual, CPUID leaf 4; AMD's, leaf 8000_001D, which has the same form.
#[cfg(target_arch = "x86_64")]
fn l2_bytes() -> Option<usize> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    let has = |leaf: u32| __cpuid(leaf & 1 << 31).eax >= leaf;
    let caches = |leaf: u32| (0..8).map(move |n| __cpuid_count(leaf, n)).take_while(|cache| cache.eax & 0x1f != 0);
    let field = |register: u32, from: u32, bits: u32| (register >> from & ((1 << bits) - 1)) as usize + 1;
    let mut all = [4, 0x8000_001d].into_iter().filter(|leaf| has(*leaf)).flat_map(caches);
    let second = all.find(|cache| cache.eax >> 5 & 7 == 2)?;
    let [ways, partitions, line] = [(22, 10), (12, 10), (0, 12)].map(|(from, bits)| field(second.ebx, from, bits));
    Some(ways * partitions * line * (second.ecx as usize + 1))
}

#[cfg(not(target_arch = "x86_64"))]
fn l2_bytes() -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel reads the same leaves, and says what it found where it has that directory.
    #[test]
    fn the_kernel_says_the_same() {
        let Ok(text) = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index2/size") else { return };
        let kib: usize = text.trim().trim_end_matches('K').parse().unwrap();
        assert_eq!(l2_bytes(), Some(kib << 10));
        assert!(l2_share() > 0 && l2_share() == l2_share());
    }
}
