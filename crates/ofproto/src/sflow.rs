//! Which packets of a bridge are sampled for sFlow.

use crate::error::Error;
use crate::ofproto::Ofproto;
use sluice_action::PortNo;
use std::collections::BTreeMap;

/// How a bridge's packets are sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SFlowSettings {
    /// The share of packets that is sampled, in 2^32; all if it is the maximum.
    pub probability: u32,
    /// Bytes of a packet that are sampled, at most.
    pub header_len: u32,
    /// The indexes of the bridge's interfaces, by datapath port; ports without an index are not in it.
    pub ifindexes: BTreeMap<PortNo, u32>,
}

impl Ofproto {
    /// Sets how a bridge's packets are sampled; `None`: not at all.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn set_sflow(&self, name: &str, sflow: Option<SFlowSettings>) -> Result<(), Error> {
        if self.state().bridge_named(name).is_some_and(|bridge| bridge.sflow == sflow) {
            return Ok(());
        }
        self.change_bridge(name, |bridge| bridge.sflow = sflow)
    }

    /// The bridges by name, with the numbers that their samples have ([`sluice_action::SFlowAction::bridge`]).
    pub fn bridge_numbers(&self) -> BTreeMap<String, u32> {
        self.state().bridges.iter().map(|bridge| (bridge.name().to_owned(), bridge.id.0)).collect()
    }
}
