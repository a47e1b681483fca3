//! Periodic work of the control thread: effects of translations, timeouts of rules, ageing of MAC entries.

use crate::bridge_config::BridgeId;
use crate::depends::Changes;
use crate::effects::Effect;
use crate::mac::MacTable;
use crate::ofproto::{Ofproto, Writer};
use crate::removed::{RemovalCounts, RuleRemoved};
use crate::rule_select::is_learned;
use crate::transaction::LearnedFlow;
use crate::xlate_cache::Dependency;
use sluice_flow::{Mac, OfPort};
use std::sync::atomic::Ordering::Relaxed;

/// What a tick did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TickStats {
    /// Effects carried out.
    pub effects: usize,
    /// Rules that have expired.
    pub expired_rules: usize,
}

impl Ofproto {
    /// Carries out waiting effects, and expires rules, MAC entries and recirculation ids. A few calls a second are
    /// enough. `replay` calls it after every packet, so that each packet sees the effects of the one before.
    pub fn tick(&self, now_ms: u64) -> TickStats {
        let mut writer = self.writer();
        let effects = self.0.effects.take();
        let done = effects.len();
        self.apply(&mut writer, effects);
        let expired_rules = self.expire_rules(&mut writer, now_ms);
        writer.postponed_free.free_forgotten(now_ms);
        drop(writer);
        let mut changes = Changes::default();
        for bridge in &self.state().bridges {
            let mut macs = bridge.macs.write();
            macs.expire(now_ms / 1000);
            changes.add_mac_entries(bridge.id, macs.take_changed());
        }
        self.announce(&changes);
        self.0.recirculations.expire(now_ms);
        self.expire_neighbours(now_ms);
        TickStats { effects: done, expired_rules }
    }

    /// Sets what wakes the thread that calls [`Ofproto::tick`]. Only the first call has an effect.
    pub fn set_tick_waker(&self, waker: impl Fn() + Send + Sync + 'static) {
        self.0.effects.set_waker(Box::new(waker));
    }

    /// The next effect of a packet calls the waker, once; at once if one waits already.
    pub fn await_effect(&self) {
        self.0.effects.await_next();
    }

    /// Whether a rule has a timeout.
    pub fn has_timeouts(&self) -> bool {
        self.state().bridges.iter().any(|bridge| !bridge.expirable.is_empty())
    }

    /// Carries out effects: what was learned in one transaction a bridge, so that megaflows are searched once.
    pub(crate) fn apply(&self, writer: &mut Writer, effects: impl IntoIterator<Item = Effect>) {
        let mut changes = Changes::default();
        let (mut learned, mut closing): (Vec<LearnedFlow>, _) = (Vec::new(), Vec::new());
        for effect in effects {
            match effect {
                Effect::LearnMac { bridge, vlan, mac, port, packet, now_ms } => {
                    if let Some(b) = self.state().bridge(bridge).filter(|b| b.ports.contains_key(&port)) {
                        let mut macs = b.macs.write();
                        self.count_static_move(&macs, vlan, mac, port);
                        if macs.learn_of(packet, (vlan, mac), port, now_ms / 1000) {
                            changes.add_mac_entries(bridge, macs.take_changed());
                        }
                    }
                }
                Effect::Learn { bridge, port, flow, limit, now_ms } => {
                    learned.push(LearnedFlow { bridge, port, flow, limit, now_ms });
                }
                Effect::Neighbour { bridge, ip, mac, now_ms } => {
                    let name = self.state().bridge(bridge).map(|b| b.name().to_owned());
                    if name.is_some_and(|name| self.0.neighbours.set((name, ip), mac, now_ms)) {
                        changes.dependencies.push((bridge, Dependency::Neighbour(ip)));
                    }
                }
                Effect::LowerTimeouts { bridge, rule, idle, hard } => closing.push((bridge, rule, idle, hard)),
            }
        }
        self.announce(&changes);
        // Each bridge's in order.
        learned.sort_by_key(|flow| flow.bridge);
        learned.chunk_by(|a, b| a.bridge == b.bridge).for_each(|of_bridge| self.learn(writer, of_bridge));
        closing.iter().for_each(|(bridge, rule, idle, hard)| self.lower_timeouts(writer, *bridge, rule, *idle, *hard));
    }

    /// Queues the effects of a packet, beginning with the first that would change something. Later ones are queued even
    /// if they change nothing now: a packet may show an address at two ports, and then the second effect undoes the
    /// first.
    pub(crate) fn queue_changes(&self) -> impl FnMut(Effect) {
        let mut has_change = false;
        move |effect| {
            has_change = has_change || self.would_change(&effect);
            if has_change {
                self.0.effects.put(effect);
            }
        }
    }

    /// Whether an effect would change something. It may say yes too often, never no: so it waits for nobody.
    fn would_change(&self, effect: &Effect) -> bool {
        let Some(state) = self.try_state() else { return true };
        match effect {
            Effect::LearnMac { bridge, vlan, mac, port, packet, now_ms } => state.bridge(*bridge).is_some_and(|b| {
                let Some(macs) = b.macs.try_read() else { return true };
                self.count_static_move(&macs, *vlan, *mac, *port);
                macs.needs_learning_of(*packet, (*vlan, *mac), *port, now_ms / 1000)
            }),
            Effect::Learn { bridge, flow, limit, now_ms, .. } => {
                let known = state.bridge(*bridge).and_then(|b| is_learned(b, flow, *limit, state.tables_version));
                known.is_none_or(|rule| rule.modified_ms() / 1000 != now_ms / 1000)
            }
            Effect::Neighbour { bridge, ip, mac, now_ms } => {
                let name = state.bridge(*bridge).map(|b| b.name().to_owned());
                name.is_some_and(|name| self.0.neighbours.needs(&(name, *ip), *mac, *now_ms))
            }
            Effect::LowerTimeouts { .. } => true,
        }
    }

    /// Counts a packet that shows the address of a static entry at another port.
    fn count_static_move(&self, macs: &MacTable, vlan: u16, mac: Mac, port: OfPort) {
        if macs.is_static_elsewhere(vlan, mac, port) {
            self.0.static_mac_moves.fetch_add(1, Relaxed);
        }
    }

    /// How often a packet showed the address of a static MAC entry at another port.
    pub fn static_mac_moves(&self) -> u64 {
        self.0.static_mac_moves.load(Relaxed)
    }

    /// The rules with `send_flow_rem` that were removed since the last call.
    pub fn take_removed(&self) -> Vec<RuleRemoved> {
        let mut writer = self.writer();
        let removed = writer.removed.take();
        self.0.pending_events.note(&writer);
        removed
    }

    /// How many rules were removed, by reason.
    pub fn removal_counts(&self) -> RemovalCounts {
        self.writer().removed.counts()
    }

    /// A bridge's name, if it still exists.
    pub fn bridge_name(&self, id: BridgeId) -> Option<String> {
        self.state().bridge(id).map(|b| b.name().to_owned())
    }
}
