//! What a change of the tables has removed. It is freed after the change is answered.
//!
//! To free a million rules takes as long as to find and hide them. The peer that asked for the change gets its answer first, as from
//! Open vSwitch, which leaves such work to RCU. The next change frees what is left before it begins: otherwise the bound of the
//! rules' memory would refuse rules for which there is room.

use crate::bridge::Rules;
use crate::flow_mod::HiddenRule;
use crate::ofproto::Ofproto;
use sluice_classifier::EmptySubtable;

/// After this time a tick frees it, milliseconds.
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
    /// Takes these, to free them later.
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

    /// Frees all that is older than [`PATIENCE_MS`].
    pub fn free_forgotten(&mut self, now_ms: u64) {
        if now_ms > self.since_ms + PATIENCE_MS {
            self.free();
        }
    }
}

impl Ofproto {
    /// Frees what changes have removed. A connection calls it after it has sent its answers. It does not wait for a change that is
    /// under way: that change has freed it.
    pub fn free_removed(&self) {
        if let Some(mut writer) = self.try_writer() {
            writer.postponed_free.free();
        }
    }
}
