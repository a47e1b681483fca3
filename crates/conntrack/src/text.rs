//! The texts of `dpctl/dump-conntrack`, `ct-stats-show` and `ct-get-limits`, and the filters of `flush-conntrack`.
//!
//! Exactly as Open vSwitch 3.1 prints them (lib/ct-dpif.c, lib/dpctl.c, lib/ofp-ct.c). Its userspace tracker has no
//! counters, timestamps, ids or status flags of connections; `-m` prints the last two as zero, and so do we.

use crate::dump::{ConnEntry, Filter, TupleFilter};
use crate::limits::ZoneLimit;
use crate::tcp::TcpState;
use crate::tuple::{Endpoint, Tuple};
use sluice_action::ct::Helper;
use sluice_packet::headers::ip_proto;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

const UDPLITE: u8 = 136;
const DCCP: u8 = 33;

/// Every state and its name, in order.
const TCP_STATES: [(TcpState, &str); 11] = [
    (TcpState::Closed, "CLOSED"),
    (TcpState::Listen, "LISTEN"),
    (TcpState::SynSent, "SYN_SENT"),
    (TcpState::SynRecv, "SYN_RECV"),
    (TcpState::Established, "ESTABLISHED"),
    (TcpState::CloseWait, "CLOSE_WAIT"),
    (TcpState::FinWait1, "FIN_WAIT_1"),
    (TcpState::Closing, "CLOSING"),
    (TcpState::LastAck, "LAST_ACK"),
    (TcpState::FinWait2, "FIN_WAIT_2"),
    (TcpState::TimeWait, "TIME_WAIT"),
];

fn tcp_state(state: TcpState) -> &'static str {
    TCP_STATES.iter().find(|(s, _)| *s == state).map_or("", |(_, name)| name)
}

fn protocol(proto: u8) -> String {
    match proto {
        ip_proto::ICMP => "icmp".into(),
        ip_proto::ICMPV6 => "icmpv6".into(),
        ip_proto::TCP => "tcp".into(),
        ip_proto::UDP => "udp".into(),
        ip_proto::SCTP => "sctp".into(),
        UDPLITE => "udplite".into(),
        DCCP => "dccp".into(),
        ip_proto::IGMP => "igmp".into(),
        other => other.to_string(),
    }
}

fn address(end: &Endpoint, v6: bool) -> String {
    if v6 {
        let addr = Ipv6Addr::from(end.addr);
        return match addr.segments() {
            // As in the C library.
            [0, 0, 0, 0, 0, 0, high, low] if high != 0 => {
                format!("::{}", Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
            }
            _ => addr.to_string(),
        };
    }
    let [a, b, c, d, ..] = end.addr;
    Ipv4Addr::new(a, b, c, d).to_string()
}

/// `src=…,dst=…,sport=…,dport=…`
pub fn tuple(tuple: &Tuple) -> String {
    let (src, dst) = (address(&tuple.src, tuple.v6), address(&tuple.dst, tuple.v6));
    if matches!(tuple.proto, ip_proto::ICMP | ip_proto::ICMPV6) {
        let Endpoint { port, icmp_type, icmp_code, .. } = tuple.src;
        return format!("src={src},dst={dst},id={port},type={icmp_type},code={icmp_code}");
    }
    format!("src={src},dst={dst},sport={},dport={}", tuple.src.port, tuple.dst.port)
}

/// One line of `dpctl/dump-conntrack` without a line end. `more` is `-m`, `statistics` is `-s`.
pub fn entry(entry: &ConnEntry, more: bool, statistics: bool) -> String {
    let proto = protocol(entry.original.proto);
    let mut line = format!("{proto},orig=({}),reply=({})", tuple(&entry.original), tuple(&entry.reply));
    if more {
        line += ",id=0";
    }
    if entry.original.zone != 0 {
        write_to(&mut line, format_args!(",zone={}", entry.original.zone));
    }
    if more {
        line += ",status=0";
    }
    if statistics {
        write_to(&mut line, format_args!(",timeout={}", entry.timeout_s));
    }
    if entry.mark != 0 {
        write_to(&mut line, format_args!(",mark={}", entry.mark));
    }
    if entry.label != 0 {
        write_to(&mut line, format_args!(",labels={:#x}", entry.label));
    }
    protoinfo(&mut line, entry, more);
    match entry.helper {
        Some(Helper::Ftp) => line += ",helper=ftp",
        Some(Helper::Tftp) => line += ",helper=tftp",
        None => {}
    }
    if let Some(parent) = entry.parent.filter(|_| more) {
        write_to(&mut line, format_args!(",parent=({})", tuple(&parent)));
    }
    line
}

fn write_to(line: &mut String, args: std::fmt::Arguments<'_>) {
    line.write_fmt(args).expect("invariant: writing to a string does not fail");
}

fn protoinfo(line: &mut String, entry: &ConnEntry, more: bool) {
    let (Some(tcp), Some(state)) = (entry.tcp, entry.tcp_state()) else { return };
    if !more {
        write_to(line, format_args!(",protoinfo=(state={})", tcp_state(state)));
        return;
    }
    let [original, reply] = tcp.states.map(tcp_state);
    write_to(line, format_args!(",protoinfo=(state_orig={original},state_reply={reply}"));
    if tcp.scales != [0, 0] {
        write_to(line, format_args!(",wscale_orig={},wscale_reply={}", tcp.scales[0], tcp.scales[1]));
    }
    let flags = |i: usize| match (tcp.is_scale_known[i], tcp.is_liberal[i]) {
        (true, _) => "WINDOW_SCALE",
        (_, true) => "BE_LIBERAL",
        _ => "0",
    };
    write_to(line, format_args!(",flags_orig={},flags_reply={})", flags(0), flags(1)));
}

/// Connections counted by protocol and TCP state, for `ct-stats-show`.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    total: usize,
    by_protocol: [usize; 9],
    by_tcp_state: [usize; TCP_STATES.len()],
}

/// The protocols counted, in the order shown; all others are counted last.
const COUNTED: [(u8, &str); 8] = [
    (ip_proto::TCP, "TCP"),
    (ip_proto::UDP, "UDP"),
    (UDPLITE, "UDPLITE"),
    (ip_proto::SCTP, "SCTP"),
    (ip_proto::ICMP, "ICMP"),
    (DCCP, "DCCP"),
    (ip_proto::IGMP, "IGMP"),
    // Counted but never shown, as in Open vSwitch.
    (ip_proto::ICMPV6, ""),
];

impl Stats {
    /// Counts a connection.
    pub fn count(&mut self, entry: &ConnEntry) {
        self.total += 1;
        let proto = COUNTED.iter().position(|(proto, _)| *proto == entry.original.proto);
        self.by_protocol[proto.unwrap_or(COUNTED.len())] += 1;
        if let Some(state) = entry.tcp_state() {
            self.by_tcp_state[state as usize] += 1;
        }
    }

    /// The text of `ct-stats-show`, including TCP states if `more`.
    pub fn show(&self, more: bool) -> String {
        let mut out = format!("Connections Stats:\n    Total: {}\n", self.total);
        for (i, (proto, name)) in COUNTED.iter().enumerate().filter(|(i, _)| self.by_protocol[*i] > 0) {
            if name.is_empty() {
                continue;
            }
            write_to(&mut out, format_args!("  {name}: {}\n", self.by_protocol[i]));
            if *proto == ip_proto::TCP && more {
                out += "    Conn per TCP states:\n";
                let states = TCP_STATES.iter().zip(self.by_tcp_state).filter(|(_, n)| *n > 0);
                states.for_each(|((_, name), n)| write_to(&mut out, format_args!("\t  [{name}]={n}\n")));
            }
        }
        if self.by_protocol[COUNTED.len()] > 0 {
            write_to(&mut out, format_args!("  Other: {}\n", self.by_protocol[COUNTED.len()]));
        }
        out
    }
}

/// The text of `ct-get-limits` without a line end: the default limit, then zones.
pub fn limits(limits: &[ZoneLimit]) -> String {
    let default = limits.iter().find(|limit| limit.zone.is_none()).map_or(0, |limit| limit.limit);
    let mut out = format!("default limit={default}");
    for limit in limits {
        if let Some(zone) = limit.zone {
            write_to(&mut out, format_args!("\nzone={zone},limit={},count={}", limit.limit, limit.count));
        }
    }
    out
}

/// Reads the arguments of `flush-conntrack`: `[zone=N] [ORIGINAL-TUPLE [REPLY-TUPLE]]`. Errors are Open vSwitch's. A
/// field that a tuple does not name matches anything; in Open vSwitch an ICMP tuple without identifier, type or code
/// requires zeros there.
pub fn filter(args: &[&str]) -> Result<Filter, String> {
    let mut filter = Filter::default();
    let mut args = args;
    if let Some(zone) = args.first().and_then(|arg| arg.strip_prefix("zone=")) {
        filter.zone = Some(zone.parse().map_err(|_| "failed to parse zone".to_owned())?);
        args = &args[1..];
    }
    for (i, arg) in args.iter().take(2).enumerate() {
        let parsed = tuple_filter(arg, &mut filter)?;
        *(if i == 0 { &mut filter.original } else { &mut filter.reply }) = parsed;
    }
    if args.len() > 2 {
        return Err("invalid arguments".to_owned());
    }
    if !args.is_empty() && filter.zone.is_none() && filter.names_one() {
        // A complete tuple selects one connection; without a zone that is the one in zone 0.
        filter.zone = Some(0);
    }
    Ok(filter)
}

/// Reads one tuple. Address family and protocol are stored in the filter.
fn tuple_filter(text: &str, filter: &mut Filter) -> Result<TupleFilter, String> {
    let mut out = TupleFilter::default();
    for pair in text.split([',', ' ']).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if value.is_empty() {
            return Err(format!("field {name} missing value"));
        }
        let failed = || format!("failed to parse field {name}");
        match name {
            "ct_nw_src" | "ct_nw_dst" | "ct_ipv6_src" | "ct_ipv6_dst" => {
                let addr = family_address(name, value, filter).map_err(|error| error.unwrap_or_else(failed))?;
                let field = if name.ends_with("src") { &mut out.src } else { &mut out.dst };
                if field.replace(addr).is_some() {
                    return Err(format!("{name} is set multiple times"));
                }
            }
            "ct_nw_proto" => filter.proto = Some(value.parse().map_err(|_| failed())?),
            "ct_tp_src" => out.src_port = Some(value.parse().map_err(|_| failed())?),
            "ct_tp_dst" => out.dst_port = Some(value.parse().map_err(|_| failed())?),
            "icmp_type" | "icmp_code" | "icmp_id" => {
                if !matches!(filter.proto, Some(ip_proto::ICMP | ip_proto::ICMPV6)) {
                    return Err("invalid L4 fields".to_owned());
                }
                match name {
                    "icmp_id" => out.src_port = Some(value.parse().map_err(|_| failed())?),
                    "icmp_type" => out.icmp.get_or_insert_default().0 = value.parse().map_err(|_| failed())?,
                    _ => out.icmp.get_or_insert_default().1 = value.parse().map_err(|_| failed())?,
                }
            }
            _ => return Err(format!("invalid conntrack tuple field: {name}")),
        }
    }
    if filter.proto.is_none() && (out.src_port.is_some() || out.dst_port.is_some()) {
        return Err("port is set without protocol".to_owned());
    }
    Ok(out)
}

/// An address of the same family as the others. `Err(None)` if it cannot be parsed.
fn family_address(name: &str, value: &str, filter: &mut Filter) -> Result<[u8; 16], Option<String>> {
    let v6 = name.starts_with("ct_ipv6");
    if filter.v6.is_some_and(|other| other != v6) {
        return Err(Some(format!("the L3 protocol does not match {value}")));
    }
    filter.v6 = Some(v6);
    if v6 {
        return value.parse::<Ipv6Addr>().map(|addr| addr.octets()).map_err(|_| None);
    }
    let mut out = [0; 16];
    out[..4].copy_from_slice(&value.parse::<Ipv4Addr>().map_err(|_| None)?.octets());
    Ok(out)
}
