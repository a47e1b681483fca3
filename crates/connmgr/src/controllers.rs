//! Controllers that the switch connects to: one thread for each, which connects again whenever the connection ends.

use crate::conn_mgr::ConnMgr;
use crate::connection::Connection;
use crate::settings::ControllerSettings;
use crate::snoop::ControllerTraffic;
use crate::stream::Stream;
use crate::switch::Switch;
use crate::target::ActiveTarget;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sluice_clock::{PollTimer, now_ms};
use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a connection attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause after the first failure. Each further pause is twice as long, up to the controller's `max_backoff`.
const BACKOFF_MIN: Duration = Duration::from_millis(500);

/// A controller that the switch connects to.
pub struct Controller {
    /// Its address, and how the connection is kept.
    pub settings: ControllerSettings,
    /// Its messages, for snoopers.
    pub traffic: Arc<ControllerTraffic>,
}

/// Starts the thread that keeps a connection to a controller until the bridge ends.
///
/// # Errors
/// If there can be no thread.
pub fn start(
    settings: ControllerSettings,
    conn_mgr: &Arc<ConnMgr>,
    switch: &Arc<Switch>,
) -> io::Result<JoinHandle<()>> {
    let controller = Controller { settings, traffic: conn_mgr.add_controller() };
    let (conn_mgr, switch) = (Arc::clone(conn_mgr), Arc::clone(switch));
    let timer = PollTimer::new()?;
    let keep = move || keep_connected(&controller, &conn_mgr, &switch, &timer);
    std::thread::Builder::new().name("controller".into()).spawn(keep)
}

fn keep_connected(controller: &Controller, conn_mgr: &Arc<ConnMgr>, switch: &Arc<Switch>, timer: &PollTimer) {
    let ControllerSettings { target, max_backoff, .. } = &controller.settings;
    let backoff_min = BACKOFF_MIN.min(*max_backoff);
    let mut backoff = backoff_min;
    let mut last_problem = String::new();
    while !conn_mgr.is_ending() {
        let connected = connect(target, switch);
        timer.set(None);
        let problem = match connected {
            Ok(stream) => {
                let (reason, was_ready) = Connection::serve_controller(stream, controller, conn_mgr, switch);
                if was_ready {
                    backoff = backoff_min;
                }
                reason.to_string()
            }
            Err(error) => error.to_string(),
        };
        if conn_mgr.is_ending() {
            return;
        }
        // A problem that repeats is logged once.
        if problem != last_problem {
            tracing::warn!("bridge {}: controller {target}: {problem}; trying again", conn_mgr.bridge);
            last_problem = problem;
        }
        wait(conn_mgr, timer, backoff);
        backoff = (2 * backoff).min(*max_backoff);
    }
}

fn connect(target: &ActiveTarget, switch: &Switch) -> io::Result<Stream> {
    match target {
        ActiveTarget::Tcp(address) => Stream::tcp(TcpStream::connect_timeout(address, CONNECT_TIMEOUT)?),
        ActiveTarget::Tls(address) => {
            let tls = switch.tls()?;
            Ok(Stream::Tls(Box::new(tls.connect(TcpStream::connect_timeout(address, CONNECT_TIMEOUT)?, *address)?)))
        }
        ActiveTarget::Unix(path) => Stream::unix(UnixStream::connect(path)?),
    }
}

/// Waits; not longer than until the bridge ends.
fn wait(conn_mgr: &ConnMgr, timer: &PollTimer, time: Duration) {
    let until_ms = now_ms() + u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 2);
    loop {
        let left = timer.set(Some(until_ms));
        if left.is_zero() || conn_mgr.is_ending() {
            return;
        }
        let mut fds = [PollFd::from_borrowed_fd(conn_mgr.end_fd(), PollFlags::IN), PollFd::new(timer, PollFlags::IN)];
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let _ = poll(&mut fds, Some(&timeout));
    }
}
