//! The table itself.

use super::Format::{
    CtState, Decimal, Ethernet, Frag, Hexadecimal, Ipv4, Ipv6, PacketType, Port, PortOxm, TcpFlags, TunFlags,
};
use super::{Field, Format, Oxm, OxmClass, Place, Prereq};
use crate::layout::{self as at, Span};
use std::collections::HashMap;
use std::sync::OnceLock;

/// A field of OpenFlow or of Nicira's extensions to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the table has name, place and format of each; docs/flow-language.md explains them")]
#[repr(u8)]
pub enum FieldId {
    DpHash,
    RecircId,
    PacketType,
    ConjId,
    TunId,
    TunSrc,
    TunDst,
    TunIpv6Src,
    TunIpv6Dst,
    TunFlags,
    TunTtl,
    TunTos,
    TunGbpId,
    TunGbpFlags,
    TunErspanIdx,
    TunErspanVer,
    TunErspanDir,
    TunErspanHwid,
    TunGtpuFlags,
    TunGtpuMsgtype,
    TunMetadata0,
    TunMetadata1,
    TunMetadata2,
    TunMetadata3,
    TunMetadata4,
    TunMetadata5,
    TunMetadata6,
    TunMetadata7,
    TunMetadata8,
    TunMetadata9,
    TunMetadata10,
    TunMetadata11,
    TunMetadata12,
    TunMetadata13,
    TunMetadata14,
    TunMetadata15,
    TunMetadata16,
    TunMetadata17,
    TunMetadata18,
    TunMetadata19,
    TunMetadata20,
    TunMetadata21,
    TunMetadata22,
    TunMetadata23,
    TunMetadata24,
    TunMetadata25,
    TunMetadata26,
    TunMetadata27,
    TunMetadata28,
    TunMetadata29,
    TunMetadata30,
    TunMetadata31,
    TunMetadata32,
    TunMetadata33,
    TunMetadata34,
    TunMetadata35,
    TunMetadata36,
    TunMetadata37,
    TunMetadata38,
    TunMetadata39,
    TunMetadata40,
    TunMetadata41,
    TunMetadata42,
    TunMetadata43,
    TunMetadata44,
    TunMetadata45,
    TunMetadata46,
    TunMetadata47,
    TunMetadata48,
    TunMetadata49,
    TunMetadata50,
    TunMetadata51,
    TunMetadata52,
    TunMetadata53,
    TunMetadata54,
    TunMetadata55,
    TunMetadata56,
    TunMetadata57,
    TunMetadata58,
    TunMetadata59,
    TunMetadata60,
    TunMetadata61,
    TunMetadata62,
    TunMetadata63,
    Metadata,
    InPort,
    InPortOxm,
    ActsetOutput,
    SkbPriority,
    PktMark,
    CtState,
    CtZone,
    CtMark,
    CtLabel,
    CtNwProto,
    CtNwSrc,
    CtNwDst,
    CtIpv6Src,
    CtIpv6Dst,
    CtTpSrc,
    CtTpDst,
    Reg0,
    Reg1,
    Reg2,
    Reg3,
    Reg4,
    Reg5,
    Reg6,
    Reg7,
    Reg8,
    Reg9,
    Reg10,
    Reg11,
    Reg12,
    Reg13,
    Reg14,
    Reg15,
    Xreg0,
    Xreg1,
    Xreg2,
    Xreg3,
    Xreg4,
    Xreg5,
    Xreg6,
    Xreg7,
    Xxreg0,
    Xxreg1,
    Xxreg2,
    Xxreg3,
    EthSrc,
    EthDst,
    EthType,
    VlanTci,
    DlVlan,
    VlanVid,
    DlVlanPcp,
    VlanPcp,
    MplsLabel,
    MplsTc,
    MplsBos,
    MplsTtl,
    Ipv4Src,
    Ipv4Dst,
    Ipv6Src,
    Ipv6Dst,
    Ipv6Label,
    IpProto,
    IpDscp,
    IpDscpShifted,
    IpEcn,
    IpTtl,
    IpFrag,
    ArpOp,
    ArpSpa,
    ArpTpa,
    ArpSha,
    ArpTha,
    TcpSrc,
    TcpDst,
    TcpFlags,
    UdpSrc,
    UdpDst,
    SctpSrc,
    SctpDst,
    Icmpv4Type,
    Icmpv4Code,
    Icmpv6Type,
    Icmpv6Code,
    NdTarget,
    NdSll,
    NdTll,
    NdReserved,
    NdOptionsType,
    NshFlags,
    NshMdtype,
    NshNp,
    NshSpi,
    NshSi,
    NshC1,
    NshC2,
    NshC3,
    NshC4,
    NshTtl,
}

/// Number of fields.
pub const N_FIELDS: usize = 183;

/// Every field, in the order of [`FieldId`].
///
/// Source: names, formats, prerequisites and numbers are those of Open vSwitch 3.1 (`ovs-fields(7)`); OpenFlow 1.5's
/// OXM tables for the standard ones.
#[rustfmt::skip]
pub static FIELDS: [Field; N_FIELDS] = [
    field(FieldId::DpHash, "dp_hash", 4, 32, Place::whole(at::DP_HASH), Hexadecimal).maskable().oxm(OxmClass::Nxm1, 35, "NXM_NX_DP_HASH", 0).oxm(OxmClass::NICIRA, 0, "NXOXM_ET_DP_HASH", 0),
    field(FieldId::RecircId, "recirc_id", 4, 32, Place::whole(at::RECIRC_ID), Decimal).oxm(OxmClass::Nxm1, 36, "NXM_NX_RECIRC_ID", 0),
    field(FieldId::PacketType, "packet_type", 4, 32, Place::whole(at::PACKET_TYPE), PacketType).oxm(OxmClass::Basic, 44, "OXM_OF_PACKET_TYPE", 6),
    field(FieldId::ConjId, "conj_id", 4, 32, Place::whole(at::CONJ_ID), Decimal).oxm(OxmClass::Nxm1, 37, "NXM_NX_CONJ_ID", 0),
    field(FieldId::TunId, "tun_id", 8, 64, Place::whole(at::TUN_ID), Hexadecimal).alias("tunnel_id").maskable().writable().oxm(OxmClass::Nxm1, 16, "NXM_NX_TUN_ID", 0).oxm(OxmClass::Basic, 38, "OXM_OF_TUNNEL_ID", 4),
    field(FieldId::TunSrc, "tun_src", 4, 32, Place::whole(at::TUN_IPV4_SRC), Ipv4).maskable().writable().oxm(OxmClass::Nxm1, 31, "NXM_NX_TUN_IPV4_SRC", 0),
    field(FieldId::TunDst, "tun_dst", 4, 32, Place::whole(at::TUN_IPV4_DST), Ipv4).maskable().writable().oxm(OxmClass::Nxm1, 32, "NXM_NX_TUN_IPV4_DST", 0),
    field(FieldId::TunIpv6Src, "tun_ipv6_src", 16, 128, Place::whole(at::TUN_IPV6_SRC), Ipv6).maskable().writable().oxm(OxmClass::Nxm1, 109, "NXM_NX_TUN_IPV6_SRC", 0),
    field(FieldId::TunIpv6Dst, "tun_ipv6_dst", 16, 128, Place::whole(at::TUN_IPV6_DST), Ipv6).maskable().writable().oxm(OxmClass::Nxm1, 110, "NXM_NX_TUN_IPV6_DST", 0),
    field(FieldId::TunFlags, "tun_flags", 2, 1, bits(at::TUN_FLAGS, 0, 1), TunFlags).maskable().writable().shares_span().oxm(OxmClass::Nxm1, 104, "NXM_NX_TUN_FLAGS", 0),
    field(FieldId::TunTtl, "tun_ttl", 1, 8, Place::whole(at::TUN_TTL), Decimal),
    field(FieldId::TunTos, "tun_tos", 1, 8, Place::whole(at::TUN_TOS), Decimal),
    field(FieldId::TunGbpId, "tun_gbp_id", 2, 16, Place::whole(at::TUN_GBP_ID), Decimal).maskable().writable().oxm(OxmClass::Nxm1, 38, "NXM_NX_TUN_GBP_ID", 0),
    field(FieldId::TunGbpFlags, "tun_gbp_flags", 1, 8, Place::whole(at::TUN_GBP_FLAGS), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 39, "NXM_NX_TUN_GBP_FLAGS", 0),
    field(FieldId::TunErspanIdx, "tun_erspan_idx", 4, 20, bits(at::TUN_ERSPAN_IDX, 0, 20), Hexadecimal).maskable().writable().oxm(OxmClass::NICIRA, 11, "NXOXM_ET_ERSPAN_IDX", 0),
    field(FieldId::TunErspanVer, "tun_erspan_ver", 1, 4, bits(at::TUN_ERSPAN_VER, 0, 4), Decimal).maskable().writable().oxm(OxmClass::NICIRA, 12, "NXOXM_ET_ERSPAN_VER", 0),
    field(FieldId::TunErspanDir, "tun_erspan_dir", 1, 1, bits(at::TUN_ERSPAN_DIR, 0, 1), Decimal).maskable().writable().oxm(OxmClass::NICIRA, 13, "NXOXM_ET_ERSPAN_DIR", 0),
    field(FieldId::TunErspanHwid, "tun_erspan_hwid", 1, 6, bits(at::TUN_ERSPAN_HWID, 0, 6), Hexadecimal).maskable().writable().oxm(OxmClass::NICIRA, 14, "NXOXM_ET_ERSPAN_HWID", 0),
    field(FieldId::TunGtpuFlags, "tun_gtpu_flags", 1, 8, Place::whole(at::TUN_GTPU_FLAGS), Hexadecimal).maskable().oxm(OxmClass::NICIRA, 15, "NXOXM_ET_GTPU_FLAGS", 0),
    field(FieldId::TunGtpuMsgtype, "tun_gtpu_msgtype", 1, 8, Place::whole(at::TUN_GTPU_MSGTYPE), Decimal).maskable().oxm(OxmClass::NICIRA, 16, "NXOXM_ET_GTPU_MSGTYPE", 0),
    option(FieldId::TunMetadata0, "tun_metadata0").oxm(OxmClass::Nxm1, 40, "NXM_NX_TUN_METADATA0", 0),
    option(FieldId::TunMetadata1, "tun_metadata1").oxm(OxmClass::Nxm1, 41, "NXM_NX_TUN_METADATA1", 0),
    option(FieldId::TunMetadata2, "tun_metadata2").oxm(OxmClass::Nxm1, 42, "NXM_NX_TUN_METADATA2", 0),
    option(FieldId::TunMetadata3, "tun_metadata3").oxm(OxmClass::Nxm1, 43, "NXM_NX_TUN_METADATA3", 0),
    option(FieldId::TunMetadata4, "tun_metadata4").oxm(OxmClass::Nxm1, 44, "NXM_NX_TUN_METADATA4", 0),
    option(FieldId::TunMetadata5, "tun_metadata5").oxm(OxmClass::Nxm1, 45, "NXM_NX_TUN_METADATA5", 0),
    option(FieldId::TunMetadata6, "tun_metadata6").oxm(OxmClass::Nxm1, 46, "NXM_NX_TUN_METADATA6", 0),
    option(FieldId::TunMetadata7, "tun_metadata7").oxm(OxmClass::Nxm1, 47, "NXM_NX_TUN_METADATA7", 0),
    option(FieldId::TunMetadata8, "tun_metadata8").oxm(OxmClass::Nxm1, 48, "NXM_NX_TUN_METADATA8", 0),
    option(FieldId::TunMetadata9, "tun_metadata9").oxm(OxmClass::Nxm1, 49, "NXM_NX_TUN_METADATA9", 0),
    option(FieldId::TunMetadata10, "tun_metadata10").oxm(OxmClass::Nxm1, 50, "NXM_NX_TUN_METADATA10", 0),
    option(FieldId::TunMetadata11, "tun_metadata11").oxm(OxmClass::Nxm1, 51, "NXM_NX_TUN_METADATA11", 0),
    option(FieldId::TunMetadata12, "tun_metadata12").oxm(OxmClass::Nxm1, 52, "NXM_NX_TUN_METADATA12", 0),
    option(FieldId::TunMetadata13, "tun_metadata13").oxm(OxmClass::Nxm1, 53, "NXM_NX_TUN_METADATA13", 0),
    option(FieldId::TunMetadata14, "tun_metadata14").oxm(OxmClass::Nxm1, 54, "NXM_NX_TUN_METADATA14", 0),
    option(FieldId::TunMetadata15, "tun_metadata15").oxm(OxmClass::Nxm1, 55, "NXM_NX_TUN_METADATA15", 0),
    option(FieldId::TunMetadata16, "tun_metadata16").oxm(OxmClass::Nxm1, 56, "NXM_NX_TUN_METADATA16", 0),
    option(FieldId::TunMetadata17, "tun_metadata17").oxm(OxmClass::Nxm1, 57, "NXM_NX_TUN_METADATA17", 0),
    option(FieldId::TunMetadata18, "tun_metadata18").oxm(OxmClass::Nxm1, 58, "NXM_NX_TUN_METADATA18", 0),
    option(FieldId::TunMetadata19, "tun_metadata19").oxm(OxmClass::Nxm1, 59, "NXM_NX_TUN_METADATA19", 0),
    option(FieldId::TunMetadata20, "tun_metadata20").oxm(OxmClass::Nxm1, 60, "NXM_NX_TUN_METADATA20", 0),
    option(FieldId::TunMetadata21, "tun_metadata21").oxm(OxmClass::Nxm1, 61, "NXM_NX_TUN_METADATA21", 0),
    option(FieldId::TunMetadata22, "tun_metadata22").oxm(OxmClass::Nxm1, 62, "NXM_NX_TUN_METADATA22", 0),
    option(FieldId::TunMetadata23, "tun_metadata23").oxm(OxmClass::Nxm1, 63, "NXM_NX_TUN_METADATA23", 0),
    option(FieldId::TunMetadata24, "tun_metadata24").oxm(OxmClass::Nxm1, 64, "NXM_NX_TUN_METADATA24", 0),
    option(FieldId::TunMetadata25, "tun_metadata25").oxm(OxmClass::Nxm1, 65, "NXM_NX_TUN_METADATA25", 0),
    option(FieldId::TunMetadata26, "tun_metadata26").oxm(OxmClass::Nxm1, 66, "NXM_NX_TUN_METADATA26", 0),
    option(FieldId::TunMetadata27, "tun_metadata27").oxm(OxmClass::Nxm1, 67, "NXM_NX_TUN_METADATA27", 0),
    option(FieldId::TunMetadata28, "tun_metadata28").oxm(OxmClass::Nxm1, 68, "NXM_NX_TUN_METADATA28", 0),
    option(FieldId::TunMetadata29, "tun_metadata29").oxm(OxmClass::Nxm1, 69, "NXM_NX_TUN_METADATA29", 0),
    option(FieldId::TunMetadata30, "tun_metadata30").oxm(OxmClass::Nxm1, 70, "NXM_NX_TUN_METADATA30", 0),
    option(FieldId::TunMetadata31, "tun_metadata31").oxm(OxmClass::Nxm1, 71, "NXM_NX_TUN_METADATA31", 0),
    option(FieldId::TunMetadata32, "tun_metadata32").oxm(OxmClass::Nxm1, 72, "NXM_NX_TUN_METADATA32", 0),
    option(FieldId::TunMetadata33, "tun_metadata33").oxm(OxmClass::Nxm1, 73, "NXM_NX_TUN_METADATA33", 0),
    option(FieldId::TunMetadata34, "tun_metadata34").oxm(OxmClass::Nxm1, 74, "NXM_NX_TUN_METADATA34", 0),
    option(FieldId::TunMetadata35, "tun_metadata35").oxm(OxmClass::Nxm1, 75, "NXM_NX_TUN_METADATA35", 0),
    option(FieldId::TunMetadata36, "tun_metadata36").oxm(OxmClass::Nxm1, 76, "NXM_NX_TUN_METADATA36", 0),
    option(FieldId::TunMetadata37, "tun_metadata37").oxm(OxmClass::Nxm1, 77, "NXM_NX_TUN_METADATA37", 0),
    option(FieldId::TunMetadata38, "tun_metadata38").oxm(OxmClass::Nxm1, 78, "NXM_NX_TUN_METADATA38", 0),
    option(FieldId::TunMetadata39, "tun_metadata39").oxm(OxmClass::Nxm1, 79, "NXM_NX_TUN_METADATA39", 0),
    option(FieldId::TunMetadata40, "tun_metadata40").oxm(OxmClass::Nxm1, 80, "NXM_NX_TUN_METADATA40", 0),
    option(FieldId::TunMetadata41, "tun_metadata41").oxm(OxmClass::Nxm1, 81, "NXM_NX_TUN_METADATA41", 0),
    option(FieldId::TunMetadata42, "tun_metadata42").oxm(OxmClass::Nxm1, 82, "NXM_NX_TUN_METADATA42", 0),
    option(FieldId::TunMetadata43, "tun_metadata43").oxm(OxmClass::Nxm1, 83, "NXM_NX_TUN_METADATA43", 0),
    option(FieldId::TunMetadata44, "tun_metadata44").oxm(OxmClass::Nxm1, 84, "NXM_NX_TUN_METADATA44", 0),
    option(FieldId::TunMetadata45, "tun_metadata45").oxm(OxmClass::Nxm1, 85, "NXM_NX_TUN_METADATA45", 0),
    option(FieldId::TunMetadata46, "tun_metadata46").oxm(OxmClass::Nxm1, 86, "NXM_NX_TUN_METADATA46", 0),
    option(FieldId::TunMetadata47, "tun_metadata47").oxm(OxmClass::Nxm1, 87, "NXM_NX_TUN_METADATA47", 0),
    option(FieldId::TunMetadata48, "tun_metadata48").oxm(OxmClass::Nxm1, 88, "NXM_NX_TUN_METADATA48", 0),
    option(FieldId::TunMetadata49, "tun_metadata49").oxm(OxmClass::Nxm1, 89, "NXM_NX_TUN_METADATA49", 0),
    option(FieldId::TunMetadata50, "tun_metadata50").oxm(OxmClass::Nxm1, 90, "NXM_NX_TUN_METADATA50", 0),
    option(FieldId::TunMetadata51, "tun_metadata51").oxm(OxmClass::Nxm1, 91, "NXM_NX_TUN_METADATA51", 0),
    option(FieldId::TunMetadata52, "tun_metadata52").oxm(OxmClass::Nxm1, 92, "NXM_NX_TUN_METADATA52", 0),
    option(FieldId::TunMetadata53, "tun_metadata53").oxm(OxmClass::Nxm1, 93, "NXM_NX_TUN_METADATA53", 0),
    option(FieldId::TunMetadata54, "tun_metadata54").oxm(OxmClass::Nxm1, 94, "NXM_NX_TUN_METADATA54", 0),
    option(FieldId::TunMetadata55, "tun_metadata55").oxm(OxmClass::Nxm1, 95, "NXM_NX_TUN_METADATA55", 0),
    option(FieldId::TunMetadata56, "tun_metadata56").oxm(OxmClass::Nxm1, 96, "NXM_NX_TUN_METADATA56", 0),
    option(FieldId::TunMetadata57, "tun_metadata57").oxm(OxmClass::Nxm1, 97, "NXM_NX_TUN_METADATA57", 0),
    option(FieldId::TunMetadata58, "tun_metadata58").oxm(OxmClass::Nxm1, 98, "NXM_NX_TUN_METADATA58", 0),
    option(FieldId::TunMetadata59, "tun_metadata59").oxm(OxmClass::Nxm1, 99, "NXM_NX_TUN_METADATA59", 0),
    option(FieldId::TunMetadata60, "tun_metadata60").oxm(OxmClass::Nxm1, 100, "NXM_NX_TUN_METADATA60", 0),
    option(FieldId::TunMetadata61, "tun_metadata61").oxm(OxmClass::Nxm1, 101, "NXM_NX_TUN_METADATA61", 0),
    option(FieldId::TunMetadata62, "tun_metadata62").oxm(OxmClass::Nxm1, 102, "NXM_NX_TUN_METADATA62", 0),
    option(FieldId::TunMetadata63, "tun_metadata63").oxm(OxmClass::Nxm1, 103, "NXM_NX_TUN_METADATA63", 0),
    field(FieldId::Metadata, "metadata", 8, 64, Place::whole(at::METADATA), Hexadecimal).maskable().writable().oxm(OxmClass::Basic, 2, "OXM_OF_METADATA", 3),
    field(FieldId::InPort, "in_port", 2, 16, bits(at::IN_PORT, 0, 16), Port).writable().oxm(OxmClass::Nxm0, 0, "NXM_OF_IN_PORT", 0),
    field(FieldId::InPortOxm, "in_port_oxm", 4, 32, Place::whole(at::IN_PORT), PortOxm).writable().oxm(OxmClass::Basic, 0, "OXM_OF_IN_PORT", 3),
    field(FieldId::ActsetOutput, "actset_output", 4, 32, Place::whole(at::ACTSET_OUTPUT), PortOxm).oxm(OxmClass::ONF, 43, "ONFOXM_ET_ACTSET_OUTPUT", 4).oxm(OxmClass::Basic, 43, "OXM_OF_ACTSET_OUTPUT", 6),
    field(FieldId::SkbPriority, "skb_priority", 4, 32, Place::whole(at::SKB_PRIORITY), Hexadecimal),
    field(FieldId::PktMark, "pkt_mark", 4, 32, Place::whole(at::PKT_MARK), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 33, "NXM_NX_PKT_MARK", 0),
    field(FieldId::CtState, "ct_state", 4, 32, Place::whole(at::CT_STATE), CtState).maskable().oxm(OxmClass::Nxm1, 105, "NXM_NX_CT_STATE", 0),
    field(FieldId::CtZone, "ct_zone", 2, 16, Place::whole(at::CT_ZONE), Hexadecimal).oxm(OxmClass::Nxm1, 106, "NXM_NX_CT_ZONE", 0),
    field(FieldId::CtMark, "ct_mark", 4, 32, Place::whole(at::CT_MARK), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 107, "NXM_NX_CT_MARK", 0),
    field(FieldId::CtLabel, "ct_label", 16, 128, Place::whole(at::CT_LABEL), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 108, "NXM_NX_CT_LABEL", 0),
    field(FieldId::CtNwProto, "ct_nw_proto", 1, 8, Place::whole(at::CT_NW_PROTO), Decimal).needs(Prereq::CtValid).oxm(OxmClass::Nxm1, 119, "NXM_NX_CT_NW_PROTO", 0),
    field(FieldId::CtNwSrc, "ct_nw_src", 4, 32, bits(at::CT_SRC, 96, 32), Ipv4).needs(Prereq::CtValid).maskable().shares_span().oxm(OxmClass::Nxm1, 120, "NXM_NX_CT_NW_SRC", 0),
    field(FieldId::CtNwDst, "ct_nw_dst", 4, 32, bits(at::CT_DST, 96, 32), Ipv4).needs(Prereq::CtValid).maskable().shares_span().oxm(OxmClass::Nxm1, 121, "NXM_NX_CT_NW_DST", 0),
    field(FieldId::CtIpv6Src, "ct_ipv6_src", 16, 128, Place::whole(at::CT_SRC), Ipv6).needs(Prereq::CtValid).maskable().oxm(OxmClass::Nxm1, 122, "NXM_NX_CT_IPV6_SRC", 0),
    field(FieldId::CtIpv6Dst, "ct_ipv6_dst", 16, 128, Place::whole(at::CT_DST), Ipv6).needs(Prereq::CtValid).maskable().oxm(OxmClass::Nxm1, 123, "NXM_NX_CT_IPV6_DST", 0),
    field(FieldId::CtTpSrc, "ct_tp_src", 2, 16, Place::whole(at::CT_TP_SRC), Decimal).needs(Prereq::CtValid).maskable().oxm(OxmClass::Nxm1, 124, "NXM_NX_CT_TP_SRC", 0),
    field(FieldId::CtTpDst, "ct_tp_dst", 2, 16, Place::whole(at::CT_TP_DST), Decimal).needs(Prereq::CtValid).maskable().oxm(OxmClass::Nxm1, 125, "NXM_NX_CT_TP_DST", 0),
    field(FieldId::Reg0, "reg0", 4, 32, reg(0, 4), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 0, "NXM_NX_REG0", 0),
    field(FieldId::Reg1, "reg1", 4, 32, reg(1, 4), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 1, "NXM_NX_REG1", 0),
    field(FieldId::Reg2, "reg2", 4, 32, reg(2, 4), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 2, "NXM_NX_REG2", 0),
    field(FieldId::Reg3, "reg3", 4, 32, reg(3, 4), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 3, "NXM_NX_REG3", 0),
    field(FieldId::Reg4, "reg4", 4, 32, reg(4, 4), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 4, "NXM_NX_REG4", 0),
    field(FieldId::Reg5, "reg5", 4, 32, reg(5, 4), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 5, "NXM_NX_REG5", 0),
    field(FieldId::Reg6, "reg6", 4, 32, reg(6, 4), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 6, "NXM_NX_REG6", 0),
    field(FieldId::Reg7, "reg7", 4, 32, reg(7, 4), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 7, "NXM_NX_REG7", 0),
    field(FieldId::Reg8, "reg8", 4, 32, reg(8, 4), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 8, "NXM_NX_REG8", 0),
    field(FieldId::Reg9, "reg9", 4, 32, reg(9, 4), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 9, "NXM_NX_REG9", 0),
    field(FieldId::Reg10, "reg10", 4, 32, reg(10, 4), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 10, "NXM_NX_REG10", 0),
    field(FieldId::Reg11, "reg11", 4, 32, reg(11, 4), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 11, "NXM_NX_REG11", 0),
    field(FieldId::Reg12, "reg12", 4, 32, reg(12, 4), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 12, "NXM_NX_REG12", 0),
    field(FieldId::Reg13, "reg13", 4, 32, reg(13, 4), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 13, "NXM_NX_REG13", 0),
    field(FieldId::Reg14, "reg14", 4, 32, reg(14, 4), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 14, "NXM_NX_REG14", 0),
    field(FieldId::Reg15, "reg15", 4, 32, reg(15, 4), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 15, "NXM_NX_REG15", 0),
    field(FieldId::Xreg0, "xreg0", 8, 64, reg(0, 8), Hexadecimal).maskable().writable().oxm(OxmClass::PacketRegs, 0, "OXM_OF_PKT_REG0", 4),
    field(FieldId::Xreg1, "xreg1", 8, 64, reg(2, 8), Hexadecimal).maskable().writable().oxm(OxmClass::PacketRegs, 1, "OXM_OF_PKT_REG1", 4),
    field(FieldId::Xreg2, "xreg2", 8, 64, reg(4, 8), Hexadecimal).maskable().writable().oxm(OxmClass::PacketRegs, 2, "OXM_OF_PKT_REG2", 4),
    field(FieldId::Xreg3, "xreg3", 8, 64, reg(6, 8), Hexadecimal).maskable().writable().oxm(OxmClass::PacketRegs, 3, "OXM_OF_PKT_REG3", 4),
    field(FieldId::Xreg4, "xreg4", 8, 64, reg(8, 8), Hexadecimal).maskable().writable().oxm(OxmClass::PacketRegs, 4, "OXM_OF_PKT_REG4", 4),
    field(FieldId::Xreg5, "xreg5", 8, 64, reg(10, 8), Hexadecimal).maskable().writable().oxm(OxmClass::PacketRegs, 5, "OXM_OF_PKT_REG5", 4),
    field(FieldId::Xreg6, "xreg6", 8, 64, reg(12, 8), Hexadecimal).maskable().writable().oxm(OxmClass::PacketRegs, 6, "OXM_OF_PKT_REG6", 4),
    field(FieldId::Xreg7, "xreg7", 8, 64, reg(14, 8), Hexadecimal).maskable().writable().oxm(OxmClass::PacketRegs, 7, "OXM_OF_PKT_REG7", 4),
    field(FieldId::Xxreg0, "xxreg0", 16, 128, reg(0, 16), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 111, "NXM_NX_XXREG0", 0),
    field(FieldId::Xxreg1, "xxreg1", 16, 128, reg(4, 16), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 112, "NXM_NX_XXREG1", 0),
    field(FieldId::Xxreg2, "xxreg2", 16, 128, reg(8, 16), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 113, "NXM_NX_XXREG2", 0),
    field(FieldId::Xxreg3, "xxreg3", 16, 128, reg(12, 16), Hexadecimal).maskable().writable().oxm(OxmClass::Nxm1, 114, "NXM_NX_XXREG3", 0),
    field(FieldId::EthSrc, "eth_src", 6, 48, Place::whole(at::DL_SRC), Ethernet).alias("dl_src").needs(Prereq::Ethernet).maskable().writable().oxm(OxmClass::Nxm0, 2, "NXM_OF_ETH_SRC", 0).oxm(OxmClass::Basic, 4, "OXM_OF_ETH_SRC", 3),
    field(FieldId::EthDst, "eth_dst", 6, 48, Place::whole(at::DL_DST), Ethernet).alias("dl_dst").needs(Prereq::Ethernet).maskable().writable().oxm(OxmClass::Nxm0, 1, "NXM_OF_ETH_DST", 0).oxm(OxmClass::Basic, 3, "OXM_OF_ETH_DST", 3),
    field(FieldId::EthType, "eth_type", 2, 16, Place::whole(at::DL_TYPE), Hexadecimal).alias("dl_type").needs(Prereq::Ethernet).oxm(OxmClass::Nxm0, 3, "NXM_OF_ETH_TYPE", 0).oxm(OxmClass::Basic, 5, "OXM_OF_ETH_TYPE", 3),
    field(FieldId::VlanTci, "vlan_tci", 2, 16, Place::whole(at::VLAN0_TCI), Hexadecimal).needs(Prereq::Ethernet).maskable().writable().oxm(OxmClass::Nxm0, 4, "NXM_OF_VLAN_TCI", 0),
    field(FieldId::DlVlan, "dl_vlan", 2, 12, bits(at::VLAN0_TCI, 0, 12), Decimal).needs(Prereq::Ethernet).writable().shares_span(),
    field(FieldId::VlanVid, "vlan_vid", 2, 12, bits(at::VLAN0_TCI, 0, 13), Decimal).needs(Prereq::Ethernet).maskable().writable().shares_span().oxm(OxmClass::Basic, 6, "OXM_OF_VLAN_VID", 3),
    field(FieldId::DlVlanPcp, "dl_vlan_pcp", 1, 3, bits(at::VLAN0_TCI, 13, 3), Decimal).needs(Prereq::Ethernet).writable().shares_span(),
    field(FieldId::VlanPcp, "vlan_pcp", 1, 3, bits(at::VLAN0_TCI, 13, 3), Decimal).needs(Prereq::VlanVid).writable().shares_span().oxm(OxmClass::Basic, 7, "OXM_OF_VLAN_PCP", 3),
    field(FieldId::MplsLabel, "mpls_label", 4, 20, bits(at::MPLS0, 12, 20), Decimal).needs(Prereq::Mpls).writable().shares_span().oxm(OxmClass::Basic, 34, "OXM_OF_MPLS_LABEL", 3),
    field(FieldId::MplsTc, "mpls_tc", 1, 3, bits(at::MPLS0, 9, 3), Decimal).needs(Prereq::Mpls).writable().shares_span().oxm(OxmClass::Basic, 35, "OXM_OF_MPLS_TC", 3),
    field(FieldId::MplsBos, "mpls_bos", 1, 1, bits(at::MPLS0, 8, 1), Decimal).needs(Prereq::Mpls).shares_span().oxm(OxmClass::Basic, 36, "OXM_OF_MPLS_BOS", 4),
    field(FieldId::MplsTtl, "mpls_ttl", 1, 8, bits(at::MPLS0, 0, 8), Decimal).needs(Prereq::Mpls).writable().shares_span().oxm(OxmClass::Nxm1, 30, "NXM_NX_MPLS_TTL", 0),
    field(FieldId::Ipv4Src, "ip_src", 4, 32, Place::whole(at::NW_SRC), Ipv4).alias("nw_src").needs(Prereq::Ipv4).maskable().writable().oxm(OxmClass::Nxm0, 7, "NXM_OF_IP_SRC", 0).oxm(OxmClass::Basic, 11, "OXM_OF_IPV4_SRC", 3),
    field(FieldId::Ipv4Dst, "ip_dst", 4, 32, Place::whole(at::NW_DST), Ipv4).alias("nw_dst").needs(Prereq::Ipv4).maskable().writable().oxm(OxmClass::Nxm0, 8, "NXM_OF_IP_DST", 0).oxm(OxmClass::Basic, 12, "OXM_OF_IPV4_DST", 3),
    field(FieldId::Ipv6Src, "ipv6_src", 16, 128, Place::whole(at::IPV6_SRC), Ipv6).needs(Prereq::Ipv6).maskable().writable().oxm(OxmClass::Nxm1, 19, "NXM_NX_IPV6_SRC", 0).oxm(OxmClass::Basic, 26, "OXM_OF_IPV6_SRC", 3),
    field(FieldId::Ipv6Dst, "ipv6_dst", 16, 128, Place::whole(at::IPV6_DST), Ipv6).needs(Prereq::Ipv6).maskable().writable().oxm(OxmClass::Nxm1, 20, "NXM_NX_IPV6_DST", 0).oxm(OxmClass::Basic, 27, "OXM_OF_IPV6_DST", 3),
    field(FieldId::Ipv6Label, "ipv6_label", 4, 20, bits(at::IPV6_LABEL, 0, 20), Hexadecimal).needs(Prereq::Ipv6).maskable().writable().oxm(OxmClass::Nxm1, 27, "NXM_NX_IPV6_LABEL", 0).oxm(OxmClass::Basic, 28, "OXM_OF_IPV6_FLABEL", 3),
    field(FieldId::IpProto, "nw_proto", 1, 8, Place::whole(at::NW_PROTO), Decimal).alias("ip_proto").needs(Prereq::IpAny).oxm(OxmClass::Nxm0, 6, "NXM_OF_IP_PROTO", 0).oxm(OxmClass::Basic, 10, "OXM_OF_IP_PROTO", 3),
    field(FieldId::IpDscp, "nw_tos", 1, 8, Place::whole(at::NW_TOS), Decimal).needs(Prereq::IpAny).writable().shares_span().oxm(OxmClass::Nxm0, 5, "NXM_OF_IP_TOS", 0),
    field(FieldId::IpDscpShifted, "ip_dscp", 1, 6, bits(at::NW_TOS, 2, 6), Decimal).needs(Prereq::IpAny).writable().shares_span().oxm(OxmClass::Basic, 8, "OXM_OF_IP_DSCP", 3),
    field(FieldId::IpEcn, "nw_ecn", 1, 2, bits(at::NW_TOS, 0, 2), Decimal).alias("ip_ecn").needs(Prereq::IpAny).writable().shares_span().oxm(OxmClass::Nxm1, 28, "NXM_NX_IP_ECN", 0).oxm(OxmClass::Basic, 9, "OXM_OF_IP_ECN", 3),
    field(FieldId::IpTtl, "nw_ttl", 1, 8, Place::whole(at::NW_TTL), Decimal).needs(Prereq::IpAny).writable().oxm(OxmClass::Nxm1, 29, "NXM_NX_IP_TTL", 0),
    field(FieldId::IpFrag, "ip_frag", 1, 2, bits(at::NW_FRAG, 0, 2), Frag).alias("nw_frag").needs(Prereq::IpAny).maskable().shares_span().oxm(OxmClass::Nxm1, 26, "NXM_NX_IP_FRAG", 0),
    field(FieldId::ArpOp, "arp_op", 2, 16, Place::whole(at::NW_PROTO), Decimal).needs(Prereq::Arp).writable().oxm(OxmClass::Nxm0, 15, "NXM_OF_ARP_OP", 0).oxm(OxmClass::Basic, 21, "OXM_OF_ARP_OP", 3),
    field(FieldId::ArpSpa, "arp_spa", 4, 32, Place::whole(at::NW_SRC), Ipv4).needs(Prereq::Arp).maskable().writable().oxm(OxmClass::Nxm0, 16, "NXM_OF_ARP_SPA", 0).oxm(OxmClass::Basic, 22, "OXM_OF_ARP_SPA", 3),
    field(FieldId::ArpTpa, "arp_tpa", 4, 32, Place::whole(at::NW_DST), Ipv4).needs(Prereq::Arp).maskable().writable().oxm(OxmClass::Nxm0, 17, "NXM_OF_ARP_TPA", 0).oxm(OxmClass::Basic, 23, "OXM_OF_ARP_TPA", 3),
    field(FieldId::ArpSha, "arp_sha", 6, 48, Place::whole(at::ARP_SHA), Ethernet).needs(Prereq::Arp).maskable().writable().oxm(OxmClass::Nxm1, 17, "NXM_NX_ARP_SHA", 0).oxm(OxmClass::Basic, 24, "OXM_OF_ARP_SHA", 3),
    field(FieldId::ArpTha, "arp_tha", 6, 48, Place::whole(at::ARP_THA), Ethernet).needs(Prereq::Arp).maskable().writable().oxm(OxmClass::Nxm1, 18, "NXM_NX_ARP_THA", 0).oxm(OxmClass::Basic, 25, "OXM_OF_ARP_THA", 3),
    field(FieldId::TcpSrc, "tcp_src", 2, 16, Place::whole(at::TP_SRC), Decimal).alias("tp_src").needs(Prereq::Tcp).maskable().writable().oxm(OxmClass::Nxm0, 9, "NXM_OF_TCP_SRC", 0).oxm(OxmClass::Basic, 13, "OXM_OF_TCP_SRC", 3),
    field(FieldId::TcpDst, "tcp_dst", 2, 16, Place::whole(at::TP_DST), Decimal).alias("tp_dst").needs(Prereq::Tcp).maskable().writable().oxm(OxmClass::Nxm0, 10, "NXM_OF_TCP_DST", 0).oxm(OxmClass::Basic, 14, "OXM_OF_TCP_DST", 3),
    field(FieldId::TcpFlags, "tcp_flags", 2, 12, bits(at::TCP_FLAGS, 0, 12), TcpFlags).needs(Prereq::Tcp).maskable().oxm(OxmClass::Nxm1, 34, "NXM_NX_TCP_FLAGS", 0).oxm(OxmClass::ONF, 42, "ONFOXM_ET_TCP_FLAGS", 4).oxm(OxmClass::Basic, 42, "OXM_OF_TCP_FLAGS", 6),
    field(FieldId::UdpSrc, "udp_src", 2, 16, Place::whole(at::TP_SRC), Decimal).needs(Prereq::Udp).maskable().writable().oxm(OxmClass::Nxm0, 11, "NXM_OF_UDP_SRC", 0).oxm(OxmClass::Basic, 15, "OXM_OF_UDP_SRC", 3),
    field(FieldId::UdpDst, "udp_dst", 2, 16, Place::whole(at::TP_DST), Decimal).needs(Prereq::Udp).maskable().writable().oxm(OxmClass::Nxm0, 12, "NXM_OF_UDP_DST", 0).oxm(OxmClass::Basic, 16, "OXM_OF_UDP_DST", 3),
    field(FieldId::SctpSrc, "sctp_src", 2, 16, Place::whole(at::TP_SRC), Decimal).needs(Prereq::Sctp).maskable().writable().oxm(OxmClass::Basic, 17, "OXM_OF_SCTP_SRC", 3),
    field(FieldId::SctpDst, "sctp_dst", 2, 16, Place::whole(at::TP_DST), Decimal).needs(Prereq::Sctp).maskable().writable().oxm(OxmClass::Basic, 18, "OXM_OF_SCTP_DST", 3),
    field(FieldId::Icmpv4Type, "icmp_type", 1, 8, bits(at::TP_SRC, 0, 8), Decimal).needs(Prereq::Icmpv4).writable().oxm(OxmClass::Nxm0, 13, "NXM_OF_ICMP_TYPE", 0).oxm(OxmClass::Basic, 19, "OXM_OF_ICMPV4_TYPE", 3),
    field(FieldId::Icmpv4Code, "icmp_code", 1, 8, bits(at::TP_DST, 0, 8), Decimal).needs(Prereq::Icmpv4).writable().oxm(OxmClass::Nxm0, 14, "NXM_OF_ICMP_CODE", 0).oxm(OxmClass::Basic, 20, "OXM_OF_ICMPV4_CODE", 3),
    field(FieldId::Icmpv6Type, "icmpv6_type", 1, 8, bits(at::TP_SRC, 0, 8), Decimal).needs(Prereq::Icmpv6).writable().oxm(OxmClass::Nxm1, 21, "NXM_NX_ICMPV6_TYPE", 0).oxm(OxmClass::Basic, 29, "OXM_OF_ICMPV6_TYPE", 3),
    field(FieldId::Icmpv6Code, "icmpv6_code", 1, 8, bits(at::TP_DST, 0, 8), Decimal).needs(Prereq::Icmpv6).writable().oxm(OxmClass::Nxm1, 22, "NXM_NX_ICMPV6_CODE", 0).oxm(OxmClass::Basic, 30, "OXM_OF_ICMPV6_CODE", 3),
    field(FieldId::NdTarget, "nd_target", 16, 128, Place::whole(at::ND_TARGET), Ipv6).needs(Prereq::Nd).maskable().writable().oxm(OxmClass::Nxm1, 23, "NXM_NX_ND_TARGET", 0).oxm(OxmClass::Basic, 31, "OXM_OF_IPV6_ND_TARGET", 3),
    field(FieldId::NdSll, "nd_sll", 6, 48, Place::whole(at::ARP_SHA), Ethernet).needs(Prereq::NdSolicit).maskable().writable().oxm(OxmClass::Nxm1, 24, "NXM_NX_ND_SLL", 0).oxm(OxmClass::Basic, 32, "OXM_OF_IPV6_ND_SLL", 3),
    field(FieldId::NdTll, "nd_tll", 6, 48, Place::whole(at::ARP_THA), Ethernet).needs(Prereq::NdAdvert).maskable().writable().oxm(OxmClass::Nxm1, 25, "NXM_NX_ND_TLL", 0).oxm(OxmClass::Basic, 33, "OXM_OF_IPV6_ND_TLL", 3),
    field(FieldId::NdReserved, "nd_reserved", 4, 32, Place::whole(at::ND_RESERVED), Decimal).needs(Prereq::Nd).writable().oxm(OxmClass::Ericsson, 1, "ERICOXM_OF_ICMPV6_ND_RESERVED", 0),
    field(FieldId::NdOptionsType, "nd_options_type", 1, 8, bits(at::TCP_FLAGS, 0, 8), Decimal).needs(Prereq::Nd).writable().oxm(OxmClass::Ericsson, 2, "ERICOXM_OF_ICMPV6_ND_OPTIONS_TYPE", 0),
    field(FieldId::NshFlags, "nsh_flags", 1, 8, Place::whole(at::NSH_FLAGS), Decimal).needs(Prereq::Nsh).maskable().writable().oxm(OxmClass::NSH, 1, "NXOXM_NSH_FLAGS", 0),
    field(FieldId::NshMdtype, "nsh_mdtype", 1, 8, Place::whole(at::NSH_MDTYPE), Decimal).needs(Prereq::Nsh).oxm(OxmClass::NSH, 2, "NXOXM_NSH_MDTYPE", 0),
    field(FieldId::NshNp, "nsh_np", 1, 8, Place::whole(at::NSH_NP), Decimal).needs(Prereq::Nsh).oxm(OxmClass::NSH, 3, "NXOXM_NSH_NP", 0),
    field(FieldId::NshSpi, "nsh_spi", 4, 24, bits(at::NSH_PATH, 8, 24), Hexadecimal).alias("nsp").needs(Prereq::Nsh).writable().shares_span().oxm(OxmClass::NSH, 4, "NXOXM_NSH_SPI", 0),
    field(FieldId::NshSi, "nsh_si", 1, 8, bits(at::NSH_PATH, 0, 8), Decimal).alias("nsi").needs(Prereq::Nsh).writable().shares_span().oxm(OxmClass::NSH, 5, "NXOXM_NSH_SI", 0),
    field(FieldId::NshC1, "nsh_c1", 4, 32, nsh_context(0), Hexadecimal).alias("nshc1").needs(Prereq::Nsh).maskable().writable().oxm(OxmClass::NSH, 6, "NXOXM_NSH_C1", 0),
    field(FieldId::NshC2, "nsh_c2", 4, 32, nsh_context(1), Hexadecimal).alias("nshc2").needs(Prereq::Nsh).maskable().writable().oxm(OxmClass::NSH, 7, "NXOXM_NSH_C2", 0),
    field(FieldId::NshC3, "nsh_c3", 4, 32, nsh_context(2), Hexadecimal).alias("nshc3").needs(Prereq::Nsh).maskable().writable().oxm(OxmClass::NSH, 8, "NXOXM_NSH_C3", 0),
    field(FieldId::NshC4, "nsh_c4", 4, 32, nsh_context(3), Hexadecimal).alias("nshc4").needs(Prereq::Nsh).maskable().writable().oxm(OxmClass::NSH, 9, "NXOXM_NSH_C4", 0),
    field(FieldId::NshTtl, "nsh_ttl", 1, 8, Place::whole(at::NSH_TTL), Decimal).needs(Prereq::Nsh).writable().oxm(OxmClass::NSH, 10, "NXOXM_NSH_TTL", 0),
];

const fn field(id: FieldId, name: &'static str, n_bytes: usize, n_bits: u32, place: Place, format: Format) -> Field {
    Field {
        id,
        name,
        alias: None,
        n_bytes,
        n_bits,
        place,
        owns_span: true,
        maskable: false,
        format,
        prereq: Prereq::None,
        writable: false,
        oxm: [None; 3],
    }
}

impl Field {
    const fn alias(mut self, name: &'static str) -> Field {
        self.alias = Some(name);
        self
    }

    const fn needs(mut self, prereq: Prereq) -> Field {
        self.prereq = prereq;
        self
    }

    const fn maskable(mut self) -> Field {
        self.maskable = true;
        self
    }

    const fn writable(mut self) -> Field {
        self.writable = true;
        self
    }

    const fn shares_span(mut self) -> Field {
        self.owns_span = false;
        self
    }

    const fn oxm(mut self, class: OxmClass, number: u8, name: &'static str, since: u8) -> Field {
        let slot = if self.oxm[0].is_none() {
            0
        } else if self.oxm[1].is_none() {
            1
        } else {
            2
        };
        self.oxm[slot] = Some(Oxm { name, class, number, since });
        self
    }
}

/// A tunnel's option. Its bits are in no line of the key.
const fn option(id: FieldId, name: &'static str) -> Field {
    let bytes = crate::TUN_METADATA_BYTES;
    field(id, name, bytes, 8 * bytes as u32, Place::NOWHERE, Hexadecimal).maskable().writable()
}

const fn bits(span: Span, lsb: u32, n_bits: u32) -> Place {
    Place { span, lsb, n_bits }
}

/// Registers from `i` on, `size` bytes of them.
const fn reg(i: usize, size: usize) -> Place {
    Place::whole(Span { offset: at::REGS.offset + 4 * i, size })
}

const fn nsh_context(i: usize) -> Place {
    Place::whole(Span { offset: at::NSH_CONTEXT.offset + 4 * i, size: 4 })
}

// The table is in the order of the ids.
const _: () = {
    let mut i = 0;
    while i < N_FIELDS {
        assert!(FIELDS[i].id as usize == i, "the table is not in the order of FieldId");
        i += 1;
    }
};

/// Fields by every name they have.
pub(super) fn index() -> &'static HashMap<&'static str, FieldId> {
    static INDEX: OnceLock<HashMap<&'static str, FieldId>> = OnceLock::new();
    INDEX.get_or_init(|| {
        let names = |f: &'static Field| {
            [Some(f.name), f.alias].into_iter().chain(f.oxm.map(|o| o.map(|o| o.name))).flatten().map(|n| (n, f.id))
        };
        FIELDS.iter().flat_map(names).collect()
    })
}
