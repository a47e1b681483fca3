//! Joins a session to sockets: no thread, no runtime, nothing that blocks save [`Client::wait`].
//!
//! The owner calls [`Client::run`] when the socket of [`Client::interest`] is ready, when [`Client::deadline_ms`] has
//! come, and after [`crate::Session::commit`]. One call reads at most [`READ_MAX_BYTES`], so that a server that tells
//! much does not keep its owner from other work.

mod stream;
mod tls;

use crate::{Action, Config, ConfigError, DisconnectReason, Framer, Message, Remote, Session};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use stream::Stream;

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Bytes that one call of [`Client::run`] reads.
const READ_MAX_BYTES: usize = 1 << 20;

/// What to wait for.
#[derive(Clone, Copy, Debug)]
pub struct Interest<'a> {
    /// The socket. It changes with each connection.
    pub fd: BorrowedFd<'a>,
    /// Whether to wait until it can be read.
    pub read: bool,
    /// Whether to wait until it can be written.
    pub write: bool,
}

/// A session and its connection.
#[derive(Debug)]
pub struct Client {
    session: Session,
    tls: Option<Arc<rustls::ClientConfig>>,
    connection: Option<Connection>,
    /// Bytes were left to be read when the last call had read enough.
    is_behind: bool,
}

#[derive(Debug)]
struct Connection {
    stream: Stream,
    is_established: bool,
    framer: Framer,
    output: Vec<u8>,
    /// Bytes at the front of `output` that were sent.
    sent: usize,
}

impl Client {
    /// A client that connects when it is first run. `tls` is for `ssl:` remotes. Open vSwitch checks that a server's
    /// certificate is signed by the right authority, not the name in it: that is the verifier's decision.
    ///
    /// # Errors
    /// As [`Session::new`], or if a remote needs TLS and `tls` is `None`.
    pub fn new(config: Config, tls: Option<Arc<rustls::ClientConfig>>) -> Result<Self, ConfigError> {
        let without_tls = config.remotes.iter().find(|remote| matches!(remote, Remote::Ssl(_)) && tls.is_none());
        if let Some(remote) = without_tls {
            return Err(ConfigError::NoTls(remote.to_string()));
        }
        Ok(Client { session: Session::new(config)?, tls, connection: None, is_behind: false })
    }

    /// The session, to read from.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The session, to take events and changes from and to commit to. A commit is sent by the next [`Client::run`].
    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Does what can be done at `now_ms` without waiting: connects, reads, handles, writes.
    pub fn run(&mut self, now_ms: u64) {
        self.session.run(now_ms);
        self.act(now_ms);
        let ended = match self.establish(now_ms) {
            Ok(true) => self.read(now_ms),
            Ok(false) => Ok(()),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = ended {
            self.connection = None;
            self.session.disconnected(now_ms, reason);
        }
        self.act(now_ms);
        self.flush(now_ms);
    }

    /// The socket to wait for, if there is one.
    pub fn interest(&self) -> Option<Interest<'_>> {
        self.connection.as_ref().map(|connection| {
            let (read, write) = connection.stream.interest(connection.is_established);
            let write = write || connection.is_established && connection.sent < connection.output.len();
            Interest { fd: connection.stream.fd(), read, write }
        })
    }

    /// When to call [`Client::run`] next, if the socket does not become ready before; 0 for at once.
    pub fn deadline_ms(&self) -> Option<u64> {
        if self.is_behind { Some(0) } else { self.session.deadline_ms() }
    }

    /// Waits until there is something to do, but for `limit_ms` at most: for programs that wait for nothing else.
    ///
    /// # Errors
    /// If the system cannot wait.
    pub fn wait(&self, now_ms: u64, limit_ms: u64) -> io::Result<()> {
        let until_deadline = self.deadline_ms().map_or(u64::MAX, |deadline| deadline.saturating_sub(now_ms));
        let timeout = std::time::Duration::from_millis(until_deadline.min(limit_ms));
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        let mut fds: Vec<PollFd<'_>> = self.interest().iter().map(poll_fd).collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Does what the session asks for.
    fn act(&mut self, now_ms: u64) {
        while let Some(action) = self.session.next_action() {
            match action {
                Action::Connect(remote) => self.connect(now_ms, &remote),
                Action::Disconnect => self.connection = None,
                Action::Send(message) => {
                    if let Some(connection) = &mut self.connection {
                        connection.output.extend_from_slice(&message.to_bytes());
                    }
                }
            }
        }
    }

    fn connect(&mut self, now_ms: u64, remote: &Remote) {
        match Stream::connect(remote, self.tls.as_ref()) {
            Ok(stream) => {
                let framer = Framer::default();
                self.connection =
                    Some(Connection { stream, is_established: false, framer, output: Vec::new(), sent: 0 });
            }
            Err(error) => self.session.disconnected(now_ms, DisconnectReason::ConnectFailed(text_of(&error))),
        }
    }

    /// Whether there is a connection to read from.
    fn establish(&mut self, now_ms: u64) -> Result<bool, DisconnectReason> {
        let Some(connection) = &mut self.connection else { return Ok(false) };
        if !connection.is_established {
            let established = connection.stream.establish();
            if !established.map_err(|error| DisconnectReason::ConnectFailed(text_of(&error)))? {
                return Ok(false);
            }
            connection.is_established = true;
            self.session.connected(now_ms);
        }
        Ok(true)
    }

    /// Reads and handles what has come. The session may ask for the connection's end meanwhile.
    fn read(&mut self, now_ms: u64) -> Result<(), DisconnectReason> {
        self.is_behind = false;
        let mut chunk = [0; CHUNK_BYTES];
        let mut budget = READ_MAX_BYTES;
        while let Some(connection) = self.connection.as_mut().filter(|_| self.session.is_connected()) {
            if budget == 0 {
                self.is_behind = true;
                return Ok(());
            }
            let room = chunk.len().min(budget);
            let count = match connection.stream.read(&mut chunk[..room]) {
                Ok(0) => return Err(DisconnectReason::ClosedByPeer),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(DisconnectReason::Dropped(text_of(&error))),
            };
            budget -= count;
            connection.framer.push(&chunk[..count]);
            self.session.activity(now_ms);
            self.handle_messages(now_ms)?;
        }
        Ok(())
    }

    fn handle_messages(&mut self, now_ms: u64) -> Result<(), DisconnectReason> {
        while let Some(connection) = self.connection.as_mut().filter(|_| self.session.is_connected()) {
            let object = connection.framer.next_object().map_err(DisconnectReason::Frame)?;
            let Some(object) = object else { return Ok(()) };
            let message = Message::from_json(object).map_err(DisconnectReason::Frame)?;
            self.session.received(now_ms, message);
        }
        Ok(())
    }

    fn flush(&mut self, now_ms: u64) {
        let Some(connection) = self.connection.as_mut().filter(|connection| connection.is_established) else { return };
        if let Err(error) = connection.flush() {
            self.connection = None;
            self.session.disconnected(now_ms, DisconnectReason::Dropped(text_of(&error)));
        }
    }
}

impl Connection {
    /// Sends what the socket takes.
    fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.output.shrink_to(CHUNK_BYTES);
        self.sent = 0;
        self.stream.flush()
    }
}

fn poll_fd<'a>(interest: &Interest<'a>) -> PollFd<'a> {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, interest.read);
    flags.set(PollFlags::OUT, interest.write);
    PollFd::from_borrowed_fd(interest.fd, flags)
}

/// The system's sentence without the number that Rust adds: log lines have `(No such file or directory)`.
fn text_of(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(number) => text.trim_end_matches(&format!(" (os error {number})")).to_owned(),
        None => text,
    }
}
