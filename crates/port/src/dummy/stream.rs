//! The streams of a dummy device: peers that it exchanges frames with, each frame behind its length as a big-endian
//! 16-bit number.
//!
//! A thread serves them. A passive device serves all peers that connect; an active one connects to its peer again and
//! again.

use super::device::{ConnState, DummyDevice, Outbox, WAITING_MAX};
use crate::config::Options;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sluice_clock::heartbeat::Heartbeat;
use sluice_clock::{PollTimer, now_ms};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The pause after a failed connection attempt, milliseconds; it doubles each time. Source: OVS netdev-dummy.c.
const BACKOFF_MIN_MS: u64 = 100;
const BACKOFF_MAX_MS: u64 = i32::MAX as u64;

/// A frame is no shorter than an Ethernet header.
const FRAME_MIN: usize = 14;

/// The port of a `ptcp:` target that names none. Source: OVS.
const PORT_DEFAULT: u16 = 0;

/// The thread that serves a device's streams. Dropping it ends the thread, and the device has no peers any more.
pub(super) struct Streams {
    device: Arc<DummyDevice>,
    outbox: Arc<Outbox>,
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What a device does about peers.
enum Role {
    Passive(Listener),
    Active(Target),
}

/// Where an active device's peer is.
enum Target {
    Unix(PathBuf),
    Tcp(String),
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A connection to a peer.
struct Peer {
    socket: Socket,
    /// Bytes received of frames that are not complete.
    received: Vec<u8>,
    /// Frames to send; the first may have been sent in part.
    unsent: VecDeque<Vec<u8>>,
}

impl Streams {
    /// Starts the thread if the options name a stream. What cannot be is a note: the device works without it.
    pub fn start(
        options: &Options<'_>,
        device: &Arc<DummyDevice>,
        notes: &mut Vec<String>,
    ) -> io::Result<Option<Streams>> {
        let role = match (options.text("pstream"), options.text("stream")) {
            (None, None) => return Ok(None),
            (Some(pstream), Some(stream)) => {
                notes.push(format!("Open failed: both {pstream} and {stream} are configured"));
                return Ok(None);
            }
            (Some(text), None) => match Listener::open(text, options) {
                Ok(listener) => Role::Passive(listener),
                Err(error) => {
                    notes.push(format!("{text}: open failed ({error})"));
                    return Ok(None);
                }
            },
            (None, Some(text)) => match Target::parse(text, options) {
                Some(target) => Role::Active(target),
                None => {
                    notes.push(format!("{text}: expected unix:FILE or tcp:ADDRESS:PORT"));
                    return Ok(None);
                }
            },
        };
        let outbox = Arc::new(Outbox::new()?);
        let is_ending = Arc::new(AtomicBool::new(false));
        device.set_outbox(Some(Arc::clone(&outbox)));
        if matches!(role, Role::Active(_)) {
            device.set_conn_state(ConnState::Disconnected);
        }
        let server = Server {
            device: Arc::clone(device),
            outbox: Arc::clone(&outbox),
            is_ending: Arc::clone(&is_ending),
            peers: Vec::new(),
            timer: PollTimer::new()?,
            heartbeat: Heartbeat::of("dummy-stream"),
        };
        let thread = std::thread::Builder::new().name("dummy-stream".into()).spawn(move || server.run(&role))?;
        Ok(Some(Streams { device: Arc::clone(device), outbox, is_ending, thread: Some(thread) }))
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Release);
        self.outbox.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.device.set_outbox(None);
        self.device.set_conn_state(ConnState::Unknown);
    }
}

/// The thread's state.
struct Server {
    device: Arc<DummyDevice>,
    outbox: Arc<Outbox>,
    is_ending: Arc<AtomicBool>,
    peers: Vec<Peer>,
    timer: PollTimer,
    heartbeat: Arc<Heartbeat>,
}

impl Server {
    fn run(mut self, role: &Role) {
        match role {
            Role::Passive(listener) => {
                while !self.is_ending.load(Ordering::Acquire) {
                    self.peers.extend(std::iter::from_fn(|| listener.accept()));
                    self.serve_peers();
                    self.wait(Some(listener.as_fd()), None);
                }
            }
            Role::Active(target) => self.keep_connected(target),
        }
    }

    fn keep_connected(&mut self, target: &Target) {
        let (mut due_ms, mut backoff_ms) = (now_ms(), BACKOFF_MIN_MS);
        while !self.is_ending.load(Ordering::Acquire) {
            if self.peers.is_empty() && now_ms() >= due_ms {
                let busy = self.heartbeat.begin("connecting");
                let connected = target.connect();
                drop(busy);
                match connected {
                    Ok(peer) => {
                        self.peers.push(peer);
                        backoff_ms = BACKOFF_MIN_MS;
                        self.device.set_conn_state(ConnState::Connected);
                    }
                    Err(_) => {
                        due_ms = now_ms() + backoff_ms;
                        backoff_ms = (2 * backoff_ms).min(BACKOFF_MAX_MS);
                    }
                }
            }
            let was_connected = !self.peers.is_empty();
            self.serve_peers();
            if was_connected && self.peers.is_empty() {
                self.device.set_conn_state(ConnState::Disconnected);
                due_ms = now_ms() + BACKOFF_MIN_MS;
            }
            self.wait(None, self.peers.is_empty().then_some(due_ms));
        }
    }

    /// Gives the peers what the device has sent, and the device what they have sent.
    fn serve_peers(&mut self) {
        let _busy = self.heartbeat.begin("frames of peers");
        let frames = self.outbox.take();
        let device = &self.device;
        self.peers.retain_mut(|peer| {
            peer.queue(&frames);
            peer.write().and_then(|()| peer.read(device)).is_ok()
        });
    }

    /// Waits for a peer, for a frame to send, for the end, or until `due_ms`.
    fn wait(&self, listener: Option<BorrowedFd<'_>>, due_ms: Option<u64>) {
        // What wakes for the end may have been taken for a frame that waits.
        if self.is_ending.load(Ordering::Acquire) {
            return;
        }
        let wanted = |peer: &Peer| match peer.unsent.is_empty() {
            true => PollFlags::IN,
            false => PollFlags::IN | PollFlags::OUT,
        };
        let peers = self.peers.iter().map(|peer| PollFd::from_borrowed_fd(peer.socket.as_fd(), wanted(peer)));
        let others = [self.outbox.as_fd(), self.timer.as_fd()].into_iter().chain(listener);
        let others = others.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let mut fds: Vec<_> = others.chain(peers).collect();
        let left = self.timer.set(due_ms);
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        if poll(&mut fds, Some(&timeout)).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Peer {
    fn new(socket: Socket) -> Peer {
        Peer { socket, received: Vec::new(), unsent: VecDeque::new() }
    }

    /// Queues frames; those beyond a limit are lost.
    fn queue(&mut self, frames: &VecDeque<Vec<u8>>) {
        for frame in frames {
            if let Ok(size) = u16::try_from(frame.len())
                && self.unsent.len() < WAITING_MAX
            {
                self.unsent.push_back([&size.to_be_bytes()[..], frame].concat());
            }
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while let Some(first) = self.unsent.front_mut() {
            match self.socket.write(first) {
                Ok(n) if n == first.len() => drop(self.unsent.pop_front()),
                Ok(n) => drop(first.drain(..n)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads what has come, and gives complete frames to the device.
    fn read(&mut self, device: &DummyDevice) -> io::Result<()> {
        let mut buffer = [0; 4096];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    self.received.extend_from_slice(&buffer[..n]);
                    self.deliver(device)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn deliver(&mut self, device: &DummyDevice) -> io::Result<()> {
        let mut at = 0;
        while let Some(size) = self.received[at..].first_chunk() {
            let size = usize::from(u16::from_be_bytes(*size));
            if size < FRAME_MIN {
                return Err(ErrorKind::InvalidData.into());
            }
            let Some(frame) = self.received.get(at + 2..at + 2 + size) else { break };
            device.receive(0, frame.to_vec());
            at += 2 + size;
        }
        self.received.drain(..at);
        Ok(())
    }
}

impl Target {
    fn parse(text: &str, options: &Options<'_>) -> Option<Target> {
        match text.split_once(':')? {
            ("unix", path) => Some(Target::Unix(options.config.base_dir.join(path))),
            ("tcp", address) => Some(Target::Tcp(address.to_owned())),
            _ => None,
        }
    }

    fn connect(&self) -> io::Result<Peer> {
        let socket = match self {
            Target::Unix(path) => Socket::Unix(UnixStream::connect(path)?),
            Target::Tcp(address) => Socket::Tcp(TcpStream::connect(address)?),
        };
        socket.set_nonblocking()?;
        Ok(Peer::new(socket))
    }
}

impl Listener {
    fn open(text: &str, options: &Options<'_>) -> io::Result<Listener> {
        let listener = match text.split_once(':') {
            Some(("punix", path)) => Listener::bind_unix(&options.config.base_dir.join(path))?,
            Some(("ptcp", rest)) => {
                let (port, address) = rest.split_once(':').unwrap_or((rest, "0.0.0.0"));
                let port = if port.is_empty() { PORT_DEFAULT } else { port.parse().map_err(invalid)? };
                Listener::Tcp(TcpListener::bind((address.trim_matches(['[', ']']), port))?)
            }
            _ => return Err(invalid("expected punix:FILE or ptcp:PORT[:ADDRESS]")),
        };
        match &listener {
            Listener::Unix(socket) => socket.set_nonblocking(true)?,
            Listener::Tcp(socket) => socket.set_nonblocking(true)?,
        }
        Ok(listener)
    }

    /// Binds; a socket that was left behind gives way.
    fn bind_unix(path: &Path) -> io::Result<Listener> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(Listener::Unix(UnixListener::bind(path)?)),
        }
    }

    fn accept(&self) -> Option<Peer> {
        let socket = match self {
            Listener::Unix(listener) => Socket::Unix(listener.accept().ok()?.0),
            Listener::Tcp(listener) => Socket::Tcp(listener.accept().ok()?.0),
        };
        socket.set_nonblocking().ok()?;
        Some(Peer::new(socket))
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix(listener) => listener.as_fd(),
            Listener::Tcp(listener) => listener.as_fd(),
        }
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, error)
}

impl Socket {
    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Socket::Unix(stream) => stream.set_nonblocking(true),
            Socket::Tcp(stream) => stream.set_nonblocking(true),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => stream.read(into),
            Socket::Tcp(stream) => stream.read(into),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => stream.write(bytes),
            Socket::Tcp(stream) => stream.write(bytes),
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Unix(stream) => stream.as_fd(),
            Socket::Tcp(stream) => stream.as_fd(),
        }
    }
}
