//! Commands about tunnels: their ports, routes and neighbours. Texts and errors are OVS's. Source: OVS lib/ovs-router.c,
//! lib/tnl-neigh-cache.c, lib/tnl-ports.c.

use super::Reply;
use sluice_vswitch::Switch;
use std::net::{IpAddr, Ipv6Addr};

/// Bits in front of the IPv4 address in an IPv4-mapped IPv6 address.
const MAPPED_BITS: u8 = 96;

/// Seconds for which neighbours may be known at most.
const AGE_MAX_S: u64 = 3600;

const NO_PARAMETERS: &str = "Invalid parameters";

/// `ofproto/list-tunnels`.
pub fn list(switch: &Switch, _: &[&str]) -> Reply {
    Ok(switch.ofproto().tunnels().concat())
}

/// `tnl/ports/show`.
pub fn show_ports(switch: &Switch, _: &[&str]) -> Reply {
    let backends = switch.backends();
    let line = |(name, backend): (&str, sluice_vswitch::Backend)| {
        format!("{name} ({}) ref_cnt={}\n", backend.number.0, backend.tunnels)
    };
    Ok("Listening ports:\n".to_owned() + &backends.iter().map(line).collect::<String>())
}

/// An address, an IPv4 one as the IPv6 address that maps it.
fn address(text: &str) -> Option<Ipv6Addr> {
    text.parse().ok().map(|address: IpAddr| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    })
}

/// A network: an address and, behind a slash, the length of its prefix; all of it without one.
fn network(text: &str) -> Option<(Ipv6Addr, u8)> {
    let (network, prefix) = text.split_once('/').map_or((text, None), |(network, prefix)| (network, Some(prefix)));
    let network = address(network)?;
    let more = if network.to_ipv4_mapped().is_some() { MAPPED_BITS } else { 0 };
    let prefix = prefix.map_or(Some(128 - more), |prefix| prefix.parse::<u8>().ok())?;
    prefix.checked_add(more).filter(|prefix| *prefix <= 128).map(|prefix| (network, prefix))
}

/// `pkt_mark=N`.
fn mark(text: &str) -> Option<u32> {
    let number = text.strip_prefix("pkt_mark=")?;
    match number.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => number.parse().ok(),
    }
}

/// `ovs/route/add`.
pub fn add_route(switch: &Switch, args: &[&str]) -> Reply {
    let to = network(args[0]).ok_or(NO_PARAMETERS)?;
    let (mut gateway, mut marked) = (None, None);
    if let Some(third) = args.get(2) {
        let kind = if to.0.to_ipv4_mapped().is_some() { "gateway" } else { "IPv6 gateway" };
        (marked, gateway) = (mark(third), address(third));
        if marked.is_none() && gateway.is_none() {
            return Err(format!("Invalid pkt_mark or {kind}"));
        }
    }
    if let Some(fourth) = args.get(3) {
        marked = Some(mark(fourth).ok_or("Invalid pkt_mark")?);
    }
    switch.refresh_devices();
    match switch.ofproto().add_route(to, marked.unwrap_or(0), args[1], gateway) {
        true => Ok("OK".to_owned()),
        false => Err("Error while inserting route.".to_owned()),
    }
}

/// The network and the mark of a route.
fn route(args: &[&str]) -> Result<((Ipv6Addr, u8), u32), String> {
    let to = network(args[0]).ok_or(NO_PARAMETERS)?;
    let marked = args.get(1).map_or(Some(0), |text| mark(text)).ok_or("Invalid pkt_mark")?;
    Ok((to, marked))
}

/// `ovs/route/del`.
pub fn del_route(switch: &Switch, args: &[&str]) -> Reply {
    let (to, marked) = route(args)?;
    if switch.ofproto().del_route(to, marked) { Ok("OK".to_owned()) } else { Err("Not found".to_owned()) }
}

/// `ovs/route/lookup`.
pub fn lookup_route(switch: &Switch, args: &[&str]) -> Reply {
    let ((to, prefix), marked) = route(args)?;
    if prefix != 128 {
        return Err(NO_PARAMETERS.to_owned());
    }
    switch.refresh_devices();
    let path = switch.ofproto().route(marked, to).ok_or("Not found")?;
    let show = |address: Ipv6Addr| address.to_ipv4_mapped().map_or(address.to_string(), |address| address.to_string());
    let gateway = path.gateway.unwrap_or(Ipv6Addr::UNSPECIFIED);
    Ok(format!("src {}\ngateway {}\ndev {}\n", show(path.src), show(gateway), path.device))
}

/// `ovs/route/show`.
pub fn show_routes(switch: &Switch, _: &[&str]) -> Reply {
    switch.refresh_devices();
    Ok(switch.ofproto().routes())
}

/// `tnl/neigh/set`.
pub fn set_neighbour(switch: &Switch, args: &[&str]) -> Reply {
    let ip = address(args[1]).ok_or("bad IP address")?;
    let mac = args[2].parse().map_err(|_| "bad MAC address")?;
    switch.ofproto().set_neighbour(args[0], ip, mac, switch.now_ms());
    Ok("OK".to_owned())
}

/// `tnl/neigh/show`.
pub fn show_neighbours(switch: &Switch, _: &[&str]) -> Reply {
    switch.quiesce();
    Ok(switch.ofproto().neighbours(switch.now_ms()))
}

/// `tnl/neigh/flush`.
pub fn flush(switch: &Switch, _: &[&str]) -> Reply {
    switch.ofproto().flush_neighbours();
    Ok("OK".to_owned())
}

/// `tnl/neigh/aging`.
pub fn age(switch: &Switch, args: &[&str]) -> Reply {
    let Some(text) = args.first() else { return Ok((switch.ofproto().neighbour_age_ms() / 1000).to_string()) };
    let age_s = text.parse().ok().filter(|age_s| (1..=AGE_MAX_S).contains(age_s)).ok_or("bad aging value")?;
    switch.ofproto().set_neighbour_age_ms(age_s * 1000);
    Ok("OK".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_marks_are_read() {
        let v4 = |text: &str| text.parse::<std::net::Ipv4Addr>().unwrap().to_ipv6_mapped();
        assert_eq!(network("1.1.2.92/24"), Some((v4("1.1.2.92"), 120)));
        assert_eq!(network("1.1.2.92"), Some((v4("1.1.2.92"), 128)));
        assert_eq!(network("2001:cafe::/64"), Some(("2001:cafe::".parse().unwrap(), 64)));
        assert!(["1.1.2.92/33", "::/129", "x/1", "1.1.1.1/"].iter().all(|text| network(text).is_none()));
        assert_eq!([mark("pkt_mark=12"), mark("pkt_mark=0x1f"), mark("12")], [Some(12), Some(31), None]);
    }
}
