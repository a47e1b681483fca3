//! The ports, groups and meters that actions use, also in clones and action sets.

use sluice_flow::OfPort;
use sluice_ofp::{GROUP_ANY, OfAction};

/// Whether an action outputs to that port, also in a clone or an action set.
pub(crate) fn outputs_to(actions: &[OfAction], port: OfPort) -> bool {
    OfAction::flattened(actions).any(|action| match action {
        OfAction::Output { port: to, .. }
        | OfAction::OutputTrunc { port: to, .. }
        | OfAction::Enqueue { port: to, .. } => *to == port,
        OfAction::Controller(_) => port == OfPort::CONTROLLER,
        _ => false,
    })
}

pub(crate) fn sends_to_group(actions: &[OfAction], group: u32) -> bool {
    group == GROUP_ANY || OfAction::flattened(actions).any(|action| *action == OfAction::Group(group))
}

/// The groups that actions send to.
pub(crate) fn groups_of(actions: &[OfAction]) -> impl Iterator<Item = u32> {
    OfAction::flattened(actions).filter_map(|action| match action {
        OfAction::Group(group) => Some(*group),
        _ => None,
    })
}

/// The meters that actions use.
pub(crate) fn meters_of(actions: &[OfAction]) -> impl Iterator<Item = u32> {
    OfAction::flattened(actions).filter_map(|action| match action {
        OfAction::Meter(meter) => Some(*meter),
        _ => None,
    })
}
