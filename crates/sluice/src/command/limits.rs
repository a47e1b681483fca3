//! `sluice/limits-show`: the bounds on shared resources, with what is in use.

use super::Reply;
use crate::metrics::CLIENTS_MAX;
use crate::text::limits::show;
use sluice_fate::Limit;
use sluice_unixctl::CONNECTIONS_MAX;
use sluice_vswitch::{LimitUsage, Switch};

pub fn limits_show(switch: &Switch, _: &[&str]) -> Reply {
    Ok(show(|limit| usage(switch, limit)))
}

/// What is in use of a resource, and its bound; `None` if the bound is on each packet, request or message. Its peak is
/// noted.
pub fn usage(switch: &Switch, limit: Limit) -> Option<LimitUsage> {
    let of_process = |bound: usize| Some(LimitUsage { used: limit.held(), bound: bound as u64 });
    let usage = match limit {
        Limit::ControlConnections => of_process(CONNECTIONS_MAX),
        Limit::MetricsClients => of_process(CLIENTS_MAX),
        _ => switch.limit_usage(limit),
    }?;
    limit.note_use(usage.used);
    Some(usage)
}

/// Notes what is in use of each resource, for its peak.
pub fn note_peaks(switch: &Switch) {
    Limit::ALL.iter().for_each(|limit| _ = usage(switch, *limit));
}
