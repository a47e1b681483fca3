//! Tracked connections as controllers see them: they can have them forgotten. Source: Open vSwitch, `ct_dpif_flush`.

use crate::connection::Connection;
use sluice_conntrack::{Filter, TupleFilter};
use sluice_openflow::message::ct_flush::{CtFlush, CtTuple};
use std::net::Ipv6Addr;

impl Connection {
    /// Forgets connections, whichever bridge they were made by: all share one datapath.
    pub(crate) fn flush_connections(&self, wanted: &CtFlush) {
        let bridge = &self.conn_mgr.bridge;
        let datapath = self.switch.ofproto.bridges().into_iter().find(|other| other.name == *bridge);
        let datapath = datapath.map(|bridge| bridge.datapath_type).unwrap_or_default();
        let what = match wanted.zone {
            zone if wanted.has_tuples() => format!("zone={} {wanted}", zone.unwrap_or(0)),
            Some(zone) => format!("zone {zone}"),
            None => "<all>".to_owned(),
        };
        tracing::debug!(target: "ct_dpif", "{datapath}@ovs-{datapath}: ct_flush: {what}");
        self.switch.backend.flush_connections(&filter(wanted));
    }
}

fn filter(wanted: &CtFlush) -> Filter {
    let CtFlush { zone, proto, original, reply } = wanted;
    let [original, reply] = [original, reply].map(|tuple| tuple_filter(tuple, wanted.is_icmp()));
    let proto = Some(*proto).filter(|proto| *proto != 0);
    let filter = Filter { zone: *zone, v6: wanted.is_v6(), proto, original, reply };
    // A complete tuple selects one connection; without a zone that is the one in zone 0.
    let zone = zone.or_else(|| filter.names_one().then_some(0));
    Filter { zone, ..filter }
}

fn tuple_filter(tuple: &CtTuple, is_icmp: bool) -> TupleFilter {
    let port = |port: u16| Some(port).filter(|port| *port != 0);
    let ends = TupleFilter { src: address(tuple.src), dst: address(tuple.dst), ..TupleFilter::default() };
    match is_icmp {
        false => TupleFilter { src_port: port(tuple.src_port), dst_port: port(tuple.dst_port), ..ends },
        // Zeros count if there are addresses.
        true if ends == TupleFilter::default() => ends,
        true => TupleFilter { src_port: Some(tuple.icmp_id), icmp: Some((tuple.icmp_type, tuple.icmp_code)), ..ends },
    }
}

/// An address as connections have it: IPv4's in the first four bytes.
fn address(address: Ipv6Addr) -> Option<[u8; 16]> {
    let Some(v4) = address.to_ipv4_mapped() else {
        return Some(address.octets()).filter(|_| !address.is_unspecified());
    };
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&v4.octets());
    Some(bytes)
}
