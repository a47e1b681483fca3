//! The connection to the frontend: opened, kept, and opened again.

use super::device::{Device, DeviceReport};
use super::slot::RingSlot;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;
use vhost::vhost_user::{BackendReqHandler, Error};

/// How long a client waits before it tries the socket again, and a server before it checks whether to stop.
const RETRY: Duration = Duration::from_millis(200);

/// Which side opens the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// We connect.
    Client,
    /// We listen.
    Server,
}

/// A thread that speaks the protocol with the current frontend.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The socket we listen on, to be removed.
    listening: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct Shared {
    connected: AtomicBool,
    state: Mutex<LinkState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LinkState {
    ending: bool,
    frontend: Option<Frontend>,
}

/// The frontend that is connected.
#[derive(Debug)]
struct Frontend {
    /// For waking the thread that reads from it.
    connection: UnixStream,
    device: SharedDevice,
}

/// The request handler expects the standard library's mutex.
type SharedDevice = Arc<std::sync::Mutex<Device>>;

impl Link {
    /// Starts serving frontends at `path`.
    pub fn start(name: &str, path: PathBuf, side: Side, rings: Vec<Arc<RingSlot>>) -> io::Result<Self> {
        let listener = (side == Side::Server).then(|| listen(&path)).transpose()?;
        let shared = Arc::new(Shared::default());
        let listening = listener.is_some().then(|| path.clone());
        let thread = std::thread::Builder::new().name(format!("vhost {name}").chars().take(15).collect()).spawn({
            let shared = shared.clone();
            move || {
                while !shared.ending() {
                    match meet(&path, listener.as_ref()) {
                        Some(stream) => shared.serve(stream, &rings),
                        None => shared.wait(),
                    }
                }
            }
        })?;
        Ok(Link { shared, thread: Some(thread), listening })
    }

    /// The device as the frontend has set it up; `None` if no frontend is connected.
    pub fn device_report(&self) -> Option<DeviceReport> {
        let device = self.shared.state.lock().frontend.as_ref().map(|frontend| frontend.device.clone())?;
        Some(device.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).report())
    }

    /// Whether a frontend is connected.
    pub fn is_connected(&self) -> bool {
        self.shared.connected.load(Relaxed)
    }
}

impl Link {
    /// Ends the connection and the thread.
    pub fn end(&mut self) {
        {
            let mut state = self.shared.state.lock();
            state.ending = true;
            if let Some(frontend) = &state.frontend {
                let _ = frontend.connection.shutdown(std::net::Shutdown::Both);
            }
            self.shared.changed.notify_all();
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(path) = self.listening.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn ending(&self) -> bool {
        self.state.lock().ending
    }

    /// Waits until it is time to try again or to stop.
    fn wait(&self) {
        let mut state = self.state.lock();
        if !state.ending {
            let _ = self.changed.wait_for(&mut state, RETRY);
        }
    }

    /// Serves one frontend until it disconnects or violates the protocol.
    fn serve(&self, stream: UnixStream, rings: &[Arc<RingSlot>]) {
        let device = SharedDevice::new(Device::new(rings).into());
        let mut handler = BackendReqHandler::from_stream(stream, device.clone());
        {
            let mut state = self.state.lock();
            let Ok(connection) = handler.try_clone_connection() else { return };
            if state.ending {
                return;
            }
            state.frontend = Some(Frontend { connection, device: device.clone() });
        }
        self.connected.store(true, Relaxed);
        while goes_on(&handler.handle_request()) {}
        // A port that is down moves no packets: the rings stop first.
        device.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).reset();
        self.connected.store(false, Relaxed);
        self.state.lock().frontend = None;
    }
}

/// Whether the connection remains usable after a request. A request that was read completely and refused does not end
/// it.
///
/// DPDK's virtio-user disables its rings before it has negotiated features, when it reconnects.
fn goes_on(outcome: &Result<(), Error>) -> bool {
    use Error::{FeatureMismatch, InactiveFeature, InactiveOperation, InvalidOperation, InvalidParam, ReqHandlerError};
    match outcome {
        Ok(()) => true,
        Err(InactiveFeature(_) | InactiveOperation(_) | InvalidOperation(_) | InvalidParam) => true,
        Err(FeatureMismatch | ReqHandlerError(_)) => true,
        Err(_) => false,
    }
}

/// A connection, if one is possible now.
fn meet(path: &Path, listener: Option<&UnixListener>) -> Option<UnixStream> {
    let stream = match listener {
        Some(listener) => listener.accept().ok()?.0,
        None => UnixStream::connect(path).ok()?,
    };
    stream.set_nonblocking(false).ok()?;
    Some(stream)
}

/// Listens on `path`, accessible to this user only, and replaces a socket that nobody listens on.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let stale = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    if stale && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
