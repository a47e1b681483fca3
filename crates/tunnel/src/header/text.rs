//! A header as the text of actions has it. Source: Open vSwitch lib/odp-util.c, `format_odp_tnl_push_header`.

use super::*;
use sluice_flow::geneve;
use std::fmt::{self, Display, Formatter};
use std::net::{Ipv4Addr, Ipv6Addr};

/// `size=50,type=4,eth(…),ipv4(…),udp(…),vxlan(…)`.
impl Display for TunnelHeader {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let bytes = &self.bytes;
        write!(f, "size={},type={},eth(dst=", bytes.len(), self.type_number())?;
        write_mac(f, &bytes[..6])?;
        f.write_str(",src=")?;
        write_mac(f, &bytes[6..ETHERTYPE_AT])?;
        write!(f, ",dl_type=0x{:04x}),", word16(bytes, ETHERTYPE_AT))?;
        let ip = &bytes[IP_AT..self.l4_at()];
        if self.is_ipv6() {
            let flow = word32(ip, 0);
            let (src, dst) = (wide(ip, 8), wide(ip, 24));
            let (label, class) = (flow & 0xf_ffff, flow >> 20 & 0xff);
            write!(f, "ipv6(src={src},dst={dst},label={label},proto={},tclass=0x{class:x},hlimit={}),", ip[6], ip[7])?;
        } else {
            let (src, dst) = (Ipv4Addr::from_bits(word32(ip, 12)), Ipv4Addr::from_bits(word32(ip, 16)));
            let (tos, fragment) = (Hex(ip[1].into()), word16(ip, 6));
            write!(f, "ipv4(src={src},dst={dst},proto={},tos={tos},ttl={},frag=0x{fragment:x}),", ip[9], ip[8])?;
        }
        self.write_l4(f, &bytes[self.l4_at()..])
    }
}

/// A number in hexadecimal, zero as `0`.
struct Hex(u32);

impl Display for Hex {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { f.write_str("0") } else { write!(f, "{:#x}", self.0) }
    }
}

impl TunnelHeader {
    /// The number of its type in Open vSwitch's datapath. Source: `enum ovs_vport_type`.
    fn type_number(&self) -> u32 {
        match (self.kind, self.is_ipv6()) {
            (TunnelKind::Vxlan, _) => 4,
            (TunnelKind::Geneve, _) => 5,
            (TunnelKind::Gre | TunnelKind::Ip6Gre, false) => 3,
            (TunnelKind::Gre | TunnelKind::Ip6Gre, true) => 109,
            (TunnelKind::Erspan | TunnelKind::Ip6Erspan, false) => 107,
            (TunnelKind::Erspan | TunnelKind::Ip6Erspan, true) => 108,
            (TunnelKind::Gtpu, _) => 110,
        }
    }

    fn write_l4(&self, f: &mut Formatter<'_>, l4: &[u8]) -> fmt::Result {
        if !self.kind.is_gre() {
            let (src, dst, sum) = (word16(l4, 0), word16(l4, 2), word16(l4, 6));
            write!(f, "udp(src={src},dst={dst},csum=0x{sum:x}),")?;
        }
        match self.kind {
            TunnelKind::Vxlan => {
                write!(f, "vxlan(flags=0x{:x},vni=0x{:x})", word32(l4, UDP_SIZE), word32(l4, UDP_SIZE + 4) >> 8)
            }
            TunnelKind::Geneve => {
                let oam = if l4[UDP_SIZE + 1] & GENEVE_OAM != 0 { "oam," } else { "" };
                let critical = if l4[UDP_SIZE + 1] & GENEVE_CRITICAL != 0 { "crit," } else { "" };
                write!(f, "geneve({oam}{critical}vni=0x{:x}", word32(l4, UDP_SIZE + 4) >> 8)?;
                write_options(f, &l4[UDP_SIZE + VNI_HEADER_SIZE..])?;
                f.write_str(")")
            }
            TunnelKind::Gtpu => {
                let (flags, message, id) = (l4[UDP_SIZE], l4[UDP_SIZE + 1], word32(l4, UDP_SIZE + 4));
                write!(f, "gtpu(flags=0x{flags:x},msgtype={message},teid=0x{id:x})")
            }
            TunnelKind::Gre | TunnelKind::Ip6Gre => write_gre(f, l4),
            TunnelKind::Erspan | TunnelKind::Ip6Erspan => write_erspan(f, &l4[GRE_SIZE + GRE_WORD..]),
        }
    }
}

/// `,options({class=…,type=…,len=…,0x…}…)`, if there are some.
fn write_options(f: &mut Formatter<'_>, list: &[u8]) -> fmt::Result {
    if list.is_empty() { Ok(()) } else { write!(f, ",options({})", geneve::show(list, None)) }
}

fn write_gre(f: &mut Formatter<'_>, l4: &[u8]) -> fmt::Result {
    let flags = word16(l4, 0);
    write!(f, "gre((flags=0x{flags:x},proto=0x{:x})", word16(l4, 2))?;
    let words = [(GRE_CSUM, "csum"), (GRE_KEY, "key"), (GRE_SEQ, "seq")];
    let words = words.into_iter().filter(|(flag, _)| flags & flag != 0);
    for (i, (_, name)) in words.enumerate() {
        write!(f, ",{name}=0x{:x}", word32(l4, GRE_SIZE + GRE_WORD * i))?;
    }
    f.write_str(")")
}

fn write_erspan(f: &mut Formatter<'_>, header: &[u8]) -> fmt::Result {
    let session = word16(header, 2) & 0x3ff;
    if header[0] >> 4 == 1 {
        return write!(f, "erspan(ver=1,sid=0x{session:x},idx=0x{:x})", word32(header, ERSPAN_SIZE));
    }
    let last = word16(header, ERSPAN_SIZE + ERSPAN2_SIZE - 2);
    write!(f, "erspan(ver=2,sid=0x{session:x},dir={},hwid=0x{:x})", last >> 3 & 1, last >> 4 & 0x3f)
}

fn write_mac(f: &mut Formatter<'_>, mac: &[u8]) -> fmt::Result {
    mac.iter().enumerate().try_for_each(|(i, byte)| write!(f, "{}{byte:02x}", if i == 0 { "" } else { ":" }))
}

fn word16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from(word16(bytes, at)) << 16 | u32::from(word16(bytes, at + 2))
}

fn wide(bytes: &[u8], at: usize) -> Ipv6Addr {
    Ipv6Addr::from_bits((0..4).fold(0, |n, i| n << 32 | u128::from(word32(bytes, at + 4 * i))))
}
