//! Builds valid Ethernet frames: lengths, next-header numbers and checksums are filled in.
//!
//! ```
//! use sluice_testkit::frame;
//! let bytes = frame::ethernet().vlan(5).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).ttl(9).udp(1000, 2000).payload(b"hello").build();
//! assert_eq!(bytes.len(), 14 + 4 + 20 + 8 + 5);
//! ```
//!
//! A modifier (`ttl`, `tos`, `fragment`, `tcp_flags`, …) changes the header added last that has the field.
//! Checksums are computed here in a simple way, so that they can judge those of crate `packet`.

use crate::frame_layer::{Layer, assemble};

/// A frame under construction. Headers are added from the outside in.
#[derive(Clone, Debug)]
pub struct FrameBuilder {
    layers: Vec<Layer>,
    size_min: usize,
}

/// The default source address.
pub const SRC_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
/// The default destination address.
pub const DST_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x02];

/// Begins a frame from [`SRC_MAC`] to [`DST_MAC`].
pub fn ethernet() -> FrameBuilder {
    FrameBuilder { layers: vec![Layer::Ethernet { src: SRC_MAC, dst: DST_MAC, ethertype: None }], size_min: 0 }
}

/// A UDP frame of 60 bytes, the Ethernet minimum: enough for most tests.
pub fn udp4(src: [u8; 4], dst: [u8; 4], src_port: u16, dst_port: u16) -> Vec<u8> {
    ethernet().ipv4(src, dst).udp(src_port, dst_port).payload(&[0; 18]).build()
}

/// A TCP frame of 60 bytes with flags (`0x002` is SYN).
pub fn tcp4(src: [u8; 4], dst: [u8; 4], src_port: u16, dst_port: u16, flags: u16) -> Vec<u8> {
    ethernet().ipv4(src, dst).tcp(src_port, dst_port).tcp_flags(flags).payload(&[0; 6]).build()
}

impl FrameBuilder {
    fn add(mut self, layer: Layer) -> Self {
        self.layers.push(layer);
        self
    }

    /// Changes the last header for which `change` returns true.
    fn change(mut self, what: &str, change: impl Fn(&mut Layer) -> bool) -> Self {
        assert!(self.layers.iter_mut().rev().any(change), "the frame has no header with {what}");
        self
    }

    /// Sets the Ethernet addresses.
    pub fn macs(self, src: [u8; 6], dst: [u8; 6]) -> Self {
        self.change("Ethernet addresses", |layer| match layer {
            Layer::Ethernet { src: s, dst: d, .. } => {
                (*s, *d) = (src, dst);
                true
            }
            _ => false,
        })
    }

    /// Sets the Ethernet type, instead of that of the next header.
    pub fn ethertype(self, ethertype: u16) -> Self {
        self.change("an Ethernet type", |layer| match layer {
            Layer::Ethernet { ethertype: e, .. } | Layer::Vlan { ethertype: e, .. } | Layer::Snap { ethertype: e } => {
                *e = Some(ethertype);
                true
            }
            _ => false,
        })
    }

    /// Adds an 802.1Q tag of priority 0.
    pub fn vlan(self, vid: u16) -> Self {
        self.tag(0x8100, vid)
    }

    /// Adds a tag: 0x8100 or 0x88a8, and the whole TCI.
    pub fn tag(self, tpid: u16, tci: u16) -> Self {
        self.add(Layer::Vlan { tpid, tci, ethertype: None })
    }

    /// Makes it an 802.3 frame (a length in place of the Ethernet type) with a SNAP header.
    pub fn snap(self) -> Self {
        self.add(Layer::Snap { ethertype: None })
    }

    /// Makes it an 802.3 frame with an 802.2 header: DSAP, SSAP, control.
    pub fn llc(self, header: [u8; 3]) -> Self {
        self.add(Layer::Llc(header))
    }

    /// Adds an MPLS label stack entry; the last of them gets the bottom-of-stack bit.
    pub fn mpls(self, label: u32, tc: u8, ttl: u8) -> Self {
        self.add(Layer::Mpls { lse: label << 12 | u32::from(tc & 7) << 9 | u32::from(ttl), multicast: false })
    }

    /// Makes the outermost label stack multicast (0x8848).
    pub fn mpls_multicast(self) -> Self {
        self.change("a label", |layer| match layer {
            Layer::Mpls { multicast, .. } => {
                *multicast = true;
                true
            }
            _ => false,
        })
    }

    /// Adds ARP: operation, then sender's and target's addresses.
    pub fn arp(self, op: u16, sha: [u8; 6], spa: [u8; 4], tha: [u8; 6], tpa: [u8; 4]) -> Self {
        self.add(Layer::Arp { reverse: false, op, sha, spa, tha, tpa })
    }

    /// Adds RARP, as [`FrameBuilder::arp`].
    pub fn rarp(self, op: u16, sha: [u8; 6], spa: [u8; 4], tha: [u8; 6], tpa: [u8; 4]) -> Self {
        self.add(Layer::Arp { reverse: true, op, sha, spa, tha, tpa })
    }

    /// Adds IPv4 with time to live 64.
    pub fn ipv4(self, src: [u8; 4], dst: [u8; 4]) -> Self {
        self.add(Layer::Ipv4 { src, dst, tos: 0, ttl: 64, proto: None, fragment: 0, options: Vec::new() })
    }

    /// Adds IPv6 with hop limit 64.
    pub fn ipv6(self, src: [u8; 16], dst: [u8; 16]) -> Self {
        self.add(Layer::Ipv6 { src, dst, tos: 0, ttl: 64, proto: None, label: 0 })
    }

    /// Sets time to live or hop limit.
    pub fn ttl(self, value: u8) -> Self {
        self.change("a TTL", |layer| match layer {
            Layer::Ipv4 { ttl, .. } | Layer::Ipv6 { ttl, .. } => {
                *ttl = value;
                true
            }
            _ => false,
        })
    }

    /// Sets type of service or traffic class.
    pub fn tos(self, value: u8) -> Self {
        self.change("a type of service", |layer| match layer {
            Layer::Ipv4 { tos, .. } | Layer::Ipv6 { tos, .. } => {
                *tos = value;
                true
            }
            _ => false,
        })
    }

    /// Sets the IP protocol, instead of that of the next header.
    pub fn proto(self, value: u8) -> Self {
        self.change("a protocol", |layer| match layer {
            Layer::Ipv4 { proto, .. } | Layer::Ipv6 { proto, .. } | Layer::Extension { proto, .. } => {
                *proto = Some(value);
                true
            }
            _ => false,
        })
    }

    /// Sets the IPv6 flow label.
    pub fn label(self, value: u32) -> Self {
        self.change("a flow label", |layer| match layer {
            Layer::Ipv6 { label, .. } => {
                *label = value;
                true
            }
            _ => false,
        })
    }

    /// Sets IPv4 options, padded to a multiple of four bytes.
    pub fn ipv4_options(self, bytes: &[u8]) -> Self {
        self.change("IPv4 options", |layer| match layer {
            Layer::Ipv4 { options, .. } => {
                *options = bytes.to_vec();
                options.resize(bytes.len().next_multiple_of(4), 0);
                true
            }
            _ => false,
        })
    }

    /// Makes it a fragment: offset in units of eight bytes, and whether more follow. For IPv6 it adds the header.
    pub fn fragment(self, offset: u16, more: bool) -> Self {
        if self.layers.iter().any(|layer| matches!(layer, Layer::Ipv6 { .. })) {
            let field = (offset << 3 | u16::from(more)).to_be_bytes();
            return self.extension(44, &[field[0], field[1], 0, 0, 0, 1]);
        }
        self.change("a fragment offset", |layer| match layer {
            Layer::Ipv4 { fragment, .. } => {
                *fragment = offset & 0x1fff | if more { 0x2000 } else { 0 };
                true
            }
            _ => false,
        })
    }

    /// Adds an IPv6 extension header: its number, and what follows next header and length, padded to its unit.
    pub fn extension(self, kind: u8, body: &[u8]) -> Self {
        let unit = if kind == 51 { 4 } else { 8 };
        let mut body = body.to_vec();
        body.resize((body.len() + 2).next_multiple_of(unit).max(8) - 2, 0);
        self.add(Layer::Extension { kind, proto: None, body })
    }

    /// Adds an IPv6 routing header (type 2) to final destination `last`, with that many segments left (0 or 1).
    pub fn routing(self, segments_left: u8, last: [u8; 16]) -> Self {
        self.extension(43, &[&[2, segments_left, 0, 0, 0, 0][..], &last].concat())
    }

    /// Adds TCP, flags ACK.
    pub fn tcp(self, src_port: u16, dst_port: u16) -> Self {
        self.add(Layer::Tcp { src_port, dst_port, flags: 0x010, options: Vec::new() })
    }

    /// Sets the twelve TCP flag bits.
    pub fn tcp_flags(self, value: u16) -> Self {
        self.change("TCP flags", |layer| match layer {
            Layer::Tcp { flags, .. } => {
                *flags = value & 0x0fff;
                true
            }
            _ => false,
        })
    }

    /// Sets TCP options, padded to a multiple of four bytes.
    pub fn tcp_options(self, bytes: &[u8]) -> Self {
        self.change("TCP options", |layer| match layer {
            Layer::Tcp { options, .. } => {
                *options = bytes.to_vec();
                options.resize(bytes.len().next_multiple_of(4), 0);
                true
            }
            _ => false,
        })
    }

    /// Adds UDP.
    pub fn udp(self, src_port: u16, dst_port: u16) -> Self {
        self.add(Layer::Udp { src_port, dst_port, with_checksum: true })
    }

    /// Leaves the UDP checksum zero: not computed.
    pub fn no_checksum(self) -> Self {
        self.change("a UDP checksum", |layer| match layer {
            Layer::Udp { with_checksum, .. } => {
                *with_checksum = false;
                true
            }
            _ => false,
        })
    }

    /// Adds an SCTP common header.
    pub fn sctp(self, src_port: u16, dst_port: u16) -> Self {
        self.add(Layer::Sctp { src_port, dst_port })
    }

    /// Adds ICMP: type, code, and four bytes behind the checksum.
    pub fn icmp(self, kind: u8, code: u8) -> Self {
        self.add(Layer::Icmp { v6: false, kind, code, rest: [0; 4] })
    }

    /// Adds ICMPv6, as [`FrameBuilder::icmp`].
    pub fn icmpv6(self, kind: u8, code: u8) -> Self {
        self.add(Layer::Icmp { v6: true, kind, code, rest: [0; 4] })
    }

    /// Adds IGMP: type, code (maximum response time) and group.
    pub fn igmp(self, kind: u8, code: u8, group: [u8; 4]) -> Self {
        self.add(Layer::Igmp { kind, code, group })
    }

    /// Adds a neighbour solicitation; add options with [`FrameBuilder::nd_option`].
    pub fn neighbour_solicit(self, target: [u8; 16]) -> Self {
        self.add(Layer::Icmp { v6: true, kind: 135, code: 0, rest: [0; 4] }).payload(&target)
    }

    /// Adds a neighbour advertisement with its flags word.
    pub fn neighbour_advert(self, flags: u32, target: [u8; 16]) -> Self {
        self.add(Layer::Icmp { v6: true, kind: 136, code: 0, rest: flags.to_be_bytes() }).payload(&target)
    }

    /// Adds a neighbour-discovery option with a link-layer address (type 1 source, 2 target).
    pub fn nd_option(self, kind: u8, mac: [u8; 6]) -> Self {
        self.payload(&[&[kind, 1][..], &mac].concat())
    }

    /// Adds bytes.
    pub fn payload(self, bytes: &[u8]) -> Self {
        self.add(Layer::Raw(bytes.to_vec()))
    }

    /// Pads the frame with zeros behind its end, as Ethernet does, to at least `size` bytes.
    pub fn pad_to(mut self, size: usize) -> Self {
        self.size_min = size;
        self
    }

    /// The frame's bytes.
    pub fn build(&self) -> Vec<u8> {
        let mut bytes = assemble(&self.layers);
        bytes.resize(bytes.len().max(self.size_min), 0);
        bytes
    }
}
