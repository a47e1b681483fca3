//! Prefetching cache lines.

/// Prefetches the cache line at `place` for reading. Safe for any address.
#[inline(always)]
pub fn read<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address; SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Prefetches the cache line at `place` for writing: other cores lose their copies now, not when the line is written.
/// Safe for any address. Processors without PREFETCHW ignore it.
#[inline(always)]
pub fn write<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults and changes neither memory nor flags. The compiler's intrinsic would become a
    // prefetch for reading unless all of the code were compiled for processors that have PREFETCHW.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}
