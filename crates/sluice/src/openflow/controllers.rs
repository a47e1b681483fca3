//! Controllers that the switch connects to, and what a bridge does without them.

use super::connection::Connection;
use super::hub::Hub;
use super::stream::Stream;
use crate::config::Controller;
use crate::switch::Switch;
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sluice_flow::OfPort;
use sluice_ofp::{FlowCommand, FlowMod, OfAction};
use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A connection is tried for so long.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// After the first failure it is tried again after so long, then after twice that, …
const BACKOFF_MIN: Duration = Duration::from_millis(500);

/// … and this at most. Source: Open vSwitch, `max_backoff`.
const BACKOFF_MAX: Duration = Duration::from_secs(8);

/// A standalone bridge forwards by itself once no controller has been there for so long. Source: Open vSwitch: three
/// times the probe interval.
const LONELY_AFTER: Duration = Duration::from_secs(15);

/// Priority of the rule by which it does: above every other.
const STANDALONE_PRIORITY: u16 = u16::MAX;

/// Keeps a connection to a controller until the hub ends.
///
/// # Errors
/// If there can be no thread.
pub fn start(controller: Controller, hub: &Arc<Hub>, switch: &Arc<Switch>) -> Result<JoinHandle<()>> {
    let (hub, switch) = (Arc::clone(hub), Arc::clone(switch));
    let keep = move || keep_connected(&controller, &hub, &switch);
    std::thread::Builder::new().name("controller".into()).spawn(keep).context("controller thread")
}

fn keep_connected(controller: &Controller, hub: &Arc<Hub>, switch: &Arc<Switch>) {
    let mut backoff = BACKOFF_MIN;
    let mut last_trouble = String::new();
    let wire = hub.add_wire();
    while !hub.is_ending() {
        let trouble = match connect(controller, switch) {
            Ok(stream) => {
                let (why, was_ready) = Connection::serve_controller(stream, &wire, hub, switch);
                if was_ready {
                    backoff = BACKOFF_MIN;
                }
                why.to_owned()
            }
            Err(error) => error.to_string(),
        };
        if hub.is_ending() {
            return;
        }
        // The same trouble again and again is said once.
        if trouble != last_trouble {
            tracing::warn!("bridge {}: controller {controller}: {trouble}; trying again", hub.bridge);
            last_trouble = trouble;
        }
        wait(hub, backoff);
        backoff = (2 * backoff).min(BACKOFF_MAX);
    }
}

fn connect(controller: &Controller, switch: &Switch) -> io::Result<Stream> {
    match controller {
        Controller::Tcp(address) => Stream::tcp(TcpStream::connect_timeout(address, CONNECT_MAX)?),
        Controller::Tls(address) => {
            let tls = switch.openflow.tls()?;
            Ok(Stream::Tls(Box::new(tls.connect(TcpStream::connect_timeout(address, CONNECT_MAX)?, *address)?)))
        }
        Controller::Unix(path) => Stream::unix(UnixStream::connect(path)?),
    }
}

/// Waits, unless the hub ends.
fn wait(hub: &Hub, time: Duration) {
    let mut fds = [PollFd::from_borrowed_fd(hub.end_fd(), PollFlags::IN)];
    let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    let _ = poll(&mut fds, Some(&timeout));
}

/// What a standalone bridge does while its controllers are away.
#[derive(Debug)]
pub struct Standalone(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Controllers that are there.
    connected: usize,
    /// Since when none is.
    lonely_since: Instant,
    /// Whether the bridge forwards by itself.
    forwards: bool,
}

impl Standalone {
    /// A bridge whose controllers have not come yet.
    pub fn new() -> Self {
        Standalone(Mutex::new(State { connected: 0, lonely_since: Instant::now(), forwards: false }))
    }

    /// A controller has come: it decides now.
    pub fn controller_came(&self, switch: &Switch, bridge: &str) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.connected += 1;
        // The rule that a standalone bridge begins with goes as well.
        change(switch, bridge, FlowCommand::DeleteStrict, 0);
        if std::mem::take(&mut state.forwards) {
            change(switch, bridge, FlowCommand::DeleteStrict, STANDALONE_PRIORITY);
            tracing::info!("bridge {bridge}: a controller is there, it decides");
        }
    }

    /// A controller has gone.
    pub fn controller_went(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.connected = state.connected.saturating_sub(1);
        state.lonely_since = Instant::now();
    }

    /// Looks whether the bridge has been alone for too long.
    pub fn tend(&self, switch: &Switch, bridge: &str) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
