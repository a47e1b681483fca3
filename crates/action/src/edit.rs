//! Applying the actions that change a packet's bytes.

use crate::{Action, Header, MaskedField};
use sluice_flow::layout::{self as key, Span};
use sluice_packet::edit::{self, EditError, Field};
use sluice_packet::{Layers, Packet, VlanLimit};

/// Does to a packet's bytes what `action` says. Actions that do not change bytes do nothing here.
///
/// A set of L4 fields leaves a packet alone that has not the whole L4 header, as OVS does: the key such a packet has is
/// the same as that of a packet whose ports are zero. Any other header that is not there is an error; the packet
/// may have been changed in part then, and is to be dropped.
///
/// `limit` is the number of tags that are read as tags: that of the packet's key, and the tags pushed since
/// ([`VlanLimit::after_push`]). So an action finds the headers that the key had, not those behind a tag that was
/// payload then.
///
/// Costs one walk over the headers ([`Layers::with_vlan_limit`]) for most of them. After it, `extract_again` gives the new key.
pub fn edit(action: &Action, packet: &mut Packet, limit: VlanLimit) -> Result<(), EditError> {
    match action {
        Action::Set { header, fields } => set(*header, fields, packet.bytes_mut(), limit),
        Action::PushEth { src, dst } => edit::set_ethernet(packet, src.0, dst.0),
        Action::PushVlan { tpid, tci } => edit::push_vlan(packet, *tpid, *tci),
        Action::PopVlan => edit::pop_vlan(packet),
        Action::PushMpls { ethertype, lse } => edit::push_mpls(packet, *ethertype, *lse, limit),
        Action::PopMpls { ethertype } => edit::pop_mpls(packet, *ethertype, limit),
        _ => Ok(()),
    }
}

/// Rewrites fields of one header.
fn set(header: Header, fields: &[MaskedField], bytes: &mut [u8], limit: VlanLimit) -> Result<(), EditError> {
    let layers = Layers::with_vlan_limit(bytes, limit).ok_or(EditError::NoHeader)?;
    for field in fields {
        // Metadata is not in the bytes; a field that does not belong to the header is a bug in the translation.
        let Some(name) = field_of(header, field.span) else {
            debug_assert!(is_metadata(header), "{header:?} has no field at {:?}", field.span);
            continue;
        };
        // These have two bytes in a key and one in the packet.
        let skip = usize::from(matches!(name, Field::IcmpType | Field::IcmpCode | Field::NdOptionType));
        match edit::set(bytes, &layers, name, &field.value[skip..], &field.mask[skip..]) {
            Err(EditError::NoHeader) if is_l4(header) => {}
            other => other?,
        }
    }
    Ok(())
}

/// Whether the "header" is metadata, which the packet does not carry.
const fn is_metadata(header: Header) -> bool {
    matches!(header, Header::PktMark | Header::SkbPriority)
}

/// Whether it is an L4 header.
const fn is_l4(header: Header) -> bool {
    use Header::*;
    matches!(header, Tcp | Udp | Sctp | Icmp | Icmpv6 | Nd)
}

/// The header's field that stands at `span` in a key.
fn field_of(header: Header, span: Span) -> Option<Field> {
    let fields: &[(Span, Field)] = match header {
        Header::Ethernet => &[(key::DL_SRC, Field::EthernetSrc), (key::DL_DST, Field::EthernetDst)],
        Header::Ipv4 => &[
            (key::NW_SRC, Field::Ipv4Src),
            (key::NW_DST, Field::Ipv4Dst),
            (key::NW_TOS, Field::Ipv4Tos),
            (key::NW_TTL, Field::Ipv4Ttl),
        ],
        Header::Ipv6 => &[
            (key::IPV6_SRC, Field::Ipv6Src),
            (key::IPV6_DST, Field::Ipv6Dst),
            (key::IPV6_LABEL, Field::Ipv6Label),
            (key::NW_TOS, Field::Ipv6TrafficClass),
            (key::NW_TTL, Field::Ipv6HopLimit),
        ],
        Header::Arp => &[
            (key::NW_SRC, Field::ArpSpa),
            (key::NW_DST, Field::ArpTpa),
            (key::NW_PROTO, Field::ArpOp),
            (key::ARP_SHA, Field::ArpSha),
            (key::ARP_THA, Field::ArpTha),
        ],
        Header::Nd => &[
            (key::ND_TARGET, Field::NdTarget),
            (key::ARP_SHA, Field::NdSourceLink),
            (key::ARP_THA, Field::NdTargetLink),
            (key::ND_RESERVED, Field::NdReserved),
            (key::TCP_FLAGS, Field::NdOptionType),
        ],
        Header::Tcp => &[(key::TP_SRC, Field::TcpSrc), (key::TP_DST, Field::TcpDst)],
        Header::Udp => &[(key::TP_SRC, Field::UdpSrc), (key::TP_DST, Field::UdpDst)],
        Header::Sctp => &[(key::TP_SRC, Field::SctpSrc), (key::TP_DST, Field::SctpDst)],
        Header::Icmp | Header::Icmpv6 => &[(key::TP_SRC, Field::IcmpType), (key::TP_DST, Field::IcmpCode)],
        Header::Mpls => &[(key::MPLS0, Field::Mpls)],
        Header::PktMark | Header::SkbPriority => &[],
    };
    fields.iter().find(|(at, _)| at.offset == span.offset).map(|(_, field)| *field)
}
