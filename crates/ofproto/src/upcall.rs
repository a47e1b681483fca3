//! A PMD's way to the tables.

use crate::ofproto::Ofproto;
use crate::trail::{Push, TrailRecord, push};
use crate::xlate::{Question, Start, Translator};
use sluice_action::{Fate, Miss, Trail, Translation, Upcall};
use sluice_fate::DropReason;
use sluice_flow::layout::PRESENCE;
use sluice_flow::{LINE_SIZE, Line, PacketKey};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// One PMD's handle on the tables.
#[derive(Debug)]
pub struct UpcallHandle(Ofproto);

impl Ofproto {
    /// A handle for a PMD.
    pub fn upcall(&self) -> UpcallHandle {
        UpcallHandle(self.clone())
    }
}

/// The mask that matches every field of a packet.
fn everything(key: &PacketKey) -> PacketKey {
    let mut mask = PacketKey::ZERO;
    mask.lines[0] = Line([0xff; LINE_SIZE]);
    mask.lines[0].0[PRESENCE.offset] = 0;
    for i in (1..4).filter(|&i| !key.line(i).is_zero()) {
        *mask.make_present(i) = Line([0xff; LINE_SIZE]);
    }
    mask
}

impl Upcall for UpcallHandle {
    fn translate(&mut self, miss: &Miss<'_>) -> Fate {
        let shared = &*self.0.0;
        let question =
            Question { start: Start::Datapath(miss.key), now_ms: miss.now_ms, side_effects: true, actions: None };
        // The epoch is read first: a change in between makes the translation look older than it is, never younger.
        let version = self.0.epoch();
        let state = self.0.state();
        let Some(outcome) = Translator::run(&state, shared, &question, None) else {
            return Fate::Failed(DropReason::UpcallLost);
        };
        drop(state);
        let record = TrailRecord::new(*miss.key, outcome.trail, version);
        Fate::Translated(Translation {
            mask: if shared.megaflows.load(Relaxed) { outcome.mask } else { everything(miss.key) },
            actions: outcome.actions,
            no_output: outcome.no_output,
            version,
            cacheable: outcome.cacheable,
            trail: Trail(Arc::new(record)),
        })
    }

    fn is_current(&self, version: u64) -> bool {
        self.0.epoch() == version
    }

    /// Every packet that follows a translation is credited here or by its megaflow, so here is where the first packet's
    /// side effects are asked for.
    fn credit(&mut self, trail: &Trail, packets: u64, bytes: u64, tcp_flags: u16, now_ms: u64) {
        let Some(record) = trail.0.downcast_ref::<TrailRecord>() else { return };
        let credited = Push { packets, bytes, tcp_flags, used_ms: now_ms };
        push(&record.lock().events, credited, |effect| {
            if self.0.is_news(&effect) {
                self.0.0.effects.put(effect);
            }
        });
    }
}
