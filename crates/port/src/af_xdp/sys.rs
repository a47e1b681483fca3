//! A safe interface to AF_XDP sockets: rings shared with the kernel over frames of one pool.
//!
//! Invariant: each frame is owned either by a handle or by the kernel; `held` and `parts` record the latter by token.
//! Source: Linux, Documentation/networking/af_xdp.rst, include/uapi/linux/if_xdp.h.

use super::ring::sys::Ring;
use parking_lot::{Mutex, MutexGuard};
use sluice_mem::{Frame, FramePool, FreeFrames, HeapPool, Region};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// The most bytes of a packet that the kernel puts into one buffer, including its headroom: a page.
const CHUNK_MAX: usize = 4096;
/// The kernel's headroom in a receive buffer. Source: XDP_PACKET_HEADROOM.
const KERNEL_HEADROOM: usize = 256;
/// In unaligned mode, the upper bits of an address are the packet's offset in its buffer.
const OFFSET_SHIFT: u32 = 48;

/// A socket on one queue of a device, which sends and receives frames of `pool` in place.
#[derive(Debug)]
pub(super) struct Socket {
    /// `None` only while it is dropped.
    fd: Option<OwnedFd>,
    pool: Arc<HeapPool>,
    binding: Binding,
    rx: Mutex<Receiver>,
    tx: Mutex<Sender>,
    /// Whether a packet may be in several buffers.
    is_chained: bool,
}

/// The receiving half.
#[derive(Debug)]
pub(super) struct Receiver {
    fill: Ring<u64>,
    rx: Ring<libc::xdp_desc>,
    /// By token: whether the kernel holds the frame to receive into.
    held: Vec<bool>,
}

/// The sending half.
#[derive(Debug)]
pub(super) struct Sender {
    tx: Ring<libc::xdp_desc>,
    completion: Ring<u64>,
    /// By token: in how many buffers the kernel is sending the frame.
    parts: Vec<u8>,
}

/// The binding of a socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binding {
    pub(super) device: u32,
    pub(super) queue: u32,
    /// Slots of each ring; a power of two.
    pub(super) slots: u32,
}

impl Socket {
    /// Opens a socket whose buffers are the frames of `pool`. If there is a `sibling`, which is bound and of the same
    /// pool, its registration is shared.
    pub(super) fn open(pool: Arc<HeapPool>, sibling: Option<&Socket>, binding: Binding) -> io::Result<Self> {
        let fd = socket()?;
        if sibling.is_none() {
            register(&fd, pool.region(), pool.region().size(), chunk(&pool))?;
        }
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING] {
            set(&fd, ring, &binding.slots)?;
        }
        let at = offsets(&fd)?;
        let fill = Ring::map(&fd, libc::XDP_UMEM_PGOFF_FILL_RING, &at.fr, binding.slots)?;
        let completion = Ring::map(&fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr, binding.slots)?;
        let rx = Ring::map(&fd, libc::XDP_PGOFF_RX_RING as u64, &at.rx, binding.slots)?;
        let tx = Ring::map(&fd, libc::XDP_PGOFF_TX_RING as u64, &at.tx, binding.slots)?;
        let is_chained = match sibling {
            Some(sibling) => bind(&fd, binding, libc::XDP_SHARED_UMEM, sibling.fd()).map(|()| sibling.is_chained)?,
            None => {
                let flags = libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP;
                match bind(&fd, binding, flags | libc::XDP_USE_SG, &fd) {
                    // Kernels before 6.6 lack multi-buffer packets.
                    Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                        bind(&fd, binding, flags, &fd).map(|()| false)?
                    }
                    done => done.map(|()| true)?,
                }
            }
        };
        let frames = pool.capacity();
        Ok(Socket {
            fd: Some(fd),
            rx: Mutex::new(Receiver { fill, rx, held: vec![false; frames] }),
            tx: Mutex::new(Sender { tx, completion, parts: vec![0; frames] }),
            pool,
            binding,
            is_chained,
        })
    }

    /// Whether it is bound to that queue.
    pub(super) fn has_queue_of(&self, binding: Binding) -> bool {
        (self.binding.device, self.binding.queue) == (binding.device, binding.queue)
    }

    /// Whether packets longer than a buffer can be received and sent.
    pub(super) fn is_chained(&self) -> bool {
        self.is_chained
    }

    /// The longest packet that fits into one receive buffer.
    pub(super) fn buffer_size(&self) -> usize {
        chunk(&self.pool) - KERNEL_HEADROOM
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        self.fd.as_ref().expect("invariant: only `drop` takes it")
    }

    pub(super) fn pool(&self) -> &Arc<HeapPool> {
        &self.pool
    }

    /// The receiving half.
    pub(super) fn receiver(&self) -> MutexGuard<'_, Receiver> {
        self.rx.lock()
    }

    /// The sending half.
    pub(super) fn sender(&self) -> MutexGuard<'_, Sender> {
        self.tx.lock()
    }

    /// Gives the kernel up to `most` receive buffers, from `take`.
    pub(super) fn refill(&self, receiver: &mut Receiver, most: u32, mut take: impl FnMut() -> Option<Frame>) {
        for _ in 0..most.min(receiver.fill.room()) {
            let Some(frame) = take() else { break };
            if frame.pool() != self.pool.id() {
                break;
            }
            let token = frame.token();
            receiver.held[token as usize] = true;
            receiver.fill.put(token * self.pool.stride() as u64);
        }
        receiver.fill.submit();
    }

    /// Takes the next received buffer, and whether more buffers of the packet follow.
    #[inline]
    pub(super) fn receive(&self, receiver: &mut Receiver) -> Option<(Frame, bool)> {
        while receiver.rx.ready() > 0 {
            let piece = receiver.rx.take();
            receiver.rx.release();
            let place = (piece.addr & ((1 << OFFSET_SHIFT) - 1)) as usize + (piece.addr >> OFFSET_SHIFT) as usize;
            // Accepts only frames that the kernel holds, each once; other addresses are ignored.
            let held = receiver.held.get_mut(place / self.pool.stride());
            if !held.is_some_and(|held| std::mem::replace(held, false)) {
                continue;
            }
            // SAFETY: the frame's handle was consumed in `refill`, and the kernel has just returned the frame.
            if let Some(frame) = unsafe { self.pool.adopt(place, piece.len as usize) } {
                return Some((frame, piece.options & libc::XDP_PKT_CONTD != 0));
            }
        }
        None
    }

    /// Wakes the driver if it waits for new buffers.
    pub(super) fn wake(&self, receiver: &Receiver) {
        if receiver.fill.needs_wakeup() {
            let (fd, nothing) = (self.fd().as_raw_fd(), std::ptr::null_mut());
            // SAFETY: receives no bytes; a failure is retried at the next poll.
            unsafe { libc::recvfrom(fd, nothing, 0, libc::MSG_DONTWAIT, nothing.cast(), std::ptr::null_mut()) };
        }
    }

    /// Packets lost for lack of room since the socket was opened.
    pub(super) fn lost(&self) -> u64 {
        // SAFETY: statistics are integers; all zeros is a value of them.
        let mut stats: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        let mut size = size_of::<libc::xdp_statistics>() as libc::socklen_t;
        let (fd, to) = (self.fd().as_raw_fd(), std::ptr::from_mut(&mut stats).cast());
        // SAFETY: `stats` has room for `size` bytes, which is as much as the kernel writes.
        match unsafe { libc::getsockopt(fd, libc::SOL_XDP, libc::XDP_STATISTICS, to, &mut size) } {
            0 => stats.rx_dropped + stats.rx_ring_full + stats.rx_fill_ring_empty_descs,
            _ => 0,
        }
    }

    /// Buffers in which a packet of `len` bytes is sent.
    pub(super) fn pieces(&self, len: usize) -> usize {
        len.div_ceil(chunk(&self.pool))
    }

    /// Queues a frame of this pool for sending if there is room; else returns it.
    #[inline]
    pub(super) fn send(&self, sender: &mut Sender, frame: Frame) -> Result<(), Frame> {
        let pieces = self.pieces(frame.len());
        let fits = pieces == 1 || self.is_chained && pieces <= usize::from(u8::MAX);
        if frame.pool() != self.pool.id() || !fits || (sender.tx.room() as usize) < pieces {
            return Err(frame);
        }
        let start = frame.bytes().as_ptr().addr() - self.pool.region().base().as_ptr().addr();
        let chunk = chunk(&self.pool);
        for piece in 0..pieces {
            let left = frame.len() - piece * chunk;
            sender.tx.put(libc::xdp_desc {
                addr: (start + piece * chunk) as u64,
                len: left.min(chunk) as u32,
                options: if left > chunk { libc::XDP_PKT_CONTD } else { 0 },
            });
        }
        sender.parts[frame.token() as usize] = pieces as u8;
        Ok(())
    }

    /// Makes the kernel send what is queued. `Err` if there is no device.
    pub(super) fn kick(&self, sender: &Sender) -> io::Result<()> {
        sender.tx.submit();
        // In copy mode each call sends at most 32 packets, and fewer when buffers are scarce.
        for _ in 0..KICKS {
            if sender.tx.is_empty() || !sender.tx.needs_wakeup() {
                break;
            }
            let fd = self.fd().as_raw_fd();
            // SAFETY: an empty message without an address.
            let done = unsafe { libc::sendto(fd, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
            if done < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => {}
                    _ => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Takes back sent frames, up to `most` buffers.
    pub(super) fn complete(&self, sender: &mut Sender, most: u32, mut give: impl FnMut(Frame)) {
        for _ in 0..most.min(sender.completion.ready()) {
            let place = sender.completion.take() as usize;
            let token = place / self.pool.stride();
            // Accepts only buffers that are being sent, each once.
            match sender.parts.get_mut(token) {
                Some(parts @ 1..) => *parts -= 1,
                _ => continue,
            }
            if sender.parts[token] == 0 {
                // SAFETY: the frame's handle was consumed in `send`, and the kernel has returned its last buffer.
                unsafe { self.pool.adopt(token * self.pool.stride(), 0) }.map(&mut give);
            }
        }
        sender.completion.release();
    }
}

/// Whether a device's driver supports zero-copy on a queue: binds a separate socket with its own memory, and closes it.
///
/// # Errors
/// The kernel's; `EOPNOTSUPP` if the driver lacks it.
pub(super) fn try_zero_copy(device: u32, queue: u32) -> io::Result<()> {
    let memory = Region::reserve(SLOTS_TRIED * CHUNK_MAX)?;
    let fd = socket()?;
    register(&fd, &memory, SLOTS_TRIED * CHUNK_MAX, CHUNK_MAX)?;
    for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING] {
        set(&fd, ring, &(SLOTS_TRIED as u32))?;
    }
    bind(&fd, Binding { device, queue, slots: SLOTS_TRIED as u32 }, libc::XDP_ZEROCOPY, &fd)
}

/// Ring slots of the probing socket.
const SLOTS_TRIED: usize = 64;

/// An unbound socket.
fn socket() -> io::Result<OwnedFd> {
    // SAFETY: only makes a descriptor.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned this new descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Registers the first `len` bytes of a region as buffers of `chunk` bytes.
fn register(fd: &OwnedFd, region: &Region, len: usize, chunk: usize) -> io::Result<()> {
    let registration = libc::xdp_umem_reg {
        addr: region.base().as_ptr().expose_provenance() as u64,
        len: len as u64,
        chunk_size: chunk as u32,
        headroom: 0,
        flags: libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG,
        tx_metadata_len: 0,
    };
    set(fd, libc::XDP_UMEM_REG, &registration)
}

/// How often, and in which distance, a socket that is closed looks whether its frames have been sent: 20 ms in all.
const FINISH_LOOKS: u32 = 20;
const FINISH_LOOK_EVERY: Duration = Duration::from_millis(1);

/// How often sending is continued; 2048 packets at 32 a call.
const KICKS: usize = 64;

impl Drop for Socket {
    fn drop(&mut self) {
        let (mut free, stride) = (FreeFrames::new(self.pool.layout(), 64), self.pool.stride());
        self.finish_sending(&mut free);
        self.fd = None;
        let (receiver, sender) = (self.rx.get_mut(), self.tx.get_mut());
        // The maps hold the socket open, too: the kernel receives into its buffers until the last of them has gone, and
        // has given up all of them when that call returns.
        // SAFETY: `self` is being dropped, and nothing below uses the rings.
        unsafe {
            receiver.fill.unmap();
            receiver.rx.unmap();
            sender.completion.unmap();
            sender.tx.unmap();
        }
        let held =
            receiver.held.iter().zip(&sender.parts).enumerate().filter(|(_, (held, parts))| **held || **parts > 0);
        for (token, _) in held {
            // SAFETY: the frame's handle was consumed when the kernel got the frame, which the kernel has just
            // returned with the socket.
            if let Some(frame) = unsafe { self.pool.adopt(token * stride, 0) } {
                free.push(frame);
            }
        }
        self.pool.give(&mut free, usize::MAX);
    }
}

impl Socket {
    /// Waits for the frames that are being sent, for a while: a driver may read them in place, also when the socket has
    /// gone.
    fn finish_sending(&self, free: &mut FreeFrames) {
        let mut sender = self.sender();
        for _ in 0..FINISH_LOOKS {
            self.complete(&mut sender, u32::MAX, |frame| free.push(frame));
            self.pool.give(free, usize::MAX);
            if sender.parts.iter().all(|parts| *parts == 0) {
                break;
            }
            std::thread::sleep(FINISH_LOOK_EVERY);
        }
    }
}

/// The kernel's buffer size: a frame, or a page of it.
fn chunk(pool: &HeapPool) -> usize {
    pool.stride().min(CHUNK_MAX)
}

fn set<T: Copy>(fd: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is plain data of that size, which the kernel reads. The one address in it is that of a region,
    // whose pages the kernel keeps for itself until the socket is closed.
    match unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, std::ptr::from_ref(value).cast(), size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn offsets(fd: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: the offsets are integers; all zeros is a value of them.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let mut size = size_of::<libc::xdp_mmap_offsets>() as libc::socklen_t;
    let to = std::ptr::from_mut(&mut offsets).cast();
    // SAFETY: `offsets` has room for `size` bytes, which is as much as the kernel writes.
    match unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, to, &mut size) } {
        // Kernels before 5.4 return a shorter form, without wake-up flags.
        0 if size as usize == size_of::<libc::xdp_mmap_offsets>() => Ok(offsets),
        0 => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        _ => Err(io::Error::last_os_error()),
    }
}

fn bind(fd: &OwnedFd, binding: Binding, flags: u16, shared_with: &OwnedFd) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: binding.device,
        sxdp_queue_id: binding.queue,
        sxdp_shared_umem_fd: if flags & libc::XDP_SHARED_UMEM != 0 { shared_with.as_raw_fd() as u32 } else { 0 },
    };
    let size = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: `address` is a complete AF_XDP address of that size.
    match unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
