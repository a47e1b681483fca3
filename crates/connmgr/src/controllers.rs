//! Controllers that the switch connects to, again and again.

use crate::connection::Connection;
use crate::hub::Hub;
use crate::settings::ControllerSettings;
use crate::snoop::Wire;
use crate::stream::Stream;
use crate::switch::Switch;
use crate::target::ActiveTarget;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A connection is tried for so long.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// After the first failure it is tried again after so long, then after twice that, up to the controller's `max_backoff`.
const BACKOFF_MIN: Duration = Duration::from_millis(500);

/// A controller that the switch connects to.
pub struct Controller {
    /// Where it is, and how the connection is to be kept.
    pub settings: ControllerSettings,
    /// The messages that are exchanged with it.
    pub wire: Arc<Wire>,
}

/// Keeps a connection to a controller until the hub ends.
///
/// # Errors
/// If there can be no thread.
pub fn start(settings: ControllerSettings, hub: &Arc<Hub>, switch: &Arc<Switch>) -> io::Result<JoinHandle<()>> {
    let controller = Controller { settings, wire: hub.add_wire() };
    let (hub, switch) = (Arc::clone(hub), Arc::clone(switch));
    let keep = move || keep_connected(&controller, &hub, &switch);
    std::thread::Builder::new().name("controller".into()).spawn(keep)
}

fn keep_connected(controller: &Controller, hub: &Arc<Hub>, switch: &Arc<Switch>) {
    let ControllerSettings { target, max_backoff, .. } = &controller.settings;
    let backoff_min = BACKOFF_MIN.min(*max_backoff);
    let mut backoff = backoff_min;
    let mut last_trouble = String::new();
    while !hub.is_ending() {
        let trouble = match connect(target, switch) {
            Ok(stream) => {
                let (why, was_ready) = Connection::serve_controller(stream, controller, hub, switch);
                if was_ready {
                    backoff = backoff_min;
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
            tracing::warn!("bridge {}: controller {target}: {trouble}; trying again", hub.bridge);
            last_trouble = trouble;
        }
        wait(hub, backoff);
        backoff = (2 * backoff).min(*max_backoff);
    }
}

fn connect(target: &ActiveTarget, switch: &Switch) -> io::Result<Stream> {
    match target {
        ActiveTarget::Tcp(address) => Stream::tcp(TcpStream::connect_timeout(address, CONNECT_MAX)?),
        ActiveTarget::Tls(address) => {
            let tls = switch.tls()?;
            Ok(Stream::Tls(Box::new(tls.connect(TcpStream::connect_timeout(address, CONNECT_MAX)?, *address)?)))
        }
        ActiveTarget::Unix(path) => Stream::unix(UnixStream::connect(path)?),
    }
}

/// Waits, unless the hub ends.
fn wait(hub: &Hub, time: Duration) {
    let mut fds = [PollFd::from_borrowed_fd(hub.end_fd(), PollFlags::IN)];
    let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    let _ = poll(&mut fds, Some(&timeout));
}
