//! A bridge's ports as its controllers know them, and the steps in which they are told of a change: the same as Open
//! vSwitch's, where configuration, link and liveness change one after the other.
//! Source: Open vSwitch, `update_port_config`, `port_run`, `update_port`.

use sluice_clock::now_ms;
use sluice_flow::OfPort;
use sluice_openflow::message::ports::{PortDesc, PortReason, config, state};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The ports that the controllers of a bridge know.
#[derive(Default)]
pub struct KnownPorts(BTreeMap<u16, KnownPort>);

struct KnownPort {
    desc: Arc<PortDesc>,
    added_ms: u64,
}

/// A change of a port that controllers are told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortChange {
    /// What happened.
    pub reason: PortReason,
    /// The port before a modification.
    pub before: Option<Arc<PortDesc>>,
    /// The port as it is now, or was last.
    pub desc: Arc<PortDesc>,
    /// The number of the connection that asked for the change, if one did.
    pub by: Option<u64>,
}

impl KnownPorts {
    /// Takes the ports as they are now. Returns what controllers are to be told, in order. `by` is the connection that
    /// has changed the configuration of a port.
    pub fn update(&mut self, ports: impl IntoIterator<Item = PortDesc>, by: Option<u64>) -> Vec<PortChange> {
        let now_ms = now_ms();
        let mut old = std::mem::take(&mut self.0);
        let mut changes = Vec::new();
        for desc in ports {
            let (number, desc) = (desc.port, Arc::new(desc));
            let known = old.remove(&number);
            match &known {
                Some(known) => modified(&known.desc, &desc, by, &mut changes),
                None => added(&desc, &mut changes),
            }
            let added_ms = known.map_or(now_ms, |known| known.added_ms);
            self.0.insert(number, KnownPort { desc, added_ms });
        }
        // A port may have taken the name of one that is gone.
        let gone = old.into_values().map(|KnownPort { desc, .. }| {
            let (reason, before, by) = (PortReason::Delete, None, None);
            PortChange { reason, before, desc, by }
        });
        gone.chain(changes).collect()
    }

    /// Milliseconds since controllers know of a port.
    pub fn age_ms(&self, number: OfPort) -> u64 {
        self.0.get(&number.0).map_or(0, |port| now_ms().saturating_sub(port.added_ms))
    }
}

/// A new port becomes live after it is there.
fn added(desc: &Arc<PortDesc>, changes: &mut Vec<PortChange>) {
    let dead = Arc::new(PortDesc { state: desc.state & !state::LIVE, ..(**desc).clone() });
    let (reason, before, by) = (PortReason::Add, None, None);
    changes.push(PortChange { reason, before, desc: Arc::clone(&dead), by });
    modified(&dead, desc, None, changes);
}

fn modified(old: &Arc<PortDesc>, new: &Arc<PortDesc>, by: Option<u64>, changes: &mut Vec<PortChange>) {
    let mut last = Arc::clone(old);
    let mut step = |next: Arc<PortDesc>, by: Option<u64>| {
        if next != last {
            let (reason, before) = (PortReason::Modify, Some(std::mem::replace(&mut last, Arc::clone(&next))));
            changes.push(PortChange { reason, before, desc: next, by });
        }
        Arc::clone(&last)
    };
    let mut now = Arc::clone(old);
    if by.is_some() {
        // A port that is down by configuration is not live.
        let live = if new.config & config::PORT_DOWN != 0 { 0 } else { state::LIVE };
        let next = PortDesc { config: new.config, state: now.state & (!state::LIVE | live), ..(*now).clone() };
        now = step(Arc::new(next), by);
    }
    if new.state & state::LIVE == 0 {
        step(Arc::new(PortDesc { state: now.state & !state::LIVE, ..(*now).clone() }), None);
    }
    step(Arc::clone(new), None);
}

#[cfg(test)]
mod tests {
    use super::*;
    use PortReason::{Add, Delete, Modify};

    const UP: (u32, u32) = (0, state::LIVE);
    const DOWN: (u32, u32) = (config::PORT_DOWN, state::LINK_DOWN);

    fn port(number: u16, (config, state): (u32, u32)) -> PortDesc {
        PortDesc { port: number, config, state, ..PortDesc::default() }
    }

    /// The changes in short: reason, port, configuration, state.
    fn told(changes: Vec<PortChange>) -> Vec<(PortReason, u16, u32, u32)> {
        changes.iter().map(|c| (c.reason, c.desc.port, c.desc.config, c.desc.state)).collect()
    }

    #[test]
    fn changes_are_told_once_and_in_the_steps_of_open_vswitch() {
        let mut known = KnownPorts::default();
        let two_adds = [(Add, 1, 0, 0), (Modify, 1, 0, state::LIVE), (Add, 2, 1, 1)];
        assert_eq!(told(known.update([port(1, UP), port(2, DOWN)], None)), two_adds);
        assert_eq!(told(known.update([port(1, UP), port(2, DOWN)], None)), []);
        let link_goes = [(Modify, 1, 0, 0), (Modify, 1, 0, state::LINK_DOWN)];
        assert_eq!(told(known.update([port(1, (0, state::LINK_DOWN)), port(2, DOWN)], None)), link_goes);
        let replaced = [(Delete, 2, 1, 1), (Modify, 1, 0, state::LIVE)];
        assert_eq!(told(known.update([port(1, UP)], None)), replaced);
    }

    #[test]
    fn what_a_controller_configures_is_told_before_what_comes_of_it() {
        let mut known = KnownPorts::default();
        known.update([port(1, UP)], None);
        let down = known.update([port(1, DOWN)], Some(7));
        assert_eq!(down.iter().map(|change| change.by).collect::<Vec<_>>(), [Some(7), None]);
        assert_eq!(down[1].before.as_ref(), Some(&down[0].desc));
        assert_eq!(told(down), [(Modify, 1, 1, 0), (Modify, 1, 1, state::LINK_DOWN)]);
        let up = known.update([port(1, UP)], Some(7));
        assert_eq!(told(up), [(Modify, 1, 0, state::LINK_DOWN), (Modify, 1, 0, state::LIVE)]);
    }
}
