//! Deferred upcalls: packets that missed while a control thread had the tables, or when the misses of their queue had taken
//! their quantum.
//!
//! A PMD that waits forwards nothing, and a control thread that has lost its core keeps the tables for milliseconds. So a
//! PMD does not wait: it defers such packets, polls on, and forwards what it knows. Beside each poll of the queue that they
//! came by, the first of them repeat the pass in which they missed. And a batch of misses takes long, so that those
//! behind the first few wait likewise until the PMD has polled again (`misses.rs`).
//!
//! **Order.** While packets of a queue wait, all others of it that miss wait behind them, even if the tables are free by
//! then. When the first of a flow's packets installs its megaflow the rest follow at once, before a packet that comes could
//! overtake them. So packets of a flow that have no megaflow keep their order. If a packet of another queue or another thread
//! installs the flow's megaflow meanwhile, packets that hit may overtake those that wait, as in Open vSwitch a packet that
//! hits overtakes those whose upcall is under way.
//!
//! **Bound.** Each queue has a bound of its own, so that no queue takes the place of another. Beyond it a packet is dropped
//! with a reason while the tables are locked. Once they are free, polls take few packets as long as many wait; the others
//! wait where they always do, in the device.

use crate::batch::{Batch, Origin};
use sluice_action::agree_under;
use sluice_conntrack::CachedConn;
use sluice_fate::{Counter, DropReason, Tally};
use sluice_flow::PacketKey;
use sluice_packet::{BATCH_MAX, Buffers, Packet};
use std::collections::VecDeque;

/// Packets of one queue that wait at most: what a sender of ten million packets a second, all misses, sends in 25 µs, which
/// is a piece of a change; or what one of a hundred thousand sends in 2.5 ms, for which the scheduler may keep the holder
/// of the lock from its core.
pub(crate) const DEFERRED_MAX: usize = 256;

/// What drivers that receive by vectors take at least: asked for fewer packets, they give none.
const RECEIVED_TOGETHER: usize = 8;

/// How many packets ask again together. A quantum is used up after a few misses, and the packets behind them have been moved
/// in vain.
const RETRIED_TOGETHER: usize = 8;

/// If at least this many packets wait, polls take few. Each miss compares its megaflow with all packets that wait.
const MANY: usize = 2 * BATCH_MAX;

/// The packets of one queue that wait for the tables, the oldest first. Without memory until one waits.
#[derive(Debug, Default)]
pub(crate) struct DeferredUpcalls {
    waiting: VecDeque<Waiting>,
    /// Those that wait again after a retry: older than `waiting`.
    again: Vec<Waiting>,
    /// Packets of megaflows that the retry has installed.
    followers: VecDeque<Waiting>,
    /// Retries since the queue was polled.
    retries: u32,
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

impl DeferredUpcalls {
    /// Whether none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a packet that misses has to wait, because the tables were busy or older ones wait.
    pub fn must_wait(&self) -> bool {
        self.is_blocked || !self.is_retrying && !self.is_empty()
    }

    /// Lets packets behind the retry follow it that agree with this key under the mask of a megaflow just installed.
    pub fn release(&mut self, mask: &PacketKey, key: &PacketKey) {
        let follows = |waiting: &Waiting| agree_under(mask, key, &waiting.key);
        if !self.is_retrying || !self.waiting.iter().any(follows) {
            return;
        }
        for _ in 0..self.waiting.len() {
            let Some(waiting) = self.waiting.pop_front() else { break };
            let to = if follows(&waiting) { &mut self.followers } else { &mut self.waiting };
            to.push_back(waiting);
        }
    }

    /// Whether the tables were busy when a packet last asked.
    pub fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// The tables are busy.
    pub fn block(&mut self) {
        self.is_blocked = true;
    }

    /// How many packets the next poll may take, for batches of `limit` packets; possibly none. Where many wait a few are taken at
    /// every second retry, so that packets that have a megaflow do not wait for all the others.
    #[inline]
    pub fn room(&self, limit: usize) -> usize {
        if self.is_blocked || self.is_empty() {
            return limit;
        }
        let room = match self.waiting.len() {
            few @ ..MANY => MANY - few,
            many if self.retries >= 2 && many + RECEIVED_TOGETHER <= DEFERRED_MAX => RECEIVED_TOGETHER,
            _ => 0,
        };
        room.min(limit) / RECEIVED_TOGETHER * RECEIVED_TOGETHER
    }

    /// The queue is polled.
    pub fn note_poll(&mut self) {
        self.retries = 0;
    }

    /// Lets a packet wait that missed under this key. Gives it back if as many wait as may.
    pub fn push(&mut self, packet: Packet, key: PacketKey, origin: Origin, conn: CachedConn) -> Result<(), Packet> {
        if self.waiting.len() + self.followers.len() + self.again.len() >= DEFERRED_MAX {
            return Err(packet);
        }
        if self.waiting.capacity() == 0 {
            self.waiting.reserve_exact(DEFERRED_MAX);
        }
        let waiting = Waiting { packet, key, depth: origin.depth, conn };
        if self.is_retrying {
            self.again.push(waiting)
        } else {
            self.waiting.push_back(waiting)
        }
        Ok(())
    }

    /// Moves the first packets that wait into an empty batch. [`DeferredUpcalls::end_retry`] follows.
    pub fn begin_retry(&mut self, batch: &mut Batch<'_, '_>) {
        (self.is_retrying, self.is_blocked) = (true, false);
        move_first(&mut self.waiting, RETRIED_TOGETHER, batch);
    }

    /// Moves the next packets of a retry into an empty batch: first all that follow a megaflow, then others that wait. These are
    /// moved if they `may_ask` and no packet before them waits again. False if there are none.
    pub fn move_next(&mut self, may_ask: bool, batch: &mut Batch<'_, '_>) -> bool {
        if !self.followers.is_empty() {
            move_first(&mut self.followers, BATCH_MAX, batch);
        } else if may_ask && self.again.is_empty() {
            move_first(&mut self.waiting, RETRIED_TOGETHER, batch);
        }
        !batch.packets.is_empty()
    }

    /// Puts those that have to wait again in front of the others.
    pub fn end_retry(&mut self) {
        self.is_retrying = false;
        self.retries = self.retries.saturating_add(1);
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

/// Moves the first `max` of `queue` into an empty batch, each with its key and what earlier passes found.
fn move_first(queue: &mut VecDeque<Waiting>, max: usize, batch: &mut Batch<'_, '_>) {
    let n = max.min(batch.limit()).min(queue.len());
    for (i, waiting) in queue.drain(..n).enumerate() {
        batch.packets.push(waiting.packet);
        batch.keys[i] = waiting.key;
        batch.origins[i] = Origin { arrival: i as u32, depth: waiting.depth };
        batch.conns[i] = waiting.conn;
    }
    batch.begin_recirculated();
}
