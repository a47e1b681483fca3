//! The routes of the kernel, kept until the kernel tells of a change.

use sluice_ofproto::SystemRoute;
use sluice_port::{KernelRoute, RouteMonitor, kernel_routes};
use std::net::{IpAddr, Ipv6Addr};

/// Bits in front of the IPv4 address in an IPv4-mapped IPv6 address.
pub(crate) const MAPPED_BITS: u8 = 96;

/// The routes.
#[derive(Debug, Default)]
pub(crate) struct KernelRoutes {
    monitor: Monitor,
    known: Vec<SystemRoute>,
}

/// What tells that routes are out of date.
#[derive(Debug, Default)]
enum Monitor {
    /// Nothing has been asked yet.
    #[default]
    NotYet,
    Listening(RouteMonitor),
    /// The kernel does not tell: its routes are read each time.
    Unavailable,
    /// The kernel's routes are not to be used.
    Disabled,
}

impl KernelRoutes {
    /// Has the kernel's routes not be used.
    pub fn disable(&mut self) {
        *self = KernelRoutes { monitor: Monitor::Disabled, known: Vec::new() };
    }

    /// How many there were when they were last read.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// The routes that there are now.
    pub fn read(&mut self) -> &[SystemRoute] {
        let is_stale = match &mut self.monitor {
            Monitor::Disabled => false,
            Monitor::Unavailable => true,
            Monitor::Listening(monitor) => monitor.take_changed(),
            Monitor::NotYet => {
                self.monitor = RouteMonitor::new().map_or(Monitor::Unavailable, Monitor::Listening);
                true
            }
        };
        if is_stale {
            self.known = kernel_routes()
                .inspect_err(|error| tracing::debug!(target: "route_table", "routes of the kernel: {error}"))
                .map(|routes| routes.into_iter().map(system_route).collect())
                .unwrap_or_default();
        }
        &self.known
    }
}

/// An IPv4 address as the IPv6 address that maps it.
fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn system_route(route: KernelRoute) -> SystemRoute {
    let KernelRoute { destination: (to, prefix), mark, device, gateway, is_local } = route;
    let more = if to.is_ipv4() { MAPPED_BITS } else { 0 };
    SystemRoute { destination: (mapped(to), prefix + more), mark, device, gateway: gateway.map(mapped), is_local }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_of_ipv4_have_prefixes_of_mapped_addresses() {
        let destination = ("10.0.0.0".parse().unwrap(), 8);
        let gateway = Some("10.0.0.1".parse().unwrap());
        let route = KernelRoute { destination, mark: 0, device: "d".to_owned(), gateway, is_local: false };
        let system = system_route(route);
        assert_eq!(system.destination, ("::ffff:10.0.0.0".parse().unwrap(), 104));
        assert_eq!(system.gateway, Some("::ffff:10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn routes_that_are_not_to_be_used_are_not_read() {
        let mut routes = KernelRoutes::default();
        routes.disable();
        assert!(routes.read().is_empty());
    }
}
