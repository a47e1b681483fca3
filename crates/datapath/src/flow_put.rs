//! Megaflows that a user puts by hand. Source of their meaning: Open vSwitch lib/dpif-netdev.c, `dpif_netdev_flow_put`.
//!
//! An upcall puts its megaflow into the subtables of the PMD that asked; another PMD gets it with an upcall of its own. A
//! megaflow put by hand has no such packet, so every PMD is told of it. PMDs that are made later are not, as in Open vSwitch.

use crate::Datapath;
use crate::command::PmdCommand;
use sluice_action::{FlowId, Translation, XcacheHandle};
use sluice_flow::PacketKey;
use sluice_flow_cache::PutError;
use std::sync::mpsc;

impl Datapath {
    /// The megaflow to which a packet of this key belongs, if there is one. It looks at all megaflows.
    pub fn flow_of(&self, key: &PacketKey) -> Option<(FlowId, XcacheHandle)> {
        self.factory().table.flow_of(key)
    }

    /// Puts the megaflow of `key` under the translation's mask. When this returns, all PMDs look it up.
    ///
    /// # Errors
    /// If a packet of that key has a megaflow already, or there is no room for another.
    pub fn put_flow(&self, key: &PacketKey, translation: &Translation, now_ms: u64) -> Result<(), PutError> {
        if self.flow_of(key).is_some() {
            return Err(PutError::Exists);
        }
        let id = self.factory().table.put(key, translation, now_ms)?;
        self.index_flow(id);
        Ok(())
    }

    /// Has all PMDs look a megaflow up that was put or modified by hand.
    pub fn index_flow(&self, id: FlowId) {
        let mut control = self.control();
        let (into, indexed) = mpsc::channel();
        control.post_all(|_| PmdCommand::IndexFlow { id, into: into.clone() });
        drop(into);
        control.wait_for(&indexed, control.workers.len());
    }
}
