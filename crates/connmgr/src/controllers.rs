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
use crate::target::ActiveTarget;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sluice_clock::{PollTimer, now_ms};
use sluice_openflow::PacketInCounts;
use sluice_openflow::message::connection::Role;
use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a connection attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

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
    let backoff_min = BACKOFF_MIN.min(*max_backoff);
    let mut backoff = backoff_min;
    // Attempts that go on failing are not logged.
    let mut logs = true;
    while !context.end.is_given() {
        controller.connecting();
        if logs {
            tracing::info!(target: "rconn", "{name}: connecting...");
        }
        let stream = connect(target, &context.switch);
        timer.set(None);
        let (error, was_ready) = match stream {
            Ok(stream) => {
                let (reason, was_ready) = Connection::serve_controller(stream, controller, context);
                (error_text(reason).to_owned(), was_ready)
            }
            Err(error) => (system_text(&error), false),
        };
        controller.disconnected(&error);
        if context.end.is_given() {
            return;
        }
        match was_ready {
            true => {
                (backoff, logs) = (backoff_min, true);
                match error.as_str() {
                    PEER_CLOSED => tracing::info!(target: "rconn", "{name}: connection closed by peer"),
                    _ => tracing::info!(target: "rconn", "{name}: connection dropped ({error})"),
                }
            }
            false if logs => tracing::info!(target: "rconn", "{name}: connection failed ({error})"),
            false => {}
        }
        if logs {
            tracing::info!(target: "rconn", "{name}: waiting {} seconds before reconnect", backoff.as_secs());
        }
        wait(context, timer, backoff);
        logs = was_ready || backoff < *max_backoff;
        backoff = (2 * backoff).min(*max_backoff);
    }
}

/// How a connection ends that the controller closes.
const PEER_CLOSED: &str = "End of file";

/// The end of a connection as Open vSwitch's status has it. Source: `ovs_retval_to_string`.
fn error_text(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::PeerClosed => PEER_CLOSED,
        CloseReason::Inactive | CloseReason::NoHello | CloseReason::SendTimeout => "Connection timed out",
        CloseReason::BadMessages => "Protocol error",
        _ => "Connection reset by peer",
    }
}

/// The system's words for an error, without its number.
fn system_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.clone(), |(words, _)| words.to_owned())
}

fn connect(target: &ActiveTarget, switch: &Switch) -> io::Result<Stream> {
    match target {
        ActiveTarget::Tcp(address) => Stream::tcp(TcpStream::connect_timeout(address, CONNECT_TIMEOUT)?),
        ActiveTarget::Tls(address) => {
            let tls = switch.tls()?;
            Ok(Stream::Tls(Box::new(tls.connect(TcpStream::connect_timeout(address, CONNECT_TIMEOUT)?, *address)?)))
        }
        ActiveTarget::Unix(path) => Stream::unix(UnixStream::connect(path)?),
        ActiveTarget::Unresolved(_) => Err(rustix::io::Errno::AFNOSUPPORT.into()),
    }
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
