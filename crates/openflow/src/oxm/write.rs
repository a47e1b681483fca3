//! Matches to fields.

use super::Numbering;
use super::entry::{put_entry, put_option};
use crate::wire::Writer;
use crate::{Version, match11};
use sluice_flow::field::{Field, FieldId, Place, ones};
use sluice_flow::{FieldValue, Match, layout};

/// `OFPMT_OXM`.
const MATCH_OXM: u16 = 1;

/// Fields in the order that puts each behind its prerequisites. Registers are apart: OpenFlow 1.5 has them in pairs.
#[rustfmt::skip]
const ORDER: &[FieldId] = &[
    FieldId::PacketType, FieldId::DpHash, FieldId::RecircId, FieldId::ConjId, FieldId::InPort, FieldId::InPortOxm,
    FieldId::ActsetOutput, FieldId::EthSrc, FieldId::EthDst, FieldId::EthType, FieldId::VlanTci, FieldId::VlanVid,
    FieldId::VlanPcp, FieldId::MplsTc, FieldId::MplsBos, FieldId::MplsTtl, FieldId::MplsLabel, FieldId::Ipv4Src,
    FieldId::Ipv4Dst, FieldId::Ipv6Src, FieldId::Ipv6Dst, FieldId::IpFrag, FieldId::Ipv6Label, FieldId::IpDscp,
    FieldId::IpDscpShifted, FieldId::IpEcn, FieldId::IpTtl, FieldId::IpProto, FieldId::TcpSrc, FieldId::TcpDst,
    FieldId::TcpFlags, FieldId::UdpSrc, FieldId::UdpDst, FieldId::SctpSrc, FieldId::SctpDst, FieldId::Icmpv4Type,
    FieldId::Icmpv4Code, FieldId::Icmpv6Type, FieldId::Icmpv6Code, FieldId::NdTarget, FieldId::NdReserved,
    FieldId::NdOptionsType, FieldId::NdSll, FieldId::NdTll, FieldId::ArpOp, FieldId::ArpSpa, FieldId::ArpTpa,
    FieldId::ArpSha, FieldId::ArpTha, FieldId::TunId, FieldId::TunFlags, FieldId::TunSrc, FieldId::TunDst,
    FieldId::TunIpv6Src, FieldId::TunIpv6Dst, FieldId::TunGbpId, FieldId::TunGbpFlags, FieldId::TunErspanIdx,
    FieldId::TunErspanVer, FieldId::TunErspanDir, FieldId::TunErspanHwid, FieldId::TunGtpuFlags,
    FieldId::TunGtpuMsgtype,
];

/// The fields behind the options of a tunnel, which stand behind those.
#[rustfmt::skip]
const BEHIND_OPTIONS: &[FieldId] = &[
    FieldId::NshFlags, FieldId::NshTtl, FieldId::NshMdtype, FieldId::NshNp, FieldId::NshSpi,
    FieldId::NshSi, FieldId::NshC1, FieldId::NshC2, FieldId::NshC3, FieldId::NshC4,
];

/// The fields that stand behind the registers.
const BEHIND_REGISTERS: &[FieldId] = &[
    FieldId::PktMark,
    FieldId::CtState,
    FieldId::CtZone,
    FieldId::CtMark,
    FieldId::CtLabel,
    FieldId::CtNwSrc,
    FieldId::CtIpv6Src,
    FieldId::CtNwDst,
    FieldId::CtIpv6Dst,
    FieldId::CtNwProto,
    FieldId::CtTpSrc,
    FieldId::CtTpDst,
    FieldId::Metadata,
];

/// Writes a match of OpenFlow 1.1 or later.
pub(crate) fn put_match(matches: &Match, version: Version, w: &mut Writer) {
    if version < Version::V12 {
        return match11::put(matches, w);
    }
    let start = w.len();
    w.u16(MATCH_OXM);
    w.u16(0);
    put_fields(matches, Numbering::Oxm(version), w);
    w.patch_u16(start + 2, w.len() - start);
    w.pad8(start);
}

/// Writes a match in Nicira's format, padded to a multiple of 8 bytes; returns its length without padding.
pub(crate) fn put_nxm_match(matches: &Match, w: &mut Writer) -> usize {
    put_nxm_match_and_cookie(matches, 0, 0, w)
}

/// The same with a cookie, if its mask is not 0.
pub(crate) fn put_nxm_match_and_cookie(matches: &Match, cookie: u64, mask: u64, w: &mut Writer) -> usize {
    let start = w.len();
    put_fields(matches, Numbering::Nxm, w);
    if mask != 0 {
        w.u16(1);
        w.u8(30 << 1 | u8::from(mask != u64::MAX));
        w.u8(if mask == u64::MAX { 8 } else { 16 });
        w.u64(cookie & mask);
        if mask != u64::MAX {
            w.u64(mask);
        }
    }
    let length = w.len() - start;
    w.pad8(start);
    length
}

/// Writes the fields of a match, with nothing around them.
pub(crate) fn put_fields(matches: &Match, numbering: Numbering, w: &mut Writer) {
    let is_oxm = numbering != Numbering::Nxm;
    // Most matches are about few fields.
    let words = matches.mask.words_set();
    let put = |id: FieldId, w: &mut Writer| {
        let field = id.field();
        if words & field.place.span.words() != 0 {
            put_field(matches, field, numbering, w);
        }
    };
    for &id in ORDER {
        let other_form = match id {
            FieldId::InPort | FieldId::VlanTci | FieldId::IpDscp => is_oxm,
            FieldId::InPortOxm | FieldId::VlanVid | FieldId::VlanPcp | FieldId::IpDscpShifted => !is_oxm,
            _ => false,
        };
        if !other_form {
            put(id, w);
        }
    }
    for id in matches.mask.tun_metadata.fields().filter_map(FieldId::tun_metadata) {
        let (value, mask) = matches.field_wide(id);
        let is_whole = mask == id.field().all_ones_wide();
        put_option(id.field(), value, (!is_whole).then_some(mask), numbering, w);
    }
    BEHIND_OPTIONS.iter().for_each(|id| put(*id, w));
    match numbering {
        Numbering::Oxm(Version::V15) => (0..8).filter_map(FieldId::xreg).for_each(|id| put(id, w)),
        _ => (0..16).filter_map(FieldId::reg).for_each(|id| put(id, w)),
    }
    BEHIND_REGISTERS.iter().for_each(|id| put(*id, w));
}

fn put_field(matches: &Match, field: &'static Field, numbering: Numbering, w: &mut Writer) {
    let mask = match field.id {
        FieldId::IpDscp => Place { lsb: 2, n_bits: 6, ..field.place }.read(&matches.mask) << 2,
        FieldId::VlanPcp => Place { n_bits: 3, ..field.place }.read(&matches.mask),
        _ => field.place.read(&matches.mask),
    };
    if mask == 0 || !is_meant(matches, field) {
        return;
    }
    let value = field.get(&matches.key);
    let all = match field.id {
        FieldId::VlanVid => 0x1fff,
        FieldId::IpDscp => 0xfc,
        _ => ones(field.place.n_bits),
    };
    let mask = if !field.maskable || mask & all == all { None } else { Some(mask) };
    put_entry(field, value, mask, numbering, w);
}

/// Whether the match is about this field, and not about another that shares its bits.
fn is_meant(matches: &Match, field: &Field) -> bool {
    let is_ipv6 = |span| matches.key.number(span) != 0;
    let tag = matches.key.number(layout::VLAN0_TCI) & 0x1000 != 0;
    match field.id {
        FieldId::PacketType => matches.key.number(layout::PACKET_TYPE) != 0,
        FieldId::CtNwSrc | FieldId::CtNwDst => !is_ipv6(layout::CT_IS_IPV6),
        FieldId::CtIpv6Src | FieldId::CtIpv6Dst => is_ipv6(layout::CT_IS_IPV6),
        FieldId::VlanPcp => tag,
        FieldId::CtNwProto | FieldId::CtTpSrc | FieldId::CtTpDst => matches.key.number(layout::CT_NW_PROTO) != 0,
        FieldId::NshFlags
        | FieldId::NshTtl
        | FieldId::NshMdtype
        | FieldId::NshNp
        | FieldId::NshSpi
        | FieldId::NshSi
        | FieldId::NshC1
        | FieldId::NshC2
        | FieldId::NshC3
        | FieldId::NshC4 => true,
        _ => matches.satisfies(field.prereq),
    }
}

/// Writes every field with its mask as the value.
pub(crate) fn put_field_masks(masks: &[(FieldId, FieldValue)], numbering: Numbering, w: &mut Writer) {
    for (id, mask) in masks {
        match id.field() {
            field if field.is_wide() => put_option(field, mask.wide(), None, numbering, w),
            field => put_entry(field, mask.low(), None, numbering, w),
        }
    }
}
