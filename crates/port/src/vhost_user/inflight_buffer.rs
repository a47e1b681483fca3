//! The buffer in which a device records the chains that it has taken and not yet given back, so that its successor finds
//! them. It is a file that the frontend keeps: it asks for one once, and hands it to each back end that connects.
//! Source: vhost-user protocol, "Inflight I/O tracking".

use super::memory::{GuestMemory, Outside, RegionInfo, Shared};
use rustix::fs::{MemfdFlags, SealFlags};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Each queue's part begins at a multiple of this. Source: DPDK lib/vhost/vhost_user.c, INFLIGHT_ALIGNMENT.
const ALIGNMENT: u64 = 64;
/// Bytes of a word.
const WORD: u64 = 8;

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InflightShape {
    pub queues: u16,
    /// Entries of each queue.
    pub queue_size: u16,
}

/// The words of a queue's part: those of its header, and those of each entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InflightLayout {
    pub header: usize,
    pub entry: usize,
}

impl InflightLayout {
    /// `DescStateSplit` and `DescStatePacked` of the protocol, and what is in front of them.
    pub const SPLIT: InflightLayout = InflightLayout { header: 2, entry: 2 };
    pub const PACKED: InflightLayout = InflightLayout { header: 4, entry: 4 };

    /// Words of a queue's part.
    fn words(self, queue_size: u16) -> usize {
        self.header + self.entry * usize::from(queue_size)
    }

    /// The distance between the parts of two queues, in bytes.
    fn stride(self, queue_size: u16) -> u64 {
        (self.words(queue_size) as u64 * WORD).next_multiple_of(ALIGNMENT)
    }
}

impl InflightShape {
    /// Whether a device with `queues` rings of at most `size_max` entries can have it.
    pub fn is_for(self, queues: usize, size_max: u16) -> bool {
        usize::from(self.queues) <= queues && (1..=size_max).contains(&self.queue_size)
    }

    /// Bytes that it takes in the larger format: a frontend may ask before it says which one it wants.
    pub fn bytes(self) -> u64 {
        u64::from(self.queues) * InflightLayout::PACKED.stride(self.queue_size)
    }

    /// An empty buffer of this shape, which nobody can make shorter.
    pub fn create(self) -> io::Result<File> {
        let fd = rustix::fs::memfd_create("vhost-inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, self.bytes())?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(File::from(fd))
    }
}

/// A buffer that the frontend handed over, mapped.
#[derive(Debug)]
pub struct InflightBuffer {
    memory: Arc<GuestMemory>,
    shape: InflightShape,
    size: u64,
}

impl InflightBuffer {
    /// Maps `size` bytes at `offset` of a file.
    pub fn map(file: File, shape: InflightShape, (size, offset): (u64, u64)) -> io::Result<Self> {
        let region = RegionInfo { guest: 0, user: 0, size, offset };
        Ok(InflightBuffer { memory: Arc::new(GuestMemory::map([(region, file)])?), shape, size })
    }

    /// The part of a queue, if the buffer is for as many.
    pub fn of_queue(&self, queue: usize) -> Option<QueueBuffer> {
        let queue = u16::try_from(queue).ok().filter(|queue| *queue < self.shape.queues)?;
        let InflightBuffer { memory, shape, size } = self;
        Some(QueueBuffer { memory: memory.clone(), queue, queue_size: shape.queue_size, size: *size })
    }
}

/// The part of one queue.
#[derive(Clone, Debug)]
pub struct QueueBuffer {
    memory: Arc<GuestMemory>,
    queue: u16,
    /// Entries that it has.
    pub queue_size: u16,
    /// Bytes of the whole buffer.
    size: u64,
}

impl QueueBuffer {
    /// Its words in this layout.
    pub fn words(&self, layout: InflightLayout) -> Result<Shared<AtomicU64>, Outside> {
        let at = u64::from(self.queue) * layout.stride(self.queue_size);
        if at >= self.size {
            return Err(Outside);
        }
        self.memory.shared(at, layout.words(self.queue_size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: InflightShape = InflightShape { queues: 2, queue_size: 256 };

    #[test]
    fn a_buffer_has_the_size_that_dpdk_gives_it() {
        // Source: DPDK lib/vhost/vhost_user.c, get_pervq_shm_size_split and get_pervq_shm_size_packed.
        assert_eq!(InflightLayout::SPLIT.stride(256), 16 * 256 + 64);
        assert_eq!(InflightLayout::PACKED.stride(256), 32 * 256 + 64);
        assert_eq!(SHAPE.bytes(), 2 * (32 * 256 + 64));
        assert_eq!(SHAPE.create().unwrap().metadata().unwrap().len(), SHAPE.bytes());
    }

    #[test]
    fn nobody_can_make_it_shorter() {
        let file = SHAPE.create().unwrap();
        assert!(file.set_len(0).is_err());
        assert!(rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE).is_err());
    }

    #[test]
    fn a_buffer_that_is_no_such_one_is_refused() {
        let map = |size, offset| InflightBuffer::map(SHAPE.create().unwrap(), SHAPE, (size, offset));
        assert!(map(0, 0).is_err() && map(SHAPE.bytes() + 1, 0).is_err() && map(64, u64::MAX).is_err());
        // One that cannot be written.
        let fd = rustix::fs::memfd_create("sealed", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, SHAPE.bytes()).unwrap();
        rustix::fs::fcntl_add_seals(&fd, SealFlags::WRITE).unwrap();
        assert!(InflightBuffer::map(File::from(fd), SHAPE, (SHAPE.bytes(), 0)).is_err());
        // One too short for its second queue, one at an odd offset.
        let short = map(SHAPE.bytes() / 2, 0).unwrap();
        assert!(short.of_queue(0).unwrap().words(InflightLayout::PACKED).is_ok());
        assert!(short.of_queue(1).unwrap().words(InflightLayout::PACKED).is_err());
        assert!(short.of_queue(2).is_none());
        let odd = map(SHAPE.bytes() - 1, 1).unwrap();
        assert!(odd.of_queue(0).unwrap().words(InflightLayout::SPLIT).is_err());
        for (queues, queue_size) in [(3, 256), (2, 0), (2, 257)] {
            assert!(!InflightShape { queues, queue_size }.is_for(2, 256));
        }
        assert!(SHAPE.is_for(2, 256));
    }
}
