//! Listeners: a thread for each, and one for each connection it takes.

use crate::connection::End;
use crate::hub::Hub;
use crate::stream::Stream;
use crate::switch::Switch;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A socket that takes connections.
pub enum Listener {
    /// In the file system.
    Unix(UnixListener),
    /// TCP.
    Tcp(TcpListener),
    /// TLS over TCP.
    Tls(TcpListener),
}

/// Serves a connection that was taken, until it ends; why it did.
pub type Serve = fn(Stream, &Arc<Hub>, &Arc<Switch>) -> End;

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

    /// Takes connections until the hub ends.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(self, hub: &Arc<Hub>, switch: &Arc<Switch>, serve: Serve) -> io::Result<JoinHandle<()>> {
        self.set_nonblocking()?;
        let (hub, switch) = (Arc::clone(hub), Arc::clone(switch));
        std::thread::Builder::new().name("openflow".into()).spawn(move || self.run(&hub, &switch, serve))
    }

    fn run(&self, hub: &Arc<Hub>, switch: &Arc<Switch>, serve: Serve) {
        while !hub.is_ending() {
            let mut fds = [
                PollFd::from_borrowed_fd(self.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(hub.end_fd(), PollFlags::IN),
            ];
            let _ = poll(&mut fds, None);
            match self.accept(switch) {
                Ok(stream) => spawn(stream, hub, switch, serve),
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) => {}
                Err(e) => {
                    tracing::warn!("bridge {}: OpenFlow connection not taken: {e}", hub.bridge);
                    // Out of descriptors, most likely: some will be closed.
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }
}

fn spawn(stream: Stream, hub: &Arc<Hub>, switch: &Arc<Switch>, serve: Serve) {
    let (hub, switch, bridge) = (Arc::clone(hub), Arc::clone(switch), hub.bridge.clone());
    let serve = move || {
        let why = serve(stream, &hub, &switch);
        tracing::debug!("bridge {}: OpenFlow connection ended: {why}", hub.bridge);
    };
    if let Err(e) = std::thread::Builder::new().name("openflow-conn".into()).spawn(serve) {
        tracing::warn!("bridge {bridge}: no thread for an OpenFlow connection: {e}");
    }
}
