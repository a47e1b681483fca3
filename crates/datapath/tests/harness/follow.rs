//! What tables answer.

use sluice_action::{Actions, Translation, UpcallResult, XcacheHandle};
use sluice_fate::DropReason;
use sluice_flow::PacketKey;
use std::sync::Arc;

/// A translation that may be cached.
pub fn follow(mask: PacketKey, actions: impl Into<Actions>) -> UpcallResult {
    UpcallResult::Translated(Translation {
        mask,
        actions: actions.into(),
        no_output: DropReason::Rules,
        version: 1,
        cacheable: true,
        xcache: XcacheHandle(Arc::new(())),
    })
}
