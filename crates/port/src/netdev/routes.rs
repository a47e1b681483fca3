//! The routes of the kernel, and news of them: rtnetlink's messages about routes, addresses and links.
//! Source: rtnetlink(7); Open vSwitch lib/route-table.c, `route_table_parse`.

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily as RouteFamily, RouteNetlinkMessage};
use rustix::io::Errno;
use rustix::net::netdevice::index_to_name;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto, socket_with};
use sluice_fate::Limit;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The groups of messages about links, addresses and routes. Source: linux/rtnetlink.h, `RTMGRP_*`.
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;

/// Bytes of a datagram of a dump. Source: linux/netlink.h: the kernel sends no more unless it is asked to.
const DATAGRAM_BYTES: usize = 32 << 10;

/// Routes that are read at most.
pub const ROUTES_MAX: usize = 65_536;

/// The tables default, main and local; rules choose the others. Source: rtnetlink(7).
const TABLES: std::ops::RangeInclusive<u32> = 253..=255;

/// A route of the kernel that sends packets somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRoute {
    /// The network that it leads to, with the length of its prefix.
    pub destination: (IpAddr, u8),
    /// The mark of the packets that it is for.
    pub mark: u32,
    /// The device by which they leave.
    pub device: String,
    /// The router that they go to; `None`: their destination.
    pub gateway: Option<IpAddr>,
    /// Whether its destination is an address of this host.
    pub is_local: bool,
}

/// The routes of this network namespace. Of those to one network only the one comes that the kernel would use.
///
/// # Errors
/// What the system says.
pub fn kernel_routes() -> io::Result<Vec<KernelRoute>> {
    let socket = socket(SocketFlags::CLOEXEC)?;
    let (mut out, mut names) = (Routes::default(), BTreeMap::new());
    for family in [RouteFamily::Inet, RouteFamily::Inet6] {
        request(&socket, family)?;
        let mut name = |index| names.entry(index).or_insert_with(|| index_to_name(&socket, index).ok()).clone();
        let mut datagram = vec![0; DATAGRAM_BYTES];
        loop {
            let (len, _) = recv(&socket, &mut datagram, RecvFlags::empty())?;
            if read_datagram(&datagram[..len], |message| out.take(message, &mut name))? {
                break;
            }
        }
    }
    Ok(out.found.into_values().map(|(_, route)| route).collect())
}

fn socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    // Protocol 0 of this family is NETLINK_ROUTE.
    Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?)
}

/// Asks for all routes of a family.
fn request(socket: &OwnedFd, family: RouteFamily) -> io::Result<()> {
    let mut message = RouteMessage::default();
    message.header = RouteHeader { address_family: family, ..RouteHeader::default() };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut request = NetlinkMessage::new(header, NetlinkPayload::from(RouteNetlinkMessage::GetRoute(message)));
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    sendto(socket, &bytes, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    Ok(())
}

/// Hands over the routes of a datagram of a dump; whether the dump has ended. What cannot be read is left out.
fn read_datagram(mut datagram: &[u8], mut take: impl FnMut(&RouteMessage)) -> io::Result<bool> {
    while let Some(len) = datagram.first_chunk().map(|len| u32::from_ne_bytes(*len) as usize) {
        let Some(bytes) = datagram.get(..len).filter(|bytes| !bytes.is_empty()) else { break };
        match NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes).map(|message| message.payload) {
            Ok(NetlinkPayload::Done(_)) => return Ok(true),
            Ok(NetlinkPayload::Error(error)) => return Err(error.to_io()),
            Ok(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route))) => take(&route),
            _ => {}
        }
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// What tells routes apart: of several with the same, that with the lowest metric is used.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RouteKey {
    destination: (IpAddr, u8),
    mark: u32,
    is_local: bool,
}

/// The routes that have been read, each with its metric.
#[derive(Default)]
struct Routes {
    found: BTreeMap<RouteKey, (u32, KernelRoute)>,
}

impl Routes {
    /// Takes over a route, if it sends packets to a device.
    fn take(&mut self, message: &RouteMessage, name: &mut impl FnMut(u32) -> Option<String>) {
        let Some((metric, route)) = read_route(message, name) else { return };
        let key = RouteKey { destination: route.destination, mark: route.mark, is_local: route.is_local };
        if self.found.get(&key).is_some_and(|(known, _)| *known <= metric) {
            return;
        }
        if self.found.len() >= ROUTES_MAX && !self.found.contains_key(&key) {
            return Limit::KernelRoutes.hit();
        }
        self.found.insert(key, (metric, route));
    }
}

/// A route with its metric; `None` if it sends nothing to a device, or rules choose its table.
fn read_route(message: &RouteMessage, name: &mut impl FnMut(u32) -> Option<String>) -> Option<(u32, KernelRoute)> {
    let header = &message.header;
    let (mut table, mut metric, mut mark) = (u32::from(header.table), 0, 0);
    let (mut destination, mut gateway, mut index) = (None, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(to) => destination = address(to),
            RouteAttribute::Gateway(to) => gateway = address(to),
            RouteAttribute::Oif(device) => index = Some(*device),
            RouteAttribute::Priority(priority) => metric = *priority,
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Mark(value) => mark = *value,
            // All packets of a tunnel take one way: the first.
            RouteAttribute::MultiPath(hops) => {
                let hop = hops.first()?;
                index = Some(hop.interface_index);
                gateway = hop.attributes.iter().find_map(|attribute| match attribute {
                    RouteAttribute::Gateway(to) => address(to),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    let any = match header.address_family {
        RouteFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        RouteFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    if !matches!(header.kind, RouteType::Unicast | RouteType::Local) || !TABLES.contains(&table) {
        return None;
    }
    let destination = (destination.unwrap_or(any), header.destination_prefix_length);
    let is_local = header.kind == RouteType::Local;
    Some((metric, KernelRoute { destination, mark, device: name(index?)?, gateway, is_local }))
}

fn address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

/// Hears of changes of routes, addresses and links of the network namespace in which it was made.
#[derive(Debug)]
pub struct RouteMonitor {
    socket: OwnedFd,
}

impl RouteMonitor {
    /// From now on.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn new() -> io::Result<Self> {
        let socket = socket(SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(RouteMonitor { socket })
    }

    /// Can be read when something has changed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether something changed since this was last asked. The kernel has told of a change before the call that made it
    /// returns.
    pub fn take_changed(&mut self) -> bool {
        let (mut changed, mut datagram) = (false, [0; 64]);
        loop {
            match recv(&self.socket, &mut datagram, RecvFlags::empty()) {
                Ok(_) | Err(Errno::NOBUFS) => changed = true,
                Err(Errno::INTR) => {}
                Err(_) => return changed,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::route::RouteNextHop;
    use proptest::prelude::*;

    fn message(kind: RouteType, prefix: u8, attributes: Vec<RouteAttribute>) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = RouteFamily::Inet;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.kind = kind;
        message.header.destination_prefix_length = prefix;
        message.attributes = attributes;
        message
    }

    fn to(last: u8) -> RouteAddress {
        RouteAddress::Inet([10, 0, 0, last].into())
    }

    fn read(messages: &[RouteMessage]) -> Vec<String> {
        let (mut routes, mut name) = (Routes::default(), |index| (index != 9).then(|| format!("d{index}")));
        messages.iter().for_each(|message| routes.take(message, &mut name));
        let text = |route: KernelRoute| {
            let (address, prefix) = route.destination;
            let local = if route.is_local { " local" } else { "" };
            format!("{address}/{prefix} {} {:?}{local}", route.device, route.gateway)
        };
        routes.found.into_values().map(|(_, route)| text(route)).collect()
    }

    #[test]
    fn a_route_is_read_if_it_leads_to_a_device() {
        use RouteAttribute::{Destination, Gateway, MultiPath, Oif, Table};
        let mut hop = RouteNextHop::default();
        hop.interface_index = 3;
        hop.attributes = vec![Gateway(to(3))];
        let messages = [
            message(RouteType::Unicast, 24, vec![Destination(to(0)), Oif(1)]),
            message(RouteType::Unicast, 0, vec![Gateway(to(1)), Oif(1)]),
            message(RouteType::Local, 32, vec![Destination(to(7)), Oif(1), Table(255)]),
            message(RouteType::Unicast, 25, vec![Destination(to(0)), MultiPath(vec![hop])]),
            message(RouteType::Broadcast, 32, vec![Destination(to(255)), Oif(1)]),
            message(RouteType::Unicast, 32, vec![Destination(to(8)), Oif(1), Table(100)]),
            message(RouteType::Unicast, 32, vec![Destination(to(8)), Oif(9)]),
            message(RouteType::BlackHole, 32, vec![Destination(to(8))]),
        ];
        let expected = [
            "0.0.0.0/0 d1 Some(10.0.0.1)",
            "10.0.0.0/24 d1 None",
            "10.0.0.0/25 d3 Some(10.0.0.3)",
            "10.0.0.7/32 d1 None local",
        ];
        assert_eq!(read(&messages), expected);
    }

    #[test]
    fn the_smallest_metric_counts() {
        use RouteAttribute::{Destination, Oif, Priority};
        let of =
            |metric, device| message(RouteType::Unicast, 24, vec![Destination(to(0)), Priority(metric), Oif(device)]);
        assert_eq!(read(&[of(5, 1), of(3, 2), of(4, 3)]), ["10.0.0.0/24 d2 None"]);
    }

    #[test]
    fn no_more_are_kept_than_there_may_be() {
        let (mut routes, before) = (Routes::default(), Limit::KernelRoutes.count());
        for n in 0..ROUTES_MAX as u32 + 2 {
            let to = RouteAddress::Inet(Ipv4Addr::from_bits(n));
            let attributes = vec![RouteAttribute::Destination(to), RouteAttribute::Oif(1)];
            routes.take(&message(RouteType::Unicast, 32, attributes), &mut |_| Some("d".to_owned()));
        }
        assert_eq!((routes.found.len(), Limit::KernelRoutes.count() - before), (ROUTES_MAX, 2));
    }

    #[test]
    fn the_kernel_answers() {
        let mut monitor = RouteMonitor::new().unwrap();
        monitor.take_changed();
        let routes = kernel_routes().unwrap();
        assert!(routes.iter().all(|route| !route.device.is_empty()), "{routes:?}");
    }

    proptest! {
        #[test]
        fn no_bytes_panic_or_loop(bytes in proptest::collection::vec(prop_oneof![Just(0), 1..40u8, any::<u8>()], 0..200)) {
            let _ = read_datagram(&bytes, |message| _ = read_route(message, &mut |_| Some(String::new())));
        }
    }
}
