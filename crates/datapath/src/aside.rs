//! Packets that missed while a control thread had the tables, or when the turn of their queue was over.
//!
//! A PMD that waits forwards nothing, and a control thread that has lost its core keeps the tables for milliseconds. So a
//! PMD does not wait: it sets such packets aside, polls on, and forwards what it knows. Before each poll of the queue that
//! they came by the first of them repeat the pass in which they missed. And a batch of misses takes long, so that those
//! behind the first few wait likewise until the PMD's other queues have been polled (`misses.rs`).
//!
//! **Order.** While packets of a queue wait, all others of it that miss wait behind them, even if the tables are free by
//! then; and the first of a flow's packets that wait installs no megaflow, which would let others overtake the rest: the last
//! one does. So packets of a flow that have no megaflow keep their order. If a packet of another queue or another thread
//! installs the flow's megaflow meanwhile, packets that hit may overtake those that wait, as in Open vSwitch a packet that
//! hits overtakes those whose upcall is under way.
//!
//! **Bound.** Each queue has a bound of its own, so that no queue takes the place of another. Beyond it a packet is dropped
//! with a reason while the tables are locked. Once they are free, the queue is not polled until none waits: then packets wait
//! where they always do, in the device.

use crate::batch::{Batch, Origin};
use sluice_action::agree_under;
use sluice_conntrack::CachedConn;
use sluice_fate::{Counter, DropReason, Tally};
use sluice_flow::PacketKey;
use sluice_packet::{Buffers, Packet};
use std::collections::VecDeque;

/// Packets of one queue that wait at most: what a sender of ten million packets a second, all misses, sends in 25 µs, which
/// is a piece of a change; or what one of a hundred thousand sends in 2.5 ms, for which the scheduler may keep the holder
/// of the lock from its core.
pub(crate) const ASIDE_MAX: usize = 256;

/// The packets of one queue that wait for the tables, the oldest first. Without memory until one waits.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    waiting: VecDeque<Waiting>,
    /// Those that wait again after a retry: older than `waiting`.
    again: Vec<Waiting>,
    is_retrying: bool,
    /// The tables were busy when a packet asked: those behind it may not ask before it.
    is_blocked: bool,
}

#[derive(Debug)]
struct Waiting {
    packet: Packet,
    key: PacketKey,
    depth: u8,
    conn: CachedConn,
}

impl Aside {
    /// Whether none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a packet that misses has to wait, because the tables were busy or older ones wait.
    pub fn must_wait(&self) -> bool {
        self.is_blocked || !self.is_retrying && !self.is_empty()
    }

    /// Whether a packet waits behind the retry that agrees with this one under a megaflow's mask.
    pub fn has_follower(&self, mask: &PacketKey, key: &PacketKey) -> bool {
        self.is_retrying && self.waiting.iter().any(|waiting| agree_under(mask, key, &waiting.key))
    }

    /// The tables are busy.
    pub fn block(&mut self) {
        self.is_blocked = true;
    }

    /// Whether the next burst stays in the device: the tables are free, so those that wait are soon through. Otherwise a flow
    /// at full rate would always have packets that wait, and never a megaflow.
    pub fn holds_back(&self) -> bool {
        !self.is_blocked && !self.is_empty()
    }

    /// Lets a packet wait that missed under this key. Gives it back if as many wait as may.
    pub fn push(&mut self, packet: Packet, key: PacketKey, origin: Origin, conn: CachedConn) -> Result<(), Packet> {
        if self.waiting.len() + self.again.len() >= ASIDE_MAX {
            return Err(packet);
        }
        if self.waiting.capacity() == 0 {
            self.waiting.reserve_exact(ASIDE_MAX);
        }
        let waiting = Waiting { packet, key, depth: origin.depth, conn };
        if self.is_retrying {
            self.again.push(waiting)
        } else {
            self.waiting.push_back(waiting)
        }
        Ok(())
    }

    /// Moves the first packets that wait into an empty batch. [`Aside::end_retry`] follows.
    pub fn begin_retry(&mut self, batch: &mut Batch<'_, '_>) {
        (self.is_retrying, self.is_blocked) = (true, false);
        let n = batch.limit().min(self.waiting.len());
        for (i, waiting) in self.waiting.drain(..n).enumerate() {
            batch.packets.push(waiting.packet);
            batch.keys[i] = waiting.key;
            batch.origins[i] = Origin { arrival: i as u32, depth: waiting.depth };
            batch.conns[i] = waiting.conn;
        }
        batch.begin_recirculated();
    }

    /// Puts those that have to wait again in front of the others.
    pub fn end_retry(&mut self) {
        self.is_retrying = false;
        while let Some(waiting) = self.again.pop() {
            self.waiting.push_front(waiting);
        }
    }

    /// Drops all.
    pub fn drop_all(&mut self, buffers: &mut Buffers, tally: &mut Tally) {
        self.is_blocked = false;
        let n = self.waiting.len();
        tally[Counter::Released] += n as u64;
        tally[Counter::Passes] += n as u64;
        tally[Counter::UpcallsLost] += n as u64;
        tally.drop(DropReason::UpcallLost, n);
        buffers.give(self.waiting.drain(..).map(|waiting| waiting.packet));
    }
}
