//! What Open vSwitch's module `dpif_netdev` logs of megaflows, at level DBG only: for tests that read it.

use sluice_action::{DatapathPortNames, MegaflowMatch, show_actions, show_flow, show_ufid};
use sluice_flow::PacketKey;
use sluice_flow_cache::{Megaflow, ufid};

/// OVS's name of the module.
const LOG: &str = "dpif_netdev";

/// A megaflow was installed for a packet of this key.
#[inline]
pub(crate) fn flow_add(flow: &Megaflow, key: &PacketKey) {
    if tracing::enabled!(target: LOG, tracing::Level::DEBUG) {
        log_flow_add(flow, key);
    }
}

#[cold]
fn log_flow_add(flow: &Megaflow, key: &PacketKey) {
    let (mask, names) = (&flow.mask().whole, DatapathPortNames::default());
    let ufid = show_ufid(ufid(&MegaflowMatch::new(*mask, key)));
    let (matched, actions) = (show_flow(key, mask, false, &names), show_actions(flow.actions(), &names));
    tracing::debug!(target: LOG, "flow_add: {ufid} mega_{ufid} {matched}, actions:{actions}");
}
