//! A guest for tests: memory in a file, which the rings map and the tests write through the `vm-memory` crate.

use super::feature::Features;
use super::memory::{GuestMemory, RegionInfo};
use super::ring::{Call, RingLayout, RingSetup, RunningRing, SplitRing};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

/// Where the parts of the test's ring are.
pub const LAYOUT: RingLayout = RingLayout { descriptors: 0, available: 0x100, used: 0x200, log: None };
/// Its entries.
pub const SIZE: u16 = 8;

/// The guest's regions: address and size. There is a gap between them.
pub const REGIONS: [(u64, u64); 2] = [(0, 0x3000), (0x4000, 0x3000)];
/// The frontend's address of guest address 0.
pub const USER: u64 = 0x7f00_0000_0000;

pub const VERSION_1: Features = Features(1 << 32);
pub const MERGING: Features = Features(1 << 32 | 1 << 15);
pub const WITH_TABLES: Features = Features(1 << 32 | 1 << 28);
pub const WITH_EVENTS: Features = Features(1 << 32 | 1 << 29);
pub const PACKED: Features = Features(1 << 32 | 1 << 34);
/// Merges buffers, and takes GSO frames of TCP over IPv4.
pub const GUEST_TSO: Features = Features(MERGING.0 | 1 << 1 | 1 << 7);
pub const PACKED_MERGING: Features = Features(PACKED.0 | MERGING.0);

/// Flags of descriptors in a packed ring's first lap: made available, and used.
pub const AVAILABLE: u16 = 1 << 7;
pub const USED: u16 = 1 << 15;

/// A guest's memory, twice: as the rings see it, and by way of `vm-memory`.
pub struct TestGuest {
    pub memory: Arc<GuestMemory>,
    pub plain: GuestMemoryMmap,
}

/// The file of a guest's memory, and its regions.
pub fn file_and_regions() -> (File, Vec<RegionInfo>) {
    let file = tempfile::tempfile().unwrap();
    let mut offset = 0;
    let regions = REGIONS.map(|(guest, size)| {
        let region = RegionInfo { guest, user: USER + guest, size, offset };
        offset += size;
        region
    });
    file.set_len(offset).unwrap();
    (file, regions.to_vec())
}

impl TestGuest {
    pub fn new() -> Self {
        let (file, regions) = file_and_regions();
        let again = || file.try_clone().unwrap();
        let memory = Arc::new(GuestMemory::map(regions.iter().map(|region| (*region, again()))).unwrap());
        let ranges = regions.iter().map(|region| {
            let file = FileOffset::new(again(), region.offset);
            (GuestAddress(region.guest), region.size as usize, Some(file))
        });
        TestGuest { memory, plain: GuestMemoryMmap::from_ranges_with_files(ranges).unwrap() }
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.plain.write_slice(bytes, GuestAddress(at)).unwrap();
    }

    pub fn write_u16(&self, at: u64, value: u16) {
        self.write(at, &value.to_le_bytes());
    }

    pub fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.plain.read_slice(&mut bytes, GuestAddress(at)).unwrap();
        bytes
    }

    pub fn u16_at(&self, at: u64) -> u16 {
        self.plain.read_obj(GuestAddress(at)).unwrap()
    }

    pub fn u32_at(&self, at: u64) -> u32 {
        self.plain.read_obj(GuestAddress(at)).unwrap()
    }

    /// All pages, by number.
    pub fn pages(&self) -> BTreeMap<u64, Vec<u8>> {
        let of = |(start, size): (u64, u64)| (start..start + size).step_by(4096);
        REGIONS.into_iter().flat_map(of).map(|at| (at / 4096, self.bytes(at, 4096))).collect()
    }

    /// Writes a descriptor: address, length, flags, next; in a packed ring address, length, id, flags.
    pub fn describe(&self, table: u64, at: u16, (address, len, flags, next): (u64, u32, u16, u16)) {
        let rest = u64::from(len) | u64::from(flags) << 32 | u64::from(next) << 48;
        self.write(table + 16 * u64::from(at), &[address, rest].map(u64::to_le_bytes).concat());
    }

    /// Makes chains available, after `before` others.
    pub fn offer(&self, before: u16, heads: &[u16]) {
        for (head, at) in heads.iter().zip(before..) {
            self.write_u16(LAYOUT.available + 4 + 2 * u64::from(at % SIZE), *head);
        }
        self.write_u16(LAYOUT.available + 2, before + heads.len() as u16);
    }

    /// The used chains since the ring began, at most its entries, and the bytes written to each.
    pub fn used(&self) -> Vec<(u32, u32)> {
        let entry = |at: u64| (self.u32_at(LAYOUT.used + 4 + 8 * at), self.u32_at(LAYOUT.used + 8 + 8 * at));
        (0..u64::from(self.u16_at(LAYOUT.used + 2))).map(entry).collect()
    }

    /// The same of a packed ring in its first lap.
    pub fn used_packed(&self) -> Vec<(u32, u32)> {
        let word = |at: u64| self.plain.read_obj::<u64>(GuestAddress(LAYOUT.descriptors + 16 * at + 8)).unwrap();
        let words = (0..u64::from(SIZE)).map(word);
        let is_used = |word: &u64| (word >> 48) as u16 & (AVAILABLE | USED) == AVAILABLE | USED;
        words.filter(is_used).map(|word| ((word >> 32) as u32 & 0xffff, word as u32)).collect()
    }

    /// What a ring starts with, which begins.
    pub fn setup(&self, features: Features) -> RingSetup {
        let (memory, base) = (self.memory.clone(), if features.is_packed() { 1 << 15 } else { 0 });
        RingSetup { memory, features, size: SIZE, layout: LAYOUT, base, call: None, log: None, inflight: None }
    }

    pub fn ring(&self, features: Features) -> RunningRing<SplitRing> {
        RunningRing::new(self.setup(features)).unwrap()
    }

    /// A ring with an eventfd, which is returned, too.
    pub fn ring_with_call(&self, features: Features) -> (RunningRing<SplitRing>, File) {
        let call = File::from(rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap());
        let ours = Arc::new(Call::new(call.try_clone().unwrap()).unwrap());
        (RunningRing::new(RingSetup { call: Some(ours), ..self.setup(features) }).unwrap(), call)
    }
}

/// Address, length, flags and successor of a descriptor that is likely to be valid.
pub fn descriptor() -> impl Strategy<Value = (u64, u32, u16, u16)> {
    let address = prop_oneof![8 => (0u64..0x70).prop_map(|at| at * 256), 1 => any::<u64>()];
    let len = prop_oneof![6 => 1u32..200, 2 => (1u32..9).prop_map(|n| n * 16), 1 => Just(0), 1 => any::<u32>()];
    (address, len, prop_oneof![6 => 0u16..2, 2 => 2u16..4, 1 => 0u16..8], 0u16..9)
}
