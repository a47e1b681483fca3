//! Effects of translations, on their way to the control thread, which alone changes tables.
//!
//! A PMD must not wait, so a translation puts its effects into a bounded queue. An effect that does not fit is lost and
//! counted. The next packet, or the revalidator when it credits the megaflow's packets, causes the same effect again.
//!
//! The control thread looks at the queue at intervals of its own while there is much to do. Before it sleeps longer, it asks
//! to be woken by the next effect ([`EffectQueue::await_next`]): so effects cost a wake-up only while there are few.

use crate::bridge_config::BridgeId;
use crate::mac::LearnPacket;
use crate::rule::Rule;
use parking_lot::Mutex;
use sluice_fate::{FairRoom, Limit};
use sluice_flow::{Mac, OfPort};
use sluice_ofp::FlowMod;
use sluice_sync::WakeWish;
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

/// Effects of a port that wait at most.
const MAX_WAITING: usize = 4096;

/// A change of the tables that packets cause.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// An address sent a packet from a port.
    LearnMac { bridge: BridgeId, vlan: u16, mac: Mac, port: OfPort, packet: LearnPacket, now_ms: u64 },
    /// A `learn` action makes a rule of a packet that came by that port.
    Learn { bridge: BridgeId, port: OfPort, flow: Arc<FlowMod>, limit: u32, now_ms: u64 },
    /// A neighbour in a bridge's network has shown its address.
    Neighbour { bridge: BridgeId, ip: Ipv6Addr, mac: Mac, now_ms: u64 },
    /// A TCP connection of a rule with `fin_timeout` is closing.
    LowerTimeouts { bridge: BridgeId, rule: Arc<Rule>, idle: u16, hard: u16 },
}

impl Effect {
    /// Whose part of the queue it takes: the port's by which the packet came, or the bridge's where that is not known.
    fn party(&self) -> usize {
        let (bridge, port) = match self {
            Effect::LearnMac { bridge, port, .. } | Effect::Learn { bridge, port, .. } => (bridge, *port),
            Effect::Neighbour { bridge, .. } | Effect::LowerTimeouts { bridge, .. } => (bridge, OfPort::LOCAL),
        };
        (bridge.0 as usize).wrapping_mul(31).wrapping_add(port.0.into())
    }
}

/// Counters of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EffectStats {
    /// Effects queued so far.
    pub queued: u64,
    /// Effects carried out so far.
    pub done: u64,
    /// Effects lost because the queue was full.
    pub lost: u64,
}

pub(crate) struct EffectQueue {
    put: SyncSender<Effect>,
    /// How much of the queue each port has.
    room: FairRoom,
    take: Mutex<Receiver<Effect>>,
    queued: AtomicU64,
    done: AtomicU64,
    lost: AtomicU64,
    /// Wakes the control thread.
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Whether the next effect is to wake it.
    wish: WakeWish,
}

impl Default for EffectQueue {
    fn default() -> Self {
        let room = FairRoom::new(MAX_WAITING);
        let (put, take) = sync_channel(room.capacity());
        EffectQueue {
            put,
            room,
            take: Mutex::new(take),
            queued: 0.into(),
            done: 0.into(),
            lost: 0.into(),
            waker: OnceLock::new(),
            wish: WakeWish::new(),
        }
    }
}

impl EffectQueue {
    pub fn put(&self, effect: Effect) {
        let count = if self.try_put(effect) {
            &self.queued
        } else {
            Limit::Effects.hit();
            &self.lost
        };
        count.fetch_add(1, Relaxed);
        self.wake_if_awaited();
    }

    fn try_put(&self, effect: Effect) -> bool {
        let party = effect.party();
        let is_in = self.room.enter(party);
        let is_put = is_in && self.put.try_send(effect).is_ok();
        if is_in && !is_put {
            self.room.leave(party);
        }
        is_put
    }

    /// Sets what wakes the control thread. Only the first call has an effect.
    pub fn set_waker(&self, waker: Box<dyn Fn() + Send + Sync>) {
        self.waker.get_or_init(|| waker);
    }

    /// The next effect wakes the control thread; at once if one waits already.
    pub fn await_next(&self) {
        self.wish.wish();
        if self.queued.load(Relaxed) != self.done.load(Relaxed) {
            self.wake_if_awaited();
        }
    }

    /// Wakes the control thread, if it asked to be, for what was put down before.
    pub fn wake_if_awaited(&self) {
        if self.wish.take()
            && let Some(waker) = self.waker.get()
        {
            waker();
        }
    }

    /// The waiting effects, at most as many as may wait: effects carried out meanwhile may cause others.
    pub fn take(&self) -> Vec<Effect> {
        let take = self.take.lock();
        let out: Vec<_> = take.try_iter().take(self.room.capacity()).collect();
        out.iter().for_each(|effect| self.room.leave(effect.party()));
        self.done.fetch_add(out.len() as u64, Relaxed);
        out
    }

    /// How many effects wait of the port with most, and how many of one may.
    pub fn usage(&self) -> (usize, usize) {
        self.room.usage()
    }

    pub fn read(&self) -> EffectStats {
        EffectStats { queued: self.queued.load(Relaxed), done: self.done.load(Relaxed), lost: self.lost.load(Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learn() -> Effect {
        let packet = LearnPacket::default();
        Effect::LearnMac { bridge: BridgeId(0), vlan: 0, mac: Mac([2; 6]), port: OfPort(1), packet, now_ms: 0 }
    }

    #[test]
    fn an_effect_wakes_once_for_each_time_that_it_is_awaited() {
        let queue = EffectQueue::default();
        let woken = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&woken);
        queue.set_waker(Box::new(move || {
            count.fetch_add(1, Relaxed);
        }));
        let woken = || woken.load(Relaxed);
        queue.put(learn());
        assert_eq!(woken(), 0, "nobody waits");
        queue.await_next();
        assert_eq!(woken(), 1, "one was there already");
        assert_eq!(queue.take().len(), 1);
        queue.await_next();
        assert_eq!(woken(), 1);
        (0..3).for_each(|_| queue.put(learn()));
        assert_eq!(woken(), 2);
    }
}
