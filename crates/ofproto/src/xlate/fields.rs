//! Actions that read and write fields of the key.

use super::{Translator, protocol, tags};
use crate::recirc::StackValue;
use sluice_flow::field::Prereq;
use sluice_flow::layout;
use sluice_flow::text::number::show_hex;
use sluice_flow::{FieldId, SubField};
use sluice_ofp::OfAction;
use sluice_packet::headers::{ethertype, ip_proto};

impl Translator<'_> {
    /// Actions that only change the key.
    pub(super) fn change_field(&mut self, action: &OfAction) {
        match action {
            OfAction::SetField { field, value, mask } => self.set_field(*field, *value, *mask),
            OfAction::SetOption(set) => {
                let field = set.field.field();
                field.set_mask_wide(self.wc, set.mask);
                let value = field.get_wide(self.flow).replaced(&set.value, &set.mask);
                field.set_wide(self.flow, value);
            }
            OfAction::Load { dst, value } if dst.field.field().is_wide() => self.load(*dst, *value),
            OfAction::Load { dst, value } => self.set_field(dst.field, value << dst.start, dst.mask()),
            OfAction::Move { src, dst } => self.copy(*src, *dst),
            OfAction::StackPush(field) => self.push(*field),
            OfAction::StackPop(field) => self.pop(*field),
            OfAction::SetVlanVid { vid, push_if_needed } => {
                self.set_tci(tags::VID, (*vid).into(), *push_if_needed);
            }
            OfAction::SetVlanPcp { pcp, push_if_needed } => {
                self.set_tci(tags::PCP, u64::from(*pcp) << 13, *push_if_needed);
            }
            OfAction::StripVlan | OfAction::PopVlan => {
                tags::pop_tag(self.flow, self.wc);
                self.tags_replaced = true;
            }
            OfAction::PushVlan { tpid } => {
                tags::push_tag(self.flow, self.wc, *tpid);
                self.tags_replaced = true;
            }
            OfAction::SetMplsLabel(label) => self.set_label_bits(0xffff_f000, label << 12),
            OfAction::SetMplsTc(tc) => self.set_label_bits(0xe00, u32::from(*tc) << 9),
            OfAction::SetMplsTtl(ttl) => self.set_label_bits(0xff, (*ttl).into()),
            OfAction::DeleteField(field) => field.field().delete(self.flow),
            OfAction::SetTunnel { id, .. } => self.flow.set_number(layout::TUN_ID, *id),
            OfAction::SetQueue(queue) => {
                self.look_at(layout::SKB_PRIORITY, u64::MAX);
                self.flow.set_number(layout::SKB_PRIORITY, (*queue).into());
            }
            OfAction::PopQueue => self.pop_queue(),
            OfAction::WriteMetadata { metadata, mask } => {
                let old = self.number(layout::METADATA);
                self.flow.set_number(layout::METADATA, old & !mask | metadata & mask);
            }
            _ => self.set_header(action),
        }
    }

    /// The `mod_*` actions of OpenFlow 1.0.
    fn set_header(&mut self, action: &OfAction) {
        use layout::{DL_DST, DL_SRC, NW_DST, NW_SRC, NW_TOS, NW_TTL, TP_DST, TP_SRC};
        match action {
            OfAction::ModDlSrc(mac) => self.write(DL_SRC, &mac.0),
            OfAction::ModDlDst(mac) => self.write(DL_DST, &mac.0),
            OfAction::ModNwSrc(ip) if self.ethertype() == ethertype::IPV4 => self.write_address(NW_SRC, &ip.octets()),
            OfAction::ModNwDst(ip) if self.ethertype() == ethertype::IPV4 => self.write_address(NW_DST, &ip.octets()),
            OfAction::ModNwTos(tos) if self.is_ip() => self.write_bits(NW_TOS, 0xfc, (*tos).into()),
            OfAction::ModNwEcn(ecn) if self.is_ip() => self.write_bits(NW_TOS, 0x03, (*ecn).into()),
            OfAction::ModNwTtl(ttl) if self.is_ip() => self.write_bits(NW_TTL, 0xff, (*ttl).into()),
            OfAction::ModTpSrc(port) => self.set_port(TP_SRC, *port),
            OfAction::ModTpDst(port) => self.set_port(TP_DST, *port),
            _ => {}
        }
    }

    fn write(&mut self, span: layout::Span, value: &[u8]) {
        self.wc.get_mut(span).fill(0xff);
        self.flow.set(span, value);
    }

    fn write_address(&mut self, span: layout::Span, value: &[u8]) {
        self.look_at(layout::NW_PROTO, 0xff);
        self.write(span, value);
    }

    fn write_bits(&mut self, span: layout::Span, mask: u64, value: u64) {
        self.look_at(layout::NW_PROTO, 0xff);
        self.look_at(span, mask);
        let old = self.number(span);
        self.flow.set_number(span, old & !mask | value & mask);
    }

    /// Writes the six bits above those of congestion.
    pub(super) fn write_dscp(&mut self, dscp: u8) {
        self.write_bits(layout::NW_TOS, 0xfc, u64::from(dscp) << 2);
    }

    fn set_port(&mut self, span: layout::Span, port: u16) {
        if self.is_ip() && self.number(layout::NW_FRAG) & 2 == 0 {
            self.look_at(layout::NW_PROTO, 0xff);
            self.write(span, &port.to_be_bytes());
        }
    }

    fn set_tci(&mut self, bits: u64, value: u64, push_if_needed: bool) {
        tags::look_at_tci(self.wc, 0, bits | tags::CFI);
        let mut tag = tags::tag(self.flow, 0);
        if u64::from(tag.tci) & tags::CFI != 0 || push_if_needed {
            if tag.tpid == 0 {
                tag.tpid = ethertype::VLAN;
            }
            tag.tci = (u64::from(tag.tci) & !bits | value & bits | tags::CFI) as u16;
            tags::set_tag(self.flow, 0, tag);
        }
    }

    fn set_label_bits(&mut self, bits: u32, value: u32) {
        if ethertype::is_mpls(self.ethertype()) {
            tags::look_at_label(self.wc, 0, bits.into());
            let lse = tags::label(self.flow, 0) & !bits | value & bits;
            tags::set_label(self.flow, 0, lse);
        }
    }

    fn pop_queue(&mut self) {
        self.look_at(layout::SKB_PRIORITY, u64::MAX);
        let original = self.original.number(layout::SKB_PRIORITY);
        if self.number(layout::SKB_PRIORITY) != original {
            self.flow.set_number(layout::SKB_PRIORITY, original);
            self.detail(&format!("queue = {}", show_hex(original.into())));
        }
    }

    /// Writes `mask` bits of a field, if the packet has it.
    fn set_field(&mut self, field: FieldId, value: u128, mask: u128) {
        if !self.has_field(field) {
            let name = field.field().name;
            return self.warn(&format!("unmet prerequisites for {name}, set_field ignored"));
        }
        if is_in_network_header(field) && self.ethertype() != ethertype::RARP {
            // The protocol decides whether there is a header to change, see `commit`. That of RARP is never changed.
            self.look_at(layout::NW_PROTO, 0xff);
        }
        let f = field.field();
        self.look_at_field(field, mask);
        let value = f.get(self.flow) & !mask | value & mask;
        f.set(self.flow, value);
        self.fix_tpid();
    }

    /// Adds bits of a field to the mask. Of an IPv6 flow label only its 20 bits, unlike in a match, as OVS prints it.
    pub(super) fn look_at_field(&mut self, field: FieldId, mask: u128) {
        match field {
            FieldId::Ipv6Label => self.look_at(layout::IPV6_LABEL, mask as u64 & 0xf_ffff),
            _ => field.field().set_mask(self.wc, mask),
        }
    }

    /// Writes bits without checking that the packet has the field: the rule was checked for that.
    pub(super) fn load(&mut self, dst: SubField, value: u128) {
        self.look_at_bits(dst);
        dst.set(self.flow, value);
        self.fix_tpid();
    }

    /// Adds bits of a field to the mask.
    pub(super) fn look_at_bits(&mut self, bits: SubField) {
        match bits.field.field() {
            field if field.is_wide() => field.set_mask_wide(self.wc, bits.mask_wide()),
            _ => self.look_at_field(bits.field, bits.mask()),
        }
    }

    fn copy(&mut self, src: SubField, dst: SubField) {
        if self.has_field(dst.field) && self.has_field(src.field) {
            self.look_at_bits(src);
            self.look_at_bits(dst);
            if src.n_bits <= u128::BITS {
                let value = src.get(self.flow);
                dst.set(self.flow, value);
            } else {
                let value = src.get_wide(self.flow);
                dst.set_wide(self.flow, value);
            }
            self.fix_tpid();
        }
        self.report_value(dst);
    }

    fn push(&mut self, src: SubField) {
        self.look_at_bits(src);
        let value = match src.n_bits {
            0..=u128::BITS => src.get(self.flow).into(),
            _ => src.get_wide(self.flow).into(),
        };
        self.stack.push(StackValue { value, n_bytes: src.n_bits.div_ceil(8) });
    }

    fn pop(&mut self, dst: SubField) {
        match self.stack.pop() {
            Some(top) => {
                match dst.n_bits {
                    0..=u128::BITS => self.load(dst, top.value.low()),
                    _ => {
                        self.look_at_bits(dst);
                        dst.set_wide(self.flow, top.value.wide());
                    }
                }
                self.report_value(dst);
            }
            None => self.error(|| "stack underflow".to_owned()),
        }
    }

    /// Gives a tag that a write has created a protocol id. A write that clears a tag exposes the tag after it.
    fn fix_tpid(&mut self) {
        let mut tag = tags::tag(self.flow, 0);
        self.tags_replaced |= u64::from(tag.tci) & tags::CFI == 0 && tags::tag_count(self.base) > 0;
        if tag.tpid == 0 && tag.tci != 0 {
            tag.tpid = ethertype::VLAN;
            tags::set_tag(self.flow, 0, tag);
        }
    }

    /// Reports the new value of bits to the trace.
    pub(super) fn report_value(&mut self, field: SubField) {
        if self.tracer.is_some() {
            let value = field.get_wide(self.flow);
            let text = if field.is_whole() && !field.field.field().is_wide() {
                field.field.field().display(value.low()).to_string()
            } else {
                value.to_string()
            };
            self.detail(&format!("{field} is now {text}"));
        }
    }

    /// Whether the packet now has a field; adds the bits that tell to the mask.
    pub(super) fn has_field(&mut self, field: FieldId) -> bool {
        let ethertype = self.ethertype();
        let has_ports = |t: &Self| t.number(layout::NW_FRAG) & 2 == 0;
        match field.field().prereq {
            Prereq::None | Prereq::Ethernet => true,
            Prereq::Arp => matches!(ethertype, ethertype::ARP | ethertype::RARP),
            Prereq::Ipv4 => ethertype == ethertype::IPV4,
            Prereq::Ipv6 => ethertype == ethertype::IPV6,
            Prereq::IpAny => self.is_ip(),
            Prereq::Mpls => ethertype::is_mpls(ethertype),
            Prereq::VlanVid => {
                tags::look_at_tci(self.wc, 0, tags::CFI);
                u64::from(tags::tag(self.flow, 0).tci) & tags::CFI != 0
            }
            Prereq::CtValid => self.has_valid_connection(),
            // There is no NSH yet.
            Prereq::Nsh => false,
            Prereq::Tcp => self.is_proto(ip_proto::TCP) && has_ports(self),
            Prereq::Udp => self.is_proto(ip_proto::UDP) && has_ports(self),
            Prereq::Sctp => self.is_proto(ip_proto::SCTP) && has_ports(self),
            Prereq::Icmpv4 => ethertype == ethertype::IPV4 && self.is_proto(ip_proto::ICMP),
            Prereq::Icmpv6 => self.is_icmpv6(),
            Prereq::Nd => self.is_nd(),
            Prereq::NdSolicit => self.is_nd() && self.number(layout::TP_SRC) == 135,
            Prereq::NdAdvert => self.is_nd() && self.number(layout::TP_SRC) == 136,
        }
    }

    fn is_proto(&mut self, proto: u8) -> bool {
        if !self.is_ip() {
            return false;
        }
        self.look_at(layout::NW_PROTO, 0xff);
        protocol::ip_proto_of(self.flow) == proto
    }

    fn is_icmpv6(&mut self) -> bool {
        self.ethertype() == ethertype::IPV6 && self.is_proto(ip_proto::ICMPV6)
    }

    fn is_nd(&mut self) -> bool {
        if !self.is_icmpv6() {
            return false;
        }
        self.look_at(layout::TP_DST, 0xffff);
        if self.number(layout::TP_DST) != 0 {
            return false;
        }
        self.look_at(layout::TP_SRC, 0xffff);
        matches!(self.number(layout::TP_SRC), 135 | 136)
    }
}

/// Whether a field belongs to IPv4, IPv6 or ARP.
fn is_in_network_header(field: FieldId) -> bool {
    use FieldId::{ArpOp, ArpSha, ArpSpa, ArpTha, ArpTpa, IpDscp, IpEcn, IpTtl, Ipv4Dst, Ipv4Src, Ipv6Dst, Ipv6Label};
    matches!(
        field,
        Ipv4Src
            | Ipv4Dst
            | FieldId::Ipv6Src
            | Ipv6Dst
            | Ipv6Label
            | IpDscp
            | IpEcn
            | IpTtl
            | ArpOp
            | ArpSha
            | ArpTha
            | ArpSpa
            | ArpTpa
    )
}
