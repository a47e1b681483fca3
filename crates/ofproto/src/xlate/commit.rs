//! Commit: emits the datapath actions that make the datapath's packet equal to the key.
//!
//! OpenFlow actions change a key, not a packet. Just before something leaves (an output, a message to a controller, a
//! recirculation), the differences between `base`, the key of the datapath's packet, and the current key become
//! actions. A set action has the fields that differ, each with the bits that the megaflow matches or that actions
//! wrote: those are the known bits, and OVS prints them so.
//!
//! Order of the actions: Ethernet, popped labels, network header, ports, pushed labels, tags, priority, mark.

use super::protocol::{ethertype_of, ip_proto_of, is_ip, is_mpls};
use super::tags::{self, Behind};
use super::tunnel::{ECN, ECN_CE};
use sluice_action::{Action, Header, MaskedField};
use sluice_flow::layout::{self, FLOW_LINES, Span};
use sluice_flow::{FlowKey, Mac};
use sluice_packet::headers::{ethertype, ip_proto};

/// Appends the actions that turn `base` into `flow` to `out`, and makes `base` equal to `flow`.
///
/// Adds popped tags and changed ICMP fields to the mask as a whole. Other changed fields are in the mask already.
///
/// `tags_replaced`: a tag was popped or pushed, so an equal tag may be another one.
pub fn commit(flow: &FlowKey, base: &mut FlowKey, wc: &mut FlowKey, tags_replaced: bool, out: &mut Vec<Action>) {
    let is_registers = |line: usize| line == layout::REGS.line();
    if !tags_replaced && (0..FLOW_LINES).all(|i| is_registers(i) || flow.lines[i] == base.lines[i]) {
        // Most outputs are of packets that nothing has changed, and most of the others differ in registers alone.
        return;
    }
    if base.bare_type().is_none() && flow.bare_type().is_some() {
        // Tags go with their header.
        commit_tags(flow, base, wc, tags_replaced, out);
    }
    commit_ethernet(flow, base, wc, out);
    let labels_go = is_mpls(base) && !is_mpls(flow);
    if labels_go {
        commit_labels(flow, base, wc, out);
    }
    commit_network(flow, base, wc, out);
    commit_ports(flow, base, wc, out);
    commit_icmp(flow, base, wc, out);
    if !labels_go {
        commit_labels(flow, base, wc, out);
    }
    commit_tags(flow, base, wc, tags_replaced, out);
    set(Header::SkbPriority, &[layout::SKB_PRIORITY], flow, base, wc, out);
    set(Header::PktMark, &[layout::PKT_MARK], flow, base, wc, out);
}

/// Whether there is an Ethernet header, and its addresses.
fn commit_ethernet(flow: &FlowKey, base: &mut FlowKey, wc: &mut FlowKey, out: &mut Vec<Action>) {
    const ADDRESSES: [Span; 2] = [layout::DL_SRC, layout::DL_DST];
    match (base.bare_type(), flow.bare_type()) {
        (None, None) => return set(Header::Ethernet, &ADDRESSES, flow, base, wc, out),
        (Some(_), Some(_)) => {}
        (Some(_), None) => {
            let address = |span| Mac(flow.get(span).try_into().expect("invariant: an Ethernet address has six bytes"));
            out.push(Action::PushEth { src: address(layout::DL_SRC), dst: address(layout::DL_DST) });
            ADDRESSES.iter().for_each(|&span| base.set(span, flow.get(span)));
            // They are written as a whole, and may be those that the packet came with.
            ADDRESSES.iter().for_each(|&span| wc.get_mut(span).fill(0xff));
        }
        (None, Some(_)) => {
            out.push(Action::PopEth);
            ADDRESSES.iter().for_each(|&span| base.get_mut(span).fill(0));
        }
    }
    base.set_bare_type(flow.bare_type());
}

/// Emits a set action for the fields of one header that differ, if any.
fn set(header: Header, spans: &[Span], flow: &FlowKey, base: &mut FlowKey, wc: &FlowKey, out: &mut Vec<Action>) {
    let differ: Vec<Span> = spans.iter().copied().filter(|&span| flow.get(span) != base.get(span)).collect();
    if differ.is_empty() {
        return;
    }
    let fields = differ.iter().map(|&span| masked_field(span, flow, wc)).collect();
    out.push(Action::Set { header, fields });
    differ.iter().for_each(|&span| base.set(span, flow.get(span)));
}

fn masked_field(span: Span, flow: &FlowKey, wc: &FlowKey) -> MaskedField {
    let mut field = MaskedField { span, value: [0; 16], mask: [0; 16] };
    for (i, (value, mask)) in flow.get(span).iter().zip(wc.get(span)).enumerate() {
        field.value[i] = value & mask;
        field.mask[i] = *mask;
    }
    field
}

/// IPv4, IPv6, neighbour discovery or ARP, if both keys have that header.
///
/// As in OVS, protocol 0 means that there is no header. So the protocol decides and is added to the mask. OVS adds it
/// in the actions that set fields, but not in `move` and `pop`.
fn commit_network(flow: &FlowKey, base: &mut FlowKey, wc: &mut FlowKey, out: &mut Vec<Action>) {
    use layout::*;
    const IPV4: &[Span] = &[NW_SRC, NW_DST, NW_TOS, NW_TTL];
    const IPV6: &[Span] = &[IPV6_SRC, IPV6_DST, IPV6_LABEL, NW_TOS, NW_TTL];
    const ND_EXTENSIONS: &[Span] = &[ND_RESERVED, TCP_FLAGS];
    const ND: &[Span] = &[ND_TARGET, ARP_SHA, ARP_THA];
    const ARP: &[Span] = &[NW_SRC, NW_DST, NW_PROTO, ARP_SHA, ARP_THA];
    let ethertype = ethertype_of(base);
    if ethertype_of(flow) != ethertype {
        return;
    }
    let headers: &[(Header, &[Span])] = match ethertype {
        ethertype::IPV4 => &[(Header::Ipv4, IPV4)],
        ethertype::IPV6 if ip_proto_of(base) == ip_proto::ICMPV6 => {
            &[(Header::Ipv6, IPV6), (Header::Nd, ND_EXTENSIONS), (Header::Nd, ND)]
        }
        ethertype::IPV6 => &[(Header::Ipv6, IPV6)],
        // RARP has the same fields, but OVS has no set action for it.
        ethertype::ARP => &[(Header::Arp, ARP)],
        _ => return,
    };
    for (header, spans) in headers {
        let mut changed = spans.iter().filter(|&&span| flow.get(span) != base.get(span)).peekable();
        if changed.peek().is_none() {
            continue;
        }
        let has_header = changed.all(|span| *span == NW_TOS) && is_congestion_mark(flow, base, wc);
        if !has_header {
            wc.set_number(NW_PROTO, 0xff);
        }
        if has_header || flow.number(NW_PROTO) != 0 {
            set(*header, spans, flow, base, wc, out);
        }
    }
}

/// Whether all that changes of the type of service is that it takes over the mark of congestion of a tunnel. It had
/// another mark before, which packets must have to be of the megaflow: so they have the header.
fn is_congestion_mark(flow: &FlowKey, base: &FlowKey, wc: &FlowKey) -> bool {
    if flow.number(layout::TUN_TOS) & ECN != ECN_CE {
        return false;
    }
    let [now, before, seen] = [flow, base, wc].map(|key| key.number(layout::NW_TOS));
    (now ^ before) & !ECN == 0 && now & ECN == ECN_CE && before & ECN != 0 && seen & ECN == ECN
}

fn commit_ports(flow: &FlowKey, base: &mut FlowKey, wc: &mut FlowKey, out: &mut Vec<Action>) {
    if !is_ip(base) {
        return;
    }
    let header = match ip_proto_of(flow) {
        ip_proto::TCP => Header::Tcp,
        ip_proto::UDP => Header::Udp,
        ip_proto::SCTP => Header::Sctp,
        _ => return,
    };
    set(header, &[layout::TP_SRC, layout::TP_DST], flow, base, wc, out);
}

/// ICMP type and code are set together, so both are matched exactly.
fn commit_icmp(flow: &FlowKey, base: &mut FlowKey, wc: &mut FlowKey, out: &mut Vec<Action>) {
    let header = match (ethertype_of(flow), ip_proto_of(flow)) {
        (ethertype::IPV4, ip_proto::ICMP) => Header::Icmp,
        (ethertype::IPV6, ip_proto::ICMPV6) => Header::Icmpv6,
        _ => return,
    };
    let spans = [layout::TP_SRC, layout::TP_DST];
    if spans.iter().any(|&span| flow.get(span) != base.get(span)) {
        spans.iter().for_each(|&span| wc.set(span, &[0xff, 0xff]));
        let fields = spans.iter().map(|&span| masked_field(span, flow, wc)).collect();
        out.push(Action::Set { header, fields });
        spans.iter().for_each(|&span| base.set(span, flow.get(span)));
    }
}

/// Labels: pops all above the common bottom but one, sets that one, and pushes the missing ones.
///
/// A label stack entry is set as a whole, so it must be matched as a whole. OVS 3.1 matches only the changed bits, and
/// then every packet of the megaflow gets the other bits of the first packet's label.
fn commit_labels(flow: &FlowKey, base: &mut FlowKey, wc: &mut FlowKey, out: &mut Vec<Action>) {
    let mut base_n = tags::label_count(base, None);
    let first_n = base_n;
    let flow_n = tags::label_count(flow, None);
    let mut common = tags::common_labels(flow, flow_n, base, base_n);
    let ethertype = flow.number(layout::DL_TYPE) as u16;
    while base_n > common {
        if base_n - 1 == common && flow_n > common {
            let lse = tags::label(flow, flow_n - base_n);
            out.push(set_label_action(lse));
            tags::look_at_label(wc, first_n - base_n, 0xffff_ffff);
            tags::set_label(base, 0, lse);
            common += 1;
        } else {
            // The packet stays MPLS while labels remain.
            let next = if !is_mpls(flow) && base_n > 1 { ethertype::MPLS } else { ethertype };
            out.push(Action::PopMpls { ethertype: next });
            let popped = tags::pop_label(base, base_n, ethertype, None);
            debug_assert!(popped, "invariant: a key that could pop {base_n} labels did so when it was translated");
            base_n -= 1;
        }
    }
    while base_n < flow_n {
        let lse = tags::label(flow, flow_n - base_n - 1);
        out.push(Action::PushMpls { ethertype, lse });
        // It may be a label of the original packet that was popped for a copy.
        tags::look_at_label(wc, flow_n - base_n - 1, 0xffff_ffff);
        tags::push_label(base, base_n, ethertype, None, Behind::Keep);
        tags::set_label(base, 0, lse);
        base_n += 1;
    }
}

fn set_label_action(lse: u32) -> Action {
    let mut field = MaskedField { span: layout::MPLS0, value: [0; 16], mask: [0; 16] };
    field.value[..4].copy_from_slice(&lse.to_be_bytes());
    field.mask[..4].fill(0xff);
    Action::Set { header: Header::Mpls, fields: Box::new([field]) }
}

/// Tags: keeps the common inner ones, pops the rest, pushes the missing ones.
///
/// A new tag may happen to equal a popped one. That makes the value of the popped one part of the decision. OVS 3.1
/// does not match it: after `strip_vlan,mod_vlan_vid:5`, packets of VLAN 5 with another protocol id or priority would
/// keep theirs.
fn commit_tags(flow: &FlowKey, base: &mut FlowKey, wc: &mut FlowKey, tags_replaced: bool, out: &mut Vec<Action>) {
    let (mut base_n, mut flow_n) = (tags::tag_count(base), tags::tag_count(flow));
    while base_n > 0 && flow_n > 0 && tags::tag(base, base_n - 1) == tags::tag(flow, flow_n - 1) {
        if tags_replaced {
            tags::look_at_tag(wc, base_n - 1);
        }
        base_n -= 1;
        flow_n -= 1;
    }
    for i in (0..base_n).rev() {
        out.push(Action::PopVlan);
        tags::look_at_tag(wc, i);
    }
    for i in (0..flow_n).rev() {
        let tag = tags::tag(flow, i);
        out.push(Action::PushVlan { tpid: tag.tpid, tci: tag.tci });
    }
    (0..tags::MAX_TAGS).for_each(|i| tags::set_tag(base, i, tags::tag(flow, i)));
}
