//! Makes the datapath catch up with the key: from what the packet looks like to what the rules made of it.
//!
//! Rules change a key, never a packet. Just before something leaves (an output, a controller message, a
//! recirculation), the differences between the key the datapath last had (`base`) and the key now become actions.
//! A set action carries the fields that differ, each under the bits that the megaflow matches or the rules wrote:
//! these are the bits that are known, and OVS prints them so.
//!
//! Order of the actions: Ethernet, labels that go, network header, ports, labels that come, tags, priority, mark.

use super::protocol::{ethertype_of, ip_proto_of, is_ip, is_mpls};
use super::tags::{self, Behind};
use sluice_action::{Action, Header, MaskedField};
use sluice_flow::FlowKey;
use sluice_flow::layout::{self, Span};
use sluice_packet::headers::{ethertype, ip_proto};

/// Appends to `out` what turns `base` into `flow`, and makes `base` equal to it.
///
/// Tags that are popped and ICMP fields that change enter the mask whole; everything else that changed is in it since
/// the change.
///
/// `tags_replaced`: a tag was taken off or put on on the way, so one that looks like it may have come from elsewhere.
pub fn commit(flow: &FlowKey, base: &mut FlowKey, wc: &mut FlowKey, tags_replaced: bool, out: &mut Vec<Action>) {
    set(Header::Ethernet, &[layout::DL_SRC, layout::DL_DST], flow, base, wc, out);
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

/// A set action for the fields of one header that differ, if any does.
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

/// IPv4, IPv6, neighbour discovery or ARP, where both keys have that header.
///
/// Like OVS, protocol 0 is taken to mean that the header is not there. So the protocol decides, and enters the mask;
/// OVS sees to that in the actions that set fields, but not in `move` and `pop`.
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
        // RARP has the same fields but no set action, in OVS: it stays as it is.
        ethertype::ARP => &[(Header::Arp, ARP)],
        _ => return,
    };
    for (header, spans) in headers {
        if spans.iter().any(|&span| flow.get(span) != base.get(span)) {
            wc.set_number(NW_PROTO, 0xff);
            if flow.number(NW_PROTO) != 0 {
                set(*header, spans, flow, base, wc, out);
            }
        }
    }
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

/// ICMP type and code are set together, so both become exact.
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

/// Labels: sets the one that may differ on top of the common bottom, pops the others, pushes what is missing.
///
/// An entry is set whole, so what it was must be matched whole. OVS 3.1 matches only what was changed, and then gives
/// every packet of the megaflow the other parts of the first one's label.
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
            // While labels remain, the packet stays MPLS, whatever it becomes in the end.
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
        // It may be one that was there and had been taken off for a copy of the packet.
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

/// Tags: keeps the common inner ones, pops the rest, pushes what is missing.
///
/// A tag that was taken off and put on anew may be the same only by chance; then what it was matters. OVS 3.1 forgets
/// that: after `strip_vlan,mod_vlan_vid:5`, packets of VLAN 5 with another protocol id or priority would keep theirs.
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
