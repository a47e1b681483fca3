//! The guest's driver and its frontend. It speaks the vhost-user protocol byte by byte, so that it can say what no
//! frontend would. Source: vhost-user protocol; VIRTIO 1.2, section 2.7.

use super::packed::PackedDriver;
use rustix::fs::MemfdFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

/// Requests of the protocol.
pub mod request {
    /// Asks what the device offers.
    pub const GET_FEATURES: u32 = 1;
    /// Says what was negotiated.
    pub const SET_FEATURES: u32 = 2;
    /// Begins.
    pub const SET_OWNER: u32 = 3;
    /// Disables all rings.
    pub const RESET_OWNER: u32 = 4;
    /// Shares memory.
    pub const SET_MEM_TABLE: u32 = 5;
    /// Names the memory in which written pages are noted.
    pub const SET_LOG_BASE: u32 = 6;
    /// Says a ring's size.
    pub const SET_VRING_NUM: u32 = 8;
    /// Says where a ring is.
    pub const SET_VRING_ADDR: u32 = 9;
    /// Says where a ring begins.
    pub const SET_VRING_BASE: u32 = 10;
    /// Stops a ring, and asks where.
    pub const GET_VRING_BASE: u32 = 11;
    /// Starts a ring.
    pub const SET_VRING_KICK: u32 = 12;
    /// Names the descriptor that notifies the guest.
    pub const SET_VRING_CALL: u32 = 13;
    /// Says what of the protocol was negotiated.
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    /// Enables or disables a ring.
    pub const SET_VRING_ENABLE: u32 = 18;
    /// Has the guest announced in its place.
    pub const SEND_RARP: u32 = 19;
    /// Asks for a buffer for records of chains in flight.
    pub const GET_INFLIGHT_FD: u32 = 31;
    /// Hands over such a buffer.
    pub const SET_INFLIGHT_FD: u32 = 32;
}

/// Features of virtio.
pub mod feature {
    /// The guest takes GSO frames of TCP over IPv4, whose checksums are left to it.
    pub const GUEST_LARGE: u64 = 1 << 1 | 1 << 7;
    /// Packets may use several buffers.
    pub const MERGEABLE: u64 = 1 << 15;
    /// The guest announces itself after a migration.
    pub const GUEST_ANNOUNCE: u64 = 1 << 21;
    /// The switch notes the pages that it writes.
    pub const LOG_ALL: u64 = 1 << 26;
    /// Descriptors may refer to tables.
    pub const INDIRECT: u64 = 1 << 28;
    /// Each side says when it wants to be notified.
    pub const EVENT_INDEX: u64 = 1 << 29;
    /// The protocol's own features are negotiated; rings are disabled at first.
    pub const PROTOCOL: u64 = 1 << 30;
    /// The device is one of virtio 1.
    pub const VERSION_1: u64 = 1 << 32;
    /// Rings have the packed format.
    pub const RING_PACKED: u64 = 1 << 34;
}

/// Features of the protocol.
pub mod protocol_feature {
    /// The frontend shares the log of written pages by a descriptor.
    pub const LOG_SHMFD: u64 = 1 << 1;
    /// Chains in flight are recorded in a buffer that the frontend keeps.
    pub const INFLIGHT_SHMFD: u64 = 1 << 12;
}

/// A descriptor's flag: another one follows.
pub const NEXT: u16 = 1;
/// A descriptor's flag: the device writes its buffer.
pub const WRITE: u16 = 2;
/// A descriptor's flag: it describes a table of descriptors.
pub const INDIRECT: u16 = 4;

/// A descriptor: address, length, flags, and the one that follows it in its table.
pub type Described = (u64, u32, u16, u16);

pub(super) const MEMORY: u64 = 16 << 20;
/// The frontend's address of guest address 0.
pub(super) const USER: u64 = 0x7f00_0000_0000;
/// Where the guest's buffers begin, behind its rings.
pub const BUFFERS: u64 = 4 << 20;

/// A ring's parts in the guest's memory.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The table of descriptors.
    pub descriptors: u64,
    /// The available ring.
    pub available: u64,
    /// The used ring.
    pub used: u64,
}

impl Place {
    /// A ring's place, with space for the largest ring.
    pub fn of(ring: u32) -> Self {
        let base = u64::from(ring) << 20;
        Place { descriptors: base, available: base + 0x8_0000, used: base + 0xa_0000 }
    }
}

/// A guest and its frontend, connected.
pub struct Guest {
    /// Its memory.
    pub memory: GuestMemoryMmap,
    file: File,
    /// The connection to the switch.
    pub socket: UnixStream,
    /// Entries of its rings.
    pub size: u16,
    /// By ring: the next index of the available ring. In a packed ring, chains made available so far.
    pub available: [u16; 2],
    /// By ring: the next index of the used ring. In a packed ring, chains used so far.
    pub used: [u16; 2],
    /// By ring: the descriptor that notifies it.
    pub calls: [OwnedFd; 2],
    /// By ring: what its driver knows, if rings are packed.
    packed: Option<[PackedDriver; 2]>,
}

impl Guest {
    /// Connects to the switch's socket and negotiates `features`; rings have `size` entries.
    pub fn connect(path: &Path, features: u64, size: u16) -> Self {
        Self::new(connect(path), features, size)
    }

    /// The same, for a switch that connects to the guest.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn accept(path: &Path, features: u64, size: u16) -> std::io::Result<Self> {
        let (socket, _) = UnixListener::bind(path)?.accept()?;
        Ok(Self::new(socket, features, size))
    }

    fn new(socket: UnixStream, features: u64, size: u16) -> Self {
        let file = File::from(rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(MEMORY).unwrap();
        let mapped = (GuestAddress(0), MEMORY as usize, Some(FileOffset::new(file.try_clone().unwrap(), 0)));
        let memory = GuestMemoryMmap::from_ranges_with_files([mapped]).unwrap();
        let calls = [(), ()].map(|()| rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap());
        let packed = packed_drivers(features, size);
        let mut guest = Guest { memory, file, socket, size, available: [0; 2], used: [0; 2], calls, packed };
        guest.begin(features);
        guest
    }

    /// Connects to another switch, with what the guest has: its memory and its rings, which are stopped.
    pub fn reconnect(&mut self, path: &Path, features: u64) {
        self.socket = connect(path);
        self.begin(features);
    }

    /// Connects again as QEMU does, which enables the rings before it negotiates features.
    pub fn reconnect_as_qemu(&mut self, path: &Path, features: u64) {
        self.socket = connect(path);
        (0..2).for_each(|ring| self.say(request::SET_VRING_ENABLE, &words([ring, 1]), &[]));
        self.begin(features | feature::PROTOCOL);
    }

    fn begin(&mut self, features: u64) {
        self.say(request::SET_OWNER, &[], &[]);
        let offered = self.offered_features();
        assert_eq!(offered & features, features, "the switch offers {offered:x}");
        self.say(request::SET_FEATURES, &features.to_le_bytes(), &[]);
        self.share_memory();
    }

    /// Sends a request.
    pub fn say(&self, request: u32, body: &[u8], files: &[BorrowedFd<'_>]) {
        let message = [&request.to_le_bytes(), &1u32.to_le_bytes(), &(body.len() as u32).to_le_bytes(), body].concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(files)));
        }
        sendmsg(&self.socket, &[IoSlice::new(&message)], &mut ancillary, SendFlags::empty()).unwrap();
    }

    /// The switch's features. It has done what it was told before when it answers.
    pub fn offered_features(&mut self) -> u64 {
        self.say(request::GET_FEATURES, &[], &[]);
        let mut reply = [0; 20];
        self.socket.read_exact(&mut reply).unwrap();
        u64::from_le_bytes(*reply.last_chunk().unwrap())
    }

    /// Shares the guest's memory, as one region.
    pub fn share_memory(&self) {
        let region = [MEMORY, USER, 0].map(u64::to_le_bytes).concat();
        let table = [&1u32.to_le_bytes()[..], &[0; 4], &0u64.to_le_bytes(), &region].concat();
        self.say(request::SET_MEM_TABLE, &table, &[self.file.as_fd()]);
    }

    /// Negotiates other features, and a size of its rings, which begin again. They are stopped until they are started.
    pub fn renegotiate(&mut self, features: u64, size: u16) {
        (self.size, self.available, self.used) = (size, [0; 2], [0; 2]);
        self.packed = packed_drivers(features, size);
        (0..2).for_each(|ring| self.say(request::SET_VRING_NUM, &words([ring, u32::from(size)]), &[]));
        self.say(request::SET_FEATURES, &features.to_le_bytes(), &[]);
    }

    /// Where a ring continues, as the protocol says it: behind what its driver has seen used.
    pub fn base(&self, ring: u32) -> u32 {
        let used = u32::from(self.used[ring as usize]);
        self.packed.as_ref().map_or(used, |drivers| drivers[ring as usize].base())
    }

    /// Starts a ring at entry `base`.
    pub fn start(&self, ring: u32, base: u32) {
        let place = Place::of(ring);
        self.say(request::SET_VRING_NUM, &words([ring, u32::from(self.size)]), &[]);
        self.say(request::SET_VRING_BASE, &words([ring, base]), &[]);
        let user = [place.descriptors, place.used, place.available].map(|at| (at + USER).to_le_bytes()).concat();
        let body = [&words([ring, 0])[..], &user, &[0; 8]].concat();
        self.say(request::SET_VRING_ADDR, &body, &[]);
        self.set_call(ring, self.calls[ring as usize].as_fd());
        let kick = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        self.say(request::SET_VRING_KICK, &u64::from(ring).to_le_bytes(), &[kick.as_fd()]);
    }

    /// Names the descriptor by which the switch notifies.
    pub fn set_call(&self, ring: u32, call: BorrowedFd<'_>) {
        self.say(request::SET_VRING_CALL, &u64::from(ring).to_le_bytes(), &[call]);
    }

    /// Writes a descriptor of a ring; of a packed ring, one that later chains are made of.
    pub fn describe(&mut self, ring: u32, at: u16, described: Described) {
        if let Some(drivers) = &mut self.packed {
            drivers[ring as usize].describe(at, described);
        } else {
            self.write_descriptor(ring, at, described);
        }
    }

    /// Writes a descriptor as it is in the guest's memory: in a packed ring the id comes before the flags.
    pub fn write_descriptor(&self, ring: u32, at: u16, descriptor: Described) {
        let to = Place::of(ring).descriptors + 16 * u64::from(at);
        let [low, high] = descriptor_words(descriptor);
        self.memory.write_obj(low, GuestAddress(to)).unwrap();
        self.memory.write_obj(high, GuestAddress(to + 8)).unwrap();
    }

    /// Writes a table of descriptors that one of a ring refers to; the last parts are flags and successor.
    pub fn write_table(&self, table: u64, parts: &[Described]) {
        for (at, (address, len, flags, next)) in (table..).step_by(16).zip(parts.iter().copied()) {
            // In a table of a packed ring one follows the other.
            let of_packed = (address, len, 0, flags & !NEXT);
            let described = if self.packed.is_some() { of_packed } else { (address, len, flags, next) };
            let words = descriptor_words(described).map(u64::to_ne_bytes).concat();
            self.memory.write_slice(&words, GuestAddress(at)).unwrap();
        }
    }

    /// Negotiates features that do not concern rings which run.
    pub fn say_features(&self, features: u64) {
        self.say(request::SET_FEATURES, &features.to_le_bytes(), &[]);
    }

    /// Makes a chain available that begins with this descriptor; `publish` shows it. A packed ring shows it at once.
    pub fn offer(&mut self, ring: u32, head: u16) {
        let next = &mut self.available[ring as usize];
        if let Some(drivers) = &mut self.packed {
            drivers[ring as usize].offer(&self.memory, head);
        } else {
            let at = 4 + 2 * u64::from(*next & (self.size - 1));
            self.memory.write_obj(head.to_le(), GuestAddress(Place::of(ring).available + at)).unwrap();
        }
        *next = next.wrapping_add(1);
    }

    /// Publishes the chains that were made available.
    pub fn publish(&self, ring: u32) {
        if self.packed.is_none() {
            let index = self.available[ring as usize].to_le();
            self.memory.store(index, GuestAddress(Place::of(ring).available + 2), Release).unwrap();
        }
    }

    /// How many chains of a split ring were used, of `offered` since it began; at most as many as its entries are under way.
    pub fn taken(&self, ring: u32, offered: u64) -> u64 {
        let used: u16 = self.memory.load(GuestAddress(Place::of(ring).used + 2), Acquire).unwrap();
        offered - u64::from((offered as u16).wrapping_sub(u16::from_le(used)))
    }

    /// The chains used since the last call, and the bytes written to each.
    pub fn take_used(&mut self, ring: u32) -> Vec<(u32, u32)> {
        if let Some(drivers) = &mut self.packed {
            let taken = drivers[ring as usize].take_used(&self.memory);
            self.used[ring as usize] = self.used[ring as usize].wrapping_add(taken.len() as u16);
            return taken;
        }
        let used = Place::of(ring).used;
        let end = u16::from_le(self.memory.load(GuestAddress(used + 2), Acquire).unwrap());
        let mut taken = Vec::new();
        while self.used[ring as usize] != end {
            let at = used + 4 + 8 * u64::from(self.used[ring as usize] & (self.size - 1));
            taken.push([at, at + 4].map(|at| u32::from_le(self.memory.read_obj(GuestAddress(at)).unwrap())).into());
            self.used[ring as usize] = self.used[ring as usize].wrapping_add(1);
        }
        taken
    }
}

/// Connects to a switch as soon as it listens.
fn connect(path: &Path) -> UnixStream {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        match UnixStream::connect(path) {
            Ok(socket) => return socket,
            Err(e) => assert!(Instant::now() < end, "cannot connect to {}: {e}", path.display()),
        }
    }
}

/// The drivers of both rings, if these features make them packed.
fn packed_drivers(features: u64, size: u16) -> Option<[PackedDriver; 2]> {
    let drivers = || [0, 1].map(|ring| PackedDriver::new(Place::of(ring).descriptors, size));
    (features & feature::RING_PACKED != 0).then(drivers)
}

/// The words of a descriptor in memory, of which the last two parts are as the ring's format has them.
pub fn descriptor_words((address, len, third, fourth): Described) -> [u64; 2] {
    let rest = u64::from(len) | u64::from(third) << 32 | u64::from(fourth) << 48;
    [address, rest].map(u64::to_le)
}

pub(super) fn words(words: [u32; 2]) -> Vec<u8> {
    words.map(u32::to_le_bytes).concat()
}
