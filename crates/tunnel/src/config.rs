//! What a tunnel port is configured to be.

use crate::TunnelKind;
use std::net::Ipv6Addr;

/// A tunnel port's configuration. IPv4 addresses are IPv6 addresses that map them (`::ffff:1.2.3.4`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelConfig {
    /// Its type.
    pub kind: TunnelKind,
    /// The other end.
    pub remote: Endpoint,
    /// This end.
    pub local: Endpoint,
    /// The key of packets that it receives.
    pub in_key: Key,
    /// The key of packets that it sends.
    pub out_key: Key,
    /// The UDP port that it receives at and sends to; 0 without UDP.
    pub dst_port: u16,
    /// Type of service of what it sends. ECN is taken from the inner packet in any case.
    pub tos: Inherited,
    /// Time to live of what it sends.
    pub ttl: Inherited,
    /// Whether what it sends must not be fragmented.
    pub dont_fragment: bool,
    /// Whether what it sends has a checksum over the payload.
    pub csum: bool,
    /// Whether GRE packets are numbered.
    pub seq: bool,
    /// Whether it is VXLAN with group based policy.
    pub gbp: bool,
    /// Whether it is VXLAN whose header names the inner protocol.
    pub gpe: bool,
    /// Whether it carries frames, or packets without Ethernet headers.
    pub payload: PayloadKind,
    /// The mark that packets have behind it.
    pub egress_pkt_mark: Option<u32>,
    /// The fields of ERSPAN.
    pub erspan: Erspan,
}

impl TunnelConfig {
    /// The name of the datapath port that serves it.
    pub fn backend_name(&self) -> String {
        self.kind.backend_name(self.dst_port)
    }

    /// What a tunnel of its type carries if its options do not say.
    pub(crate) fn usual_payload(&self) -> PayloadKind {
        if self.kind == TunnelKind::Gtpu { PayloadKind::Bare } else { PayloadKind::Ethernet }
    }

    /// Whether a tunnel of its type may carry that. Source: Open vSwitch lib/netdev-vport.c, `tunnel_supported_layers`.
    pub(crate) fn can_carry(&self, payload: PayloadKind) -> bool {
        match payload {
            PayloadKind::Ethernet => self.kind != TunnelKind::Gtpu,
            PayloadKind::Bare => matches!(self.kind, TunnelKind::Gre | TunnelKind::Gtpu) || self.gpe,
        }
    }
}

/// What a tunnel carries: `packet_type` in its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PayloadKind {
    /// Ethernet frames.
    Ethernet,
    /// Packets without Ethernet headers. What leaves loses its header; what comes gets one with zeros for addresses.
    Bare,
}

impl PayloadKind {
    /// Its name in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            PayloadKind::Ethernet => "legacy_l2",
            PayloadKind::Bare => "legacy_l3",
        }
    }
}

/// An end of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Any address: the configuration does not say.
    Any,
    /// Rules choose it for each packet.
    Flow,
    /// This address.
    Address(Ipv6Addr),
}

/// A tunnel's key, such as a VNI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Key {
    /// There is none, which counts as 0.
    #[default]
    Absent,
    /// Rules choose it for each packet.
    Flow,
    /// This one.
    Is(u64),
}

impl Key {
    /// The number; that of an absent one is 0, and rules choose one that is `flow`.
    pub fn number(self) -> Option<u64> {
        match self {
            Key::Absent => Some(0),
            Key::Flow => None,
            Key::Is(number) => Some(number),
        }
    }
}

/// A field of the outer header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherited {
    /// That of the inner header.
    Inherit,
    /// This value.
    Is(u8),
}

/// The fields of ERSPAN; `None`: rules choose them for each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Erspan {
    /// 1 or 2; 0 if the configuration does not say.
    pub version: Option<u8>,
    /// Version 1: the index, 20 bits.
    pub index: Option<u32>,
    /// Version 2: the direction, 0 or 1.
    pub direction: Option<u8>,
    /// Version 2: the hardware id, 6 bits.
    pub hardware_id: Option<u8>,
}

impl Default for Erspan {
    fn default() -> Self {
        Erspan { version: Some(0), index: Some(0), direction: Some(0), hardware_id: Some(0) }
    }
}
