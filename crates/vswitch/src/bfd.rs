//! The BFD sessions of a switch's ports.

use parking_lot::{Mutex, MutexGuard};
use sluice_bfd::{Config, Session, Status};
use sluice_flow::OfPort;
use sluice_ofproto::{Attach, BfdPort, Ofproto, PortConfig};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

/// Sessions by the number of their bridge and port.
pub(crate) type SessionKey = (u32, u16);

/// A session, and where it is.
pub(crate) struct Entry {
    pub bridge: String,
    pub ofport: OfPort,
    pub attach: Attach,
    pub config: Arc<Config>,
    pub session: Session,
    /// What its packets come from: the port's address, or one made up.
    pub mac: [u8; 6],
    /// What its port had received when it was last looked at.
    pub rx_packets: u64,
    /// What the tables were told.
    pub is_down: bool,
}

/// All sessions.
#[derive(Default)]
pub(crate) struct Sessions {
    pub entries: BTreeMap<SessionKey, Entry>,
    /// Sessions ever made.
    made: u16,
    /// Whether statuses may have changed, or sessions have gone, since the database was told.
    pub changed: bool,
}

impl Sessions {
    /// Makes sessions what the ports ask for.
    pub fn sync(&mut self, ofproto: &Ofproto, now_ms: u64) {
        let mut old = std::mem::take(&mut self.entries);
        for BfdPort { bridge_id, bridge, port } in ofproto.bfd_ports() {
            let key = (bridge_id, port.number.0);
            let before = old.remove(&key).filter(|entry| entry.session.name() == port.name);
            let Some(config) = port.bfd.clone() else { continue };
            let entry = match before {
                Some(mut entry) => {
                    if entry.config != config {
                        entry.session.configure((*config).clone(), entry.rx_packets, now_ms);
                    }
                    Entry { config, attach: port.attach, ..entry }
                }
                None => self.enter(bridge, port, config, now_ms),
            };
            self.entries.insert(key, entry);
        }
        self.changed |= !old.is_empty();
    }

    fn enter(&mut self, bridge: String, port: PortConfig, config: Arc<Config>, now_ms: u64) -> Entry {
        let session = self.make(&port.name, &config, now_ms);
        let [a, b, c, d] = session.discriminator().to_be_bytes();
        let (ofport, attach, is_down) = (port.number, port.attach, port.bfd_down);
        Entry { bridge, ofport, attach, config, session, mac: [2, 0, a, b, c, d], rx_packets: 0, is_down }
    }

    fn make(&mut self, name: &str, config: &Config, now_ms: u64) -> Session {
        self.made = self.made.wrapping_add(1);
        let mut random = || RandomState::new().build_hasher().finish() as u32;
        let is_free =
            |number: &u32| *number != 0 && self.entries.values().all(|entry| entry.session.discriminator() != *number);
        let discriminator = std::iter::repeat_with(&mut random).find(is_free).unwrap_or(1);
        Session::new(name, config.clone(), discriminator, self.made, now_ms)
    }

    fn named(&mut self, name: &str) -> Option<&mut Entry> {
        self.entries.values_mut().find(|entry| entry.session.name() == name)
    }
}

/// The sessions, as commands and the thread share them.
#[derive(Default)]
pub(crate) struct Bfd(Mutex<Sessions>);

impl Bfd {
    pub fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.0.lock()
    }

    /// `bfd/show`: one session, or all; `None` if there is none of that name.
    pub fn show(&self, name: Option<&str>, now_ms: u64) -> Option<String> {
        let mut sessions = self.lock();
        if let Some(name) = name {
            return sessions.named(name).map(|entry| entry.session.details(now_ms));
        }
        let show = |entry: &mut Entry| {
            let details = entry.session.details(now_ms);
            format!("---- {} ----\n{details}", entry.session.name())
        };
        Some(sessions.entries.values_mut().map(show).collect())
    }

    /// Forces what one session or all say of their ports; whether there is one of that name.
    pub fn force_forwarding(&self, name: Option<&str>, forced: Option<bool>) -> bool {
        let mut sessions = self.lock();
        sessions.changed = true;
        let Some(name) = name else {
            sessions.entries.values_mut().for_each(|entry| entry.session.force_forwarding(forced));
            return true;
        };
        sessions.named(name).map(|entry| entry.session.force_forwarding(forced)).is_some()
    }

    /// The statuses of all sessions, by port.
    pub fn statuses(&self, now_ms: u64) -> BTreeMap<String, Status> {
        let mut sessions = self.lock();
        let of_entry = |entry: &mut Entry| (entry.session.name().to_owned(), entry.session.status(now_ms));
        sessions.entries.values_mut().map(of_entry).collect()
    }

    /// Whether statuses may have changed; asks once.
    pub fn take_changed(&self) -> bool {
        std::mem::take(&mut self.lock().changed)
    }
}
