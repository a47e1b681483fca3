//! Arrays with a large limit, of which only the used part takes memory.

use sluice_mem::Region;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Types for which zero bytes are a valid value.
///
/// # Safety
/// Every byte zero must be a valid value, and the type must not need dropping.
pub unsafe trait Zeroed {}

// SAFETY: an atomic number of zero bytes is 0.
unsafe impl Zeroed for AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroed for AtomicU64 {}
// SAFETY: an array of values that may be zero.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {}

/// A fixed number of `T`s, zero at first, in pages that the kernel provides when they are first written.
pub struct LazyArray<T> {
    region: Region,
    len: usize,
    of: PhantomData<T>,
}

// SAFETY: the array owns its elements as a boxed slice does.
unsafe impl<T: Send> Send for LazyArray<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for LazyArray<T> {}

impl<T: Zeroed> LazyArray<T> {
    /// Reserves address space for `len` elements.
    pub fn new(len: usize) -> io::Result<Self> {
        const { assert!(align_of::<T>() <= 4096 && !std::mem::needs_drop::<T>()) };
        let size = len.checked_mul(size_of::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(LazyArray { region: Region::reserve(size)?, len, of: PhantomData })
    }

    /// Makes the pages of some elements resident now, so that their first writer does not wait for the kernel.
    pub fn populate(&self, elements: Range<usize>) -> io::Result<()> {
        let byte = |element: usize| element.min(self.len) * size_of::<T>();
        self.region.populate(byte(elements.start)..byte(elements.end))
    }
}

impl<T> Deref for LazyArray<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the region is as long, aligned to a page, zeroed at first (`T: Zeroed`), and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.region.base().as_ptr().cast(), self.len) }
    }
}
