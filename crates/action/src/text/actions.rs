//! Actions.

use super::DatapathPortNames;
use super::fields::{ARP_FIELDS, Fields, IPV4_FIELDS, IPV6_FIELDS, Lse, MPLS_FIELDS, ND_EXTENSIONS, ND_FIELDS, hex};
use super::key::{Attributes, Shown};
use super::tunnel;
use crate::{Action, HashAlgorithm, Header, MaskedField, SFlowAction};
use sluice_flow::PacketKey;
use sluice_flow::layout::{self as at, Span};
use std::fmt::{self, Formatter};

/// A list of actions; an empty one is `drop`.
pub fn show_actions<'a>(actions: &'a [Action], names: &'a DatapathPortNames) -> impl fmt::Display + 'a {
    fmt::from_fn(move |f| list(f, actions, names))
}

fn list(f: &mut Formatter<'_>, actions: &[Action], names: &DatapathPortNames) -> fmt::Result {
    if actions.is_empty() {
        return f.write_str("drop");
    }
    for (i, action) in actions.iter().enumerate() {
        if i != 0 {
            f.write_str(",")?;
        }
        show(f, action, names)?;
    }
    Ok(())
}

fn show(f: &mut Formatter<'_>, action: &Action, names: &DatapathPortNames) -> fmt::Result {
    let nested = |actions| fmt::from_fn(move |f| list(f, actions, names));
    match action {
        Action::Output(port) => write!(f, "{}", names.display(*port)),
        Action::BondOutput { bond, bucket } => match bond.0.port(*bucket) {
            Some(port) => write!(f, "{}", names.display(port)),
            None => f.write_str("drop"),
        },
        Action::LbOutput { bond, .. } => write!(f, "lb_output({})", bond.0.id()),
        Action::Set { header, fields } => write!(f, "set({})", set(*header, fields)),
        Action::SetTunnel(set) => {
            let options = set.options.iter().map(ToString::to_string).collect();
            write!(f, "set(tunnel({}))", tunnel::show(&set.key, None, options))
        }
        Action::TunnelPush(push) => {
            let (backend, out_port) = (names.display(push.backend), names.display(push.out_port));
            write!(f, "tnl_push(tnl_port({backend}),header({}),out_port({out_port}))", push.header)
        }
        Action::TunnelPop { backend, .. } => write!(f, "tnl_pop({})", names.display(*backend)),
        Action::PushEth { src, dst } => write!(f, "push_eth(src={src},dst={dst})"),
        Action::PopEth => f.write_str("pop_eth"),
        Action::PushVlan { tpid, tci } => {
            f.write_str("push_vlan(")?;
            if *tpid != 0x8100 {
                write!(f, "tpid=0x{tpid:04x},")?;
            }
            write!(f, "vid={},pcp={}", tci & 0xfff, tci >> 13)?;
            f.write_str(if tci & 0x1000 == 0 { ",cfi=0)" } else { ")" })
        }
        Action::PopVlan => f.write_str("pop_vlan"),
        Action::PushMpls { ethertype, lse } => write!(f, "push_mpls({},eth_type=0x{ethertype:x})", Lse((*lse).into())),
        Action::PopMpls { ethertype } => write!(f, "pop_mpls(eth_type=0x{ethertype:x})"),
        Action::Ct(ct) => super::ct::show(f, ct),
        Action::CtClear => f.write_str("ct_clear"),
        Action::Meter(meter) => write!(f, "meter({meter})"),
        Action::Hash { algorithm: HashAlgorithm::L4, basis } => write!(f, "hash(hash_l4({basis}))"),
        Action::Hash { algorithm: HashAlgorithm::SymmetricL4, basis } => write!(f, "hash(sym_l4({basis}))"),
        Action::Recirc(id) => write!(f, "recirc({})", hex((*id).into())),
        Action::Trunc(len) => write!(f, "trunc({len})"),
        Action::Clone(actions) => write!(f, "clone({})", nested(actions)),
        Action::Sample { probability, actions } => {
            write!(f, "sample(sample={:.1}%,actions({}))", percent(*probability), nested(actions))
        }
        Action::CheckPktLen { len, greater, less_or_equal } => {
            write!(f, "check_pkt_len(size={len},gt({}),le({}))", nested(greater), nested(less_or_equal))
        }
        Action::Controller { reason, controller_id, max_len, cookie, recirc_id, continuation } => write!(
            f,
            "userspace(pid=0,controller(reason={reason},dont_send=0,continuation={},recirc_id={recirc_id},\
             rule_cookie={},controller_id={controller_id},max_len={max_len}))",
            u8::from(*continuation),
            hex(*cookie)
        ),
        Action::SFlow(sflow) => show_sflow(f, sflow),
        Action::Bfd { .. } => f.write_str("userspace(pid=0,slow_path(bfd))"),
        Action::Lacp { .. } => f.write_str("userspace(pid=0,slow_path(lacp))"),
        Action::Drop => f.write_str("drop"),
    }
}

/// As Open vSwitch writes it: a sample of which userspace gets the packets, with its meter, or the latter alone if it gets
/// all.
fn show_sflow(f: &mut Formatter<'_>, sflow: &SFlowAction) -> fmt::Result {
    let (vid, pcp) = (sflow.dst_tci & 0xfff, sflow.dst_tci >> 13);
    let userspace = format_args!("userspace(pid=0,sFlow(vid={vid},pcp={pcp},output={}),actions)", sflow.output.0);
    let percent = percent(sflow.probability);
    match sflow.meter {
        Some(meter) => write!(f, "sample(sample={percent:.1}%,actions(meter({meter}),{userspace}))"),
        None if sflow.probability == u32::MAX => f.write_fmt(userspace),
        None => write!(f, "sample(sample={percent:.1}%,actions({userspace}))"),
    }
}

/// A share in 2^32.
fn percent(probability: u32) -> f64 {
    100.0 * f64::from(probability) / f64::from(u32::MAX)
}

/// A header with its fields that change, as the key's attribute of that name.
fn set(header: Header, fields: &[MaskedField]) -> String {
    if header == Header::SkbPriority {
        // Packets do not carry it, so it has no place in their keys.
        let number = |bytes: &[u8; 16]| bytes[..4].iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
        return fields.first().map_or_else(String::new, |field| format!("skb_priority({})", hex(number(&field.value))));
    }
    let (mut key, mut mask) = (PacketKey::ZERO, PacketKey::ZERO);
    for field in fields {
        key.set(field.span, &field.value[..field.span.size]);
        mask.set(field.span, &field.mask[..field.span.size]);
    }
    const PORTS: [Span; 2] = [at::TP_SRC, at::TP_DST];
    type Body = fn(&mut Fields);
    let (name, spans, body): (&str, &[Span], Body) = match header {
        Header::Ethernet => ("eth", &[at::DL_SRC, at::DL_DST], Fields::ethernet),
        Header::Ipv4 => ("ipv4", &IPV4_FIELDS, Fields::ipv4_header),
        Header::Ipv6 => ("ipv6", &IPV6_FIELDS, Fields::ipv6_header),
        Header::Arp => ("arp", &ARP_FIELDS, Fields::arp_header),
        Header::Nd if fields.iter().all(|f| ND_EXTENSIONS.contains(&f.span)) => {
            ("nd_ext", &ND_EXTENSIONS, Fields::neighbour_extensions)
        }
        Header::Nd => ("nd", &ND_FIELDS, Fields::neighbour),
        Header::Tcp => ("tcp", &PORTS, Fields::ports),
        Header::Udp => ("udp", &PORTS, Fields::ports),
        Header::Sctp => ("sctp", &PORTS, Fields::ports),
        Header::Icmp => ("icmp", &PORTS, Fields::type_and_code),
        Header::Icmpv6 => ("icmpv6", &PORTS, Fields::type_and_code),
        Header::Mpls => ("mpls", &MPLS_FIELDS, Fields::mpls_header),
        Header::PktMark => ("skb_mark", &[at::PKT_MARK], |f| f.bare_hex(at::PKT_MARK)),
        Header::SkbPriority => unreachable!("invariant: handled above"),
    };
    let mut text = String::new();
    Attributes { text: &mut text, key: &key, mask: &mask, shown: Shown::Matched }.attribute(name, spans, body);
    text
}
