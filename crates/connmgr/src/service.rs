//! The service as the switch sees it: bridges begin and cease to be served; packets and changes reach their controllers.

use crate::async_msg::{AsyncMsg, PacketInMsg};
use crate::backend::{Backend, ControllerUpcall};
use crate::conn_mgr::ConnMgr;
use crate::controller_status::ControllerStatus;
use crate::error::Error;
use crate::ports;
use crate::served_bridge::ServedBridge;
use crate::settings::BridgeSettings;
use crate::switch::{FlowWatcher, Switch};
use crate::tls::{Tls, TlsError, TlsFiles};
use crate::unix_socket::SocketMode;
use parking_lot::Mutex;
use sluice_fate::Limit;
use sluice_ofp::ofpact::PacketInReason;
use sluice_ofproto::Ofproto;
use sluice_openflow::ConnMemory;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The OpenFlow service of a switch's bridges.
pub struct OpenFlowService {
    switch: Arc<Switch>,
    served: Mutex<BTreeMap<String, ServedBridge>>,
    /// The directory of the Unix sockets and their mode; `None` before the start.
    sockets: Mutex<Option<(PathBuf, SocketMode)>>,
}

impl OpenFlowService {
    /// The service of a switch; no bridge is served yet.
    pub fn new(ofproto: Ofproto, backend: Arc<dyn Backend>) -> Self {
        let switch = Arc::new(Switch::new(ofproto, backend));
        switch.ofproto.set_monitor(Arc::new(FlowWatcher(Arc::downgrade(&switch))));
        OpenFlowService { switch, served: Mutex::default(), sockets: Mutex::default() }
    }

    /// From now on bridges can be served. A bridge's Unix sockets are `<directory>/<bridge>.mgmt` for clients, and
    /// `<directory>/<bridge>.snoop` for snoopers.
    pub fn start(&self, directory: &Path, mode: SocketMode) {
        *self.sockets.lock() = Some((directory.to_owned(), mode));
    }

    /// Serves a bridge. If it is served already, its settings change: what both have stays, with its connections. Does
    /// nothing before [`OpenFlowService::start`].
    ///
    /// # Errors
    /// With the first socket or thread that cannot be made; the others are there.
    pub fn serve_bridge(&self, bridge: &str, settings: &BridgeSettings) -> Result<(), Error> {
        let Some((directory, mode)) = self.sockets.lock().clone() else { return Ok(()) };
        let served = self.served.lock().remove(bridge);
        let mut served = match served {
            Some(served) => served,
            None => {
                let conn_mgr = Arc::new(ConnMgr::new(bridge));
                conn_mgr.update_ports(ports::descriptions(&self.switch, bridge), None);
                let system = |source| Error::System { bridge: bridge.to_owned(), source };
                let served = ServedBridge::new(&conn_mgr, &self.switch, &directory, mode).map_err(system)?;
                // Before there are connections, so that none of them misses a message.
                self.switch.conn_mgrs.lock().insert(bridge.to_owned(), conn_mgr);
                served
            }
        };
        let set = served.set(settings);
        self.served.lock().insert(bridge.to_owned(), served);
        set
    }

    /// Ends a bridge's connections to controllers and makes them anew, since they cannot be told of another datapath id.
    ///
    /// # Errors
    /// As [`OpenFlowService::serve_bridge`].
    pub fn reconnect(&self, bridge: &str) -> Result<(), Error> {
        let served = self.served.lock().remove(bridge);
        let Some(mut served) = served else { return Ok(()) };
        let again = served.reconnect();
        self.served.lock().insert(bridge.to_owned(), served);
        again
    }

    /// What is known of the controllers that a bridge connects to.
    pub fn controllers(&self, bridge: &str) -> Vec<ControllerStatus> {
        self.switch.conn_mgr(bridge).map(|conn_mgr| conn_mgr.controller_statuses()).unwrap_or_default()
    }

    /// Ends a bridge's connections.
    pub fn remove_bridge(&self, bridge: &str) {
        // The locks are released first, because the threads that end may need them.
        self.switch.conn_mgrs.lock().remove(bridge);
        let served = self.served.lock().remove(bridge);
        if let Some(mut served) = served {
            served.end_all();
        }
    }

    /// Ends all connections and removes the sockets.
    pub fn stop(&self) {
        self.switch.conn_mgrs.lock().clear();
        let all = std::mem::take(&mut *self.served.lock());
        all.into_values().for_each(|mut served| served.end_all());
    }

    /// Reads the key and certificates for new connections.
    ///
    /// # Errors
    /// With the file that is wrong: then the earlier key and certificates stay.
    pub fn set_tls(&self, files: Option<&TlsFiles>) -> Result<(), TlsError> {
        *self.switch.tls.lock() = files.map(Tls::load).transpose()?.map(Arc::new);
        Ok(())
    }

    /// Sets for how long no message may be about a bundle before it ends.
    pub fn set_bundle_idle_timeout(&self, timeout: Duration) {
        self.switch.set_bundle_idle_timeout(timeout);
    }

    /// How much of a resource of connections is in use, and its bound; `None` if it is none of theirs.
    pub fn limit_usage(&self, limit: Limit) -> Option<(usize, usize)> {
        self.switch.limit_usage(limit)
    }

    /// The memory of bundles that are not committed, over all connections.
    pub fn bundle_memory(&self) -> &ConnMemory {
        &self.switch.bundle_memory
    }

    /// The memory of packets that controllers have sent and that wait for the datapath.
    pub fn packet_out_memory(&self) -> &ConnMemory {
        &self.switch.packet_out_memory
    }

    /// The bridges with how many connections each has.
    pub fn connections(&self) -> Vec<(String, usize)> {
        let conn_mgrs = self.switch.all_conn_mgrs();
        conn_mgrs.iter().map(|conn_mgr| (conn_mgr.bridge.clone(), conn_mgr.connections())).collect()
    }

    /// Called once a second: tells controllers of changed ports, lets standalone bridges without a controller forward, and
    /// keeps the way to controllers open.
    pub fn run(&self) {
        self.switch.publish_ports();
        for conn_mgr in self.switch.all_conn_mgrs() {
            let fail_open = conn_mgr.fail_open.lock().clone();
            if let Some(fail_open) = fail_open {
                fail_open.run(&self.switch, &conn_mgr.bridge);
            }
            conn_mgr.in_band.lock().run(&self.switch, &conn_mgr.bridge);
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

/// The reason that the datapath carries as a number.
fn reason(number: u8) -> PacketInReason {
    use PacketInReason::{Action, ActionSet, ExplicitMiss, Group, ImplicitMiss, InvalidTtl, NoMatch, PacketOut};
    let known = [NoMatch, Action, InvalidTtl, ActionSet, Group, PacketOut, ExplicitMiss, ImplicitMiss];
    known.into_iter().find(|r| *r as u8 == number).unwrap_or(Action)
}
