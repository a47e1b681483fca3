//! Upcalls: the handle with which a PMD translates packets.

use crate::bridge::SwitchState;
use crate::ofproto::Ofproto;
use crate::xlate::{Failure, Translator, XlateIn, XlateStart};
use crate::xlate_cache::{Push, XlateCache, push};
use arrayvec::ArrayVec;
use sluice_action::{Action, Actions, Fate, FlowStats, Miss, Translation, Upcall, XcacheHandle, show_packet_key};
use sluice_fate::DropReason;
use sluice_flow::{DEFAULT_PRIORITY, FlowKey, Match, PacketKey, PortNames};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Action lists that are remembered in order to share them.
const RECENT: usize = 16;

/// One PMD's access to the tables.
#[derive(Debug)]
pub struct UpcallHandle {
    ofproto: Ofproto,
    recent: RecentActions,
}

/// The most recent action lists. Most megaflows have the same actions as others and share one list.
#[derive(Debug, Default)]
struct RecentActions {
    lists: ArrayVec<Actions, RECENT>,
    /// The one that is replaced next.
    next: usize,
}

impl RecentActions {
    /// The remembered list that is equal; otherwise remembers and returns this one.
    fn share(&mut self, actions: Vec<Action>) -> Actions {
        if let Some(known) = self.lists.iter().find(|known| known[..] == actions[..]) {
            return known.clone();
        }
        let actions = Actions::from(actions);
        if self.lists.is_full() {
            self.lists[self.next] = actions.clone();
            self.next = (self.next + 1) % RECENT;
        } else {
            self.lists.push(actions.clone());
        }
        actions
    }
}

impl Ofproto {
    /// A handle for one PMD.
    pub fn upcall(&self) -> UpcallHandle {
        UpcallHandle { ofproto: self.clone(), recent: RecentActions::default() }
    }
}

/// Tells of an upcall as OVS's module `dpif_netdev` does.
#[inline]
fn log_miss(state: &SwitchState, key: &PacketKey) {
    if tracing::enabled!(target: "dpif_netdev", tracing::Level::DEBUG) {
        let bridge = state.port_of(key).and_then(|(id, _)| state.bridge(id));
        let datapath = bridge.map_or("", |bridge| &bridge.config.datapath_type);
        let packet = Match::of_packet(&FlowKey::of_packet(key));
        let packet = packet.display(&PortNames::NONE, DEFAULT_PRIORITY);
        let key = show_packet_key(key);
        tracing::debug!(target: "dpif_netdev", "ovs-{datapath}: miss upcall:\n{key}\n{packet}");
    }
}

impl Upcall for UpcallHandle {
    fn translate(&mut self, miss: &Miss<'_>) -> Fate {
        let shared = &*self.ofproto.0;
        if shared.flow_restore_wait.load(Relaxed) {
            return Fate::Failed(DropReason::UpcallLost);
        }
        let xin = XlateIn {
            start: XlateStart::Datapath(miss.key),
            now_ms: miss.now_ms,
            side_effects: true,
            packet_len: Some(miss.bytes.len()),
            actions: None,
            in_packet_out: false,
        };
        // The epoch is read first. A change in between makes the translation look older than it is, never newer.
        let version = self.ofproto.epoch();
        let state = self.ofproto.state_on_pmd();
        log_miss(&state, miss.key);
        let Some(xout) = Translator::run(&state, shared, &xin, None) else {
            return Fate::Failed(state.why_no_port(miss.key));
        };
        drop(state);
        if xout.failure.is_some_and(Failure::is_recursion) {
            self.ofproto.log_recursion(miss.key, miss.now_ms);
        }
        let mask = if shared.megaflows.load(Relaxed) { xout.mask } else { PacketKey::ONES };
        let record = XlateCache::new(miss.key, xout.xcache, self.ofproto.flow_memory());
        Fate::Translated(Translation {
            mask,
            actions: self.recent.share(xout.actions),
            no_output: xout.no_output,
            version,
            cacheable: xout.cacheable,
            xcache: XcacheHandle(Arc::new(record)),
        })
    }

    fn begin_batch(&mut self) {
        self.ofproto.set_asking(true);
    }

    fn end_batch(&mut self) {
        self.ofproto.set_asking(false);
    }

    fn is_current(&self, version: u64) -> bool {
        self.ofproto.epoch() == version
    }

    /// Takes only the locks of the xlate caches: the caller holds that of the store.
    fn renew(&self, old: &XcacheHandle, new: &XcacheHandle, carried: FlowStats, is_kept: bool) {
        let (Some(old), Some(new)) = (old.0.downcast_ref::<XlateCache>(), new.0.downcast_ref::<XlateCache>()) else {
            return;
        };
        let mut inner = old.lock();
        inner.credit(carried, |effect| self.ofproto.0.effects.put(effect));
        if is_kept {
            inner.replace(new.lock().entries().into());
        }
    }

    fn modified(&self, key: &PacketKey, mask: &PacketKey, actions: &Actions) {
        self.ofproto.log_flow_modify(key, mask, actions);
    }

    /// A packet is credited here if it follows a translation without a megaflow to count it. This includes the packet
    /// that was translated, so its effects are queued here.
    fn credit(&mut self, xcache: &XcacheHandle, packets: u64, bytes: u64, tcp_flags: u16, now_ms: u64) {
        let Some(record) = xcache.0.downcast_ref::<XlateCache>() else { return };
        let credited = Push { packets, bytes, tcp_flags, used_ms: now_ms };
        push(record.lock().entries(), credited, self.ofproto.queue_changes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_action::PortNo;

    #[test]
    fn equal_lists_become_one_and_old_ones_are_replaced() {
        let mut recent = RecentActions::default();
        let list = |n: u32| vec![Action::Output(PortNo(n))];
        let first = recent.share(list(0));
        assert!(Arc::ptr_eq(&recent.share(list(0)), &first));
        (0..40).for_each(|n| assert_eq!(recent.share(list(n))[..], list(n)));
        assert_eq!(recent.lists.len(), RECENT);
        assert!(!Arc::ptr_eq(&recent.share(list(0)), &first), "forgotten meanwhile");
    }
}
