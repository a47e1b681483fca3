//! AF_PACKET ports: any kernel Ethernet device, without driver support.
//!
//! Receives through a ring shared with the kernel (TPACKET_V2), with one copy into a pool buffer; sends a batch with
//! one system call. The kernel passes VLAN tags separately, which are put back, and leaves checksums and segmentation
//! between local sockets undone, which is completed here. The kernel's own stack also sees the packets; give the device
//! no address if it should not.
//!
//! The kernel hands over each packet when it has written it, in a slot that holds a frame of the usual MTU. What is longer
//! (jumbo frames, large segments) waits whole in the socket's queue, from which it is taken when its slot's turn comes: a
//! system call each. TPACKET_V3 packs packets of any size behind each other, but hands over whole blocks by a timer: a lone
//! packet waits half a millisecond and, on a busy machine, 20. Plain `recvmmsg`, as Open vSwitch receives, hands over at
//! once, too, for fifteen times the cycles a packet on the PMD's core
//! ([record](../../../../benches/record/epyc-avx512-2vcpu-kvm/2026-11-25-af-packet.txt)).
//!
//! The kernel stops using a ring after a large packet that a virtio-net header cannot describe, such as SCTP's
//! ([`sys::RxRing::is_stuck`]). A filter keeps these out where programs may be loaded (capability BPF); a ring that stopped
//! all the same is replaced by [`Port::service`].
//!
//! When the device disappears, the port is down; [`Port::service`] opens the device again when one of its name is back.

mod sender;
#[allow(unsafe_code)]
mod sys;

pub(crate) use sender::{PacketTx, Sender, SharedSender};

use crate::OptionKey;
use crate::bpf::sys::load_large_filter;
use crate::config::{MAX_QUEUES, Options};
use crate::netdev::{self, NetDevice, failed};
use crate::offload::{Position, VnetHeader};
use crate::stats::{self, QueueStats};
use crate::{DeviceStatus, Mtu, OpenError, Pools, Port, PortConfig, PortInfo, PortStats, RxQueue, TxQueue};
use parking_lot::Mutex;
use sluice_fate::{DropReason, Tally};
use sluice_mem::{Frame, FramePool};
use sluice_packet::{BATCH_MAX, Buffers, Packet, PacketBatch};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The options of this type.
pub(crate) const OPTIONS: &[OptionKey] = &[OptionKey::DEVICE];

/// A socket that is replaced when its device has come back. The lock is uncontended: the control thread takes it only
/// then.
type Shared<T> = Arc<Mutex<Option<T>>>;

/// A port on a kernel device.
#[derive(Debug)]
struct PacketPort {
    info: PortInfo,
    device: NetDevice,
    preparation: Preparation,
    /// The index that the sockets are bound to; a different index means a different device of the same name.
    index: u32,
    pool: Arc<dyn FramePool>,
    rings: Vec<Shared<sys::RxRing>>,
    /// By ring, another descriptor of its socket, under a number that stays.
    sockets: Vec<Arc<OwnedFd>>,
    senders: Vec<SharedSender>,
    /// Packets that rings had no room for.
    lost: AtomicU64,
    rx: Vec<Arc<QueueStats>>,
    tx: Vec<Arc<QueueStats>>,
}

pub(crate) fn check_options(options: &Options<'_>) -> Result<(), OpenError> {
    options.device().map(drop)
}

pub(crate) fn open(options: &Options<'_>, pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    open_device(options, pools, Preparation::UpWithMtu)
}

/// Opens a port of OVS's type, whose device is its user's: only an MTU that is asked for is set.
pub(crate) fn open_system(options: &Options<'_>, pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    let preparation = if options.config.keeps_mtu { Preparation::Nothing } else { Preparation::Mtu };
    open_device(options, pools, preparation)
}

fn open_device(options: &Options<'_>, pools: &mut Pools, preparation: Preparation) -> Result<Box<dyn Port>, OpenError> {
    let PortConfig { n_rxq, mtu, .. } = *options.config;
    let name = options.device()?;
    let failed = |what: &str, e| failed(options.port(), format!("device {name}: {what}"), e);
    let device = NetDevice::new(name).map_err(|e| failed("ask about it", e))?;
    let index = device.index().map_err(|e| failed("find it", e))?;
    let mac = device.mac().map_err(|e| failed("read its address", e))?;
    preparation.carry_out(&device, mtu).map_err(|e| failed("set it up with the port's MTU", e))?;
    let mtu = match preparation {
        Preparation::Nothing => device.mtu().map_err(|e| failed("read its MTU", e))?,
        Preparation::Mtu | Preparation::UpWithMtu => mtu,
    };
    let pool = options.pool_for(mtu, pools)?;
    let rings = open_rings(index, n_rxq).map_err(|e| failed("open packet sockets", e))?;
    let sockets = rings.iter().map(|ring| Ok(Arc::new(ring.socket().try_clone()?)));
    let sockets = sockets.collect::<io::Result<_>>().map_err(|e| failed("open packet sockets", e))?;
    Ok(Box::new(PacketPort {
        info: PortInfo { kind: options.kind, n_rxq, n_txq: MAX_QUEUES, mtu, mac },
        device,
        preparation,
        index,
        pool,
        rings: rings.into_iter().map(|ring| Arc::new(Mutex::new(Some(ring)))).collect(),
        sockets,
        senders: Vec::new(),
        lost: AtomicU64::new(0),
        rx: (0..n_rxq).map(|_| Arc::default()).collect(),
        tx: Vec::new(),
    }))
}

/// What is done to a device before it is opened.
#[derive(Clone, Copy, Debug)]
enum Preparation {
    Nothing,
    /// It gets the port's MTU.
    Mtu,
    /// It is set up, with an MTU that is at least the port's.
    UpWithMtu,
}

impl Preparation {
    fn carry_out(self, device: &NetDevice, mtu: u32) -> io::Result<()> {
        match self {
            Preparation::Nothing => Ok(()),
            Preparation::Mtu => device.set_mtu(mtu),
            Preparation::UpWithMtu => {
                if device.mtu()? < mtu {
                    device.set_mtu(mtu)?;
                }
                device.set_up()
            }
        }
    }
}

fn open_rings(index: u32, n: usize) -> io::Result<Vec<sys::RxRing>> {
    let mut rings = (0..n).map(|_| sys::RxRing::open(index)).collect::<io::Result<Vec<_>>>()?;
    if n > 1 {
        sys::RxRing::spread(&mut rings)?;
    }
    let filter = large_filter();
    rings.iter().try_for_each(|ring| ring.let_in(filter.as_ref()))?;
    Ok(rings)
}

/// The filter of packets that would stop a ring, if this process may load one.
fn large_filter() -> Option<OwnedFd> {
    let release = rustix::system::uname();
    load_large_filter(describes_udp(&release.release().to_string_lossy())).ok()
}

/// Whether virtio-net headers of this kernel describe large packets of UDP. Source: Linux 860b7f27b8f7, since 6.2.
fn describes_udp(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(2))
}

impl PacketPort {
    /// Opens the sockets again, on a device that has come back.
    fn reopen(&mut self, index: u32) -> io::Result<()> {
        self.preparation.carry_out(&self.device, self.info.mtu)?;
        let rings = open_rings(index, self.rings.len())?;
        for ((slot, socket), ring) in self.rings.iter().zip(&self.sockets).zip(rings) {
            netdev::sys::replace(socket, ring.socket())?;
            *slot.lock() = Some(ring);
        }
        for slot in &self.senders {
            *slot.lock() = Some(Sender::open(index)?);
        }
        self.index = index;
        Ok(())
    }

    /// Replaces rings that the kernel no longer uses.
    fn replace_stuck_rings(&self) -> io::Result<()> {
        for (slot, socket) in self.rings.iter().zip(&self.sockets) {
            let Some(group) = slot.lock().as_mut().and_then(sys::RxRing::is_stuck) else { continue };
            let ring = sys::RxRing::successor(self.index, group)?;
            netdev::sys::replace(socket, ring.socket())?;
            ring.let_in(large_filter().as_ref())?;
            // Nothing is left in the old one.
            let old = slot.lock().replace(ring);
            self.lost.fetch_add(old.map_or(0, |mut old| old.take_lost()), Relaxed);
        }
        Ok(())
    }
}

impl Port for PacketPort {
    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn rx_queue(&mut self, queue: usize) -> Box<dyn RxQueue> {
        Box::new(PacketRx {
            ring: Arc::clone(&self.rings[queue]),
            socket: Arc::clone(&self.sockets[queue]),
            position: Position::default(),
            mtu: Mtu(self.info.mtu),
            pool: Arc::clone(&self.pool),
            stats: Arc::clone(&self.rx[queue]),
        })
    }

    fn tx_queue(&mut self, _pmd: usize) -> Box<dyn TxQueue> {
        let stats = Arc::new(QueueStats::default());
        self.tx.push(Arc::clone(&stats));
        // If the device has just disappeared, `service` opens the socket when it is back.
        let sender = Arc::new(Mutex::new(Sender::open(self.index).ok()));
        // Those of workers that are gone are closed.
        self.senders.retain(|sender| Arc::strong_count(sender) > 1);
        self.senders.push(Arc::clone(&sender));
        Box::new(PacketTx { sender, mtu: Mtu(self.info.mtu), stats })
    }

    fn is_up(&self) -> bool {
        self.device.index().is_ok_and(|index| index == self.index) && self.device.is_running()
    }

    fn device_status(&self) -> DeviceStatus {
        self.device.status(&self.info)
    }

    fn kernel_device(&self) -> Option<&str> {
        Some(self.device.name())
    }

    fn set_mac(&mut self, mac: [u8; 6]) -> io::Result<()> {
        self.device.set_mac(mac)?;
        self.info.mac = mac;
        Ok(())
    }

    fn service(&mut self) {
        // A socket reports once that its device went down, and would seem readable until that is read.
        for socket in &self.sockets {
            let _ = rustix::net::sockopt::socket_error(socket);
        }
        if let Ok(index) = self.device.index()
            && index != self.index
        {
            // A failure means that the device is still changing; the next try is soon.
            let _ = self.reopen(index);
        }
        // The next try is soon.
        let _ = self.replace_stuck_rings();
    }

    fn stats(&self) -> PortStats {
        let lost: u64 = self.rings.iter().map(|slot| slot.lock().as_mut().map_or(0, sys::RxRing::take_lost)).sum();
        let lost = self.lost.fetch_add(lost, Relaxed) + lost;
        let mut stats = stats::total(self.rx.iter().map(Arc::as_ref), self.tx.iter().map(Arc::as_ref));
        stats.rx_missed = lost;
        stats.rx_dropped += lost;
        stats
    }
}

#[derive(Debug)]
struct PacketRx {
    ring: Shared<sys::RxRing>,
    socket: Arc<OwnedFd>,
    /// How much of the current GSO frame has been split.
    position: Position,
    mtu: Mtu,
    pool: Arc<dyn FramePool>,
    stats: Arc<QueueStats>,
}

/// The result for the current frame.
enum FrameResult {
    /// It is finished.
    Done,
    /// It had to be dropped.
    Dropped(DropReason),
    /// There is not enough room for all of it now.
    Wait,
}

impl RxQueue for PacketRx {
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let slot = Arc::clone(&self.ring);
        let mut guard = slot.lock();
        let Some(ring) = guard.as_mut() else { return };
        let first = batch.len();
        // At most as many slots as packets, whatever becomes of these.
        for _ in 0..BATCH_MAX {
            if batch.is_full() {
                break;
            }
            let Some(packet) = ring.current() else { break };
            let header = VnetHeader::read(packet.vnet).unwrap_or_default();
            let step = match header.is_gso() {
                _ if packet.is_cut => FrameResult::Dropped(DropReason::RxError),
                true => self.split(header, &packet, batch, buffers),
                false => self.receive(header, &packet, batch, buffers),
            };
            match step {
                FrameResult::Done => {}
                FrameResult::Wait => break,
                FrameResult::Dropped(why) => self.stats.drop_received(why, 1, tally),
            }
            self.position = Position::default();
            ring.advance();
        }
        let bytes = batch[first..].iter().map(|packet| packet.frame.len()).sum();
        self.stats.carried(batch.len() - first, bytes);
    }
}

impl PacketRx {
    /// Copies a packet into a buffer and completes offloaded work.
    fn receive(
        &mut self,
        header: VnetHeader,
        packet: &sys::RingPacket<'_>,
        batch: &mut PacketBatch,
        buffers: &mut Buffers,
    ) -> FrameResult {
        if packet.bytes.len() > self.mtu.longest_frame() {
            return FrameResult::Dropped(DropReason::RxOversize);
        }
        // Without a buffer, packets wait in the ring.
        let Some(mut frame) = buffers.take(&self.pool) else { return FrameResult::Wait };
        frame.truncate(packet.bytes.len());
        frame.bytes_mut().copy_from_slice(packet.bytes);
        let finished = header.complete(frame.bytes_mut()).is_ok() && put_tag(&mut frame, packet.tag);
        if finished && self.mtu.admits(frame.bytes()) {
            batch.push(Packet::new(frame));
            return FrameResult::Done;
        }
        buffers.give_frame(frame);
        FrameResult::Dropped(if finished { DropReason::RxOversize } else { DropReason::RxError })
    }

    /// Splits a GSO frame into segments, as many as there is room for.
    fn split(
        &mut self,
        header: VnetHeader,
        packet: &sys::RingPacket<'_>,
        batch: &mut PacketBatch,
        buffers: &mut Buffers,
    ) -> FrameResult {
        let Ok(mut segments) = header.segments(packet.bytes) else { return FrameResult::Dropped(DropReason::RxError) };
        if !self.mtu.admits_segment(packet.bytes, segments.longest()) {
            return FrameResult::Dropped(DropReason::RxOversize);
        }
        segments.seek(self.position);
        while !segments.is_done() {
            let buffer = if batch.is_full() { None } else { buffers.take(&self.pool) };
            let Some(mut frame) = buffer else { return FrameResult::Wait };
            let Some(len) = segments.next_into(frame.bytes_mut()) else {
                buffers.give_frame(frame);
                break;
            };
            frame.truncate(len);
            if !put_tag(&mut frame, packet.tag) {
                buffers.give_frame(frame);
                return FrameResult::Dropped(DropReason::RxError);
            }
            self.position = segments.position();
            batch.push(Packet::new(frame));
        }
        FrameResult::Done
    }
}

/// Puts a VLAN tag back behind the addresses. Returns whether there was room for it.
fn put_tag(frame: &mut Frame, tag: Option<(u16, u16)>) -> bool {
    let Some((tpid, tci)) = tag else { return true };
    if frame.len() < 12 || frame.push_front(4).is_err() {
        return false;
    }
    let bytes = frame.bytes_mut();
    bytes.copy_within(4..16, 0);
    bytes[12..14].copy_from_slice(&tpid.to_be_bytes());
    bytes[14..16].copy_from_slice(&tci.to_be_bytes());
    true
}

impl TxQueue for PacketTx {
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        self.send_batch(batch, buffers, tally);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_since_6_2_describe_large_packets_of_udp() {
        for (release, describes) in [
            ("6.2.0", true),
            ("6.18.44-fc-v669", true),
            ("10.0", true),
            ("6.1.0-27-amd64", false),
            ("5.15", false),
            ("", false),
        ] {
            assert_eq!(describes_udp(release), describes, "{release}");
        }
    }
}
