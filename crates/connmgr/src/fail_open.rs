//! Fail-open: a standalone bridge forwards by itself while none of its controllers is connected.
//! Source: Open vSwitch, `fail-open.c`.

use crate::switch::Switch;
use parking_lot::Mutex;
use sluice_clock::now_ms;
use sluice_flow::OfPort;
use sluice_ofp::{FlowCommand, FlowMod, OfAction};

/// A standalone bridge forwards by itself once no controller has been connected for this long, seconds. Source: Open vSwitch:
/// three times the probe interval.
const FAIL_OPEN_AFTER_SECS: u64 = 15;

/// Priority of the rule that forwards: above every other.
const FAIL_OPEN_PRIORITY: u16 = u16::MAX;

/// What a standalone bridge does while its controllers are away.
#[derive(Debug)]
pub struct FailOpen(Mutex<FailOpenState>);

#[derive(Debug)]
struct FailOpenState {
    /// Controllers that are connected.
    connected: usize,
    /// When the last one was disconnected.
    disconnected_since_ms: u64,
    /// Whether the bridge forwards by itself.
    forwards: bool,
}

impl FailOpen {
    /// For a bridge whose controllers are not connected yet.
    pub fn new() -> Self {
        FailOpen(Mutex::new(FailOpenState { connected: 0, disconnected_since_ms: now_ms(), forwards: false }))
    }

    /// A controller has connected: it decides now.
    pub fn controller_connected(&self, switch: &Switch, bridge: &str) {
        let mut state = self.0.lock();
        state.connected += 1;
        // Also the rule that a standalone bridge has from the start.
        change_normal_rule(switch, bridge, FlowCommand::DeleteStrict, 0);
        if std::mem::take(&mut state.forwards) {
            change_normal_rule(switch, bridge, FlowCommand::DeleteStrict, FAIL_OPEN_PRIORITY);
            tracing::info!("bridge {bridge}: a controller is there, it decides");
        }
    }

    /// A controller was disconnected.
    pub fn controller_disconnected(&self) {
        let mut state = self.0.lock();
        state.connected = state.connected.saturating_sub(1);
        state.disconnected_since_ms = now_ms();
    }

    /// Lets the bridge forward if it has been without a controller for too long. Called once a second.
    pub fn run(&self, switch: &Switch, bridge: &str) {
        let mut state = self.0.lock();
        let is_due = now_ms() >= state.disconnected_since_ms + FAIL_OPEN_AFTER_SECS * 1000;
        if state.connected == 0 && !state.forwards && is_due {
            state.forwards = true;
            change_normal_rule(switch, bridge, FlowCommand::Add, FAIL_OPEN_PRIORITY);
            tracing::warn!("bridge {bridge}: no controller for {} s, it forwards by itself", FAIL_OPEN_AFTER_SECS);
        }
    }
}

/// Adds or deletes the rule that forwards every packet as NORMAL does.
fn change_normal_rule(switch: &Switch, bridge: &str, command: FlowCommand, priority: u16) {
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
    switch.revalidate_soon();
}
