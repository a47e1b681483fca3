//! Controllers that the switch connects to: one thread for each, which connects again whenever the connection ends.
//! Source: Open vSwitch, `rconn.c`.

use crate::close_reason::CloseReason;
use crate::connection::Connection;
use crate::controller_status::{ControllerState, ControllerStatus};
use crate::serve_context::ServeContext;
use crate::settings::ControllerSettings;
use crate::snoop::ControllerTraffic;
use crate::stream::Stream;
use crate::switch::Switch;
use crate::target::{ActiveTarget, NamedTarget};
use crate::unix_socket;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::ServerName;
use sluice_clock::heartbeat::{Busy, Heartbeat, WORK_WITHIN};
use sluice_clock::{PollTimer, now_ms};
use sluice_openflow::PacketInCounts;
use sluice_openflow::message::connection::Role;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a connection attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Addresses of a host that are tried.
const ADDRESSES_MAX: usize = 4;

/// The pause after the first failure. Each further pause is twice as long, up to the controller's `max_backoff`.
const BACKOFF_MIN: Duration = Duration::from_secs(1);

/// A controller that the switch connects to.
pub struct Controller {
    /// Its address, and how the connection is kept.
    pub settings: ControllerSettings,
    /// Its messages, for snoopers.
    pub traffic: ControllerTraffic,
    progress: Mutex<Progress>,
}

/// How far the connection has come.
#[derive(Default)]
struct Progress {
    state: ControllerState,
    role: Option<Role>,
    connected_ms: Option<u64>,
    disconnected_ms: Option<u64>,
    last_error: Option<String>,
    packet_ins: Option<[PacketInCounts; 2]>,
}

impl Controller {
    /// A controller that is not connected yet.
    pub fn new(settings: ControllerSettings) -> Self {
        Controller { settings, traffic: ControllerTraffic::default(), progress: Mutex::default() }
    }

    /// What is known of it.
    pub fn status(&self) -> ControllerStatus {
        let (progress, now_ms) = (self.progress.lock(), now_ms());
        let since = |then_ms: Option<u64>| then_ms.map(|then| Duration::from_millis(now_ms.saturating_sub(then)));
        ControllerStatus {
            target: self.settings.target.clone(),
            role: progress.role,
            state: progress.state,
            since_connect: since(progress.connected_ms),
            since_disconnect: since(progress.disconnected_ms),
            last_error: progress.last_error.clone(),
            packet_ins: progress.packet_ins,
        }
    }

    /// Notes what its connection knows.
    pub fn note(&self, role: Option<Role>, is_probed: bool, packet_ins: Option<[PacketInCounts; 2]>) {
        self.traffic.set_role(role);
        let mut progress = self.progress.lock();
        if role.is_some() {
            if progress.role.is_none() {
                progress.connected_ms = Some(now_ms());
            }
            progress.state = if is_probed { ControllerState::Idle } else { ControllerState::Active };
        }
        (progress.role, progress.packet_ins) = (role, packet_ins);
    }

    fn connecting(&self) {
        self.progress.lock().state = ControllerState::Connecting;
    }

    fn disconnected(&self, error: &str) {
        self.note(None, false, None);
        let mut progress = self.progress.lock();
        progress.state = ControllerState::Backoff;
        progress.disconnected_ms = Some(now_ms());
        progress.last_error = Some(error.to_owned());
    }
}

/// Starts the thread that keeps a connection to a controller until it is asked to end.
///
/// # Errors
/// If there can be no thread.
pub fn start(controller: Arc<Controller>, context: ServeContext) -> io::Result<JoinHandle<()>> {
    let timer = PollTimer::new()?;
    let keep = move || keep_connected(&controller, &context, &timer);
    std::thread::Builder::new().name("controller".into()).spawn(keep)
}

fn keep_connected(controller: &Arc<Controller>, context: &ServeContext, timer: &PollTimer) {
    let ControllerSettings { target, max_backoff, .. } = &controller.settings;
    let name = format!("{}<->{target}", context.bridge());
    let mut backoff = Backoff::new(*max_backoff);
    let heartbeat = Heartbeat::of("controller");
    while !context.end.is_given() {
        controller.connecting();
        if backoff.is_logged() {
            tracing::info!(target: "rconn", "{name}: connecting...");
        }
        let busy = heartbeat.begin("preparing a connection");
        let stream = connect(target, &context.switch, &busy);
        drop(busy);
        timer.set(None);
        let began_ms = now_ms();
        let end = match stream {
            Ok(stream) => Ok(Connection::serve_controller(stream, controller, context)),
            Err(error) => Err(system_text(&error)),
        };
        let error = end.as_ref().map_or_else(Clone::clone, |(reason, _)| error_text(*reason).to_owned());
        controller.disconnected(&error);
        if context.end.is_given() {
            return;
        }
        match end {
            Ok((reason, true)) => log_end(&name, reason, &controller.settings),
            _ => log_failure(&name, target, &error, &backoff),
        }
        let was_ready = matches!(end, Ok((_, true)));
        let lasted_ms = now_ms().saturating_sub(began_ms);
        if was_ready && Duration::from_millis(lasted_ms) >= backoff.pause {
            backoff.reset();
        } else if let Some(text) = backoff.grow() {
            tracing::info!(target: "rconn", "{name}: {text}");
        }
        wait(context, timer, backoff.pause);
    }
}

/// Logs why there was no connection. A socket that is not there is worth a warning: nothing but this machine is to blame.
/// Source: Open vSwitch, `reconnect`, `run_CONNECTING`.
fn log_failure(name: &str, target: &ActiveTarget, error: &str, backoff: &Backoff) {
    match target {
        ActiveTarget::Unix(_) | ActiveTarget::Unresolved(_) => {
            tracing::warn!(target: "rconn", "{name}: connection failed ({error})");
        }
        _ if backoff.is_logged() => tracing::info!(target: "rconn", "{name}: connection failed ({error})"),
        _ => {}
    }
}

/// Logs why a connection ended. Source: Open vSwitch, `report_error`, `run_IDLE`.
fn log_end(name: &str, reason: CloseReason, settings: &ControllerSettings) {
    match reason {
        CloseReason::PeerClosed => tracing::info!(target: "rconn", "{name}: connection closed by peer"),
        CloseReason::Inactive => {
            let secs = settings.inactivity_probe.as_secs();
            let text = format!("no response to inactivity probe after {secs} seconds, disconnecting");
            tracing::error!(target: "rconn", "{name}: {text}");
        }
        _ => tracing::warn!(target: "rconn", "{name}: connection dropped ({})", error_text(reason)),
    }
}

/// The pauses between attempts, and how much of them is logged. Source: Open vSwitch, `rconn.c`, `disconnect`.
struct Backoff {
    pause: Duration,
    max: Duration,
}

impl Backoff {
    fn new(max: Duration) -> Self {
        Backoff { pause: Duration::ZERO, max }
    }

    /// Whether attempts are logged: not those that go on failing.
    fn is_logged(&self) -> bool {
        self.pause < self.max
    }

    /// A connection has lasted.
    fn reset(&mut self) {
        self.pause = BACKOFF_MIN.min(self.max);
    }

    /// Makes the next pause longer; what is to be logged of it.
    fn grow(&mut self) -> Option<String> {
        if self.pause < self.max / 2 {
            self.pause = (2 * self.pause).max(BACKOFF_MIN).min(self.max);
            return Some(format!("waiting {} seconds before reconnect", self.pause.as_secs()));
        }
        let was_logged = self.is_logged();
        self.pause = self.max;
        let text = "continuing to retry connections in the background but suppressing further logging";
        was_logged.then(|| text.to_owned())
    }
}

/// The end of a connection as Open vSwitch's status has it. Source: `ovs_retval_to_string`.
fn error_text(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::PeerClosed => "End of file",
        CloseReason::Inactive | CloseReason::NoHello | CloseReason::SendTimeout => "Connection timed out",
        CloseReason::BadMessages => "Protocol error",
        _ => "Connection reset by peer",
    }
}

/// The system's words for an error, without its number.
pub fn system_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.clone(), |(words, _)| words.to_owned())
}

fn connect(target: &ActiveTarget, switch: &Switch, busy: &Busy<'_>) -> io::Result<Stream> {
    match target {
        ActiveTarget::Tcp(address) => Stream::tcp(connect_to_one([*address], busy)?),
        ActiveTarget::Tls(address) => {
            let name = ServerName::IpAddress(address.ip().into());
            let tls = switch.tls()?;
            Ok(Stream::Tls(Box::new(tls.connect(connect_to_one([*address], busy)?, name)?)))
        }
        ActiveTarget::Named(NamedTarget { is_tls, name, port }) => {
            let tls = is_tls.then(|| switch.tls()).transpose()?;
            busy.go_on("name resolution");
            let socket = connect_to_one((name.as_str(), *port).to_socket_addrs()?.take(ADDRESSES_MAX), busy)?;
            let Some(tls) = tls else { return Stream::tcp(socket) };
            let name = ServerName::try_from(name.clone()).map_err(io::Error::other)?;
            Ok(Stream::Tls(Box::new(tls.connect(socket, name)?)))
        }
        ActiveTarget::Unix(path) => Stream::unix(unix_socket::connect(path)?),
        ActiveTarget::Unresolved(_) => Err(rustix::io::Errno::AFNOSUPPORT.into()),
    }
}

/// Connects to the first of a host's addresses that takes the connection.
fn connect_to_one(addresses: impl IntoIterator<Item = SocketAddr>, busy: &Busy<'_>) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        // Connecting is to take as long as it may; what is told is a system that does not keep to it.
        busy.go_on_within("connecting", CONNECT_TIMEOUT + WORK_WITHIN);
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Waits; not longer than until it is asked to end.
fn wait(context: &ServeContext, timer: &PollTimer, time: Duration) {
    let until_ms = now_ms() + u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 2);
    loop {
        let left = timer.set(Some(until_ms));
        if left.is_zero() || context.end.is_given() {
            return;
        }
        let mut fds = [PollFd::new(&*context.end, PollFlags::IN), PollFd::new(timer, PollFlags::IN)];
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let _ = poll(&mut fds, Some(&timeout));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_the_log_falls_silent() {
        let mut backoff = Backoff::new(Duration::from_secs(8));
        let mut said = Vec::new();
        while backoff.is_logged() {
            said.push((backoff.grow().unwrap_or_default(), backoff.pause.as_secs()));
        }
        let waiting = |secs| (format!("waiting {secs} seconds before reconnect"), secs);
        assert_eq!(said[..3], [waiting(1), waiting(2), waiting(4)]);
        assert!(said[3].0.starts_with("continuing to retry") && said[3].1 == 8);
        assert_eq!((said.len(), backoff.grow()), (4, None));
        backoff.reset();
        assert!(backoff.is_logged() && backoff.pause == BACKOFF_MIN);
    }
}
