//! A safe interface to memory that a guest shares with us.
//!
//! The guest is another process. It reads and writes its memory whenever it likes, so no reference to its bytes is
//! ever made: bytes are copied through raw pointers, and ring words are atomics, for which any bits are valid. A copy is
//! followed by a compiler fence, so that what is examined is the copy and not the guest's bytes once more.

use super::{Outside, RegionInfo};
use sluice_simd::prefetch;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Release, Ordering::SeqCst, compiler_fence,
};
use vm_memory::{FileOffset, MmapRegion};

/// The guest's memory in one table: regions that do not overlap.
#[derive(Debug)]
pub struct GuestMemory {
    regions: Vec<Region>,
}

/// One region and its mapping.
#[derive(Debug)]
struct Region {
    info: RegionInfo,
    /// Its first byte.
    host: NonNull<u8>,
    _mapping: MmapRegion,
}

// SAFETY: the pointer is into the mapping that the region owns, which is not tied to a thread.
unsafe impl Send for Region {}
// SAFETY: as for Send; all access is by copies and atomics.
unsafe impl Sync for Region {}

impl GuestMemory {
    /// Maps regions of files.
    ///
    /// A file shorter than its region is refused, since an access behind its end would kill this process.
    pub fn map(table: impl IntoIterator<Item = (RegionInfo, File)>) -> io::Result<Self> {
        let mut regions =
            table.into_iter().map(|(info, file)| Region::map(info, file)).collect::<io::Result<Vec<_>>>()?;
        regions.sort_by_key(|region| region.info.guest);
        let overlap = regions.windows(2).any(|pair| pair[1].info.guest - pair[0].info.guest < pair[0].info.size);
        if overlap { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(GuestMemory { regions }) }
    }

    /// The guest's address for a frontend's address.
    pub fn guest_address(&self, user: u64) -> Result<u64, Outside> {
        self.regions.iter().find_map(|region| region.info.guest_address(user)).ok_or(Outside)
    }

    /// The array of `len` words at a guest's address. It is in one region, and aligned.
    pub fn shared<T: Word>(self: &Arc<Self>, address: u64, len: usize) -> Result<Shared<T>, Outside> {
        let region = self.region(address, (len * size_of::<T>()) as u64).ok_or(Outside)?;
        // SAFETY: the region has the bytes from `address` on, so the offset is inside its mapping.
        let at = unsafe { region.host.add((address - region.info.guest) as usize) }.cast::<T>();
        if at.is_aligned() { Ok(Shared { at, len, _memory: self.clone() }) } else { Err(Outside) }
    }

    fn region(&self, address: u64, len: u64) -> Option<&Region> {
        self.regions.iter().find(|region| region.info.has(address, len))
    }
}

impl Region {
    fn map(info: RegionInfo, file: File) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        info.guest.checked_add(info.size).ok_or_else(invalid)?;
        info.user.checked_add(info.size).ok_or_else(invalid)?;
        let end = info.offset.checked_add(info.size).ok_or_else(invalid)?;
        let file_info = file.metadata()?;
        if file_info.len() < end || info.size == 0 {
            return Err(invalid());
        }
        // From the file's start, and in whole pages of the file: mappings of huge pages must be.
        let size = end.checked_next_multiple_of(file_info.blksize().max(1)).ok_or_else(invalid)?;
        let mapping = MmapRegion::from_file(FileOffset::new(file, 0), size as usize).map_err(io::Error::other)?;
        let start = NonNull::new(mapping.as_ptr()).ok_or_else(invalid)?;
        // SAFETY: the mapping has at least `offset + size` bytes.
        let host = unsafe { start.add(info.offset as usize) };
        Ok(Region { info, host, _mapping: mapping })
    }
}

/// A word that both sides access atomically; any bits are valid.
pub trait Word: sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! words {
    ($($word:ty),*) => { $(
        impl sealed::Sealed for $word {}
        impl Word for $word {}
    )* };
}
words!(AtomicU8, AtomicU16, AtomicU32, AtomicU64, [AtomicU32; 2], [AtomicU64; 2]);

/// An array in the guest's memory.
#[derive(Debug)]
pub struct Shared<T> {
    at: NonNull<T>,
    len: usize,
    /// Keeps the mapping.
    _memory: Arc<GuestMemory>,
}

// SAFETY: as for `Region`: atomics in a mapping that it keeps.
unsafe impl<T: Word> Send for Shared<T> {}
// SAFETY: as for Send.
unsafe impl<T: Word> Sync for Shared<T> {}

impl<T: Word> Deref for Shared<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `GuestMemory::shared` checked that `len` aligned words lie in a region, which `_memory` keeps mapped.
        // They are atomics, so that the guest may write them meanwhile, and any bits are valid.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

/// The pages of a guest that were written, for its migration: one bit a page, in memory that the frontend shares.
#[derive(Debug)]
pub struct DirtyLog {
    at: NonNull<AtomicU8>,
    len: usize,
    _mapping: MmapRegion,
}

/// Bytes a bit of the log stands for. Source: vhost-user protocol, VHOST_LOG_PAGE.
const LOG_PAGE: u64 = 4096;

// SAFETY: as for `Region`.
unsafe impl Send for DirtyLog {}
// SAFETY: as for `Region`.
unsafe impl Sync for DirtyLog {}

impl DirtyLog {
    /// Maps a log of `size` bytes at `offset` of a file.
    pub fn map(file: File, size: u64, offset: u64) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let end = offset.checked_add(size).ok_or_else(invalid)?;
        if file.metadata()?.len() < end || size == 0 {
            return Err(invalid());
        }
        let mapping = MmapRegion::from_file(FileOffset::new(file, 0), end as usize).map_err(io::Error::other)?;
        let start = NonNull::new(mapping.as_ptr()).ok_or_else(invalid)?;
        // SAFETY: the mapping has `offset + size` bytes.
        let at = unsafe { start.add(offset as usize) }.cast();
        Ok(DirtyLog { at, len: size as usize, _mapping: mapping })
    }

    /// Marks the pages of these bytes as written. Pages that the log does not have are left out.
    pub fn mark(&self, address: u64, len: usize) {
        // SAFETY: `map` made a mapping with `len` bytes there; the frontend accesses them atomically, too.
        let bits = unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) };
        let last = address.saturating_add((len as u64).max(1) - 1) / LOG_PAGE;
        for page in address / LOG_PAGE..=last {
            let Some(byte) = usize::try_from(page / 8).ok().and_then(|at| bits.get(at)) else { return };
            // What was written is there for whoever finds the bit.
            byte.fetch_or(1 << (page % 8), Release);
        }
    }
}

/// One ring's access to the guest's buffers.
#[derive(Debug)]
pub struct View {
    /// The region of the last address, and its first byte.
    recent: RegionInfo,
    host: NonNull<u8>,
    memory: Arc<GuestMemory>,
    /// Bytes of the header in front of each packet.
    header: usize,
    /// Where writes are noted while the guest migrates.
    log: Option<Arc<DirtyLog>>,
}

// SAFETY: the pointer is into a mapping that `memory` keeps.
unsafe impl Send for View {}
// SAFETY: as for Send; all access takes `&mut self`.
unsafe impl Sync for View {}

impl View {
    /// A view of the memory, whose packets are behind headers of `header` bytes.
    pub fn new(memory: Arc<GuestMemory>, header: usize) -> Self {
        let recent = RegionInfo { guest: 0, user: 0, size: 0, offset: 0 };
        View { recent, host: NonNull::dangling(), memory, header, log: None }
    }

    /// Begins or ends to note the pages that are written.
    pub fn set_log(&mut self, log: Option<Arc<DirtyLog>>) {
        self.log = log;
    }

    /// Where writes are noted.
    pub fn log(&self) -> Option<&DirtyLog> {
        self.log.as_deref()
    }

    /// Copies the guest's bytes at `address` into `out`.
    #[inline]
    pub fn read(&mut self, address: u64, out: &mut [u8]) -> Result<(), Outside> {
        let from = self.resolve(address, out.len())?;
        // SAFETY: `resolve` found `out.len()` mapped bytes there, which are the guest's and so not those of `out`.
        unsafe { copy(from.as_ptr(), out.as_mut_ptr(), out.len()) }
        Ok(())
    }

    /// Copies `bytes` to the guest's `address`.
    #[inline]
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Outside> {
        let to = self.resolve(address, bytes.len())?;
        // SAFETY: as in `read`.
        unsafe { copy(bytes.as_ptr(), to.as_ptr(), bytes.len()) }
        if let Some(log) = &self.log {
            log.mark(address, bytes.len());
        }
        Ok(())
    }

    /// Copies `header` to the guest's `address`, unless it is there already, and `bytes` behind it.
    ///
    /// A buffer that comes round again nearly always has the header that it is to have. Its cache line, in which many
    /// guests have nothing else, then stays with both sides; written, it would travel to us and back for each packet.
    #[inline(always)]
    pub fn write_behind(&mut self, address: u64, header: &[u8], bytes: &[u8]) -> Result<(), Outside> {
        let len = header.len() + bytes.len();
        let to = self.resolve(address, len)?;
        // SAFETY: as in `read`: `len` bytes are mapped there.
        unsafe {
            if !is_there(header, to.as_ptr()) {
                copy(header.as_ptr(), to.as_ptr(), header.len());
            }
            copy(bytes.as_ptr(), to.as_ptr().add(header.len()), bytes.len());
        }
        if let Some(log) = &self.log {
            log.mark(address, len);
        }
        Ok(())
    }

    /// Prefetches the first two cache lines of a buffer, if it is in the region of the last one. A header and the
    /// shortest frame have as many.
    ///
    /// The lines come for writing, also if the buffer is only read now. A guest that forwards packets receives into the
    /// buffers from which it has sent, so we write next what we read last. A line that was fetched for reading has to be
    /// fetched once more for writing: that takes twice as long as for an absent line, and no prefetch does it ahead.
    ///
    /// A line that has the header alone comes for reading: it is seldom written, see [`View::write_behind`].
    #[inline]
    pub fn prefetch(&self, address: u64) {
        // A prefetch never faults, whatever the address.
        let first = self.host.as_ptr().wrapping_add(address.wrapping_sub(self.recent.guest) as usize);
        if (first as usize).wrapping_add(self.header).is_multiple_of(CACHE_LINE) {
            prefetch::read(first);
        } else {
            prefetch::write(first);
        }
        prefetch::write(first.wrapping_add(CACHE_LINE));
    }

    /// The host's address for `len` bytes at a guest's address.
    #[inline]
    fn resolve(&mut self, address: u64, len: usize) -> Result<NonNull<u8>, Outside> {
        #[cfg(test)]
        crate::vhost_user::work::note_access(len);
        if !self.recent.has(address, len as u64) {
            self.find(address, len)?;
        }
        // SAFETY: the region has the bytes, so the offset is inside its mapping.
        Ok(unsafe { self.host.add((address - self.recent.guest) as usize) })
    }

    #[cold]
    fn find(&mut self, address: u64, len: usize) -> Result<(), Outside> {
        let region = self.memory.region(address, len as u64).ok_or(Outside)?;
        (self.recent, self.host) = (region.info, region.host);
        Ok(())
    }
}

/// Bytes of a cache line.
const CACHE_LINE: usize = 64;

/// Copies of up to this many bytes are made here; for longer ones a call costs little.
const SHORT: usize = 128;

/// Whether the guest has these bytes, a header's, at `place`.
///
/// # Safety
/// `place` has as many live bytes.
#[inline(always)]
unsafe fn is_there(bytes: &[u8], place: *const u8) -> bool {
    /// The first and the last eight of `len` bytes, which may overlap: in registers, since bytes that were just stored
    /// in two pieces cannot be loaded in one without waiting for the stores.
    #[inline(always)]
    unsafe fn ends(from: *const u8, len: usize) -> [u64; 2] {
        // SAFETY: the caller has at least 8 bytes; the loads need no alignment.
        unsafe { [from.cast::<u64>().read_unaligned(), from.add(len - 8).cast::<u64>().read_unaligned()] }
    }
    let len = bytes.len();
    // SAFETY: `bytes` has `len` bytes, for `place` the caller vouches, and here these are 8 to 16.
    (8..=16).contains(&len) && unsafe { ends(bytes.as_ptr(), len) == ends(place, len) }
}

/// Copies `len` bytes.
///
/// # Safety
/// Both are `len` live bytes, which do not overlap.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    /// Copies `N` bytes at the start and `N` at the end, which may overlap.
    #[inline(always)]
    unsafe fn ends<const N: usize>(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: `len` is at least `N` where this is called.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to, N);
            std::ptr::copy_nonoverlapping(from.add(len - N), to.add(len - N), N);
        }
    }
    // SAFETY: the caller vouches for `len` bytes on both sides, and each branch stays inside them.
    unsafe {
        // A loop over units would come back as a call: the compiler knows what it does.
        if len > SHORT {
            std::ptr::copy_nonoverlapping(from, to, len);
        } else if len > 64 {
            ends::<64>(from, to, len);
        } else if len >= 32 {
            ends::<32>(from, to, len);
        } else if len >= 16 {
            ends::<16>(from, to, len);
        } else if len >= 8 {
            ends::<8>(from, to, len);
        } else if len >= 4 {
            ends::<4>(from, to, len);
        } else if len >= 2 {
            ends::<2>(from, to, len);
        } else if len == 1 {
            *to = *from;
        }
    }
    compiler_fence(SeqCst);
}
