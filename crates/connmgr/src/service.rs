//! The service as the switch sees it: bridges begin and cease to be served; packets and changes reach their controllers.

use crate::async_msg::{AsyncMsg, PacketInMsg};
use crate::backend::{Backend, ControllerUpcall};
use crate::conn_mgr::ConnMgr;
use crate::connection::Connection;
use crate::controllers;
use crate::error::Error;
use crate::fail_open::FailOpen;
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
    /// The directory of the Unix sockets; `None` before the start.
    directory: Mutex<Option<PathBuf>>,
}

/// A bridge that is served.
struct Served {
    conn_mgr: Arc<ConnMgr>,
    /// The Unix sockets it has made.
    sockets: Vec<PathBuf>,
    threads: Vec<JoinHandle<()>>,
}

impl OpenFlowService {
    /// The service of a switch; no bridge is served yet.
    pub fn new(ofproto: Ofproto, backend: Arc<dyn Backend>) -> Self {
        let switch = Arc::new(Switch { ofproto, backend, tls: Mutex::default(), conn_mgrs: Mutex::default() });
        switch.ofproto.set_monitor(Arc::new(FlowWatcher(Arc::downgrade(&switch))));
        OpenFlowService { switch, served: Mutex::default(), directory: Mutex::default() }
    }

    /// From now on bridges can be served. A bridge's Unix sockets are `<directory>/<bridge>.mgmt` for clients, and
    /// `<directory>/<bridge>.snoop` for snoopers.
    pub fn start(&self, directory: &Path) {
        *self.directory.lock() = Some(directory.to_owned());
    }

    /// Serves a bridge. If it is served already, its connections end, and it is served with the new settings. Does nothing
    /// before [`OpenFlowService::start`].
    ///
    /// # Errors
    /// If a socket or a thread cannot be made: then the bridge is not served.
    pub fn serve_bridge(&self, bridge: &str, settings: &BridgeSettings) -> Result<(), Error> {
        let Some(directory) = self.directory.lock().clone() else { return Ok(()) };
        self.remove_bridge(bridge);
        let system = |source| Error::System { bridge: bridge.to_owned(), source };
        let mut conn_mgr = ConnMgr::new(bridge).map_err(|error| system(error.into()))?;
        if settings.fail_mode == FailMode::Standalone && !settings.controllers.is_empty() {
            conn_mgr.fail_open = Some(FailOpen::new());
        }
        let conn_mgr = Arc::new(conn_mgr);
        conn_mgr.update_ports(ports::descriptions(&self.switch, bridge));
        // Before there are connections, so that none of them misses a message.
        self.switch.conn_mgrs.lock().insert(bridge.to_owned(), Arc::clone(&conn_mgr));
        let mut served = Served { conn_mgr, sockets: Vec::new(), threads: Vec::new() };
        let begun = self.begin(&mut served, settings, &directory);
        self.served.lock().insert(bridge.to_owned(), served);
        if begun.is_err() {
            self.remove_bridge(bridge);
        }
        begun
    }

    /// Makes a bridge's sockets and starts its threads. On an error, `served` has those that exist already.
    fn begin(&self, served: &mut Served, settings: &BridgeSettings, directory: &Path) -> Result<(), Error> {
        let bridge = served.conn_mgr.bridge.clone();
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
        let conn_mgr = &served.conn_mgr;
        for listener in listeners {
            served.threads.push(listener.start(conn_mgr, &self.switch, Connection::serve_client).map_err(system)?);
        }
        served.threads.push(snooping.start(conn_mgr, &self.switch, snoop::serve).map_err(system)?);
        for controller in &settings.controllers {
            served.threads.push(controllers::start(controller.clone(), conn_mgr, &self.switch).map_err(system)?);
        }
        Ok(())
    }

    /// Ends a bridge's connections.
    pub fn remove_bridge(&self, bridge: &str) {
        // The locks are released first, because the threads that end may need them.
        self.switch.conn_mgrs.lock().remove(bridge);
        let served = self.served.lock().remove(bridge);
        if let Some(served) = served {
            served.end();
        }
    }

    /// Ends all connections and removes the sockets.
    pub fn stop(&self) {
        self.switch.conn_mgrs.lock().clear();
        let all = std::mem::take(&mut *self.served.lock());
        all.into_values().for_each(Served::end);
    }

    /// Reads the key and certificates for new connections.
    ///
    /// # Errors
    /// With the file that is wrong: then the earlier key and certificates stay.
    pub fn set_tls(&self, files: Option<&TlsFiles>) -> Result<(), TlsError> {
        *self.switch.tls.lock() = files.map(Tls::load).transpose()?.map(Arc::new);
        Ok(())
    }

    /// Called once a second: tells controllers of changed ports, and lets standalone bridges without a controller forward.
    pub fn run(&self) {
        self.switch.publish_ports();
        for conn_mgr in self.switch.all_conn_mgrs() {
            if let Some(fail_open) = &conn_mgr.fail_open {
                fail_open.run(&self.switch, &conn_mgr.bridge);
            }
        }
    }

    /// Tells controllers of removed rules, and of tables that have crossed a vacancy threshold.
    pub fn publish_removed(&self) {
        self.switch.publish_removed();
    }

    /// Tells controllers of ports that were added, removed or changed.
    pub fn publish_ports(&self) {
        self.switch.publish_ports();
    }

    /// Gives a packet from the datapath to the controllers of its bridge.
    pub fn packet_in(&self, upcall: ControllerUpcall) {
        let (ofproto, now_ms) = (&self.switch.ofproto, self.switch.now_ms());
        let metadata = ofproto.controller_packet(&upcall.key, upcall.recirc_id, upcall.is_paused, now_ms);
        let Some(metadata) = metadata else { return };
        let Some(conn_mgr) = self.switch.conn_mgr(&metadata.bridge).filter(|conn_mgr| conn_mgr.connections() != 0)
        else {
            return;
        };
        let packet = PacketInMsg {
            metadata,
            reason: reason(upcall.reason),
            controller_id: upcall.controller_id,
            cookie: upcall.cookie,
            total_len: upcall.total_len,
            bytes: upcall.bytes,
        };
        conn_mgr.post(&AsyncMsg::PacketIn(Arc::new(packet)));
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
        self.conn_mgr.end();
        self.threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

/// The reason that the datapath carries as a number.
fn reason(number: u8) -> PacketInReason {
    use PacketInReason::{Action, ActionSet, ExplicitMiss, Group, ImplicitMiss, InvalidTtl, NoMatch, PacketOut};
    let known = [NoMatch, Action, InvalidTtl, ActionSet, Group, PacketOut, ExplicitMiss, ImplicitMiss];
    known.into_iter().find(|r| *r as u8 == number).unwrap_or(Action)
}
