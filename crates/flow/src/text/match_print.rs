//! Writing matches.

use super::flags;
use super::number::{show_hex, show_ipv4, show_ipv6, show_mac};
use super::value::{fragment_name, show_wide};
use crate::field::{FieldId, Place, ones};
use crate::layout::{self, Span};
use crate::prereq::shorthand;
use crate::{DEFAULT_PRIORITY, Match, OfPort, PortNames};
use sluice_packet::headers::{ethertype, ip_proto};
use std::fmt::{self, Write};

/// A match as text, `priority=…` first unless it is the default.
#[derive(Clone, Copy, Debug)]
pub struct DisplayMatch<'a> {
    matches: &'a Match,
    ports: &'a PortNames,
    priority: u32,
}

impl Match {
    /// The match as `dump-flows` writes it, with `priority=…` first unless that is the default, and ports by the names
    /// they have.
    pub fn display<'a>(&'a self, ports: &'a PortNames, priority: impl Into<u32>) -> DisplayMatch<'a> {
        DisplayMatch { matches: self, ports, priority: priority.into() }
    }
}

/// The match without a priority, and ports by number.
impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.display(&PortNames::NONE, DEFAULT_PRIORITY).fmt(f)
    }
}

impl fmt::Display for DisplayMatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Items { f, first: true, matches: self.matches };
        if self.priority != DEFAULT_PRIORITY.into() {
            out.item(format_args!("priority={}", self.priority))?;
        }
        out.context(self.ports)?;
        let said = out.protocol()?;
        (0..16).try_for_each(|i| out.hex(&format!("reg{i}"), layout::reg(i)))?;
        out.tunnel()?;
        out.hex("metadata", layout::METADATA)?;
        if let Some(port) = out.value(layout::IN_PORT) {
            out.item(format_args!("in_port={}", self.ports.display(OfPort(port as u16))))?;
        }
        out.vlan("", layout::VLAN0_TCI)?;
        if out.mask(layout::VLAN0_TCI) != 0 {
            out.vlan("1", layout::VLAN1_TCI)?;
        }
        out.ethernet("dl_src", layout::DL_SRC)?;
        out.ethernet("dl_dst", layout::DL_DST)?;
        if !said.ethertype
            && let Some(dl_type) = out.value(layout::DL_TYPE)
        {
            out.item(format_args!("dl_type={dl_type:#06x}"))?;
        }
        out.network(said.proto)?;
        out.mpls()?;
        out.fragment()?;
        out.transport()
    }
}

/// What the word for the protocol (`tcp`, `ip`) has already printed.
struct Said {
    ethertype: bool,
    proto: bool,
}

/// Items of a match, with commas between them.
struct Items<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    first: bool,
    matches: &'a Match,
}

impl Items<'_, '_> {
    fn item(&mut self, text: fmt::Arguments<'_>) -> fmt::Result {
        if !std::mem::take(&mut self.first) {
            self.f.write_char(',')?;
        }
        self.f.write_fmt(text)
    }

    fn key(&self, span: Span) -> u128 {
        Place::whole(span).read(&self.matches.key)
    }

    fn mask(&self, span: Span) -> u128 {
        Place::whole(span).read(&self.matches.mask)
    }

    /// The value, if the match looks at any bit of it.
    fn value(&self, span: Span) -> Option<u128> {
        (self.mask(span) != 0).then(|| self.key(span))
    }

    /// `name=0xVALUE`, with `/0xMASK` unless exact.
    fn hex(&mut self, name: &str, span: Span) -> fmt::Result {
        let Some(value) = self.value(span) else { return Ok(()) };
        match self.mask(span) {
            mask if mask == ones(8 * span.size as u32) => self.item(format_args!("{name}={}", show_hex(value))),
            mask => self.item(format_args!("{name}={}/{}", show_hex(value), show_hex(mask))),
        }
    }

    /// `name=VALUE`, or `name=0xVALUE/0xMASK` with this many digits.
    fn decimal(&mut self, name: &str, span: Span, digits: usize) -> fmt::Result {
        let Some(value) = self.value(span) else { return Ok(()) };
        match self.mask(span) {
            mask if mask == ones(8 * span.size as u32) => self.item(format_args!("{name}={value}")),
            mask => self.item(format_args!("{name}=0x{value:0digits$x}/0x{mask:0digits$x}")),
        }
    }

    fn ipv4(&mut self, name: &str, place: Place) -> fmt::Result {
        match place.read(&self.matches.mask) {
            0 => Ok(()),
            mask => self.item(format_args!("{name}={}", show_ipv4(place.read(&self.matches.key), mask))),
        }
    }

    fn ipv6(&mut self, name: &str, span: Span) -> fmt::Result {
        let Some(value) = self.value(span) else { return Ok(()) };
        self.item(format_args!("{name}={}", show_ipv6(value, self.mask(span))))
    }

    fn ethernet(&mut self, name: &str, span: Span) -> fmt::Result {
        let Some(value) = self.value(span) else { return Ok(()) };
        self.item(format_args!("{name}={}", show_mac(value, self.mask(span))))
    }

    /// Datapath and connection fields.
    fn context(&mut self, ports: &PortNames) -> fmt::Result {
        self.hex("pkt_mark", layout::PKT_MARK)?;
        self.hex("recirc_id", layout::RECIRC_ID)?;
        self.hex("dp_hash", layout::DP_HASH)?;
        if let Some(id) = self.value(layout::CONJ_ID) {
            self.item(format_args!("conj_id={id}"))?;
        }
        if let Some(priority) = self.value(layout::SKB_PRIORITY) {
            self.item(format_args!("skb_priority={}", show_hex(priority)))?;
        }
        if let Some(port) = self.value(layout::ACTSET_OUTPUT) {
            self.item(format_args!("actset_output={}", ports.display(OfPort(port as u16))))?;
        }
        if let Some(state) = self.value(layout::CT_STATE) {
            let shown = flags::CT_STATE.show(state, self.mask(layout::CT_STATE), flags::CT_STATE.all());
            self.item(format_args!("ct_state={shown}"))?;
        }
        self.decimal("ct_zone", layout::CT_ZONE, 1)?;
        self.hex("ct_mark", layout::CT_MARK)?;
        self.hex("ct_label", layout::CT_LABEL)?;
        let is_ipv6 = self.key(layout::CT_IS_IPV6) != 0;
        for (v4, v6, span) in
            [("ct_nw_src", "ct_ipv6_src", layout::CT_SRC), ("ct_nw_dst", "ct_ipv6_dst", layout::CT_DST)]
        {
            if is_ipv6 { self.ipv6(v6, span)? } else { self.ipv4(v4, first_word(span))? }
        }
        if let Some(proto) = self.value(layout::CT_NW_PROTO) {
            self.item(format_args!("ct_nw_proto={proto}"))?;
            self.decimal("ct_tp_src", layout::CT_TP_SRC, 1)?;
            self.decimal("ct_tp_dst", layout::CT_TP_DST, 1)?;
        }
        Ok(())
    }

    /// The packet type or the word for Ethernet type and protocol.
    fn protocol(&mut self) -> Result<Said, fmt::Error> {
        let packet_type = self.key(layout::PACKET_TYPE);
        if packet_type != 0 {
            let (space, kind) = (packet_type >> 16, packet_type & 0xffff);
            // C's `%#x` writes zero without a prefix.
            let prefix = if kind == 0 { "" } else { "0x" };
            self.item(format_args!("packet_type=({space},{prefix}{kind:x})"))?;
        } else if self.mask(layout::RECIRC_ID) != 0
            && (self.mask(layout::PACKET_TYPE) != 0 || self.matches.asks_for_headers())
        {
            // A megaflow always depends on the packet type; a rule does where it asks for what only some packets have.
            self.item(format_args!("eth"))?;
        }
        let mut said = Said { ethertype: false, proto: false };
        if self.mask(layout::DL_TYPE) != 0 {
            let proto = self.value(layout::NW_PROTO).map(|p| p as u8);
            let ip = matches!(self.matches.dl_type(), Some(ethertype::IPV4 | ethertype::IPV6));
            let word = self.matches.dl_type().and_then(|t| shorthand(t, proto.filter(|_| ip)));
            if let Some((word, says_proto)) = word {
                self.item(format_args!("{word}"))?;
                said = Said { ethertype: true, proto: says_proto };
            }
        }
        Ok(said)
    }

    fn tunnel(&mut self) -> fmt::Result {
        self.hex("tun_id", layout::TUN_ID)?;
        self.ipv4("tun_src", Place::whole(layout::TUN_IPV4_SRC))?;
        self.ipv4("tun_dst", Place::whole(layout::TUN_IPV4_DST))?;
        self.ipv6("tun_ipv6_src", layout::TUN_IPV6_SRC)?;
        self.ipv6("tun_ipv6_dst", layout::TUN_IPV6_DST)?;
        self.decimal("tun_gbp_id", layout::TUN_GBP_ID, 1)?;
        self.plain_hex("tun_gbp_flags", layout::TUN_GBP_FLAGS)?;
        if let Some(tos) = self.value(layout::TUN_TOS) {
            self.item(format_args!("tun_tos={tos:x}"))?;
        }
        self.plain("tun_ttl", layout::TUN_TTL)?;
        self.plain("tun_erspan_ver", layout::TUN_ERSPAN_VER)?;
        match self.key(layout::TUN_ERSPAN_VER) {
            1 => self.plain_hex("tun_erspan_idx", layout::TUN_ERSPAN_IDX)?,
            2 => {
                self.plain("tun_erspan_dir", layout::TUN_ERSPAN_DIR)?;
                self.plain_hex("tun_erspan_hwid", layout::TUN_ERSPAN_HWID)?;
            }
            _ => {}
        }
        self.plain_hex("gtpu_flags", layout::TUN_GTPU_FLAGS)?;
        self.plain("gtpu_msgtype", layout::TUN_GTPU_MSGTYPE)?;
        match self.mask(layout::TUN_FLAGS) & flags::TUNNEL.all() {
            0 => {}
            mask => {
                let shown = flags::TUNNEL.show(self.key(layout::TUN_FLAGS), mask, flags::TUNNEL.all());
                self.item(format_args!("tun_flags={shown}"))?;
            }
        }
        let matches = self.matches;
        matches.mask.tun_metadata.fields().try_for_each(|i| self.option(i))
    }

    /// A Geneve option: its value, or only that there is one, or that there is none (`NP`).
    fn option(&mut self, i: usize) -> fmt::Result {
        let (mask, key) = (&self.matches.mask.tun_metadata, &self.matches.key.tun_metadata);
        let mask = mask.value(i);
        if !key.has(i) {
            return self.item(format_args!("tun_metadata{i}=NP"));
        }
        match FieldId::tun_metadata(i).map(FieldId::field) {
            Some(field) if !mask.is_zero() => {
                let shown = show_wide(field, key.value(i), mask, &PortNames::NONE).to_string();
                self.item(format_args!("tun_metadata{i}={shown}"))
            }
            _ => self.item(format_args!("tun_metadata{i}")),
        }
    }

    /// `name=VALUE`, whatever the mask.
    fn plain(&mut self, name: &str, span: Span) -> fmt::Result {
        self.value(span).map_or(Ok(()), |value| self.item(format_args!("{name}={value}")))
    }

    /// `name=0xVALUE`, whatever the mask.
    fn plain_hex(&mut self, name: &str, span: Span) -> fmt::Result {
        self.value(span).map_or(Ok(()), |value| self.item(format_args!("{name}={}", show_hex(value))))
    }

    /// A tag: as VLAN id and priority where the mask covers whole parts and the tag must be there, else as a number.
    fn vlan(&mut self, suffix: &str, span: Span) -> fmt::Result {
        let Some(tci) = self.value(span) else { return Ok(()) };
        let mask = self.mask(span);
        let (vid, pcp) = (mask & 0xfff, mask & 0xe000);
        let whole = (vid == 0 || vid == 0xfff) && (pcp == 0 || pcp == 0xe000) && (vid != 0 || pcp != 0);
        if mask & 0x1000 != 0 && tci & 0x1000 != 0 && whole {
            if vid != 0 {
                self.item(format_args!("dl_vlan{suffix}={}", tci & 0xfff))?;
            }
            if pcp != 0 {
                self.item(format_args!("dl_vlan_pcp{suffix}={}", tci >> 13))?;
            }
            return Ok(());
        }
        match mask {
            0xffff => self.item(format_args!("vlan_tci{suffix}={tci:#06x}")),
            _ => self.item(format_args!("vlan_tci{suffix}={tci:#06x}/{mask:#06x}")),
        }
    }

    /// The network header.
    fn network(&mut self, proto_said: bool) -> fmt::Result {
        let dl_type = self.matches.dl_type();
        let is_arp = matches!(dl_type, Some(ethertype::ARP | ethertype::RARP));
        match dl_type {
            Some(ethertype::IPV6) => {
                self.ipv6("ipv6_src", layout::IPV6_SRC)?;
                self.ipv6("ipv6_dst", layout::IPV6_DST)?;
                self.ipv6_label()?;
            }
            Some(ethertype::NSH) => self.nsh()?,
            _ => {
                let (src, dst) = if is_arp { ("arp_spa", "arp_tpa") } else { ("nw_src", "nw_dst") };
                self.ipv4(src, Place::whole(layout::NW_SRC))?;
                self.ipv4(dst, Place::whole(layout::NW_DST))?;
            }
        }
        if !proto_said {
            self.plain(if is_arp { "arp_op" } else { "nw_proto" }, layout::NW_PROTO)?;
        }
        if is_arp {
            self.ethernet("arp_sha", layout::ARP_SHA)?;
            self.ethernet("arp_tha", layout::ARP_THA)?;
        }
        let (tos, mask) = (self.key(layout::NW_TOS), self.mask(layout::NW_TOS));
        if mask & 0xfc != 0 {
            self.item(format_args!("nw_tos={}", tos & 0xfc))?;
        }
        if mask & 3 != 0 {
            self.item(format_args!("nw_ecn={}", tos & 3))?;
        }
        self.plain("nw_ttl", layout::NW_TTL)
    }

    fn ipv6_label(&mut self) -> fmt::Result {
        let Some(label) = self.value(layout::IPV6_LABEL) else { return Ok(()) };
        match self.mask(layout::IPV6_LABEL) {
            0xffff_ffff => self.item(format_args!("ipv6_label={label:#07x}")),
            mask => self.item(format_args!("ipv6_label={label:#07x}/{mask:#07x}")),
        }
    }

    fn nsh(&mut self) -> fmt::Result {
        for (name, span) in [
            ("nsh_flags", layout::NSH_FLAGS),
            ("nsh_ttl", layout::NSH_TTL),
            ("nsh_mdtype", layout::NSH_MDTYPE),
            ("nsh_np", layout::NSH_NP),
        ] {
            self.decimal(name, span, 2)?;
        }
        let path = self.key(layout::NSH_PATH);
        match self.mask(layout::NSH_PATH) >> 8 {
            0 => {}
            0xff_ffff => self.item(format_args!("nsh_spi={:#x}", path >> 8))?,
            mask => self.item(format_args!("nsh_spi={:#x}/{mask:#x}", path >> 8))?,
        }
        if self.mask(layout::NSH_PATH) & 0xff != 0 {
            self.item(format_args!("nsh_si={}", path & 0xff))?;
        }
        if self.value(layout::NSH_MDTYPE) != Some(1) {
            return Ok(());
        }
        (0..4).try_for_each(|i| {
            let span = Span { offset: layout::NSH_CONTEXT.offset + 4 * i, size: 4 };
            let Some(value) = self.value(span) else { return Ok(()) };
            match self.mask(span) {
                0xffff_ffff => self.item(format_args!("nsh_c{}={value:#x}", i + 1)),
                mask => self.item(format_args!("nsh_c{}={value:#x}/{mask:#x}", i + 1)),
            }
        })
    }

    fn mpls(&mut self) -> fmt::Result {
        for id in [FieldId::MplsLabel, FieldId::MplsTc, FieldId::MplsTtl, FieldId::MplsBos] {
            let (value, mask) = self.matches.field(id);
            if mask != 0 {
                self.item(format_args!("{}={value}", id.field().name))?;
            }
        }
        self.decimal("mpls_lse1", layout::MPLS1, 8)?;
        self.decimal("mpls_lse2", layout::MPLS2, 8)
    }

    fn fragment(&mut self) -> fmt::Result {
        match self.mask(layout::NW_FRAG) & 3 {
            0 => Ok(()),
            mask => self.item(format_args!("nw_frag={}", fragment_name(self.key(layout::NW_FRAG), mask))),
        }
    }

    /// The transport header.
    fn transport(&mut self) -> fmt::Result {
        let proto = self.key(layout::NW_PROTO) as u8;
        let dl_type = self.matches.dl_type();
        let is_icmpv6 = (dl_type, proto) == (Some(ethertype::IPV6), ip_proto::ICMPV6);
        let (src, dst) = match (dl_type, proto) {
            _ if is_icmpv6 => ("icmp_type", "icmp_code"),
            (Some(ethertype::IPV4), ip_proto::ICMP) => ("icmp_type", "icmp_code"),
            _ => ("tp_src", "tp_dst"),
        };
        self.decimal(src, layout::TP_SRC, 1)?;
        self.decimal(dst, layout::TP_DST, 1)?;
        if is_icmpv6 {
            self.ipv6("nd_target", layout::ND_TARGET)?;
            self.ethernet("nd_sll", layout::ARP_SHA)?;
            self.ethernet("nd_tll", layout::ARP_THA)?;
            self.decimal("nd_reserved", layout::ND_RESERVED, 8)?;
            return self.decimal("nd_options_type", layout::TCP_FLAGS, 1);
        }
        match self.mask(layout::TCP_FLAGS) & flags::TCP.all() {
            0 => Ok(()),
            mask if proto == ip_proto::TCP && matches!(dl_type, Some(ethertype::IPV4 | ethertype::IPV6)) => {
                let shown = flags::TCP.show(self.key(layout::TCP_FLAGS), mask, flags::TCP.all());
                self.item(format_args!("tcp_flags={shown}"))
            }
            _ => Ok(()),
        }
    }
}

/// An IPv4 address in the first four bytes of a span.
fn first_word(span: Span) -> Place {
    Place { span, lsb: 8 * (span.size as u32 - 4), n_bits: 32 }
}
