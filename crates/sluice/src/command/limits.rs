//! `sluice/limits-show`: the bounds on shared resources, with what is in use.

use super::Reply;
use crate::text::limits::{Usage, show};
use sluice_fate::Limit;
use sluice_vswitch::Switch;

pub fn limits_show(switch: &Switch, _: &[&str]) -> Reply {
    Ok(show(|limit| usage(switch, limit)))
}

/// What is in use of a resource, and its bound; `None` if the bound is on each packet, connection or megaflow.
fn usage(switch: &Switch, limit: Limit) -> Option<Usage> {
    let store = switch.datapath().store();
    let (used, bound) = match limit {
        Limit::FlowMemory => (store.memory().used(), store.memory().limit()),
        Limit::Megaflows => (store.len() as u64, store.capacity() as u64),
        Limit::RecircIds => whole(switch.ofproto().recirc_usage()),
        Limit::Fragments => {
            let status = switch.datapath().fragments().status();
            whole((status.held, status.held_max))
        }
        Limit::BundleMemory => whole(switch.openflow().bundle_memory().usage()),
        Limit::TranslationWork | Limit::ActionList | Limit::Connections | Limit::Expectations => return None,
    };
    Some(Usage { used, bound })
}

fn whole((used, bound): (usize, usize)) -> (u64, u64) {
    (used as u64, bound as u64)
}
