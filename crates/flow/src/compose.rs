//! Making a packet of a flow: the bytes from which [`crate::extract`] reads that flow.

use crate::layout as at;
use crate::{FlowKey, layout::Span};
use sluice_packet::checksum;
use sluice_packet::headers::{
    ARP_IPV4_OVER_ETHERNET, ETHERTYPE_NONE, FRAG_ANY, FRAG_LATER, IPV4_SIZE, ethertype, ip_proto, nd,
};

/// The CFI bit of a TCI: in keys, it says that the tag is there.
const VLAN_CFI: u16 = 0x1000;

/// The fragment offset of later fragments, in units of eight bytes. Source: OVS `flow_compose`.
const LATER_OFFSET: u16 = 100;

/// The bottom-of-stack bit of a label stack entry.
const MPLS_BOTTOM: u32 = 0x100;

/// TCP flags whose segments get no payload: SYN, FIN, RST.
const TCP_WITHOUT_PAYLOAD: u16 = 0x007;

/// ICMP and ICMPv6 echo: request and reply.
const ICMP_ECHO: [u8; 2] = [8, 0];
const ICMPV6_ECHO: [u8; 2] = [128, 129];

/// A packet of a flow: headers with valid lengths and checksums, then `payload` bytes 0, 1, 2 … where the protocol has a
/// payload. Source: OVS `flow_compose`.
pub fn compose(key: &FlowKey, payload: usize) -> Vec<u8> {
    Composer { key, packet: Vec::new(), l3: 0 }.run(&(0..payload).map(|i| i as u8).collect::<Vec<_>>(), 0)
}

/// A packet of a flow of `size` bytes: headers, then zeros. `None` if the headers alone are longer.
pub fn compose_of_size(key: &FlowKey, size: usize) -> Option<Vec<u8>> {
    let minimal = compose(key, 0).len();
    let padding = size.checked_sub(minimal)?;
    Some(Composer { key, packet: Vec::new(), l3: 0 }.run(&[], padding))
}

struct Composer<'a> {
    key: &'a FlowKey,
    packet: Vec<u8>,
    /// Where the IP header begins.
    l3: usize,
}

impl Composer<'_> {
    fn byte(&self, span: Span) -> u8 {
        self.key.number(span) as u8
    }

    fn put(&mut self, span: Span) {
        self.packet.extend_from_slice(self.key.get(span));
    }

    /// The packet; `padding` zeros follow the payload and count as part of it.
    fn run(mut self, payload: &[u8], padding: usize) -> Vec<u8> {
        let dl_type = self.key.number(at::DL_TYPE) as u16;
        self.put(at::DL_DST);
        self.put(at::DL_SRC);
        for (tpid, tci) in [(at::VLAN0_TPID, at::VLAN0_TCI), (at::VLAN1_TPID, at::VLAN1_TCI)] {
            let tag = self.key.number(tci) as u16;
            if tag & VLAN_CFI != 0 {
                self.put(tpid);
                self.packet.extend((tag & !VLAN_CFI).to_be_bytes());
            }
        }
        if dl_type == ETHERTYPE_NONE {
            let len = (self.packet.len() + 2 + padding) as u16;
            self.packet.extend(len.to_be_bytes());
            self.packet.resize(usize::from(len), 0);
            return self.packet;
        }
        self.packet.extend(dl_type.to_be_bytes());
        self.l3 = self.packet.len();
        match dl_type {
            ethertype::IPV4 => self.ipv4(payload, padding),
            ethertype::IPV6 => self.ipv6(payload, padding),
            ethertype::ARP | ethertype::RARP => self.arp(),
            _ if ethertype::is_mpls(dl_type) => self.labels(),
            _ => {}
        }
        if !matches!(dl_type, ethertype::IPV4 | ethertype::IPV6) {
            self.packet.resize(self.packet.len() + padding, 0);
        }
        self.packet
    }

    fn ipv4(&mut self, payload: &[u8], padding: usize) {
        let fragment = match self.byte(at::NW_FRAG) {
            frag if frag & FRAG_LATER != 0 => 0x2000 | LATER_OFFSET,
            frag if frag & FRAG_ANY != 0 => 0x2000,
            _ => 0,
        };
        self.packet.extend([0x45, self.byte(at::NW_TOS), 0, 0, 0, 0]);
        self.packet.extend(fragment.to_be_bytes());
        self.packet.extend([self.byte(at::NW_TTL), self.byte(at::NW_PROTO), 0, 0]);
        self.put(at::NW_SRC);
        self.put(at::NW_DST);
        self.transport(payload, padding);
        let l3 = self.l3;
        let size = (self.packet.len() - l3) as u16;
        self.packet[l3 + 2..l3 + 4].copy_from_slice(&size.to_be_bytes());
        let sum = checksum::internet(&self.packet[l3..l3 + IPV4_SIZE]);
        self.packet[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
    }

    fn ipv6(&mut self, payload: &[u8], padding: usize) {
        let first = 6 << 28 | u32::from(self.byte(at::NW_TOS)) << 20 | self.key.number(at::IPV6_LABEL) as u32;
        self.packet.extend(first.to_be_bytes());
        self.packet.extend([0, 0, self.byte(at::NW_PROTO), self.byte(at::NW_TTL)]);
        self.put(at::IPV6_SRC);
        self.put(at::IPV6_DST);
        let l4 = self.packet.len();
        self.transport(payload, padding);
        let size = (self.packet.len() - l4) as u16;
        self.packet[self.l3 + 4..self.l3 + 6].copy_from_slice(&size.to_be_bytes());
    }

    /// The transport header, the payload and the transport checksum; later fragments have no header.
    fn transport(&mut self, payload: &[u8], padding: usize) {
        let l4 = self.packet.len();
        let proto = self.byte(at::NW_PROTO);
        let is_later = self.byte(at::NW_FRAG) & FRAG_LATER != 0;
        if !is_later && self.transport_header(proto) {
            self.packet.extend_from_slice(payload);
        }
        self.packet.resize(self.packet.len() + padding, 0);
        if is_later {
            return;
        }
        if proto == ip_proto::UDP {
            let size = (self.packet.len() - l4) as u16;
            self.packet[l4 + 4..l4 + 6].copy_from_slice(&size.to_be_bytes());
        }
        let (field, sum) = match proto {
            ip_proto::TCP => (16, self.pseudo_header(l4)),
            ip_proto::UDP => (6, self.pseudo_header(l4)),
            ip_proto::ICMPV6 => (2, self.pseudo_header(l4)),
            ip_proto::ICMP | ip_proto::IGMP => (2, 0),
            _ => return,
        };
        let sum = match checksum::finish(sum + checksum::sum(&self.packet[l4..])) {
            // Zero says that there is none.
            0 if proto == ip_proto::UDP => 0xffff,
            sum => sum,
        };
        self.packet[l4 + field..l4 + field + 2].copy_from_slice(&sum.to_be_bytes());
    }

    fn pseudo_header(&self, l4: usize) -> u64 {
        let (proto, size) = (self.byte(at::NW_PROTO), self.packet.len() - l4);
        match self.key.number(at::DL_TYPE) as u16 {
            ethertype::IPV4 => {
                let address = |span| (self.key.number(span) as u32).to_be_bytes();
                checksum::pseudo_v4(address(at::NW_SRC), address(at::NW_DST), proto, size as u16)
            }
            _ => {
                let address = |span| *self.key.get(span).first_chunk().expect("invariant: the field has 16 bytes");
                checksum::pseudo_v6(address(at::IPV6_SRC), address(at::IPV6_DST), proto, size as u32)
            }
        }
    }

    /// The transport header with zero checksum; whether a payload follows.
    fn transport_header(&mut self, proto: u8) -> bool {
        let (kind, code) = (self.byte(at::TP_SRC), self.byte(at::TP_DST));
        match proto {
            ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP => {
                self.put(at::TP_SRC);
                self.put(at::TP_DST);
            }
            ip_proto::ICMP | ip_proto::IGMP | ip_proto::ICMPV6 => self.packet.extend([kind, code, 0, 0]),
            _ => {}
        }
        match proto {
            ip_proto::TCP => {
                let flags = self.key.number(at::TCP_FLAGS) as u16 & 0x0fff;
                self.packet.extend([0; 8]);
                self.packet.extend((5 << 12 | flags).to_be_bytes());
                self.packet.extend([0; 6]);
                flags & TCP_WITHOUT_PAYLOAD == 0
            }
            ip_proto::UDP => {
                self.packet.extend([0; 4]);
                true
            }
            ip_proto::SCTP => {
                self.packet.extend([0; 8]);
                false
            }
            ip_proto::ICMP => {
                self.packet.extend([0; 4]);
                code == 0 && ICMP_ECHO.contains(&kind)
            }
            ip_proto::IGMP => {
                self.put(at::ND_RESERVED);
                false
            }
            ip_proto::ICMPV6 => {
                self.put(at::ND_RESERVED);
                if code == 0 && matches!(kind, nd::SOLICIT | nd::ADVERT) {
                    self.neighbour_discovery();
                }
                code == 0 && ICMPV6_ECHO.contains(&kind)
            }
            _ => false,
        }
    }

    fn neighbour_discovery(&mut self) {
        self.put(at::ND_TARGET);
        for (option, address) in [(nd::SOURCE_LINK_ADDRESS, at::ARP_SHA), (nd::TARGET_LINK_ADDRESS, at::ARP_THA)] {
            if self.key.get(address).iter().any(|byte| *byte != 0) {
                self.packet.extend([option, 1]);
                self.put(address);
            }
        }
    }

    fn arp(&mut self) {
        let op = self.byte(at::NW_PROTO);
        self.packet.extend(ARP_IPV4_OVER_ETHERNET);
        self.packet.extend([0, op]);
        if matches!(op, 1 | 2) {
            [at::ARP_SHA, at::NW_SRC, at::ARP_THA, at::NW_DST].into_iter().for_each(|span| self.put(span));
        } else {
            self.packet.extend([0; 20]);
        }
    }

    /// The label stack, down to the entry with the bottom bit.
    fn labels(&mut self) {
        for span in [at::MPLS0, at::MPLS1, at::MPLS2] {
            self.put(span);
            if self.key.number(span) as u32 & MPLS_BOTTOM != 0 {
                return;
            }
        }
    }
}
