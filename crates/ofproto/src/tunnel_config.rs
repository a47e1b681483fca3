//! Routes and neighbours of tunnels, as commands and the devices change them.

use crate::depends::Changes;
use crate::neighbours::{NeighbourKey, NeighbourRequest};
use crate::ofproto::Ofproto;
use crate::routes::{DeviceAddresses, Path, SystemRoute};
use crate::xlate_cache::Dependency;
use sluice_flow::Mac;
use std::collections::BTreeMap;
use std::net::Ipv6Addr;

impl Ofproto {
    /// Takes the devices that there are, by name, with their addresses, and the routes that the system has. Users' routes by
    /// other devices are forgotten.
    pub fn set_devices(&self, devices: BTreeMap<String, DeviceAddresses>, routes: Vec<SystemRoute>) {
        if self.change(&mut self.writer(), |state| state.routes.set_system(devices, routes)) {
            self.announce_way();
        }
    }

    /// The ways of tunnels have changed, on which no megaflow depends as long as there is none.
    fn announce_way(&self) {
        if !self.state().tunnels.is_empty() {
            self.announce(&Changes::everything());
        }
    }

    /// Adds a route; false if its device has no address by which to reach it.
    pub fn add_route(&self, to: (Ipv6Addr, u8), mark: u32, device: &str, gateway: Option<Ipv6Addr>) -> bool {
        let added = self.change(&mut self.writer(), |state| state.routes.add(to, mark, device, gateway));
        self.announce_way();
        added.is_some()
    }

    /// Removes a route that was added; false if there is none.
    pub fn del_route(&self, to: (Ipv6Addr, u8), mark: u32) -> bool {
        let removed = self.change(&mut self.writer(), |state| state.routes.remove(to, mark));
        self.announce_way();
        removed
    }

    /// The way to a destination.
    pub fn route(&self, mark: u32, destination: Ipv6Addr) -> Option<Path> {
        self.state().routes.lookup(mark, destination, None)
    }

    /// All routes, as `ovs/route/show` has them.
    pub fn routes(&self) -> String {
        self.state().routes.show()
    }

    /// Makes a neighbour known.
    pub fn set_neighbour(&self, bridge: &str, ip: Ipv6Addr, mac: Mac, now_ms: u64) {
        let id = self.state().bridge_named(bridge).map(|bridge| bridge.id);
        if self.0.neighbours.set((bridge.to_owned(), ip), mac, now_ms)
            && let Some(id) = id
        {
            self.announce(&Changes::of(id, Dependency::Neighbour(ip)));
        }
    }

    /// Forgets all neighbours.
    pub fn flush_neighbours(&self) {
        self.0.neighbours.flush();
        self.announce_way();
    }

    /// The neighbours, as `tnl/neigh/show` has them.
    pub fn neighbours(&self, now_ms: u64) -> String {
        self.0.neighbours.show(now_ms)
    }

    /// How long neighbours are known, ms.
    pub fn neighbour_age_ms(&self) -> u64 {
        self.0.neighbours.age_ms()
    }

    /// Changes that.
    pub fn set_neighbour_age_ms(&self, age_ms: u64) {
        self.0.neighbours.set_age_ms(age_ms);
    }

    /// The questions for neighbours that are to be sent now.
    pub fn take_neighbour_requests(&self) -> Vec<NeighbourRequest> {
        self.0.neighbours.take_requests()
    }

    /// Forgets neighbours of bridges and ports that are gone, and those that have been silent.
    pub(crate) fn expire_neighbours(&self, now_ms: u64) {
        let state = self.state();
        let lasts = |name: &str| state.bridge_named(name).is_some() || state.by_name.contains_key(name);
        let forgotten = self.0.neighbours.retain(lasts, now_ms);
        // Whatever was sent in a bridge that is gone was asked again when it went.
        let of_bridge = |(name, ip): &NeighbourKey| Some((state.bridge_named(name)?.id, Dependency::Neighbour(*ip)));
        let dependencies = forgotten.iter().filter_map(of_bridge).collect();
        drop(state);
        self.announce(&Changes { dependencies, ..Changes::default() });
    }
}
