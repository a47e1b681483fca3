//! What waits to be sent: one batch a port, flushed when it is full and at the end of a receive burst.
//!
//! A queue may keep packets that its next batch is likely to continue. It is asked for them when an iteration has brought
//! it none, or is the last before the PMD finds nothing to do.
//!
//! Packets are pushed in order of arrival, so none overtakes another on its way to a port. Recirculation would break
//! that: a packet that takes two passes comes to its port later than one behind it that takes one. So a burst in
//! which packets recirculate is *held*: what it sends is kept with the arrival number of the packet it came from, and
//! goes to the ports in that order when the last pass is done.

use crate::context::Context;
use crate::policing;
use sluice_action::PortNo;
use sluice_fate::{Counter, DropReason, Tally};
use sluice_packet::{Buffers, Packet, PacketBatch};
use sluice_policer::EgressPolicer;
use sluice_port::TxQueue;
use std::sync::Arc;

/// No slot: the port number is unknown.
const NOWHERE: u16 = u16::MAX;

/// A port's place in this PMD's list of transmit queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TxSlot(pub u16);

/// One PMD's transmit queues.
#[derive(Default)]
pub(crate) struct TxPorts {
    /// By `TxSlot`; a port that has left leaves a hole, which the next one fills.
    slots: Vec<Option<Slot>>,
    /// Slot by port number.
    by_port: Vec<u16>,
    /// Slots with packets waiting.
    waiting: Vec<TxSlot>,
    /// Packets of a held burst, each with its slot and the arrival number of the packet it came from.
    held: Vec<(u32, TxSlot, Packet)>,
    /// Whether the burst under way is held.
    is_holding: bool,
    /// The ports whose queues keep packets, or did.
    keeping: Keeping,
}

/// Ports whose queues keep packets. Few queues do, and only now and then.
#[derive(Default)]
struct Keeping(Vec<KeepingPort>);

struct KeepingPort {
    slot: TxSlot,
    /// Whether it was sent a batch in the iteration under way.
    is_fresh: bool,
}

impl Keeping {
    /// Notes that a port's queue was sent a batch.
    #[inline(always)]
    fn note(&mut self, slot: TxSlot, port: &TxPort) {
        if port.queue.keeps_packets() {
            self.refresh(slot);
        }
    }

    #[cold]
    fn refresh(&mut self, slot: TxSlot) {
        match self.0.iter_mut().find(|port| port.slot == slot) {
            Some(port) => port.is_fresh = true,
            None => self.0.push(KeepingPort { slot, is_fresh: true }),
        }
    }
}

/// The slots of ports by number.
#[derive(Clone, Copy)]
pub(crate) struct PortSlots<'a>(&'a [u16]);

impl PortSlots<'_> {
    /// Where packets for `port` go, if there is such a port.
    #[inline(always)]
    pub fn slot(self, port: PortNo) -> Option<TxSlot> {
        self.0.get(port.0 as usize).filter(|at| **at != NOWHERE).map(|at| TxSlot(*at))
    }
}

struct Slot {
    batch: PacketBatch,
    to: TxPort,
}

/// A port to which this PMD sends.
struct TxPort {
    port: PortNo,
    queue: Box<dyn TxQueue>,
    /// What decides how much may be sent, if that is limited.
    policer: Option<Arc<EgressPolicer>>,
}

impl TxPorts {
    /// Sends to `port` through `queue` from now on.
    pub fn add(&mut self, port: PortNo, queue: Box<dyn TxQueue>) {
        let number = port.0 as usize;
        if self.by_port.len() <= number {
            self.by_port.resize(number + 1, NOWHERE);
        }
        let slot = Some(Slot { batch: PacketBatch::new(), to: TxPort { port, queue, policer: None } });
        let at = match self.by_port[number] {
            NOWHERE => self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len()),
            taken => usize::from(taken),
        };
        if at == self.slots.len() {
            self.slots.push(slot);
        } else {
            self.slots[at] = slot;
        }
        self.by_port[number] = at as u16;
    }

    /// Sends to a port through another queue from now on; the one before. To be called between bursts.
    pub fn replace(&mut self, port: PortNo, queue: Box<dyn TxQueue>) -> Option<Box<dyn TxQueue>> {
        let slot = self.slot(port).and_then(|at| self.slots[usize::from(at.0)].as_mut())?;
        Some(std::mem::replace(&mut slot.to.queue, queue))
    }

    /// Forgets a port and returns its queue. To be called between bursts, when nothing waits for the port.
    pub fn remove(&mut self, port: PortNo) -> Option<Box<dyn TxQueue>> {
        let at = self.by_port.get_mut(port.0 as usize).filter(|at| **at != NOWHERE)?;
        let slot = self.slots[usize::from(std::mem::replace(at, NOWHERE))].take();
        slot.map(|slot| slot.to.queue)
    }

    /// Lets a policer decide what is sent to a port; `None`: all is.
    pub fn set_policer(&mut self, port: PortNo, policer: Option<Arc<EgressPolicer>>) {
        if let Some(slot) = self.slot(port).and_then(|at| self.slots[usize::from(at.0)].as_mut()) {
            slot.to.policer = policer;
        }
    }

    /// Where packets for `port` go, if there is such a port.
    #[inline]
    pub fn slot(&self, port: PortNo) -> Option<TxSlot> {
        self.ports().slot(port)
    }

    /// The slots of all ports, for the packets of a batch.
    #[inline(always)]
    pub fn ports(&self) -> PortSlots<'_> {
        PortSlots(&self.by_port)
    }

    /// Adds a packet to what waits for a port.
    #[inline]
    pub fn push(&mut self, slot: TxSlot, packet: Packet, context: &mut Context<'_, '_>) {
        let Some(to) = &mut self.slots[usize::from(slot.0)] else {
            return context.discard(packet, DropReason::TxNoPort);
        };
        if to.batch.is_empty() {
            self.waiting.push(slot);
        } else if to.batch.is_full() {
            to.flush(context);
            self.keeping.note(slot, &to.to);
        }
        to.batch.push(packet);
    }

    /// Sends a whole batch to one port. If nothing waits there it leaves as it is, without being copied.
    #[inline]
    pub fn push_all(&mut self, slot: TxSlot, packets: &mut PacketBatch, context: &mut Context<'_, '_>) {
        match &mut self.slots[usize::from(slot.0)] {
            Some(Slot { batch, to }) if batch.is_empty() => {
                to.send(packets, context);
                self.keeping.note(slot, to);
            }
            _ => packets.drain(..).for_each(|packet| self.push(slot, packet, context)),
        }
    }

    /// Adds a packet that came from the one with this arrival number, in a burst that may be held.
    pub fn push_in_order(&mut self, arrival: u32, slot: TxSlot, packet: Packet, context: &mut Context<'_, '_>) {
        if self.is_holding {
            self.held.push((arrival, slot, packet));
        } else {
            self.push(slot, packet, context);
        }
    }

    /// Holds what the burst sends from now on until `release`.
    pub fn hold(&mut self) {
        self.is_holding = true;
    }

    /// Whether the burst under way is held.
    #[inline]
    pub fn is_holding(&self) -> bool {
        self.is_holding
    }

    /// Hands a held burst's packets to their ports, in order of arrival; what one packet sent keeps its order.
    pub fn release(&mut self, context: &mut Context<'_, '_>) {
        self.is_holding = false;
        let mut held = std::mem::take(&mut self.held);
        held.sort_by_key(|(arrival, ..)| *arrival);
        held.drain(..).for_each(|(_, slot, packet)| self.push(slot, packet, context));
        self.held = held;
    }

    /// Sends everything that waits.
    #[inline]
    pub fn flush(&mut self, context: &mut Context<'_, '_>) {
        while let Some(slot) = self.waiting.pop() {
            if let Some(to) = &mut self.slots[usize::from(slot.0)] {
                to.flush(context);
                self.keeping.note(slot, &to.to);
            }
        }
    }

    /// Ends an iteration: sends what queues keep, except those that got a batch in it if another is to be expected.
    #[inline]
    pub fn end_iteration(&mut self, expects_more: bool, buffers: &mut Buffers, tally: &mut Tally) {
        if !self.keeping.0.is_empty() {
            self.send_kept(expects_more, buffers, tally);
        }
    }

    #[cold]
    fn send_kept(&mut self, expects_more: bool, buffers: &mut Buffers, tally: &mut Tally) {
        let slots = &mut self.slots;
        self.keeping.0.retain_mut(|port| {
            if expects_more && std::mem::take(&mut port.is_fresh) {
                return true;
            }
            if let Some(slot) = &mut slots[usize::from(port.slot.0)] {
                slot.to.queue.send_kept(buffers, tally);
            }
            false
        });
    }
}

impl Slot {
    #[inline]
    fn flush(&mut self, context: &mut Context<'_, '_>) {
        if !self.batch.is_empty() {
            self.to.send(&mut self.batch, context);
        }
    }
}

impl TxPort {
    /// Sends what its policer lets pass of a batch, by way of the captures if there are any.
    #[inline]
    fn send(&mut self, batch: &mut PacketBatch, context: &mut Context<'_, '_>) {
        context.tally[Counter::TxBatches] += 1;
        if let Some(policer) = &self.policer {
            policing::send(policer, batch, context.buffers, context.tally);
            if batch.is_empty() {
                return;
            }
        }
        match &mut context.taps {
            None => self.queue.send(batch, context.buffers, context.tally),
            Some(taps) => taps.send(self.port, &mut *self.queue, batch, (context.buffers, context.tally)),
        }
    }
}
