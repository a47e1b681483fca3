//! The device's side of a split virtqueue.
//!
//! The guest owns the memory and may write anything into it at any time. So every index is taken modulo the ring's
//! size, every chain is bounded by it, and the memory map checks every address. A descriptor is read once, into a copy.
//! Source: Virtual I/O Device (VIRTIO) 1.2, section 2.7.

use crate::offload::{LARGEST_FRAME, VNET_HEADER};
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

/// The largest ring that the specification allows.
pub const SIZE_MAX: u16 = 32_768;

const DESC_NEXT: u16 = 1;
const DESC_WRITE: u16 = 2;
/// A flag of the available ring: the guest does not want notifications.
const NO_INTERRUPT: u16 = 1;
const DESC_SIZE: u64 = 16;

/// A ring's guest-physical addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLayout {
    /// The descriptor table.
    pub descriptors: u64,
    /// The available ring, which the guest writes.
    pub available: u64,
    /// The used ring, which the device writes.
    pub used: u64,
}

/// The guest wrote an invalid ring, which is stopped until it is set up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingError;

type Result<T> = std::result::Result<T, RingError>;

/// A running ring.
#[derive(Debug)]
pub struct Ring {
    memory: Arc<GuestMemoryMmap>,
    size: u16,
    layout: RingLayout,
    /// The next entry of the available ring; the used ring is in step.
    next: u16,
    /// Used entries that are not yet published.
    unpublished: u16,
    call: Option<File>,
}

/// One descriptor.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    addr: u64,
    len: u32,
    flags: u16,
    next: u16,
}

/// A chain of buffers that the guest made available.
#[derive(Debug, Default)]
pub struct Chain {
    head: u16,
    buffers: Vec<(u64, u32)>,
}

impl Chain {
    /// Bytes of all its buffers, at most those of a frame.
    pub fn len(&self) -> usize {
        self.buffers.iter().fold(0usize, |sum, (_, len)| sum.saturating_add(*len as usize))
    }
}

impl Ring {
    /// A ring of `size` entries (a power of two), which continues at entry `base`, or where its used ring says.
    ///
    /// Entries are used in order, so a ring that was used before continues behind the last used entry. A frontend that
    /// outlived us does not know our position, but its memory does.
    pub fn new(memory: Arc<GuestMemoryMmap>, size: u16, layout: RingLayout, base: u16, call: Option<File>) -> Self {
        let mut ring = Ring { memory, size, layout, next: base, unpublished: 0, call };
        if let Ok(used) = ring.load(place(layout.used, 2), Ordering::Acquire) {
            ring.next = used;
        }
        ring
    }

    /// The next entry, from which the guest can continue later.
    pub fn position(&self) -> u16 {
        self.next
    }

    /// The eventfd that notifies the guest of used buffers.
    pub fn set_call(&mut self, call: Option<File>) {
        self.call = call;
    }

    /// Available chains that are not taken yet.
    pub fn waiting(&self) -> Result<u16> {
        let index: u16 = self.load(place(self.layout.available, 2), Ordering::Acquire)?;
        let waiting = index.wrapping_sub(self.next);
        if waiting > self.size { Err(RingError) } else { Ok(waiting) }
    }

    /// Reads the chain `ahead` entries after the next one, which must be available, into `chain`. `writable` is the
    /// kind of buffers that it must consist of.
    pub fn peek(&self, ahead: u16, writable: bool, chain: &mut Chain) -> Result<()> {
        let entry = u64::from(self.next.wrapping_add(ahead) & (self.size - 1));
        chain.head = self.load(place(self.layout.available, 4 + 2 * entry), Ordering::Relaxed)?;
        chain.buffers.clear();
        let mut at = chain.head;
        // A looping chain is longer than the ring.
        for _ in 0..self.size {
            let descriptor = self.descriptor(at)?;
            if (descriptor.flags & DESC_WRITE != 0) != writable {
                return Err(RingError);
            }
            chain.buffers.push((descriptor.addr, descriptor.len));
            if descriptor.flags & DESC_NEXT == 0 {
                return Ok(());
            }
            at = descriptor.next;
        }
        Err(RingError)
    }

    /// Marks the next chain as used, with `written` bytes. The guest sees it after `publish`.
    pub fn use_next(&mut self, chain: &Chain, written: u32) -> Result<()> {
        let entry = u64::from(self.next & (self.size - 1));
        let mut element = [0; 8];
        element[..4].copy_from_slice(&u32::from(chain.head).to_le_bytes());
        element[4..].copy_from_slice(&written.to_le_bytes());
        self.memory.write_slice(&element, place(self.layout.used, 4 + 8 * entry)).map_err(|_| RingError)?;
        self.next = self.next.wrapping_add(1);
        self.unpublished += 1;
        Ok(())
    }

    /// Publishes the used entries, and notifies the guest if it wants that.
    pub fn publish(&mut self) -> Result<()> {
        if self.unpublished == 0 {
            return Ok(());
        }
        self.unpublished = 0;
        self.memory.store(self.next.to_le(), place(self.layout.used, 2), Ordering::Release).map_err(|_| RingError)?;
        // The guest may be about to sleep: it must see our index before we read its flag.
        fence(Ordering::SeqCst);
        let flags: u16 = self.load(place(self.layout.available, 0), Ordering::Relaxed)?;
        if flags & NO_INTERRUPT == 0
            && let Some(call) = &mut self.call
        {
            // A full event counter has not been read yet, so the guest will wake anyway.
            let _ = call.write(&1u64.to_ne_bytes());
        }
        Ok(())
    }

    /// Copies a chain's bytes from `skip` on into `out`. Returns how many.
    pub fn read(&self, chain: &Chain, skip: usize, out: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        for (addr, len) in Parts::new(chain, skip) {
            let n = len.min(out.len() - done);
            self.memory.read_slice(&mut out[done..done + n], GuestAddress(addr)).map_err(|_| RingError)?;
            done += n;
        }
        Ok(done)
    }

    /// Copies `bytes` into a chain from `skip` on. Returns how many fitted.
    pub fn write(&self, chain: &Chain, skip: usize, bytes: &[u8]) -> Result<usize> {
        let mut done = 0;
        for (addr, len) in Parts::new(chain, skip) {
            let n = len.min(bytes.len() - done);
            self.memory.write_slice(&bytes[done..done + n], GuestAddress(addr)).map_err(|_| RingError)?;
            done += n;
        }
        Ok(done)
    }

    fn descriptor(&self, at: u16) -> Result<Descriptor> {
        if at >= self.size {
            return Err(RingError);
        }
        let mut raw = [0; DESC_SIZE as usize];
        let from = place(self.layout.descriptors, DESC_SIZE * u64::from(at));
        self.memory.read_slice(&mut raw, from).map_err(|_| RingError)?;
        let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, f0, f1, n0, n1] = raw;
        Ok(Descriptor {
            addr: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            len: u32::from_le_bytes([l0, l1, l2, l3]).min((LARGEST_FRAME + VNET_HEADER) as u32),
            flags: u16::from_le_bytes([f0, f1]),
            next: u16::from_le_bytes([n0, n1]),
        })
    }

    fn load(&self, from: GuestAddress, order: Ordering) -> Result<u16> {
        self.memory.load::<u16>(from, order).map(u16::from_le).map_err(|_| RingError)
    }
}

/// An address in a ring. The guest chose the ring's address, so the sum may wrap; the memory map then refuses it.
fn place(ring: u64, offset: u64) -> GuestAddress {
    GuestAddress(ring.wrapping_add(offset))
}

/// The buffers of a chain from an offset on.
struct Parts<'a> {
    buffers: std::slice::Iter<'a, (u64, u32)>,
    skip: usize,
}

impl<'a> Parts<'a> {
    fn new(chain: &'a Chain, skip: usize) -> Self {
        Parts { buffers: chain.buffers.iter(), skip }
    }
}

impl Iterator for Parts<'_> {
    type Item = (u64, usize);

    fn next(&mut self) -> Option<(u64, usize)> {
        loop {
            let (addr, len) = self.buffers.next()?;
            let len = *len as usize;
            let skipped = self.skip.min(len);
            self.skip -= skipped;
            if len > skipped {
                return Some((addr.wrapping_add(skipped as u64), len - skipped));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LAYOUT: RingLayout = RingLayout { descriptors: 0, available: 0x100, used: 0x200 };

    fn memory() -> Arc<GuestMemoryMmap> {
        Arc::new(GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x4000)]).unwrap())
    }

    fn describe(memory: &GuestMemoryMmap, at: u64, (addr, len, flags, next): (u64, u32, u16, u16)) {
        let place = GuestAddress(at * 16);
        memory.write_obj(addr.to_le(), place).unwrap();
        memory.write_obj(len.to_le(), GuestAddress(at * 16 + 8)).unwrap();
        memory.write_obj(flags.to_le(), GuestAddress(at * 16 + 12)).unwrap();
        memory.write_obj(next.to_le(), GuestAddress(at * 16 + 14)).unwrap();
    }

    #[test]
    fn a_chain_is_taken_and_used_in_order() {
        let memory = memory();
        describe(&memory, 0, (0x1000, 4, DESC_NEXT, 2));
        describe(&memory, 2, (0x2000, 6, 0, 0));
        memory.write_slice(b"abcd", GuestAddress(0x1000)).unwrap();
        memory.write_slice(b"efghij", GuestAddress(0x2000)).unwrap();
        memory.write_obj(1u16, GuestAddress(0x102)).unwrap();
        let mut ring = Ring::new(memory.clone(), 8, LAYOUT, 0, None);
        assert_eq!(ring.waiting(), Ok(1));
        let mut chain = Chain::default();
        ring.peek(0, false, &mut chain).unwrap();
        assert_eq!(chain.len(), 10);
        let mut out = [0; 16];
        assert_eq!(ring.read(&chain, 3, &mut out), Ok(7));
        assert_eq!(&out[..7], b"defghij");
        ring.use_next(&chain, 0).unwrap();
        assert_eq!(memory.read_obj::<u16>(GuestAddress(0x202)).unwrap(), 0, "not seen before it is published");
        ring.publish().unwrap();
        assert_eq!((memory.read_obj::<u16>(GuestAddress(0x202)).unwrap(), ring.waiting()), (1, Ok(0)));
        assert_eq!(ring.peek(0, true, &mut chain), Err(RingError), "read-only buffers where writable ones belong");
    }

    #[test]
    fn a_loop_is_broken() {
        let memory = memory();
        describe(&memory, 0, (0x1000, 4, DESC_NEXT, 1));
        describe(&memory, 1, (0x1000, 4, DESC_NEXT, 0));
        assert_eq!(Ring::new(memory, 8, LAYOUT, 0, None).peek(0, false, &mut Chain::default()), Err(RingError));
    }

    proptest! {
        /// For any guest memory, nothing panics and no chain is longer than the ring.
        #[test]
        fn any_memory_is_survived(bytes in prop::collection::vec(any::<u8>(), 0x300), next: u16, writable: bool, far in 0u64..0x5000) {
            let memory = memory();
            memory.write_slice(&bytes, GuestAddress(0)).unwrap();
            // Makes valid addresses common.
            for at in 0..8 {
                memory.write_obj(u64::from(bytes[at as usize]) * 64, GuestAddress(at * 16)).unwrap();
            }
            let layout = RingLayout { used: far, ..LAYOUT };
            let mut ring = Ring { next, ..Ring::new(memory, 8, layout, 0, None) };
            let (mut chain, mut out) = (Chain::default(), [0; 2000]);
            let _ = ring.waiting();
            for ahead in 0..8 {
                if ring.peek(ahead, writable, &mut chain).is_ok() {
                    prop_assert!(chain.buffers.len() <= 8);
                    let _ = ring.read(&chain, 5, &mut out);
                    let _ = ring.write(&chain, 5, &out);
                    let _ = ring.use_next(&chain, 1);
                }
            }
            let _ = ring.publish();
        }
    }
}
