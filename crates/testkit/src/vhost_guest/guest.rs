//! The guest's driver and its frontend. It speaks the vhost-user protocol byte by byte, so that it can say what no
//! frontend would. Source: vhost-user protocol; VIRTIO 1.2, section 2.7.

use rustix::fs::MemfdFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
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
    /// Shares memory.
    pub const SET_MEM_TABLE: u32 = 5;
    /// Says a ring's size.
    pub const SET_VRING_NUM: u32 = 8;
    /// Says where a ring is.
    pub const SET_VRING_ADDR: u32 = 9;
    /// Says where a ring begins.
    pub const SET_VRING_BASE: u32 = 10;
    /// Starts a ring.
    pub const SET_VRING_KICK: u32 = 12;
    /// Names the descriptor that notifies the guest.
    pub const SET_VRING_CALL: u32 = 13;
}

/// Features of virtio.
pub mod feature {
    /// Packets may use several buffers.
    pub const MERGEABLE: u64 = 1 << 15;
    /// Descriptors may refer to tables.
    pub const INDIRECT: u64 = 1 << 28;
    /// Each side says when it wants to be notified.
    pub const EVENT_INDEX: u64 = 1 << 29;
    /// The device is one of virtio 1.
    pub const VERSION_1: u64 = 1 << 32;
}

/// A descriptor's flag: another one follows.
pub const NEXT: u16 = 1;
/// A descriptor's flag: the device writes its buffer.
pub const WRITE: u16 = 2;
/// A descriptor's flag: it describes a table of descriptors.
pub const INDIRECT: u16 = 4;

const MEMORY: u64 = 16 << 20;
/// The frontend's address of guest address 0.
const USER: u64 = 0x7f00_0000_0000;
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
    /// By ring: the next index of the available ring.
    pub available: [u16; 2],
    /// By ring: the next index of the used ring.
    pub used: [u16; 2],
    /// By ring: the descriptor that notifies it.
    pub calls: [OwnedFd; 2],
}

impl Guest {
    /// Connects to the switch's socket and negotiates `features`; rings have `size` entries.
    pub fn connect(path: &Path, features: u64, size: u16) -> Self {
        let end = Instant::now() + Duration::from_secs(5);
        let socket = loop {
            match UnixStream::connect(path) {
                Ok(socket) => break socket,
                Err(e) => assert!(Instant::now() < end, "cannot connect to {}: {e}", path.display()),
            }
        };
        let file = File::from(rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(MEMORY).unwrap();
        let mapped = (GuestAddress(0), MEMORY as usize, Some(FileOffset::new(file.try_clone().unwrap(), 0)));
        let memory = GuestMemoryMmap::from_ranges_with_files([mapped]).unwrap();
        let calls = [(), ()].map(|()| rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap());
        let mut guest = Guest { memory, file, socket, size, available: [0; 2], used: [0; 2], calls };
        guest.say(request::SET_OWNER, &[], &[]);
        let offered = guest.offered_features();
        assert_eq!(offered & features, features, "the switch offers {offered:x}");
        guest.say(request::SET_FEATURES, &features.to_le_bytes(), &[]);
        guest.share_memory();
        guest
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

    /// Writes a descriptor of a ring.
    pub fn describe(&self, ring: u32, at: u16, (address, len, flags, next): (u64, u32, u16, u16)) {
        let to = Place::of(ring).descriptors + 16 * u64::from(at);
        self.memory.write_obj(address.to_le(), GuestAddress(to)).unwrap();
        let rest = u64::from(len) | u64::from(flags) << 32 | u64::from(next) << 48;
        self.memory.write_obj(rest.to_le(), GuestAddress(to + 8)).unwrap();
    }

    /// Makes a chain available that begins with this descriptor; `publish` shows it.
    pub fn offer(&mut self, ring: u32, head: u16) {
        let next = &mut self.available[ring as usize];
        let at = 4 + 2 * u64::from(*next & (self.size - 1));
        self.memory.write_obj(head.to_le(), GuestAddress(Place::of(ring).available + at)).unwrap();
        *next = next.wrapping_add(1);
    }

    /// Publishes the chains that were made available.
    pub fn publish(&self, ring: u32) {
        let index = self.available[ring as usize].to_le();
        self.memory.store(index, GuestAddress(Place::of(ring).available + 2), Release).unwrap();
    }

    /// The chains used since the last call, and the bytes written to each.
    pub fn take_used(&mut self, ring: u32) -> Vec<(u32, u32)> {
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

fn words(words: [u32; 2]) -> Vec<u8> {
    words.map(u32::to_le_bytes).concat()
}
