//! The switch as connections see it: its tables, the backend, TLS, and the connections of all bridges.

use crate::async_msg::AsyncMsg;
use crate::backend::Backend;
use crate::conn_mgr::ConnMgr;
use crate::ports;
use crate::settings::BUNDLE_IDLE_TIMEOUT;
use crate::tls::Tls;
use parking_lot::Mutex;
use sluice_fate::Limit;
use sluice_ofproto::{Ofproto, RuleMonitor, RuleUpdate, Transaction};
use sluice_openflow::{BUNDLE_MEMORY, ConnMemory};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Bytes of packets of controllers that wait for the datapath at most: some milliseconds of what it can send.
const PACKET_OUT_MEMORY: usize = 4 << 20;

/// The switch as connections see it.
pub struct Switch {
    /// The tables.
    pub ofproto: Ofproto,
    /// The switch around the service.
    pub backend: Arc<dyn Backend>,
    /// Key and certificates, if there are any.
    pub tls: Mutex<Option<Arc<Tls>>>,
    /// The connections of each bridge.
    pub conn_mgrs: Mutex<BTreeMap<String, Arc<ConnMgr>>>,
    /// The memory of bundles that are not committed.
    pub bundle_memory: ConnMemory,
    /// The memory of packets that controllers have sent and that wait for the datapath.
    pub packet_out_memory: ConnMemory,
    /// A bundle that no message is about for so long ends.
    bundle_idle_ms: AtomicU64,
}

impl Switch {
    /// A switch without bridges.
    pub fn new(ofproto: Ofproto, backend: Arc<dyn Backend>) -> Self {
        let switch = Switch {
            ofproto,
            backend,
            tls: Mutex::default(),
            conn_mgrs: Mutex::default(),
            bundle_memory: ConnMemory::new(Limit::BundleMemory, BUNDLE_MEMORY),
            packet_out_memory: ConnMemory::new(Limit::PacketOuts, PACKET_OUT_MEMORY),
            bundle_idle_ms: AtomicU64::new(0),
        };
        switch.set_bundle_idle_timeout(BUNDLE_IDLE_TIMEOUT);
        switch
    }

    /// Sets for how long a bundle may be idle.
    pub fn set_bundle_idle_timeout(&self, timeout: Duration) {
        self.bundle_idle_ms.store(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    /// For how long a bundle may be idle.
    pub fn bundle_idle_ms(&self) -> u64 {
        self.bundle_idle_ms.load(Relaxed)
    }

    /// Key and certificates.
    ///
    /// # Errors
    /// If there are none.
    pub fn tls(&self) -> io::Result<Arc<Tls>> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "there is no longer a key and certificate for TLS");
        self.tls.lock().clone().ok_or_else(missing)
    }

    /// The connections of a bridge.
    pub fn conn_mgr(&self, bridge: &str) -> Option<Arc<ConnMgr>> {
        self.conn_mgrs.lock().get(bridge).cloned()
    }

    /// The connections of all bridges.
    pub fn all_conn_mgrs(&self) -> Vec<Arc<ConnMgr>> {
        self.conn_mgrs.lock().values().cloned().collect()
    }

    /// The switch's time, milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.backend.now_ms()
    }

    /// Asks for revalidation: something that megaflows depend on has changed.
    pub fn revalidate_soon(&self) {
        self.backend.revalidate_soon();
    }

    /// Tells controllers of removed rules, and of tables that have crossed a vacancy threshold.
    pub fn publish_removed(&self) {
        for rule in self.ofproto.take_removed() {
            let conn_mgr = self.ofproto.bridge_name(rule.bridge).and_then(|name| self.conn_mgr(&name));
            if let Some(conn_mgr) = conn_mgr {
                conn_mgr.post(&AsyncMsg::FlowRemoved(Arc::new(rule)));
            }
        }
        for event in self.ofproto.take_vacancy_events() {
            let conn_mgr = self.ofproto.bridge_name(event.bridge).and_then(|name| self.conn_mgr(&name));
            if let Some(conn_mgr) = conn_mgr {
                conn_mgr.post(&AsyncMsg::TableStatus(event));
            }
        }
    }

    /// Tells controllers of ports that were added, removed or changed.
    pub fn publish_ports(&self) {
        self.all_conn_mgrs()
            .iter()
            .for_each(|conn_mgr| conn_mgr.update_ports(ports::descriptions(self, &conn_mgr.bridge), None));
    }
}

/// Gives changes of rules to the connections that monitor them. The tables own it, so its reference to them is weak.
pub struct FlowWatcher(pub Weak<Switch>);

impl FlowWatcher {
    fn conn_mgr(&self, bridge: &str) -> Option<Arc<ConnMgr>> {
        self.0.upgrade()?.conn_mgr(bridge)
    }
}

impl RuleMonitor for FlowWatcher {
    fn monitors(&self, bridge: &str) -> bool {
        self.conn_mgr(bridge).is_some_and(|conn_mgr| conn_mgr.is_monitored())
    }

    fn updated(&self, bridge: &str, transaction: Transaction, updates: Vec<RuleUpdate>) {
        if let Some(conn_mgr) = self.conn_mgr(bridge) {
            let updates: Vec<_> = updates.into_iter().map(Arc::new).collect();
            conn_mgr.post_flow_updates(transaction, &updates);
        }
    }
}
