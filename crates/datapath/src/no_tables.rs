//! The upcall of a datapath that has no tables yet.

use sluice_action::{Miss, Upcall, UpcallResult, XcacheHandle};
use sluice_fate::DropReason;

/// Every upcall is lost.
pub(crate) struct NoTables;

impl Upcall for NoTables {
    fn translate(&mut self, _miss: &Miss<'_>) -> UpcallResult {
        UpcallResult::Failed(DropReason::UpcallLost)
    }

    fn is_current(&self, _version: u64) -> bool {
        false
    }

    fn credit(&mut self, _xcache: &XcacheHandle, _packets: u64, _bytes: u64, _tcp_flags: u16, _now_ms: u64) {}
}
