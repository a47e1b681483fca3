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

/// Size of a block, which the kernel hands over as a whole: the smallest power of two that holds the largest frame, 64
/// KiB and its headers.
const BLOCK_SIZE: usize = 128 << 10;
/// Blocks of a ring: 8 MiB. A block that is handed over because of its age uses one of them however little it holds, so
/// a ring lasts for this many milliseconds while another process has our core.
const BLOCKS: usize = 64;
/// Milliseconds after which a block is handed over that is not full; less is not possible.
const RETIRE_MS: u32 = 1;

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
const STATISTICS: ReadOption<libc::tpacket_stats_v3> = ReadOption { name: libc::PACKET_STATISTICS, value: PhantomData };

const DESCRIPTOR: usize = size_of::<libc::tpacket_block_desc>();
const STATUS_AT: usize = offset_of!(libc::tpacket_block_desc, hdr);
const PACKET_HEADER: usize = size_of::<libc::tpacket3_hdr>();

/// A socket that receives through a ring.
#[derive(Debug)]
pub(super) struct RxRing {
    fd: OwnedFd,
    map: NonNull<u8>,
    /// The current block.
    block: usize,
    /// Its packets that remain, and where the next begins; both 0 while the kernel owns the block.
    left: u32,
    at: usize,
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
    pub(super) rx_hash: u32,
    /// Whether the packet is truncated.
    pub(super) is_cut: bool,
}

impl RxRing {
    /// Opens a socket on the device with that index. It receives packets once `let_in` is called.
    pub(super) fn open(device: u32) -> io::Result<Self> {
        let fd = socket()?;
        set(&fd, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V3 as libc::c_int))?;
        set(&fd, libc::PACKET_VNET_HDR, &1)?;
        set(&fd, libc::PACKET_IGNORE_OUTGOING, &1)?;
        shut(&fd)?;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_SIZE as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: BLOCK_SIZE as u32,
            tp_frame_nr: BLOCKS as u32,
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: libc::TP_FT_REQ_FILL_RXHASH,
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
        let ring = RxRing { fd, map, block: 0, left: 0, at: 0 };
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

    /// Starts receiving.
    pub(super) fn let_in(&self) -> io::Result<()> {
        set_at(&self.fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)
    }

    /// Distributes packets over the sockets of `rings` by flow.
    pub(super) fn spread(rings: &[RxRing]) -> io::Result<()> {
        // The first socket requests a group number; the others join the group.
        let unique = libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_UNIQUEID;
        let Some((first, others)) = rings.split_first() else { return Ok(()) };
        set(&first.fd, libc::PACKET_FANOUT, &((unique << 16) as libc::c_int))?;
        let group = get(&first.fd, FANOUT, 0)? & 0xffff;
        let join = group | (libc::PACKET_FANOUT_HASH << 16) as libc::c_int;
        others.iter().try_for_each(|ring| set(&ring.fd, libc::PACKET_FANOUT, &join))
    }

    /// The current packet, if there is one.
    #[inline]
    pub(super) fn current(&mut self) -> Option<RingPacket<'_>> {
        if self.left == 0 {
            self.enter()?;
        }
        let at = self.at.checked_add(PACKET_HEADER).filter(|end| *end <= BLOCK_SIZE)? - PACKET_HEADER;
        // SAFETY: the header is in this block, which is ours since `enter` checked it; it need not be aligned.
        let header: libc::tpacket3_hdr = unsafe { self.base().add(at).cast().read_unaligned() };
        let (start, len) = (at + usize::from(header.tp_mac), header.tp_snaplen as usize);
        // The kernel guarantees these bounds; checking them is cheap.
        if start < VNET_HEADER || start.checked_add(len).is_none_or(|end| end > BLOCK_SIZE) {
            return None;
        }
        // SAFETY: both ranges are in this block (checked above), which the kernel does not touch until `advance`
        // returns it; that takes `&mut self`, so no slice lives then.
        let (bytes, vnet) = unsafe {
            let data = self.base().add(start);
            let vnet = std::slice::from_raw_parts(data.sub(VNET_HEADER).as_ptr(), VNET_HEADER);
            (std::slice::from_raw_parts(data.as_ptr(), len), vnet)
        };
        let has = |status| header.tp_status & status != 0;
        let tpid =
            if has(libc::TP_STATUS_VLAN_TPID_VALID) { header.hv1.tp_vlan_tpid } else { libc::ETH_P_8021Q as u16 };
        Some(RingPacket {
            bytes,
            vnet,
            tag: has(libc::TP_STATUS_VLAN_VALID).then_some((tpid, header.hv1.tp_vlan_tci as u16)),
            rx_hash: header.hv1.tp_rxhash,
            is_cut: header.tp_snaplen < header.tp_len,
        })
    }

    /// Skips the current packet, and returns its block after the last one.
    #[inline]
    pub(super) fn advance(&mut self) {
        if self.left > 1 && self.at + PACKET_HEADER <= BLOCK_SIZE {
            // SAFETY: as in `current`: inside a block that is ours.
            let next = unsafe { self.base().add(self.at).cast::<u32>().read_unaligned() };
            self.at += next as usize;
            self.left -= 1;
            return;
        }
        self.left = 0;
        self.status().store(libc::TP_STATUS_KERNEL, Release);
        self.block = (self.block + 1) % BLOCKS;
    }

    /// Packets that were lost because the ring was full, since the last call.
    pub(super) fn lost(&self) -> u64 {
        let none = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        get(&self.fd, STATISTICS, none).map_or(0, |stats| u64::from(stats.tp_drops))
    }

    /// Moves to the first packet of the current block, if the block is ours.
    #[inline]
    fn enter(&mut self) -> Option<()> {
        if self.status().load(Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the descriptor is at the start of the block, which the kernel has just handed over; any bits are
        // valid for it, and it has the version-1 form, the only one.
        let header = unsafe { self.base().cast::<libc::tpacket_block_desc>().read_unaligned().hdr.bh1 };
        if header.num_pkts == 0 || (header.offset_to_first_pkt as usize) < DESCRIPTOR {
            self.advance();
            return None;
        }
        (self.left, self.at) = (header.num_pkts, header.offset_to_first_pkt as usize);
        Some(())
    }

    fn base(&self) -> NonNull<u8> {
        // SAFETY: `block` is below BLOCKS, so this is inside the mapping.
        unsafe { self.map.add(self.block * BLOCK_SIZE) }
    }

    /// The word by which the kernel and this program hand a block to each other.
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
