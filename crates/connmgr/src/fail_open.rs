//! Fail-open: a standalone bridge forwards by itself while none of its controllers is connected.
//! Source: Open vSwitch, `fail-open.c`.

use crate::switch::Switch;
use parking_lot::Mutex;
use sluice_flow::OfPort;
use sluice_ofp::{FlowCommand, FlowMod, OfAction};
use std::time::{Duration, Instant};

/// A standalone bridge forwards by itself once no controller has been there for so long. Source: Open vSwitch: three
/// times the probe interval.
const LONELY_AFTER: Duration = Duration::from_secs(15);

/// Priority of the rule by which it does: above every other.
const STANDALONE_PRIORITY: u16 = u16::MAX;

/// What a standalone bridge does while its controllers are away.
#[derive(Debug)]
pub struct FailOpen(Mutex<FailOpenState>);

#[derive(Debug)]
struct FailOpenState {
    /// Controllers that are there.
    connected: usize,
    /// Since when none is.
    lonely_since: Instant,
    /// Whether the bridge forwards by itself.
    forwards: bool,
}

impl FailOpen {
    /// A bridge whose controllers have not come yet.
    pub fn new() -> Self {
        FailOpen(Mutex::new(FailOpenState { connected: 0, lonely_since: Instant::now(), forwards: false }))
    }

    /// A controller has come: it decides now.
    pub fn controller_connected(&self, switch: &Switch, bridge: &str) {
        let mut state = self.0.lock();
        state.connected += 1;
        // The rule that a standalone bridge begins with goes as well.
        change(switch, bridge, FlowCommand::DeleteStrict, 0);
        if std::mem::take(&mut state.forwards) {
            change(switch, bridge, FlowCommand::DeleteStrict, STANDALONE_PRIORITY);
            tracing::info!("bridge {bridge}: a controller is there, it decides");
        }
    }

    /// A controller has gone.
    pub fn controller_disconnected(&self) {
        let mut state = self.0.lock();
        state.connected = state.connected.saturating_sub(1);
        state.lonely_since = Instant::now();
    }

    /// Looks whether the bridge has been alone for too long.
    pub fn run(&self, switch: &Switch, bridge: &str) {
        let mut state = self.0.lock();
        if state.connected == 0 && !state.forwards && state.lonely_since.elapsed() >= LONELY_AFTER {
            state.forwards = true;
            change(switch, bridge, FlowCommand::Add, STANDALONE_PRIORITY);
            tracing::warn!("bridge {bridge}: no controller for {} s, it forwards by itself", LONELY_AFTER.as_secs());
        }
    }
}

/// Adds or deletes the rule that forwards everything.
fn change(switch: &Switch, bridge: &str, command: FlowCommand, priority: u16) {
    let mut normal = FlowMod::new(command);
    (normal.table, normal.priority) = (Some(0), priority);
    if command == FlowCommand::Add {
        normal.new_cookie = Some(0);
        normal.actions = vec![OfAction::Output { port: OfPort::NORMAL, max_len: 0 }];
    } else {
        normal.out_port = Some(OfPort::NORMAL);
    }
    if let Err(error) = switch.ofproto.flow_mod(bridge, &normal, switch.now_ms()) {
        tracing::warn!("bridge {bridge}: {error}");
    }
    switch.hurry();
}
