//! A safe interface to a ring shared with the kernel.
//!
//! Slots are accessed only between the ring's two indexes, on our side of them. Source: Linux,
//! Documentation/networking/af_xdp.rst, include/uapi/linux/if_xdp.h.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// A ring of which this program is producer or consumer. `T` is the type of its slots.
#[derive(Debug)]
pub(in crate::af_xdp) struct Ring<T> {
    map: NonNull<libc::c_void>,
    map_size: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    slots: NonNull<T>,
    size: u32,
    /// Our index; the kernel sees it when it is stored.
    own: u32,
}

// SAFETY: a ring owns its mapping, which is not tied to a thread.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps the ring of `fd` at offset `place`, which has `size` slots (a power of two).
    pub(in crate::af_xdp) fn map(
        fd: &OwnedFd,
        place: u64,
        offsets: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        let map_size = offsets.desc as usize + size as usize * size_of::<T>();
        let (read_write, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping, at an address of the kernel's choice, of the ring that was made with this size.
        let map = unsafe {
            libc::mmap(std::ptr::null_mut(), map_size, read_write, shared, fd.as_raw_fd(), place as libc::off_t)
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = NonNull::new(map).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the kernel returned these offsets for this mapping; all are inside it and aligned for their types.
        let at = |offset: u64| unsafe { map.cast::<u8>().add(offset as usize) };
        Ok(Ring {
            map,
            map_size,
            producer: at(offsets.producer).cast(),
            consumer: at(offsets.consumer).cast(),
            flags: at(offsets.flags).cast(),
            slots: at(offsets.desc).cast(),
            size,
            own: 0,
        })
    }

    /// One of the words at the ring's head.
    fn word(&self, at: NonNull<AtomicU32>) -> &AtomicU32 {
        // SAFETY: `map` made these pointers into the mapping, which lives as long as `self`; both sides access the
        // words only atomically.
        unsafe { at.as_ref() }
    }

    /// Producer: free slots.
    pub(in crate::af_xdp) fn room(&self) -> u32 {
        self.size - self.own.wrapping_sub(self.word(self.consumer).load(Acquire)).min(self.size)
    }

    /// Consumer: filled slots.
    pub(in crate::af_xdp) fn ready(&self) -> u32 {
        self.word(self.producer).load(Acquire).wrapping_sub(self.own).min(self.size)
    }

    /// Writes the next slot, which must be free. The kernel sees it after `submit`.
    pub(in crate::af_xdp) fn put(&mut self, value: T) {
        // SAFETY: the masked index is below `size`, so the slot is inside the mapping. It is ours to write, since the
        // kernel reads only up to the stored index.
        unsafe { self.slots.add((self.own & (self.size - 1)) as usize).write(value) };
        self.own = self.own.wrapping_add(1);
    }

    /// Reads the next slot, which must be filled. The kernel may reuse it after `release`.
    pub(in crate::af_xdp) fn take(&mut self) -> T {
        // SAFETY: as in `put`; the kernel wrote the slot before the index that we loaded (Acquire), and any bits are
        // valid for the plain `T`.
        let value = unsafe { self.slots.add((self.own & (self.size - 1)) as usize).read() };
        self.own = self.own.wrapping_add(1);
        value
    }

    /// Producer: shows the kernel the slots written.
    pub(in crate::af_xdp) fn submit(&self) {
        self.word(self.producer).store(self.own, Release);
    }

    /// Consumer: returns the slots that were read.
    pub(in crate::af_xdp) fn release(&self) {
        self.word(self.consumer).store(self.own, Release);
    }

    /// Producer: whether the kernel has taken everything.
    pub(in crate::af_xdp) fn is_empty(&self) -> bool {
        self.room() == self.size
    }

    /// Whether the kernel waits for a call before it continues.
    pub(in crate::af_xdp) fn needs_wakeup(&self) -> bool {
        self.word(self.flags).load(Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

impl<T> Ring<T> {
    /// Removes the mapping before the ring is dropped.
    ///
    /// # Safety
    /// From here on the ring may only be dropped.
    pub(in crate::af_xdp) unsafe fn unmap(&mut self) {
        if let size @ 1.. = std::mem::take(&mut self.map_size) {
            // SAFETY: `map` made the mapping with this size; nobody else has it.
            unsafe { libc::munmap(self.map.as_ptr(), size) };
        }
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: nothing follows.
        unsafe { self.unmap() };
    }
}
