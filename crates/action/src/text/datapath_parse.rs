//! Reading keys as the datapath commands write them: `in_port(1),eth(src=…,dst=…),eth_type(0x0800),ipv4(…),tcp(…)`.

use super::geneve_parse::options;
use sluice_flow::field::{Place, ones};
use sluice_flow::geneve::OptionBytes;
use sluice_flow::layout::{self as at, Span};
use sluice_flow::text::number::{integer, ipv4, ipv6, mac, masked_address};
use sluice_flow::text::{Delimiter, FlowTextError, Pair, Piece, SyntaxError, expect_no_tail, flags};
use sluice_flow::{FlowKey, PacketKey};
use sluice_packet::headers::ethertype;

/// A key and its mask, as a line of datapath flow text gives them. A value without a mask is an exact match; what is
/// not named has no bit in the mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatapathFlow {
    /// The key as written, not cut by the mask.
    pub key: PacketKey,
    /// The mask.
    pub mask: PacketKey,
    /// The queue that it is to be sent by, which is no part of a packet's key.
    pub skb_priority: u32,
    /// Whether it names what keys do not have: a tunnel's UDP ports, or an option of Geneve for which no field stands.
    pub has_more: bool,
}

/// How a field in an attribute is written.
#[derive(Clone, Copy)]
enum Kind {
    /// A number with `/mask`; the width is that of the text, not of the key.
    Number(u32),
    Mac,
    Ipv4,
    Ipv6,
    Frag,
}

/// A field of an attribute.
struct Part {
    name: &'static str,
    kind: Kind,
    place: Place,
}

const fn part(name: &'static str, kind: Kind, span: Span) -> Part {
    Part { name, kind, place: Place::whole(span) }
}

const fn low_byte(name: &'static str, span: Span) -> Part {
    Part { name, kind: Kind::Number(8), place: Place::whole(span) }
}

const fn first_four(span: Span) -> Span {
    Span { offset: span.offset, size: 4 }
}

/// Attributes that are lists of fields. Source: `ovs-dpctl(8)` and what OVS 3.1 prints.
const ATTRIBUTES: &[(&str, &[Part])] = &[
    ("eth", &[part("src", Kind::Mac, at::DL_SRC), part("dst", Kind::Mac, at::DL_DST)]),
    (
        "ipv4",
        &[
            part("src", Kind::Ipv4, at::NW_SRC),
            part("dst", Kind::Ipv4, at::NW_DST),
            part("proto", Kind::Number(8), at::NW_PROTO),
            part("tos", Kind::Number(8), at::NW_TOS),
            part("ttl", Kind::Number(8), at::NW_TTL),
            part("frag", Kind::Frag, at::NW_FRAG),
        ],
    ),
    (
        "ipv6",
        &[
            part("src", Kind::Ipv6, at::IPV6_SRC),
            part("dst", Kind::Ipv6, at::IPV6_DST),
            part("label", Kind::Number(20), at::IPV6_LABEL),
            part("proto", Kind::Number(8), at::NW_PROTO),
            part("tclass", Kind::Number(8), at::NW_TOS),
            part("hlimit", Kind::Number(8), at::NW_TTL),
            part("frag", Kind::Frag, at::NW_FRAG),
        ],
    ),
    (
        "arp",
        &[
            part("sip", Kind::Ipv4, at::NW_SRC),
            part("tip", Kind::Ipv4, at::NW_DST),
            part("op", Kind::Number(16), at::NW_PROTO),
            part("sha", Kind::Mac, at::ARP_SHA),
            part("tha", Kind::Mac, at::ARP_THA),
        ],
    ),
    ("tcp", &PORTS),
    ("udp", &PORTS),
    ("sctp", &PORTS),
    ("icmp", &TYPE_AND_CODE),
    ("icmpv6", &TYPE_AND_CODE),
    (
        "nd",
        &[
            part("target", Kind::Ipv6, at::ND_TARGET),
            part("sll", Kind::Mac, at::ARP_SHA),
            part("tll", Kind::Mac, at::ARP_THA),
        ],
    ),
    ("nd_ext", &[part("nd_reserved", Kind::Number(32), at::ND_RESERVED), low_byte("nd_options_type", at::TCP_FLAGS)]),
    (
        "ct_tuple4",
        &[
            part("src", Kind::Ipv4, first_four(at::CT_SRC)),
            part("dst", Kind::Ipv4, first_four(at::CT_DST)),
            part("proto", Kind::Number(8), at::CT_NW_PROTO),
            part("tp_src", Kind::Number(16), at::CT_TP_SRC),
            part("tp_dst", Kind::Number(16), at::CT_TP_DST),
        ],
    ),
    (
        "ct_tuple6",
        &[
            part("src", Kind::Ipv6, at::CT_SRC),
            part("dst", Kind::Ipv6, at::CT_DST),
            part("proto", Kind::Number(8), at::CT_NW_PROTO),
            part("tp_src", Kind::Number(16), at::CT_TP_SRC),
            part("tp_dst", Kind::Number(16), at::CT_TP_DST),
            // What Open vSwitch prints for the two above.
            part("src_port", Kind::Number(16), at::CT_TP_SRC),
            part("dst_port", Kind::Number(16), at::CT_TP_DST),
        ],
    ),
    (
        "tunnel",
        &[
            part("tun_id", Kind::Number(64), at::TUN_ID),
            part("src", Kind::Ipv4, at::TUN_IPV4_SRC),
            part("dst", Kind::Ipv4, at::TUN_IPV4_DST),
            part("ipv6_src", Kind::Ipv6, at::TUN_IPV6_SRC),
            part("ipv6_dst", Kind::Ipv6, at::TUN_IPV6_DST),
            part("tos", Kind::Number(8), at::TUN_TOS),
            part("ttl", Kind::Number(8), at::TUN_TTL),
        ],
    ),
];

const PORTS: [Part; 2] = [part("src", Kind::Number(16), at::TP_SRC), part("dst", Kind::Number(16), at::TP_DST)];
const TYPE_AND_CODE: [Part; 2] = [low_byte("type", at::TP_SRC), low_byte("code", at::TP_DST)];

/// Attributes that are one number.
const NUMBERS: &[(&str, u32, Span)] = &[
    ("skb_priority", 32, at::SKB_PRIORITY),
    ("skb_mark", 32, at::PKT_MARK),
    ("recirc_id", 32, at::RECIRC_ID),
    ("dp_hash", 32, at::DP_HASH),
    ("ct_zone", 16, at::CT_ZONE),
    ("ct_mark", 32, at::CT_MARK),
    ("ct_label", 128, at::CT_LABEL),
];

/// Lists of fields within `tunnel(…)`.
const TUNNEL_LISTS: [(&str, &[Part]); 4] = [
    (
        "erspan",
        &[
            part("ver", Kind::Number(4), at::TUN_ERSPAN_VER),
            part("idx", Kind::Number(20), at::TUN_ERSPAN_IDX),
            part("dir", Kind::Number(1), at::TUN_ERSPAN_DIR),
            part("hwid", Kind::Number(8), at::TUN_ERSPAN_HWID),
        ],
    ),
    ("vxlan", &[]),
    ("gbp", &[part("id", Kind::Number(16), at::TUN_GBP_ID), part("flags", Kind::Number(8), at::TUN_GBP_FLAGS)]),
    (
        "gtpu",
        &[part("flags", Kind::Number(8), at::TUN_GTPU_FLAGS), part("msgtype", Kind::Number(8), at::TUN_GTPU_MSGTYPE)],
    ),
];

/// Tunnel flags as the datapath writes them, by their bits in the key.
static TUNNEL_FLAGS: flags::Flags = flags::Flags { names: &["oam", "df", "csum", "key"], allowed: 0xf };

/// The Ethernet types that headers imply where no `eth_type(…)` stands before them.
const IMPLIED_TYPES: [(&str, u16); 3] = [("ipv4", ethertype::IPV4), ("ipv6", ethertype::IPV6), ("arp", ethertype::ARP)];

/// The bytes of an attribute that has others within it, as Netlink encodes it: its length has 16 bits. Such texts are not
/// passed by Netlink here, but what Open vSwitch refuses is refused.
const NESTED_BYTES: usize = u16::MAX as usize - ATTRIBUTE_HEADER;

/// The bytes in front of an attribute's value, which is padded to a multiple of them.
const ATTRIBUTE_HEADER: usize = 4;

/// What a text that is longer than that is told.
pub(super) const NOT_TOO_LONG: &str = "fewer fields: a tunnel's take 65531 bytes at most";

/// The Ethernet type of a frame that has none.
/// Source: Open vSwitch, `FLOW_DL_TYPE_NONE`.
const NO_ETHERTYPE: u128 = 0x05ff;

impl DatapathFlow {
    /// Reads the text; `port` finds a port by its name. As in OVS, a line may be broken in front of a value.
    ///
    /// # Errors
    /// If it is no such text.
    pub fn parse(text: &str, port: &dyn Fn(&str) -> Option<u32>) -> Result<DatapathFlow, FlowTextError> {
        let text = &text.split('=').map(str::trim_start).collect::<Vec<_>>().join("=");
        let mut reader = Reader::new(port);
        reader.attributes(Piece::new(text)).map_err(|e| e.located(text))?;
        if reader.ethertype_open {
            Place::whole(at::DL_TYPE).write(&mut reader.key, NO_ETHERTYPE);
            Place::whole(at::DL_TYPE).write(&mut reader.mask, u128::MAX);
        }
        let skb_priority = reader.key.number(at::SKB_PRIORITY) as u32;
        Ok(DatapathFlow {
            key: reader.packet_key(),
            mask: reader.packet_mask(),
            skb_priority,
            has_more: reader.has_more,
        })
    }

    /// Whether a text was refused because an attribute has too many fields.
    pub fn too_long(error: &FlowTextError) -> bool {
        error.expected == NOT_TOO_LONG
    }

    /// Whether text looks like a datapath flow rather than OpenFlow text: it begins with an identifier, or its first
    /// word opens a parenthesis.
    pub fn looks_like(text: &str) -> bool {
        if text.starts_with("ufid:") {
            return true;
        }
        let end = text.find(['(', '=', ',', ' ']).unwrap_or(text.len());
        text[end..].starts_with('(')
    }
}

/// Fields of a text and their masks.
pub(super) struct Fields {
    pub key: PacketKey,
    pub mask: PacketKey,
}

/// Reads attributes that are no whole key, such as that of a `set(…)`.
pub(super) fn read_fields(text: Piece<'_>) -> Result<Fields, SyntaxError> {
    let mut reader = Reader::new(&|_| None);
    reader.attributes(text)?;
    Ok(Fields { key: reader.packet_key(), mask: reader.packet_mask() })
}

struct Reader<'p> {
    key: FlowKey,
    mask: FlowKey,
    port: &'p dyn Fn(&str) -> Option<u32>,
    /// A tunnel's options of Geneve as they stand in a header, and the mask of these bytes.
    options: OptionBytes,
    options_mask: OptionBytes,
    /// Whether no Ethernet type has been read yet behind the tags so far.
    ethertype_open: bool,
    tags: usize,
    has_more: bool,
}

impl<'p> Reader<'p> {
    fn new(port: &'p dyn Fn(&str) -> Option<u32>) -> Self {
        let (key, mask) = (FlowKey::ZERO, FlowKey::ZERO);
        let options = OptionBytes::NONE;
        Reader { key, mask, port, options, options_mask: options, ethertype_open: true, tags: 0, has_more: false }
    }

    fn packet_key(&self) -> PacketKey {
        let mut key = self.key.packet_part();
        key.put_options(&self.options);
        key
    }

    fn packet_mask(&self) -> PacketKey {
        let mut mask = self.mask.packet_mask();
        if !self.options.is_empty() {
            mask.put_options_mask(&self.options_mask);
        }
        mask
    }
}

impl Reader<'_> {
    fn attributes(&mut self, text: Piece<'_>) -> Result<(), SyntaxError> {
        let mut rest = text;
        while let Some(pair) = rest.next_pair()? {
            expect_no_tail(&pair)?;
            match (pair.key.text, pair.delimiter) {
                ("ufid", Delimiter::Sign) => {}
                (_, Delimiter::Parenthesis) => self.attribute(&pair)?,
                _ => return Err(pair.key.error("an attribute: NAME(…)")),
            }
        }
        Ok(())
    }

    fn attribute(&mut self, pair: &Pair<'_>) -> Result<(), SyntaxError> {
        let value = pair.value;
        if let Some((_, bits, span)) = NUMBERS.iter().find(|(name, ..)| *name == pair.key.text) {
            let (number, mask) = masked_number(value, *bits)?;
            self.put(Place::whole(*span), number, mask);
            return Ok(());
        }
        if let Some((name, parts)) = ATTRIBUTES.iter().find(|(name, _)| *name == pair.key.text) {
            return self.parts(name, parts, value);
        }
        match pair.key.text {
            "packet_type" => self.packet_type(value)?,
            "in_port" => self.in_port(value)?,
            "ct_state" => {
                let (state, mask) = flags::CT_STATE.parse(value)?;
                self.put(Place::whole(at::CT_STATE), state, mask);
            }
            "tcp_flags" => {
                let (value, mask) = flags::TCP.parse(value)?;
                self.put(Place::whole(at::TCP_FLAGS), value, if mask == 0xfff { 0xffff } else { mask });
            }
            "eth_type" => self.ethertype(value)?,
            "vlan" => self.tag(value)?,
            "encap" => {
                if self.tags == 0 {
                    return Err(pair.key.error("vlan(…) before encap(…)"));
                }
                self.attributes(value)?;
            }
            "mpls" => self.labels(value)?,
            _ => return Err(pair.key.error("the name of an attribute (in_port, eth, eth_type, ipv4, tcp …)")),
        }
        Ok(())
    }

    fn put(&mut self, place: Place, value: u128, mask: u128) {
        place.write(&mut self.key, value);
        place.write(&mut self.mask, mask);
    }

    fn parts(&mut self, name: &str, parts: &[Part], text: Piece<'_>) -> Result<(), SyntaxError> {
        let implied = IMPLIED_TYPES.iter().find(|(header, _)| *header == name).filter(|_| self.ethertype_open);
        if let Some((_, ethertype)) = implied {
            self.put(Place::whole(at::DL_TYPE), (*ethertype).into(), 0xffff);
            self.ethertype_open = false;
        }
        let mut rest = text;
        let mut bytes = 0;
        while let Some(pair) = rest.next_pair()? {
            expect_no_tail(&pair)?;
            if name == "tunnel" {
                let size = parts.iter().find(|part| part.name == pair.key.text).map_or(0, |part| part.place.span.size);
                bytes += ATTRIBUTE_HEADER + size.next_multiple_of(ATTRIBUTE_HEADER);
                if bytes > NESTED_BYTES {
                    return Err(pair.key.error(NOT_TOO_LONG));
                }
            }
            if (name, pair.key.text) == ("tunnel", "flags") {
                let (value, mask) = match pair.value.is_empty() {
                    true => (0, TUNNEL_FLAGS.all()),
                    false => TUNNEL_FLAGS.parse(pair.value)?,
                };
                self.put(Place::whole(at::TUN_FLAGS), value, mask);
                continue;
            }
            if let Some((list, parts)) = TUNNEL_LISTS.iter().find(|(list, _)| {
                *list == pair.key.text
                    && matches!((name, *list), ("tunnel", "erspan" | "vxlan" | "gtpu") | ("vxlan", "gbp"))
            }) {
                self.parts(list, parts, pair.value)?;
                continue;
            }
            if name == "tunnel" && matches!(pair.key.text, "tp_src" | "tp_dst") {
                // The datapath's keys do not have the outer UDP ports.
                masked_number(pair.value, 16)?;
                self.has_more = true;
                continue;
            }
            if (name, pair.key.text) == ("tunnel", "geneve") {
                (self.options, self.options_mask) = options(pair.value)?;
                continue;
            }
            let Some(part) = parts.iter().find(|p| p.name == pair.key.text) else {
                let names: Vec<_> = parts.iter().map(|p| p.name).collect();
                return Err(pair.key.error(format!("a field of {name}: {}", names.join(", "))));
            };
            let (value, mask) = read_part(part.kind, pair.value)?;
            self.put(part.place, value, mask);
            let family = match (name, part.kind) {
                ("ct_tuple6", Kind::Ipv6) => Some(at::CT_IS_IPV6),
                _ => None,
            };
            if let Some(span) = family {
                self.put(Place::whole(span), 1, 1);
            }
        }
        Ok(())
    }

    fn in_port(&mut self, text: Piece<'_>) -> Result<(), SyntaxError> {
        let (number, mask) = match (self.port)(text.text) {
            Some(port) => (u128::from(port), ones(32)),
            None => masked_number(text, 32)
                .map_err(|e| SyntaxError { expected: "the number or name of a datapath port".to_owned(), ..e })?,
        };
        self.put(Place::whole(at::IN_PORT), number, mask);
        Ok(())
    }

    /// `ns=0,id=0`: a frame; `ns=1,id=TYPE`: a packet of that Ethernet type without an Ethernet header.
    fn packet_type(&mut self, text: Piece<'_>) -> Result<(), SyntaxError> {
        let (mut space, mut kind) = (0, 0);
        let mut rest = text;
        while let Some(pair) = rest.next_pair()? {
            let number = match pair.key.text {
                "ns" => &mut space,
                "id" => &mut kind,
                _ => return Err(pair.key.error("ns or id")),
            };
            (*number, _) = masked_number(pair.value, 16)?;
        }
        match (space, kind) {
            (0, 0) => {}
            (1, _) => {
                self.put(Place::whole(at::TUN_PAYLOAD), at::PAYLOAD_BARE.into(), u128::MAX);
                self.put(Place::whole(at::DL_TYPE), kind, 0xffff);
                self.ethertype_open = false;
            }
            _ => return Err(text.error("ns=0,id=0 or ns=1,id=ETHERNET-TYPE")),
        }
        Ok(())
    }

    /// The type in front of a tag is the tag's; the last one is the packet's.
    fn ethertype(&mut self, text: Piece<'_>) -> Result<(), SyntaxError> {
        let (value, mask) = masked_number(text, 16)?;
        // A type of zero is how "none" is written.
        let value = if value == 0 && mask == 0xffff { NO_ETHERTYPE } else { value };
        self.ethertype_open = false;
        self.put(Place::whole(at::DL_TYPE), value, mask);
        Ok(())
    }

    fn tag(&mut self, text: Piece<'_>) -> Result<(), SyntaxError> {
        let (tpid, tci) = match self.tags {
            0 => (at::VLAN0_TPID, at::VLAN0_TCI),
            1 => (at::VLAN1_TPID, at::VLAN1_TCI),
            _ => return Err(text.conflict("a third tag", "at most two")),
        };
        self.tags += 1;
        let dl_type = Place::whole(at::DL_TYPE);
        self.put(Place::whole(tpid), dl_type.read(&self.key), dl_type.read(&self.mask));
        self.put(dl_type, 0, 0);
        self.ethertype_open = true;
        let present = Place { span: tci, lsb: 12, n_bits: 1 };
        self.put(present, 1, 1);
        let mut rest = text;
        while let Some(pair) = rest.next_pair()? {
            let (place, bits) = match pair.key.text {
                "vid" => (Place { span: tci, lsb: 0, n_bits: 12 }, 12),
                "pcp" => (Place { span: tci, lsb: 13, n_bits: 3 }, 3),
                "cfi" => (present, 1),
                _ => return Err(pair.key.error("vid, pcp or cfi")),
            };
            let (value, mask) = masked_number(pair.value, bits)?;
            self.put(place, value, mask);
        }
        Ok(())
    }

    fn labels(&mut self, text: Piece<'_>) -> Result<(), SyntaxError> {
        let entries = [at::MPLS0, at::MPLS1, at::MPLS2];
        let mut entry = 0;
        let mut rest = text;
        let mut first = true;
        while let Some(pair) = rest.next_pair()? {
            if pair.key.text == "label" && !std::mem::take(&mut first) {
                entry += 1;
            }
            let Some(span) = entries.get(entry).copied() else {
                return Err(pair.key.conflict("a fourth label", "at most three"));
            };
            let (lsb, n_bits) = match pair.key.text {
                "label" => (12, 20),
                "tc" => (9, 3),
                "bos" => (8, 1),
                "ttl" => (0, 8),
                _ => return Err(pair.key.error("label, tc, ttl or bos")),
            };
            let (value, mask) = masked_number(pair.value, n_bits)?;
            self.put(Place { span, lsb, n_bits }, value, mask);
        }
        Ok(())
    }
}

fn read_part(kind: Kind, text: Piece<'_>) -> Result<(u128, u128), SyntaxError> {
    match kind {
        Kind::Number(bits) => {
            let (value, mask) = masked_number(text, bits)?;
            // All the bits of the text are all the bits of the key, which may have more.
            Ok((value, if mask == ones(bits) { u128::MAX } else { mask }))
        }
        Kind::Mac => match text.split_once("/") {
            Some((value, mask)) => Ok((mac(value)?.number(), mac(mask)?.number())),
            None => Ok((mac(text)?.number(), u128::MAX)),
        },
        Kind::Ipv4 => masked_address(text, 32, |t| ipv4(t).map(|a| u128::from(u32::from(a)))),
        Kind::Ipv6 => masked_address(text, 128, |t| ipv6(t).map(u128::from)),
        Kind::Frag => match text.text {
            "no" => Ok((0, 3)),
            "first" => Ok((1, 3)),
            "later" => Ok((3, 3)),
            _ => Err(text.error("no, first or later")),
        },
    }
}

pub(super) fn masked_number(text: Piece<'_>, bits: u32) -> Result<(u128, u128), SyntaxError> {
    match text.split_once("/") {
        Some((value, mask)) => Ok((integer(value, bits)?, integer(mask, bits)?)),
        None => Ok((integer(text, bits)?, ones(bits))),
    }
}
