//! A range of memory for packets and tables, on the largest pages that the machine has.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// The page size the kernel's huge pages have on x86-64 and on arm64 with 4 KiB pages.
const HUGE_PAGE: usize = 2 << 20;
/// The smallest page.
const PAGE: usize = 4096;

/// A region up to this size has small pages. The first-level TLB of a core holds 64 of them. A huge page would take eight
/// times the memory, and eight times the time to zero it.
pub(crate) const SMALL_MAX: usize = 64 * PAGE;

/// The kind of pages a [`Region`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Reserved huge pages of 2 MiB.
    Huge,
    /// Ordinary memory for which the kernel was asked to use huge pages where it can.
    Transparent,
    /// Pages of 4 KiB: each packet may cost a walk of the page table.
    Small,
}

impl Pages {
    /// The name in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Pages::Huge => "2 MiB huge pages",
            Pages::Transparent => "transparent huge pages",
            Pages::Small => "4 KiB pages",
        }
    }
}

/// Zeroed memory at one address until it is dropped: aligned to 2 MiB, or to 4 KiB if it is small.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    size: usize,
    pages: Pages,
}

// SAFETY: a region is an address range this value owns; it hands out only the address.
unsafe impl Send for Region {}
// SAFETY: as above; no method changes the region.
unsafe impl Sync for Region {}

impl Region {
    /// Maps at least `size` bytes and makes all of them resident, so that the fast path meets no page fault.
    pub fn map(size: usize) -> io::Result<Self> {
        if size <= SMALL_MAX {
            let region = Region::small(size, 0)?;
            region.populate(0..region.size)?;
            return Ok(region);
        }
        let size = size.checked_next_multiple_of(HUGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        if let Ok(base) = mmap(size, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB | libc::MAP_POPULATE) {
            return Ok(Region { base, size, pages: Pages::Huge });
        }
        let base = mmap_aligned(size, 0)?;
        let mut region = Region { base, size, pages: Pages::Small };
        region.ask_for_huge_pages();
        region.populate(0..size)?;
        Ok(region)
    }

    /// Reserves at least `size` bytes of address space. Zeroed pages are made when they are first touched.
    ///
    /// For tables with a large limit that few users fill: unused elements cost nothing. So it takes no reserved huge
    /// pages.
    pub fn reserve(size: usize) -> io::Result<Self> {
        if size <= SMALL_MAX {
            return Region::small(size, libc::MAP_NORESERVE);
        }
        let size = size.checked_next_multiple_of(HUGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut region = Region { base: mmap_aligned(size, libc::MAP_NORESERVE)?, size, pages: Pages::Small };
        region.ask_for_huge_pages();
        Ok(region)
    }

    /// Takes reserved huge pages for at least `size` bytes at once. None is touched yet.
    ///
    /// # Errors
    /// If not enough of them are free.
    pub fn on_reserved_pages(size: usize) -> io::Result<Self> {
        let size = size.max(1).checked_next_multiple_of(HUGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let base = mmap(size, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB)?;
        Ok(Region { base, size, pages: Pages::Huge })
    }

    fn small(size: usize, flags: libc::c_int) -> io::Result<Self> {
        let size = size.max(1).next_multiple_of(PAGE);
        Ok(Region { base: mmap(size, flags)?, size, pages: Pages::Small })
    }

    /// Its first byte.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its length in bytes: a multiple of 2 MiB, or of 4 KiB if it is small.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The kind of pages that it has.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// Makes the pages of a byte range resident now, so that no thread waits for them later. The part of the range
    /// outside the region is ignored.
    ///
    /// Proceeds one huge page at a time: during the call no other thread of the process can change the mappings, as an
    /// allocation may need to.
    ///
    /// # Errors
    /// If there is no memory. Kernels before Linux 5.14, which lack the call, do nothing.
    pub fn populate(&self, bytes: Range<usize>) -> io::Result<()> {
        let end = bytes.end.min(self.size).next_multiple_of(PAGE);
        let mut start = bytes.start.min(end) / PAGE * PAGE;
        while start < end {
            let step = start..end.min((start + 1).next_multiple_of(HUGE_PAGE));
            start = step.end;
            match self.advise_range(step, libc::MADV_POPULATE_WRITE) {
                Err(e) if e.raw_os_error() != Some(libc::EINVAL) => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// Enables transparent huge pages.
    fn ask_for_huge_pages(&mut self) {
        // Read once: to open the file costs more than to map a region.
        static MAY_BE: OnceLock<bool> = OnceLock::new();
        let may_be = *MAY_BE.get_or_init(|| {
            let modes = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
            modes.is_ok_and(|modes| !modes.contains("[never]"))
        });
        if may_be && self.advise_range(0..self.size, libc::MADV_HUGEPAGE).is_ok() {
            self.pages = Pages::Transparent;
        }
    }

    fn advise_range(&self, bytes: Range<usize>, advice: libc::c_int) -> io::Result<()> {
        assert!(bytes.start <= bytes.end && bytes.end <= self.size, "invariant: advice is about the region itself");
        let base = self.base.as_ptr().wrapping_add(bytes.start);
        // SAFETY: the range is this region's own mapping; neither advice used here changes its contents.
        match unsafe { libc::madvise(base.cast(), bytes.len(), advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this value's own mapping has this base and size, and nobody but this value knows it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.size) };
    }
}

fn mmap(size: usize, flags: libc::c_int) -> io::Result<NonNull<u8>> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
}

/// Maps `size` bytes (a multiple of 2 MiB) at a multiple of 2 MiB, without which no transparent huge page fits.
fn mmap_aligned(size: usize, flags: libc::c_int) -> io::Result<NonNull<u8>> {
    let wide = size.checked_add(HUGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
    let base = mmap(wide, flags)?;
    let before = base.addr().get().next_multiple_of(HUGE_PAGE) - base.addr().get();
    let after = HUGE_PAGE - before;
    // SAFETY: both ranges lie in the mapping just made, before and behind the part that is kept, and hold nothing.
    unsafe {
        if before != 0 {
            libc::munmap(base.as_ptr().cast(), before);
        }
        if after != 0 {
            libc::munmap(base.as_ptr().add(before + size).cast(), after);
        }
        Ok(base.add(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_aligned_zeroed_and_writable_to_its_end() {
        let region = Region::map(3_000_000).unwrap();
        assert_eq!((region.size(), region.base().addr().get() % HUGE_PAGE), (2 * HUGE_PAGE, 0));
        // SAFETY: the region is `size` bytes of this test's own.
        let bytes = unsafe { std::slice::from_raw_parts_mut(region.base().as_ptr(), region.size()) };
        assert!(bytes.iter().all(|b| *b == 0));
        bytes.fill(7);
        assert!(!region.pages().name().is_empty());
    }

    #[test]
    fn a_small_region_has_small_pages_and_no_more_than_it_needs() {
        for make in [Region::map, Region::reserve] {
            for (asked, size) in [(0, PAGE), (1, PAGE), (PAGE + 1, 2 * PAGE), (SMALL_MAX, SMALL_MAX)] {
                let region = make(asked).unwrap();
                assert_eq!((region.size(), region.base().addr().get() % PAGE, region.pages()), (size, 0, Pages::Small));
            }
            assert_eq!(make(SMALL_MAX + 1).unwrap().size(), HUGE_PAGE);
        }
    }

    #[test]
    fn a_reserved_region_costs_nothing_until_it_is_touched() {
        let region = Region::reserve(1 << 40).unwrap();
        // SAFETY: the last byte lies in the region, which is this test's own.
        let last = unsafe { &mut *region.base().as_ptr().add(region.size() - 1) };
        assert_eq!(std::mem::replace(last, 7), 0);
    }

    #[test]
    fn populating_changes_nothing_and_leaves_out_what_is_outside() {
        let region = Region::reserve(4 << 20).unwrap();
        // SAFETY: the region is `size` bytes of this test's own.
        let bytes = unsafe { std::slice::from_raw_parts_mut(region.base().as_ptr(), region.size()) };
        bytes[5000] = 7;
        for range in [4999..5001, 0..1, region.size() - 1..usize::MAX / 2, 9 << 20..10 << 20, 8..8] {
            region.populate(range).unwrap();
        }
        assert_eq!(bytes.iter().map(|b| u64::from(*b)).sum::<u64>(), 7);
    }

    #[test]
    fn an_absurd_size_is_an_error() {
        assert!(Region::map(usize::MAX - 5).is_err());
        assert!(Region::map(1 << 55).is_err());
    }
}
