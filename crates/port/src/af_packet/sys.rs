//! A safe interface to packet sockets: a receive ring shared with the kernel, and batched sends.
//!
//! Source: Linux, Documentation/networking/packet_mmap.rst, include/uapi/linux/if_packet.h.

use arrayvec::ArrayVec;
use sluice_packet::BATCH_MAX;
use std::io;
use std::marker::PhantomData;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};

/// Size of a slot: a whole frame of an MTU of 1500 with a VLAN tag, behind the kernel's headers ([`HEADERS`]). An odd
/// multiple of a cache line, so that headers of successive slots are in different sets of the caches.
const SLOT_SIZE: usize = 1600;
/// The kernel's headers in front of a frame: `tpacket2_hdr`, `sockaddr_ll`, the virtio-net header, and what aligns them.
const HEADERS: usize = 76;
const _: () = assert!(HEADERS + 1500 + 14 + 4 <= SLOT_SIZE && SLOT_SIZE % 128 == 64);
/// Size of a block of slots, which the kernel allocates as a whole.
const BLOCK_SIZE: usize = 128 << 10;
const SLOTS_PER_BLOCK: usize = BLOCK_SIZE / SLOT_SIZE;
/// Blocks of a ring: 8 MiB.
const BLOCKS: usize = 64;
const SLOTS: usize = BLOCKS * SLOTS_PER_BLOCK;
/// Bytes of memory that packets may have which wait outside of the ring, since they are longer than a slot. As many as the
/// ring has; the kernel counts twice as much, for its own data about them.
const QUEUE_BYTES: libc::c_int = (BLOCKS * BLOCK_SIZE) as libc::c_int;
/// Bytes for a packet that is longer than a slot. IPv6 allows longer ones than the usual 64 KiB, if devices are told so.
const LONG_BYTES: usize = 128 << 10;

/// A virtio-net header without its buffer count, which precedes each packet.
const VNET_HEADER: usize = 10;

/// A socket option that is read, with the type of its value: integers and nothing else. Only this file makes one.
#[derive(Clone, Copy)]
struct ReadOption<T> {
    name: libc::c_int,
    value: PhantomData<T>,
}

/// The group of sockets that share packets, and how.
const FANOUT: ReadOption<libc::c_int> = ReadOption { name: libc::PACKET_FANOUT, value: PhantomData };
/// What a ring has counted since it was asked last.
const STATISTICS: ReadOption<libc::tpacket_stats> = ReadOption { name: libc::PACKET_STATISTICS, value: PhantomData };

const STATUS_AT: usize = offset_of!(libc::tpacket2_hdr, tp_status);

/// A socket that receives through a ring.
#[derive(Debug)]
pub(super) struct RxRing {
    fd: OwnedFd,
    map: NonNull<u8>,
    /// Where the current slot begins.
    at: usize,
    /// A packet that was longer than its slot, behind its virtio-net header.
    long: Box<[u8]>,
    /// The bytes of `long` that are the current slot's packet, once it was fetched, and whether that is all of it.
    fetched: Option<(usize, bool)>,
    /// The sockets that packets are spread over, if there are several.
    group: Option<libc::c_int>,
    /// Packets that were lost and not told of yet.
    lost: u64,
    /// What the kernel has counted since the ring was last looked after.
    lately: Counted,
}

/// Packets that the kernel put into a ring, and that it did not.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    accepted: u64,
    lost: u64,
}

// SAFETY: this value owns the mapping together with the kernel; the mapping is not tied to a thread.
unsafe impl Send for RxRing {}

/// A packet in the ring.
#[derive(Debug)]
pub(super) struct RingPacket<'a> {
    pub(super) bytes: &'a [u8],
    /// Offloaded work, as a virtio-net header.
    pub(super) vnet: &'a [u8],
    /// The outer VLAN tag, which the kernel removes: its type and control information.
    pub(super) tag: Option<(u16, u16)>,
    /// Whether the packet is truncated.
    pub(super) is_cut: bool,
}

impl RxRing {
    /// Opens a socket on the device with that index. It receives packets once `let_in` is called.
    pub(super) fn open(device: u32) -> io::Result<Self> {
        let fd = socket()?;
        set(&fd, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))?;
        set(&fd, libc::PACKET_VNET_HDR, &1)?;
        set(&fd, libc::PACKET_IGNORE_OUTGOING, &1)?;
        // What is longer than a slot waits in the socket's queue.
        set(&fd, libc::PACKET_COPY_THRESH, &1)?;
        // Without the privilege, in a user namespace, the system's limit is what there is.
        set_at(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &QUEUE_BYTES)
            .or_else(|_| set_at(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &QUEUE_BYTES))?;
        shut(&fd)?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_SIZE as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: SLOT_SIZE as u32,
            tp_frame_nr: SLOTS as u32,
        };
        set_struct(&fd, libc::PACKET_RX_RING, &request)?;
        let (read_write, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping, at an address of the kernel's choice, of the ring that was just made with this size.
        let map =
            unsafe { libc::mmap(std::ptr::null_mut(), BLOCKS * BLOCK_SIZE, read_write, shared, fd.as_raw_fd(), 0) };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = NonNull::new(map.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let (long, lately) = (vec![0; VNET_HEADER + LONG_BYTES].into(), Counted::default());
        let ring = RxRing { fd, map, at: 0, long, fetched: None, group: None, lost: 0, lately };
        let promiscuous = libc::packet_mreq {
            mr_ifindex: device as libc::c_int,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set_struct(&ring.fd, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)?;
        bind(&ring.fd, device, libc::ETH_P_ALL as u16)?;
        Ok(ring)
    }

    /// Its socket.
    pub(super) fn socket(&self) -> &OwnedFd {
        &self.fd
    }

    /// Starts receiving, all packets or those that a program lets in.
    pub(super) fn let_in(&self, filter: Option<&OwnedFd>) -> io::Result<()> {
        match filter {
            Some(filter) => set_at(&self.fd, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &filter.as_raw_fd()),
            None => set_at(&self.fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0),
        }
    }

    /// Distributes packets over the sockets of `rings` by flow.
    pub(super) fn spread(rings: &mut [RxRing]) -> io::Result<()> {
        // The first socket requests a group number; the others join the group.
        let unique = libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_UNIQUEID;
        let Some((first, others)) = rings.split_first_mut() else { return Ok(()) };
        set(&first.fd, libc::PACKET_FANOUT, &((unique << 16) as libc::c_int))?;
        let group = get(&first.fd, FANOUT, 0)? & 0xffff;
        first.group = Some(group);
        others.iter_mut().try_for_each(|ring| ring.join(group))
    }

    fn join(&mut self, group: libc::c_int) -> io::Result<()> {
        self.group = Some(group);
        set(&self.fd, libc::PACKET_FANOUT, &(group | (libc::PACKET_FANOUT_HASH << 16) as libc::c_int))
    }

    /// A ring to take the place of one of this group, or that is alone.
    pub(super) fn successor(device: u32, group: Option<libc::c_int>) -> io::Result<Self> {
        let mut ring = RxRing::open(device)?;
        group.map_or(Ok(()), |group| ring.join(group))?;
        Ok(ring)
    }

    /// The current packet, if there is one.
    #[inline]
    pub(super) fn current(&mut self) -> Option<RingPacket<'_>> {
        if self.status().load(Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the header is at the start of the slot, which is ours since its status says so; any bits are valid.
        let header: libc::tpacket2_hdr = unsafe { self.base().cast().read_unaligned() };
        let has = |status| header.tp_status & status != 0;
        let tpid = if has(libc::TP_STATUS_VLAN_TPID_VALID) { header.tp_vlan_tpid } else { libc::ETH_P_8021Q as u16 };
        let tag = has(libc::TP_STATUS_VLAN_VALID).then_some((tpid, header.tp_vlan_tci));
        if has(libc::TP_STATUS_COPY) {
            let (len, is_cut) = self.fetch()?;
            let (vnet, bytes) = self.long.split_at(VNET_HEADER);
            return Some(RingPacket { bytes: &bytes[..len], vnet, tag, is_cut });
        }
        let (start, len) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        // The kernel guarantees these bounds; checking them is cheap. What does not hold them is a packet without bytes.
        let fits = start >= VNET_HEADER && start.checked_add(len).is_some_and(|end| end <= SLOT_SIZE);
        let (start, len) = if fits { (start, len) } else { (VNET_HEADER, 0) };
        // SAFETY: both ranges are in this slot (checked above), which the kernel does not touch until `advance` returns
        // it; that takes `&mut self`, so no slice lives then.
        let (bytes, vnet) = unsafe {
            let data = self.base().add(start);
            let vnet = std::slice::from_raw_parts(data.sub(VNET_HEADER).as_ptr(), VNET_HEADER);
            (std::slice::from_raw_parts(data.as_ptr(), len), vnet)
        };
        // A packet is cut that is longer than its slot and for which the socket's queue had no room.
        Some(RingPacket { bytes, vnet, tag, is_cut: !fits || header.tp_snaplen < header.tp_len })
    }

    /// Takes the current packet out of the socket's queue: packets are in it in the order of their slots. Returns its
    /// length, and whether it is truncated. None: a later call will find it.
    #[cold]
    fn fetch(&mut self) -> Option<(usize, bool)> {
        if self.fetched.is_none() {
            let (to, room) = (self.long.as_mut_ptr().cast(), self.long.len());
            let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
            // SAFETY: `long` has the bytes that the kernel may write, and nobody else has a reference to them.
            let taken = unsafe { libc::recv(self.fd.as_raw_fd(), to, room, flags) };
            // An error that the device has reported meanwhile: the packet is still there.
            let whole = usize::try_from(taken).ok()?.saturating_sub(VNET_HEADER);
            self.fetched = Some((whole.min(room - VNET_HEADER), whole > room - VNET_HEADER));
        }
        self.fetched
    }

    /// Returns the slot of the current packet to the kernel.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.fetched = None;
        self.status().store(libc::TP_STATUS_KERNEL, Release);
        self.at = slot_behind(self.at);
    }

    /// Packets that were lost because the ring was full, since the last call.
    pub(super) fn take_lost(&mut self) -> u64 {
        self.count();
        std::mem::take(&mut self.lost)
    }

    /// Whether the kernel no longer uses the ring, by what happened since the last call: it lost packets, put none into
    /// the ring, and has room in it. Then the group that a successor joins.
    ///
    /// It happens after a packet for whose segmentation the virtio-net header has no value. The kernel has reserved a slot
    /// for it before it sees that, and never releases the slot. Source: Linux, net/packet/af_packet.c, `tpacket_rcv`.
    pub(super) fn is_stuck(&mut self) -> Option<Option<libc::c_int>> {
        self.count();
        let Counted { accepted, lost } = std::mem::take(&mut self.lately);
        let has_room = self.status().load(Acquire) & libc::TP_STATUS_USER == 0;
        (accepted == 0 && lost > 0 && has_room).then_some(self.group)
    }

    /// Asks the kernel what it has counted, which begins at zero again.
    fn count(&mut self) {
        let none = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let Ok(stats) = get(&self.fd, STATISTICS, none) else { return };
        self.lost += u64::from(stats.tp_drops);
        self.lately.lost += u64::from(stats.tp_drops);
        self.lately.accepted += u64::from(stats.tp_packets.saturating_sub(stats.tp_drops));
    }

    fn base(&self) -> NonNull<u8> {
        // SAFETY: `at` is where a slot begins (`slot_behind`), so this is inside the mapping.
        unsafe { self.map.add(self.at) }
    }

    /// The word by which the kernel and this program hand a slot to each other.
    fn status(&self) -> &AtomicU32 {
        // SAFETY: the word is inside the mapping, at a multiple of 4, and both sides access it only atomically.
        unsafe { self.base().add(STATUS_AT).cast().as_ref() }
    }
}

impl Drop for RxRing {
    fn drop(&mut self) {
        // SAFETY: `open` made the mapping with this size; nobody else has it.
        unsafe { libc::munmap(self.map.as_ptr().cast(), BLOCKS * BLOCK_SIZE) };
    }
}

/// Where the slot behind the one at `at` begins: slots do not cross blocks, and the last one is followed by the first.
#[inline]
const fn slot_behind(at: usize) -> usize {
    let next = at + SLOT_SIZE;
    let is_in_block = next % BLOCK_SIZE + SLOT_SIZE <= BLOCK_SIZE;
    (if is_in_block { next } else { next.next_multiple_of(BLOCK_SIZE) }) % (BLOCKS * BLOCK_SIZE)
}

/// Opens a socket that only sends, on the device with that index.
pub(super) fn open_sender(device: u32) -> io::Result<OwnedFd> {
    let fd = socket()?;
    // Through the queueing discipline: past it (PACKET_QDISC_BYPASS), captures on the device would not show what is sent,
    // and on a veth device it costs the same.
    bind(&fd, device, 0)?;
    Ok(fd)
}

/// Makes what the socket sends from now on have a priority.
pub(super) fn set_priority(fd: &OwnedFd, priority: u32) -> io::Result<()> {
    set_at(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, &priority)
}

/// Sends packets, at most a batch, without waiting. Returns how many the kernel took; an error if it took none.
pub(super) fn send<'a>(fd: &OwnedFd, packets: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
    let mut parts: ArrayVec<libc::iovec, BATCH_MAX> = packets
        .take(BATCH_MAX)
        .map(|bytes| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() })
        .collect();
    let mut messages: ArrayVec<libc::mmsghdr, BATCH_MAX> = parts
        .iter_mut()
        .map(|part| {
            // SAFETY: a message header is integers and pointers; all zeros is a value of it.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message
        })
        .collect();
    // SAFETY: every message points to one part, every part to a packet that lives until the call returns; the kernel
    // only reads them.
    let sent =
        unsafe { libc::sendmmsg(fd.as_raw_fd(), messages.as_mut_ptr(), messages.len() as u32, libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// A packet socket that receives nothing yet.
fn socket() -> io::Result<OwnedFd> {
    // SAFETY: only makes a descriptor.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned this new descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Stops the socket from receiving: until the sockets share the packets, each would receive all of them.
fn shut(fd: &OwnedFd) -> io::Result<()> {
    // One instruction of classic BPF: take 0 bytes of the packet.
    let mut nothing = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &mut nothing };
    set_at(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Binds to a device; receives `protocol` from then on (0: nothing).
fn bind(fd: &OwnedFd, device: u32, protocol: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: device as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` is a complete packet address of that size.
    match unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set(fd: &OwnedFd, option: libc::c_int, value: &libc::c_int) -> io::Result<()> {
    set_struct(fd, option, value)
}

fn set_struct<T: Copy>(fd: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    set_at(fd, libc::SOL_PACKET, option, value)
}

/// Sets an option whose value is `value`, or is in memory that `value` points to.
fn set_at<T: Copy>(fd: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is plain data of that size, which the kernel reads; the one pointer in such data (`shut`) is to a
    // program that lives until the call returns.
    match unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn get<T: Copy>(fd: &OwnedFd, option: ReadOption<T>, mut value: T) -> io::Result<T> {
    let mut size = size_of::<T>() as libc::socklen_t;
    let to = std::ptr::from_mut(&mut value).cast();
    // SAFETY: the kernel writes no more than `size` bytes, the value's; the value is integers (`ReadOption`), so any bits
    // that the kernel writes are valid for it.
    match unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_PACKET, option.name, to, &mut size) } {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_each_other_as_the_kernel_counts_them() {
        let mut at = 0;
        for slot in 0..2 * SLOTS {
            let slot = slot % SLOTS;
            assert_eq!(at, slot / SLOTS_PER_BLOCK * BLOCK_SIZE + slot % SLOTS_PER_BLOCK * SLOT_SIZE);
            at = slot_behind(at);
        }
    }
}
