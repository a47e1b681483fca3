//! What a change of the tables has removed, and is freed only after it.
//!
//! To free a million rules takes as long as to find and hide them. A peer that asked for the change has its answer first, as in
//! Open vSwitch, which leaves such work to RCU. But no change begins before all is free that another has removed: the bound of
//! the rules' memory would refuse rules for which there is room.

use crate::bridge::Rules;
use crate::flow_mod::HiddenRule;
use crate::ofproto::Ofproto;
use sluice_classifier::EmptySubtable;

/// For how long it waits for the one who made the change, milliseconds.
const PATIENCE_MS: u64 = 100;

/// Removed rules, and tables and subtables without visible rules.
#[derive(Default)]
pub(crate) struct PostponedFree {
    /// When the last change added some, milliseconds.
    since_ms: u64,
    rules: Vec<Vec<HiddenRule>>,
    /// By their numbers.
    tables: Vec<(u8, Box<Rules>)>,
    subtables: Vec<EmptySubtable>,
}

impl PostponedFree {
    /// Postpones the end of these.
    pub fn add(
        &mut self,
        rules: Vec<HiddenRule>,
        tables: Vec<(u8, Box<Rules>)>,
        subtables: Vec<EmptySubtable>,
        now_ms: u64,
    ) {
        if rules.is_empty() {
            return;
        }
        self.since_ms = now_ms;
        self.rules.push(rules);
        self.tables.extend(tables);
        self.subtables.extend(subtables);
    }

    /// Frees all.
    pub fn free(&mut self) {
        *self = PostponedFree::default();
    }

    /// Frees all, if nobody has done so in time.
    pub fn free_forgotten(&mut self, now_ms: u64) {
        if now_ms > self.since_ms + PATIENCE_MS {
            self.free();
        }
    }
}

impl Ofproto {
    /// Frees what changes have removed. Whoever has made a large one calls it when the answer is sent; else the next change does, or
    /// the next tick.
    pub fn free_removed(&self) {
        self.writer().postponed_free.free();
    }
}
