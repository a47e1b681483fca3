//! Keeping megaflows true.
//!
//! A dump visits every megaflow: it credits the packets since the last one to the rules of the xlate cache, deletes what has
//! idled too long, and translates the packet of those again that a change has suspended. The megaflow is resumed if the
//! new translation does the same and looks at no bit that the megaflow leaves open; else it goes, and the next packet
//! makes a better one. Packets that come before the dump ask the tables themselves.
//!
//! When the store is nearly full, those that have not been used for longest go, so that there is room for new ones.
//!
//! The packet that is translated again is the one that made the megaflow, whole, not cut down to the megaflow's mask:
//! it is a packet the megaflow stands for, and the zeros outside the mask might not be.

use crate::effects::Effect;
use crate::ofproto::Ofproto;
use crate::xlate::{Translator, XlateIn, XlateStart};
use crate::xlate_cache::{Push, XcEntry, XlateCache, push};
use sluice_action::{FlowDump, FlowId, MegaflowStore, XcacheHandle};
use sluice_flow::PacketKey;

/// How long an unused megaflow stays unless the configuration says otherwise.
/// Source: OVS ofproto/ofproto.h, OFPROTO_MAX_IDLE_DEFAULT.
pub const DEFAULT_MAX_IDLE_MS: u64 = 10_000;

/// Side effects that are collected before they are done.
const BATCH: usize = 4096;

/// What a dump did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RevalidateStats {
    /// Megaflows visited.
    pub dumped: usize,
    /// Of those, translated again.
    pub translated: usize,
    /// Deleted because nothing used them.
    pub idle: usize,
    /// Deleted because they do not hold any more.
    pub changed: usize,
    /// Deleted to make room.
    pub evicted: usize,
}

/// What a visit decided.
enum Verdict {
    /// It is true as of this epoch, and this is what its packets do from now on.
    Holds(u64, Box<[XcEntry]>),
    Idle,
    Changed,
}

/// Megaflows that must go, with what to credit when they have gone.
type Doomed = Vec<(FlowId, XcacheHandle, bool)>;

impl Ofproto {
    /// Visits every megaflow, credits its packets, and deletes it if it has idled or does not hold any more.
    pub fn revalidate(&self, store: &dyn MegaflowStore, now_ms: u64, max_idle_ms: u64) -> RevalidateStats {
        let mut done = RevalidateStats::default();
        let mut effects = Vec::new();
        let (mut doomed, mut live): (Doomed, _) = (Vec::new(), Vec::new());
        store.for_each(&mut |flow| {
            done.dumped += 1;
            let Some(record) = flow.xcache.0.downcast_ref::<XlateCache>() else { return };
            record.lock().credit(flow.stats, |effect| effects.push(effect));
            if effects.len() >= BATCH {
                self.apply(&mut self.writer(), effects.drain(..));
            }
            let used_ms = flow.stats.used_ms.unwrap_or(flow.stats.created_ms);
            let verdict = if now_ms > used_ms.saturating_add(max_idle_ms) {
                Verdict::Idle
            } else if flow.is_suspended {
                done.translated += 1;
                self.judge(record, flow, now_ms)
            } else {
                return live.push((used_ms, flow.id, flow.xcache.clone()));
            };
            let idle = match verdict {
                Verdict::Holds(epoch, mut events) => {
                    // If it cannot be resumed, something has changed again, and the next dump sees to it. The events are
                    // written with the store locked, as `renew` does: whichever is the newer stays.
                    store.resume(flow.id, &mut || {
                        let is_current = self.epoch() == epoch;
                        if is_current {
                            record.lock().entries = std::mem::take(&mut events);
                        }
                        is_current
                    });
                    return;
                }
                Verdict::Idle => true,
                Verdict::Changed => false,
            };
            doomed.push((flow.id, flow.xcache.clone(), idle));
        });
        if is_nearly_full(store) {
            done.evicted = evict(store, live, &mut doomed);
        }
        for (_, _, idle) in doomed.iter().skip(done.evicted) {
            let count = if *idle { &mut done.idle } else { &mut done.changed };
            *count += 1;
        }
        self.remove(store, doomed, &mut effects);
        done
    }

    /// Deletes every megaflow; how many.
    pub fn purge(&self, store: &dyn MegaflowStore) -> usize {
        let mut doomed: Doomed = Vec::new();
        store.for_each(&mut |flow| doomed.push((flow.id, flow.xcache.clone(), false)));
        let count = doomed.len();
        self.remove(store, doomed, &mut Vec::new());
        count
    }

    /// Translates a megaflow's packet again.
    fn judge(&self, record: &XlateCache, flow: &FlowDump<'_>, now_ms: u64) -> Verdict {
        let epoch = self.epoch();
        let xin = XlateIn { start: XlateStart::Datapath(&record.key()), now_ms, side_effects: false, actions: None };
        let state = self.state();
        let Some(xout) = Translator::run(&state, &self.0, &xin, None) else { return Verdict::Changed };
        drop(state);
        let holds = xout.cacheable
            && xout.actions[..] == flow.actions[..]
            && xout.no_output == flow.no_output
            && is_within(&xout.mask, flow.mask);
        if !holds {
            return Verdict::Changed;
        }
        Verdict::Holds(epoch, xout.xcache.into_boxed_slice())
    }

    fn remove(&self, store: &dyn MegaflowStore, doomed: Doomed, effects: &mut Vec<Effect>) {
        for (id, xcache, _) in doomed {
            let (Some(stats), Some(record)) = (store.remove_same(id, &xcache), xcache.0.downcast_ref::<XlateCache>())
            else {
                continue;
            };
            record.lock().credit(stats, |effect| effects.push(effect));
        }
        store.settle(&mut |xcache, stats| {
            let Some(record) = xcache.0.downcast_ref::<XlateCache>() else { return };
            let late = Push {
                packets: stats.packets,
                bytes: stats.bytes,
                tcp_flags: stats.tcp_flags,
                used_ms: stats.used_ms.unwrap_or(stats.created_ms),
            };
            push(&record.lock().entries, late, |effect| effects.push(effect));
        });
        self.apply(&mut self.writer(), effects.drain(..));
    }
}

/// Whether new megaflows may soon find no room: seven eighths are taken.
fn is_nearly_full(store: &dyn MegaflowStore) -> bool {
    let capacity = store.capacity();
    store.len() > capacity - capacity / 8
}

/// Dooms the megaflows that have not been used for longest, until an eighth of the room more is free; how many. They are
/// put in front.
fn evict(store: &dyn MegaflowStore, mut live: Vec<(u64, FlowId, XcacheHandle)>, doomed: &mut Doomed) -> usize {
    let surplus = (store.len() + store.capacity() / 4).saturating_sub(store.capacity() + doomed.len());
    let surplus = surplus.min(live.len());
    if surplus < live.len() {
        live.select_nth_unstable_by_key(surplus, |(used_ms, id, _)| (*used_ms, *id));
    }
    live.truncate(surplus);
    doomed.splice(0..0, live.into_iter().map(|(_, id, xcache)| (id, xcache, true)));
    surplus
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
