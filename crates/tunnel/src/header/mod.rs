//! The headers of tunnels: from Ethernet to the last byte in front of the inner frame.
//!
//! A header is built once for a megaflow ([`TunnelHeader::build`]). For each packet it is copied in front of the frame and
//! completed ([`TunnelHeader::complete`]): lengths, checksums, UDP source port, sequence number. [`pop`] reads and checks
//! the header of a received packet. Source: Open vSwitch lib/netdev-native-tnl.c; RFC 7348 (VXLAN), RFC 8926 (Geneve),
//! RFC 2784 and RFC 2890 (GRE), draft-foschiano-erspan, 3GPP TS 29.281 (GTP-U), draft-ietf-nvo3-vxlan-gpe.
//!
//! A tunnel may carry packets without Ethernet headers. In the switch such a packet has one, with zeros for addresses; the
//! outer header takes its place ([`TunnelHeader::growth`]), and [`pop`] leaves room for it.

mod build;
mod complete;
mod plain;
mod pop;
mod text;

pub use build::{OuterLink, Unbuildable};
pub use complete::PerPacket;
pub use plain::{PLAIN_SIZE, pop_plain};
pub use pop::{PopError, Popped, pop};

use crate::TunnelKind;
use sluice_packet::headers::ETHERNET_SIZE;

/// The header that a tunnel puts in front of a frame, with zeros for what differs between packets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TunnelHeader {
    kind: TunnelKind,
    /// Whether it stands in the place of the Ethernet header.
    is_bare: bool,
    /// Whether all that differs between packets are the lengths, the IPv4 checksum and the UDP source port.
    is_plain: bool,
    /// The sum of the IPv4 header, whose length and checksum are zeros; 0 of IPv6.
    ipv4_sum: u64,
    bytes: Box<[u8]>,
}

impl TunnelHeader {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// By how many bytes a packet is longer with it: it takes the place of the Ethernet header if the tunnel carries packets
    /// without one.
    pub fn growth(&self) -> usize {
        self.bytes.len() - if self.is_bare { ETHERNET_SIZE } else { 0 }
    }

    /// The type of the tunnel.
    pub fn kind(&self) -> TunnelKind {
        self.kind
    }

    /// Whether the outer packet is IPv6.
    fn is_ipv6(&self) -> bool {
        self.bytes[ETHERTYPE_AT..IP_AT] == ETHERTYPE_IPV6
    }

    /// Where what follows IP begins.
    fn l4_at(&self) -> usize {
        IP_AT + if self.is_ipv6() { IPV6_SIZE } else { IPV4_SIZE }
    }
}

/// Where the Ethernet type and the IP header stand.
const ETHERTYPE_AT: usize = 12;
const IP_AT: usize = 14;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Sizes of headers.
const IPV4_SIZE: usize = 20;
const IPV6_SIZE: usize = 40;
const UDP_SIZE: usize = 8;
/// Both VXLAN's and Geneve's, without options.
const VNI_HEADER_SIZE: usize = 8;
const GRE_SIZE: usize = 4;
/// A further word of GRE: checksum, key or sequence number.
const GRE_WORD: usize = 4;

/// IP protocols.
const PROTO_UDP: u8 = 17;
const PROTO_GRE: u8 = 47;

/// The protocol of an Ethernet frame in GRE and Geneve.
const PROTO_ETHERNET: [u8; 2] = [0x65, 0x58];
/// The GRE protocols of ERSPAN versions 1 and 2.
const PROTO_ERSPAN1: [u8; 2] = [0x88, 0xbe];
const PROTO_ERSPAN2: [u8; 2] = [0x22, 0xeb];
/// The fixed words of ERSPAN, and what follows them in versions 1 and 2.
const ERSPAN_SIZE: usize = 4;
const ERSPAN1_SIZE: usize = 4;
const ERSPAN2_SIZE: usize = 8;

/// Flags of GRE.
const GRE_CSUM: u16 = 0x8000;
const GRE_KEY: u16 = 0x2000;
const GRE_SEQ: u16 = 0x1000;

/// Flags of VXLAN: there is a VNI; group based policy; the header names the inner protocol.
const VXLAN_VNI: u32 = 0x0800_0000;
const VXLAN_GBP: u32 = 0x8000_0000;
const VXLAN_GPE: u32 = 0x0400_0000;
/// Group based policy: the group does not learn the source address; the policy was applied already.
const GBP_FLAGS: u32 = 0x0048_0000;
/// The inner protocols of VXLAN-GPE.
const GPE_IPV4: u32 = 1;
const GPE_IPV6: u32 = 2;
const GPE_ETHERNET: u32 = 3;

/// The fixed part of GTP-U's header, and the words that follow it if one of three flags is set: a sequence number, an N-PDU
/// number and the type of the first extension header.
const GTPU_SIZE: usize = 8;
const GTPU_OPTIONAL_SIZE: usize = 4;
/// Version 1 of GTP, not GTP'; which flags say so.
const GTPU_VERSION: u8 = 0x30;
const GTPU_VERSION_BITS: u8 = 0xf0;
/// Flags of GTP-U: there is an extension header; any of what is optional is there.
const GTPU_EXTENSION: u8 = 4;
const GTPU_OPTIONAL: u8 = 7;
/// The message that carries a user's packet.
const GTPU_PACKET: u8 = 255;

/// The bit of Geneve that says that the packet is about the tunnel itself.
const GENEVE_OAM: u8 = 0x80;
/// The bit of Geneve that says that an option is critical.
const GENEVE_CRITICAL: u8 = 0x40;

/// Bytes of all options of a Geneve header.
const GENEVE_OPTIONS_MAX: usize = 252;

#[cfg(test)]
mod tests;
