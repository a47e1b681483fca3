//! The mirrors of bridges: they are looked up again when mirrors or ports come or go.
//!
//! What they are next is made of a copy while packets are translated by the ones before; only their places change under the
//! tables' lock.

use crate::bridge::Bridge;
use crate::bridges::position;
use crate::depends::Changes;
use crate::error::Error;
use crate::mirror::{MIRRORS_MAX, MirrorConfig, MirrorStats, Mirrors};
use crate::ofproto::Ofproto;
use crate::port::PortConfig;

impl Ofproto {
    /// Sets a bridge's mirrors, which replace the ones before. Those that are too many are left out.
    pub fn set_mirrors(&self, name: &str, mirrors: &[MirrorConfig]) -> Result<(), Error> {
        let mut writer = self.writer();
        let (id, mut next) = {
            let state = self.state();
            let bridge = &state.bridges[position(&state, name)?];
            let mut next = bridge.mirrors.clone();
            for refused in next.configure(mirrors) {
                let (most, name) = (MIRRORS_MAX, &refused.name);
                tracing::warn!(
                    target: "ofproto_dpif_mirror",
                    "maximum of {most} port mirrors reached, cannot create {name}"
                );
            }
            next.resolve(bridge.ports.values());
            (bridge.id, next)
        };
        self.change(&mut writer, |state| {
            state.bridge_mut(id).into_iter().for_each(|bridge| std::mem::swap(&mut bridge.mirrors, &mut next));
        });
        self.announce(&Changes::of_bridge(id));
        Ok(())
    }

    /// What a bridge's mirrors are once a port has come or gone; `None` if it has none. The caller holds the writer's lock,
    /// and has the tables change afterwards: with many ports this takes longer than PMDs are to wait.
    pub(crate) fn mirrors_after(
        &self,
        bridge: &str,
        added: Option<&PortConfig>,
        removed: Option<&str>,
    ) -> Option<Mirrors> {
        let state = self.state();
        let bridge = state.bridge_named(bridge).filter(|bridge| !bridge.mirrors.is_empty())?;
        let mut next = bridge.mirrors.clone();
        next.resolve(bridge.ports.values().filter(|port| Some(port.name.as_str()) != removed).chain(added));
        Some(next)
    }

    /// What a mirror has copied; `None` if there is no mirror of that id.
    pub fn mirror_stats(&self, bridge: &str, id: &str) -> Option<MirrorStats> {
        self.state().bridge_named(bridge)?.mirrors.stats(id)
    }
}

/// What a port that came or went changes, with what its bridge's mirrors are from now on. The ones before are `next` then.
pub(crate) fn with_mirrors(bridge: &mut Bridge, next: &mut Option<Mirrors>, mut changes: Changes) -> Changes {
    if let Some(next) = next {
        std::mem::swap(&mut bridge.mirrors, next);
        changes.bridges.push(bridge.id);
    }
    changes
}
