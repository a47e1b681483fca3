//! The service as the switch sees it: bridges are served, served anew, and no longer.

use crate::backend::{Backend, ControllerUpcall};
use crate::connection::Connection;
use crate::controllers;
use crate::error::Error;
use crate::fail_open::FailOpen;
use crate::hub::{Hub, News, Packet};
use crate::listener::Listener;
use crate::settings::BridgeSettings;
use crate::snoop;
use crate::switch::{FlowWatcher, Switch};
use crate::target::PassiveTarget;
use crate::tls::{Tls, TlsError, TlsFiles};
use crate::{ports, unix_socket};
use parking_lot::Mutex;
use sluice_ofp::ofpact::PacketInReason;
use sluice_ofproto::{FailMode, Ofproto};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// The OpenFlow service of a switch's bridges.
pub struct OpenFlowService {
    switch: Arc<Switch>,
    served: Mutex<BTreeMap<String, Served>>,
    /// Where Unix sockets are made; `None` before the start.
    directory: Mutex<Option<PathBuf>>,
}

/// A bridge that is served.
struct Served {
    hub: Arc<Hub>,
    /// The Unix sockets it has made.
    sockets: Vec<PathBuf>,
    threads: Vec<JoinHandle<()>>,
}

impl OpenFlowService {
    /// The service of a switch; no bridge is served yet.
    pub fn new(ofproto: Ofproto, backend: Arc<dyn Backend>) -> Self {
        let switch = Arc::new(Switch { ofproto, backend, tls: Mutex::default(), hubs: Mutex::default() });
        switch.ofproto.set_monitor(Arc::new(FlowWatcher(Arc::downgrade(&switch))));
        OpenFlowService { switch, served: Mutex::default(), directory: Mutex::default() }
    }

    /// From now on bridges are served, on `<directory>/<bridge>.mgmt`, and snooped, on `<directory>/<bridge>.snoop`.
    pub fn start(&self, directory: &Path) {
        *self.directory.lock() = Some(directory.to_owned());
    }

    /// Serves a bridge of the tables, or serves it anew with other settings; nothing before [`OpenFlowService::start`].
    ///
    /// # Errors
    /// If a socket or a thread cannot be had.
    pub fn serve_bridge(&self, bridge: &str, settings: &BridgeSettings) -> Result<(), Error> {
        let Some(directory) = self.directory.lock().clone() else { return Ok(()) };
        self.remove_bridge(bridge);
        let system = |source| Error::System { bridge: bridge.to_owned(), source };
        let mut hub = Hub::new(bridge).map_err(|error| system(error.into()))?;
        if settings.fail_mode == FailMode::Standalone && !settings.controllers.is_empty() {
            hub.fail_open = Some(FailOpen::new());
        }
        let hub = Arc::new(hub);
        hub.note_ports(ports::descriptions(&self.switch, bridge));
        let mut served = Served { hub, sockets: Vec::new(), threads: Vec::new() };
        if let Err(error) = self.begin(&mut served, settings, &directory) {
            served.end();
            return Err(error);
        }
        self.switch.hubs.lock().insert(bridge.to_owned(), Arc::clone(&served.hub));
        self.served.lock().insert(bridge.to_owned(), served);
        Ok(())
    }

    /// Makes a bridge's sockets and starts its threads. What has been begun is in `served`, also if an error ends it.
    fn begin(&self, served: &mut Served, settings: &BridgeSettings, directory: &Path) -> Result<(), Error> {
        let bridge = served.hub.bridge.clone();
        let mut socket = |kind| {
            let path = directory.join(format!("{bridge}.{kind}"));
            let listener = unix_socket::listen_private(&path, "OpenFlow socket")?;
            served.sockets.push(path);
            Ok::<_, Error>(Listener::Unix(listener))
        };
        let (management, snooping) = (socket("mgmt")?, socket("snoop")?);
        let mut listeners = vec![management];
        for target in &settings.listeners {
            let bound = TcpListener::bind(target.address());
            let socket = bound.map_err(|source| Error::Listen { bridge: bridge.clone(), target: *target, source })?;
            listeners.push(match target {
                PassiveTarget::Tcp(_) => Listener::Tcp(socket),
                PassiveTarget::Tls(_) => Listener::Tls(socket),
            });
        }
        let system = |source| Error::System { bridge: bridge.clone(), source };
        let hub = &served.hub;
        for listener in listeners {
            served.threads.push(listener.start(hub, &self.switch, Connection::serve_client).map_err(system)?);
        }
        served.threads.push(snooping.start(hub, &self.switch, snoop::serve).map_err(system)?);
        for controller in &settings.controllers {
            served.threads.push(controllers::start(controller.clone(), hub, &self.switch).map_err(system)?);
        }
        Ok(())
    }

    /// Ends a bridge's connections.
    pub fn remove_bridge(&self, bridge: &str) {
        // Not while a lock is held: the threads that end may need it.
        self.switch.hubs.lock().remove(bridge);
        let served = self.served.lock().remove(bridge);
        if let Some(served) = served {
            served.end();
        }
    }

    /// Ends all connections and removes the sockets.
    pub fn stop(&self) {
        self.switch.hubs.lock().clear();
        let all = std::mem::take(&mut *self.served.lock());
        all.into_values().for_each(Served::end);
    }

    /// Reads key and certificates for the connections to come.
    ///
    /// # Errors
    /// With the file that is wrong; then what was there stays.
    pub fn set_tls(&self, files: Option<&TlsFiles>) -> Result<(), TlsError> {
        *self.switch.tls.lock() = files.map(Tls::load).transpose()?.map(Arc::new);
        Ok(())
    }

    /// What is due once a second: ports that changed are told, and bridges without a controller may forward by themselves.
    pub fn run(&self) {
        self.switch.publish_ports();
        for hub in self.switch.all_hubs() {
            if let Some(fail_open) = &hub.fail_open {
                fail_open.run(&self.switch, &hub.bridge);
            }
        }
    }

    /// Tells controllers of rules that went, and of tables that are full or no longer.
    pub fn publish_removed(&self) {
        self.switch.publish_removed();
    }

    /// Tells controllers of ports that came, went or changed.
    pub fn publish_ports(&self) {
        self.switch.publish_ports();
    }

    /// Hands a packet from the datapath to the connections of its bridge.
    pub fn packet_in(&self, upcall: ControllerUpcall) {
        let (ofproto, now_ms) = (&self.switch.ofproto, self.switch.now_ms());
        let context = ofproto.controller_packet(&upcall.key, upcall.recirc_id, upcall.is_paused, now_ms);
        let Some(context) = context else { return };
        let Some(hub) = self.switch.hub(&context.bridge).filter(|hub| hub.connections() != 0) else { return };
        let packet = Packet {
            context,
            reason: reason(upcall.reason),
            controller_id: upcall.controller_id,
            cookie: upcall.cookie,
            total_len: upcall.total_len,
            bytes: upcall.bytes,
        };
        hub.post(&News::Packet(Arc::new(packet)));
    }
}

impl Drop for OpenFlowService {
    fn drop(&mut self) {
        self.stop();
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

/// The reason that the datapath carries as a number.
fn reason(number: u8) -> PacketInReason {
    use PacketInReason::{Action, ActionSet, ExplicitMiss, Group, ImplicitMiss, InvalidTtl, NoMatch, PacketOut};
    let known = [NoMatch, Action, InvalidTtl, ActionSet, Group, PacketOut, ExplicitMiss, ImplicitMiss];
    known.into_iter().find(|r| *r as u8 == number).unwrap_or(Action)
}
