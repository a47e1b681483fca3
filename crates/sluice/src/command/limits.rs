//! `sluice/limits-show`: the bounds on shared resources, with what is in use.

use super::Reply;
use crate::text::limits::{Usage, show};
use sluice_fate::Limit;
use sluice_vswitch::Switch;

pub fn limits_show(switch: &Switch, _: &[&str]) -> Reply {
    Ok(show(|limit| usage(switch, limit)))
}

/// What is in use of a resource, and its bound; `None` if the bound is on each packet or megaflow. Of
/// connections and notices it is the pool or PMD with most of them.
pub fn usage(switch: &Switch, limit: Limit) -> Option<Usage> {
    let store = switch.datapath().store();
    let (used, bound) = match limit {
        Limit::FlowMemory => (store.memory().used(), store.memory().limit()),
        Limit::Megaflows => (store.len() as u64, store.capacity() as u64),
        Limit::RecircIds => whole(switch.ofproto().recirc_usage()),
        Limit::Fragments => {
            let status = switch.datapath().fragments().status();
            whole((status.held, status.held_max))
        }
        Limit::RuleMemory => whole(switch.ofproto().rule_memory().usage()),
        Limit::BundleMemory => whole(switch.openflow().bundle_memory().usage()),
        Limit::PacketOuts => whole(switch.openflow().packet_out_memory().usage()),
        Limit::DeletionNotices => whole(switch.datapath().deletion_notices()),
        Limit::Connections => whole(switch.openflow().connection_usage()),
        Limit::Expectations => whole(switch.datapath().conntrack().expectation_usage()),
        Limit::CtConnections => {
            let conntrack = switch.datapath().conntrack();
            (u64::from(conntrack.connections()), u64::from(conntrack.connections_max()))
        }
        Limit::Captures => whole((switch.datapath().captures(), sluice_datapath::CAPTURES_MAX)),
        _ => return None,
    };
    Some(Usage { used, bound })
}

fn whole((used, bound): (usize, usize)) -> (u64, u64) {
    (used as u64, bound as u64)
}
