//! Commands that drive dummy devices. Texts and errors are OVS's. Source: OVS lib/netdev-dummy.c.

use super::{Reply, admin_state};
use sluice_action::DatapathFlow;
use sluice_flow::{FlowKey, compose, compose_of_size};
use sluice_port::dummy::{ConnState, DummyDevice};
use sluice_vswitch::Switch;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The shortest packet with `--len`: the smallest Ethernet frame without its checksum.
const LEN_MIN: usize = 60;

/// The shortest packet in hexadecimal digits: an Ethernet header.
const HEX_MIN: usize = 14;

/// Bytes behind the headers of a packet that is made of a flow.
const PAYLOAD: usize = 64;

const UNKNOWN: &str = "Unknown Dummy Interface";

fn device(switch: &Switch, name: &str) -> Option<Arc<DummyDevice>> {
    switch.dummies().into_iter().find(|device| device.name() == name)
}

/// `netdev-dummy/receive NAME [--qid N] PACKET|FLOW [--len N]...`: replies when the packets have been processed.
pub fn receive(switch: &Switch, args: &[&str]) -> Reply {
    let (name, mut rest) = args.split_first().ok_or("no such dummy netdev")?;
    let device = device(switch, name).ok_or("no such dummy netdev")?;
    let mut queue = 0;
    if let ["--qid", number, packets @ ..] = rest {
        queue = number.parse().ok().filter(|queue| *queue < device.n_rxq()).ok_or("bad rx queue id.")?;
        rest = packets;
    }
    let mut packets = Vec::new();
    while let Some((text, after)) = rest.split_first() {
        rest = after;
        packets.push(match from_hex(text) {
            Some(packet) => packet,
            None => from_flow(text, &mut rest)?,
        });
    }
    packets.into_iter().for_each(|packet| device.receive(queue, packet));
    switch.quiesce();
    Ok(String::new())
}

/// A packet in hexadecimal digits; spaces and dots may stand between bytes.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .filter(|c| !matches!(c, ' ' | '.' | '\t' | '\r' | '\n'))
        .map(|c| c.to_digit(16).map(|digit| digit as u8))
        .collect();
    let digits = digits?;
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    Some(pairs.iter().map(|[high, low]| high << 4 | low).collect()).filter(|packet: &Vec<u8>| packet.len() >= HEX_MIN)
}

/// A packet of a datapath flow; `--len N` may follow.
fn from_flow(text: &str, rest: &mut &[&str]) -> Result<Vec<u8>, String> {
    let mut size = None;
    if let ["--len", number, after @ ..] = *rest {
        size = Some(number.parse().ok().filter(|len| *len >= LEN_MIN).ok_or("too small packet len")?);
        *rest = after;
    }
    let flow = DatapathFlow::parse(text, &|_| None).map_err(|error| error.to_string())?;
    let key = FlowKey::of_packet(&flow.key);
    match size {
        None => Ok(compose(&key, PAYLOAD)),
        Some(size) => compose_of_size(&key, size).ok_or_else(|| "too small packet len".to_owned()),
    }
}

/// `netdev-dummy/set-admin-state [NAME] up|down`.
pub fn set_admin_state(switch: &Switch, args: &[&str]) -> Reply {
    let (name, is_up) = admin_state(args)?;
    match name {
        Some(name) => device(switch, name).ok_or(UNKNOWN)?.set_admin_state(is_up),
        None => switch.dummies().iter().for_each(|device| device.set_admin_state(is_up)),
    }
    switch.watch_ports();
    switch.quiesce();
    Ok("OK".to_owned())
}

/// `netdev-dummy/conn-state [NAME]`.
pub fn conn_state(switch: &Switch, args: &[&str]) -> Reply {
    let line = |name: &str, state: ConnState| {
        let state = match state {
            ConnState::Connected => "connected",
            ConnState::Disconnected => "disconnected",
            ConnState::Unknown => "unknown",
        };
        format!("{name}: {state}\n")
    };
    if let [name] = args {
        return Ok(line(name, device(switch, name).map_or(ConnState::Unknown, |device| device.conn_state())));
    }
    let all = switch.dummies();
    let states = all.iter().map(|device| (device.name(), device.conn_state()));
    Ok(states.filter(|(_, state)| *state != ConnState::Unknown).map(|(name, state)| line(name, state)).collect())
}

/// `netdev-dummy/ip4addr NAME ADDRESS/PREFIX`.
pub fn ip4addr(switch: &Switch, args: &[&str]) -> Reply {
    let device = device(switch, args[0]).ok_or(UNKNOWN)?;
    let (address, prefix) = args[1].split_once('/').unwrap_or((args[1], "32"));
    let address: Option<Ipv4Addr> = address.parse().ok();
    let of_mask = prefix.parse::<Ipv4Addr>().ok().map(|mask| mask.to_bits().leading_ones() as u8);
    let bits = of_mask.or_else(|| prefix.parse::<u8>().ok()).filter(|bits| (1..=32).contains(bits));
    let (address, bits) = address.zip(bits).ok_or_else(|| format!("{}: invalid IP address", args[1]))?;
    device.set_ipv4(address, bits);
    switch.refresh_devices();
    Ok("OK".to_owned())
}

/// `netdev-dummy/ip6addr NAME ADDRESS[/PREFIX]`.
pub fn ip6addr(switch: &Switch, args: &[&str]) -> Reply {
    let device = device(switch, args[0]).ok_or(UNKNOWN)?;
    let (address, prefix) = args[1].split_once('/').unwrap_or((args[1], "128"));
    let address: Option<Ipv6Addr> = address.parse().ok();
    let bits = prefix.parse::<u8>().ok().filter(|bits| (1..=128).contains(bits));
    let (address, bits) = address.zip(bits).ok_or_else(|| format!("{}: invalid IPv6 address", args[1]))?;
    device.set_ipv6(address, bits);
    switch.refresh_devices();
    Ok("OK".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_packets_have_an_ethernet_header_at_least() {
        assert_eq!(from_hex("000102030405 0607.08090a0b0c0D").unwrap(), (0..14).collect::<Vec<u8>>());
        for bad in ["000102030405060708090a0b0c", "000102030405060708090a0b0c0", "eth()", ""] {
            assert_eq!(from_hex(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_flow_becomes_a_packet_with_a_payload_or_of_a_length() {
        let flow = "in_port(1),eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a),eth_type(0x0800),\
                    ipv4(src=10.0.0.2,dst=10.0.0.1,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)";
        let mut rest: &[&str] = &["--len", "100", "next"];
        assert_eq!(from_flow(flow, &mut rest).unwrap().len(), 100);
        assert_eq!(rest, ["next"]);
        assert_eq!(from_flow(flow, &mut rest).unwrap().len(), 14 + 20 + 8 + 64);
        assert_eq!(from_flow(flow, &mut &["--len", "59"][..]).unwrap_err(), "too small packet len");
        assert!(from_flow("eth(", &mut rest).is_err());
    }
}
