//! Packets of sessions that ports have with their neighbours, of BFD or LACP, on their way to the thread that has them.
//!
//! Each session may have a few packets waiting, whatever comes by its port: a flood of one port's leaves the others' ways
//! open, and costs the thread no more than these few a pass.

use sluice_fate::{DropReason, Limit};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::Duration;

/// Packets of a session that wait at most. Sessions whose numbers collide share them.
const A_SESSION: u32 = 16;

/// Counts of waiting packets.
const COUNTS: usize = 256;

/// Bytes of a packet that are kept: more than headers with tags and options, and a control packet.
const BYTES_MAX: usize = 256;

/// What a session speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionProtocol {
    /// Bidirectional forwarding detection.
    Bfd,
    /// The link aggregation control protocol.
    Lacp,
}

impl SessionProtocol {
    /// All of them, by their numbers.
    pub const ALL: [SessionProtocol; 2] = [SessionProtocol::Bfd, SessionProtocol::Lacp];

    /// Why a packet is dropped if too many wait.
    fn drop_reason(self) -> DropReason {
        match self {
            SessionProtocol::Bfd => DropReason::BfdQueue,
            SessionProtocol::Lacp => DropReason::LacpQueue,
        }
    }
}

/// A packet for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionPacket {
    /// The number of its bridge.
    pub bridge: u32,
    /// The OpenFlow number of its port.
    pub port: u16,
    /// The frame.
    pub bytes: Vec<u8>,
}

/// What is in the queue.
enum Message {
    Packet(SessionPacket),
    /// A thread waits until all that came before is done; it is told whether anything was sent.
    Barrier(Sender<bool>),
    Wake,
}

type Waiting = Arc<[AtomicU32; COUNTS]>;

/// The way to the sessions of a protocol.
#[derive(Clone)]
pub(crate) struct SessionQueue {
    protocol: SessionProtocol,
    queue: SyncSender<Message>,
    waiting: Waiting,
}

/// The packets, as the thread of the sessions gets them.
pub struct SessionPackets {
    queue: Receiver<Message>,
    waiting: Waiting,
}

/// What came in a while.
#[derive(Default)]
pub struct SessionArrivals {
    /// The packets, in order.
    pub packets: Vec<SessionPacket>,
    barriers: Vec<Sender<bool>>,
}

impl SessionArrivals {
    /// Says that all of it is done, and whether that sent anything.
    pub fn done(self, has_sent: bool) {
        self.barriers.into_iter().for_each(|waiting| _ = waiting.send(has_sent));
    }
}

fn count_of(bridge: u32, port: u16) -> usize {
    (bridge as usize).wrapping_mul(31).wrapping_add(port.into()) % COUNTS
}

impl SessionQueue {
    pub fn new(protocol: SessionProtocol) -> (Self, SessionPackets) {
        // As long as all counts together, and some for barriers.
        let (queue, receiver) = mpsc::sync_channel(COUNTS * A_SESSION as usize + COUNTS);
        let waiting: Waiting = Arc::new([const { AtomicU32::new(0) }; COUNTS]);
        let packets = SessionPackets { queue: receiver, waiting: Arc::clone(&waiting) };
        (SessionQueue { protocol, queue, waiting }, packets)
    }

    /// Hands over a packet, if its session has not too many waiting.
    pub fn send(&self, bridge: u32, port: u16, bytes: &[u8]) -> Result<(), DropReason> {
        let count = &self.waiting[count_of(bridge, port)];
        if count.fetch_add(1, Relaxed) < A_SESSION {
            let packet = SessionPacket { bridge, port, bytes: bytes[..bytes.len().min(BYTES_MAX)].to_vec() };
            if self.queue.try_send(Message::Packet(packet)).is_ok() {
                return Ok(());
            }
        }
        count.fetch_sub(1, Relaxed);
        Limit::SessionPackets.hit();
        Err(self.protocol.drop_reason())
    }

    /// How many packets wait of the session with most, and how many of one may.
    pub fn usage(&self) -> (usize, usize) {
        let most = self.waiting.iter().map(|count| count.load(Relaxed)).max().unwrap_or_default();
        (most.min(A_SESSION) as usize, A_SESSION as usize)
    }

    /// Ends the wait of the thread.
    pub fn wake(&self) {
        // A queue that is full needs no waking.
        let _ = self.queue.try_send(Message::Wake);
    }

    /// Waits until the thread is done with all that there is, at most so long; whether it has sent anything since.
    pub fn wait_until_handled(&self, patience: Duration) -> bool {
        let (waiting, done) = mpsc::channel();
        self.queue.try_send(Message::Barrier(waiting)).is_ok() && done.recv_timeout(patience).unwrap_or(false)
    }
}

impl SessionPackets {
    /// What there is, after a wait of at most so long for the first of it; `None` if there will never be anything again.
    pub fn receive(&self, span: Duration) -> Option<SessionArrivals> {
        let mut arrivals = SessionArrivals::default();
        match self.queue.recv_timeout(span) {
            Ok(message) => self.take(message, &mut arrivals),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
        // Only as many as there may be at a time: others may come meanwhile.
        let more = self.queue.try_iter().take(COUNTS * A_SESSION as usize);
        more.for_each(|message| self.take(message, &mut arrivals));
        Some(arrivals)
    }

    fn take(&self, message: Message, arrivals: &mut SessionArrivals) {
        match message {
            Message::Packet(packet) => {
                self.waiting[count_of(packet.bridge, packet.port)].fetch_sub(1, Relaxed);
                arrivals.packets.push(packet);
            }
            Message::Barrier(waiting) => arrivals.barriers.push(waiting),
            Message::Wake => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_port_leaves_room_for_others() {
        let (queue, packets) = SessionQueue::new(SessionProtocol::Bfd);
        let send = |port| queue.send(1, port, &[7; 1000]);
        let before = Limit::SessionPackets.count();
        let taken = (0..1000).filter(|_| send(1).is_ok()).count();
        assert!(Limit::SessionPackets.count() >= before + 1000 - u64::from(A_SESSION));
        assert_eq!(taken, A_SESSION as usize);
        assert_eq!((send(1), send(2)), (Err(DropReason::BfdQueue), Ok(())));
        let arrivals = packets.receive(Duration::ZERO).unwrap();
        assert_eq!(arrivals.packets.len(), A_SESSION as usize + 1);
        assert!(arrivals.packets.iter().all(|packet| packet.bytes.len() == BYTES_MAX));
        assert_eq!(send(1), Ok(()), "there is room again");
    }

    #[test]
    fn a_barrier_hears_what_was_done() {
        let (queue, packets) = SessionQueue::new(SessionProtocol::Bfd);
        let waiter = std::thread::spawn(move || queue.wait_until_handled(Duration::from_secs(10)));
        packets.receive(Duration::from_secs(10)).unwrap().done(true);
        assert!(waiter.join().unwrap());
    }
}
