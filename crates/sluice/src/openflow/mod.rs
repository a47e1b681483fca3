//! OpenFlow: sockets for every bridge, and what their connections ask for.
//!
//! | module | what |
//! |---|---|
//! | [`listener`], [`stream`], [`tls`] | sockets |
//! | [`connection`] | one connection, a thread of its own |
//! | [`controllers`] | controllers that the switch connects to |
//! | [`snoop`] | who listens to a controller |
//! | [`hub`] | the connections of a bridge, and news for them |
//! | [`request`], [`flow_mods`], [`flows`], [`groups`], [`meters`], [`monitor`], [`ports`], [`packets`] within [`limits`], [`tables`] | requests carried out |
//!
//! **Threads.** One for each listener and each connection, and one that hands packets to controllers' mailboxes. None of
//! them holds a lock while it waits for a peer.

mod connection;
mod controllers;
mod flow_mods;
mod flows;
mod groups;
mod hub;
mod limits;
mod listener;
mod meters;
mod monitor;
mod packets;
mod ports;
mod request;
mod snoop;
mod stream;
mod tables;
mod tls;

use crate::config::{Bridge, Controller, FailMode, Listen};
use crate::socket;
use crate::switch::Switch;
use anyhow::{Context, Result};
use connection::Connection;
use controllers::Standalone;
use hub::{Hub, News, Packet};
use listener::Listener;
use sluice_datapath::PacketIn;
use sluice_ofp::ofpact::PacketInReason;
use sluice_ofproto::{RuleMonitor, RuleRemoved, RuleUpdate, Transaction, VacancyEvent};
use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use tls::Tls;

/// How often the thread of packets looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The OpenFlow side of a switch.
#[derive(Default)]
pub struct OpenFlow {
    bridges: Mutex<BTreeMap<String, Served>>,
    /// Where sockets are made, and the switch; nothing before the start.
    place: Mutex<Option<(PathBuf, Weak<Switch>)>>,
    /// Key and certificates, if there are any.
    tls: Mutex<Option<Arc<Tls>>>,
}

/// A bridge that is served.
struct Served {
    hub: Arc<Hub>,
    sockets: [PathBuf; 2],
    threads: Vec<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OpenFlow {
    /// Serves every bridge of the switch on `<rundir>/<bridge>.mgmt`, and who snoops on `<rundir>/<bridge>.snoop`.
    ///
    /// # Errors
    /// If a socket or a thread cannot be had.
    pub fn start(&self, switch: &Arc<Switch>, rundir: &Path) -> Result<()> {
        *lock(&self.place) = Some((rundir.to_owned(), Arc::downgrade(switch)));
        switch.ofproto.set_monitor(Arc::new(Watch(Arc::downgrade(switch))));
        for bridge in switch.bridge_configs() {
            self.add_bridge(&bridge)?;
        }
        if let Some(packets) = switch.datapath.take_packet_ins() {
            let switch = Arc::downgrade(switch);
            let pass_on = move || pass_on_packets(&packets, &switch);
            std::thread::Builder::new().name("packet-in".into()).spawn(pass_on).context("packet-in thread")?;
        }
        Ok(())
    }

    /// Serves a bridge, or serves it anew as it is configured now; nothing before [`OpenFlow::start`].
    ///
    /// # Errors
    /// If its socket or a thread cannot be had.
    pub fn add_bridge(&self, config: &Bridge) -> Result<()> {
        let bridge = config.name.as_str();
        let Some((rundir, switch)) = lock(&self.place).clone() else { return Ok(()) };
        let Some(switch) = switch.upgrade() else { return Ok(()) };
        self.remove_bridge(bridge);
        let sockets = ["mgmt", "snoop"].map(|kind| rundir.join(format!("{bridge}.{kind}")));
        let mut hub = Hub::new(bridge).with_context(|| format!("bridge {bridge}: OpenFlow"))?;
        if config.fail_mode == FailMode::Standalone && !config.controllers.is_empty() {
            hub.standalone = Some(Standalone::new());
        }
        hub.packet_in_limit = config.packet_in_limit();
        let hub = Arc::new(hub);
        hub.note_ports(ports::descriptions(&switch, bridge));
        let mut listeners = vec![Listener::Unix(socket::listen_private(&sockets[0], "OpenFlow socket")?)];
        for target in &config.listen {
            let bind = |address| TcpListener::bind(address).with_context(|| format!("bridge {bridge}: {target}"));
            listeners.push(match Listen::parse(target).map_err(anyhow::Error::msg)? {
                Listen::Tcp(address) => Listener::Tcp(bind(address)?),
                Listen::Tls(address) => Listener::Tls(bind(address)?),
            });
        }
        let mut threads = Vec::new();
        for listener in listeners {
            threads.push(listener.start(&hub, &switch, Connection::serve_client)?);
        }
        let snoopers = Listener::Unix(socket::listen_private(&sockets[1], "OpenFlow socket")?);
        threads.push(snoopers.start(&hub, &switch, snoop::serve)?);
        for target in &config.controllers {
            let controller = Controller::parse(target).map_err(anyhow::Error::msg)?;
            threads.push(controllers::start(controller, &hub, &switch)?);
        }
        lock(&self.bridges).insert(bridge.to_owned(), Served { hub, sockets, threads });
        Ok(())
    }

    /// Ends a bridge's connections.
    pub fn remove_bridge(&self, bridge: &str) {
        // Not while the lock is held: the threads that end may need it.
        let served = lock(&self.bridges).remove(bridge);
        if let Some(served) = served {
            served.end();
        }
    }

    /// Ends all connections and removes the sockets.
    pub fn stop(&self) {
        let all = std::mem::take(&mut *lock(&self.bridges));
        all.into_values().for_each(Served::end);
    }

    /// Reads key and certificates for the connections to come.
    ///
    /// # Errors
    /// With the file that is wrong; then what was there stays.
    pub fn set_tls(&self, files: Option<&crate::config::Tls>) -> Result<()> {
        *lock(&self.tls) = files.map(Tls::load).transpose()?.map(Arc::new);
        Ok(())
    }

    /// Key and certificates.
    fn tls(&self) -> io::Result<Arc<Tls>> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "the configuration has lost [switch.tls]");
        lock(&self.tls).clone().ok_or_else(missing)
    }

    fn hub(&self, bridge: &str) -> Option<Arc<Hub>> {
        lock(&self.bridges).get(bridge).map(|served| Arc::clone(&served.hub))
    }

    /// Lets standalone bridges forward by themselves that have been without a controller for long. Once a second.
    pub fn tend(&self, switch: &Switch) {
        let hubs: Vec<_> = lock(&self.bridges).values().map(|served| Arc::clone(&served.hub)).collect();
        for hub in hubs {
            if let Some(standalone) = &hub.standalone {
                standalone.tend(switch, &hub.bridge);
            }
        }
    }

    /// Tells controllers of rules that went.
    pub fn publish_removed(&self, switch: &Switch, removed: Vec<RuleRemoved>) {
        for rule in removed {
            let hub = switch.ofproto.bridge_name(rule.bridge).and_then(|name| self.hub(&name));
            if let Some(hub) = hub {
                hub.post(&News::Removed(Arc::new(rule)));
            }
        }
    }

    /// Tells controllers of tables that are full, or no longer.
    pub fn publish_vacancies(&self, switch: &Switch, news: Vec<VacancyEvent>) {
        for event in news {
            let hub = switch.ofproto.bridge_name(event.bridge).and_then(|name| self.hub(&name));
            if let Some(hub) = hub {
                hub.post(&News::Vacancy(event));
            }
        }
    }

    /// Tells controllers of ports that came, went or changed.
    pub fn publish_ports(&self, switch: &Switch) {
        let hubs: Vec<_> = lock(&self.bridges).values().map(|served| Arc::clone(&served.hub)).collect();
        hubs.iter().for_each(|hub| hub.note_ports(ports::descriptions(switch, &hub.bridge)));
    }
}

/// Passes on changes of rules to the connections that watch them.
struct Watch(Weak<Switch>);

impl Watch {
    fn hub(&self, bridge: &str) -> Option<Arc<Hub>> {
        self.0.upgrade()?.openflow.hub(bridge)
    }
}

impl RuleMonitor for Watch {
    fn monitors(&self, bridge: &str) -> bool {
        self.hub(bridge).is_some_and(|hub| hub.is_watched())
    }

    fn updated(&self, bridge: &str, transaction: Transaction, updates: Vec<RuleUpdate>) {
        if let Some(hub) = self.hub(bridge) {
            let updates: Vec<_> = updates.into_iter().map(Arc::new).collect();
            hub.post_changes(transaction, &updates);
        }
    }
}

impl Served {
    fn end(self) {
        for socket in &self.sockets {
            let _ = std::fs::remove_file(socket);
        }
        self.hub.end();
        self.threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

/// Hands packets from the datapath to the connections of their bridges.
fn pass_on_packets(packets: &Receiver<PacketIn>, switch: &Weak<Switch>) {
    loop {
        let packet = match packets.recv_timeout(LOOK_EVERY) {
            Ok(packet) => Some(packet),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let Some(switch) = switch.upgrade() else { return };
        if let Some(packet) = packet {
            pass_on(packet, &switch);
        }
    }
}

fn pass_on(packet: PacketIn, switch: &Switch) {
    let (waits, now_ms) = (packet.continuation, switch.now_ms());
    let Some(context) = switch.ofproto.controller_packet(&packet.key, packet.recirc_id, waits, now_ms) else { return };
    let Some(hub) = switch.openflow.hub(&context.bridge).filter(|hub| hub.connections() != 0) else { return };
    let reason = reason(packet.reason);
    let news = Packet {
        context,
        reason,
        controller_id: packet.controller_id,
        cookie: packet.cookie,
        total_len: packet.total_len,
        bytes: packet.bytes,
    };
    hub.post(&News::Packet(Arc::new(news)));
}

/// The reason that the datapath carries as a number.
fn reason(number: u8) -> PacketInReason {
    use PacketInReason::{Action, ActionSet, ExplicitMiss, Group, ImplicitMiss, InvalidTtl, NoMatch, PacketOut};
    let known = [NoMatch, Action, InvalidTtl, ActionSet, Group, PacketOut, ExplicitMiss, ImplicitMiss];
    known.into_iter().find(|r| *r as u8 == number).unwrap_or(Action)
}
