//! Messages for controllers.

use crate::action_context::ActionContext;
use crate::context::Context;
use crate::packet_samples::{PacketSamples, SampleQueue};
use crate::session_packets::{SessionPackets, SessionProtocol, SessionQueue};
use sluice_action::Action;
use sluice_fate::{Counter, DropReason, FairRoom, Limit};
use sluice_flow::{PacketKey, extract_again, layout};
use sluice_packet::VlanLimit;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError};
use std::time::Duration;

/// A message for a controller.
#[derive(Clone, Debug)]
pub struct PacketIn {
    /// What the datapath knew of the packet: port, recirculation id, marks, headers.
    pub key: PacketKey,
    /// The packet, cut to the length asked for.
    pub bytes: Vec<u8>,
    /// Its whole length.
    pub total_len: usize,
    /// OpenFlow reason.
    pub reason: u8,
    /// Which controller connection.
    pub controller_id: u16,
    /// Cookie of the rule that asked.
    pub cookie: u64,
    /// Recirculation id that names the state of the translation.
    pub recirc_id: u32,
    /// Whether the packet waits for the controller to let it go on.
    pub continuation: bool,
}

/// The bounded queues of packets to control threads.
#[derive(Clone)]
pub(crate) struct Punts {
    queue: SyncSender<Message>,
    /// How much of the queue each port has.
    room: Arc<FairRoom>,
    pub bfd: SessionQueue,
    pub lacp: SessionQueue,
    pub samples: SampleQueue,
}

/// What is in the queue.
enum Message {
    Packet(Box<PacketIn>),
    /// A thread waits until the owner is done with all that came before.
    Barrier(Sender<()>),
}

/// The other ends of the queues.
pub(crate) struct Punted {
    pub packet_ins: PacketIns,
    /// Those of sessions, by protocol.
    pub session_packets: [SessionPackets; SessionProtocol::ALL.len()],
    pub packet_samples: PacketSamples,
}

/// The messages for controllers, as their owner gets them.
pub struct PacketIns {
    queue: Receiver<Message>,
    room: Arc<FairRoom>,
}

impl PacketIns {
    /// The message, unless it is a barrier: whatever came before that is done.
    fn pass_barrier(&self, message: Message) -> Option<PacketIn> {
        match message {
            Message::Packet(packet) => {
                self.room.leave(party(&packet.key));
                Some(*packet)
            }
            Message::Barrier(waiting) => {
                let _ = waiting.send(());
                None
            }
        }
    }

    /// The next message, when there is one within that time. To ask for it is to be done with the ones before.
    ///
    /// # Errors
    /// If there is none, or there will never be one again.
    pub fn recv_timeout(&self, span: Duration) -> Result<PacketIn, RecvTimeoutError> {
        loop {
            if let Some(packet) = self.pass_barrier(self.queue.recv_timeout(span)?) {
                return Ok(packet);
            }
        }
    }

    /// The next message, if there is one.
    ///
    /// # Errors
    /// If there is none, or there will never be one again.
    pub fn try_recv(&self) -> Result<PacketIn, TryRecvError> {
        loop {
            if let Some(packet) = self.pass_barrier(self.queue.try_recv()?) {
                return Ok(packet);
            }
        }
    }

    /// All messages that there are now.
    pub fn try_iter(&self) -> impl Iterator<Item = PacketIn> {
        std::iter::from_fn(|| self.try_recv().ok())
    }
}

/// The port by which a packet came: ports share the queue.
fn party(key: &PacketKey) -> usize {
    key.number(layout::IN_PORT) as usize
}

impl Punts {
    /// A queue of at most `length` messages of a port beside those of sessions and samples, and their other ends.
    pub fn new(length: usize) -> (Self, Punted) {
        let room = Arc::new(FairRoom::new(length));
        let (queue, receiver) = mpsc::sync_channel(room.capacity());
        let (bfd, bfd_packets) = SessionQueue::new(SessionProtocol::Bfd);
        let (lacp, lacp_packets) = SessionQueue::new(SessionProtocol::Lacp);
        let (samples, packet_samples) = SampleQueue::new();
        let (packet_ins, session_packets) =
            (PacketIns { queue: receiver, room: Arc::clone(&room) }, [bfd_packets, lacp_packets]);
        (Punts { queue, room, bfd, lacp, samples }, Punted { packet_ins, session_packets, packet_samples })
    }

    /// How many messages wait of the port with most, and how many of one may.
    pub fn usage(&self) -> (usize, usize) {
        self.room.usage()
    }

    /// The way to the sessions of a protocol.
    pub fn sessions(&self, protocol: SessionProtocol) -> &SessionQueue {
        match protocol {
            SessionProtocol::Bfd => &self.bfd,
            SessionProtocol::Lacp => &self.lacp,
        }
    }

    /// Waits until the owner is done with all messages that are in the queue now; at most that long.
    pub fn wait_until_handled(&self, patience: Duration) {
        let (waiting, done) = mpsc::channel();
        // A queue that is full has an owner who is far behind, and cannot be told to hurry.
        if self.queue.try_send(Message::Barrier(waiting)).is_ok() {
            let _ = done.recv_timeout(patience);
        }
    }

    /// Sends the packet's bytes to a controller or a session, as the action says, and counts that as its fate.
    pub fn punt(&self, action: &Action, action_context: &ActionContext<'_>, context: &mut Context<'_, '_>) {
        match self.send(action, action_context, context.vlan_limit) {
            Ok(()) => context.tally[Counter::Delivered] += 1,
            Err(reason) => context.tally.drop(reason, 1),
        }
    }

    fn send(
        &self,
        action: &Action,
        action_context: &ActionContext<'_>,
        vlan_limit: VlanLimit,
    ) -> Result<(), DropReason> {
        let (reason, controller_id, max_len, cookie, recirc_id, continuation) = match *action {
            Action::Controller { reason, controller_id, max_len, cookie, recirc_id, continuation } => {
                (reason, controller_id, max_len, cookie, recirc_id, continuation)
            }
            Action::Bfd { bridge, port } => return self.bfd.send(bridge, port, action_context.packet.bytes()),
            Action::Lacp { bridge, port } => return self.lacp.send(bridge, port, action_context.packet.bytes()),
            _ => return Ok(()),
        };
        let mut key = *action_context.key;
        let bytes = action_context.packet.bytes();
        if action_context.is_dirty {
            extract_again(bytes, vlan_limit, &mut key).map_err(DropReason::from)?;
        }
        // A packet that the controller is to continue goes whole.
        let length = if continuation { bytes.len() } else { bytes.len().min(usize::from(max_len)) };
        let message = PacketIn {
            key,
            bytes: bytes[..length].to_vec(),
            total_len: bytes.len(),
            reason,
            controller_id,
            cookie,
            recirc_id,
            continuation,
        };
        self.put(message)
    }

    /// Puts a message into the queue, if there is room for its port.
    fn put(&self, message: PacketIn) -> Result<(), DropReason> {
        let party = party(&message.key);
        if self.room.enter(party) {
            if self.queue.try_send(Message::Packet(Box::new(message))).is_ok() {
                return Ok(());
            }
            self.room.leave(party);
        }
        Limit::PacketIns.hit();
        Err(DropReason::ControllerQueue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_floods_controllers_leaves_others_room() {
        const LENGTH: usize = 64;
        let (punts, Punted { packet_ins, .. }) = Punts::new(LENGTH);
        let packet = |port: u32| {
            let mut key = PacketKey::ZERO;
            key.set(layout::IN_PORT, &port.to_be_bytes());
            PacketIn {
                key,
                bytes: Vec::new(),
                total_len: 60,
                reason: 0,
                controller_id: 0,
                cookie: 0,
                recirc_id: 0,
                continuation: false,
            }
        };
        let before = Limit::PacketIns.count();
        assert_eq!((0..1000).filter(|_| punts.put(packet(1)).is_ok()).count(), LENGTH);
        assert!(Limit::PacketIns.count() >= before + 1000 - LENGTH as u64);
        assert!((0..4).all(|_| punts.put(packet(2)).is_ok()), "another port finds room");
        let ports: Vec<u64> = packet_ins.try_iter().map(|packet| packet.key.number(layout::IN_PORT)).collect();
        assert_eq!((ports.len(), ports.iter().filter(|port| **port == 2).count()), (LENGTH + 4, 4));
        assert_eq!((0..1000).filter(|_| punts.put(packet(3)).is_ok()).count(), LENGTH, "what was taken is free");
    }
}
