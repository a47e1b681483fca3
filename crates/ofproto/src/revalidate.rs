//! The revalidator: it credits the packets of megaflows and deletes megaflows that are idle or wrong.
//!
//! A dump visits every megaflow. It credits the packets since the last dump, deletes megaflows that have been idle for
//! too long, and translates the packet of a suspended megaflow again. If the new translation has the same actions and
//! looks at no bit outside the megaflow's mask, the megaflow is resumed. With other actions it is modified and keeps its
//! statistics. If the new translation looks at more bits, the megaflow is deleted, and the next packet makes a better one. Packets that come before the dump make upcalls and have the same effect.
//!
//! When the store is nearly full, the least recently used megaflows are deleted as well.
//!
//! A megaflow that a user put by hand is looked at in the first dump after that, as if it were suspended.
//!
//! The packet that is translated again is the one that made the megaflow, with all its bits. Masked by the megaflow's
//! mask it could be a packet that cannot exist.

use crate::effects::Effect;
use crate::ofproto::Ofproto;
use crate::xlate::{Translator, XlateIn, XlateStart};
use crate::xlate_cache::{Push, XcEntry, XlateCache, judged, push, recirc_ids};
use crate::xlate_cache_size::merge;
use sluice_action::{FlowDump, FlowId, FlowModification, FlowStats, MegaflowStore, Translation, XcacheHandle};
use sluice_flow::PacketKey;
use std::sync::Arc;

/// The idle timeout of megaflows, by default.
/// Source: OVS ofproto/ofproto.h, OFPROTO_MAX_IDLE_DEFAULT.
pub const DEFAULT_MAX_IDLE_MS: u64 = 10_000;

/// Side effects collected at most before they are carried out.
const EFFECTS_MAX: usize = 4096;

/// What a revalidation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RevalidateStats {
    /// Megaflows visited.
    pub dumped: usize,
    /// Of those, translated again.
    pub translated: usize,
    /// Deleted because they were idle.
    pub idle: usize,
    /// Modified because the tables have changed.
    pub modified: usize,
    /// Deleted because the tables have changed.
    pub changed: usize,
    /// Deleted because the store was nearly full.
    pub evicted: usize,
}

/// What revalidation decided about a megaflow; `enum reval_result` in Open vSwitch.
enum RevalResult {
    /// Keep it: at this epoch the tables say the same. Its packets have these effects from now on.
    Keep(u64, Box<[XcEntry]>),
    /// Delete it: nothing has used it for too long.
    Idle,
    /// Modify it: the tables say something else of the same packets.
    Modify(Box<Translation>),
    /// Delete it: the tables distinguish packets that it has together.
    Changed,
}

/// A megaflow to delete.
pub(crate) struct ExpiredFlow {
    pub id: FlowId,
    pub xcache: XcacheHandle,
    /// Nothing used it; otherwise the tables changed.
    pub is_idle: bool,
}

/// A megaflow to modify.
struct ChangedFlow {
    id: FlowId,
    xcache: XcacheHandle,
    mask: PacketKey,
    translation: Box<Translation>,
}

/// A megaflow that stays unless the store is nearly full.
struct LiveFlow {
    used_ms: u64,
    id: FlowId,
    xcache: XcacheHandle,
    bytes: u64,
}

impl Ofproto {
    /// Dumps the megaflows, credits their packets, and deletes those that are idle or that the tables contradict.
    pub fn revalidate(&self, store: &dyn MegaflowStore, now_ms: u64, max_idle_ms: u64) -> RevalidateStats {
        self.0.dependencies.lock().catch_up(store);
        let mut done = RevalidateStats::default();
        let mut effects = Vec::new();
        let (mut expired, mut live, mut modified) = (Vec::new(), Vec::new(), Vec::new());
        store.for_each(&mut |flow| {
            done.dumped += 1;
            let Some(xcache) = flow.xcache.0.downcast_ref::<XlateCache>() else { return };
            self.log_flow_dump(flow, xcache, now_ms);
            xcache.lock().credit(flow.stats, |effect| effects.push(effect));
            if effects.len() >= EFFECTS_MAX {
                self.apply(&mut self.writer(), effects.drain(..));
            }
            let used_ms = flow.used_ms();
            let result = if now_ms > used_ms.saturating_add(max_idle_ms) {
                RevalResult::Idle
            } else if flow.is_suspended || suspend_unjudged(store, flow.id, xcache) {
                done.translated += 1;
                self.revalidate_flow(xcache, flow, now_ms)
            } else {
                return live.push(LiveFlow { used_ms, id: flow.id, xcache: flow.xcache.clone(), bytes: flow.bytes });
            };
            let is_idle = match result {
                RevalResult::Keep(epoch, entries) => return self.resume_flow(store, flow.id, xcache, epoch, entries),
                RevalResult::Modify(translation) => {
                    let (id, xcache, mask) = (flow.id, flow.xcache.clone(), *flow.mask);
                    return modified.push(ChangedFlow { id, xcache, mask, translation });
                }
                RevalResult::Idle => true,
                RevalResult::Changed => false,
            };
            expired.push(ExpiredFlow { id: flow.id, xcache: flow.xcache.clone(), is_idle });
        });
        done.modified = self.modify_flows(store, modified, &mut expired, &mut effects);
        done.idle = expired.iter().filter(|flow| flow.is_idle).count();
        done.changed = expired.len() - done.idle;
        if is_nearly_full(store) {
            done.evicted = evict(store, live, &mut expired);
        }
        self.delete_flows(store, expired, &mut effects);
        done
    }

    /// Credits rules, groups and tables with what megaflows have carried until now. It translates no megaflow again and
    /// deletes none. Not to be called while a revalidation is under way: what one of them reads later is more. Returns
    /// how many megaflows there are.
    pub fn credit_megaflows(&self, store: &dyn MegaflowStore) -> usize {
        let (mut dumped, mut effects) = (0, Vec::new());
        store.for_each(&mut |flow| {
            dumped += 1;
            let Some(xcache) = flow.xcache.0.downcast_ref::<XlateCache>() else { return };
            xcache.lock().credit(flow.stats, |effect| effects.push(effect));
            if effects.len() >= EFFECTS_MAX {
                self.apply(&mut self.writer(), effects.drain(..));
            }
        });
        self.delete_flows(store, Vec::new(), &mut effects);
        dumped
    }

    /// Deletes every megaflow; returns how many there were.
    pub fn purge(&self, store: &dyn MegaflowStore) -> usize {
        let mut flows = Vec::new();
        store.for_each(&mut |flow| {
            flows.push(ExpiredFlow { id: flow.id, xcache: flow.xcache.clone(), is_idle: false });
        });
        let count = flows.len();
        self.delete_flows(store, flows, &mut Vec::new());
        count
    }

    /// Translates a megaflow's packet again and compares.
    fn revalidate_flow(&self, xcache: &XlateCache, flow: &FlowDump<'_>, now_ms: u64) -> RevalResult {
        let epoch = self.epoch();
        let key = xcache.key();
        let start = XlateStart::Datapath(&key);
        let xin = XlateIn {
            start,
            now_ms,
            side_effects: false,
            packet_len: None,
            actions: None,
            in_packet_out: false,
            may_wait: true,
        };
        let state = self.state();
        let mut mask = PacketKey::ZERO;
        let Some(xout) = Translator::run(&state, &self.0, &xin, &mut mask, None) else { return RevalResult::Changed };
        drop(state);
        if !xout.cacheable || !is_within(&mask, flow.mask) {
            return RevalResult::Changed;
        }
        if xout.actions[..] == flow.actions[..] && xout.no_output == flow.no_output {
            return RevalResult::Keep(epoch, merge(xout.xcache));
        }
        if looks_up_what_it_learns(&xout.xcache) {
            return RevalResult::Changed;
        }
        let entries = if xcache.lock().put().is_some() { judged(xout.xcache) } else { xout.xcache };
        RevalResult::Modify(Box::new(Translation {
            mask,
            actions: xout.actions.into(),
            no_output: xout.no_output,
            version: epoch,
            cacheable: true,
            xcache: XcacheHandle(Arc::new(XlateCache::new(&key, entries, self.flow_memory()))),
        }))
    }

    /// Gives megaflows other actions; returns how many. Those that cannot have them, because the tables have changed
    /// again or there is no room, are `expired`.
    fn modify_flows(
        &self,
        store: &dyn MegaflowStore,
        flows: Vec<ChangedFlow>,
        expired: &mut Vec<ExpiredFlow>,
        effects: &mut Vec<Effect>,
    ) -> usize {
        let mut count = 0;
        for ChangedFlow { id, xcache, mask, translation } in flows {
            let is_current = &mut || self.epoch() == translation.version;
            let modification = &mut FlowModification { translation: &translation, is_current };
            let Some(carried) = store.modify(id, &xcache, modification) else {
                expired.push(ExpiredFlow { id, xcache, is_idle: false });
                continue;
            };
            count += 1;
            if let Some(xcache) = xcache.0.downcast_ref::<XlateCache>() {
                self.log_flow_modify(&xcache.key(), &mask, &translation.actions);
                self.credit_last(xcache, carried, effects);
            }
        }
        if count != 0 {
            self.0.recirculations.unshare();
        }
        count
    }

    /// Credits what a megaflow has carried to a translation that it has no longer.
    pub(crate) fn credit_last(&self, xcache: &XlateCache, carried: FlowStats, effects: &mut Vec<Effect>) {
        let mut inner = xcache.lock();
        inner.credit(carried, |effect| effects.push(effect));
        self.0.recirculations.note_dropped(recirc_ids(inner.entries()));
    }

    /// Lets lookups find a suspended megaflow again, unless the tables have changed since `epoch`: then the next dump
    /// looks at it again. The entries are written while the store is locked, as `renew` writes them, so that the newer
    /// ones stay.
    fn resume_flow(
        &self,
        store: &dyn MegaflowStore,
        id: FlowId,
        xcache: &XlateCache,
        epoch: u64,
        mut entries: Box<[XcEntry]>,
    ) {
        store.resume(id, &mut || {
            let is_current = self.epoch() == epoch;
            if is_current {
                xcache.lock().replace(std::mem::take(&mut entries));
            }
            is_current
        });
    }

    /// Removes a megaflow from the store and from the index of dependencies, which cannot meanwhile learn of another
    /// one with its id.
    fn remove_flow(&self, store: &dyn MegaflowStore, flow: &ExpiredFlow) -> Option<FlowStats> {
        let mut index = self.0.dependencies.lock();
        let stats = store.remove_same(flow.id, &flow.xcache);
        if stats.is_some() {
            index.forget(flow.id);
        }
        stats
    }

    pub(crate) fn delete_flows(&self, store: &dyn MegaflowStore, flows: Vec<ExpiredFlow>, effects: &mut Vec<Effect>) {
        let deletes = !flows.is_empty();
        for flow in flows {
            let Some(stats) = self.remove_flow(store, &flow) else { continue };
            if let Some(xcache) = flow.xcache.0.downcast_ref::<XlateCache>() {
                self.credit_last(xcache, stats, effects);
            }
        }
        store.settle(&mut |xcache, stats| {
            let Some(xcache) = xcache.0.downcast_ref::<XlateCache>() else { return };
            let late = Push {
                packets: stats.packets,
                bytes: stats.bytes,
                tcp_flags: stats.tcp_flags,
                used_ms: stats.used_ms.unwrap_or(stats.created_ms),
            };
            push(xcache.lock().entries(), late, |effect| effects.push(effect));
        });
        if deletes {
            self.0.recirculations.unshare();
            self.0.dependencies.lock().sweep();
        }
        self.apply(&mut self.writer(), effects.drain(..));
    }
}

/// Suspends a megaflow that a user put by hand and that nobody has compared with the tables yet, so that it is judged as
/// one that has changed; whether it is such a one.
fn suspend_unjudged(store: &dyn MegaflowStore, id: FlowId, xcache: &XlateCache) -> bool {
    let is_unjudged = xcache.lock().put() == Some(false);
    is_unjudged && store.suspend(Some(&[id]), &mut |_, _, _| true) != 0
}

/// Whether more than seven eighths of the store, or of the memory for megaflows, are in use.
fn is_nearly_full(store: &dyn MegaflowStore) -> bool {
    let capacity = store.capacity();
    store.len() > capacity - capacity / 8 || store.memory().is_nearly_full()
}

/// Adds the least recently used megaflows to `expired`, until another eighth of the capacity and of the memory is free;
/// returns how many.
fn evict(store: &dyn MegaflowStore, mut live: Vec<LiveFlow>, expired: &mut Vec<ExpiredFlow>) -> usize {
    let by_count = (store.len() + store.capacity() / 4).saturating_sub(store.capacity() + expired.len());
    let limit = store.memory().limit();
    let mut excess = store.memory().used().saturating_sub(limit - limit / 4);
    if by_count > 0 || excess > 0 {
        live.sort_unstable_by_key(|flow| (flow.used_ms, flow.id));
    }
    let is_surplus = |(i, flow): &(usize, &LiveFlow)| {
        let evicts = *i < by_count || excess > 0;
        excess = excess.saturating_sub(flow.bytes);
        evicts
    };
    let surplus = live.iter().enumerate().take_while(is_surplus).count();
    live.truncate(surplus);
    expired.extend(live.into_iter().map(|flow| ExpiredFlow { id: flow.id, xcache: flow.xcache, is_idle: true }));
    surplus
}

/// Whether a translation looks up an address that its packets teach: with the packet that teaches it the answer is
/// another one than here, where nothing is learned.
fn looks_up_what_it_learns(entries: &[XcEntry]) -> bool {
    entries.iter().any(|entry| match *entry {
        XcEntry::MacLearn { bridge, vlan, mac, .. } => {
            let is_it = |other: &XcEntry| {
                matches!(*other, XcEntry::MacLookup { bridge: b, vlan: v, mac: m } if (b, v, m) == (bridge, vlan, mac))
            };
            entries.iter().any(is_it)
        }
        _ => false,
    })
}

/// Whether every bit of `mask` is in `of`.
fn is_within(mask: &PacketKey, of: &PacketKey) -> bool {
    (0..sluice_flow::layout::PACKET_LINES).all(|i| {
        let (mut a, mut b) = (*mask.line(i), *of.line(i));
        if i == 0 {
            let presence = sluice_flow::layout::PRESENCE.offset;
            (a.0[presence], b.0[presence]) = (0, 0);
        }
        a.and(&b) == a
    })
}
