//! A connection as control commands show it, and which connections a command selects.

use crate::connection::Connection;
use crate::states::ConnState;
use crate::tcp::{TcpState, WindowScale};
use crate::tuple::{Endpoint, Tuple};
use sluice_action::ct::Helper;
use sluice_packet::headers::ip_proto;

/// A connection at one moment.
#[derive(Clone, Debug)]
pub struct ConnEntry {
    /// Tuple of the original direction, before NAT.
    pub original: Tuple,
    /// Tuple of the reply direction, before NAT is undone.
    pub reply: Tuple,
    /// The control connection's original tuple, if a helper announced this connection.
    pub parent: Option<Tuple>,
    /// Its mark.
    pub mark: u32,
    /// Its label.
    pub label: u128,
    /// Seconds until it expires without a packet.
    pub timeout_s: u64,
    /// The state of a TCP connection.
    pub tcp: Option<TcpInfo>,
    /// Its helper.
    pub helper: Option<Helper>,
}

/// The state of a TCP connection: first the end that began it, then the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// ConnState of each end.
    pub states: [TcpState; 2],
    /// Window scale of each; 0 if unknown or none.
    pub scales: [u8; 2],
    /// Whether each end sent its window scale.
    pub is_scale_known: [bool; 2],
    /// Whether each end was picked up in the middle of the connection.
    pub is_liberal: [bool; 2],
}

/// Which connections a command selects: those that match all fields given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// In this zone.
    pub zone: Option<u16>,
    /// Of IPv6 (or IPv4).
    pub v6: Option<bool>,
    /// Of this protocol.
    pub proto: Option<u8>,
    /// With this original tuple.
    pub original: TupleFilter,
    /// With this reply tuple.
    pub reply: TupleFilter,
}

/// Parts of a tuple.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TupleFilter {
    /// Source address.
    pub src: Option<[u8; 16]>,
    /// Destination address.
    pub dst: Option<[u8; 16]>,
    /// Source port, or ICMP identifier.
    pub src_port: Option<u16>,
    /// Destination port.
    pub dst_port: Option<u16>,
    /// ICMP type and code.
    pub icmp: Option<(u8, u8)>,
}

impl TupleFilter {
    fn names(&self, tuple: &Tuple) -> bool {
        let port = |want: Option<u16>, end: &Endpoint| want.is_none_or(|port| port == end.port);
        self.src.is_none_or(|addr| addr == tuple.src.addr)
            && self.dst.is_none_or(|addr| addr == tuple.dst.addr)
            && port(self.src_port, &tuple.src)
            && port(self.dst_port, &tuple.dst)
            && self.icmp.is_none_or(|icmp| icmp == (tuple.src.icmp_type, tuple.src.icmp_code))
    }
}

impl Filter {
    /// All connections of a zone, or of every zone.
    pub fn zone(zone: Option<u16>) -> Self {
        Filter { zone, ..Filter::default() }
    }

    /// Whether it selects a single connection by its complete original tuple.
    pub fn names_one(&self) -> bool {
        let TupleFilter { src, dst, src_port, dst_port, .. } = self.original;
        let is_icmp = matches!(self.proto, Some(ip_proto::ICMP | ip_proto::ICMPV6));
        let has_ports = is_icmp || src_port.is_some() && dst_port.is_some();
        src.is_some() && dst.is_some() && has_ports && self.reply == TupleFilter::default()
    }

    /// As in Open vSwitch, the complete tuple of a connection without NAT may be that of either direction.
    pub(crate) fn names(&self, original: &Tuple, reply: &Tuple) -> bool {
        let of_reply = || self.names_one() && *reply == original.reversed() && self.original.names(reply);
        self.zone.is_none_or(|zone| zone == original.zone)
            && self.v6.is_none_or(|v6| v6 == original.v6)
            && self.proto.is_none_or(|proto| proto == original.proto)
            && (self.original.names(original) || of_reply())
            && self.reply.names(reply)
    }
}

impl ConnEntry {
    pub(crate) fn of(connection: &Connection, now_ms: u64) -> ConnEntry {
        let tcp = match connection.state() {
            ConnState::Tcp(tcp) => Some(TcpInfo {
                states: tcp.peers.map(|peer| peer.state),
                scales: tcp.peers.map(|peer| peer.scale.bits()),
                is_scale_known: tcp.peers.map(|peer| matches!(peer.scale, WindowScale::Known(_))),
                is_liberal: tcp.peers.map(|peer| peer.scale == WindowScale::Unknown),
            }),
            _ => None,
        };
        let (mark, label) = connection.marks();
        ConnEntry {
            original: connection.original,
            reply: connection.reply,
            parent: connection.parent.as_deref().copied(),
            mark,
            label,
            timeout_s: connection.expires_ms().saturating_sub(now_ms) / 1000,
            tcp: tcp.filter(|_| connection.original.proto == ip_proto::TCP),
            helper: connection.helper,
        }
    }

    /// The TCP state in one word: that of the end that is further on, as the kernel names it.
    pub fn tcp_state(&self) -> Option<TcpState> {
        let [a, b] = self.tcp?.states;
        Some(match a.max(b) {
            TcpState::FinWait2 => TcpState::TimeWait,
            TcpState::SynRecv => TcpState::Established,
            state => state,
        })
    }
}
