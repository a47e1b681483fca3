//! AF_XDP ports: a device's packets directly in frames of our pool.
//!
//! An XDP program of five instructions redirects what the device receives on a queue to our socket, before the kernel's
//! stack sees it. The socket's buffers are frames of the pool that all such ports share, so a packet crosses between
//! ports without a copy by this program (the kernel copies in and out, unless a driver can avoid it). Sending is one
//! system call a batch.
//!
//! XDP has no offload information: checksums left undone by local senders are detected and completed ([`checksum`]).
//! Large segments are split by the kernel in native mode; in generic mode they must be switched off at the sender.
//!
//! When the device disappears, the port is down; [`Port::service`] opens the device again when one of its name is back.

mod checksum;
mod queues;
mod ring;
#[allow(unsafe_code)]
mod sys;

use crate::OptionKey;
use crate::af_packet::{PacketTx, Sender, SharedSender};
use crate::bpf::sys::{Attached, Mode, SocketMap};
use crate::config::{MAX_QUEUES, Options};
use crate::netdev::{self, NetDevice, failed};
use crate::stats::{self, QueueStats};
use crate::{DeviceStatus, Mtu, OpenError, Pools, Port, PortConfig, PortInfo, PortStats, RxQueue, TxQueue};
use parking_lot::Mutex;
use queues::{Shaped, XdpRx, XdpTx};
use sluice_mem::{FramePool, FreeFrames, HeapPool};
use sluice_sync::Versioned;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The options of this type.
pub(crate) const OPTIONS: &[OptionKey] = &[
    OptionKey::DEVICE,
    OptionKey { key: "mode", help: "where its program runs: native (in the driver), generic, or auto (default)" },
];

/// The options of the same type by OVS's name.
pub(crate) const OVS_OPTIONS: &[OptionKey] = &[
    OptionKey { key: "xdp-mode", help: "native, generic, or best-effort (default); native-with-zerocopy is not there" },
    OptionKey::N_RXQ,
];

/// The most slots of a ring.
const SLOTS_MAX: usize = 2048;
/// A queue keeps at most one part in this many of its pool's frames to receive into.
const FILL_SHARE: usize = 8;
/// The kernel releases a queue shortly after its last socket: how often, and how long, to wait for that.
const BUSY_TRIES: usize = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// The open sockets. A new socket shares the registration of its pool's memory with another one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sockets(Arc<Mutex<Vec<Weak<sys::Socket>>>>);

/// The note for the lack of zero-copy.
const COPIES: &str = "the kernel copies each packet once on receive and once on send";
/// Why zero-copy is not used where a driver offers it. A device accesses frames by its own addresses; the kernel does
/// not use a frame that lies across two pages which are not adjacent there. Our frames lie across pages, since strides
/// of whole pages would put the headers of a batch into two sets of the first-level cache.
const FRAMES_CROSS_PAGES: &str = "packet buffers here lie across pages, which the device need not see side by side";
/// The note for generic mode.
const GENERIC: &str = "generic mode: the kernel copies each packet and makes a buffer of its own first, which is slower, \
                       and large segments of local senders are lost or cut short (`ethtool -K PEER tso off gso off`)";

/// A port on a kernel device.
#[derive(Debug)]
struct XdpPort {
    info: PortInfo,
    device: NetDevice,
    mode: Option<Mode>,
    pool: Arc<HeapPool>,
    sockets: Sockets,
    /// The program on the device, while the device exists, and its index.
    live: Option<(u32, Attached, SocketMap)>,
    /// By queue.
    slots: Vec<Arc<SocketSlot>>,
    notes: Vec<String>,
    rx: Vec<Arc<QueueStats>>,
    tx: Vec<Arc<QueueStats>>,
    /// By transmit queue, what sends through the kernel's queueing discipline.
    senders: Vec<SharedSender>,
    is_shaped: Arc<AtomicBool>,
}

/// The place of a queue's socket, which may be replaced.
type SocketSlot = Versioned<Option<Arc<sys::Socket>>>;

/// The socket that a queue last found in its slot.
#[derive(Debug)]
struct Found {
    slot: Arc<SocketSlot>,
    socket: Option<Arc<sys::Socket>>,
    version: u64,
}

pub(crate) fn check_options(options: &Options<'_>) -> Result<(), OpenError> {
    mode(options).and_then(|_| options.device()).map(drop)
}

pub(crate) fn open(options: &Options<'_>, pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    let mode = mode(options)?;
    open_device(options, pools, mode)
}

/// The mode that is asked for; none: whichever the device has.
fn mode(options: &Options<'_>) -> Result<Option<Mode>, OpenError> {
    let mode = options.parse("mode", "native, generic or auto", |text| match text {
        "native" => Some(Some(Mode::Native)),
        "generic" => Some(Some(Mode::Generic)),
        "auto" => Some(None),
        _ => None,
    })?;
    Ok(mode.flatten())
}

/// Opens a port by OVS's options.
pub(crate) fn open_ovs(options: &Options<'_>, pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    let mode = options.parse("xdp-mode", "native, generic or best-effort", |text| match text {
        "native" => Some(Some(Mode::Native)),
        "generic" => Some(Some(Mode::Generic)),
        "best-effort" => Some(None),
        _ => None,
    })?;
    open_device(options, pools, mode.flatten())
}

fn open_device(options: &Options<'_>, pools: &mut Pools, mode: Option<Mode>) -> Result<Box<dyn Port>, OpenError> {
    let PortConfig { n_rxq, mtu, .. } = *options.config;
    let name = options.device()?;
    let failed = |what: &str, e| failed(options.port(), format!("device {name}: {what}"), e);
    let pool = options.pool(pools)?;
    let device = NetDevice::new(name).map_err(|e| failed("ask about it", e))?;
    let index = device.index().map_err(|e| failed("find it", e))?;
    let mac = device.mac().map_err(|e| failed("read its address", e))?;
    let mut port = XdpPort {
        info: PortInfo { kind: options.kind, n_rxq, n_txq: MAX_QUEUES, mtu, mac },
        device,
        mode,
        pool,
        sockets: pools.xdp_sockets.clone(),
        live: None,
        slots: (0..n_rxq).map(|_| Arc::default()).collect(),
        notes: Vec::new(),
        rx: (0..n_rxq).map(|_| Arc::default()).collect(),
        tx: Vec::new(),
        senders: Vec::new(),
        is_shaped: Arc::default(),
    };
    port.start(index).map_err(|(step, e)| failed(step, e))?;
    port.notes.extend(own_traffic_note(name));
    Ok(Box::new(port))
}

/// What is to be said if this host uses the device itself: from now on it receives nothing there.
fn own_traffic_note(device: &str) -> Option<String> {
    let own = uses_of(device);
    (!own.is_empty()).then(|| {
        format!(
            "device {device} has {}: all that it receives comes to this port now, and nothing to the host itself, which \
             may cut you off; type af_packet leaves the host a copy, and bridges have a LOCAL port for its addresses",
            own.join(" and ")
        )
    })
}

/// The addresses and routes of a device, those that every device has left out.
fn uses_of(device: &str) -> Vec<String> {
    let is_own = |address: &IpAddr| match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    let addresses = netdev::device_addresses().unwrap_or_default().remove(device).unwrap_or_default();
    let addresses = addresses.into_iter().map(|(address, _)| address).filter(is_own);
    let mut uses: Vec<String> = addresses.map(|address| format!("the address {address}")).collect();
    // Source: proc(5); the first word of a line is the device. That of the thread: it may be in another namespace.
    let routes = std::fs::read_to_string("/proc/thread-self/net/route").unwrap_or_default();
    if routes.lines().any(|line| line.split_whitespace().next() == Some(device)) {
        uses.push("a route".to_owned());
    }
    uses
}

impl Sockets {
    /// Opens a socket, and shares another's registration of the pool's memory if there is one.
    fn open(&self, pool: &Arc<HeapPool>, binding: sys::Binding) -> io::Result<Arc<sys::Socket>> {
        let mut all = self.0.lock();
        let mut tries = 0;
        let socket = loop {
            all.retain(|socket| socket.strong_count() > 0);
            match open_beside(&all, pool, binding) {
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) && tries < BUSY_TRIES => {
                    tries += 1;
                    std::thread::sleep(BUSY_PAUSE);
                }
                done => break Arc::new(done?),
            }
        };
        all.push(Arc::downgrade(&socket));
        Ok(socket)
    }
}

/// Opens a socket in addition to the open ones.
fn open_beside(all: &[Weak<sys::Socket>], pool: &Arc<HeapPool>, binding: sys::Binding) -> io::Result<sys::Socket> {
    let others: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
    // The kernel assumes that a second socket of a queue shares its rings, too, and reports an invalid argument.
    if others.iter().any(|other| other.has_queue_of(binding)) {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    let siblings = others.iter().filter(|other| other.pool().id() == pool.id());
    let mut tried = siblings
        .map(Some)
        .chain([None])
        .map(|sibling| sys::Socket::open(Arc::clone(pool), sibling.map(Arc::as_ref), binding));
    // A sibling whose device has disappeared is no longer bound, and shares nothing.
    let is_final = |done: &io::Result<_>| !matches!(done, Err(e) if e.raw_os_error() == Some(libc::EBADF));
    tried.find(is_final).unwrap_or_else(|| Err(io::ErrorKind::NotConnected.into()))
}

impl Found {
    fn new(slot: &Arc<SocketSlot>) -> Self {
        // An impossible version, so that the first check finds the socket.
        Found { slot: Arc::clone(slot), socket: None, version: u64::MAX }
    }

    /// The current socket. One load unless it was replaced.
    #[inline]
    fn socket(&mut self) -> Option<&Arc<sys::Socket>> {
        let version = self.slot.version();
        if version != self.version {
            self.socket = self.slot.read(Option::clone);
            self.version = version;
        }
        self.socket.as_ref()
    }
}

impl XdpPort {
    /// Opens sockets and attaches the program to the device with that index.
    fn start(&mut self, index: u32) -> Result<(), (&'static str, io::Error)> {
        let n = self.slots.len();
        let mtu_step = "set it up with the port's MTU";
        let is_short = self.device.mtu().map_err(|e| (mtu_step, e))? < self.info.mtu;
        self.device.set_up().map_err(|e| (mtu_step, e))?;
        // Probe the driver before the port's own sockets take the queue.
        let zero_copy = sys::try_zero_copy(index, 0);
        let most = (self.pool.capacity() / FILL_SHARE / n).clamp(64, SLOTS_MAX);
        let slots = 1 << most.ilog2();
        let sockets = (0..n as u32)
            .map(|queue| self.sockets.open(&self.pool, sys::Binding { device: index, queue, slots }))
            .collect::<io::Result<Vec<_>>>()
            .map_err(|e| ("open an AF_XDP socket for each receive queue (`ethtool -L` sets how many it has)", e))?;
        let map = SocketMap::new(n as u32).map_err(|e| ("make a map of sockets (capability BPF)", e))?;
        let mut notes = Vec::new();
        let attached = self.attach(&map, index, zero_copy, &mut notes)?;
        // Only now: a program that handles multi-buffer packets lifts the driver's limit.
        if is_short {
            self.device.set_mtu(self.info.mtu).map_err(|e| (mtu_step, e))?;
        }
        let mut free = FreeFrames::new(self.pool.layout(), slots as usize);
        for (queue, socket) in sockets.iter().enumerate() {
            map.insert(queue as u32, socket.fd()).map_err(|e| ("put a socket into the map", e))?;
            self.pool.take(slots as usize, &mut free);
            socket.refill(&mut socket.receiver(), slots, || free.pop());
        }
        self.pool.give(&mut free, usize::MAX);
        let socket = &sockets[0];
        if !socket.is_chained() && Mtu(self.info.mtu).longest_frame() > socket.buffer_size() {
            let longest = socket.buffer_size();
            notes
                .push(format!("this kernel puts no packet into several buffers: frames over {longest} bytes are lost"));
        }
        let queues = self.device.rx_queues().unwrap_or(0);
        if queues > n as u32 {
            notes.push(format!(
                "the device has {queues} receive queues and the port {n}: what comes in by the others goes to the kernel \
                 (raise n-rxq, or `ethtool -L DEVICE combined {n}`)"
            ));
        }
        for (slot, socket) in self.slots.iter().zip(sockets) {
            slot.change(|place| *place = Some(socket));
        }
        self.notes = notes;
        self.live = Some((index, attached, map));
        Ok(())
    }

    /// Attaches the program to the device: in the driver unless that is refused or configured otherwise. Adds notes on
    /// what is not available.
    fn attach(
        &self,
        map: &SocketMap,
        index: u32,
        zero_copy: io::Result<()>,
        notes: &mut Vec<String>,
    ) -> Result<Attached, (&'static str, io::Error)> {
        let attached = match self.mode {
            Some(mode) => map.attach(index, mode).map(|attached| (attached, mode, String::new())),
            None => match map.attach(index, Mode::Native) {
                Err(e) if !matches!(e.raw_os_error(), Some(libc::EPERM | libc::EBUSY)) => {
                    let why = format!("the driver takes no XDP program ({e}): ");
                    map.attach(index, Mode::Generic).map(|attached| (attached, Mode::Generic, why))
                }
                done => done.map(|attached| (attached, Mode::Native, String::new())),
            },
        };
        let (attached, mode, why) = attached.map_err(|e| match self.mode {
            Some(_) => ("put a program on it in the mode asked for", e),
            None => ("put a program on it", e),
        })?;
        notes.push(match (mode, zero_copy) {
            (Mode::Native, Ok(())) => {
                format!("no zero-copy, though the driver offers it: {FRAMES_CROSS_PAGES}; {COPIES}")
            }
            (Mode::Native, Err(e)) => format!("no zero-copy: the driver offers none ({e}); {COPIES}"),
            (Mode::Generic, _) => format!("{why}{GENERIC}"),
        });
        Ok(attached)
    }
}

impl Port for XdpPort {
    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn rx_queue(&mut self, queue: usize) -> Box<dyn RxQueue> {
        let pool: Arc<dyn FramePool> = Arc::clone(&self.pool) as _;
        Box::new(XdpRx::new(Found::new(&self.slots[queue]), Mtu(self.info.mtu), pool, Arc::clone(&self.rx[queue])))
    }

    fn tx_queue(&mut self, pmd: usize) -> Box<dyn TxQueue> {
        let stats = Arc::new(QueueStats::default());
        self.tx.push(Arc::clone(&stats));
        let pool: Arc<dyn FramePool> = Arc::clone(&self.pool) as _;
        let found = Found::new(&self.slots[pmd % self.slots.len()]);
        let index = self.live.as_ref().map(|(index, ..)| *index).filter(|_| self.is_shaped.load(Relaxed));
        let sender = Arc::new(Mutex::new(index.and_then(|index| Sender::open(index).ok())));
        // Those of workers that are gone are closed.
        self.senders.retain(|sender| Arc::strong_count(sender) > 1);
        self.senders.push(Arc::clone(&sender));
        let shaped = PacketTx { sender, mtu: Mtu(self.info.mtu), stats: Arc::clone(&stats) };
        let shaped = Shaped { queue: shaped, is_used: Arc::clone(&self.is_shaped) };
        Box::new(XdpTx::new(found, Mtu(self.info.mtu), pool, stats, shaped))
    }

    fn is_up(&self) -> bool {
        let bound = self.live.as_ref().map(|(index, ..)| *index);
        self.device.index().is_ok_and(|index| Some(index) == bound) && self.device.is_running()
    }

    fn device_status(&self) -> DeviceStatus {
        self.device.status(&self.info)
    }

    fn kernel_device(&self) -> Option<&str> {
        Some(self.device.name())
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn set_shaped(&mut self, is_shaped: bool) -> io::Result<()> {
        for sender in &self.senders {
            let index = self.live.as_ref().map(|(index, ..)| *index).filter(|_| is_shaped);
            *sender.lock() = index.map(Sender::open).transpose()?;
        }
        // What was sent before leaves the rings first, or may: the disciplines keep no order among queues anyway.
        self.is_shaped.store(is_shaped, Relaxed);
        Ok(())
    }

    fn service(&mut self) {
        let bound = self.live.as_ref().map(|(index, ..)| *index);
        match self.device.index().ok() {
            index if index == bound => {}
            index => {
                self.live = None;
                self.slots.iter().for_each(|slot| slot.change(|place| *place = None));
                // A failure means that the device is still changing; the next try is soon.
                let _ = index.map(|index| self.start(index));
                let _ = self.set_shaped(self.is_shaped.load(Relaxed));
            }
        }
        for socket in self.slots.iter().filter_map(|slot| slot.read(Option::clone)) {
            // Packets that a full device left in the ring, and that no later packet pushed out.
            let _ = socket.kick(&socket.sender());
        }
    }

    fn stats(&self) -> PortStats {
        let mut stats = stats::total(self.rx.iter().map(Arc::as_ref), self.tx.iter().map(Arc::as_ref));
        stats.rx_missed =
            self.slots.iter().filter_map(|slot| slot.read(Option::clone)).map(|socket| socket.lost()).sum();
        stats.rx_dropped += stats.rx_missed;
        stats
    }
}
