//! OpenFlow 1.1's match, a structure of fixed size with masks. Source: OpenFlow 1.1, `ofp_match`; what happens to fields
//! without their prerequisites is Open vSwitch's, `ofputil_match_from_ofp11_match`.

use crate::Error;
use crate::wire::{Reader, Writer};
use sluice_flow::field::{FieldId, Place, ones};
use sluice_flow::{Match, OfPort, layout};
use sluice_packet::headers::{ethertype, ip_proto};

/// `OFPMT_STANDARD`: the type of this match.
pub(crate) const MATCH_STANDARD: u16 = 0;

/// Its bytes, type and length included.
pub(crate) const MATCH_STANDARD_SIZE: usize = 88;

const IN_PORT: u32 = 1;
const DL_VLAN: u32 = 1 << 1;
const DL_VLAN_PCP: u32 = 1 << 2;
const DL_TYPE: u32 = 1 << 3;
const NW_TOS: u32 = 1 << 4;
const NW_PROTO: u32 = 1 << 5;
const TP_SRC: u32 = 1 << 6;
const TP_DST: u32 = 1 << 7;
const MPLS_LABEL: u32 = 1 << 8;
const MPLS_TC: u32 = 1 << 9;

/// The VLAN id that stands for frames with any tag, and the one for frames without a tag.
const VLAN_ANY: u16 = 0xfffe;
const VLAN_NONE: u16 = 0xffff;

/// The Ethernet type of frames that have none: a length stands in its place. Source: OpenFlow 1.0, `OFP_DL_TYPE_NOT_ETH_TYPE`.
const NOT_ETH_TYPE: u16 = 0x05ff;

/// An address with a mask, in which ones are the bits that are ignored.
struct Masked {
    value: u128,
    ignored: u128,
}

impl Masked {
    fn read(r: &mut Reader<'_>, n_bytes: usize) -> Result<Masked, Error> {
        Ok(Masked { value: r.number(n_bytes)?, ignored: r.number(n_bytes)? })
    }

    fn add(&self, m: &mut Match, field: FieldId) {
        let mask = !self.ignored & field.field().all_ones();
        if mask != 0 {
            m.set_masked(field, self.value & mask, mask);
        }
    }
}

/// Reads a match behind its type and length. Fields whose prerequisites are missing are left out.
pub(crate) fn read(r: &mut Reader<'_>) -> Result<Match, Error> {
    let in_port = r.u32()?;
    let wildcards = r.u32()?;
    let said = |bit| wildcards & bit == 0;
    let mut m = Match::ANY;
    if said(IN_PORT) {
        let port = OfPort::from_of11(in_port).ok_or(Error::MatchBadValue)?;
        m.set(FieldId::InPort, port.0.into());
    }
    for field in [FieldId::EthSrc, FieldId::EthDst] {
        Masked::read(r, 6)?.add(&mut m, field);
    }
    let (vlan, pcp) = (r.u16()?, r.u8()?);
    r.skip(1)?;
    if said(DL_VLAN) {
        read_vlan(&mut m, vlan, said(DL_VLAN_PCP).then_some(pcp))?;
    }
    let dl_type = r.u16()?;
    if said(DL_TYPE) {
        m.set(FieldId::EthType, if dl_type == NOT_ETH_TYPE { 0 } else { dl_type.into() });
    }
    read_network(&mut m, r, wildcards, if said(DL_TYPE) { dl_type } else { 0 })?;
    let metadata = Masked::read(r, 8)?;
    metadata.add(&mut m, FieldId::Metadata);
    Ok(m)
}

fn read_vlan(m: &mut Match, vlan: u16, pcp: Option<u8>) -> Result<(), Error> {
    let (mut key, mut mask): (u16, u16) = match vlan {
        VLAN_NONE => (0, 0xffff),
        VLAN_ANY => (0x1000, 0x1000),
        vid if vid < 0x1000 => (0x1000 | vid, 0x1fff),
        _ => return Err(Error::MatchBadValue),
    };
    // A priority beside no tag would contradict it; it is ignored.
    if let Some(pcp) = pcp.filter(|_| vlan != VLAN_NONE) {
        if pcp > 7 {
            return Err(Error::MatchBadValue);
        }
        (key, mask) = (key | u16::from(pcp) << 13, mask | 0xe000);
    }
    let tci = Place::whole(layout::VLAN0_TCI);
    tci.write(&mut m.key, key.into());
    tci.write(&mut m.mask, mask.into());
    Ok(())
}

/// Reads from the type of service to the MPLS traffic class.
fn read_network(m: &mut Match, r: &mut Reader<'_>, wildcards: u32, dl_type: u16) -> Result<(), Error> {
    let said = |bit| wildcards & bit == 0;
    let (tos, proto) = (r.u8()?, r.u8()?);
    let (src, dst) = (Masked::read(r, 4)?, Masked::read(r, 4)?);
    let (tp_src, tp_dst, label, tc) = (r.u16()?, r.u16()?, r.u32()?, r.u8()?);
    r.skip(3)?;
    let is_ipv4 = dl_type == ethertype::IPV4;
    if is_ipv4 && said(NW_TOS) {
        if tos & 3 != 0 {
            return Err(Error::MatchBadValue);
        }
        m.set(FieldId::IpDscp, tos.into());
    }
    if is_ipv4 || matches!(dl_type, ethertype::ARP | ethertype::RARP) {
        if said(NW_PROTO) {
            m.set(FieldId::IpProto, proto.into());
        }
        src.add(m, FieldId::Ipv4Src);
        dst.add(m, FieldId::Ipv4Dst);
    }
    if is_ipv4 && said(NW_PROTO) {
        for (bit, field, port) in [(TP_SRC, FieldId::TcpSrc, tp_src), (TP_DST, FieldId::TcpDst, tp_dst)] {
            if said(bit) && matches!(proto, ip_proto::ICMP | ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP) {
                // The specification leaves out ICMP's type and code; Open vSwitch has them here, as in OpenFlow 1.0.
                if proto == ip_proto::ICMP && port > 0xff {
                    return Err(Error::MatchBadField);
                }
                m.set(field, port.into());
            }
        }
    }
    if matches!(dl_type, ethertype::MPLS | ethertype::MPLS_MULTICAST) {
        if said(MPLS_LABEL) {
            m.set(FieldId::MplsLabel, u128::from(label) & ones(20));
        }
        if said(MPLS_TC) {
            m.set(FieldId::MplsTc, u128::from(tc) & 7);
        }
    }
    Ok(())
}

/// Writes a match with its type and length. Fields that the structure lacks are left out.
pub(crate) fn put(m: &Match, w: &mut Writer) {
    let mut wildcards = 0;
    let mut exact = |bit: u32, id: FieldId| {
        let (value, mask) = m.field(id);
        wildcards |= if mask == 0 { bit } else { 0 };
        if mask == 0 { 0 } else { value as u32 }
    };
    let in_port = exact(IN_PORT, FieldId::InPort) as u16;
    let (dl_type, proto) = (exact(DL_TYPE, FieldId::EthType) as u16, exact(NW_PROTO, FieldId::IpProto));
    let (tp_src, tp_dst) = (exact(TP_SRC, FieldId::TcpSrc), exact(TP_DST, FieldId::TcpDst));
    let (label, tc) = (exact(MPLS_LABEL, FieldId::MplsLabel), exact(MPLS_TC, FieldId::MplsTc));
    let (tos, tos_mask) = m.field(FieldId::IpDscp);
    wildcards |= if tos_mask & 0xfc == 0 { NW_TOS } else { 0 };
    let (vlan, pcp) = vlan(m, &mut wildcards);
    let has_type = wildcards & DL_TYPE == 0;
    let masked = |id: FieldId, n_bytes: usize, w: &mut Writer| {
        let (value, mask) = m.field(id);
        w.number(value & mask, n_bytes);
        w.number(!mask, n_bytes);
    };
    w.u16(MATCH_STANDARD);
    w.u16(MATCH_STANDARD_SIZE as u16);
    w.u32(if wildcards & IN_PORT == 0 { OfPort(in_port).to_of11() } else { 0 });
    w.u32(wildcards);
    masked(FieldId::EthSrc, 6, w);
    masked(FieldId::EthDst, 6, w);
    w.u16(vlan);
    w.u8(pcp);
    w.zeros(1);
    w.u16(if has_type && dl_type == 0 { NOT_ETH_TYPE } else { dl_type });
    w.u8(tos as u8 & 0xfc);
    w.u8(proto as u8);
    masked(FieldId::Ipv4Src, 4, w);
    masked(FieldId::Ipv4Dst, 4, w);
    w.u16(tp_src as u16);
    w.u16(tp_dst as u16);
    w.u32(label);
    w.u8(tc as u8);
    w.zeros(3);
    masked(FieldId::Metadata, 8, w);
}

fn vlan(m: &Match, wildcards: &mut u32) -> (u16, u8) {
    let (tci, mask) = (m.key.number(layout::VLAN0_TCI) as u16, m.mask.number(layout::VLAN0_TCI) as u16);
    if mask == 0 {
        *wildcards |= DL_VLAN | DL_VLAN_PCP;
        return (0, 0);
    }
    if mask & 0x1000 != 0 && tci & 0x1000 == 0 {
        *wildcards |= DL_VLAN_PCP;
        return (VLAN_NONE, 0);
    }
    let vid = if mask & 0xfff == 0 { VLAN_ANY } else { tci & 0xfff };
    if mask & 0xe000 == 0 {
        *wildcards |= DL_VLAN_PCP;
        return (vid, 0);
    }
    (vid, (tci >> 13) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_flow::PortNames;

    fn trip(text: &str) -> Result<Match, Error> {
        let m = Match::parse(text, &PortNames::NONE).unwrap();
        let mut w = Writer::default();
        put(&m, &mut w);
        assert_eq!(w.len(), MATCH_STANDARD_SIZE, "{text}");
        let mut r = Reader::new(&w.bytes[4..], Error::MatchBadLen);
        let back = read(&mut r)?;
        r.end()?;
        Ok(back)
    }

    #[test]
    fn what_the_structure_can_say_comes_back() {
        for text in [
            "",
            "in_port=3",
            "in_port=LOCAL,dl_vlan=9,dl_vlan_pcp=5",
            "vlan_tci=0x0000",
            "vlan_tci=0x1000/0x1000",
            "dl_src=00:01:02:00:00:00/ff:ff:ff:00:00:00,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00",
            "dl_type=0x0000",
            "tcp,nw_src=10.0.1.0/255.0.255.0,nw_dst=1.2.3.4,nw_tos=8,tp_src=5,tp_dst=80",
            "icmp,icmp_type=8,icmp_code=0",
            "arp,arp_op=2,arp_spa=1.2.3.0/24",
            "mpls,mpls_label=77,mpls_tc=3",
            "metadata=0x5/0xff",
        ] {
            let m = Match::parse(text, &PortNames::NONE).unwrap();
            assert_eq!(trip(text), Ok(m), "{text}");
        }
    }

    #[test]
    fn what_it_cannot_say_is_left_out() {
        let stays = |text: &str, rest: &str| assert_eq!(trip(text), Ok(Match::parse(rest, &PortNames::NONE).unwrap()));
        stays("ip,nw_ecn=1,nw_ttl=5", "ip");
        stays("reg0=1,metadata=7", "metadata=7");
        stays("tcp6,tp_dst=80", "ipv6");
    }

    #[test]
    fn impossible_values_are_errors() {
        let read_with = |at: usize, bytes: &[u8]| {
            let mut w = Writer::default();
            put(
                &Match::parse("in_port=1,dl_vlan=1,dl_vlan_pcp=1,icmp,nw_tos=4,icmp_type=1", &PortNames::NONE).unwrap(),
                &mut w,
            );
            w.bytes[at..at + bytes.len()].copy_from_slice(bytes);
            read(&mut Reader::new(&w.bytes[4..], Error::MatchBadLen))
        };
        assert_eq!(read_with(4, &[0, 1, 0, 0]), Err(Error::MatchBadValue), "port");
        assert_eq!(read_with(36, &[0x10, 0]), Err(Error::MatchBadValue), "VLAN id");
        assert_eq!(read_with(38, &[8]), Err(Error::MatchBadValue), "priority");
        assert_eq!(read_with(42, &[1]), Err(Error::MatchBadValue), "type of service");
        assert_eq!(read_with(60, &[1, 0]), Err(Error::MatchBadField), "ICMP type");
    }
}
