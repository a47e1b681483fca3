//! Connection tracking, NAT and encapsulation.

use super::{read_list, source};
use crate::oxm::{Numbering, put_field_header, read_nxm_field};
use crate::wire::{Reader, Writer};
use crate::{Error, Version};
use sluice_flow::SubField;
use sluice_ofp::OfAction;
use sluice_ofp::consistency::Within;
use sluice_ofp::ofpact::{Conntrack, ConntrackZone, Nat, NatAddresses, NatKind, NshProperty};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The packet type that leaves it to the header. Source: Open vSwitch, `PT_USE_NEXT_PROTO`.
pub(super) const NEXT_PROTOCOL: u32 = 0x0000_fffe;

const CT_COMMIT: u16 = 1;
const CT_FORCE: u16 = 2;

/// No table to continue in.
const CT_NO_TABLE: u8 = 0xff;

pub(super) fn read_ct(r: &mut Reader<'_>, version: Version, depth: usize) -> Result<OfAction, Error> {
    let flags = r.u16()?;
    let (commit, force) = (flags & CT_COMMIT != 0, flags & CT_FORCE != 0);
    if force && !commit {
        return Err(Error::ActionBadArgument);
    }
    let zone = if r.rest().starts_with(&[0; 4]) {
        r.skip(4)?;
        ConntrackZone::Number(r.u16()?)
    } else {
        let field = read_nxm_field(r)?;
        let (start, n_bits) = super::read_bits(r)?;
        if n_bits != 16 {
            return Err(Error::ActionBadSetLen);
        }
        ConntrackZone::Field(source(field, start, n_bits)?)
    };
    let table = Some(r.u8()?).filter(|t| *t != CT_NO_TABLE);
    r.skip(3)?;
    let alg = r.u16()?;
    let actions = read_list(r.part(r.len())?, version, Within::Ct, depth + 1)?;
    let plain_nat = |a: &OfAction| matches!(a, OfAction::Nat(nat) if nat_flags(nat) == 0 && nat.addresses.is_none());
    if !commit && !actions.iter().all(plain_nat) {
        return Err(Error::ActionBadArgument);
    }
    Ok(OfAction::Conntrack(Box::new(Conntrack { commit, force, zone, table, alg, actions })))
}

/// Writes the arguments in front of the nested actions.
pub(super) fn put_ct(ct: &Conntrack, w: &mut Writer) {
    w.u16(if ct.commit { CT_COMMIT } else { 0 } | if ct.force { CT_FORCE } else { 0 });
    match ct.zone {
        ConntrackZone::Number(zone) => {
            w.u32(0);
            w.u16(zone);
        }
        ConntrackZone::Field(SubField { field, .. }) => {
            put_field_header(field, Numbering::Nxm, w);
            if let ConntrackZone::Field(sub) = ct.zone {
                w.u16(super::bits_of(sub));
            }
        }
    }
    w.u8(ct.table.unwrap_or(CT_NO_TABLE));
    w.zeros(3);
    w.u16(ct.alg);
}

const NAT_SRC: u16 = 1;
const NAT_DST: u16 = 2;
const NAT_PERSISTENT: u16 = 4;
const NAT_HASH: u16 = 8;
const NAT_RANDOM: u16 = 16;

const NAT_IPV4_MIN: u16 = 1;
const NAT_IPV4_MAX: u16 = 2;
const NAT_IPV6_MIN: u16 = 4;
const NAT_IPV6_MAX: u16 = 8;
const NAT_PORT_MIN: u16 = 16;
const NAT_PORT_MAX: u16 = 32;

fn nat_flags(nat: &Nat) -> u16 {
    let kind = match nat.kind {
        None => 0,
        Some(NatKind::Src) => NAT_SRC,
        Some(NatKind::Dst) => NAT_DST,
    };
    let rest = [(nat.persistent, NAT_PERSISTENT), (nat.hash, NAT_HASH), (nat.random, NAT_RANDOM)];
    rest.into_iter().filter(|(set, _)| *set).fold(kind, |flags, (_, bit)| flags | bit)
}

pub(super) fn read_nat(r: &mut Reader<'_>) -> Result<OfAction, Error> {
    let wrong = Error::ActionBadArgument;
    r.skip(2)?;
    let (flags, present) = (r.u16()?, r.u16()?);
    let both = |a, b| flags & a != 0 && flags & b != 0;
    if flags >> 5 != 0 || both(NAT_SRC, NAT_DST) || both(NAT_HASH, NAT_RANDOM) {
        return Err(wrong);
    }
    let has = |bit| present & bit != 0;
    let mut opts = r.part(r.len())?.or(wrong);
    let addresses = if has(NAT_IPV4_MIN) {
        let low = opts.u32()?;
        let high = if has(NAT_IPV4_MAX) { opts.u32()? } else { low };
        if low == 0 || high < low || has(NAT_IPV6_MIN) || has(NAT_IPV6_MAX) {
            return Err(wrong);
        }
        Some(NatAddresses::V4(Ipv4Addr::from(low), Ipv4Addr::from(high)))
    } else if has(NAT_IPV6_MIN) {
        let low = opts.number(16)?;
        let high = if has(NAT_IPV6_MAX) { opts.number(16)? } else { low };
        if low == 0 || high < low || has(NAT_IPV4_MAX) {
            return Err(wrong);
        }
        Some(NatAddresses::V6(Ipv6Addr::from(low), Ipv6Addr::from(high)))
    } else if has(NAT_IPV4_MAX) || has(NAT_IPV6_MAX) {
        return Err(wrong);
    } else {
        None
    };
    let ports = if has(NAT_PORT_MIN) {
        let low = opts.u16()?;
        let high = if has(NAT_PORT_MAX) { opts.u16()? } else { low };
        if addresses.is_none() || low == 0 || high < low {
            return Err(wrong);
        }
        (low, high)
    } else if has(NAT_PORT_MAX) {
        return Err(wrong);
    } else {
        (0, 0)
    };
    let kind = match flags & (NAT_SRC | NAT_DST) {
        NAT_SRC => Some(NatKind::Src),
        NAT_DST => Some(NatKind::Dst),
        _ => None,
    };
    Ok(OfAction::Nat(Nat {
        kind,
        addresses,
        ports,
        persistent: flags & NAT_PERSISTENT != 0,
        hash: flags & NAT_HASH != 0,
        random: flags & NAT_RANDOM != 0,
    }))
}

pub(super) fn put_nat(nat: &Nat, w: &mut Writer) {
    w.zeros(2);
    w.u16(nat_flags(nat));
    let at = w.len();
    w.u16(0);
    let mut present = 0;
    match nat.addresses {
        None => {}
        Some(NatAddresses::V4(low, high)) => {
            present |= NAT_IPV4_MIN;
            w.put(&low.octets());
            if high != low {
                present |= NAT_IPV4_MAX;
                w.put(&high.octets());
            }
        }
        Some(NatAddresses::V6(low, high)) => {
            present |= NAT_IPV6_MIN;
            w.put(&low.octets());
            if high != low {
                present |= NAT_IPV6_MAX;
                w.put(&high.octets());
            }
        }
    }
    let (low, high) = nat.ports;
    if nat.addresses.is_some() && low != 0 {
        present |= NAT_PORT_MIN;
        w.u16(low);
        if high != low {
            present |= NAT_PORT_MAX;
            w.u16(high);
        }
    }
    w.patch_u16(at, present.into());
}

/// Class of the properties of NSH. Source: Open vSwitch, `OFPPPC_NSH`.
const NSH_CLASS: u16 = 4;
const NSH_MD_TYPE: u8 = 1;
const NSH_TLV: u8 = 2;

pub(super) fn read_encap(r: &mut Reader<'_>) -> Result<OfAction, Error> {
    r.skip(2)?;
    let packet_type = r.u32()?;
    // Ethernet, MPLS and NSH. Source: Open vSwitch, `encap`.
    if !matches!(packet_type, 0 | 0x1_894f | 0x1_8847 | 0x1_8848) {
        return Err(Error::ActionBadHeaderType);
    }
    let mut properties = Vec::new();
    while r.len() >= 4 {
        let (class, kind, length) = (r.u16()?, r.u8()?, usize::from(r.u8()?));
        if (class, kind, length) == (0, 0, 0) {
            r.zeros(r.len()).map_err(|_| Error::ActionBadEdProp)?;
            break;
        }
        let body = length.checked_sub(4).ok_or(Error::ActionBadEdProp)?;
        let mut property = r.or(Error::ActionBadEdProp).part(length.next_multiple_of(8) - 4)?;
        r.skip(property.len())?;
        let mut property = property.part(body)?;
        properties.push(match (class, kind) {
            (NSH_CLASS, NSH_MD_TYPE) => NshProperty::MdType(property.u8()?),
            (NSH_CLASS, NSH_TLV) => {
                let (class, tlv_type, n) = (property.u16()?, property.u8()?, property.u8()?);
                NshProperty::Tlv { class, tlv_type, value: property.take(n.into())?.to_vec() }
            }
            _ => return Err(Error::ActionUnknownEdProp),
        });
    }
    Ok(OfAction::Encap { packet_type, properties })
}

pub(super) fn put_encap(packet_type: u32, properties: &[NshProperty], w: &mut Writer) {
    w.u16(0);
    w.u32(packet_type);
    for property in properties {
        let start = w.len();
        w.u16(NSH_CLASS);
        match property {
            NshProperty::MdType(kind) => {
                w.u8(NSH_MD_TYPE);
                w.u8(8);
                w.u8(*kind);
            }
            NshProperty::Tlv { class, tlv_type, value } => {
                w.u8(NSH_TLV);
                w.u8((8 + value.len()) as u8);
                w.u16(*class);
                w.u8(*tlv_type);
                w.u8(value.len() as u8);
                w.put(value);
            }
        }
        w.pad8(start);
    }
}
