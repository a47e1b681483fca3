//! The connection to the frontend: opened, kept, and opened again.

use super::device::{Device, DeviceReport, Offer};
use super::request;
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use sluice_clock::heartbeat::Heartbeat;
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

/// Who may connect to a socket that we listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketAccess {
    /// The socket's owner, if not this process's.
    pub owner: Option<u32>,
    /// Its group, if not this process's.
    pub group: Option<u32>,
    /// Its mode.
    pub mode: u32,
}

impl Default for SocketAccess {
    /// This user alone.
    fn default() -> Self {
        SocketAccess { owner: None, group: None, mode: 0o600 }
    }
}

impl Link {
    /// Starts serving frontends at `path` with `offer`. `access` is that to the socket of a server.
    pub fn start(name: &str, path: PathBuf, side: Side, access: SocketAccess, offer: Offer) -> io::Result<Self> {
        let listener = (side == Side::Server).then(|| listen(&path, access)).transpose()?;
        let shared = Arc::new(Shared::default());
        let listening = listener.is_some().then(|| path.clone());
        let thread = std::thread::Builder::new().name(format!("vhost {name}").chars().take(15).collect()).spawn({
            let (shared, heartbeat) = (shared.clone(), Heartbeat::of(format!("vhost {name}")));
            let mut refusal = Refusal { port: name.to_owned(), last: None };
            move || {
                while !shared.ending() {
                    match meet(&path, listener.as_ref(), &mut refusal) {
                        Some(stream) => shared.serve(stream, &offer, &heartbeat),
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
    fn serve(&self, stream: UnixStream, offer: &Offer, heartbeat: &Heartbeat) {
        let device = SharedDevice::new(Device::new(offer).into());
        let mut handler = BackendReqHandler::from_stream(stream, device.clone());
        let Ok(requests) = handler.try_clone_connection() else { return };
        {
            let mut state = self.state.lock();
            let Ok(connection) = handler.try_clone_connection() else { return };
            if state.ending {
                return;
            }
            state.frontend = Some(Frontend { connection, device: device.clone() });
        }
        self.connected.store(true, Relaxed);
        while wait_for_request(&requests) {
            // A frontend that sends a part of a request holds this thread; the end of the port ends the connection.
            let _busy = heartbeat.begin("a request of the frontend");
            let ours = |request| device.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).serve(request);
            if !request::serve(&requests, ours) && !goes_on(&handler.handle_request()) {
                break;
            }
        }
        let _busy = heartbeat.begin("end of the frontend's rings");
        // A port that is down moves no packets: the rings stop first.
        device.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).reset();
        self.connected.store(false, Relaxed);
        self.state.lock().frontend = None;
    }
}

/// Waits until the frontend has sent something or has gone; whether that could be waited for.
fn wait_for_request(frontend: &UnixStream) -> bool {
    let waited = poll(&mut [PollFd::new(frontend, PollFlags::IN)], None);
    matches!(waited, Ok(_) | Err(Errno::INTR))
}

/// Whether the connection remains usable after a request. A request that was read completely and refused does not end
/// it.
fn goes_on(outcome: &Result<(), Error>) -> bool {
    use Error::{FeatureMismatch, InactiveFeature, InactiveOperation, InvalidOperation, InvalidParam, ReqHandlerError};
    match outcome {
        Ok(()) => true,
        Err(InactiveFeature(_) | InactiveOperation(_) | InvalidOperation(_) | InvalidParam) => true,
        Err(FeatureMismatch | ReqHandlerError(_)) => true,
        Err(_) => false,
    }
}

/// Why the frontend's socket cannot be had. A frontend that is not there yet is no reason; what waiting does not mend is told
/// once.
struct Refusal {
    port: String,
    last: Option<io::ErrorKind>,
}

impl Refusal {
    /// Takes note of what came of a connection; a line for the log, if it is news.
    fn note(&mut self, path: &Path, outcome: Result<(), &io::Error>) -> Option<String> {
        let kind = outcome.err().map(io::Error::kind);
        let lasts = [io::ErrorKind::PermissionDenied, io::ErrorKind::InvalidInput];
        let is_news = kind != self.last && kind.is_some_and(|kind| lasts.contains(&kind));
        self.last = kind;
        let error = outcome.err().filter(|_| is_news)?;
        let (port, path, uid) = (&self.port, path.display(), rustix::process::geteuid().as_raw());
        Some(format!(
            "port {port}: cannot connect to {path}: {error}; the switch runs as user {uid}: let that user write the socket and \
             come by its directories, or set switch.user; it is tried again until then"
        ))
    }
}

/// A connection, if one is possible now.
fn meet(path: &Path, listener: Option<&UnixListener>, refusal: &mut Refusal) -> Option<UnixStream> {
    let stream = match listener {
        Some(listener) => listener.accept().ok()?.0,
        None => {
            let connected = connect(path);
            if let Some(text) = refusal.note(path, connected.as_ref().map(drop)) {
                tracing::warn!("{text}");
            }
            connected.ok()?
        }
    };
    stream.set_nonblocking(false).ok()?;
    Some(stream)
}

/// Connects without waiting for the one that listens to have room for one more.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// Listens on `path` and replaces a socket that nobody listens on.
fn listen(path: &Path, access: SocketAccess) -> io::Result<UnixListener> {
    let stale = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    let is_served = || connect(path).map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |_| true);
    if stale && !is_served() {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    // A socket that the wrong ones could use must not stay.
    let given = std::os::unix::fs::lchown(path, access.owner, access.group)
        .and_then(|()| std::fs::set_permissions(path, std::fs::Permissions::from_mode(access.mode)));
    given.inspect_err(|_| drop(std::fs::remove_file(path)))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::super::feature::Features;
    use super::*;
    use sluice_clock::heartbeat::busy_threads;
    use std::sync::mpsc;

    /// Of a port without rings.
    fn nothing() -> Offer {
        Offer { rings: Vec::new(), features: Features::OFFERED }
    }

    #[test]
    fn a_socket_that_this_user_may_not_use_is_told_once() {
        let mut refusal = Refusal { port: "vm1".into(), last: None };
        let path = Path::new("/run/vm1.sock");
        let error = |kind: io::ErrorKind| io::Error::from(kind);
        let (absent, denied) = (error(io::ErrorKind::NotFound), error(io::ErrorKind::PermissionDenied));
        assert_eq!(refusal.note(path, Err(&absent)), None);
        let told = refusal.note(path, Err(&denied)).unwrap();
        assert!(told.starts_with("port vm1: cannot connect to /run/vm1.sock: permission denied; "), "{told}");
        assert_eq!(refusal.note(path, Err(&denied)), None);
        assert_eq!(refusal.note(path, Ok(())), None);
        assert!(refusal.note(path, Err(&denied)).is_some());
    }

    #[test]
    fn a_socket_has_the_mode_and_the_group_that_were_asked_for() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let group = rustix::process::getegid().as_raw();
        let _listener = listen(&path, SocketAccess { owner: None, group: Some(group), mode: 0o660 }).unwrap();
        let found = path.symlink_metadata().unwrap();
        assert_eq!((found.mode() & 0o777, found.gid()), (0o660, group));
        if !rustix::process::geteuid().is_root() {
            // Only root gives things away; nothing is left that others could use.
            let refused = dir.path().join("refused");
            assert!(listen(&refused, SocketAccess { owner: Some(0), ..SocketAccess::default() }).is_err());
            assert!(!refused.exists());
        }
    }

    #[test]
    fn a_frontend_that_takes_no_connection_does_not_hold_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("full");
        let listener = net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        net::listen(&listener, 0).unwrap();
        let held: Vec<UnixStream> = std::iter::from_fn(|| connect(&path).ok()).collect();
        assert!(!held.is_empty());
        let link = Link::start("full", path, Side::Client, SocketAccess::default(), nothing()).unwrap();
        std::thread::sleep(RETRY);
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            drop(link);
            done.send(())
        });
        is_done.recv_timeout(Duration::from_secs(20)).expect("the end waits for the frontend");
    }

    #[test]
    fn a_part_of_a_request_does_not_hold_the_end_and_has_a_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("half");
        let link = Link::start("half", path.clone(), Side::Server, SocketAccess::default(), nothing()).unwrap();
        let mut frontend = UnixStream::connect(&path).unwrap();
        io::Write::write_all(&mut frontend, &[1, 0, 0]).unwrap();
        let busy = || busy_threads().into_iter().find(|busy| &*busy.thread == "vhost half");
        while busy().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(busy().unwrap().to_string(), "thread vhost half in a request of the frontend");
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            drop(link);
            done.send(())
        });
        is_done.recv_timeout(Duration::from_secs(20)).expect("the end waits for the frontend");
        assert_eq!(busy(), None);
    }
}
