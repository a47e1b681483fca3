//! How the process's heap grows.

/// Bytes by which a thread's heap grows: the size of a whole heap of the C library (glibc, `HEAP_MAX_SIZE` on 64 bits).
#[cfg(target_env = "gnu")]
const STEP: libc::c_int = 64 << 20;

/// Makes the heap of every thread that begins to allocate from now on usable 64 MiB at a time. Memory is still taken
/// when it is first touched.
///
/// By default glibc extends a heap page by page, with a system call each that changes the process's mappings. That call
/// waits while another thread of the process makes memory resident: a PMD that set up flows was held up for 85 to 147
/// ms while the revalidator made room for megaflows (2026-11-21). Other C libraries are left as they are.
pub fn grow_heaps_in_large_steps() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets a number inside the allocator, under the allocator's own lock; it rejects bad values.
    unsafe {
        libc::mallopt(libc::M_TOP_PAD, STEP);
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    /// Bytes of the writable mapping that an address lies in.
    fn mapping_of(address: usize) -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let range = |line: &str| {
            let (range, rest) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let [start, end] = [start, end].map(|n| usize::from_str_radix(n, 16).ok());
            (rest.starts_with("rw") && (start?..end?).contains(&address)).then_some(end? - start?)
        };
        maps.lines().find_map(range).unwrap()
    }

    #[test]
    fn a_threads_heap_is_usable_to_its_end() {
        grow_heaps_in_large_steps();
        // Several, as threads take over the heaps of threads that have ended; all of these run at once.
        let all = std::sync::Barrier::new(4);
        let size_of_heap = || {
            let block = Box::new([7u8; 1000]);
            all.wait();
            mapping_of(block.as_ptr().addr())
        };
        let sizes: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(size_of_heap)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(sizes.iter().any(|size| *size >= 32 << 20), "{sizes:?}");
    }
}
