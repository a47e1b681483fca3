//! Where a connection comes from, and how many a bridge has from there at most.
//!
//! Controllers that the bridge connects to have no limit here: the owner lists them. Clients of the management socket
//! and of other listeners have limits of their own, so that peers on the network never keep the owner out. Of those,
//! each address has a limit, too.

use sluice_fate::Limit;
use std::net::{IpAddr, Ipv6Addr};

/// Connections by the management socket, and by all other listeners, at most.
pub const CLIENTS_MAX: usize = 256;

/// Connections of one address by listeners at most.
pub const CLIENTS_OF_ADDRESS_MAX: usize = 64;

/// The bits of an IPv6 address that name a network: a host has all addresses in it.
const NETWORK_V6: u128 = !(u64::MAX as u128);

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnOrigin {
    /// The bridge has connected to a controller.
    Controller,
    /// A client of `<bridge>.mgmt`.
    Management,
    /// A client of another listener, with its address if it has one.
    Listener(Option<IpAddr>),
}

impl ConnOrigin {
    /// A client of a listener, whose address stands for those that a host may choose freely.
    pub fn of_listener(address: Option<IpAddr>) -> Self {
        ConnOrigin::Listener(address.map(|address| match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK_V6)),
            address => address,
        }))
    }

    /// Whether the owner of the switch has made it.
    pub fn is_owners(self) -> bool {
        matches!(self, ConnOrigin::Controller | ConnOrigin::Management)
    }

    /// The connections of the pool that has most of these: the management socket's or the other listeners'.
    pub fn fullest_pool(connections: impl Iterator<Item = ConnOrigin>) -> usize {
        let (mut management, mut listeners) = (0, 0);
        connections.for_each(|origin| match origin {
            ConnOrigin::Controller => {}
            ConnOrigin::Management => management += 1,
            ConnOrigin::Listener(_) => listeners += 1,
        });
        management.max(listeners)
    }

    /// Whether a bridge with these connections may have another one from here. If not, that is counted.
    pub fn has_room(self, connections: impl Iterator<Item = ConnOrigin> + Clone) -> bool {
        let count = |is_it: fn(ConnOrigin) -> bool| connections.clone().filter(|origin| is_it(*origin)).count();
        let has_room = match self {
            ConnOrigin::Controller => true,
            ConnOrigin::Management => count(|origin| origin == ConnOrigin::Management) < CLIENTS_MAX,
            ConnOrigin::Listener(address) => {
                let of_address = connections.clone().filter(|origin| *origin == self).count();
                count(|origin| matches!(origin, ConnOrigin::Listener(_))) < CLIENTS_MAX
                    && (address.is_none() || of_address < CLIENTS_OF_ADDRESS_MAX)
            }
        };
        if !has_room {
            Limit::Connections.hit();
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v6(last: u128) -> ConnOrigin {
        ConnOrigin::of_listener(Some(Ipv6Addr::from_bits(0x2001_0db8 << 96 | last).into()))
    }

    #[test]
    fn an_address_has_a_part_and_a_network_of_version_6_is_one() {
        let all: Vec<_> = (0..CLIENTS_OF_ADDRESS_MAX as u128).map(v6).collect();
        assert!(!v6(99).has_room(all.iter().copied()) && v6(1 << 64).has_room(all.iter().copied()));
        let mapped = ConnOrigin::of_listener(Some("::ffff:10.0.0.1".parse().unwrap()));
        assert_eq!(mapped, ConnOrigin::of_listener(Some("10.0.0.1".parse().unwrap())));
    }

    #[test]
    fn listeners_that_are_full_leave_the_management_socket_and_controllers_alone() {
        let of = |n: usize| ConnOrigin::of_listener(Some(IpAddr::from([10, 0, 0, (n / 64) as u8])));
        let all: Vec<_> = (0..CLIENTS_MAX).map(of).collect();
        let before = Limit::Connections.count();
        assert!(!of(64 * 9).has_room(all.iter().copied()) && Limit::Connections.count() > before);
        assert!(!ConnOrigin::Listener(None).has_room(all.iter().copied()));
        let others = [ConnOrigin::Management, ConnOrigin::Controller];
        assert_eq!(ConnOrigin::fullest_pool(all.iter().copied().chain(others)), CLIENTS_MAX);
        assert!([ConnOrigin::Management, ConnOrigin::Controller].iter().all(|o| o.has_room(all.iter().copied())));
    }
}
