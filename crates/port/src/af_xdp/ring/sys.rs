//! The border to one ring that is shared with the kernel, made safe.
//!
//! A locked room. Slots are written only between the ring's two indexes, on our side of them.
//! Source: Linux, Documentation/networking/af_xdp.rst, include/uapi/linux/if_xdp.h.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// One ring, on our side: we produce or consume. `T` is what its slots hold.
#[derive(Debug)]
pub(in crate::af_xdp) struct Ring<T> {
    map: NonNull<libc::c_void>,
    map_size: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    slots: NonNull<T>,
    size: u32,
    /// Our own index; the kernel sees it when it is stored.
    own: u32,
}

// SAFETY: a ring is a mapping of its own, and has no ties to a thread.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps the ring of `fd` at `place`, which was made with `size` slots (a power of two).
    pub(in crate::af_xdp) fn map(
        fd: &OwnedFd,
        place: u64,
        offsets: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        let map_size = offsets.desc as usize + size as usize * size_of::<T>();
        let (read_write, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping, at a place of the kernel's choice, of the ring that was made with this size.
        let map = unsafe {
            libc::mmap(std::ptr::null_mut(), map_size, read_write, shared, fd.as_raw_fd(), place as libc::off_t)
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = NonNull::new(map).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the kernel gave these offsets for this mapping; all lie inside and are aligned for what they hold.
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
        // SAFETY: `map` made these pointers into the mapping, which lives as long as `self`; both sides use the words
        // atomically only.
        unsafe { at.as_ref() }
    }

    /// As producer: slots free.
    pub(in crate::af_xdp) fn room(&self) -> u32 {
        self.size - self.own.wrapping_sub(self.word(self.consumer).load(Acquire)).min(self.size)
    }

    /// As consumer: slots filled.
    pub(in crate::af_xdp) fn ready(&self) -> u32 {
        self.word(self.producer).load(Acquire).wrapping_sub(self.own).min(self.size)
    }

    /// Writes the next slot; there is room. The kernel sees it after `submit`.
    pub(in crate::af_xdp) fn put(&mut self, value: T) {
        // SAFETY: masked, the index is below `size`, so the slot lies in the mapping; it is ours to write, since the
        // kernel reads up to the stored index only.
        unsafe { self.slots.add((self.own & (self.size - 1)) as usize).write(value) };
        self.own = self.own.wrapping_add(1);
    }

    /// Reads the next slot; one is filled. The kernel may reuse it after `release`.
    pub(in crate::af_xdp) fn take(&mut self) -> T {
        // SAFETY: as in `put`; the kernel has written the slot before the index we saw (Acquire), and any bits are a
        // value of the plain `T`.
        let value = unsafe { self.slots.add((self.own & (self.size - 1)) as usize).read() };
        self.own = self.own.wrapping_add(1);
        value
    }

    /// As producer: shows the kernel what was put in.
    pub(in crate::af_xdp) fn submit(&self) {
        self.word(self.producer).store(self.own, Release);
    }

    /// As consumer: gives the slots that were read back.
    pub(in crate::af_xdp) fn release(&self) {
        self.word(self.consumer).store(self.own, Release);
    }

    /// As producer: whether the kernel has taken everything.
    pub(in crate::af_xdp) fn is_empty(&self) -> bool {
        self.room() == self.size
    }

    /// Whether the kernel waits for a call before it goes on.
    pub(in crate::af_xdp) fn needs_wakeup(&self) -> bool {
        self.word(self.flags).load(Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping with this size; nobody else has it.
        unsafe { libc::munmap(self.map.as_ptr(), self.map_size) };
    }
}
