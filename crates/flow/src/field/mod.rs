//! The fields of OpenFlow as Open vSwitch 3.1 knows them: names, place in a [`FlowKey`], text and wire formats.
//!
//! Declared once, in the table of [`FIELDS`]; parsing, printing, the OpenFlow codec and the classifier all read it. A
//! field's value is a number, the same that stands on the wire in network byte order. It has at most 128 bits, except those of
//! a tunnel's options, which have up to 992 and stand beside the lines of the key ([`Field::get_wide`]). What cannot
//! be said by "these bits of the key" (ports of 32 bits, VLAN fields that imply the tag, addresses that imply their
//! family) is in [`Field::get`], [`Field::set`] and [`Field::set_mask`] and nowhere else.

mod oxm;
mod table;

pub use oxm::{Oxm, OxmClass};
pub use table::{FIELDS, FieldId};

use crate::layout::{self, Span};
use crate::{FlowKey, OfPort, TUN_METADATA_FIELDS, Wide};

/// How a field is written in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Format {
    Decimal,
    Hexadecimal,
    Ethernet,
    Ipv4,
    Ipv6,
    /// OpenFlow 1.0 port number or name.
    Port,
    /// OpenFlow 1.1 port number or name.
    PortOxm,
    CtState,
    Frag,
    TunFlags,
    TcpFlags,
    PacketType,
}

/// What a match must also say for a field to have a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the protocols'")]
pub enum Prereq {
    None,
    Ethernet,
    Arp,
    VlanVid,
    Ipv4,
    Ipv6,
    IpAny,
    Nsh,
    CtValid,
    Mpls,
    Tcp,
    Udp,
    Sctp,
    Icmpv4,
    Icmpv6,
    Nd,
    NdSolicit,
    NdAdvert,
}

/// Where a field's bits are: the `n_bits` bits of `span`, taken as a big-endian number, from bit `lsb` up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Bytes of the key.
    pub span: Span,
    /// Lowest bit.
    pub lsb: u32,
    /// Number of bits stored.
    pub n_bits: u32,
}

impl Place {
    /// No bits of a line.
    pub const NOWHERE: Place = Place { span: Span { offset: 0, size: 0 }, lsb: 0, n_bits: 0 };

    /// The whole of a span.
    pub const fn whole(span: Span) -> Self {
        Place { span, lsb: 0, n_bits: 8 * span.size as u32 }
    }

    /// The bits of `key` here.
    pub fn read(self, key: &FlowKey) -> u128 {
        if self.span.size <= 8 {
            return (key.number(self.span) >> self.lsb & ones_of_word(self.n_bits)).into();
        }
        let whole = key.get(self.span).iter().fold(0u128, |n, b| n << 8 | u128::from(*b));
        whole >> self.lsb & ones(self.n_bits)
    }

    /// Replaces the bits of `key` here, cutting what does not fit.
    pub fn write(self, key: &mut FlowKey, value: u128) {
        if self.span.size <= 8 {
            let mask = ones_of_word(self.n_bits) << self.lsb;
            return key.set_number(self.span, key.number(self.span) & !mask | (value as u64) << self.lsb & mask);
        }
        let bytes = key.get_mut(self.span);
        let old = bytes.iter().fold(0u128, |n, b| n << 8 | u128::from(*b));
        let mask = ones(self.n_bits) << self.lsb;
        let new = old & !mask | value << self.lsb & mask;
        let size = self.span.size;
        bytes.copy_from_slice(&new.to_be_bytes()[16 - size..]);
    }
}

/// The number whose low `n` bits are set.
#[inline]
pub const fn ones(n: u32) -> u128 {
    match n {
        // Most fields fit a word, and shifts of two words take ten instructions more.
        ..=64 => ones_of_word(n) as u128,
        65..128 => (1 << n) - 1,
        _ => u128::MAX,
    }
}

/// The lowest `n` bits of a word.
const fn ones_of_word(n: u32) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its id; also its place in [`FIELDS`].
    pub id: FieldId,
    /// The name used in matches.
    pub name: &'static str,
    /// Another name that is understood, and in `dl_src=` and the like the one that is printed.
    pub alias: Option<&'static str>,
    /// Bytes of its value on the wire.
    pub n_bytes: usize,
    /// Bits that a subfield can name.
    pub n_bits: u32,
    /// Its bits in the key.
    pub place: Place,
    /// Whether an exact match covers the rest of the span too, which is always zero.
    pub owns_span: bool,
    /// Whether a match may have any mask; if not, all or nothing.
    pub maskable: bool,
    /// How it is written.
    pub format: Format,
    /// What a match on it must also say.
    pub prereq: Prereq,
    /// Whether actions may change it.
    pub writable: bool,
    /// How NXM and OXM name and number it: Nicira's own first, then the others, the newest last.
    pub oxm: [Option<Oxm>; 3],
}

impl FieldId {
    /// The field's row.
    pub fn field(self) -> &'static Field {
        &FIELDS[self as usize]
    }

    /// Register `i`, 0 to 15.
    pub fn reg(i: usize) -> Option<FieldId> {
        FIELDS.get(FieldId::Reg0 as usize + i).filter(|_| i < 16).map(|f| f.id)
    }

    /// Double register `i`, 0 to 7: registers `2i` (high half) and `2i + 1`.
    pub fn xreg(i: usize) -> Option<FieldId> {
        FIELDS.get(FieldId::Xreg0 as usize + i).filter(|_| i < 8).map(|f| f.id)
    }

    /// The field of Geneve option `i`, 0 to 63.
    pub fn tun_metadata(i: usize) -> Option<FieldId> {
        FIELDS.get(FieldId::TunMetadata0 as usize + i).filter(|_| i < TUN_METADATA_FIELDS).map(|f| f.id)
    }

    /// Which Geneve option the field is the value of.
    pub fn tunnel_option(self) -> Option<usize> {
        let i = (self as usize).checked_sub(FieldId::TunMetadata0 as usize)?;
        (i < TUN_METADATA_FIELDS).then_some(i)
    }

    /// Quadruple register `i`, 0 to 3: registers `4i` (highest) to `4i + 3`.
    pub fn xxreg(i: usize) -> Option<FieldId> {
        FIELDS.get(FieldId::Xxreg0 as usize + i).filter(|_| i < 4).map(|f| f.id)
    }
}

impl Field {
    /// Bits of the longest field.
    pub const MAX_BITS: u32 = 8 * crate::TUN_METADATA_BYTES as u32;

    /// The field of that name: its name, its alias, or one of its NXM or OXM names.
    pub fn by_name(name: &str) -> Option<&'static Field> {
        table::index().get(name).map(|id| id.field())
    }

    /// The field of that NXM or OXM name only.
    pub fn by_oxm_name(name: &str) -> Option<&'static Field> {
        FIELDS.iter().find(|f| f.oxm.iter().flatten().any(|o| o.name == name))
    }

    /// The field of that number.
    pub fn by_oxm(class: OxmClass, number: u8) -> Option<&'static Field> {
        FIELDS.iter().find(|f| f.oxm.iter().flatten().any(|o| o.class == class && o.number == number))
    }

    /// The name that subfields are printed with: NXM's, else OXM's, else its own.
    pub fn subfield_name(&self) -> &'static str {
        self.oxm[0].map_or(self.name, |o| o.name)
    }

    /// All the bits that an action can change; of a tunnel's option the low 128.
    pub const fn all_ones(&self) -> u128 {
        ones(self.n_bits)
    }

    /// Whether it has more bits than a `u128`, as a tunnel's option has.
    pub const fn is_wide(&self) -> bool {
        self.n_bits > u128::BITS
    }

    /// All the bits that an action can change.
    pub fn all_ones_wide(&self) -> Wide {
        Wide::ones(self.n_bits)
    }

    /// All the bits that a match can look at: [`Field::all_ones`], and for `vlan_vid` also whether there is a tag.
    pub const fn match_ones(&self) -> u128 {
        ones(if self.place.n_bits > self.n_bits && self.place.n_bits == 13 { 13 } else { self.n_bits })
    }

    /// Its value in a key.
    pub fn get_wide(&self, key: &FlowKey) -> Wide {
        self.id.tunnel_option().map_or_else(|| self.get(key).into(), |i| key.tun_metadata.value(i))
    }

    /// Its value in a key; of a tunnel's option the low 128 bits.
    pub fn get(&self, key: &FlowKey) -> u128 {
        if let Some(i) = self.id.tunnel_option() {
            return key.tun_metadata.value(i).low();
        }
        let bits = self.place.read(key);
        match self.id {
            FieldId::InPortOxm | FieldId::ActsetOutput => u128::from(OfPort(bits as u16).to_of11()),
            FieldId::IpDscp => bits & 0xfc,
            FieldId::DlVlan => bits & 0xfff,
            _ => bits,
        }
    }

    /// [`Field::set`], of any length.
    pub fn set_wide(&self, key: &mut FlowKey, value: Wide) {
        match self.id.tunnel_option() {
            Some(i) => {
                key.tun_metadata.set_present(i, true);
                key.tun_metadata.set_value(i, value.and(&self.all_ones_wide()));
            }
            None => self.set(key, value.low()),
        }
    }

    /// Sets its value in a key, as an action or a packet would: bits that do not fit are cut, setting a VLAN field
    /// means that there is a tag, and a 32-bit port number that has no 16-bit one becomes none.
    pub fn set(&self, key: &mut FlowKey, value: u128) {
        if self.is_wide() {
            return self.set_wide(key, value.into());
        }
        match self.id {
            FieldId::InPortOxm | FieldId::ActsetOutput => {
                let port = OfPort::from_of11(value as u32).unwrap_or(OfPort::NONE);
                self.place.write(key, u128::from(port.0));
            }
            FieldId::IpDscp => {
                Place { span: layout::NW_TOS, lsb: 2, n_bits: 6 }.write(key, value >> 2);
            }
            FieldId::DlVlan | FieldId::VlanVid | FieldId::DlVlanPcp | FieldId::VlanPcp => {
                let place = if self.n_bits == 12 { Place { n_bits: 12, ..self.place } } else { self.place };
                place.write(key, value);
                VLAN_PRESENT.write(key, 1);
            }
            _ => self.place.write(key, value),
        }
        if let Some((family, is_ipv6)) = self.family() {
            Place::whole(family).write(key, u128::from(is_ipv6));
        }
    }

    /// [`Field::set_mask`], of any length.
    pub fn set_mask_wide(&self, to: &mut FlowKey, mask: Wide) {
        match self.id.tunnel_option() {
            Some(i) => {
                to.tun_metadata.set_present(i, true);
                to.tun_metadata.set_value(i, to.tun_metadata.value(i).or(&mask.and(&self.all_ones_wide())));
            }
            None => self.set_mask(to, mask.low()),
        }
    }

    /// Adds to the mask `to` the bits that a match on the `mask` bits of this field's value looks at.
    pub fn set_mask(&self, to: &mut FlowKey, mask: u128) {
        if self.is_wide() {
            return self.set_mask_wide(to, mask.into());
        }
        if mask & self.match_ones() == 0 {
            return;
        }
        match self.id {
            FieldId::DlVlan | FieldId::DlVlanPcp | FieldId::VlanPcp => VLAN_PRESENT.write(to, 1),
            _ => {}
        }
        let is_exact = mask & self.match_ones() == self.match_ones();
        if self.owns_span && is_exact {
            to.set_ones(self.place.span);
        } else {
            let mask = match self.id {
                FieldId::InPortOxm | FieldId::ActsetOutput => u128::MAX,
                FieldId::IpDscp => mask & 0xfc,
                _ => mask,
            };
            self.place.write(to, self.place.read(to) | mask);
        }
        if let Some((family, _)) = self.family() {
            Place::whole(family).write(to, 1);
        }
    }

    /// The whole spans that [`Field::set`] and [`Field::set_mask`] change, of a field that is no tunnel's option.
    pub(crate) fn spans(&self) -> [Option<Place>; 2] {
        [Some(self.place.span), self.family().map(|(span, _)| span)].map(|span| span.map(Place::whole))
    }

    /// Takes the field away from a key: an option that is not sent.
    pub fn delete(&self, key: &mut FlowKey) {
        match self.id.tunnel_option() {
            Some(i) => {
                key.tun_metadata.set_present(i, false);
                key.tun_metadata.set_value(i, Wide::ZERO);
            }
            None => self.place.write(key, 0),
        }
    }

    /// Whether a key has the field, where packets may be without it.
    pub fn is_present(&self, key: &FlowKey) -> bool {
        self.id.tunnel_option().is_none_or(|i| key.tun_metadata.has(i))
    }

    /// The byte that names the address family of a packet, and the value it must have for this field.
    fn family(&self) -> Option<(Span, bool)> {
        match self.id {
            FieldId::CtNwSrc | FieldId::CtNwDst => Some((layout::CT_IS_IPV6, false)),
            FieldId::CtIpv6Src | FieldId::CtIpv6Dst => Some((layout::CT_IS_IPV6, true)),
            _ => None,
        }
    }
}

/// The bit of the outer tag that says it is there.
const VLAN_PRESENT: Place = Place { span: layout::VLAN0_TCI, lsb: 12, n_bits: 1 };
