//! Reading and checking the header of a received packet.

use super::complete::pseudo_header;
use super::*;
use sluice_flow::{TunnelKey, tunnel_flags};
use sluice_packet::checksum;
use sluice_packet::headers::{ETHERTYPE_MIN, ethertype};
use std::net::Ipv4Addr;
use std::ops::Range;

/// What a header says, and what stands behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Popped {
    /// The tunnel's fields.
    pub tunnel: TunnelKey,
    /// Where the options of Geneve stand in the packet.
    pub options: Range<usize>,
    /// Where what it carries stands in the packet: a frame, or, if the fields have a type of payload, a packet without Ethernet.
    pub inner: Range<usize>,
}

/// Why a packet is none of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PopError {
    /// It ends within its headers, or before their lengths say.
    #[error("truncated")]
    Truncated,
    /// A version, flag or protocol that no tunnel here has.
    #[error("unknown version, flag or protocol")]
    Unknown,
    /// A checksum is wrong.
    #[error("wrong checksum")]
    Checksum,
}

/// Reads the header of a packet that a tunnel of that kind sent, from Ethernet on. Of the kinds of GRE each reads all.
///
/// Inlined, since what it returns would go through memory: written field by field and read back a vector at a time, which
/// waits for the writes (100 of 327 cycles a packet that was decapsulated, 2026-11-26).
///
/// # Errors
/// If it is no such packet.
#[inline(always)]
pub fn pop(kind: TunnelKind, packet: &[u8]) -> Result<Popped, PopError> {
    let mut tunnel = TunnelKey::default();
    let outer = Outer::read(packet, &mut tunnel)?;
    let l4 = &packet[outer.l4.clone()];
    let size = if kind.is_gre() {
        gre(l4, &outer, &mut tunnel)?
    } else {
        udp(packet, &outer, &mut tunnel)?;
        match kind {
            TunnelKind::Geneve => geneve(&l4[UDP_SIZE..], &mut tunnel)?,
            TunnelKind::Gtpu => gtpu(&l4[UDP_SIZE..], &mut tunnel)?,
            _ => vxlan(&l4[UDP_SIZE..], &mut tunnel)?,
        }
    };
    let inner = outer.l4.start + size;
    let options = if kind == TunnelKind::Geneve { outer.l4.start + UDP_SIZE + VNI_HEADER_SIZE..inner } else { 0..0 };
    Ok(Popped { tunnel, options, inner: inner..outer.l4.end })
}

/// A packet up to IP.
struct Outer {
    proto: u8,
    /// What stands behind IP, without what follows its end.
    l4: Range<usize>,
}

/// The first `N` bytes from `at` on.
#[inline(always)]
fn at<const N: usize>(bytes: &[u8], at: usize) -> Result<&[u8; N], PopError> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or(PopError::Truncated)
}

impl Outer {
    #[inline(always)]
    fn read(packet: &[u8], tunnel: &mut TunnelKey) -> Result<Self, PopError> {
        match *at(packet, ETHERTYPE_AT)? {
            ETHERTYPE_IPV4 => Self::read_ipv4(packet, tunnel),
            ETHERTYPE_IPV6 => Self::read_ipv6(packet, tunnel),
            _ => Err(PopError::Unknown),
        }
    }

    /// A header without options.
    #[inline(always)]
    fn read_ipv4(packet: &[u8], tunnel: &mut TunnelKey) -> Result<Self, PopError> {
        let ip: &[u8; IPV4_SIZE] = at(packet, IP_AT)?;
        if ip[0] != 0x45 {
            return Err(PopError::Unknown);
        }
        if checksum::finish(checksum::native_sum(ip)) != 0 {
            return Err(PopError::Checksum);
        }
        let end = IP_AT + usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let l4 = IP_AT + IPV4_SIZE..end;
        if l4.start > l4.end || end > packet.len() {
            return Err(PopError::Truncated);
        }
        let address = |i: usize| Ipv4Addr::new(ip[i], ip[i + 1], ip[i + 2], ip[i + 3]).to_ipv6_mapped().to_bits();
        (tunnel.src, tunnel.dst) = (address(12), address(16));
        (tunnel.tos, tunnel.ttl) = (ip[1], ip[8]);
        Ok(Outer { proto: ip[9], l4 })
    }

    /// A header without extensions.
    #[inline(always)]
    fn read_ipv6(packet: &[u8], tunnel: &mut TunnelKey) -> Result<Self, PopError> {
        let ip: &[u8; IPV6_SIZE] = at(packet, IP_AT)?;
        if ip[0] >> 4 != 6 {
            return Err(PopError::Unknown);
        }
        let start = IP_AT + IPV6_SIZE;
        let l4 = start..start + usize::from(u16::from_be_bytes([ip[4], ip[5]]));
        if l4.end > packet.len() {
            return Err(PopError::Truncated);
        }
        tunnel.src = u128::from_be_bytes(*at(ip, 8)?);
        tunnel.dst = u128::from_be_bytes(*at(ip, 24)?);
        (tunnel.tos, tunnel.ttl) = (ip[0] << 4 | ip[1] >> 4, ip[7]);
        Ok(Outer { proto: ip[6], l4 })
    }
}

/// Checks the UDP header.
#[inline(always)]
fn udp(packet: &[u8], outer: &Outer, tunnel: &mut TunnelKey) -> Result<(), PopError> {
    let l4 = &packet[outer.l4.clone()];
    let [_, _, _, _, size_high, size_low, sum_high, sum_low]: [u8; UDP_SIZE] = *at(l4, 0)?;
    let size = u16::from_be_bytes([size_high, size_low]);
    if outer.proto != PROTO_UDP {
        return Err(PopError::Unknown);
    }
    if usize::from(size) != l4.len() {
        return Err(PopError::Truncated);
    }
    if (sum_high, sum_low) != (0, 0) {
        let sum = pseudo_header(&packet[IP_AT..outer.l4.start], PROTO_UDP, size) + checksum::sum(l4);
        if checksum::finish(sum) != 0 {
            return Err(PopError::Checksum);
        }
        tunnel.flags |= tunnel_flags::CSUM;
    }
    Ok(())
}

/// Reads VXLAN's header; the size of all headers behind IP.
#[inline(always)]
fn vxlan(header: &[u8], tunnel: &mut TunnelKey) -> Result<usize, PopError> {
    let flags = u32::from_be_bytes(*at(header, 0)?);
    let vni = u32::from_be_bytes(*at(header, 4)?);
    let is_known = match (flags & VXLAN_GPE != 0, flags & VXLAN_GBP != 0) {
        (true, false) => {
            tunnel.payload_type = match flags & 0xff {
                GPE_IPV4 => ethertype::IPV4,
                GPE_IPV6 => ethertype::IPV6,
                GPE_ETHERNET => 0,
                _ => return Err(PopError::Unknown),
            };
            flags & !0xff == VXLAN_VNI | VXLAN_GPE
        }
        (false, true) => flags & !(GBP_FLAGS | 0xffff) == VXLAN_VNI | VXLAN_GBP,
        (false, false) => flags == VXLAN_VNI,
        (true, true) => false,
    };
    if !is_known || vni & 0xff != 0 {
        return Err(PopError::Unknown);
    }
    if flags & VXLAN_GBP != 0 {
        (tunnel.gbp_id, tunnel.gbp_flags) = (flags as u16, ((flags & GBP_FLAGS) >> 16) as u8);
    }
    tunnel.id = (vni >> 8).into();
    tunnel.flags |= tunnel_flags::KEY;
    Ok(UDP_SIZE + VNI_HEADER_SIZE)
}

/// Reads Geneve's header; the size of all headers behind IP. Its caller reads the options and decides which are known.
#[inline(always)]
fn geneve(header: &[u8], tunnel: &mut TunnelKey) -> Result<usize, PopError> {
    let [first, flags]: [u8; 2] = *at(header, 0)?;
    let protocol: [u8; 2] = *at(header, 2)?;
    let vni = u32::from_be_bytes(*at(header, 4)?);
    let options = usize::from(first & 0x3f) * 4;
    if header.len() < VNI_HEADER_SIZE + options {
        return Err(PopError::Truncated);
    }
    if first >> 6 != 0 || protocol != PROTO_ETHERNET {
        return Err(PopError::Unknown);
    }
    tunnel.id = (vni >> 8).into();
    tunnel.flags |= tunnel_flags::KEY | if flags & GENEVE_OAM != 0 { tunnel_flags::OAM } else { 0 };
    Ok(UDP_SIZE + VNI_HEADER_SIZE + options)
}

/// Reads GTP-U's header and what is optional of it; the size of all headers behind IP.
///
/// Messages of the protocol itself, such as echo requests, carry no packet: rules of the bridge that the outer packets
/// come to can tell them apart and send them to who answers them.
#[inline(always)]
fn gtpu(header: &[u8], tunnel: &mut TunnelKey) -> Result<usize, PopError> {
    let [flags, message]: [u8; 2] = *at(header, 0)?;
    let length = usize::from(u16::from_be_bytes(*at(header, 2)?));
    let id = u32::from_be_bytes(*at(header, 4)?);
    if flags & GTPU_VERSION_BITS != GTPU_VERSION || message != GTPU_PACKET {
        return Err(PopError::Unknown);
    }
    // Open vSwitch does not look at the length; what it leaves out would be no part of the packet.
    if header.len() != GTPU_SIZE + length {
        return Err(PopError::Truncated);
    }
    let mut size = GTPU_SIZE;
    if flags & GTPU_OPTIONAL != 0 {
        let [_, _, _, mut next]: [u8; GTPU_OPTIONAL_SIZE] = *at(header, size)?;
        size += GTPU_OPTIONAL_SIZE;
        // Each header tells its length in words of four bytes, and the type of the next one in its last byte.
        while flags & GTPU_EXTENSION != 0 && next != 0 {
            let words = usize::from(at::<1>(header, size)?[0]);
            if words == 0 {
                return Err(PopError::Unknown);
            }
            size += 4 * words;
            next = at::<1>(header, size - 1)?[0];
        }
    }
    tunnel.payload_type = match at::<1>(header, size)?[0] >> 4 {
        4 => ethertype::IPV4,
        6 => ethertype::IPV6,
        _ => return Err(PopError::Unknown),
    };
    (tunnel.gtpu_flags, tunnel.gtpu_msgtype, tunnel.id) = (flags, message, id.into());
    Ok(UDP_SIZE + size)
}

/// Reads GRE's header, and ERSPAN's behind it; the size of all headers behind IP.
#[inline(always)]
fn gre(l4: &[u8], outer: &Outer, tunnel: &mut TunnelKey) -> Result<usize, PopError> {
    let flags = u16::from_be_bytes(*at(l4, 0)?);
    let protocol: [u8; 2] = *at(l4, 2)?;
    if outer.proto != PROTO_GRE || flags & !(GRE_CSUM | GRE_KEY | GRE_SEQ) != 0 {
        return Err(PopError::Unknown);
    }
    let mut size = GRE_SIZE;
    if flags & GRE_CSUM != 0 {
        at::<GRE_WORD>(l4, size)?;
        if checksum::internet(l4) != 0 {
            return Err(PopError::Checksum);
        }
        tunnel.flags |= tunnel_flags::CSUM;
        size += GRE_WORD;
    }
    if flags & GRE_KEY != 0 {
        tunnel.id = u32::from_be_bytes(*at(l4, size)?).into();
        tunnel.flags |= tunnel_flags::KEY;
        size += GRE_WORD;
    }
    if flags & GRE_SEQ != 0 {
        at::<GRE_WORD>(l4, size)?;
        size += GRE_WORD;
    }
    match protocol {
        PROTO_ETHERNET => Ok(size),
        PROTO_ERSPAN1 | PROTO_ERSPAN2 if flags == GRE_SEQ => erspan(&l4[size..], tunnel).map(|more| size + more),
        PROTO_ERSPAN1 | PROTO_ERSPAN2 => Err(PopError::Unknown),
        _ => {
            // A tag belongs to a frame, and there is none.
            tunnel.payload_type = u16::from_be_bytes(protocol);
            let is_known = tunnel.payload_type >= ETHERTYPE_MIN && !ethertype::is_vlan(tunnel.payload_type);
            if is_known { Ok(size) } else { Err(PopError::Unknown) }
        }
    }
}

/// Reads ERSPAN's header; its size.
#[inline(always)]
fn erspan(header: &[u8], tunnel: &mut TunnelKey) -> Result<usize, PopError> {
    let [first, _]: [u8; 2] = *at(header, 0)?;
    let session = u16::from_be_bytes(*at(header, 2)?) & 0x3ff;
    let version = first >> 4;
    let size = match version {
        1 => {
            tunnel.erspan_idx = u32::from_be_bytes(*at(header, ERSPAN_SIZE)?) & 0xf_ffff;
            ERSPAN_SIZE + ERSPAN1_SIZE
        }
        2 => {
            let last = u16::from_be_bytes(*at(header, ERSPAN_SIZE + ERSPAN2_SIZE - 2)?);
            tunnel.erspan_hwid = (last >> 4 & 0x3f) as u8;
            tunnel.erspan_dir = (last >> 3 & 1) as u8;
            ERSPAN_SIZE + ERSPAN2_SIZE
        }
        _ => return Err(PopError::Unknown),
    };
    (tunnel.erspan_ver, tunnel.id) = (version, session.into());
    tunnel.flags |= tunnel_flags::KEY;
    Ok(size)
}
