//! DPDK ports: any device that DPDK supports, by its devargs.
//!
//! Packet buffers are used in place: a frame is an mbuf of the one mempool that all DPDK ports receive into, so a
//! packet crosses between ports without a copy. One call into the C shim a burst.

pub(crate) mod environment;
mod status;
#[allow(unsafe_code)]
mod sys;

use crate::config::Options;
use crate::stats::{self, QueueStats};
use crate::{DeviceStatus, DpdkConfig, Mtu, OpenError, Pools, Port, PortConfig, PortInfo, PortStats, RxQueue, TxQueue};
use parking_lot::Mutex;
use sluice_fate::{Counter, DropReason, Tally};
use sluice_mem::FramePool;
use sluice_packet::{Buffers, PacketBatch};
use std::io;
use std::sync::Arc;
use sys::Queues;

/// Descriptors of each queue. Source: OVS lib/netdev-dpdk.c, NIC_PORT_DEFAULT_RXQ_SIZE.
const DESCRIPTORS: u16 = 2048;

/// The most of them. Source: OVS lib/netdev-dpdk.c, NIC_PORT_MAX_Q_SIZE.
const DESCRIPTORS_MAX: u16 = 4096;

/// Attempts to send a batch before the rest of it is dropped: a full transmit ring is tried once more.
const TX_TRIES: usize = 2;

/// Transmit queues requested unless `n-txq` says otherwise; further PMDs share them.
const DEFAULT_TXQ: usize = 4;

/// Bytes of a default mbuf behind its headroom. Source: DPDK RTE_MBUF_DEFAULT_DATAROOM.
const ORDINARY_ROOM: usize = 2048;

/// The part of the pool that is reserved for receiving, and not used for copies.
const RESERVE_SHARE: usize = 16;

/// DPDK errors, each with its remedy.
#[derive(Debug, thiserror::Error)]
pub enum DpdkError {
    #[error(
        "DPDK does not start with eal-args {args:?}: {reason}; huge pages missing? (`--no-huge -m 512` does without, or \
         `sysctl vm.nr_hugepages=1024`)"
    )]
    Eal { args: Vec<String>, reason: String },
    #[error(
        "DPDK could not start before, and cannot be tried twice in a process: once what it lacked is there, start the switch again"
    )]
    EalFailed,
    #[error("DPDK is running already with eal-args {running:?}; they cannot change while the switch runs")]
    EalChanged { running: Vec<String> },
    #[error(
        "no memory for {mbufs} packet buffers of {room} bytes: lower switch.dpdk.mbufs, or give DPDK more huge pages"
    )]
    NoMemory { mbufs: u32, room: u16 },
    #[error("devargs \"{devargs}\": DPDK finds no such device and cannot attach it ({reason})")]
    NoDevice { devargs: String, reason: String },
    #[error("devargs \"{devargs}\": another port of this switch uses the device; each takes one of its own")]
    Busy { devargs: String },
    #[error(
        "devargs \"{devargs}\": cannot {step} the device: {reason}; the device may want other numbers of queues (n-rxq, option \
         n-txq; net_tap wants as many of one as of the other), or another MTU"
    )]
    Start { devargs: String, step: String, reason: String },
    #[error("devargs \"{devargs}\": n-rxq = {wanted}, but the device has {has} receive queues at most")]
    Queues { devargs: String, wanted: usize, has: u16 },
}

/// DPDK after its start, once a process. Its pools are by packet length, like ours.
#[derive(Debug)]
pub struct Dpdk {
    mbufs: u32,
    least_mbufs: u32,
    pools: Vec<Arc<sys::MbufPool>>,
}

impl Dpdk {
    /// Starts DPDK. Each pool has the memory of `mbufs` default buffers.
    pub fn start(config: &DpdkConfig) -> Result<Self, DpdkError> {
        environment::ensure(config)?;
        Ok(Dpdk { mbufs: config.mbufs, least_mbufs: config.least_mbufs, pools: Vec::new() })
    }

    /// The pool for packets of up to `size` bytes.
    pub fn pool_of_size(&mut self, size: usize) -> Result<Arc<sys::MbufPool>, DpdkError> {
        if let Some(pool) = self.pools.iter().find(|pool| pool.frame_size() >= size) {
            return Ok(pool.clone());
        }
        let room = u16::try_from(size.max(ORDINARY_ROOM)).unwrap_or(u16::MAX);
        let of_room = |mbufs: u32| (u64::from(mbufs) * ORDINARY_ROOM as u64 / u64::from(room)) as u32;
        let (mut mbufs, least) = (of_room(self.mbufs), of_room(self.least_mbufs));
        let pool = loop {
            if let Some(pool) = sys::MbufPool::new(mbufs, room, mbufs as usize / RESERVE_SHARE) {
                break Arc::new(pool);
            }
            if mbufs / 2 < least {
                return Err(DpdkError::NoMemory { mbufs, room });
            }
            mbufs /= 2;
        };
        self.pools.push(pool.clone());
        self.pools.sort_by_key(|pool| pool.frame_size());
        Ok(pool)
    }

    /// Opens the device that `devargs` names for the port `name`, with the receive queues and up to the transmit queues that
    /// `queues` has.
    fn open(&mut self, name: &str, devargs: &str, queues: Queues, mtu: u32) -> Result<DpdkPort, DpdkError> {
        let named = || devargs.to_owned();
        let pool = self.pool_of_size(Mtu(mtu).longest_frame())?;
        let device = sys::Device::attach(devargs, name, pool.clone()).map_err(|e| match e {
            libc::EBUSY => DpdkError::Busy { devargs: named() },
            e => DpdkError::NoDevice { devargs: named(), reason: sys::strerror(e) },
        })?;
        let failed = |step: String, e| DpdkError::Start { devargs: named(), step, reason: sys::strerror(e) };
        let info = device.info().map_err(|e| failed("query".into(), e))?;
        if queues.n_rxq > info.max_rxq {
            return Err(DpdkError::Queues { devargs: named(), wanted: queues.n_rxq.into(), has: info.max_rxq });
        }
        let queues = Queues { n_txq: queues.n_txq.clamp(1, info.max_txq.max(1)), ..queues };
        // Many virtual devices refuse to set an MTU, even the one they have.
        let wanted = (mtu != u32::from(info.mtu)).then_some(mtu as u16);
        let started = device.start(queues, wanted);
        let sys::Started { device, rxqs, txqs } = started.map_err(|(step, e)| failed(step, e))?;
        let (n_rxq, n_txq) = (rxqs.len(), txqs.len());
        let info = PortInfo { kind: "dpdk", n_rxq, n_txq, mtu, mac: info.mac };
        let txqs = txqs.into_iter().map(Mutex::new).collect();
        let rx = (0..n_rxq).map(|_| Arc::default()).collect();
        let rxqs = rxqs.into_iter().map(Some).collect();
        let shared = Arc::new(Shared { device, pool, txqs });
        Ok(DpdkPort { name: name.to_owned(), shared, info, is_admin_up: true, rxqs, rx, tx: Vec::new() })
    }
}

/// Opens a port of type `dpdk`, starting DPDK with the first one.
pub(crate) fn open(options: &Options<'_>, pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    let PortConfig { n_rxq, mtu, .. } = *options.config;
    let devargs = options.text("devargs").or_else(|| options.text("dpdk-devargs")).ok_or(OpenError::MissingOption {
        port: options.port(),
        kind: "dpdk",
        key: "devargs",
        expected: "a device as DPDK names it, such as net_null0 or 0000:01:00.0",
    })?;
    let n_txq = crate::port_type::n_txq(options)?;
    let failed = |e: DpdkError| OpenError::Dpdk { port: options.port(), reason: e.to_string() };
    let dpdk = pools.dpdk().map_err(failed)?;
    let n_txq = n_txq.unwrap_or_else(|| usual_txq(devargs, n_rxq));
    let [n_rxd, n_txd] = ["n_rxq_desc", "n_txq_desc"].map(|key| descriptors(options.text(key)));
    // `open` of a port has bounded both numbers.
    let queues = Queues { n_rxq: n_rxq as u16, n_txq: n_txq as u16, n_rxd, n_txd };
    Ok(Box::new(dpdk.open(&options.config.name, devargs, queues, mtu).map_err(failed)?))
}

/// The descriptors of a queue: a power of two up to [`DESCRIPTORS_MAX`]; anything else stands for the usual number, as in
/// Open vSwitch.
fn descriptors(given: Option<&str>) -> u16 {
    let number = given.and_then(|text| text.parse().ok());
    number.filter(|n: &u16| n.is_power_of_two() && *n <= DESCRIPTORS_MAX).unwrap_or(DESCRIPTORS)
}

/// Transmit queues to ask for if nothing is said. Source: DPDK drivers/net/tap/rte_eth_tap.c, `tap_dev_configure`, which
/// refuses a device with unequal numbers of queues.
fn usual_txq(devargs: &str, n_rxq: usize) -> usize {
    if devargs.starts_with("net_tap") { n_rxq } else { DEFAULT_TXQ }
}

/// The part that a port's queues share.
#[derive(Debug)]
struct Shared {
    device: Arc<sys::Device>,
    /// The device's pool, as every PMD's `Buffers` knows it.
    pool: Arc<dyn FramePool>,
    /// PMDs beyond the number of queues share them. Otherwise the locks are uncontended.
    txqs: Vec<Mutex<sys::DeviceTxq>>,
}

/// A DPDK device as a port.
#[derive(Debug)]
pub struct DpdkPort {
    name: String,
    shared: Arc<Shared>,
    info: PortInfo,
    /// Whether commands have left it up.
    is_admin_up: bool,
    /// By number, until they are taken.
    rxqs: Vec<Option<sys::DeviceRxq>>,
    /// Drops by receive queue and by PMD; the device counts carried packets.
    rx: Vec<Arc<QueueStats>>,
    tx: Vec<Arc<QueueStats>>,
}

impl Port for DpdkPort {
    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn rx_queue(&mut self, queue: usize) -> Box<dyn RxQueue> {
        let rxq = self.rxqs[queue].take().expect("invariant: a queue is asked for once");
        Box::new(DpdkRx { rxq, pool: self.shared.pool.clone(), stats: self.rx[queue].clone() })
    }

    fn tx_queue(&mut self, pmd: usize) -> Box<dyn TxQueue> {
        let queue = pmd % self.info.n_txq;
        let stats = Arc::new(QueueStats::default());
        self.tx.push(stats.clone());
        Box::new(DpdkTx { shared: self.shared.clone(), queue, own: PacketBatch::new(), stats })
    }

    fn numa_id(&self) -> u32 {
        self.shared.device.details().map_or(0, |details| u32::try_from(details.numa).unwrap_or(0))
    }

    fn is_up(&self) -> bool {
        self.is_admin_up && self.shared.device.is_up()
    }

    fn device_status(&self) -> DeviceStatus {
        let status = DeviceStatus::of_info(&self.info, self.is_up());
        let status = DeviceStatus { is_admin_up: self.is_admin_up, ..status };
        let details = self.shared.device.details();
        details.map_or(status.clone(), |details| status::with_details(status, &details))
    }

    /// A device that cannot set its link keeps it, as in Open vSwitch.
    fn set_admin_state(&mut self, is_up: bool) -> io::Result<()> {
        if is_up == self.is_admin_up {
            return Ok(());
        }
        match self.shared.device.set_link(is_up) {
            Ok(()) => {}
            Err(libc::ENOTSUP) => {
                let name = &self.name;
                tracing::info!(target: "netdev_dpdk", "Interface {name} does not support link state configuration");
            }
            Err(e) => return Err(io::Error::from_raw_os_error(e)),
        }
        self.is_admin_up = is_up;
        Ok(())
    }

    fn mempool_info(&self) -> Option<String> {
        self.shared.pool.dump()
    }

    fn stats(&self) -> PortStats {
        let [came, rx_bytes, rx_missed, rx_errors, tx_packets, tx_bytes, tx_errors] = self.shared.device.stats();
        let drops = stats::total(self.rx.iter().map(Arc::as_ref), self.tx.iter().map(Arc::as_ref));
        let rx_packets = came.saturating_sub(drops.rx_dropped);
        let rx_dropped = drops.rx_dropped + rx_missed;
        PortStats { rx_packets, rx_bytes, rx_dropped, rx_errors, tx_packets, tx_bytes, tx_errors, rx_missed, ..drops }
    }
}

#[derive(Debug)]
struct DpdkRx {
    rxq: sys::DeviceRxq,
    pool: Arc<dyn FramePool>,
    stats: Arc<QueueStats>,
}

impl RxQueue for DpdkRx {
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        // Frames come from the device, so this PMD may not know the pool, to which it gives back frames that it drops.
        buffers.add_pool(&self.pool);
        let too_long = self.rxq.rx(batch);
        self.stats.drop_received(DropReason::RxError, too_long, tally);
    }
}

#[derive(Debug)]
struct DpdkTx {
    shared: Arc<Shared>,
    queue: usize,
    /// A batch after packets of other pools were copied. Empty between calls.
    own: PacketBatch,
    stats: Arc<QueueStats>,
}

impl TxQueue for DpdkTx {
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let mut sent = self.try_to_send(batch);
        if sent.is_err() {
            self.move_into_pool(batch, buffers, tally);
            sent = self.try_to_send(batch);
        }
        tally[Counter::Sent] += sent.unwrap_or(0) as u64;
        if !batch.is_empty() {
            self.stats.drop_unsent(DropReason::TxFull, batch.len(), tally);
            buffers.give_batch(batch);
        }
    }
}

impl DpdkTx {
    /// How many packets the device took in [`TX_TRIES`].
    fn try_to_send(&self, batch: &mut PacketBatch) -> Result<usize, sys::ForeignFrames> {
        let mut txq = self.shared.txqs[self.queue].lock();
        let mut sent = 0;
        for _ in 0..TX_TRIES {
            if !batch.is_empty() {
                sent += txq.tx(batch)?;
            }
        }
        Ok(sent)
    }

    /// Replaces packets of other pools by copies in the device's pool.
    fn move_into_pool(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let pool = self.shared.pool.id();
        for packet in batch.drain(..) {
            if packet.frame.pool() == pool {
                self.own.push(packet);
                continue;
            }
            match buffers.copy_into(&self.shared.pool, &packet) {
                Ok(copy) => self.own.push(copy),
                Err(why) => self.stats.drop_unsent(why, 1, tally),
            }
            buffers.give_frame(packet.frame);
        }
        std::mem::swap(batch, &mut self.own);
    }
}
