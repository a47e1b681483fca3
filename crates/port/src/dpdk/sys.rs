//! A safe interface to DPDK's functions and the C shim.
//!
//! All other code uses [`MbufPool`] and [`Device`], which cannot be misused.

use crate::dpdk_environment::{DetachError, Dump};
use parking_lot::Mutex;
use sluice_dpdk_sys::*;
use sluice_mem::{FrameLayout, FramePool, FreeFrames, PoolId, PoolTicket};
use sluice_packet::{BATCH_MAX, PacketBatch};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

/// DPDK's text for an errno.
pub fn strerror(err: c_int) -> String {
    // SAFETY: rte_strerror returns a string that lives as long as the thread, and is copied at once.
    unsafe { CStr::from_ptr(sluice_strerror(err)) }.to_string_lossy().into_owned()
}

/// DPDK's name for its version.
pub fn version() -> String {
    // SAFETY: a string that is never freed.
    unsafe { CStr::from_ptr(sluice_version()) }.to_string_lossy().into_owned()
}

/// What [`dump`] shows, by the numbers of shim.c.
const DUMPED_POOL: c_uint = 4;

/// What DPDK shows of itself. Needs the EAL. `None` if there is no memory for the text.
pub fn dump(what: Dump) -> Option<String> {
    let number = match what {
        Dump::Lcores => 0,
        Dump::Log => 1,
        Dump::Malloc => 2,
        Dump::Mempools => 3,
    };
    // SAFETY: these kinds take no pool.
    unsafe { dumped(number, std::ptr::null_mut()) }
}

/// # Safety
/// `pool` is a live mempool if `what` is [`DUMPED_POOL`].
unsafe fn dumped(what: c_uint, pool: *mut c_void) -> Option<String> {
    let mut len = 0;
    // SAFETY: `len` is writable; the pool is as the caller says.
    let text = NonNull::new(unsafe { sluice_dump(what, pool, &mut len) })?;
    // SAFETY: the shim returned a text of `len` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(text.as_ptr().cast::<u8>(), len) };
    let copied = String::from_utf8_lossy(bytes).into_owned();
    // SAFETY: open_memstream allocated it, and it is ours.
    unsafe { libc::free(text.as_ptr().cast()) };
    Some(copied)
}

/// Sets the level of the parts of DPDK's log whose names match a shell's pattern. Whether there is such a level.
pub fn set_log_level(pattern: &str, level: u32) -> bool {
    let Ok(pattern) = CString::new(pattern) else { return false };
    // SAFETY: a valid string, which DPDK copies.
    unsafe { sluice_log_set(pattern.as_ptr(), level) >= 0 }
}

/// Starts the environment abstraction layer. DPDK allows this once a process, which the caller ensures. The calling thread
/// is bound to the first core that `args` name, unless it `keeps_cores`.
pub fn eal_init(args: &[String], keeps_cores: bool) -> Result<(), c_int> {
    let args: Vec<CString> =
        std::iter::once("sluice").chain(args.iter().map(String::as_str)).filter_map(|a| CString::new(a).ok()).collect();
    // The library permutes the array and keeps pointers to the strings, so both are leaked.
    let argv: Vec<*mut c_char> = args.into_iter().map(CString::into_raw).chain([std::ptr::null_mut()]).collect();
    let argv = argv.leak();
    let argc = argv.len() as c_int - 1;
    // SAFETY: argv holds argc valid strings and a null, and is never freed.
    match unsafe { sluice_eal_init(argc, argv.as_mut_ptr(), c_int::from(keeps_cores), log) } {
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
    /// Asked once a burst, so without the calls that a layout takes.
    fn id(&self) -> PoolId {
        self.ticket.id()
    }

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

    fn dump(&self) -> Option<String> {
        // SAFETY: pools are never freed.
        unsafe { dumped(DUMPED_POOL, self.raw.as_ptr()) }
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

/// What a device says of itself in the database.
#[derive(Debug)]
pub struct DeviceDetails {
    pub port: u16,
    pub numa: i32,
    pub min_rx_bufsize: u32,
    pub max_mac_addrs: u32,
    pub max_hash_mac_addrs: u32,
    /// `None`: it has no speed.
    pub link_mbps: Option<u32>,
    pub is_full_duplex: bool,
    pub max_rxq: u16,
    pub max_txq: u16,
    pub max_vfs: u16,
    pub max_vmdq_pools: u16,
    pub driver: String,
    pub bus: String,
}

/// The ports that a device of DPDK can have. Source: DPDK rte_config.h, RTE_MAX_ETHPORTS.
const SIBLINGS_MAX: usize = 32;

/// DPDK's port numbers that have a [`Device`], with the names of the switch's ports.
static IN_USE: Mutex<Vec<(u16, String)>> = Mutex::new(Vec::new());

/// Gives a device back that no [`Device`] uses.
pub fn detach(devargs: &str) -> Result<(), DetachError> {
    let name = CString::new(devargs).map_err(|_| DetachError::NotFound)?;
    let (mut port, mut siblings) = (0, [0; SIBLINGS_MAX]);
    let in_use = IN_USE.lock();
    // SAFETY: a valid string and a writable place.
    if unsafe { sluice_find(name.as_ptr(), &mut port) } != 0 {
        return Err(DetachError::NotFound);
    }
    // SAFETY: the shim writes at most as many numbers as there is room for.
    let n = unsafe { sluice_siblings(port, siblings.as_mut_ptr(), SIBLINGS_MAX as c_uint) } as usize;
    let users = in_use.iter().filter(|(used, _)| *used == port || siblings[..n].contains(used));
    let users: Vec<String> = users.map(|(_, user)| user.clone()).collect();
    if !users.is_empty() {
        return Err(DetachError::InUse(users));
    }
    // SAFETY: the port is DPDK's, and nobody of ours uses it while the lock is held.
    match unsafe { sluice_detach(port) } {
        0 => Ok(()),
        err => Err(DetachError::Refused(strerror(err))),
    }
}

/// The text before the first zero byte.
fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// A DPDK device, stopped and closed when its last user is dropped.
#[derive(Debug)]
pub struct Device {
    port: u16,
    attached: bool,
    /// Keeps the pool that the queues receive into, which frames are labelled with.
    pool: Arc<MbufPool>,
}

impl Device {
    /// Finds or attaches the device that `devargs` names, for the switch's port `user`; `EBUSY` if it has a [`Device`]
    /// already.
    pub fn attach(devargs: &str, user: &str, pool: Arc<MbufPool>) -> Result<Self, c_int> {
        let devargs = CString::new(devargs).map_err(|_| libc::EINVAL)?;
        let (mut port, mut attached) = (0, 0);
        let mut in_use = IN_USE.lock();
        // SAFETY: a valid string and two writable places.
        match unsafe { sluice_attach(devargs.as_ptr(), &mut port, &mut attached) } {
            0 if in_use.iter().any(|(used, _)| *used == port) => Err(libc::EBUSY),
            0 => {
                in_use.push((port, user.to_owned()));
                Ok(Device { port, attached: attached != 0, pool })
            }
            err => Err(err),
        }
    }

    pub fn info(&self) -> Result<DeviceInfo, c_int> {
        let mut raw = PortInfo::default();
        // SAFETY: the port is attached and `raw` is writable.
        match unsafe { sluice_port_info(self.port, &mut raw) } {
            0 => Ok(DeviceInfo { max_rxq: raw.max_rxq, max_txq: raw.max_txq, mtu: raw.mtu, mac: raw.mac }),
            err => Err(err),
        }
    }

    /// What it says of itself in the database; `None` if it is gone.
    pub fn details(&self) -> Option<DeviceDetails> {
        let mut raw = PortDetails {
            numa: 0,
            min_rx_bufsize: 0,
            max_mac_addrs: 0,
            max_hash_mac_addrs: 0,
            link_mbps: 0,
            max_rxq: 0,
            max_txq: 0,
            max_vfs: 0,
            max_vmdq_pools: 0,
            is_full_duplex: 0,
            driver: [0; 63],
            bus: [0; 64],
        };
        // SAFETY: the port is attached and `raw` is writable.
        (unsafe { sluice_port_details(self.port, &mut raw) } == 0).then(|| DeviceDetails {
            port: self.port,
            numa: raw.numa,
            min_rx_bufsize: raw.min_rx_bufsize,
            max_mac_addrs: raw.max_mac_addrs,
            max_hash_mac_addrs: raw.max_hash_mac_addrs,
            link_mbps: (raw.link_mbps != 0).then_some(raw.link_mbps),
            is_full_duplex: raw.is_full_duplex != 0,
            max_rxq: raw.max_rxq,
            max_txq: raw.max_txq,
            max_vfs: raw.max_vfs,
            max_vmdq_pools: raw.max_vmdq_pools,
            driver: text_of(&raw.driver),
            bus: text_of(&raw.bus),
        })
    }

    /// Sets its link up or down.
    pub fn set_link(&self, is_up: bool) -> Result<(), c_int> {
        // SAFETY: the port is attached.
        match unsafe { sluice_port_set_link(self.port, c_int::from(is_up)) } {
            0 => Ok(()),
            err => Err(err),
        }
    }

    /// Configures the queues and starts the device, which can be done once. An error says which step failed.
    pub fn start(self, queues: Queues, mtu: Option<u16>) -> Result<Started, (String, c_int)> {
        let Queues { n_rxq, n_txq, n_rxd, n_txd } = queues;
        let conf = PortConf { n_rxq, n_txq, n_rxd, n_txd, mtu: mtu.unwrap_or(0) };
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

/// The queues that a device is to have, and their descriptors.
#[derive(Clone, Copy, Debug)]
pub struct Queues {
    pub n_rxq: u16,
    pub n_txq: u16,
    pub n_rxd: u16,
    pub n_txd: u16,
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
            let got = sluice_rx(self.device.port, self.queue, pool, free, batch.room() as c_uint, &mut dropped);
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
        let (port, pool) = (self.device.port, self.device.pool.id().index() as u16);
        // SAFETY: the device is started with this queue (`Device::start` made `self`, once), which `&mut self` uses alone.
        // The shim looks at the mbuf, the token, of packets of the device's pool only, and sends nothing if there are
        // others. The device owns the first `sent` mbufs from here on, and their handles are dropped below without being
        // given back.
        let sent = unsafe { sluice_tx(port, self.queue, pool, packets.as_ptr(), packets.len() as c_uint) };
        if sent == FOREIGN {
            return Err(ForeignFrames);
        }
        let sent = sent as usize;
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
        in_use.retain(|(port, _)| *port != self.port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_fate::{DropReason, Tally};
    use sluice_mem::{HeapPool, PoolConfig};
    use sluice_packet::Buffers;

    /// Virtual devices do not hash, so a DPDK callback does it where a driver would. The only test here that starts
    /// DPDK.
    #[test]
    fn the_hash_of_a_device_is_the_packets() {
        let args = ["--no-huge", "-m", "128", "--no-pci", "--no-telemetry"].map(String::from);
        eal_init(&args, false).unwrap();
        let pool = Arc::new(MbufPool::new(1024, 2048, 0).unwrap());
        let dynamic: Arc<dyn FramePool> = pool.clone();
        let queues = Queues { n_rxq: 1, n_txq: 1, n_rxd: 64, n_txd: 64 };
        let Started { device, mut rxqs, mut txqs } =
            Device::attach("net_ring0", "p1", pool).unwrap().start(queues, None).unwrap();
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
        batch.push(buffers.write(&dynamic, &[1; 60]).unwrap());
        batch.push(buffers.write(&other, &[0; 60]).unwrap());
        assert_eq!((txqs[0].tx(&mut batch), batch.len()), (Err(ForeignFrames), 2));
        let foreign = batch.pop().unwrap();
        buffers.give_frame(foreign.frame);
        let headroom = batch[0].frame.headroom();
        // An mbuf says where its packet begins and ends now, whatever was changed at either end.
        batch[0].frame.trim_front(6);
        batch[0].frame.truncate(50);
        assert_eq!((txqs[0].tx(&mut batch), rxqs[0].rx(&mut batch)), (Ok(1), 0));
        assert_eq!((batch[0].bytes(), batch[0].frame.headroom()), (&[1; 50][..], headroom + 6));
        batch[0].frame.push_front(10).unwrap();
        assert_eq!((txqs[0].tx(&mut batch), rxqs[0].rx(&mut batch)), (Ok(1), 0));
        assert_eq!((batch[0].frame.len(), batch[0].frame.headroom()), (60, headroom - 4));
        assert_eq!(batch[0].bytes()[10..], [1; 50]);
        batch.discard(DropReason::Rules, &mut buffers, &mut tally);
    }
}
