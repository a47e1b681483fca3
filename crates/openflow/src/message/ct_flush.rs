//! NXT_CT_FLUSH: forgets tracked connections.
//!
//! Source: Open vSwitch, include/openflow/nicira-ext.h, `nx_ct_flush`, and lib/ofp-ct.c.

use crate::wire::{Reader, Writer};
use crate::{Error, property};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Properties of the message.
mod kind {
    pub const ORIGINAL: u16 = 0;
    pub const REPLY: u16 = 1;
    pub const ZONE: u16 = 2;
}

/// Properties of a tuple.
mod part {
    pub const SRC: u16 = 0;
    pub const DST: u16 = 1;
    pub const SRC_PORT: u16 = 2;
    pub const DST_PORT: u16 = 3;
    pub const ICMP_ID: u16 = 4;
    pub const ICMP_TYPE: u16 = 5;
    pub const ICMP_CODE: u16 = 6;
}

/// Which connections are to be forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CtFlush {
    /// Those of this zone.
    pub zone: Option<u16>,
    /// Those of this IP protocol; 0: any.
    pub proto: u8,
    /// Those with this original tuple.
    pub original: CtTuple,
    /// Those with this reply tuple.
    pub reply: CtTuple,
}

/// Parts of a tuple. What is zero is not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CtTuple {
    /// Source address. IPv4 addresses are mapped.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// ICMP identifier.
    pub icmp_id: u16,
    /// ICMP type.
    pub icmp_type: u8,
    /// ICMP code.
    pub icmp_code: u8,
}

impl Default for CtTuple {
    fn default() -> Self {
        let any = Ipv6Addr::UNSPECIFIED;
        CtTuple { src: any, dst: any, src_port: 0, dst_port: 0, icmp_id: 0, icmp_type: 0, icmp_code: 0 }
    }
}

impl CtFlush {
    /// Whether it names connections by more than their zone.
    pub fn has_tuples(&self) -> bool {
        let CtFlush { proto, original, reply, .. } = self;
        *proto != 0 || [original, reply].iter().any(|tuple| **tuple != CtTuple::default())
    }

    /// Whether its addresses are IPv6's; `None` if it has none.
    pub fn is_v6(&self) -> Option<bool> {
        let CtFlush { original, reply, .. } = self;
        let mut addresses = [original.src, original.dst, reply.src, reply.dst].into_iter();
        let address = addresses.find(|address| !address.is_unspecified())?;
        Some(address.to_ipv4_mapped().is_none())
    }

    /// Whether its protocol has identifier, type and code in the place of ports.
    pub fn is_icmp(&self) -> bool {
        const ICMP: u8 = 1;
        const ICMPV6: u8 = 58;
        matches!(self.proto, ICMP | ICMPV6)
    }
}

/// The tuples as Open vSwitch's log has them: `ofp_ct_match_format`.
impl fmt::Display for CtFlush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            if self.is_v6() == Some(false) { ["ct_nw_src", "ct_nw_dst"] } else { ["ct_ipv6_src", "ct_ipv6_dst"] };
        let tuple = |f: &mut fmt::Formatter<'_>, tuple: &CtTuple| {
            let CtTuple { src, dst, src_port, dst_port, icmp_id, icmp_type, icmp_code } = tuple;
            write!(f, "{}={},{}={}", names[0], Address(*src), names[1], Address(*dst))?;
            match self.is_icmp() {
                true => write!(f, ",icmp_id={icmp_id},icmp_type={icmp_type},icmp_code={icmp_code}"),
                false => write!(f, ",ct_tp_src={src_port},ct_tp_dst={dst_port}"),
            }
        };
        f.write_str("'")?;
        tuple(f, &self.original)?;
        write!(f, ",ct_nw_proto={}' '", self.proto)?;
        tuple(f, &self.reply)?;
        f.write_str("'")
    }
}

/// An address, which is shown as IPv4's if it is mapped.
struct Address(Ipv6Addr);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.to_ipv4_mapped() {
            Some(v4) => <Ipv4Addr as fmt::Display>::fmt(&v4, f),
            None => <Ipv6Addr as fmt::Display>::fmt(&self.0, f),
        }
    }
}

/// Reads it. Unknown properties are ignored, as in Open vSwitch.
pub(super) fn read(r: &mut Reader<'_>) -> Result<CtFlush, Error> {
    let proto = r.u8()?;
    r.zeros(7).map_err(|_| Error::RequestMustBeZero)?;
    let mut flush = CtFlush { proto, ..CtFlush::default() };
    property::each(r.part(r.len())?, |number, body| {
        match number {
            kind::ORIGINAL => flush.original = read_tuple(body)?,
            kind::REPLY => flush.reply = read_tuple(body)?,
            kind::ZONE => flush.zone = Some(property::u16(body)?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(flush)
}

fn read_tuple(body: &mut Reader<'_>) -> Result<CtTuple, Error> {
    // A nested list begins at a multiple of 8 bytes.
    body.skip(4)?;
    let mut tuple = CtTuple::default();
    property::each(body.part(body.len())?, |number, body| {
        match number {
            part::SRC => tuple.src = body.array::<16>()?.into(),
            part::DST => tuple.dst = body.array::<16>()?.into(),
            part::SRC_PORT => tuple.src_port = property::u16(body)?,
            part::DST_PORT => tuple.dst_port = property::u16(body)?,
            part::ICMP_ID => tuple.icmp_id = property::u16(body)?,
            part::ICMP_TYPE => tuple.icmp_type = property::u8(body)?,
            part::ICMP_CODE => tuple.icmp_code = property::u8(body)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(tuple)
}

pub(super) fn put(flush: &CtFlush, w: &mut Writer) {
    w.u8(flush.proto);
    w.zeros(7);
    for (number, tuple) in [(kind::ORIGINAL, &flush.original), (kind::REPLY, &flush.reply)] {
        if *tuple != CtTuple::default() {
            property::put_nested(number, |w| put_tuple(tuple, flush.is_icmp(), w), w);
        }
    }
    if let Some(zone) = flush.zone {
        property::put_u16(kind::ZONE, zone, w);
    }
}

fn put_tuple(tuple: &CtTuple, is_icmp: bool, w: &mut Writer) {
    for (number, address) in [(part::SRC, tuple.src), (part::DST, tuple.dst)] {
        if !address.is_unspecified() {
            property::put(number, &address.octets(), w);
        }
    }
    if is_icmp {
        property::put(part::ICMP_ID, &tuple.icmp_id.to_be_bytes(), w);
        property::put_u8(part::ICMP_TYPE, tuple.icmp_type, w);
        return property::put_u8(part::ICMP_CODE, tuple.icmp_code, w);
    }
    for (number, port) in [(part::SRC_PORT, tuple.src_port), (part::DST_PORT, tuple.dst_port)] {
        if port != 0 {
            property::put(number, &port.to_be_bytes(), w);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, Version};

    fn tuple(src: &str, dst: &str, src_port: u16) -> CtTuple {
        let mapped = |text: &str| text.parse::<Ipv4Addr>().unwrap().to_ipv6_mapped();
        CtTuple { src: mapped(src), dst: mapped(dst), src_port, ..CtTuple::default() }
    }

    #[test]
    fn it_is_shown_as_open_vswitch_shows_it() {
        let flush = CtFlush { proto: 17, original: tuple("10.1.1.1", "10.1.1.2", 1), ..CtFlush::default() };
        let want = "'ct_nw_src=10.1.1.1,ct_nw_dst=10.1.1.2,ct_tp_src=1,ct_tp_dst=0,ct_nw_proto=17' \
                    'ct_nw_src=::,ct_nw_dst=::,ct_tp_src=0,ct_tp_dst=0'";
        assert_eq!(flush.to_string(), want);
        let icmp = CtFlush { proto: 58, ..CtFlush::default() };
        assert!(icmp.to_string().starts_with("'ct_ipv6_src=::,ct_ipv6_dst=::,icmp_id=0,icmp_type=0,icmp_code=0,"));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let icmp_parts = CtTuple { icmp_id: 7, icmp_type: 8, icmp_code: 1, ..tuple("1.2.3.4", "5.6.7.8", 0) };
        let all = [
            CtFlush::default(),
            CtFlush { zone: Some(5), proto: 6, reply: tuple("1.2.3.4", "5.6.7.8", 80), ..CtFlush::default() },
            CtFlush { proto: 1, original: icmp_parts, ..CtFlush::default() },
        ];
        for flush in all {
            let message = Message::CtFlush(Box::new(flush));
            let bytes = message.write(Version::V13, 1);
            assert_eq!(Message::read(&bytes, false).map(|(.., read)| read), Ok(message));
        }
    }
}
