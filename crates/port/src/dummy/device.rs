//! The device behind a dummy port.

use crate::config::Options;
use crate::pcap::Writer;
use crate::{Mtu, PortInfo, PortStats};
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{EventfdFlags, eventfd};
use sluice_fate::DropReason;
use sluice_flow::{FlowKey, Metadata, PacketKey, compose, extract, layout};
use sluice_packet::headers::ethertype;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Packets that wait in a receive queue, or for a peer, at most. Source: OVS netdev-dummy.c.
pub(super) const WAITING_MAX: usize = 100;

/// A device's queues and place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub n_rxq: usize,
    pub n_txq: usize,
    pub numa_id: u32,
    pub ifindex: u32,
    /// Whether PMD threads poll it.
    pub is_pmd: bool,
}

/// Whether a device that connects to a peer has reached it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnState {
    /// It is connected.
    Connected,
    /// It is not.
    Disconnected,
    /// It does not connect to a peer.
    Unknown,
}

/// The capture files of a device. One file may serve both directions.
#[derive(Default)]
pub(super) struct Captures {
    rx: Option<Arc<Mutex<Writer>>>,
    tx: Option<Arc<Mutex<Writer>>>,
}

/// A device without hardware.
pub struct DummyDevice {
    name: String,
    kind: &'static str,
    is_up: AtomicBool,
    conn_state: AtomicU8,
    state: Mutex<State>,
}

/// A receive queue.
struct Rxq {
    waiting: VecDeque<Vec<u8>>,
    signal: Arc<RxSignal>,
}

/// Tells the thread that polls a receive queue, without the device's lock, whether packets wait.
pub(super) struct RxSignal {
    waiting: AtomicUsize,
    /// Readable while packets wait.
    readiness: OwnedFd,
}

/// What is behind the device's lock.
struct State {
    mac: [u8; 6],
    mtu: u32,
    shape: Shape,
    captures: Captures,
    rxqs: Vec<Rxq>,
    /// By queue, those that are gone included, so that the device's counters never go back.
    rx: Vec<Carried>,
    tx: Vec<Carried>,
    rx_missed: u64,
    tx_oversize: u64,
    rx_oversize: u64,
    ipv4: Option<(Ipv4Addr, u8)>,
    ipv6: Option<(Ipv6Addr, u8)>,
    /// Frames for the peers of its streams; `None` without streams.
    outbox: Option<Arc<Outbox>>,
}

/// What a queue has carried.
#[derive(Clone, Copy, Default)]
struct Carried {
    bytes: u64,
    packets: u64,
}

/// Frames that wait for the thread of a device's streams.
pub(super) struct Outbox {
    frames: Mutex<VecDeque<Vec<u8>>>,
    wake: OwnedFd,
}

/// The address of the next device: aa:55 and a number that begins at aa:55:00:00. Source: OVS netdev-dummy.c.
pub(super) fn next_mac() -> [u8; 6] {
    static NEXT: AtomicU32 = AtomicU32::new(0xaa55_0000);
    let [a, b, c, d] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    [0xaa, 0x55, a, b, c, d]
}

fn new_event() -> std::io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)
}

/// Makes an event readable. A full counter is readable already.
fn raise(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

fn clear(event: &OwnedFd) {
    let _ = rustix::io::read(event, &mut [0u8; 8]);
}

impl Captures {
    /// The files that the options name. One that cannot be written is a note: the device works without it.
    pub fn open(options: &Options<'_>, notes: &mut Vec<String>) -> Captures {
        let mut open = |key: &'static str| {
            let path = options.path(key)?;
            let writer = Writer::append(&path).map_err(|error| notes.push(format!("{}: {error}", path.display())));
            writer.ok().map(|writer| Arc::new(Mutex::new(writer)))
        };
        if options.text("pcap").is_some() {
            let both = open("pcap");
            return Captures { rx: both.clone(), tx: both };
        }
        Captures { rx: open("rxq_pcap"), tx: open("tx_pcap") }
    }
}

/// Appends a packet to a capture file, at once.
fn capture(file: Option<&Arc<Mutex<Writer>>>, packet: &[u8]) {
    let Some(file) = file else { return };
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    let mut file = file.lock();
    // A full disk loses the capture, not the packet.
    let _ = file.write(now_ns, packet).and_then(|()| file.flush());
}

impl DummyDevice {
    pub(super) fn new(name: String, info: &PortInfo, shape: Shape, captures: Captures) -> std::io::Result<Self> {
        let mut state = State {
            mac: info.mac,
            mtu: info.mtu,
            shape,
            captures,
            rxqs: Vec::new(),
            rx: Vec::new(),
            tx: Vec::new(),
            rx_missed: 0,
            tx_oversize: 0,
            rx_oversize: 0,
            ipv4: None,
            ipv6: None,
            outbox: None,
        };
        state.set_shape(shape)?;
        Ok(DummyDevice {
            name,
            kind: info.kind,
            is_up: true.into(),
            conn_state: (ConnState::Unknown as u8).into(),
            state: Mutex::new(state),
        })
    }

    /// Changes its queues and place. Packets that wait in queues that go are lost; the other queues keep theirs.
    pub(super) fn set_shape(&self, shape: Shape) -> std::io::Result<()> {
        self.state().set_shape(shape)
    }

    /// Its queues and place.
    pub(super) fn shape(&self) -> Shape {
        self.state().shape
    }

    /// From now on it writes into these files.
    pub(super) fn set_captures(&self, captures: Captures) {
        self.state().captures = captures;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its properties now.
    pub(super) fn info(&self) -> PortInfo {
        let state = self.state();
        let Shape { n_rxq, n_txq, .. } = state.shape;
        PortInfo { kind: self.kind, n_rxq, n_txq, mtu: state.mtu, mac: state.mac }
    }

    pub(super) fn set_mac(&self, mac: [u8; 6]) {
        self.state().mac = mac;
    }

    pub(super) fn set_mtu(&self, mtu: u32) {
        self.state().mtu = mtu;
    }

    /// Its receive queues.
    pub fn n_rxq(&self) -> usize {
        self.state().rxqs.len()
    }

    /// Whether it is up.
    pub fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Acquire)
    }

    /// Sets it up or down.
    pub fn set_admin_state(&self, is_up: bool) {
        self.is_up.store(is_up, Ordering::Release);
    }

    /// The state of its connection to a peer.
    pub fn conn_state(&self) -> ConnState {
        let state = self.conn_state.load(Ordering::Acquire);
        let all = [ConnState::Connected, ConnState::Disconnected];
        all.into_iter().find(|known| *known as u8 == state).unwrap_or(ConnState::Unknown)
    }

    pub(super) fn set_conn_state(&self, state: ConnState) {
        self.conn_state.store(state as u8, Ordering::Release);
    }

    /// Gives it an IPv4 address with the length of its prefix: it answers ARP requests for it.
    pub fn set_ipv4(&self, address: Ipv4Addr, prefix: u8) {
        self.state().ipv4 = Some((address, prefix)).filter(|(address, _)| !address.is_unspecified());
    }

    /// Gives it an IPv6 address with the length of its prefix.
    pub fn set_ipv6(&self, address: Ipv6Addr, prefix: u8) {
        self.state().ipv6 = Some((address, prefix)).filter(|(address, _)| !address.is_unspecified());
    }

    /// Its IPv4 address, if it has one, with the length of its prefix.
    pub fn ipv4(&self) -> Option<(Ipv4Addr, u8)> {
        self.state().ipv4
    }

    /// Its IPv6 address, if it has one, with the length of its prefix.
    pub fn ipv6(&self) -> Option<(Ipv6Addr, u8)> {
        self.state().ipv6
    }

    /// Queues a packet for receive queue `queue` (below [`DummyDevice::n_rxq`]); a full queue loses it.
    pub fn receive(&self, queue: usize, packet: Vec<u8>) {
        self.enqueue(&mut self.state(), queue, packet);
    }

    fn enqueue(&self, state: &mut State, queue: usize, packet: Vec<u8>) {
        capture(state.captures.rx.as_ref(), &packet);
        // The queue may have gone since its number was read.
        let Some(rxq) = state.rxqs.get_mut(queue).filter(|rxq| rxq.waiting.len() < WAITING_MAX) else {
            state.rx_missed += 1;
            return;
        };
        rxq.waiting.push_back(packet);
        rxq.signal.waiting.store(rxq.waiting.len(), Ordering::Release);
        raise(&rxq.signal.readiness);
    }

    /// What tells whether packets wait in a receive queue.
    pub(super) fn signal(&self, queue: usize) -> Arc<RxSignal> {
        Arc::clone(&self.state().rxqs[queue].signal)
    }

    /// The next packet of a receive queue, counted as received unless it is longer than `size_max`: `Err` then.
    pub(super) fn take(&self, queue: usize, size_max: usize) -> Option<Result<Vec<u8>, ()>> {
        let mut state = self.state();
        let rxq = state.rxqs.get_mut(queue)?;
        let packet = rxq.waiting.pop_front();
        rxq.signal.waiting.store(rxq.waiting.len(), Ordering::Release);
        if rxq.waiting.is_empty() {
            clear(&rxq.signal.readiness);
        }
        let packet = packet?;
        if packet.len() > size_max {
            state.rx_oversize += 1;
            return Some(Err(()));
        }
        let carried = &mut state.rx[queue];
        carried.packets += 1;
        carried.bytes += packet.len() as u64;
        Some(Ok(packet))
    }

    /// Sends a packet by the transmit queue of PMD number `pmd`; whether it is short enough.
    pub(super) fn send(&self, pmd: usize, packet: &[u8]) -> bool {
        let mut state = self.state();
        let queue = pmd % state.shape.n_txq;
        if !Mtu(state.mtu).admits(packet) {
            state.tx_oversize += 1;
            return false;
        }
        let carried = &mut state.tx[queue];
        carried.packets += 1;
        carried.bytes += packet.len() as u64;
        if let Some(outbox) = &state.outbox {
            outbox.put(packet);
        }
        if let Some(reply) = state.ipv4.and_then(|(address, _)| arp_reply(state.mac, address, packet)) {
            self.enqueue(&mut state, 0, reply);
        }
        capture(state.captures.tx.as_ref(), packet);
        true
    }

    pub(super) fn stats(&self) -> PortStats {
        let state = self.state();
        let sum = |queues: &[Carried]| {
            queues.iter().fold((0, 0), |(packets, bytes), queue| (packets + queue.packets, bytes + queue.bytes))
        };
        let ((rx_packets, rx_bytes), (tx_packets, tx_bytes)) = (sum(&state.rx), sum(&state.tx));
        let (mut rx_drops, mut tx_drops) = ([0; DropReason::COUNT], [0; DropReason::COUNT]);
        rx_drops[DropReason::RxOversize as usize] = state.rx_oversize;
        tx_drops[DropReason::TxOversize as usize] = state.tx_oversize;
        PortStats {
            rx_packets,
            rx_bytes,
            rx_dropped: state.rx_oversize + state.rx_missed,
            tx_packets,
            tx_bytes,
            tx_dropped: state.tx_oversize,
            rx_drops,
            tx_drops,
            rx_missed: state.rx_missed,
            ..PortStats::default()
        }
    }

    /// Two counters for tests of custom statistics, and those of each queue. Source: OVS netdev-dummy.c.
    pub(super) fn custom_stats(&self) -> Vec<(String, u64)> {
        let state = self.state();
        let received = state.rx.iter().map(|queue| queue.packets).sum();
        let mut all: Vec<_> = (1..=2).map(|n| (format!("rx_custom_packets_{n}"), received)).collect();
        let Shape { n_rxq, n_txq, .. } = state.shape;
        for (way, queues) in [("rx", &state.rx[..n_rxq]), ("tx", &state.tx[..n_txq])] {
            for (i, queue) in queues.iter().enumerate() {
                all.push((format!("{way}_q{i}_bytes"), queue.bytes));
                all.push((format!("{way}_q{i}_packets"), queue.packets));
            }
        }
        all
    }

    /// From now on frames that it sends go to the outbox, too, if there is one.
    pub(super) fn set_outbox(&self, outbox: Option<Arc<Outbox>>) {
        self.state().outbox = outbox;
    }
}

impl State {
    fn set_shape(&mut self, shape: Shape) -> std::io::Result<()> {
        while self.rxqs.len() < shape.n_rxq {
            let signal = Arc::new(RxSignal { waiting: 0.into(), readiness: new_event()? });
            self.rxqs.push(Rxq { waiting: VecDeque::new(), signal });
        }
        self.rxqs.truncate(shape.n_rxq);
        self.rx.resize(self.rx.len().max(shape.n_rxq), Carried::default());
        self.tx.resize(self.tx.len().max(shape.n_txq), Carried::default());
        self.shape = shape;
        Ok(())
    }
}

impl RxSignal {
    /// Whether packets wait.
    pub fn is_raised(&self) -> bool {
        self.waiting.load(Ordering::Acquire) != 0
    }
}

impl AsFd for RxSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }
}

/// The reply to a packet that is an ARP request for the device's address.
fn arp_reply(mac: [u8; 6], address: Ipv4Addr, packet: &[u8]) -> Option<Vec<u8>> {
    const REQUEST: u64 = 1;
    const REPLY: u8 = 2;
    let mut key = PacketKey::ZERO;
    extract(packet, &Metadata::of_port(0), &mut key).ok()?;
    let is_request = key.number(layout::DL_TYPE) == u64::from(ethertype::ARP)
        && key.number(layout::NW_PROTO) == REQUEST
        && *key.get(layout::NW_DST) == address.octets();
    if !is_request {
        return None;
    }
    let mut reply = FlowKey::ZERO;
    reply.set(layout::DL_SRC, &mac);
    reply.set(layout::DL_DST, key.get(layout::DL_SRC));
    reply.set_number(layout::DL_TYPE, ethertype::ARP.into());
    reply.set(layout::NW_PROTO, &[REPLY]);
    reply.set(layout::ARP_SHA, &mac);
    reply.set(layout::ARP_THA, key.get(layout::DL_SRC));
    reply.set(layout::NW_SRC, &address.octets());
    reply.set(layout::NW_DST, key.get(layout::NW_SRC));
    Some(compose(&reply, 0))
}

impl Outbox {
    pub fn new() -> std::io::Result<Outbox> {
        Ok(Outbox { frames: Mutex::default(), wake: new_event()? })
    }

    fn put(&self, frame: &[u8]) {
        let mut frames = self.frames.lock();
        if frames.len() < WAITING_MAX {
            frames.push_back(frame.to_vec());
            self.wake();
        }
    }

    /// Wakes the thread that serves it.
    pub fn wake(&self) {
        raise(&self.wake);
    }

    /// All frames that wait; it is not readable any more.
    pub fn take(&self) -> VecDeque<Vec<u8>> {
        clear(&self.wake);
        std::mem::take(&mut *self.frames.lock())
    }
}

impl AsFd for Outbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
