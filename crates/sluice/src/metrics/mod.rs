//! The Prometheus endpoint (`metrics` in the configuration; off unless given): `GET /metrics` over HTTP.
//!
//! One thread serves all clients and waits for none of them: their sockets do not block, each client has a deadline,
//! and when all places are taken the client that came first gives its place to the next. Counters are read when asked,
//! PMDs notice nothing.

mod client;
mod exposition;
mod state;

use anyhow::{Context, Result};
use client::Client;
use exposition::Exposition;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use sluice_clock::heartbeat::Heartbeat;
use sluice_clock::real_ms;
use sluice_fate::Limit;
use sluice_vswitch::Switch;
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Clients at the same time. Prometheus makes one connection; a few more watch by hand.
pub const CLIENTS_MAX: usize = 32;

/// How long the thread rests when no connection can be accepted: there are no descriptors left, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long the end waits for the thread, which may be reading counters.
const END_WITHIN: Duration = Duration::from_millis(200);

/// Clients that were closed before they had their answer: they were slow, or others came.
static CLIENTS_CLOSED: AtomicU64 = AtomicU64::new(0);

/// The endpoint; it closes when dropped.
pub struct Endpoint {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    ended: mpsc::Receiver<()>,
}

impl Endpoint {
    /// Listens at `address`.
    ///
    /// # Errors
    /// If it cannot.
    pub fn listen(address: SocketAddr, switch: Arc<Switch>) -> Result<Endpoint> {
        let listener = TcpListener::bind(address).with_context(|| format!("metrics = \"{address}\": cannot listen"))?;
        listener.set_nonblocking(true).context("metrics")?;
        let address = listener.local_addr().context("metrics")?;
        let ends = Arc::new(AtomicBool::new(false));
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context("metrics")?);
        let (alive, ended) = mpsc::channel();
        let exposition = Exposition::of(switch);
        let (told, woken) = (Arc::clone(&ends), Arc::clone(&wake));
        let serve = move || {
            let _alive: mpsc::Sender<()> = alive;
            let mut clients = Clients::default();
            let heartbeat = Heartbeat::of("metrics");
            while !told.load(Relaxed) {
                clients.serve(&heartbeat, &listener, &woken, || exposition.text());
            }
        };
        std::thread::Builder::new().name("metrics".into()).spawn(serve).context("metrics thread")?;
        Ok(Endpoint { address, ends, wake, ended })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        // The counter cannot be full: it is written once.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        // The thread's end of the channel goes with the thread.
        let _ = self.ended.recv_timeout(END_WITHIN);
    }
}

/// The clients that are served, the one that came first in front.
#[derive(Default)]
struct Clients(VecDeque<Client>);

impl Clients {
    /// Waits until there is something to do, and does it.
    fn serve(&mut self, heartbeat: &Heartbeat, listener: &TcpListener, wake: &OwnedFd, metrics: impl Fn() -> String) {
        let deadline_ms = self.0.iter().map(Client::deadline_ms).min();
        let timeout = deadline_ms.map(|at| Duration::from_millis(at.saturating_sub(real_ms()) + 1));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let fixed = [PollFd::new(wake, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
        let of_clients = self.0.iter().map(|client| PollFd::new(client.stream(), client.interest()));
        let mut polled: Vec<PollFd<'_>> = fixed.into_iter().chain(of_clients).collect();
        if poll(&mut polled, timeout.as_ref()).is_err() {
            return;
        }
        let _busy = heartbeat.begin("answers to clients");
        let ready: Vec<bool> = polled.iter().map(|one| !one.revents().is_empty()).collect();
        drop(polled);
        let now_ms = real_ms();
        for (client, _) in self.0.iter_mut().zip(&ready[2..]).filter(|(_, ready)| **ready) {
            client.go_on(&metrics);
        }
        self.0.retain(|client| {
            let is_late = !client.is_done() && now_ms >= client.deadline_ms();
            CLIENTS_CLOSED.fetch_add(is_late.into(), Relaxed);
            !client.is_done() && !is_late
        });
        if ready[1] {
            self.accept(listener);
        }
    }

    fn accept(&mut self, listener: &TcpListener) {
        match listener.accept().and_then(|(stream, _)| Client::new(stream, real_ms())) {
            Ok(client) => {
                if self.0.len() == CLIENTS_MAX {
                    self.0.pop_front();
                    CLIENTS_CLOSED.fetch_add(1, Relaxed);
                    Limit::MetricsClients.hit();
                }
                self.0.push_back(client);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => {
                tracing::warn!(rate_limit = 1, "metrics: accept failed: {error}");
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}
