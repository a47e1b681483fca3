//! Fail-open: a standalone bridge forwards by itself while none of its controllers is connected.
//! Source: Open vSwitch, `fail-open.c`.

use crate::settings::BridgeSettings;
use crate::switch::Switch;
use parking_lot::Mutex;
use sluice_clock::now_ms;
use sluice_flow::{Match, OfPort};
use sluice_ofp::{FlowCommand, FlowMod, OfAction};
use sluice_ofproto::HiddenFlow;

/// A standalone bridge forwards by itself once no controller has been connected for this many probe intervals: one of
/// silence, one to wait for an answer, one to connect again. Source: Open vSwitch, `trigger_duration`.
const FAIL_OPEN_AFTER_PROBES: u32 = 3;

/// Priority of the hidden flow that forwards: above every other. Source: `FAIL_OPEN_PRIORITY`.
const FAIL_OPEN_PRIORITY: u32 = 0x00f0_f0f0;

/// What a standalone bridge does while its controllers are away.
#[derive(Debug)]
pub struct FailOpen {
    state: Mutex<FailOpenState>,
    /// How long it waits for a controller, seconds.
    patience_secs: u64,
}

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
    pub fn new(settings: &BridgeSettings) -> Self {
        let primary = settings.controllers.iter().filter(|controller| controller.is_primary());
        let probe = primary.map(|controller| controller.inactivity_probe).max().unwrap_or_default();
        let state = FailOpenState { connected: 0, disconnected_since_ms: now_ms(), forwards: false };
        FailOpen { state: Mutex::new(state), patience_secs: (FAIL_OPEN_AFTER_PROBES * probe).as_secs() }
    }

    /// Ends it: the bridge no longer forwards by itself.
    pub fn end(&self, switch: &Switch, bridge: &str) {
        if std::mem::take(&mut self.state.lock().forwards) {
            set_forwarding(switch, bridge, false);
        }
    }

    /// A controller has connected: it decides now.
    pub fn controller_connected(&self, switch: &Switch, bridge: &str) {
        let mut state = self.state.lock();
        state.connected += 1;
        if std::mem::take(&mut state.forwards) {
            set_forwarding(switch, bridge, false);
            tracing::warn!(target: "fail_open", "No longer in fail-open mode");
        }
    }

    /// A controller was disconnected.
    pub fn controller_disconnected(&self) {
        let mut state = self.state.lock();
        state.connected = state.connected.saturating_sub(1);
        state.disconnected_since_ms = now_ms();
    }

    /// Lets the bridge forward if it has been without a controller for too long. Called once a second.
    pub fn run(&self, switch: &Switch, bridge: &str) {
        let mut state = self.state.lock();
        let away_secs = now_ms().saturating_sub(state.disconnected_since_ms) / 1000;
        let is_due = away_secs > 0 && away_secs >= self.patience_secs;
        if state.connected == 0 && !state.forwards && is_due {
            state.forwards = true;
            set_forwarding(switch, bridge, true);
            tracing::warn!(
                target: "fail_open",
                "Could not connect to controller (or switch failed controller's post-connection admission control \
                 policy) for {away_secs} seconds, failing open"
            );
        }
    }
}

/// Adds or deletes the hidden flow that forwards every packet as NORMAL does.
fn set_forwarding(switch: &Switch, bridge: &str, forwards: bool) {
    let actions = vec![OfAction::Output { port: OfPort::NORMAL, max_len: 0 }];
    let flow = [HiddenFlow { matches: Match::ANY, priority: FAIL_OPEN_PRIORITY, actions }];
    let (gone, new) = if forwards { (&[][..], &flow[..]) } else { (&flow[..], &[][..]) };
    if let Err(error) = switch.ofproto.change_hidden_flows(bridge, gone, new, switch.now_ms()) {
        tracing::warn!("bridge {bridge}: {error}");
    }
    switch.revalidate_soon();
}

/// Adds or deletes the rule that a standalone bridge without controllers begins with: it forwards as NORMAL does.
pub fn change_normal_rule(switch: &Switch, bridge: &str, command: FlowCommand) {
    let mut normal = FlowMod::new(command);
    (normal.table, normal.priority) = (Some(0), 0);
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
