//! The processor's time stamp counter, the unit in which cycles are counted.

/// Cycles since the machine started. Not ordered with the instructions around it.
#[inline(always)]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: RDTSC exists on every x86-64 processor, and Linux lets processes use it.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    // Elsewhere, nanoseconds stand in for cycles.
    #[cfg(not(target_arch = "x86_64"))]
    {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        START.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::now;

    #[test]
    fn it_runs() {
        let (first, mut last) = (now(), 0);
        for _ in 0..1_000_000 {
            last = now();
        }
        assert!(last > first);
    }
}
