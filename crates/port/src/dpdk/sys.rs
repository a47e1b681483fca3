//! A safe interface to DPDK's functions and the C shim.
//!
//! All other code uses [`MbufPool`] and [`Device`], which cannot be misused.

use parking_lot::Mutex;
use sluice_mem::{FrameLayout, FramePool, FreeFrames, PoolTicket};
use sluice_packet::{BATCH_MAX, Packet, PacketBatch};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

/// `struct sluice_port_conf` of shim.c.
#[repr(C)]
struct RawConf {
    n_rxq: u16,
    n_txq: u16,
    n_desc: u16,
    mtu: u16,
}

/// `struct sluice_port_info` of shim.c.
#[repr(C)]
struct RawInfo {
    max_rxq: u16,
    max_txq: u16,
    mtu: u16,
    mac: [u8; 6],
}

unsafe extern "C" {
    fn sluice_eal_init(argc: c_int, argv: *mut *mut c_char, log: extern "C" fn(u32, *const c_char, usize)) -> c_int;
    fn sluice_strerror(err: c_int) -> *const c_char;
    fn sluice_pool_create(name: *const c_char, n: c_uint, room: u16) -> *mut c_void;
    fn sluice_pool_available(pool: *mut c_void) -> c_uint;
    fn sluice_pool_take(pool: *mut c_void, out: *mut *mut c_void, n: c_uint) -> c_uint;
    fn sluice_pool_data_at() -> c_uint;
    fn sluice_pool_headroom() -> u16;
    fn sluice_pool_give(mbufs: *const *mut c_void, n: c_uint);
    fn sluice_attach(devargs: *const c_char, port: *mut u16, attached: *mut c_int) -> c_int;
    fn sluice_port_info(port: u16, out: *mut RawInfo) -> c_int;
    fn sluice_port_start(port: u16, conf: *const RawConf, pool: *mut c_void, step: *mut *const c_char) -> c_int;
    fn sluice_port_stop(port: u16, detach: c_int);
    fn sluice_port_link_up(port: u16) -> c_int;
    fn sluice_port_stats(port: u16, out: *mut u64);
    fn sluice_rx(port: u16, queue: u16, pool: u16, out: *mut Packet, n: c_uint, dropped: *mut c_uint) -> c_uint;
    fn sluice_tx(port: u16, queue: u16, packets: *const Packet, n: c_uint) -> c_uint;
}

// `struct sluice_packet` of shim.c is `Packet`, whose first field is a frame (`Frame` asserts the order of its own).
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Packet, frame) == 0 && offset_of!(Packet, rss_hash) == 24 && offset_of!(Packet, queue) == 28);
};

/// DPDK's text for an errno.
pub fn strerror(err: c_int) -> String {
    // SAFETY: rte_strerror returns a string that lives as long as the thread, and is copied at once.
    unsafe { CStr::from_ptr(sluice_strerror(err)) }.to_string_lossy().into_owned()
}

/// Starts the environment abstraction layer. DPDK allows this once a process, which the caller ensures.
pub fn eal_init(args: &[String]) -> Result<(), c_int> {
    let args: Vec<CString> =
        std::iter::once("sluice").chain(args.iter().map(String::as_str)).filter_map(|a| CString::new(a).ok()).collect();
    // The library permutes the array and keeps pointers to the strings, so both are leaked.
    let argv: Vec<*mut c_char> = args.into_iter().map(CString::into_raw).chain([std::ptr::null_mut()]).collect();
    let argv = argv.leak();
    let argc = argv.len() as c_int - 1;
    // SAFETY: argv holds argc valid strings and a null, and is never freed.
    match unsafe { sluice_eal_init(argc, argv.as_mut_ptr(), log) } {
        0 => Ok(()),
        err => Err(err),
    }
}

/// Takes a piece of DPDK's log over into that of the process, where it is dated, has a level and a module, and goes where
/// the other lines go.
extern "C" fn log(level: u32, text: *const c_char, len: usize) {
    // SAFETY: the shim hands on a buffer of that length, which lives as long as the call.
    let text = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), len) };
    for line in String::from_utf8_lossy(text).lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        // Source: DPDK rte_log.h, RTE_LOG_ERR = 4, RTE_LOG_WARNING = 5, RTE_LOG_DEBUG = 8.
        match level {
            0..=4 => tracing::error!(target: "dpdk", "{line}"),
            5 => tracing::warn!(target: "dpdk", "{line}"),
            6 | 7 => tracing::info!(target: "dpdk", "{line}"),
            _ => tracing::debug!(target: "dpdk", "{line}"),
        }
    }
}

/// The mempool that all DPDK ports receive into.
#[derive(Debug)]
pub struct MbufPool {
    raw: NonNull<c_void>,
    ticket: PoolTicket,
    mbufs: u32,
    room: u16,
    reserve: usize,
}

// SAFETY: rte_mempool is made for concurrent use by EAL threads, which every caller of the shim becomes.
unsafe impl Send for MbufPool {}
// SAFETY: as for Send.
unsafe impl Sync for MbufPool {}

impl MbufPool {
    /// Makes a pool of `mbufs` buffers with `room` bytes behind the headroom. Needs the EAL. `None` if there is no
    /// memory.
    ///
    /// Its memory is never freed: a device may hold mbufs until the process ends.
    pub fn new(mbufs: u32, room: u16, reserve: usize) -> Option<Self> {
        let ticket = PoolTicket::draw()?;
        let name = CString::new(format!("sluice-{}", ticket.id().index())).ok()?;
        // SAFETY: the name is a valid string, which DPDK copies.
        let raw = unsafe { sluice_pool_create(name.as_ptr(), mbufs, room) };
        Some(MbufPool { raw: NonNull::new(raw)?, ticket, mbufs, room, reserve })
    }
}

impl FramePool for MbufPool {
    fn layout(&self) -> FrameLayout {
        // SAFETY: both are constants of the library's build.
        let (data_at, headroom) = unsafe { (sluice_pool_data_at(), sluice_pool_headroom()) };
        // SAFETY: a token is the address of an mbuf. In a mempool without private data its buffer follows at that
        // distance, with headroom before and `room` bytes behind (see `sluice_pool_create`), and is never freed.
        unsafe { FrameLayout::new(data_at as usize, 1, headroom, u32::from(self.room), self.ticket.id()) }
    }

    fn capacity(&self) -> usize {
        self.mbufs as usize
    }

    fn available(&self) -> usize {
        // SAFETY: pools are never freed.
        unsafe { sluice_pool_available(self.raw.as_ptr()) as usize }
    }

    fn reserve(&self) -> usize {
        self.reserve
    }

    fn take(&self, n: usize, out: &mut FreeFrames) -> usize {
        assert_eq!(out.pool(), self.id(), "frames of one pool are asked of another");
        let mut taken = 0;
        while taken < n {
            let mut mbufs = [std::ptr::null_mut(); BATCH_MAX];
            let want = (n - taken).min(BATCH_MAX);
            // SAFETY: the pool is live and `mbufs` has room for `want` (at most BATCH_MAX) pointers.
            let got = unsafe { sluice_pool_take(self.raw.as_ptr(), mbufs.as_mut_ptr(), want as c_uint) } as usize;
            for mbuf in &mbufs[..got] {
                // SAFETY: DPDK returned this mbuf to us alone.
                unsafe { out.push_token(mbuf.expose_provenance() as u64) };
            }
            taken += got;
            if got < want {
                break;
            }
        }
        taken
    }

    fn give(&self, frames: &mut FreeFrames, n: usize) {
        let ours = frames.pool() == self.id();
        debug_assert!(ours, "frames of another pool were given back");
        let mbufs: Vec<*mut c_void> = frames.drain_tokens(n).map(|token| token as *mut c_void).collect();
        if ours {
            // SAFETY: each token is an mbuf of this pool that nobody else has. DPDK requires `next` and `nb_segs` of a
            // free mbuf to be reset, which they are: chains are linearised at receive, and none are made.
            unsafe { sluice_pool_give(mbufs.as_ptr(), mbufs.len() as c_uint) }
        }
    }
}

/// A device's capabilities.
#[derive(Debug)]
pub struct DeviceInfo {
    pub max_rxq: u16,
    pub max_txq: u16,
    pub mtu: u16,
    pub mac: [u8; 6],
}

/// DPDK's port numbers that have a [`Device`].
static IN_USE: Mutex<Vec<u16>> = Mutex::new(Vec::new());

/// A DPDK device, stopped and closed when its last user is dropped.
#[derive(Debug)]
pub struct Device {
    port: u16,
    attached: bool,
    /// Keeps the pool that the queues receive into, which frames are labelled with.
    pool: Arc<MbufPool>,
}

impl Device {
    /// Finds or attaches the device that `devargs` names; `EBUSY` if it has a [`Device`] already.
    pub fn attach(devargs: &str, pool: Arc<MbufPool>) -> Result<Self, c_int> {
        let devargs = CString::new(devargs).map_err(|_| libc::EINVAL)?;
        let (mut port, mut attached) = (0, 0);
        let mut in_use = IN_USE.lock();
        // SAFETY: a valid string and two writable places.
        match unsafe { sluice_attach(devargs.as_ptr(), &mut port, &mut attached) } {
            0 if in_use.contains(&port) => Err(libc::EBUSY),
            0 => {
                in_use.push(port);
                Ok(Device { port, attached: attached != 0, pool })
            }
            err => Err(err),
        }
    }

    pub fn info(&self) -> Result<DeviceInfo, c_int> {
        let mut raw = RawInfo { max_rxq: 0, max_txq: 0, mtu: 0, mac: [0; 6] };
        // SAFETY: the port is attached and `raw` is writable.
        match unsafe { sluice_port_info(self.port, &mut raw) } {
            0 => Ok(DeviceInfo { max_rxq: raw.max_rxq, max_txq: raw.max_txq, mtu: raw.mtu, mac: raw.mac }),
            err => Err(err),
        }
    }

    /// Configures the queues and starts the device, which can be done once. An error says which step failed.
    pub fn start(self, n_rxq: u16, n_txq: u16, n_desc: u16, mtu: Option<u16>) -> Result<Started, (String, c_int)> {
        let conf = RawConf { n_rxq, n_txq, n_desc, mtu: mtu.unwrap_or(0) };
        let mut step = c"".as_ptr();
        // SAFETY: the port is attached, the pool is live, `conf` and `step` are valid for the call.
        match unsafe { sluice_port_start(self.port, &conf, self.pool.raw.as_ptr(), &mut step) } {
            0 => {
                let device = Arc::new(self);
                let rxqs = (0..n_rxq).map(|queue| DeviceRxq { device: Arc::clone(&device), queue }).collect();
                let txqs = (0..n_txq).map(|queue| DeviceTxq { device: Arc::clone(&device), queue }).collect();
                Ok(Started { device, rxqs, txqs })
            }
            // SAFETY: the shim sets `step` to string literals only.
            err => Err((unsafe { CStr::from_ptr(step) }.to_string_lossy().into_owned(), err)),
        }
    }

    pub fn is_up(&self) -> bool {
        // SAFETY: the port is attached.
        unsafe { sluice_port_link_up(self.port) != 0 }
    }

    /// rx packets, bytes, dropped, errors; tx packets, bytes, errors.
    pub fn stats(&self) -> [u64; 7] {
        let mut out = [0; 7];
        // SAFETY: the shim writes seven numbers.
        unsafe { sluice_port_stats(self.port, out.as_mut_ptr()) };
        out
    }
}

/// A device that is started, and its queues. A queue exists once and keeps the device open.
#[derive(Debug)]
pub struct Started {
    pub device: Arc<Device>,
    pub rxqs: Vec<DeviceRxq>,
    pub txqs: Vec<DeviceTxq>,
}

/// A receive queue of a started device.
#[derive(Debug)]
pub struct DeviceRxq {
    device: Arc<Device>,
    queue: u16,
}

/// A transmit queue of a started device.
#[derive(Debug)]
pub struct DeviceTxq {
    device: Arc<Device>,
    queue: u16,
}

/// There are packets of other pools than the device's in a batch; none was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignFrames;

impl DeviceRxq {
    /// Appends received packets to `batch`. Returns how many were too long to linearise.
    pub fn rx(&mut self, batch: &mut PacketBatch) -> usize {
        let have = batch.len();
        let (mut dropped, pool) = (0, self.device.pool.id().index() as u16);
        // SAFETY: the device is started with this queue (`Device::start` made `self`, once), which `&mut self` polls alone.
        // The shim writes `got` packets, at most as many as there is room for, into the batch's free slots. Each is a
        // complete `Packet` (layout above) of a single-segment mbuf that DPDK returned to us alone; data, length and
        // headroom are the mbuf's and lie in its buffer; the buffer is in the pool that the queue receives into, which
        // is never freed.
        unsafe {
            let free = batch.as_mut_ptr().add(have);
            let got = sluice_rx(self.device.port, self.queue, pool, free, (BATCH_MAX - have) as c_uint, &mut dropped);
            batch.set_len(have + got as usize);
        }
        dropped as usize
    }
}

impl DeviceTxq {
    /// Sends packets from the front of `packets`. Returns how many the device took, which are removed.
    ///
    /// # Errors
    /// If a packet is not of the device's pool: nothing is sent then.
    pub fn tx(&mut self, packets: &mut PacketBatch) -> Result<usize, ForeignFrames> {
        let (port, pool) = (self.device.port, self.device.pool.id());
        // Looks at all packets, which costs less than stopping early.
        if packets.iter().fold(false, |foreign, packet| foreign | (packet.frame.pool() != pool)) {
            return Err(ForeignFrames);
        }
        // SAFETY: the device is started with this queue (`Device::start` made `self`, once), which `&mut self` uses alone.
        // Every packet comes from the device's pool (just checked), so its token is an mbuf. The device owns the first
        // `sent` mbufs from here on, and their handles are dropped below without being given back.
        let sent = unsafe { sluice_tx(port, self.queue, packets.as_ptr(), packets.len() as c_uint) } as usize;
        if sent == packets.len() {
            // Same as forgetting them one by one: a handle has no drop.
            packets.clear();
        } else {
            packets.drain(..sent).for_each(std::mem::forget);
        }
        Ok(sent)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let mut in_use = IN_USE.lock();
        // SAFETY: the last user is gone, so no queue is polled.
        unsafe { sluice_port_stop(self.port, c_int::from(self.attached)) }
        in_use.retain(|port| *port != self.port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_fate::{DropReason, Tally};
    use sluice_mem::{HeapPool, PoolConfig};
    use sluice_packet::Buffers;

    unsafe extern "C" {
        fn sluice_testing_hash(port: u16, queue: u16) -> c_int;
    }

    /// Virtual devices do not hash, so a DPDK callback does it where a driver would. The only test here that starts
    /// DPDK.
    #[test]
    fn the_hash_of_a_device_is_the_packets() {
        let args = ["--no-huge", "-m", "128", "--no-pci", "--no-telemetry"].map(String::from);
        eal_init(&args).unwrap();
        let pool = Arc::new(MbufPool::new(1024, 2048, 0).unwrap());
        let dynamic: Arc<dyn FramePool> = pool.clone();
        let Started { device, mut rxqs, mut txqs } =
            Device::attach("net_ring0", pool).unwrap().start(1, 1, 64, None).unwrap();
        let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
        let mut around = |batch: &mut PacketBatch| {
            for host in [1, 2] {
                let mut frame = [0; 60];
                frame[30..34].copy_from_slice(&[10, 0, 0, host]);
                batch.push(buffers.write(&dynamic, &frame).unwrap());
            }
            assert_eq!(txqs[0].tx(batch), Ok(2));
            assert_eq!(rxqs[0].rx(batch), 0);
            let hashes: Vec<u32> = batch.iter().map(|packet| packet.rss_hash).collect();
            batch.discard(DropReason::Rules, &mut buffers, &mut tally);
            hashes
        };
        assert_eq!(around(&mut batch), [0, 0], "a device that hashes none");
        // SAFETY: the device is started and has this queue, which only this thread polls.
        assert_eq!(unsafe { sluice_testing_hash(device.port, 0) }, 0);
        assert_eq!(around(&mut batch), [0x0a00_0001, 0x0a00_0002]);
        let other: Arc<dyn FramePool> =
            Arc::new(HeapPool::new(PoolConfig { frames: 8, frame_size: 2048, reserve: 0 }).unwrap());
        batch.push(buffers.write(&other, &[0; 60]).unwrap());
        assert_eq!((txqs[0].tx(&mut batch), batch.len()), (Err(ForeignFrames), 1));
        batch.discard(DropReason::Rules, &mut buffers, &mut tally);
    }
}
