//! The driver's side of a packed ring. Source: VIRTIO 1.2, section 2.8.

use super::guest::{Described, NEXT, descriptor_words};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, Release};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

/// A descriptor's flag: the driver's wrap counter when it made it available.
pub const AVAILABLE: u16 = 1 << 7;
/// A descriptor's flag: the device's wrap counter when it used it.
pub const USED: u16 = 1 << 15;

/// The wrap counter in the protocol's words for a place.
const WRAP: u32 = 1 << 15;

/// What a driver knows of its packed ring.
pub struct PackedDriver {
    /// The guest's address of the descriptors.
    descriptors: u64,
    size: u16,
    /// What chains are made of, as in a split ring's table.
    table: Vec<Described>,
    /// Descriptors that were offered, and that were taken back, since the ring began.
    offered: u32,
    taken: u32,
    /// The chains under way: id, and descriptors.
    under_way: VecDeque<(u16, u16)>,
}

impl PackedDriver {
    /// A driver of a ring of `size` descriptors at this address, which begins.
    pub fn new(descriptors: u64, size: u16) -> Self {
        let table = vec![Described::default(); size.into()];
        PackedDriver { descriptors, size, table, offered: 0, taken: 0, under_way: VecDeque::new() }
    }

    /// Says what a descriptor of later chains is.
    pub fn describe(&mut self, at: u16, described: Described) {
        self.table[usize::from(at)] = described;
    }

    /// The place of the next descriptor that the device uses, as the protocol says it.
    pub fn base(&self) -> u32 {
        let (index, wrap) = self.place(self.taken);
        u32::from(index) | if wrap { WRAP } else { 0 }
    }

    /// Makes the chain available that begins with this descriptor of the table, under the id `head`.
    pub fn offer(&mut self, memory: &GuestMemoryMmap, head: u16) {
        let (mut at, mut n) = (head, 0);
        let (mut first, mut has_next) = (None, true);
        while has_next {
            let (address, len, flags, next) = self.table[usize::from(at)];
            let (index, wrap) = self.place(self.offered + n);
            let flags = flags | if wrap { AVAILABLE } else { USED };
            let to = GuestAddress(self.descriptors + 16 * u64::from(index));
            let [low, high] = descriptor_words((address, len, head, flags));
            memory.write_obj(low, to).unwrap();
            // The device looks at the others once it has seen the first one.
            match first {
                None => first = Some((to, high)),
                Some(_) => memory.write_obj(high, GuestAddress(to.0 + 8)).unwrap(),
            }
            (at, n, has_next) = (next, n + 1, flags & NEXT != 0);
        }
        let (to, high) = first.expect("a chain has a descriptor");
        memory.store(high, GuestAddress(to.0 + 8), Release).unwrap();
        self.offered += n;
        self.under_way.push_back((head, n as u16));
    }

    /// The chains used since the last call, and the bytes written to each.
    pub fn take_used(&mut self, memory: &GuestMemoryMmap) -> Vec<(u32, u32)> {
        let mut taken = Vec::new();
        while let Some((id, n)) = self.under_way.front().copied() {
            let (index, wrap) = self.place(self.taken);
            let at = GuestAddress(self.descriptors + 16 * u64::from(index) + 8);
            let word = u64::from_le(memory.load(at, Acquire).unwrap());
            let flags = (word >> 48) as u16;
            if (flags & AVAILABLE != 0, flags & USED != 0) != (wrap, wrap) {
                break;
            }
            assert_eq!((word >> 32) as u16, id, "chains are used in order");
            taken.push((id.into(), word as u32));
            self.taken += u32::from(n);
            self.under_way.pop_front();
        }
        taken
    }

    /// The index of a descriptor counted from the ring's beginning, and the wrap counter there.
    fn place(&self, n: u32) -> (u16, bool) {
        let size = u32::from(self.size);
        ((n % size) as u16, (n / size).is_multiple_of(2))
    }
}
