//! Where the packets of tunnels leave: addresses of devices, and routes. Source: Open vSwitch lib/ovs-router.c.
//!
//! A device is a port by its name; its addresses make routes to itself and to its networks, and users add others by
//! command. Addresses of IPv4 are IPv6 addresses that map them, with prefixes 96 bits longer.

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

/// Which packets a route is for. The order is that in which routes are tried: those of users first, the longest first.
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

/// Devices and routes.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    devices: BTreeMap<String, DeviceAddresses>,
    user: BTreeMap<RouteKey, Route>,
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
}

impl Routes {
    /// Takes the devices there are; whether anything has changed.
    pub fn set_devices(&mut self, devices: BTreeMap<String, DeviceAddresses>) -> bool {
        let changed = self.devices != devices;
        self.devices = devices;
        let lasts = |route: &Route| self.devices.contains_key(&route.device);
        self.user.retain(|_, route| lasts(route));
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
        self.user.keys().any(|key| key.mark != 0)
    }

    /// Adds a user's route; `None` if its device has no address by which to reach it.
    pub fn add(
        &mut self,
        destination: (Ipv6Addr, u8),
        mark: u32,
        device: &str,
        gateway: Option<Ipv6Addr>,
    ) -> Option<()> {
        let addresses = self.devices.get(device)?;
        let src = addresses.src_for(destination.0).or_else(|| addresses.src_for(gateway?))?;
        let route = Route { device: device.to_owned(), gateway, src };
        self.user.insert(key(destination.0, destination.1, mark), route);
        Some(())
    }

    /// Removes a user's route; whether there was one.
    pub fn remove(&mut self, destination: (Ipv6Addr, u8), mark: u32) -> bool {
        self.user.remove(&key(destination.0, destination.1, mark)).is_some()
    }

    /// The way to a destination. A `src` that is given must be an address of this switch.
    pub fn lookup(&self, mark: u32, destination: Ipv6Addr, src: Option<Ipv6Addr>) -> Option<Path> {
        if src.is_some_and(|src| !self.is_own(src)) {
            return None;
        }
        let of_user = self
            .user
            .iter()
            .find(|(key, _)| key.mark == mark && network(destination, 128 - key.open_bits) == key.network);
        if let Some((_, Route { device, gateway, src: own })) = of_user {
            return Some(Path { device: device.clone(), gateway: *gateway, src: src.unwrap_or(*own) });
        }
        // Routes of the system have no mark.
        let reached = |(name, device): (&String, &DeviceAddresses)| {
            let own = device.src_for(destination)?;
            Some(Path { device: name.clone(), gateway: None, src: src.unwrap_or(own) })
        };
        self.devices.iter().filter(|_| mark == 0).find_map(reached)
    }

    /// `ovs/route/show`.
    pub fn show(&self) -> String {
        let mut out = "Route Table:\n".to_owned();
        let prefix = |network: Ipv6Addr, prefix: u8| match network.to_ipv4_mapped() {
            Some(network) => format!("{network}/{}", prefix.saturating_sub(96)),
            None => format!("{network}/{prefix}"),
        };
        for (name, device) in &self.devices {
            for (own, length) in &device.addresses {
                let net = prefix(Ipv6Addr::from_bits(network(*own, *length)), *length);
                let own_text = address(*own);
                let _ = writeln!(out, "Cached: {net} dev {name} SRC {own_text}");
                let _ = writeln!(out, "Cached: {} dev {name} SRC {own_text} local", prefix(*own, 128));
            }
        }
        for (key, route) in &self.user {
            let _ = write!(out, "User: {}", prefix(Ipv6Addr::from_bits(key.network), 128 - key.open_bits));
            if key.mark != 0 {
                let _ = write!(out, " MARK {}", key.mark);
            }
            let _ = write!(out, " dev {}", route.device);
            if let Some(gateway) = route.gateway {
                let _ = write!(out, " GW {}", address(gateway));
            }
            let _ = writeln!(out, " SRC {}", address(route.src));
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
        assert!(routes.set_devices([("br0".to_owned(), DeviceAddresses { mac: Mac([2; 6]), addresses })].into()));
        routes
    }

    #[test]
    fn the_longest_prefix_of_a_user_goes_first_and_marks_are_apart() {
        let mut routes = routes();
        let way = |routes: &Routes, mark, to| routes.lookup(mark, v4(to), None).map(|path| path.gateway.map(address));
        assert_eq!(way(&routes, 0, "1.1.2.92"), Some(None));
        assert_eq!(way(&routes, 0, "9.9.9.9"), None);
        routes.add((v4("9.0.0.0"), 104), 0, "br0", Some(v4("1.1.2.1"))).unwrap();
        routes.add((v4("9.9.0.0"), 112), 0, "br0", Some(v4("1.1.2.2"))).unwrap();
        routes.add((v4("9.9.9.1"), 120), 7, "br0", Some(v4("1.1.2.3"))).unwrap();
        assert_eq!(way(&routes, 0, "9.9.9.9"), Some(Some("1.1.2.2".to_owned())));
        assert_eq!(way(&routes, 0, "9.8.9.9"), Some(Some("1.1.2.1".to_owned())));
        assert_eq!(way(&routes, 7, "9.9.9.9"), Some(Some("1.1.2.3".to_owned())));
        assert_eq!(way(&routes, 7, "1.1.2.92"), None);
        assert!(routes.add((v4("9.0.0.0"), 104), 0, "br0", None).is_none(), "no address reaches it");
        assert!(routes.add((v4("1.1.2.0"), 120), 0, "br1", None).is_none(), "no such device");
        assert!(routes.remove((v4("9.9.9.0"), 120), 7) && !routes.remove((v4("9.9.9.0"), 120), 7));
        assert!(routes.lookup(0, v4("1.1.2.92"), Some(v4("1.1.2.89"))).is_none(), "the source must be its own");
        let shown = "Route Table:\nCached: 1.1.2.0/24 dev br0 SRC 1.1.2.88\nCached: 1.1.2.88/32 dev br0 SRC 1.1.2.88 local\n\
                     Cached: 2001:ca00::/24 dev br0 SRC 2001:cafe::88\nCached: 2001:cafe::88/128 dev br0 SRC 2001:cafe::88 local\n\
                     User: 9.9.0.0/16 dev br0 GW 1.1.2.2 SRC 1.1.2.88\nUser: 9.0.0.0/8 dev br0 GW 1.1.2.1 SRC 1.1.2.88\n";
        assert_eq!(routes.show(), shown);
        assert!(routes.set_devices(BTreeMap::new()) && routes.lookup(0, v4("9.9.9.9"), None).is_none());
    }
}
