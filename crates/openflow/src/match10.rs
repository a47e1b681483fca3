//! OpenFlow 1.0's match, a structure of fixed size. Source: OpenFlow 1.0, `ofp_match`.

use crate::Error;
use crate::wire::{Reader, Writer};
use sluice_flow::field::{FieldId, Place, ones};
use sluice_flow::{Match, OfPort, layout};
use sluice_packet::headers::{ethertype, has_ports};

const IN_PORT: u32 = 1;
const DL_VLAN: u32 = 1 << 1;
const DL_SRC: u32 = 1 << 2;
const DL_DST: u32 = 1 << 3;
const DL_TYPE: u32 = 1 << 4;
const NW_PROTO: u32 = 1 << 5;
const TP_SRC: u32 = 1 << 6;
const TP_DST: u32 = 1 << 7;
const NW_SRC_SHIFT: u32 = 8;
const NW_DST_SHIFT: u32 = 14;
const DL_VLAN_PCP: u32 = 1 << 20;
const NW_TOS: u32 = 1 << 21;

/// The VLAN id that stands for frames without a tag.
const VLAN_NONE: u16 = 0xffff;

/// The mask that the wildcards leave of an address: a prefix.
fn prefix(wildcards: u32, shift: u32) -> u128 {
    let ignored = (wildcards >> shift & 0x3f).min(32);
    ones(32) & !ones(ignored)
}

/// Reads a match. Fields whose prerequisites are missing are left out, as in Open vSwitch.
pub(crate) fn read(r: &mut Reader<'_>) -> Result<Match, Error> {
    let wildcards = r.u32()?;
    let said = |bit| wildcards & bit == 0;
    let mut m = Match::ANY;
    let in_port = r.u16()?;
    if said(IN_PORT) {
        m.set(FieldId::InPort, in_port.into());
    }
    for (bit, field) in [(DL_SRC, FieldId::EthSrc), (DL_DST, FieldId::EthDst)] {
        let address = r.number(6)?;
        if said(bit) {
            m.set(field, address);
        }
    }
    let (vlan, pcp) = (r.u16()?, r.u8()?);
    r.skip(1)?;
    read_vlan(&mut m, said(DL_VLAN).then_some(vlan), said(DL_VLAN_PCP).then_some(pcp));
    let dl_type = r.u16()?;
    if said(DL_TYPE) {
        m.set(FieldId::EthType, dl_type.into());
    }
    let (tos, proto) = (r.u8()?, r.u8()?);
    r.skip(2)?;
    let (src, dst, tp_src, tp_dst) = (r.u32()?, r.u32()?, r.u16()?, r.u16()?);
    let l3 = if said(DL_TYPE) { dl_type } else { 0 };
    let is_ip = matches!(l3, ethertype::IPV4 | ethertype::IPV6);
    let is_arp = matches!(l3, ethertype::ARP | ethertype::RARP);
    if is_ip && said(NW_TOS) {
        m.set(FieldId::IpDscp, u128::from(tos & 0xfc));
    }
    if (is_ip || is_arp) && said(NW_PROTO) {
        m.set(FieldId::IpProto, proto.into());
    }
    if l3 == ethertype::IPV4 || is_arp {
        for (field, address, shift) in [(FieldId::Ipv4Src, src, NW_SRC_SHIFT), (FieldId::Ipv4Dst, dst, NW_DST_SHIFT)] {
            m.set_masked(field, address.into(), prefix(wildcards, shift));
        }
    }
    if is_ip && said(NW_PROTO) && has_ports(proto) {
        for (bit, field, port) in [(TP_SRC, FieldId::TcpSrc, tp_src), (TP_DST, FieldId::TcpDst, tp_dst)] {
            if said(bit) {
                m.set(field, port.into());
            }
        }
    }
    Ok(m)
}

fn read_vlan(m: &mut Match, vlan: Option<u16>, pcp: Option<u8>) {
    let tci = Place::whole(layout::VLAN0_TCI);
    if vlan == Some(VLAN_NONE) {
        // A priority as well would contradict that; it is ignored.
        tci.write(&mut m.mask, 0xffff);
        return;
    }
    let (mut key, mut mask) = (0u16, 0u16);
    if let Some(vid) = vlan {
        (key, mask) = (0x1000 | vid & 0xfff, 0x1fff);
    }
    if let Some(pcp) = pcp {
        (key, mask) = (key | 0x1000 | u16::from(pcp & 7) << 13, mask | 0xf000);
    }
    tci.write(&mut m.key, key.into());
    tci.write(&mut m.mask, mask.into());
}

/// Writes a match. Fields that the structure lacks are left out.
pub(crate) fn put(m: &Match, w: &mut Writer) {
    let mut wildcards = 0;
    let mut field = |bit: u32, id: FieldId, all: u128| {
        let (value, mask) = m.field(id);
        if mask & all == all {
            return value as u64;
        }
        wildcards |= bit;
        0
    };
    let in_port = field(IN_PORT, FieldId::InPort, 0xffff);
    let (dl_src, dl_dst) = (field(DL_SRC, FieldId::EthSrc, ones(48)), field(DL_DST, FieldId::EthDst, ones(48)));
    let dl_type = field(DL_TYPE, FieldId::EthType, 0xffff);
    let tos = field(NW_TOS, FieldId::IpDscp, 0xfc) & 0xfc;
    let proto = field(NW_PROTO, FieldId::IpProto, 0xff);
    let (tp_src, tp_dst) = (field(TP_SRC, FieldId::TcpSrc, 0xffff), field(TP_DST, FieldId::TcpDst, 0xffff));
    let (vlan, pcp) = vlan(m, &mut wildcards);
    let mut address = |id: FieldId, shift: u32| {
        let (value, mask) = m.field(id);
        let ignored = (!(mask as u32)).count_ones();
        // The structure has only prefixes.
        let is_prefix = mask == ones(32) & !ones(ignored);
        wildcards |= if is_prefix { ignored } else { 32 } << shift;
        if is_prefix { value as u32 } else { 0 }
    };
    let (src, dst) = (address(FieldId::Ipv4Src, NW_SRC_SHIFT), address(FieldId::Ipv4Dst, NW_DST_SHIFT));
    w.u32(wildcards);
    w.u16(in_port as u16);
    w.number(dl_src.into(), 6);
    w.number(dl_dst.into(), 6);
    w.u16(vlan);
    w.u8(pcp);
    w.zeros(1);
    w.u16(dl_type as u16);
    w.u8(tos as u8);
    w.u8(proto as u8);
    w.zeros(2);
    w.u32(src);
    w.u32(dst);
    w.u16(tp_src as u16);
    w.u16(tp_dst as u16);
}

fn vlan(m: &Match, wildcards: &mut u32) -> (u16, u8) {
    let (tci, mask) = (m.key.number(layout::VLAN0_TCI) as u16, m.mask.number(layout::VLAN0_TCI) as u16);
    if mask & 0x1000 == 0 {
        *wildcards |= DL_VLAN | DL_VLAN_PCP;
        return (0, 0);
    }
    if tci & 0x1000 == 0 {
        *wildcards |= DL_VLAN_PCP;
        return (VLAN_NONE, 0);
    }
    *wildcards |=
        if mask & 0xfff == 0xfff { 0 } else { DL_VLAN } | if mask & 0xe000 == 0xe000 { 0 } else { DL_VLAN_PCP };
    (tci & 0xfff, (tci >> 13) as u8)
}

/// A 16-bit port number of OpenFlow 1.0, where `0xffff` means none.
pub(crate) fn some_port(number: u16) -> Option<OfPort> {
    Some(OfPort(number)).filter(|port| *port != OfPort::NONE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_flow::PortNames;

    #[test]
    fn what_it_can_say_comes_back() {
        for text in [
            "",
            "in_port=3,tcp,nw_src=10.0.0.0/8,nw_dst=1.2.3.4,tp_dst=80",
            "dl_vlan=5,dl_vlan_pcp=3",
            "dl_vlan=0",
            "dl_vlan_pcp=7",
            "vlan_tci=0x0000",
            "arp,arp_spa=10.0.0.1,arp_op=2",
            "dl_src=00:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff,dl_type=0x88cc",
            "ip,nw_tos=252",
            "icmp,icmp_type=8,icmp_code=0",
            "in_port=LOCAL",
        ] {
            let m = Match::parse(text, &PortNames::NONE).expect(text);
            let mut w = Writer::default();
            put(&m, &mut w);
            assert_eq!(w.len(), 40);
            let back = read(&mut Reader::new(&w.bytes, Error::RequestBadLen)).unwrap();
            assert_eq!(back.to_string(), m.to_string(), "{text}");
        }
    }
}
