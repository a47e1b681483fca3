//! Listeners: a thread for each, and one for each connection that it accepts.

use crate::close_reason::CloseReason;
use crate::serve_context::ServeContext;
use crate::stream::Stream;
use crate::switch::Switch;
use rustix::event::{PollFd, PollFlags, poll};
use sluice_clock::heartbeat::Heartbeat;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;
use std::time::Duration;

/// A socket that listens.
pub enum Listener {
    /// A Unix socket.
    Unix(UnixListener),
    /// TCP.
    Tcp(TcpListener),
    /// TLS over TCP.
    Tls(TcpListener),
}

/// Serves an accepted connection until it ends.
pub type Serve = fn(Stream, &ServeContext) -> CloseReason;

impl Listener {
    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Listener::Unix(listener) => listener.set_nonblocking(true),
            Listener::Tcp(listener) | Listener::Tls(listener) => listener.set_nonblocking(true),
        }
    }

    fn accept(&self, switch: &Switch) -> io::Result<Stream> {
        match self {
            Listener::Unix(listener) => Stream::unix(listener.accept()?.0),
            Listener::Tcp(listener) => Stream::tcp(listener.accept()?.0),
            Listener::Tls(listener) => {
                let (socket, _) = listener.accept()?;
                Ok(Stream::Tls(Box::new(switch.tls()?.accept(socket)?)))
            }
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix(listener) => listener.as_fd(),
            Listener::Tcp(listener) | Listener::Tls(listener) => listener.as_fd(),
        }
    }

    /// Starts the thread that accepts connections until it is asked to end.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(self, context: ServeContext, serve: Serve) -> io::Result<JoinHandle<()>> {
        self.set_nonblocking()?;
        std::thread::Builder::new().name("openflow".into()).spawn(move || self.run(&context, serve))
    }

    fn run(&self, context: &ServeContext, serve: Serve) {
        let heartbeat = Heartbeat::of("openflow");
        while !context.end.is_given() {
            let mut fds =
                [PollFd::from_borrowed_fd(self.as_fd(), PollFlags::IN), PollFd::new(&*context.end, PollFlags::IN)];
            let _ = poll(&mut fds, None);
            let _busy = heartbeat.begin("accepting a connection");
            match self.accept(&context.switch) {
                Ok(stream) => spawn(stream, context, serve),
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) => {}
                Err(e) => {
                    tracing::warn!("bridge {}: OpenFlow connection not accepted: {e}", context.bridge());
                    // The process is probably out of descriptors. Others will be closed.
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }
}

fn spawn(stream: Stream, context: &ServeContext, serve: Serve) {
    let (context, bridge) = (context.clone(), context.bridge().to_owned());
    let serve = move || {
        let reason = serve(stream, &context);
        tracing::debug!("bridge {}: OpenFlow connection ended: {reason}", context.bridge());
    };
    if let Err(e) = std::thread::Builder::new().name("openflow-conn".into()).spawn(serve) {
        tracing::warn!("bridge {bridge}: no thread for an OpenFlow connection: {e}");
    }
}
