//! The switch as connections see it: its tables, the backend, TLS, and the connections of all bridges.

use crate::backend::Backend;
use crate::hub::{Hub, News};
use crate::ports;
use crate::tls::Tls;
use parking_lot::Mutex;
use sluice_ofproto::{Ofproto, RuleMonitor, RuleUpdate, Transaction};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};

/// The switch as connections see it.
pub struct Switch {
    /// The tables.
    pub ofproto: Ofproto,
    /// What is around the service.
    pub backend: Arc<dyn Backend>,
    /// Key and certificates, if there are any.
    pub tls: Mutex<Option<Arc<Tls>>>,
    /// The connections of each bridge.
    pub hubs: Mutex<BTreeMap<String, Arc<Hub>>>,
}

impl Switch {
    /// Key and certificates.
    ///
    /// # Errors
    /// If there are none.
    pub fn tls(&self) -> io::Result<Arc<Tls>> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "there is no longer a key and certificate for TLS");
        self.tls.lock().clone().ok_or_else(missing)
    }

    /// The connections of a bridge.
    pub fn hub(&self, bridge: &str) -> Option<Arc<Hub>> {
        self.hubs.lock().get(bridge).cloned()
    }

    /// The connections of all bridges.
    pub fn all_hubs(&self) -> Vec<Arc<Hub>> {
        self.hubs.lock().values().cloned().collect()
    }

    /// The switch's time, milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.backend.now_ms()
    }

    /// Asks for revalidation soon.
    pub fn hurry(&self) {
        self.backend.revalidate_soon();
    }

    /// Tells controllers of rules that went, and of tables that are full or no longer.
    pub fn publish_removed(&self) {
        for rule in self.ofproto.take_removed() {
            let hub = self.ofproto.bridge_name(rule.bridge).and_then(|name| self.hub(&name));
            if let Some(hub) = hub {
                hub.post(&News::Removed(Arc::new(rule)));
            }
        }
        for event in self.ofproto.take_vacancy_events() {
            let hub = self.ofproto.bridge_name(event.bridge).and_then(|name| self.hub(&name));
            if let Some(hub) = hub {
                hub.post(&News::Vacancy(event));
            }
        }
    }

    /// Tells controllers of ports that came, went or changed.
    pub fn publish_ports(&self) {
        self.all_hubs().iter().for_each(|hub| hub.note_ports(ports::descriptions(self, &hub.bridge)));
    }
}

/// Passes on changes of rules to the connections that monitor them. The tables own it, so it does not own them.
pub struct FlowWatcher(pub Weak<Switch>);

impl FlowWatcher {
    fn hub(&self, bridge: &str) -> Option<Arc<Hub>> {
        self.0.upgrade()?.hub(bridge)
    }
}

impl RuleMonitor for FlowWatcher {
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
