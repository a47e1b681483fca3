//! The functions of shim.c, their structures, and what they take for granted.

use sluice_packet::Packet;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// How a port is set up: `struct sluice_port_conf` of shim.c.
#[repr(C)]
#[derive(Debug)]
pub struct PortConf {
    /// Receive queues.
    pub n_rxq: u16,
    /// Transmit queues.
    pub n_txq: u16,
    /// Descriptors of a receive queue.
    pub n_rxd: u16,
    /// Descriptors of a transmit queue.
    pub n_txd: u16,
    /// In bytes; 0 leaves it as it is.
    pub mtu: u16,
}

/// What is asked of a device before it starts: `struct sluice_port_info` of shim.c.
#[repr(C)]
#[derive(Debug, Default)]
pub struct PortInfo {
    /// The most receive queues.
    pub max_rxq: u16,
    /// The most transmit queues.
    pub max_txq: u16,
    /// In bytes.
    pub mtu: u16,
    /// Its address; zeroes if it has none.
    pub mac: [u8; 6],
}

/// What a device says of itself in the database: `struct sluice_port_details` of shim.c. The texts end with a zero byte.
#[repr(C)]
#[derive(Debug)]
pub struct PortDetails {
    /// Its NUMA node; -1: any.
    pub numa: i32,
    /// The smallest buffer that it receives into, in bytes.
    pub min_rx_bufsize: u32,
    /// Addresses that it filters by.
    pub max_mac_addrs: u32,
    /// Addresses that it filters by their hash.
    pub max_hash_mac_addrs: u32,
    /// In Mbit/s; 0: it has no speed.
    pub link_mbps: u32,
    /// The most receive queues.
    pub max_rxq: u16,
    /// The most transmit queues.
    pub max_txq: u16,
    /// Virtual functions.
    pub max_vfs: u16,
    /// VMDq pools.
    pub max_vmdq_pools: u16,
    /// 0: half duplex.
    pub is_full_duplex: u8,
    /// The driver's name.
    pub driver: [u8; 63],
    /// The bus's name, and what it says of the device.
    pub bus: [u8; 64],
}

/// Takes a piece of DPDK's log: its level, its bytes and how many they are.
pub type LogLine = extern "C" fn(u32, *const c_char, usize);

/// What [`sluice_tx`] returns if a packet is of another pool: `SLUICE_FOREIGN` of shim.c.
pub const FOREIGN: c_uint = c_uint::MAX;

// As shim.c has them. Its `struct sluice_packet` is `Packet`, whose first field is a frame (`Frame` asserts the order of its own).
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<PortConf>() == 10 && size_of::<PortInfo>() == 12 && size_of::<PortDetails>() == 156);
    assert!(offset_of!(Packet, frame) == 0 && offset_of!(Packet, rss_hash) == 24 && offset_of!(Packet, queue) == 28);
};

unsafe extern "C" {
    /// Starts the EAL with arguments that are never freed, once. The calling thread keeps its cores, or is bound to the
    /// first that they name.
    pub fn sluice_eal_init(argc: c_int, argv: *mut *mut c_char, keeps_cores: c_int, log: LogLine) -> c_int;
    /// DPDK's text for an errno, until the thread asks again.
    pub fn sluice_strerror(err: c_int) -> *const c_char;
    /// DPDK's name for its version, a constant.
    pub fn sluice_version() -> *const c_char;
    /// What DPDK shows of itself, for the caller to free: 0 its cores, 1 the levels of its log, 2 its heap, 3 all pools,
    /// 4 one pool. Null if there is no memory.
    pub fn sluice_dump(what: c_uint, pool: *mut c_void, len: *mut usize) -> *mut c_char;
    /// Sets the level of the log's types that a pattern names.
    pub fn sluice_log_set(pattern: *const c_char, level: u32) -> c_int;
    /// Makes a pool of `n` mbufs with `room` bytes behind the headroom. Null if there is no memory.
    pub fn sluice_pool_create(name: *const c_char, n: c_uint, room: u16) -> *mut c_void;
    /// How many mbufs of a pool are free.
    pub fn sluice_pool_available(pool: *mut c_void) -> c_uint;
    /// Takes `n` mbufs, or none. Returns how many.
    pub fn sluice_pool_take(pool: *mut c_void, out: *mut *mut c_void, n: c_uint) -> c_uint;
    /// How far behind an mbuf's address a fresh packet begins, in bytes.
    pub fn sluice_pool_data_at() -> c_uint;
    /// The bytes in front of a fresh packet.
    pub fn sluice_pool_headroom() -> u16;
    /// Gives mbufs back.
    pub fn sluice_pool_give(mbufs: *const *mut c_void, n: c_uint);
    /// The port of the device that `devargs` names, if DPDK has it.
    pub fn sluice_find(devargs: *const c_char, port: *mut u16) -> c_int;
    /// The same; attaches the device if DPDK has not got it yet.
    pub fn sluice_attach(devargs: *const c_char, port: *mut u16, attached: *mut c_int) -> c_int;
    /// The ports of the same device, at most `n`. Returns how many.
    pub fn sluice_siblings(port: u16, out: *mut u16, n: c_uint) -> c_uint;
    /// Closes a port that nobody uses, and gives its device back.
    pub fn sluice_detach(port: u16) -> c_int;
    /// What a device says of itself in the database.
    pub fn sluice_port_details(port: u16, out: *mut PortDetails) -> c_int;
    /// Sets a port's link up or down.
    pub fn sluice_port_set_link(port: u16, is_up: c_int) -> c_int;
    /// What is asked of a device before it starts.
    pub fn sluice_port_info(port: u16, out: *mut PortInfo) -> c_int;
    /// Configures and starts a port that receives into a pool. On error `step` names what failed, a constant.
    pub fn sluice_port_start(port: u16, conf: *const PortConf, pool: *mut c_void, step: *mut *const c_char) -> c_int;
    /// Stops and closes a port; gives its device back if `detach` is not 0.
    pub fn sluice_port_stop(port: u16, detach: c_int);
    /// Whether a port's link is up.
    pub fn sluice_port_link_up(port: u16) -> c_int;
    /// Seven numbers: packets, bytes, dropped and errors of receiving; packets, bytes and errors of sending.
    pub fn sluice_port_stats(port: u16, out: *mut u64);
    /// Receives at most `n` packets of the pool into `out`. Returns how many; adds those too long to linearise to
    /// `dropped`.
    pub fn sluice_rx(port: u16, queue: u16, pool: u16, out: *mut Packet, n: c_uint, dropped: *mut c_uint) -> c_uint;
    /// Sends packets of the pool. Returns how many the device took, or [`FOREIGN`].
    pub fn sluice_tx(port: u16, queue: u16, pool: u16, packets: *const Packet, n: c_uint) -> c_uint;
    /// For tests: makes a queue of a device hash what it receives.
    pub fn sluice_testing_hash(port: u16, queue: u16) -> c_int;
}
