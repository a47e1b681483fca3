//! Building a header for a megaflow.

use super::*;
use crate::TunnelConfig;
use sluice_flow::geneve::GeneveOption;
use sluice_flow::{TunnelKey, tunnel_flags};
use sluice_packet::checksum;
use sluice_packet::headers::ethertype;
use std::net::Ipv6Addr;

/// What routes and neighbours say of the outer packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterLink {
    /// The Ethernet address of the next hop.
    pub link_dst: [u8; 6],
    /// That of the device by which it leaves.
    pub link_src: [u8; 6],
    /// Its source, an IPv4 one as the IPv6 address that maps it.
    pub src: Ipv6Addr,
}

/// No header can carry the tunnel's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unbuildable {
    /// The key is too large.
    #[error("the key does not fit the header")]
    Key,
    /// Neither version 1 nor 2 of ERSPAN.
    #[error("ERSPAN has versions 1 and 2")]
    ErspanVersion,
    /// One end is IPv4, the other IPv6.
    #[error("both ends must be of one address family")]
    Family,
    /// The tunnel has no name for what it is to carry.
    #[error("the tunnel cannot carry packets of that Ethernet type")]
    Payload,
    /// The options are longer than a header may have.
    #[error("a Geneve header has at most {GENEVE_OPTIONS_MAX} bytes of options")]
    Options,
}

impl TunnelHeader {
    /// The header of packets that leave by a tunnel with these fields and, if it is one of Geneve, these options.
    ///
    /// # Errors
    /// If there is none.
    pub fn build(
        config: &TunnelConfig,
        tunnel: &TunnelKey,
        options: &[GeneveOption],
        link: &OuterLink,
    ) -> Result<Self, Unbuildable> {
        let mut out = Vec::with_capacity(IP_AT + IPV6_SIZE + UDP_SIZE + VNI_HEADER_SIZE);
        out.extend(link.link_dst);
        out.extend(link.link_src);
        let proto = if config.kind.is_gre() { PROTO_GRE } else { PROTO_UDP };
        let dst = Ipv6Addr::from_bits(tunnel.dst);
        let is_ipv6 = match (link.src.to_ipv4_mapped(), dst.to_ipv4_mapped()) {
            (Some(src), Some(dst)) => {
                out.extend(ETHERTYPE_IPV4);
                let fragment = if tunnel.flags & tunnel_flags::DF != 0 { 0x40 } else { 0 };
                out.extend([0x45, tunnel.tos, 0, 0, 0, 0, fragment, 0, tunnel.ttl, proto, 0, 0]);
                out.extend(src.octets());
                out.extend(dst.octets());
                false
            }
            (None, None) => {
                out.extend(ETHERTYPE_IPV6);
                out.extend((6 << 28 | u32::from(tunnel.tos) << 20).to_be_bytes());
                out.extend([0, 0, proto, tunnel.ttl]);
                out.extend(link.src.octets());
                out.extend(dst.octets());
                true
            }
            _ => return Err(Unbuildable::Family),
        };
        if config.kind.is_gre() {
            gre(config, tunnel, &mut out)?;
        } else {
            // Any value but 0 asks for a checksum, which IPv6 wants in any case.
            let has_checksum = is_ipv6 || tunnel.flags & tunnel_flags::CSUM != 0;
            let checksum = if has_checksum { 0xffff_u16 } else { 0 };
            out.extend([0, 0]);
            out.extend(config.dst_port.to_be_bytes());
            out.extend([0, 0]);
            out.extend(checksum.to_be_bytes());
            match config.kind {
                TunnelKind::Geneve => geneve(tunnel, options, &mut out)?,
                TunnelKind::Gtpu => gtpu(tunnel, &mut out)?,
                _ => vxlan(config, tunnel, &mut out)?,
            }
        }
        let ipv4_sum = if is_ipv6 { 0 } else { checksum::sum(&out[IP_AT..IP_AT + IPV4_SIZE]) };
        // GTP-U has a length of its own.
        let is_plain = !is_ipv6
            && matches!(config.kind, TunnelKind::Vxlan | TunnelKind::Geneve)
            && tunnel.flags & tunnel_flags::CSUM == 0;
        let is_bare = tunnel.payload_type != 0;
        Ok(TunnelHeader { kind: config.kind, is_bare, is_plain, ipv4_sum, bytes: out.into() })
    }
}

/// The network identifier in its word.
fn vni(tunnel: &TunnelKey) -> Result<u32, Unbuildable> {
    u32::try_from(tunnel.id).ok().filter(|vni| *vni < 1 << 24).map(|vni| vni << 8).ok_or(Unbuildable::Key)
}

fn vxlan(config: &TunnelConfig, tunnel: &TunnelKey, out: &mut Vec<u8>) -> Result<(), Unbuildable> {
    let flags = match (config.gpe, config.gbp) {
        (true, _) => VXLAN_VNI | VXLAN_GPE | gpe_protocol(tunnel.payload_type)?,
        _ if tunnel.payload_type != 0 => return Err(Unbuildable::Payload),
        (false, true) => {
            VXLAN_VNI | VXLAN_GBP | u32::from(tunnel.gbp_flags) << 16 & GBP_FLAGS | u32::from(tunnel.gbp_id)
        }
        (false, false) => VXLAN_VNI,
    };
    out.extend(flags.to_be_bytes());
    out.extend(vni(tunnel)?.to_be_bytes());
    Ok(())
}

fn gpe_protocol(payload_type: u16) -> Result<u32, Unbuildable> {
    match payload_type {
        0 => Ok(GPE_ETHERNET),
        ethertype::IPV4 => Ok(GPE_IPV4),
        ethertype::IPV6 => Ok(GPE_IPV6),
        _ => Err(Unbuildable::Payload),
    }
}

/// A user's packet. What rules set of the flags counts as far as the header can keep it: it has no optional part.
fn gtpu(tunnel: &TunnelKey, out: &mut Vec<u8>) -> Result<(), Unbuildable> {
    if !matches!(tunnel.payload_type, ethertype::IPV4 | ethertype::IPV6) {
        return Err(Unbuildable::Payload);
    }
    let flags = if tunnel.gtpu_flags == 0 { GTPU_VERSION } else { tunnel.gtpu_flags & !GTPU_OPTIONAL };
    let message = if tunnel.gtpu_msgtype == 0 { GTPU_PACKET } else { tunnel.gtpu_msgtype };
    let id = u32::try_from(tunnel.id).map_err(|_| Unbuildable::Key)?;
    out.extend([flags, message, 0, 0]);
    out.extend(id.to_be_bytes());
    Ok(())
}

fn geneve(tunnel: &TunnelKey, options: &[GeneveOption], out: &mut Vec<u8>) -> Result<(), Unbuildable> {
    let mut list = Vec::new();
    options.iter().for_each(|option| option.write(&mut list));
    if tunnel.payload_type != 0 {
        return Err(Unbuildable::Payload);
    }
    if list.len() > GENEVE_OPTIONS_MAX {
        return Err(Unbuildable::Options);
    }
    let oam = if tunnel.flags & tunnel_flags::OAM != 0 { GENEVE_OAM } else { 0 };
    let critical = if options.iter().any(GeneveOption::is_critical) { GENEVE_CRITICAL } else { 0 };
    out.extend([(list.len() / 4) as u8, oam | critical]);
    out.extend(PROTO_ETHERNET);
    out.extend(vni(tunnel)?.to_be_bytes());
    out.extend(list);
    Ok(())
}

fn gre(config: &TunnelConfig, tunnel: &TunnelKey, out: &mut Vec<u8>) -> Result<(), Unbuildable> {
    if config.kind.is_erspan() {
        return erspan(tunnel, out);
    }
    let words = [
        (tunnel.flags & tunnel_flags::CSUM != 0, GRE_CSUM, 0),
        (tunnel.flags & tunnel_flags::KEY != 0, GRE_KEY, u32::try_from(tunnel.id).map_err(|_| Unbuildable::Key)?),
        (config.seq, GRE_SEQ, 0),
    ];
    let words = words.into_iter().filter(|(is_there, ..)| *is_there);
    let flags = words.clone().fold(0, |all, (_, flag, _)| all | flag);
    out.extend(flags.to_be_bytes());
    out.extend(if tunnel.payload_type == 0 { PROTO_ETHERNET } else { tunnel.payload_type.to_be_bytes() });
    words.for_each(|(_, _, word)| out.extend(word.to_be_bytes()));
    Ok(())
}

/// GRE with a sequence number, and ERSPAN's own header.
fn erspan(tunnel: &TunnelKey, out: &mut Vec<u8>) -> Result<(), Unbuildable> {
    if tunnel.payload_type != 0 {
        return Err(Unbuildable::Payload);
    }
    let session = u16::try_from(tunnel.id).ok().filter(|id| *id < 1 << 10).ok_or(Unbuildable::Key)?;
    let protocol = match tunnel.erspan_ver {
        1 => PROTO_ERSPAN1,
        2 => PROTO_ERSPAN2,
        _ => return Err(Unbuildable::ErspanVersion),
    };
    out.extend(GRE_SEQ.to_be_bytes());
    out.extend(protocol);
    out.extend([0; GRE_WORD]);
    out.extend([tunnel.erspan_ver << 4, 0]);
    out.extend(session.to_be_bytes());
    if tunnel.erspan_ver == 1 {
        out.extend(tunnel.erspan_idx.to_be_bytes());
    } else {
        // Timestamp and security group; then frame type, hardware id, direction and granularity.
        out.extend([0; 6]);
        let hwid = u16::from(tunnel.erspan_hwid);
        out.extend((hwid << 4 | u16::from(tunnel.erspan_dir) << 3).to_be_bytes());
    }
    Ok(())
}
