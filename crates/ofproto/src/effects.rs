//! Effects of translations, on their way to the control thread, which alone changes tables.
//!
//! A PMD must not wait, so a translation puts its effects into a bounded queue. An effect that does not fit is lost and
//! counted. The next packet, or the revalidator when it credits the megaflow's packets, causes the same effect again.

use crate::bridge_config::BridgeId;
use crate::rule::Rule;
use parking_lot::Mutex;
use sluice_flow::{Mac, OfPort};
use sluice_ofp::FlowMod;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Effects that wait at most.
const MAX_WAITING: usize = 4096;

/// A change of the tables that packets cause.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// An address sent a packet from a port.
    LearnMac { bridge: BridgeId, vlan: u16, mac: Mac, port: OfPort, now_ms: u64 },
    /// A `learn` action makes a rule.
    Learn { bridge: BridgeId, flow: Arc<FlowMod>, limit: u32, now_ms: u64 },
    /// A TCP connection of a rule with `fin_timeout` is closing.
    LowerTimeouts { bridge: BridgeId, rule: Arc<Rule>, idle: u16, hard: u16 },
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

#[derive(Debug)]
pub(crate) struct EffectQueue {
    put: SyncSender<Effect>,
    take: Mutex<Receiver<Effect>>,
    queued: AtomicU64,
    done: AtomicU64,
    lost: AtomicU64,
}

impl Default for EffectQueue {
    fn default() -> Self {
        let (put, take) = sync_channel(MAX_WAITING);
        EffectQueue { put, take: Mutex::new(take), queued: 0.into(), done: 0.into(), lost: 0.into() }
    }
}

impl EffectQueue {
    pub fn put(&self, effect: Effect) {
        let count = if self.put.try_send(effect).is_ok() { &self.queued } else { &self.lost };
        count.fetch_add(1, Relaxed);
    }

    /// The waiting effects, at most [`MAX_WAITING`]: effects carried out meanwhile may cause others.
    pub fn take(&self) -> Vec<Effect> {
        let take = self.take.lock();
        let out: Vec<_> = take.try_iter().take(MAX_WAITING).collect();
        self.done.fetch_add(out.len() as u64, Relaxed);
        out
    }

    pub fn read(&self) -> EffectStats {
        EffectStats { queued: self.queued.load(Relaxed), done: self.done.load(Relaxed), lost: self.lost.load(Relaxed) }
    }
}
