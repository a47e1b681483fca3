//! The connections of one bridge, and the asynchronous messages that all of them get. Source: Open vSwitch, `connmgr.c`.

use crate::async_msg::AsyncMsg;
use crate::conn_handle::ConnHandle;
use crate::conn_origin::ConnOrigin;
use crate::controller_status::ControllerStatus;
use crate::controllers::Controller;
use crate::fail_open::FailOpen;
use crate::in_band::InBand;
use crate::known_ports::KnownPorts;
use crate::settings::BridgeDescription;
use crate::snoop::ControllerTraffic;
use crate::tlv_table::TlvTable;
use parking_lot::Mutex;
use sluice_flow::OfPort;
use sluice_ofproto::{RuleUpdate, Transaction};
use sluice_openflow::message::ports::PortDesc;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

/// The connections of a bridge.
pub struct ConnMgr {
    /// The bridge's name.
    pub bridge: String,
    /// A random number, so that a continuation of an earlier bridge of the same name is not resumed.
    pub id: u128,
    handles: Mutex<Vec<Arc<ConnHandle>>>,
    next_number: AtomicU64,
    /// The latest generation of role requests.
    generation: Mutex<Option<u64>>,
    /// Connections that want packets which no rule matches.
    want_misses: AtomicUsize,
    /// Connections with flow monitors.
    monitoring: AtomicUsize,
    /// The ports as controllers know them.
    ports: Mutex<KnownPorts>,
    /// What a standalone bridge does while its controllers are away; `None` if it is secure or has no controllers.
    pub fail_open: Mutex<Option<Arc<FailOpen>>>,
    /// The Geneve options that are fields.
    pub tlv_table: Mutex<TlvTable>,
    /// The controllers that the bridge connects to.
    controllers: Mutex<Vec<Arc<Controller>>>,
    /// What the bridge says of itself.
    pub description: Mutex<BridgeDescription>,
    /// Keeps controllers reachable that are behind the bridge's own ports.
    pub in_band: Mutex<InBand>,
}

impl ConnMgr {
    /// No connections so far.
    pub fn new(bridge: &str) -> Self {
        ConnMgr {
            bridge: bridge.to_owned(),
            id: random_id(),
            handles: Mutex::default(),
            next_number: 0.into(),
            generation: Mutex::default(),
            want_misses: 0.into(),
            monitoring: 0.into(),
            ports: Mutex::default(),
            fail_open: Mutex::default(),
            tlv_table: Mutex::default(),
            controllers: Mutex::default(),
            description: Mutex::default(),
            in_band: Mutex::default(),
        }
    }

    /// The most that a connection has of something.
    pub fn most(&self, of: impl Fn(&ConnHandle) -> usize) -> usize {
        self.handles.lock().iter().map(|handle| of(handle)).max().unwrap_or_default()
    }

    /// The most that the traffic of a controller has of something.
    pub fn most_of_traffic(&self, of: impl Fn(&ControllerTraffic) -> usize) -> usize {
        self.controllers.lock().iter().map(|controller| of(&controller.traffic)).max().unwrap_or_default()
    }

    /// The connections of the fullest pool of clients.
    pub fn fullest_pool(&self) -> usize {
        ConnOrigin::fullest_pool(self.handles.lock().iter().map(|handle| handle.origin()))
    }

    /// Adds a connection, for which `packet_ins_max` packets may wait; `None` if there are too many connections from there.
    pub fn add_connection(&self, origin: ConnOrigin, packet_ins_max: usize) -> Option<Arc<ConnHandle>> {
        let mut handles = self.handles.lock();
        if !origin.has_room(handles.iter().map(|handle| handle.origin())) {
            return None;
        }
        let number = self.next_number.fetch_add(1, Relaxed);
        let handle = Arc::new(ConnHandle::new(number, origin, packet_ins_max).ok()?);
        handles.push(Arc::clone(&handle));
        Some(handle)
    }

    /// Removes a connection.
    pub fn remove_connection(&self, handle: &Arc<ConnHandle>) {
        self.handles.lock().retain(|other| !Arc::ptr_eq(other, handle));
    }

    /// The number of connections.
    pub fn connections(&self) -> usize {
        self.handles.lock().len()
    }

    /// Adds a controller that the bridge connects to.
    pub fn add_controller(&self, controller: &Arc<Controller>) {
        self.controllers.lock().push(Arc::clone(controller));
    }

    /// Removes a controller.
    pub fn remove_controller(&self, controller: &Arc<Controller>) {
        self.controllers.lock().retain(|other| !Arc::ptr_eq(other, controller));
    }

    /// What is known of the controllers that the bridge connects to.
    pub fn controller_statuses(&self) -> Vec<ControllerStatus> {
        self.controllers.lock().iter().map(|controller| controller.status()).collect()
    }

    /// The controller to snoop: the first of those with the highest preference. `None` if the bridge has none.
    pub fn controller_to_snoop(&self) -> Option<Arc<Controller>> {
        let controllers = self.controllers.lock();
        controllers.iter().rev().max_by_key(|controller| controller.traffic.preference()).cloned()
    }

    /// Queues a message for all connections.
    pub fn post(&self, msg: &AsyncMsg) {
        self.handles.lock().iter().for_each(|handle| handle.post(msg.clone()));
    }

    /// Queues a message for all connections but one.
    pub fn post_to_others(&self, handle: &Arc<ConnHandle>, msg: &AsyncMsg) {
        let handles = self.handles.lock();
        handles.iter().filter(|other| !Arc::ptr_eq(other, handle)).for_each(|other| other.post(msg.clone()));
    }

    /// Queues a transaction's changes of rules for the connections whose flow monitors cover them.
    pub fn post_flow_updates(&self, transaction: Transaction, updates: &[Arc<RuleUpdate>]) {
        for handle in self.handles.lock().iter() {
            let mut monitors = handle.monitors();
            let updates = monitors.updates(handle.number(), transaction, updates);
            if !updates.is_empty() || monitors.is_overrun() {
                handle.post(AsyncMsg::FlowUpdates(updates));
            }
        }
    }

    /// Notes the generation of a role request.
    ///
    /// # Errors
    /// If a request of a later generation has been granted.
    pub fn check_generation(&self, requested: u64) -> Result<(), sluice_openflow::Error> {
        let mut generation = self.generation.lock();
        match *generation {
            // Generations wrap around.
            Some(latest) if (requested.wrapping_sub(latest) as i64) < 0 => Err(sluice_openflow::Error::RoleStale),
            _ => {
                *generation = Some(requested);
                Ok(())
            }
        }
    }

    /// The latest generation of role requests.
    pub fn generation(&self) -> Option<u64> {
        *self.generation.lock()
    }

    /// Makes a connection's controller the primary one; the one that was it until now becomes secondary.
    pub fn make_primary(&self, handle: &Arc<ConnHandle>) {
        let generation = self.generation();
        for other in self.handles.lock().iter() {
            if !Arc::ptr_eq(other, handle) && other.set_primary(false) {
                other.post(AsyncMsg::Demoted(generation));
            }
        }
        handle.set_primary(true);
    }

    /// Takes the ports as they are now, and tells the connections what has changed since the last call. `by` is the
    /// connection that has changed the configuration of a port.
    pub fn update_ports(&self, ports: impl IntoIterator<Item = PortDesc>, by: Option<&ConnHandle>) {
        let changes = self.ports.lock().update(ports, by.map(ConnHandle::number));
        changes.into_iter().for_each(|change| self.post(&AsyncMsg::PortStatus(change)));
    }

    /// Milliseconds since controllers know of a port.
    pub fn port_age_ms(&self, number: OfPort) -> u64 {
        self.ports.lock().age_ms(number)
    }

    /// Notes that one more connection wants packets which no rule matches, or one fewer. Returns whether the bridge is to
    /// send them from now on, if that has changed.
    pub fn want_misses(&self, wants: bool) -> Option<bool> {
        let before = if wants { self.want_misses.fetch_add(1, SeqCst) } else { self.want_misses.fetch_sub(1, SeqCst) };
        match (wants, before) {
            (true, 0) => Some(true),
            (false, 1) => Some(false),
            _ => None,
        }
    }

    /// Notes that one more connection has flow monitors, or one fewer.
    pub fn count_monitoring(&self, has_monitors: bool) {
        if has_monitors {
            self.monitoring.fetch_add(1, SeqCst);
        } else {
            self.monitoring.fetch_sub(1, SeqCst);
        }
    }

    /// Whether any connection has flow monitors.
    pub fn is_monitored(&self) -> bool {
        self.monitoring.load(SeqCst) != 0
    }
}

fn random_id() -> u128 {
    let draw = || u128::from(RandomState::new().hash_one(std::process::id()));
    draw() << 64 | draw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::async_msg::PacketInMsg;
    use crate::conn_handle::QUEUE_MAX;
    use crate::conn_origin::CLIENTS_MAX;
    use sluice_fate::Limit;
    use sluice_flow::PortNames;
    use sluice_ofp::ofpact::PacketInReason;
    use sluice_ofp::{FlowCommand, FlowMod};
    use sluice_ofproto::PacketInMetadata;

    #[test]
    fn a_full_queue_loses_messages_but_no_demotion() {
        let conn_mgr = ConnMgr::new("br0");
        let handle = conn_mgr.add_connection(ConnOrigin::Controller, QUEUE_MAX).unwrap();
        handle.set_primary(true);
        let before = Limit::AsyncMessages.count();
        let port = |number| PortDesc { port: number, ..PortDesc::default() };
        conn_mgr.update_ports((0..QUEUE_MAX as u16 + 5).map(port), None);
        let other = conn_mgr.add_connection(ConnOrigin::Controller, QUEUE_MAX).unwrap();
        conn_mgr.make_primary(&other);
        assert!(Limit::AsyncMessages.count() >= before + 5);
        assert_eq!((handle.lost(), handle.take().len()), (5, QUEUE_MAX + 1));
    }

    fn packet_in(port: u16) -> PacketInMsg {
        let text = format!("in_port={port},actions=drop");
        let flow = FlowMod::parse(&text, FlowCommand::Add, &PortNames::NONE).unwrap();
        let metadata = PacketInMetadata {
            bridge: "br0".into(),
            table: 0,
            metadata: flow.matches,
            userdata: Vec::new(),
            paused: None,
        };
        let (reason, bytes) = (PacketInReason::Action, vec![0; 60]);
        PacketInMsg { metadata, reason, controller_id: 0, cookie: 0, total_len: 60, bytes }
    }

    /// A controller that does not read hears of the packets of all ports, also if one of them floods.
    #[test]
    fn a_port_that_floods_a_controller_loses_its_own_packets() {
        const MOST: usize = 100;
        let conn_mgr = ConnMgr::new("br0");
        let handle = conn_mgr.add_connection(ConnOrigin::Controller, MOST).unwrap();
        let post = |port, n| (0..n).for_each(|_| handle.post(AsyncMsg::PacketIn(Arc::new(packet_in(port)))));
        post(1, 10 * MOST);
        assert_eq!(handle.lost() as usize, 9 * MOST, "it may have all while it is alone");
        (2..6).for_each(|port| post(port, 5));
        conn_mgr.update_ports([PortDesc { port: 7, ..PortDesc::default() }], None);
        post(6, 10 * MOST);
        let waiting = handle.take();
        let of =
            |port| waiting.iter().filter(|msg| matches!(msg, AsyncMsg::PacketIn(p) if p.in_port().0 == port)).count();
        assert_eq!((2..6).map(of).collect::<Vec<_>>(), [5; 4]);
        assert_eq!([of(1), of(6)], [40; 2]);
        assert_eq!((waiting.len(), handle.lost() as usize), (MOST + 1, 19 * MOST + 20));
        post(1, 2 * MOST);
        assert_eq!(handle.take().len(), MOST, "what was taken is free");
    }

    #[test]
    fn generations_wrap_around() {
        let conn_mgr = ConnMgr::new("br0");
        assert!(conn_mgr.check_generation(u64::MAX).is_ok() && conn_mgr.check_generation(3).is_ok());
        assert_eq!(conn_mgr.check_generation(u64::MAX), Err(sluice_openflow::Error::RoleStale));
        assert_eq!(conn_mgr.generation(), Some(3));
    }

    #[test]
    fn connections_have_a_limit_and_unique_numbers() {
        let conn_mgr = ConnMgr::new("br0");
        let connect = || conn_mgr.add_connection(ConnOrigin::Management, QUEUE_MAX);
        let handles: Vec<_> = (0..CLIENTS_MAX).map(|_| connect().unwrap()).collect();
        assert!(connect().is_none() && conn_mgr.add_connection(ConnOrigin::Controller, QUEUE_MAX).is_some());
        conn_mgr.remove_connection(&handles[0]);
        let again = connect().unwrap();
        assert!(handles.iter().all(|handle| handle.number() != again.number()));
    }
}
