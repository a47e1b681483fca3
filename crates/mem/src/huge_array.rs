//! Arrays on the largest pages that the machine has, for the tables of a PMD's caches.

use crate::region::SMALL_MAX;
use crate::{Pages, Region};
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use zerocopy::FromZeros;

/// A fixed number of `T`s, all zero at first.
///
/// Shape:  one range of memory. The first [`HugeArray::ready`] elements are resident. The others take only address
///         space, and cost a page fault at their first use. A PMD must not wait for the kernel, so it uses the resident
///         elements only and requests more by [`HugeArray::ask_for`]; a control thread makes them resident by
///         [`ArrayMemory::grow`].
/// Errors: the process ends if there is no address space, as it does for a vector.
pub struct HugeArray<T> {
    base: NonNull<T>,
    len: usize,
    /// `None` if there are no elements.
    memory: Option<Arc<ArrayMemory>>,
    of: PhantomData<T>,
}

/// The memory of a [`HugeArray`], for threads that do not use its elements.
#[derive(Debug)]
pub struct ArrayMemory {
    region: Region,
    /// Bytes that are resident.
    ready: AtomicUsize,
    /// Bytes that the array's user has requested.
    wanted: AtomicUsize,
}

// SAFETY: an array owns its elements as a boxed slice does.
unsafe impl<T: Send> Send for HugeArray<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for HugeArray<T> {}

impl<T: FromZeros> HugeArray<T> {
    /// `len` elements, the first `ready` of them resident.
    pub fn new(len: usize, ready: usize) -> Self {
        const { assert!(align_of::<T>() <= 4096 && size_of::<T>() != 0 && !std::mem::needs_drop::<T>()) };
        if len == 0 {
            return HugeArray::default();
        }
        let layout = std::alloc::Layout::array::<T>(len).unwrap_or(std::alloc::Layout::new::<T>());
        let fits = layout.size() / size_of::<T>() == len;
        let Some(region) = fits.then(|| map(layout.size()).ok()).flatten() else {
            std::alloc::handle_alloc_error(layout)
        };
        let base = region.base().cast();
        let memory = ArrayMemory { region, ready: AtomicUsize::new(0), wanted: AtomicUsize::new(0) };
        memory.make_ready(ready.min(len) * size_of::<T>());
        HugeArray { base, len, memory: Some(Arc::new(memory)), of: PhantomData }
    }
}

/// From this size on an array has huge pages, although a region would have small ones: the exact match cache at its default
/// size, whose lines every packet reads at random.
const HUGE_FROM: usize = 128 << 10;

/// Maps transparent huge pages, or reserved ones (which packets would have used) where the kernel makes no transparent
/// ones.
fn map(size: usize) -> io::Result<Region> {
    let region = Region::reserve(if size < HUGE_FROM { size } else { size.max(SMALL_MAX + 1) })?;
    match region.pages() {
        Pages::Small if size >= HUGE_FROM => Region::on_reserved_pages(size).or(Ok(region)),
        Pages::Small | Pages::Huge | Pages::Transparent => Ok(region),
    }
}

impl<T> HugeArray<T> {
    /// Elements that are resident.
    #[inline]
    pub fn ready(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.ready.load(Relaxed) / size_of::<T>())
    }

    /// Requests that the first `len` elements, or all if there are fewer, be made resident by [`ArrayMemory::grow`].
    pub fn ask_for(&self, len: usize) {
        let bytes = len.min(self.len) * size_of::<T>();
        if let Some(memory) = &self.memory {
            memory.wanted.store(bytes, Relaxed);
        }
    }

    /// Its memory; `None` if it has no elements.
    pub fn memory(&self) -> Option<Arc<ArrayMemory>> {
        self.memory.clone()
    }
}

impl ArrayMemory {
    /// Makes resident what the array's user has requested, and takes the request off: if there is no memory, the user
    /// has to request it again. May take tens of milliseconds.
    pub fn grow(&self) {
        let wanted = self.wanted.swap(0, Relaxed);
        if wanted > self.ready.load(Relaxed) {
            self.make_ready(wanted);
        }
    }

    /// The kind of pages that it has.
    pub fn pages(&self) -> Pages {
        self.region.pages()
    }

    /// Bytes that are resident.
    pub fn resident(&self) -> usize {
        self.ready.load(Relaxed)
    }

    /// Without free memory the array stays as it is.
    fn make_ready(&self, bytes: usize) {
        if self.region.populate(self.ready.load(Relaxed)..bytes).is_ok() {
            self.ready.store(bytes, Relaxed);
        }
    }
}

impl<T> Default for HugeArray<T> {
    fn default() -> Self {
        HugeArray { base: NonNull::dangling(), len: 0, memory: None, of: PhantomData }
    }
}

impl<T> Deref for HugeArray<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `base` is a region's, aligned to a page and of sufficient size, whose zeros are `T`s (`FromZeros`) and
        // which lives as long as `self`; or it dangles, aligned, and `len` is 0.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for HugeArray<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; `&mut self` is the only access to the elements, since an `ArrayMemory` gives none.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl<T> std::fmt::Debug for HugeArray<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HugeArray").field("len", &self.len).field("memory", &self.memory).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_zero_and_stay_what_they_are_made() {
        let mut table = HugeArray::<[u64; 8]>::new(100_000, 1000);
        assert!(table.len() == 100_000 && table.iter().flatten().all(|word| *word == 0));
        table[99_999][7] = 5;
        let memory = table.memory().unwrap();
        table.ask_for(2000);
        memory.grow();
        assert_eq!((table[99_999], table.ready()), ([0, 0, 0, 0, 0, 0, 0, 5], 2000));
        assert!(!memory.pages().name().is_empty());
    }

    #[test]
    fn it_grows_when_asked_up_to_its_length() {
        let table = HugeArray::<u64>::new(5000, 1000);
        let memory = table.memory().unwrap();
        let grown = [0, 2000, 1500, 4000, usize::MAX].map(|len| {
            memory.grow();
            table.ask_for(len);
            memory.grow();
            table.ready()
        });
        assert_eq!(grown, [1000, 2000, 2000, 4000, 5000]);
        assert_eq!(memory.resident(), 40_000);
    }

    #[test]
    fn without_elements_there_is_no_memory() {
        let mut table = HugeArray::<u64>::new(0, 5);
        assert!(table.memory().is_none() && table.ready() == 0 && table.is_empty());
        assert_eq!(table.get_mut(0), None);
        table.ask_for(5);
    }

    #[test]
    fn memory_outlives_the_table() {
        let table = HugeArray::<u64>::new(10, 0);
        let memory = table.memory().unwrap();
        table.ask_for(10);
        drop(table);
        memory.grow();
        assert_eq!(memory.resident(), 80);
    }
}
