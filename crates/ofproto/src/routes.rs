//! Where the packets of tunnels leave: addresses of devices, and routes. Source: Open vSwitch lib/ovs-router.c.
//!
//! The system has devices, their addresses, and routes; users add routes by command. Packets leave by devices that are ports.
//! Addresses of IPv4 are IPv6 addresses that map them, with prefixes 96 bits longer.

use sluice_flow::Mac;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv6Addr;

/// What is known of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAddresses {
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its addresses, with the lengths of their prefixes.
    pub addresses: Vec<(Ipv6Addr, u8)>,
}

/// A route that the system has, not a user's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemRoute {
    /// The network that it leads to, with the length of its prefix.
    pub destination: (Ipv6Addr, u8),
    /// The mark of the packets that it is for.
    pub mark: u32,
    /// The device by which they leave.
    pub device: String,
    /// The router that they go to; `None`: their destination.
    pub gateway: Option<Ipv6Addr>,
    /// Whether its destination is an address of this switch.
    pub is_local: bool,
}

/// Which packets a route is for. The order is that in which routes are tried: the longest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RouteKey {
    /// 128 minus the length of the prefix.
    open_bits: u8,
    mark: u32,
    network: u128,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Route {
    device: String,
    gateway: Option<Ipv6Addr>,
    src: Ipv6Addr,
}

/// Routes of one origin.
#[derive(Debug, Default, PartialEq, Eq)]
struct RouteTable(BTreeMap<RouteKey, Route>);

impl RouteTable {
    /// The longest route to a destination.
    fn lookup(&self, mark: u32, destination: Ipv6Addr) -> Option<&Route> {
        let mut open_bits = 0;
        loop {
            // The next length that there is: there may be many routes of each, but there are few lengths.
            let (longest, _) = self.0.range(RouteKey { open_bits, mark: 0, network: 0 }..).next()?;
            let found = self.0.get(&key(destination, 128 - longest.open_bits, mark));
            if found.is_some() {
                return found;
            }
            open_bits = longest.open_bits + 1;
        }
    }
}

/// The way of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The device by which it leaves.
    pub device: String,
    /// The router that it goes to; `None`: its destination.
    pub gateway: Option<Ipv6Addr>,
    /// Its source.
    pub src: Ipv6Addr,
}

/// Devices and routes. Routes to addresses of this switch are tried first, then those of users, then the system's.
/// Source: Open vSwitch lib/ovs-router.c, the priorities in `ovs_router_insert` and `ovs_router_add`.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    devices: BTreeMap<String, DeviceAddresses>,
    local: RouteTable,
    user: RouteTable,
    system: RouteTable,
}

fn network(address: Ipv6Addr, prefix: u8) -> u128 {
    address.to_bits() & u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0)
}

fn key(destination: Ipv6Addr, prefix: u8, mark: u32) -> RouteKey {
    RouteKey { open_bits: 128 - prefix, mark, network: network(destination, prefix) }
}

/// An address, an IPv4 one in its own notation.
pub(crate) fn address(address: Ipv6Addr) -> String {
    address.to_ipv4_mapped().map_or_else(|| address.to_string(), |address| address.to_string())
}

impl DeviceAddresses {
    /// The address by which it reaches a destination, if that is in one of its networks: that of the smallest one.
    pub fn src_for(&self, destination: Ipv6Addr) -> Option<Ipv6Addr> {
        let holds = |(own, prefix): &&(Ipv6Addr, u8)| network(*own, *prefix) == network(destination, *prefix);
        self.addresses.iter().filter(holds).max_by_key(|(_, prefix)| *prefix).map(|(own, _)| *own)
    }

    /// The address from which it sends to a destination by that router, if it has one.
    fn src_to(&self, destination: Ipv6Addr, gateway: Option<Ipv6Addr>) -> Option<Ipv6Addr> {
        self.src_for(destination).or_else(|| self.src_for(gateway?))
    }

    /// The routes that a system gives a device of that name for its addresses.
    pub fn routes(&self, name: &str) -> Vec<SystemRoute> {
        let route = |own: Ipv6Addr, prefix, is_local| SystemRoute {
            destination: (own, prefix),
            mark: 0,
            device: name.to_owned(),
            gateway: None,
            is_local,
        };
        let both = |(own, prefix): &(Ipv6Addr, u8)| [route(*own, *prefix, false), route(*own, 128, true)];
        self.addresses.iter().flat_map(both).collect()
    }
}

impl Routes {
    /// Takes the devices and the routes that the system has; whether anything has changed. Routes without an address to
    /// send from are left out.
    pub fn set_system(&mut self, devices: BTreeMap<String, DeviceAddresses>, routes: Vec<SystemRoute>) -> bool {
        let (mut local, mut system) = (RouteTable::default(), RouteTable::default());
        for SystemRoute { destination, mark, device, gateway, is_local } in routes {
            let src = devices.get(&device).and_then(|device| device.src_to(destination.0, gateway));
            let Some(src) = src else { continue };
            let table = if is_local { &mut local } else { &mut system };
            table.0.insert(key(destination.0, destination.1, mark), Route { device, gateway, src });
        }
        let changed = (&self.devices, &self.local, &self.system) != (&devices, &local, &system);
        (self.devices, self.local, self.system) = (devices, local, system);
        let lasts = |route: &Route| self.devices.contains_key(&route.device);
        self.user.0.retain(|_, route| lasts(route));
        changed
    }

    pub fn device(&self, name: &str) -> Option<&DeviceAddresses> {
        self.devices.get(name)
    }

    /// Whether a device has that address.
    pub fn is_own(&self, address: Ipv6Addr) -> bool {
        self.devices.values().any(|device| device.addresses.iter().any(|(own, _)| *own == address))
    }

    /// Whether routes depend on marks.
    pub fn has_marks(&self) -> bool {
        [&self.user, &self.system].into_iter().any(|table| table.0.keys().any(|key| key.mark != 0))
    }

    /// Adds a user's route; `None` if its device has no address by which to reach it.
    pub fn add(
        &mut self,
        destination: (Ipv6Addr, u8),
        mark: u32,
        device: &str,
        gateway: Option<Ipv6Addr>,
    ) -> Option<()> {
        let src = self.devices.get(device)?.src_to(destination.0, gateway)?;
        let route = Route { device: device.to_owned(), gateway, src };
        self.user.0.insert(key(destination.0, destination.1, mark), route);
        Some(())
    }

    /// Removes a user's route; whether there was one.
    pub fn remove(&mut self, destination: (Ipv6Addr, u8), mark: u32) -> bool {
        self.user.0.remove(&key(destination.0, destination.1, mark)).is_some()
    }

    /// The way to a destination. A `src` that is given must be an address of this switch.
    pub fn lookup(&self, mark: u32, destination: Ipv6Addr, src: Option<Ipv6Addr>) -> Option<Path> {
        if src.is_some_and(|src| !self.is_own(src)) {
            return None;
        }
        let tables = [&self.local, &self.user, &self.system];
        let found = tables.into_iter().find_map(|table| table.lookup(mark, destination))?;
        Some(Path { device: found.device.clone(), gateway: found.gateway, src: src.unwrap_or(found.src) })
    }

    /// `ovs/route/show`.
    pub fn show(&self) -> String {
        let mut out = "Route Table:\n".to_owned();
        let prefix = |network: Ipv6Addr, prefix: u8| match network.to_ipv4_mapped() {
            Some(network) => format!("{network}/{}", prefix.saturating_sub(96)),
            None => format!("{network}/{prefix}"),
        };
        let tables = [("Cached", &self.system, ""), ("Cached", &self.local, " local"), ("User", &self.user, "")];
        for (origin, table, local) in tables {
            for (key, route) in &table.0 {
                let network = prefix(Ipv6Addr::from_bits(key.network), 128 - key.open_bits);
                let _ = write!(out, "{origin}: {network}");
                if key.mark != 0 {
                    let _ = write!(out, " MARK {}", key.mark);
                }
                let _ = write!(out, " dev {}", route.device);
                if let Some(gateway) = route.gateway {
                    let _ = write!(out, " GW {}", address(gateway));
                }
                let _ = writeln!(out, " SRC {}{local}", address(route.src));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(text: &str) -> Ipv6Addr {
        text.parse::<std::net::Ipv4Addr>().unwrap().to_ipv6_mapped()
    }

    fn routes() -> Routes {
        let mut routes = Routes::default();
        let addresses = vec![(v4("1.1.2.88"), 120), ("2001:cafe::88".parse().unwrap(), 24)];
        let device = DeviceAddresses { mac: Mac([2; 6]), addresses };
        let mut system = device.routes("br0");
        let by_gateway = |to: (Ipv6Addr, u8), gateway| SystemRoute {
            destination: to,
            mark: 0,
            device: "br0".to_owned(),
            gateway: Some(v4(gateway)),
            is_local: false,
        };
        system.extend([by_gateway((v4("0.0.0.0"), 96), "1.1.2.254"), by_gateway((v4("7.0.0.0"), 104), "8.8.8.8")]);
        assert!(routes.set_system([("br0".to_owned(), device)].into(), system));
        routes
    }

    #[test]
    fn the_longest_prefix_of_a_user_goes_first_and_marks_are_apart() {
        let mut routes = routes();
        let way = |routes: &Routes, mark, to| routes.lookup(mark, v4(to), None).map(|path| path.gateway.map(address));
        assert_eq!(way(&routes, 0, "1.1.2.92"), Some(None));
        assert_eq!(way(&routes, 0, "9.9.9.9"), Some(Some("1.1.2.254".to_owned())), "the default route");
        assert_eq!(
            way(&routes, 0, "7.1.1.1"),
            Some(Some("1.1.2.254".to_owned())),
            "no address reaches the other router"
        );
        routes.add((v4("9.0.0.0"), 104), 0, "br0", Some(v4("1.1.2.1"))).unwrap();
        routes.add((v4("9.9.0.0"), 112), 0, "br0", Some(v4("1.1.2.2"))).unwrap();
        routes.add((v4("9.9.9.1"), 120), 7, "br0", Some(v4("1.1.2.3"))).unwrap();
        assert_eq!(way(&routes, 0, "9.9.9.9"), Some(Some("1.1.2.2".to_owned())));
        assert_eq!(way(&routes, 0, "9.8.9.9"), Some(Some("1.1.2.1".to_owned())));
        assert_eq!(way(&routes, 7, "9.9.9.9"), Some(Some("1.1.2.3".to_owned())));
        assert_eq!(way(&routes, 7, "1.1.2.92"), None, "routes of the system have no mark");
        assert!(routes.add((v4("9.0.0.0"), 104), 0, "br0", None).is_none(), "no address reaches it");
        assert!(routes.add((v4("1.1.2.0"), 120), 0, "br1", None).is_none(), "no such device");
        assert!(routes.remove((v4("9.9.9.0"), 120), 7) && !routes.remove((v4("9.9.9.0"), 120), 7));
        assert!(routes.lookup(0, v4("1.1.2.92"), Some(v4("1.1.2.89"))).is_none(), "the source must be its own");
        let shown = "Route Table:\nCached: 1.1.2.0/24 dev br0 SRC 1.1.2.88\nCached: 0.0.0.0/0 dev br0 GW 1.1.2.254 SRC 1.1.2.88\n\
                     Cached: 2001:ca00::/24 dev br0 SRC 2001:cafe::88\nCached: 1.1.2.88/32 dev br0 SRC 1.1.2.88 local\n\
                     Cached: 2001:cafe::88/128 dev br0 SRC 2001:cafe::88 local\n\
                     User: 9.9.0.0/16 dev br0 GW 1.1.2.2 SRC 1.1.2.88\nUser: 9.0.0.0/8 dev br0 GW 1.1.2.1 SRC 1.1.2.88\n";
        assert_eq!(routes.show(), shown);
        routes.add((v4("1.1.2.88"), 128), 0, "br0", Some(v4("1.1.2.1"))).unwrap();
        assert_eq!(way(&routes, 0, "1.1.2.88"), Some(None), "an address of its own goes before a user's route");
        assert!(routes.set_system(BTreeMap::new(), Vec::new()) && routes.lookup(0, v4("9.9.9.9"), None).is_none());
    }
}
