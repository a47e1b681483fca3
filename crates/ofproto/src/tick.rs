//! What the control thread does now and then: side effects of translations, timeouts, ageing.

use crate::bridge::BridgeId;
use crate::depends::Changes;
use crate::effects::Effect;
use crate::flow_mod::is_learned;
use crate::ofproto::{Ofproto, Writer};
use crate::removed::{RemovalCounts, RuleRemoved};

/// What a tick did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TickStats {
    /// Side effects done.
    pub effects: usize,
    /// Rules whose time was over.
    pub expired_rules: usize,
}

impl Ofproto {
    /// Does what waits. Several times a second is often enough; after every packet where each must see what the last
    /// one brought about (`replay`).
    pub fn tick(&self, now_ms: u64) -> TickStats {
        let mut writer = self.writer();
        let effects = self.0.effects.take();
        let done = effects.len();
        self.apply(&mut writer, effects);
        let expired_rules = self.expire_rules(&mut writer, now_ms);
        drop(writer);
        let mut changes = Changes::default();
        for bridge in &self.state().bridges {
            let mut macs = bridge.macs.write();
            macs.expire(now_ms / 1000);
            changes.add_stations(bridge.id, macs.take_changed());
        }
        self.announce(&changes);
        self.0.recirculations.expire(now_ms);
        TickStats { effects: done, expired_rules }
    }

    /// Does side effects.
    pub(crate) fn apply(&self, writer: &mut Writer, effects: impl IntoIterator<Item = Effect>) {
        let mut changes = Changes::default();
        for effect in effects {
            match effect {
                Effect::Station { bridge, vlan, mac, port, now_ms } => {
                    if let Some(b) = self.state().bridge(bridge).filter(|b| b.ports.contains_key(&port)) {
                        let mut macs = b.macs.write();
                        if macs.learn(vlan, mac, port, now_ms / 1000) {
                            changes.add_stations(bridge, macs.take_changed());
                        }
                    }
                }
                Effect::Learn { bridge, flow, limit, now_ms } => {
                    self.learn(writer, bridge, &flow, limit, now_ms);
                }
                Effect::LowerTimeouts { bridge, rule, idle, hard } => {
                    self.lower_timeouts(writer, bridge, &rule, idle, hard);
                }
            }
        }
        self.announce(&changes);
    }

    /// Queues what a packet brings about, effect by effect, from the first one that would change anything: those behind it
    /// may change it back, as where a packet shows a station at two ports.
    pub(crate) fn put_news(&self) -> impl FnMut(Effect) {
        let mut has_news = false;
        move |effect| {
            has_news |= self.is_news(&effect);
            if has_news {
                self.0.effects.put(effect);
            }
        }
    }

    /// Whether an effect would change anything, as far as can be told cheaply.
    fn is_news(&self, effect: &Effect) -> bool {
        match effect {
            Effect::Station { bridge, vlan, mac, port, now_ms } => self.state().bridge(*bridge).is_some_and(|b| {
                let macs = b.macs.read();
                macs.has_news(*vlan, *mac, *port, now_ms / 1000)
            }),
            Effect::Learn { bridge, flow, limit, now_ms } => {
                let state = self.state();
                let known = state.bridge(*bridge).and_then(|b| is_learned(b, flow, *limit, state.tables_version));
                known.is_none_or(|rule| rule.modified_ms() / 1000 != now_ms / 1000)
            }
            Effect::LowerTimeouts { .. } => true,
        }
    }

    /// The rules that went since this was last asked, of those with `send_flow_rem`.
    pub fn take_removed(&self) -> Vec<RuleRemoved> {
        self.writer().removed.take()
    }

    /// How many rules went, and why.
    pub fn removal_counts(&self) -> RemovalCounts {
        self.writer().removed.counts()
    }

    /// A bridge's name, if it is still there.
    pub fn bridge_name(&self, id: BridgeId) -> Option<String> {
        self.state().bridge(id).map(|b| b.name().to_owned())
    }
}
