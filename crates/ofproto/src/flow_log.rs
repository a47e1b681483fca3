//! What Open vSwitch's module `dpif` logs of megaflows that it dumps and modifies, at level DBG only: for tests that read it.

use crate::ofproto::Ofproto;
use crate::xlate_cache::XlateCache;
use sluice_action::{Actions, DatapathPortNames, FlowDump, show_actions, show_flow, show_stats};
use sluice_flow::PacketKey;
use std::sync::atomic::Ordering::Relaxed;

/// OVS's name of the module.
const LOG: &str = "dpif";

impl Ofproto {
    /// A megaflow was dumped.
    #[inline]
    pub(crate) fn log_flow_dump(&self, flow: &FlowDump<'_>, xcache: &XlateCache, now_ms: u64) {
        if tracing::enabled!(target: LOG, tracing::Level::DEBUG) {
            self.log_flow_dump_at_length(flow, xcache, now_ms);
        }
    }

    #[cold]
    fn log_flow_dump_at_length(&self, flow: &FlowDump<'_>, xcache: &XlateCache, now_ms: u64) {
        let key = xcache.key();
        let datapath = self.datapath_type(&key);
        let (stats, names) = (show_stats(flow.total().as_received(&key), now_ms), DatapathPortNames::default());
        if self.0.uses_ufid.load(Relaxed) {
            return tracing::debug!(target: LOG, "{datapath}@ovs-{datapath}: flow_dump <empty>, {stats}");
        }
        let (matched, actions) = (show_flow(&key, flow.mask, true, &names), show_actions(flow.actions, &names));
        tracing::debug!(target: LOG, "{datapath}@ovs-{datapath}: flow_dump {matched}, {stats}, actions:{actions}");
    }

    /// A megaflow got other actions, those of a packet of this key.
    #[inline]
    pub(crate) fn log_flow_modify(&self, key: &PacketKey, mask: &PacketKey, actions: &Actions) {
        if tracing::enabled!(target: LOG, tracing::Level::DEBUG) {
            self.log_flow_modify_at_length(key, mask, actions);
        }
    }

    #[cold]
    fn log_flow_modify_at_length(&self, key: &PacketKey, mask: &PacketKey, actions: &Actions) {
        let (datapath, names) = (self.datapath_type(key), DatapathPortNames::default());
        let (matched, actions) = (show_flow(key, mask, true, &names), show_actions(actions, &names));
        tracing::debug!(target: LOG, "{datapath}@ovs-{datapath}: put[modify] {matched}, actions:{actions}");
    }

    /// The type of the datapath that a packet of this key came to; empty if its port has gone.
    fn datapath_type(&self, key: &PacketKey) -> String {
        let state = self.state();
        let bridge = state.port_of(key).and_then(|(id, _)| state.bridge(id));
        bridge.map_or_else(String::new, |bridge| bridge.config.datapath_type.clone())
    }
}
