//! Keeping megaflows true.
//!
//! A dump visits every megaflow: it credits the packets since the last one to the rules of the trail, deletes what has
//! idled too long, and, where something changed since the megaflow was last known to hold, translates its packet
//! again. The megaflow stays if the new translation does the same and looks at no bit that the megaflow leaves open;
//! else it goes, and the next packet makes a better one.
//!
//! The packet that is translated again is the one that made the megaflow, whole, not cut down to the megaflow's mask:
//! it is a packet the megaflow stands for, and the zeros outside the mask might not be.

use crate::effects::Effect;
use crate::ofproto::Ofproto;
use crate::trail::{Inner, Push, TrailRecord, push};
use crate::xlate::{Question, Start, Translator};
use sluice_action::{FlowId, FlowStats, MegaflowStore, Trail, Visited};
use sluice_flow::PacketKey;

/// How long an unused megaflow stays unless the configuration says otherwise.
/// Source: OVS ofproto/ofproto.h, OFPROTO_MAX_IDLE_DEFAULT.
pub const DEFAULT_MAX_IDLE_MS: u64 = 10_000;

/// Side effects that are collected before they are done.
const BATCH: usize = 4096;

/// What a dump did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revalidated {
    /// Megaflows visited.
    pub dumped: usize,
    /// Of those, translated again.
    pub translated: usize,
    /// Deleted because nothing used them.
    pub idle: usize,
    /// Deleted because they do not hold any more.
    pub changed: usize,
}

/// What a visit decided.
enum Verdict {
    Keep,
    Idle,
    Changed,
}

/// Megaflows that must go, with what to credit when they have gone.
type Doomed = Vec<(FlowId, Trail, bool)>;

impl Ofproto {
    /// Visits every megaflow, credits its packets, and deletes it if it has idled or does not hold any more.
    pub fn revalidate(&self, store: &dyn MegaflowStore, now_ms: u64, max_idle_ms: u64) -> Revalidated {
        let mut done = Revalidated::default();
        let mut effects = Vec::new();
        let mut doomed: Doomed = Vec::new();
        store.for_each(&mut |flow| {
            done.dumped += 1;
            let Some(record) = flow.trail.0.downcast_ref::<TrailRecord>() else { return };
            let mut inner = record.lock();
            credit(&mut inner, flow.stats, &mut effects);
            if effects.len() >= BATCH {
                self.apply(&mut self.writer(), effects.drain(..));
            }
            let idle_since = flow.stats.used_ms.unwrap_or(flow.stats.created_ms);
            let verdict = if now_ms > idle_since.saturating_add(max_idle_ms) {
                Verdict::Idle
            } else if inner.epoch == self.epoch() {
                Verdict::Keep
            } else {
                done.translated += 1;
                self.judge(record, &mut inner, flow, now_ms)
            };
            let idle = match verdict {
                Verdict::Keep => return,
                Verdict::Idle => true,
                Verdict::Changed => false,
            };
            doomed.push((flow.id, flow.trail.clone(), idle));
        });
        for (_, _, idle) in &doomed {
            let count = if *idle { &mut done.idle } else { &mut done.changed };
            *count += 1;
        }
        self.remove(store, doomed, &mut effects);
        done
    }

    /// Deletes every megaflow; how many.
    pub fn purge(&self, store: &dyn MegaflowStore) -> usize {
        let mut doomed: Doomed = Vec::new();
        store.for_each(&mut |flow| doomed.push((flow.id, flow.trail.clone(), false)));
        let count = doomed.len();
        self.remove(store, doomed, &mut Vec::new());
        count
    }

    /// Translates a megaflow's packet again.
    fn judge(&self, record: &TrailRecord, inner: &mut Inner, flow: &Visited<'_>, now_ms: u64) -> Verdict {
        let epoch = self.epoch();
        let question = Question { start: Start::Datapath(&record.key()), now_ms, side_effects: false, actions: None };
        let state = self.state();
        let Some(outcome) = Translator::run(&state, &self.0, &question, None) else { return Verdict::Changed };
        drop(state);
        let holds = outcome.cacheable
            && outcome.actions == *flow.actions
            && outcome.no_output == flow.no_output
            && is_within(&outcome.mask, flow.mask);
        if !holds {
            return Verdict::Changed;
        }
        inner.events = outcome.trail.into_boxed_slice();
        inner.epoch = epoch;
        Verdict::Keep
    }

    fn remove(&self, store: &dyn MegaflowStore, doomed: Doomed, effects: &mut Vec<Effect>) {
        for (id, trail, _) in doomed {
            let (Some(stats), Some(record)) = (store.remove(id), trail.0.downcast_ref::<TrailRecord>()) else {
                continue;
            };
            credit(&mut record.lock(), stats, effects);
        }
        store.settle(&mut |trail, stats| {
            let Some(record) = trail.0.downcast_ref::<TrailRecord>() else { return };
            let late = Push {
                packets: stats.packets,
                bytes: stats.bytes,
                tcp_flags: stats.tcp_flags,
                used_ms: stats.used_ms.unwrap_or(stats.created_ms),
            };
            push(&record.lock().events, late, |effect| effects.push(effect));
        });
        self.apply(&mut self.writer(), effects.drain(..));
    }
}

/// Credits what a megaflow has carried since it was last credited.
fn credit(inner: &mut Inner, stats: FlowStats, effects: &mut Vec<Effect>) {
    let (packets, bytes) = inner.credited;
    let news = Push {
        packets: stats.packets.saturating_sub(packets),
        bytes: stats.bytes.saturating_sub(bytes),
        tcp_flags: stats.tcp_flags,
        used_ms: stats.used_ms.unwrap_or(stats.created_ms),
    };
    inner.credited = (stats.packets, stats.bytes);
    push(&inner.events, news, |effect| effects.push(effect));
}

/// Whether `mask` has no bit that `of` lacks.
fn is_within(mask: &PacketKey, of: &PacketKey) -> bool {
    (0..4).all(|i| {
        let (mut a, mut b) = (*mask.line(i), *of.line(i));
        if i == 0 {
            let presence = sluice_flow::layout::PRESENCE.offset;
            (a.0[presence], b.0[presence]) = (0, 0);
        }
        a.and(&b) == a
    })
}
