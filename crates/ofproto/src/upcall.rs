//! Upcalls: the handle with which a PMD translates packets.

use crate::bridge::SwitchState;
use crate::ofproto::Ofproto;
use crate::xlate::{Failure, Translator, XlateIn, XlateStart};
use crate::xlate_cache::{Push, XlateCache, push};
use arrayvec::ArrayVec;
use sluice_action::{
    Action, Actions, FlowStats, Miss, Translation, Upcall, UpcallResult, XcacheHandle, show_packet_key,
};
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
    /// Changes are put off for it.
    is_asking: bool,
}

impl UpcallHandle {
    fn set_asking(&mut self, is_asking: bool) {
        if is_asking != self.is_asking {
            self.is_asking = is_asking;
            self.ofproto.set_asking(is_asking);
        }
    }
}

impl Drop for UpcallHandle {
    fn drop(&mut self) {
        self.set_asking(false);
    }
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
        UpcallHandle { ofproto: self.clone(), recent: RecentActions::default(), is_asking: false }
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
    fn translate(&mut self, miss: &Miss<'_>) -> UpcallResult {
        let shared = &*self.ofproto.0;
        if shared.flow_restore_wait.load(Relaxed) {
            return UpcallResult::Failed(DropReason::UpcallLost);
        }
        let xin = XlateIn {
            start: XlateStart::Datapath(miss.key),
            now_ms: miss.now_ms,
            side_effects: true,
            packet_len: Some(miss.bytes.len()),
            actions: None,
            in_packet_out: false,
            may_wait: false,
        };
        // The epoch is read first. A change in between makes the translation look older than it is, never newer.
        let version = self.ofproto.epoch();
        let Some(state) = self.ofproto.try_state() else { return UpcallResult::Busy };
        log_miss(&state, miss.key);
        let mut mask = PacketKey::ZERO;
        let Some(xout) = Translator::run(&state, shared, &xin, &mut mask, None) else {
            return UpcallResult::Failed(state.why_no_port(miss.key));
        };
        drop(state);
        if xout.is_busy {
            return UpcallResult::Busy;
        }
        if xout.failure.is_some_and(Failure::is_recursion) {
            self.ofproto.log_recursion(miss.key, miss.now_ms);
        }
        if !shared.megaflows.load(Relaxed) {
            mask = PacketKey::ONES;
        }
        let record = XlateCache::new(miss.key, xout.xcache, self.ofproto.flow_memory());
        UpcallResult::Translated(Translation {
            mask,
            actions: self.recent.share(xout.actions),
            no_output: xout.no_output,
            version,
            cacheable: xout.cacheable,
            xcache: XcacheHandle(Arc::new(record)),
        })
    }

    fn begin_asking(&mut self) {
        self.set_asking(true);
    }

    fn end_asking(&mut self) {
        self.set_asking(false);
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
    use crate::{BridgeConfig, PortConfig};
    use sluice_action::PortNo;
    use sluice_flow::layout;
    use sluice_ofp::{FlowCommand, FlowMod};
    use std::sync::mpsc::channel;
    use std::thread;

    /// A switch that learns, and connections in its table 1.
    fn switch() -> Ofproto {
        let ofproto = Ofproto::new();
        ofproto.add_bridge(BridgeConfig::new("br0"), 0).unwrap();
        (1..=2).for_each(|i| ofproto.add_port("br0", PortConfig::new(&format!("p{i}"), i, PortNo(i.into()))).unwrap());
        for text in ["priority=1,ip,actions=ct(table=1)", "priority=0,actions=NORMAL"] {
            let flow = FlowMod::parse(text, FlowCommand::Add, &PortNames::NONE).unwrap();
            ofproto.flow_mod("br0", &flow, 0).unwrap();
        }
        ofproto
    }

    fn packet(ethertype: u16) -> PacketKey {
        let mut key = PacketKey::ZERO;
        key.set(layout::IN_PORT, &1u32.to_be_bytes());
        key.set(layout::DL_SRC, &[2, 0, 0, 0, 0, 1]);
        key.set(layout::DL_TYPE, &ethertype.to_be_bytes());
        key
    }

    /// How a PMD's upcall ends while another thread does `hold`, which calls what it is given and then lets go.
    fn while_held(ofproto: &Ofproto, key: &PacketKey, hold: impl FnOnce(&dyn Fn()) + Send) -> UpcallResult {
        let ((has, wait_for_it), (ends, wait_for_end)) = (channel(), channel());
        thread::scope(|scope| {
            scope.spawn(move || {
                hold(&|| {
                    has.send(()).unwrap();
                    wait_for_end.recv().unwrap();
                });
            });
            wait_for_it.recv().unwrap();
            let mut handle = ofproto.upcall();
            handle.begin_asking();
            // It would never end if it waited: the other thread lets go afterwards.
            let fate = handle.translate(&Miss { key, bytes: &[], now_ms: 0 });
            ends.send(()).unwrap();
            fate
        })
    }

    #[test]
    fn a_pmd_waits_for_no_control_thread() {
        let ofproto = switch();
        let held =
            |key: &PacketKey, hold: &(dyn Fn(&dyn Fn()) + Sync)| while_held(&ofproto, key, |meanwhile| hold(meanwhile));
        let (learns, tracked) = (packet(0x88b5), packet(0x0800));
        let changes = |meanwhile: &dyn Fn()| ofproto.change(&mut ofproto.writer(), |_| meanwhile());
        let teaches = |meanwhile: &dyn Fn()| {
            let state = ofproto.state();
            let _macs = state.bridges[0].macs.write();
            meanwhile();
        };
        let expires_ids = |meanwhile: &dyn Fn()| {
            let _ids = ofproto.0.recirculations.lock();
            meanwhile();
        };
        assert!(matches!(held(&learns, &changes), UpcallResult::Busy));
        assert!(matches!(held(&learns, &teaches), UpcallResult::Busy));
        assert!(matches!(held(&tracked, &expires_ids), UpcallResult::Busy));
        // Readers, and locks that the packet does not need, are in no one's way.
        assert!(matches!(held(&tracked, &teaches), UpcallResult::Translated(_)));
        assert!(matches!(held(&learns, &expires_ids), UpcallResult::Translated(_)));
        assert!(matches!(
            held(&learns, &|meanwhile| {
                let _state = ofproto.state();
                meanwhile()
            }),
            UpcallResult::Translated(_)
        ));
        for key in [&learns, &tracked] {
            assert!(matches!(
                ofproto.upcall().translate(&Miss { key, bytes: &[], now_ms: 0 }),
                UpcallResult::Translated(_)
            ));
        }
    }

    /// A packet that follows a translation has effects, but asks for them only where nobody stands in the way.
    #[test]
    fn a_credit_waits_for_no_control_thread() {
        let ofproto = switch();
        let mut handle = ofproto.upcall();
        let UpcallResult::Translated(translation) =
            handle.translate(&Miss { key: &packet(0x88b5), bytes: &[], now_ms: 0 })
        else {
            panic!("busy");
        };
        ofproto.change(&mut ofproto.writer(), |_| handle.credit(&translation.xcache, 1, 60, 0, 0));
        assert_eq!(ofproto.effects().queued, 1);
    }

    #[test]
    fn a_handle_that_goes_puts_nothing_off() {
        let ofproto = switch();
        let mut handle = ofproto.upcall();
        handle.begin_asking();
        handle.begin_asking();
        drop(handle);
        assert!(!ofproto.0.state.is_asked());
    }

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
