//! Side effects of translations, on their way to the one thread that changes things.
//!
//! A PMD must not wait, so what its translation wants done is put into a bounded queue; what does not fit is lost and
//! counted. Nothing is lost for good: the next packet, or the revalidator when it books a megaflow's packets, asks for
//! the same again.

use crate::bridge::BridgeId;
use crate::mac::Mac;
use crate::rule::Rule;
use parking_lot::Mutex;
use sluice_flow::OfPort;
use sluice_ofp::FlowMod;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Side effects that wait at most.
const MAX_WAITING: usize = 4096;

/// Something to be done by the owner of the tables.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// A station sent from a port.
    Station { bridge: BridgeId, vlan: u16, mac: Mac, port: OfPort, now_ms: u64 },
    /// A rule to be learned.
    Learn { bridge: BridgeId, flow: Arc<FlowMod>, limit: u32, now_ms: u64 },
    /// A TCP connection is closing.
    LowerTimeouts { bridge: BridgeId, rule: Arc<Rule>, idle: u16, hard: u16 },
}

/// How the queue is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EffectStats {
    /// Side effects put in so far.
    pub queued: u64,
    /// Side effects done so far.
    pub done: u64,
    /// Side effects lost because the queue was full.
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

    /// What waits now, and no more than was waiting at most: effects cause effects.
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
