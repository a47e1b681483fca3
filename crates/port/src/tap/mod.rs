//! Tap ports: a kernel Ethernet device whose other end is this port.
//!
//! One system call a packet, into and out of pool buffers without an additional copy. The device does not offer
//! offloads, so the kernel completes checksums and splits large segments itself. Linux only; needs CAP_NET_ADMIN unless
//! the device exists and belongs to the user.
//!
//! The device of an internal port stays when the process ends, with its addresses and routes, and the next process
//! attaches to it; it goes when the port is removed. Open vSwitch does the same, so each finds the other's devices.
//!
//! When the device, or the network namespace that it was moved to, is deleted, the port is down; [`Port::service`]
//! makes the device again in the switch's namespace.

use crate::OptionKey;
use crate::config::{MAX_QUEUES, Options};
use crate::netdev::{self, NetDevice, failed};
use crate::stats::{self, QueueStats};
use crate::{DeviceStatus, Mtu, OpenError, Pools, Port, PortConfig, PortInfo, PortStats, RxQueue, TxQueue};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sluice_fate::{Counter, DropReason, Tally};
use sluice_mem::FramePool;
use sluice_packet::{Buffers, Packet, PacketBatch};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The options of this type.
pub(crate) const OPTIONS: &[OptionKey] = &[
    OptionKey { key: "device", help: "name of the tap device, made if there is none; default: the port's name" },
    OptionKey { key: "mac", help: "Ethernet address of the device; default: what the kernel chose" },
];

/// The options of OVS's internal ports.
pub(crate) const INTERNAL_OPTIONS: &[OptionKey] = &[OptionKey { key: "mac", help: OPTIONS[1].help }];

/// A tap device.
#[derive(Debug)]
struct TapPort {
    info: PortInfo,
    name: String,
    owner: Owner,
    /// Whether the device was missing at the last check.
    is_gone: bool,
    limits: Arc<Mutex<Limits>>,
    /// By queue. A queue is used in both directions.
    queues: Vec<Arc<OwnedFd>>,
    rx: Vec<Arc<QueueStats>>,
    tx: Vec<Arc<QueueStats>>,
}

/// What its queues read of a device that may change. The lock is uncontended: the control thread takes it only then.
#[derive(Debug)]
struct Limits {
    mtu: Mtu,
    /// Its frames are long enough for the MTU.
    pool: Arc<dyn FramePool>,
}

/// Packets that the kernel queues for us to receive, by queue. Its default of 1000 is less than arrives while another
/// process has the core for one time slice.
const WAITING: u32 = 4096;

/// Whose device it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The port's: it is set up when it is made, and goes with the process.
    Port,
    /// The host's, as that of an internal port: a new device is down until its user sets it up, and it stays until the
    /// port is removed.
    Host,
}

pub(crate) fn check_options(options: &Options<'_>) -> Result<(), OpenError> {
    options.mac().map(drop)
}

pub(crate) fn open(options: &Options<'_>, pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    open_device(options, pools, options.device()?, Owner::Port)
}

/// Opens an internal port of OVS, which its user sets up.
pub(crate) fn open_internal(options: &Options<'_>, pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    open_device(options, pools, options.cut_device()?, Owner::Host)
}

fn open_device(options: &Options<'_>, pools: &mut Pools, name: &str, owner: Owner) -> Result<Box<dyn Port>, OpenError> {
    let PortConfig { n_rxq, mtu, .. } = *options.config;
    let failed = |what: &str, e| failed(options.port(), format!("tap device {name}: {what}"), e);
    let pool = options.pool(pools)?;
    let wanted = options.text("mac").map(|_| options.mac()).transpose()?;
    let wanted = Wanted { n_rxq, mtu, mac: wanted, owner };
    let (queues, mac) = make(name, wanted).map_err(|(step, e)| failed(step, e))?;
    Ok(Box::new(TapPort {
        info: PortInfo { kind: options.kind, n_rxq, n_txq: MAX_QUEUES, mtu, mac },
        name: name.to_owned(),
        owner,
        is_gone: false,
        limits: Arc::new(Mutex::new(Limits { mtu: Mtu(mtu), pool })),
        rx: queues.iter().map(|_| Arc::default()).collect(),
        tx: Vec::new(),
        queues: queues.into_iter().map(Arc::new).collect(),
    }))
}

/// A tap device's queues and its address.
type Made = (Vec<OwnedFd>, [u8; 6]);

/// What a tap device is to be.
#[derive(Clone, Copy)]
struct Wanted {
    n_rxq: usize,
    mtu: u32,
    /// `None`: what the kernel chooses.
    mac: Option<[u8; 6]>,
    owner: Owner,
}

/// Makes or opens a tap device. An error names the failed step.
fn make(name: &str, wanted: Wanted) -> Result<Made, (&'static str, io::Error)> {
    let Wanted { n_rxq, mtu, mac, owner } = wanted;
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut queues = Vec::with_capacity(n_rxq);
    for _ in 0..n_rxq {
        let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty()).map_err(|e| ("/dev/net/tun", e.into()))?;
        attach(&fd, name, n_rxq).map_err(|e| ("attach a queue", e))?;
        queues.push(fd);
    }
    if owner == Owner::Host {
        netdev::sys::set_persistent(&queues[0], true).map_err(|e| ("make it persistent", e))?;
    }
    let device = NetDevice::new(name).map_err(|e| ("ask about it", e))?;
    device.set_mtu(mtu).map_err(|e| ("set its MTU", e))?;
    device.set_queue_len(WAITING).map_err(|e| ("set its queue length", e))?;
    if let Some(mac) = mac {
        device.set_mac(mac).map_err(|e| ("set its address", e))?;
    }
    if owner == Owner::Port {
        device.set_up().map_err(|e| ("set it up", e))?;
    }
    let mac = device.mac().map_err(|e| ("read its address", e))?;
    Ok((queues, mac))
}

/// Attaches an open `/dev/net/tun` to the tap device called `name` as one of `n_rxq` queues; makes the device if
/// necessary.
fn attach(fd: &OwnedFd, name: &str, n_rxq: usize) -> io::Result<()> {
    let attach_with = |more: i32| {
        let mut request = netdev::sys::request(name);
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | more) as libc::c_short;
        netdev::sys::ask(fd, netdev::sys::TUNSETIFF, &mut request)
    };
    if n_rxq > 1 {
        return attach_with(libc::IFF_MULTI_QUEUE);
    }
    // The kernel refuses the flag for a device that was made without it, as Open vSwitch makes them, and the other way
    // round. One queue is one queue with either.
    attach_with(0).or_else(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => attach_with(libc::IFF_MULTI_QUEUE),
        _ => Err(error),
    })
}

impl TapPort {
    /// Poll events of the device's queue. The device may be in another network namespace, where its name means nothing
    /// to us; its queue still works: it accepts packets while the device is up, and reports an error when the device is
    /// deleted.
    fn state(&self) -> Option<PollFlags> {
        let mut queue = [PollFd::new(&*self.queues[0], PollFlags::OUT)];
        let asked = rustix::event::poll(&mut queue, Some(&Timespec::default()));
        asked.ok().map(|_| queue[0].revents())
    }
}

impl Port for TapPort {
    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn rx_queue(&mut self, queue: usize) -> Box<dyn RxQueue> {
        Box::new(TapRx {
            fd: Arc::clone(&self.queues[queue]),
            limits: Arc::clone(&self.limits),
            stats: Arc::clone(&self.rx[queue]),
        })
    }

    fn tx_queue(&mut self, pmd: usize) -> Box<dyn TxQueue> {
        let stats = Arc::new(QueueStats::default());
        self.tx.push(Arc::clone(&stats));
        let fd = Arc::clone(&self.queues[pmd % self.queues.len()]);
        Box::new(TapTx { fd, limits: Arc::clone(&self.limits), stats })
    }

    fn is_up(&self) -> bool {
        self.state() == Some(PollFlags::OUT)
    }

    fn device_status(&self) -> DeviceStatus {
        match NetDevice::new(&self.name) {
            Ok(device) => device.status(&self.info),
            Err(_) => DeviceStatus::of_info(&self.info, self.is_up()),
        }
    }

    fn kernel_device(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn set_mac(&mut self, mac: [u8; 6]) -> io::Result<()> {
        NetDevice::new(&self.name)?.set_mac(mac)?;
        self.info.mac = mac;
        Ok(())
    }

    fn set_mtu(&mut self, mtu: u32, pools: &mut Pools) -> io::Result<()> {
        let pool = pools.of_size(Mtu(mtu).longest_frame()).map_err(io::Error::other)?;
        NetDevice::new(&self.name)?.set_mtu(mtu)?;
        self.info.mtu = mtu;
        *self.limits.lock() = Limits { mtu: Mtu(mtu), pool };
        Ok(())
    }

    fn delete_device(&mut self) {
        if self.owner == Owner::Host {
            // It fails if the device has gone already.
            let _ = netdev::sys::set_persistent(&self.queues[0], false);
        }
    }

    fn service(&mut self) {
        let PortInfo { n_rxq, mtu, mac, .. } = self.info;
        let was_gone = self.is_gone;
        self.is_gone = self.state().is_some_and(|state| state.contains(PollFlags::ERR));
        // Not at once, so that the port is seen to be down. A failure means that another device has the name; the next
        // try is soon.
        if was_gone
            && self.is_gone
            && let Ok((fresh, _)) = make(&self.name, Wanted { n_rxq, mtu, mac: Some(mac), owner: self.owner })
        {
            self.is_gone = false;
            for (old, fresh) in self.queues.iter().zip(&fresh) {
                let _ = netdev::sys::replace(old, fresh);
            }
        }
    }

    fn stats(&self) -> PortStats {
        stats::total(self.rx.iter().map(Arc::as_ref), self.tx.iter().map(Arc::as_ref))
    }
}

#[derive(Debug)]
struct TapRx {
    fd: Arc<OwnedFd>,
    limits: Arc<Mutex<Limits>>,
    stats: Arc<QueueStats>,
}

impl RxQueue for TapRx {
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let (first, mut bytes, mut oversize) = (batch.len(), 0, 0);
        let limits = self.limits.lock();
        for _ in 0..batch.room() {
            // Without a buffer, packets wait in the device's queue, which drops when it is full.
            let Some(mut frame) = buffers.take(&limits.pool) else { break };
            let room = frame.len();
            let len = match rustix::io::read(&*self.fd, frame.bytes_mut()) {
                Ok(len) if len > 0 => len,
                end => {
                    let failed = end.is_err_and(|e| !matches!(e, Errno::AGAIN | Errno::INTR));
                    self.stats.errors(usize::from(failed));
                    buffers.give_frame(frame);
                    break;
                }
            };
            frame.truncate(len);
            // The driver truncates what is longer than the buffer, so a frame that fills it may be truncated.
            if len == room || !limits.mtu.admits(frame.bytes()) {
                oversize += 1;
                buffers.give_frame(frame);
                continue;
            }
            bytes += len;
            batch.push(Packet::new(frame));
        }
        self.stats.drop_received(DropReason::RxOversize, oversize, tally);
        self.stats.carried(batch.len() - first, bytes);
    }
}

#[derive(Debug)]
struct TapTx {
    fd: Arc<OwnedFd>,
    limits: Arc<Mutex<Limits>>,
    stats: Arc<QueueStats>,
}

impl TxQueue for TapTx {
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let (mut sent, mut bytes) = (0, 0);
        let mtu = self.limits.lock().mtu;
        for packet in batch.iter().map(|packet| packet.bytes()) {
            let done = mtu.admits(packet).then(|| rustix::io::write(&*self.fd, packet));
            let why = match done {
                None => DropReason::TxOversize,
                Some(Ok(_)) => {
                    sent += 1;
                    bytes += packet.len();
                    continue;
                }
                // The device is down or deleted.
                Some(Err(Errno::IO | Errno::BADFD | Errno::NODEV)) => DropReason::TxNoPort,
                Some(Err(_)) => DropReason::TxFull,
            };
            self.stats.drop_unsent(why, 1, tally);
        }
        tally[Counter::Sent] += sent as u64;
        self.stats.carried(sent, bytes);
        buffers.give_batch(batch);
    }
}
