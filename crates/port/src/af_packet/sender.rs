//! Sending through packet sockets: with one system call for the packets of a batch, or of a queue in it.
//!
//! The kernel's queueing discipline puts a packet into a class by its priority, which is the socket's. So a batch whose
//! packets are of several queues leaves queue by queue, those of one queue in their order; a socket keeps the priority
//! that it had last, and batches without queues cost one comparison.

use super::sys;
use crate::Mtu;
use crate::stats::QueueStats;
use parking_lot::Mutex;
use sluice_fate::{Counter, DropReason, Tally};
use sluice_packet::{BatchMask, Buffers, Packet, PacketBatch};
use sluice_tc::priority_of_queue;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// How often packets are sent again that the device's queue had no room for.
const TX_TRIES: usize = 2;

/// A socket that sends on a device.
#[derive(Debug)]
pub(crate) struct Sender {
    fd: OwnedFd,
    /// The priority of what it sends.
    priority: u32,
}

impl Sender {
    /// On the device with that index.
    pub fn open(index: u32) -> io::Result<Self> {
        Ok(Sender { fd: sys::open_sender(index)?, priority: 0 })
    }

    fn use_priority(&mut self, priority: u32) -> io::Result<()> {
        if priority != self.priority {
            sys::set_priority(&self.fd, priority)?;
            self.priority = priority;
        }
        Ok(())
    }
}

/// A sender that is replaced when its device has come back, or is there only at times. The lock is uncontended: the
/// control thread takes it only then.
pub(crate) type SharedSender = Arc<Mutex<Option<Sender>>>;

/// A transmit queue.
#[derive(Debug)]
pub(crate) struct PacketTx {
    pub sender: SharedSender,
    pub mtu: Mtu,
    pub stats: Arc<QueueStats>,
}

/// What became of packets that were offered to the kernel.
#[derive(Default)]
struct Sent {
    packets: usize,
    bytes: usize,
}

impl PacketTx {
    /// Sends every packet of a batch, and leaves it empty.
    pub fn send_batch(&self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let mut sent = Sent::default();
        if let Some(sender) = &mut *self.sender.lock() {
            let mut left = BatchMask::first(batch.len());
            // All packets are of the first one's queue, but for batches that meet rules with queues.
            while let Some(first) = { left }.next() {
                let queue = batch[first].queue;
                let mut of_queue = BatchMask::NONE;
                left.filter(|at| batch[*at].queue == queue).for_each(|at| of_queue.insert(at));
                left.0 &= !of_queue.0;
                match sender.use_priority(priority_of_queue(queue)) {
                    Ok(()) => self.send_queue(sender, batch, of_queue, &mut sent, tally),
                    Err(_) => self.stats.drop_unsent(DropReason::TxNoPort, of_queue.len(), tally),
                }
            }
        } else {
            self.stats.drop_unsent(DropReason::TxNoPort, batch.len(), tally);
        }
        tally[Counter::Sent] += sent.packets as u64;
        self.stats.carried(sent.packets, sent.bytes);
        buffers.give_batch(batch);
    }

    /// Sends the packets of one queue, in order.
    fn send_queue(&self, sender: &Sender, batch: &[Packet], mut left: BatchMask, sent: &mut Sent, tally: &mut Tally) {
        while !left.is_empty() {
            let mut fit = BatchMask::NONE;
            left.take_while(|at| self.mtu.admits(batch[*at].bytes())).for_each(|at| fit.insert(at));
            let (gone, refused) = send_all(sender, batch, fit);
            gone.for_each(|at| sent.bytes += batch[at].frame.len());
            sent.packets += gone.len();
            left.0 &= !gone.0;
            // The kernel refused the next packet, or it was too long to be offered. With a full queue or without a
            // device the rest would fail, too.
            let (why, n) = match refused {
                Some(why @ (DropReason::TxFull | DropReason::TxNoPort)) => (why, left.len()),
                Some(why) => (why, 1),
                None if left.is_empty() => return,
                None => (DropReason::TxOversize, 1),
            };
            self.stats.drop_unsent(why, n, tally);
            left.by_ref().take(n).for_each(drop);
        }
    }
}

/// Sends packets from the front of those. Returns which were sent, and why the next one was not.
fn send_all(sender: &Sender, batch: &[Packet], mut left: BatchMask) -> (BatchMask, Option<DropReason>) {
    let (mut gone, mut tries) = (BatchMask::NONE, 0);
    while !left.is_empty() {
        match sys::send(&sender.fd, left.map(|at| batch[at].bytes())) {
            Ok(n) if n > 0 => left.by_ref().take(n).for_each(|at| gone.insert(at)),
            Ok(_) => return (gone, Some(DropReason::TxFull)),
            Err(e) => match e.raw_os_error() {
                // The device's queue is full, perhaps only for a moment.
                Some(libc::ENOBUFS | libc::EAGAIN) if tries < TX_TRIES => tries += 1,
                Some(libc::EINTR) => {}
                Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO) => return (gone, Some(DropReason::TxNoPort)),
                Some(libc::EMSGSIZE) => return (gone, Some(DropReason::TxOversize)),
                _ => return (gone, Some(DropReason::TxFull)),
            },
        }
    }
    (gone, None)
}
