//! A safe interface to the crate `xdp`, whose calls are unsafe: one run of two of its sockets, under the same XDP
//! program as our ports.
//!
//! Invariant: a socket, its rings and packets are dropped before the memory that they use.

use super::bpf::sys::{Mode, SocketMap};
use crate::Shared;
use std::error::Error;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};
use xdp::slab::{HeapSlab, Slab};
use xdp::socket::{SocketError, XdpSocket, XdpSocketBuilder};
use xdp::{Umem, WakableRings};

const SLOTS: u32 = 2048;
const BATCH: usize = 32;
/// The kernel releases a device shortly after its last user.
const PATIENCE: Duration = Duration::from_secs(2);

struct Bare {
    // Before the memory, so that it is dropped first.
    socket: XdpSocket,
    rings: WakableRings,
    umem: Umem,
    device: u32,
}

impl Bare {
    /// A socket on queue 0 of a device, in copy mode, with wake-up flags.
    fn open(name: &CStr) -> Result<Self, Box<dyn Error>> {
        let device = xdp::nic::NicIndex::lookup_by_name(name)?.ok_or("there is no such device")?;
        let start = Instant::now();
        loop {
            let frames = xdp::umem::UmemCfgBuilder { frame_count: 4 * SLOTS, ..Default::default() };
            let umem = Umem::map(frames.build()?)?;
            let mut builder = XdpSocketBuilder::new()?;
            let sizes =
                xdp::RingConfigBuilder { rx_count: SLOTS, tx_count: SLOTS, fill_count: SLOTS, completion_count: SLOTS };
            let (rings, mut flags) = builder.build_wakable_rings(&umem, sizes.build()?)?;
            flags.force_copy();
            match builder.bind(device, 0, flags) {
                Ok(socket) => return Ok(Bare { socket, rings, umem, device: device.0 }),
                Err(SocketError::Bind(e)) if e.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a batch of newly written frames, and takes back sent ones.
    fn send(&mut self, batch: &mut HeapSlab, frame: &[u8]) {
        self.rings.completion_ring.dequeue(&mut self.umem, SLOTS as usize);
        while batch.len() < BATCH {
            // SAFETY: the packet goes into the batch, and from there to the ring; the memory outlives both.
            let Some(mut packet) = (unsafe { self.umem.alloc() }) else { break };
            packet.append(frame).expect("a frame of 4096 bytes has room for 60");
            batch.push_front(packet);
        }
        let ring = self.rings.tx_ring.as_mut().expect("the socket was opened with one");
        // SAFETY: the memory outlives the socket, see `Bare`. A failure means a full device, which the next call
        // retries.
        let _ = unsafe { ring.send(batch, true) };
    }

    /// Takes received packets and gives as many buffers back. Returns how many.
    fn receive(&mut self, batch: &mut HeapSlab) -> usize {
        let ring = self.rings.rx_ring.as_mut().expect("the socket was opened with one");
        // SAFETY: the packets are given back below, before the memory is dropped.
        let came = unsafe { ring.recv(&self.umem, batch) };
        while let Some(packet) = batch.pop_back() {
            self.umem.free_packet(packet);
        }
        self.fill(came);
        came
    }

    fn fill(&mut self, buffers: usize) {
        // SAFETY: the memory outlives the socket, see `Bare`. veth needs no wake-up for buffers.
        let _ = unsafe { self.rings.fill_ring.enqueue(&mut self.umem, buffers, false) };
    }
}

/// One run of bare sockets: packets received a second, in millions.
pub(crate) fn sockets(mode: &str) -> Result<f64, Box<dyn Error>> {
    let (mut near, mut far) = (Bare::open(c"v0")?, Bare::open(c"v1")?);
    far.fill(SLOTS as usize);
    let mode = if mode == "generic" { Mode::Generic } else { Mode::Native };
    let mut programs = Vec::new();
    // Both ends, as for our ports.
    for bare in [&near, &far] {
        let map = SocketMap::new(1)?;
        // SAFETY: the socket is open, and the borrow ends before it is closed.
        let fd = unsafe { BorrowedFd::borrow_raw(bare.socket.as_raw_fd()) }.try_clone_to_owned()?;
        map.insert(0, &fd)?;
        programs.push((map.attach(bare.device, mode)?, map));
    }
    let mut frame = [0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    let shared = Shared::default();
    Ok(std::thread::scope(|scope| {
        scope.spawn(|| {
            crate::keep_to(0);
            let mut batch = HeapSlab::with_capacity(BATCH);
            while shared.goes_on() {
                near.send(&mut batch, &frame);
            }
        });
        scope.spawn(|| {
            crate::keep_to(1);
            let mut batch = HeapSlab::with_capacity(BATCH);
            while shared.goes_on() {
                let came = far.receive(&mut batch);
                shared.came(came);
            }
        });
        shared.measure()
    }))
}
