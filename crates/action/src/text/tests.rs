use super::*;
use crate::{Action, HashAlgorithm, Header, MaskedField};
use sluice_flow::PacketKey;
use sluice_flow::layout::{self as at, Span};

fn key(fields: &[(Span, u64)]) -> PacketKey {
    let mut key = PacketKey::ZERO;
    for (span, value) in fields {
        key.set(*span, &value.to_be_bytes()[8 - span.size..]);
    }
    key
}

fn names() -> DatapathPortNames {
    let mut names = DatapathPortNames::default();
    names.insert(PortNo(1), "p1");
    names.insert(PortNo(2), "p2");
    names
}

fn shown(key: &PacketKey, mask: &PacketKey, verbose: bool) -> String {
    let names = if verbose { names() } else { DatapathPortNames::default() };
    show_flow(key, mask, verbose, &names).to_string()
}

/// The packet of a run of Debian's OVS 3.1 with the rule `tcp,nw_src=1.0.0.0/8,actions=output:2`.
fn tcp() -> (PacketKey, PacketKey) {
    let key = key(&[
        (at::IN_PORT, 1),
        (at::DL_SRC, 0x5054_0000_0009),
        (at::DL_DST, 0x5054_0000_000a),
        (at::DL_TYPE, 0x0800),
        (at::NW_SRC, 0x0100_0002),
        (at::NW_DST, 0x0a00_0001),
        (at::NW_PROTO, 6),
        (at::NW_TTL, 64),
        (at::TP_SRC, 8),
        (at::TP_DST, 9),
    ]);
    (key, exactly(&[at::NW_PROTO], &[(at::NW_SRC, 0xff00_0000)], true))
}

/// A mask with what every megaflow has, the fields given whole, and those with bits.
fn exactly(whole: &[Span], bits: &[(Span, u64)], ip: bool) -> PacketKey {
    let mut mask = key(bits);
    let frag = [at::NW_FRAG];
    let always = [at::RECIRC_ID, at::IN_PORT, at::DL_TYPE];
    for span in whole.iter().chain(&always).chain(if ip { &frag[..] } else { &[] }) {
        mask.set(*span, &[0xff; 16][..span.size]);
    }
    mask
}

#[test]
fn a_megaflow_is_ovs_text() {
    let (key, mask) = tcp();
    assert_eq!(
        shown(&key, &mask, false),
        "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(src=1.0.0.2/255.0.0.0,proto=6,frag=no)"
    );
    assert_eq!(
        shown(&key, &mask, true),
        "skb_priority(0/0),skb_mark(0/0),ct_state(0/0),ct_zone(0/0),ct_mark(0/0),ct_label(0/0),recirc_id(0),\
         dp_hash(0/0),in_port(p1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:09/00:00:00:00:00:00,\
         dst=50:54:00:00:00:0a/00:00:00:00:00:00),eth_type(0x0800),ipv4(src=1.0.0.2/255.0.0.0,dst=10.0.0.1/0.0.0.0,\
         proto=6,tos=0/0,ttl=64/0,frag=no),tcp(src=8/0,dst=9/0)"
    );
}

#[test]
fn tags_nest() {
    let tagged = key(&[
        (at::IN_PORT, 1),
        (at::VLAN0_TPID, 0x8100),
        (at::VLAN0_TCI, 0x7005),
        (at::DL_TYPE, 0x0806),
        (at::NW_PROTO, 1),
    ]);
    let mask = exactly(&[at::VLAN0_TPID, at::NW_PROTO], &[(at::VLAN0_TCI, 0x1fff)], false);
    assert_eq!(
        shown(&tagged, &mask, false),
        "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x8100),vlan(vid=5,pcp=3/0x0),encap(eth_type(0x0806),arp(op=1))"
    );
    let twice = key(&[
        (at::VLAN0_TPID, 0x88a8),
        (at::VLAN0_TCI, 0x1007),
        (at::VLAN1_TPID, 0x8100),
        (at::VLAN1_TCI, 0x1008),
        (at::DL_TYPE, 0x05ff),
    ]);
    assert_eq!(
        shown(&twice, &exactly(&[], &[], false), false),
        "recirc_id(0),in_port(0),packet_type(ns=0,id=0),eth_type(0x88a8),encap(eth_type(0x8100),encap())"
    );
}

#[test]
fn a_third_tag_is_a_type() {
    let tag = [(at::VLAN0_TPID, 0x8100), (at::VLAN0_TCI, 0x1007), (at::VLAN1_TPID, 0x8100), (at::VLAN1_TCI, 0x1008)];
    let thrice = key(&[&tag[..], &[(at::DL_TYPE, 0x88a8)]].concat());
    assert_eq!(
        shown(&thrice, &exactly(&[], &[], false), false),
        "recirc_id(0),in_port(0),packet_type(ns=0,id=0),eth_type(0x8100),encap(eth_type(0x8100),encap(eth_type(0x88a8)))"
    );
}

#[test]
fn a_frame_without_type_says_so() {
    let llc = key(&[(at::IN_PORT, 1), (at::DL_TYPE, 0x05ff)]);
    assert_eq!(
        shown(&llc, &exactly(&[at::DL_DST], &[], false), false),
        "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth(dst=00:00:00:00:00:00),eth_type(0/0xffff)"
    );
}

#[test]
fn ipv6_discovery_and_addresses() {
    let mut nd = key(&[
        (at::IN_PORT, 2),
        (at::DL_TYPE, 0x86dd),
        (at::NW_PROTO, 58),
        (at::NW_TTL, 255),
        (at::TP_SRC, 135),
        (at::ARP_SHA, 0x0200_0000_0001),
    ]);
    nd.set(at::ND_TARGET, &std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7).octets());
    nd.set(at::IPV6_SRC, &std::net::Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0x0102, 0x0304).octets());
    let whole = [at::IPV6_SRC, at::NW_PROTO, at::ND_TARGET];
    let mask = exactly(&whole, &[(at::TP_SRC, 0xff), (at::TP_DST, 0xff), (at::IPV6_LABEL, 0xf_ffff)], true);
    assert_eq!(
        shown(&nd, &mask, false),
        "recirc_id(0),in_port(2),packet_type(ns=0,id=0),eth_type(0x86dd),ipv6(src=::1.2.3.4,label=0,proto=58,frag=no),\
         icmpv6(type=135,code=0),nd(target=fe80::7)"
    );
    let loosely = exactly(&whole, &[(at::TP_SRC, 0xf8), (at::TP_DST, 0xff)], true);
    assert!(shown(&nd, &loosely, false).ends_with("icmpv6(type=135/0xf8,code=0)"), "{}", shown(&nd, &loosely, false));
    let verbose = shown(&nd, &loosely, true);
    assert!(
        verbose.ends_with(
            "nd(target=fe80::7/::,sll=02:00:00:00:00:01/00:00:00:00:00:00,tll=00:00:00:00:00:00/00:00:00:00:00:00)"
        ),
        "{verbose}"
    );
}

#[test]
fn extensions_of_discovery_always_show_what_is_reserved() {
    let mut field = MaskedField { span: at::TCP_FLAGS, value: [0; 16], mask: [0; 16] };
    (field.value[1], field.mask[1]) = (1, 0xff);
    (field.mask[0], field.value[0]) = (0xff, 0);
    let action = Action::Set { header: Header::Nd, fields: Box::new([field]) };
    let shown = show_actions(&[action], &DatapathPortNames::default()).to_string();
    assert_eq!(shown, "set(nd_ext(nd_reserved=0x0,nd_options_type=1))");
}

#[test]
fn fragments_flags_and_marks() {
    let (mut key, mut mask) = tcp();
    key.set(at::TCP_FLAGS, &[0, 0x12]);
    mask.set(at::TCP_FLAGS, &[0, 0x17]);
    key.set(at::NW_FRAG, &[1]);
    mask.set(at::PKT_MARK, &[0xff; 4]);
    mask.set(at::CT_STATE, &[0x21]);
    key.set(at::CT_STATE, &[0x20]);
    assert_eq!(
        shown(&key, &mask, false),
        "skb_mark(0),ct_state(-new+trk),recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),\
         ipv4(src=1.0.0.2/255.0.0.0,proto=6,frag=first),tcp_flags(-fin+syn-rst+ack)"
    );
    mask.set(at::TCP_FLAGS, &[0x0f, 0xff]);
    assert!(shown(&key, &mask, false).ends_with(",tcp_flags(syn|ack)"));
    key.set(at::NW_FRAG, &[3]);
    assert!(shown(&key, &mask, false).ends_with("frag=later)"));
}

#[test]
fn statistics_are_ovs_text() {
    let stats = FlowStats { packets: 3, bytes: 180, used_ms: Some(1500), tcp_flags: 0x1a, ..FlowStats::default() };
    assert_eq!(show_stats(stats, 2000).to_string(), "packets:3, bytes:180, used:0.500s, flags:SP.");
    assert_eq!(show_stats(FlowStats::default(), 9).to_string(), "packets:0, bytes:0, used:never");
}

#[test]
fn identifiers_are_ovs_text() {
    let ufid = 0x2e4a_67ce_4787_4db6_a57a_599c_1521_bc2f;
    assert_eq!(show_ufid(ufid).to_string(), "ufid:2e4a67ce-4787-4db6-a57a-599c1521bc2f");
    assert_eq!(show_ufid(1).to_string(), "ufid:00000000-0000-0000-0000-000000000001");
}

fn field(span: Span, value: u64, mask: u64) -> MaskedField {
    let left = |n: u64| {
        let mut bytes = [0; 16];
        bytes[..span.size].copy_from_slice(&n.to_be_bytes()[8 - span.size..]);
        bytes
    };
    MaskedField { span, value: left(value), mask: left(mask) }
}

#[test]
fn actions_are_ovs_text() {
    let set = |header, fields: &[MaskedField]| Action::Set { header, fields: fields.into() };
    let cases = [
        (vec![], "drop"),
        (vec![Action::Drop], "drop"),
        (vec![Action::Output(PortNo(1)), Action::Output(PortNo(7))], "p1,7"),
        (vec![set(Header::Ethernet, &[field(at::DL_DST, 0x02, u64::MAX)])], "set(eth(dst=00:00:00:00:00:02))"),
        (
            vec![set(Header::Ipv4, &[field(at::NW_TTL, 63, 0xff), field(at::NW_TOS, 0x20, 0xfc)])],
            "set(ipv4(tos=0x20/0xfc,ttl=63))",
        ),
        (vec![set(Header::Tcp, &[field(at::TP_DST, 80, 0xffff)])], "set(tcp(dst=80))"),
        (vec![set(Header::PktMark, &[field(at::PKT_MARK, 5, 0xff)])], "set(skb_mark(0x5/0xff))"),
        (vec![set(Header::SkbPriority, &[field(at::SKB_PRIORITY, 0x1234, u64::MAX)])], "set(skb_priority(0x1234))"),
        (vec![set(Header::Mpls, &[field(at::MPLS0, 0x0003_e140, u64::MAX)])], "set(mpls(label=62,tc=0,ttl=64,bos=1))"),
        (vec![Action::PushVlan { tpid: 0x8100, tci: 0x700a }, Action::PopVlan], "push_vlan(vid=10,pcp=3),pop_vlan"),
        (vec![Action::PushVlan { tpid: 0x88a8, tci: 0x1000 }], "push_vlan(tpid=0x88a8,vid=0,pcp=0)"),
        (
            vec![Action::PushMpls { ethertype: 0x8847, lse: 0x000a_0140 }, Action::PopMpls { ethertype: 0x800 }],
            "push_mpls(label=160,tc=0,ttl=64,bos=1,eth_type=0x8847),pop_mpls(eth_type=0x800)",
        ),
        (
            vec![Action::Hash { algorithm: HashAlgorithm::SymmetricL4, basis: 7 }, Action::Recirc(1)],
            "hash(sym_l4(7)),recirc(0x1)",
        ),
        (
            vec![Action::Hash { algorithm: HashAlgorithm::L4, basis: 0 }, Action::Recirc(1)],
            "hash(hash_l4(0)),recirc(0x1)",
        ),
        (vec![Action::Meter(3), Action::Output(PortNo(1))], "meter(3),p1"),
        (vec![Action::Recirc(17), Action::Trunc(100)], "recirc(0x11),trunc(100)"),
        (vec![Action::Clone([Action::PopVlan, Action::Output(PortNo(2))].into())], "clone(pop_vlan,p2)"),
        (
            vec![Action::Sample { probability: u32::MAX / 2, actions: [Action::Output(PortNo(2))].into() }],
            "sample(sample=50.0%,actions(p2))",
        ),
        (
            vec![Action::CheckPktLen {
                len: 200,
                greater: [].into(),
                less_or_equal: [Action::Output(PortNo(1))].into(),
            }],
            "check_pkt_len(size=200,gt(drop),le(p1))",
        ),
        (
            vec![Action::Controller {
                reason: 1,
                controller_id: 0,
                max_len: 65535,
                cookie: 0,
                recirc_id: 1,
                continuation: false,
            }],
            "userspace(pid=0,controller(reason=1,dont_send=0,continuation=0,recirc_id=1,rule_cookie=0,controller_id=0,max_len=65535))",
        ),
        (
            vec![Action::Controller {
                reason: 0,
                controller_id: 9,
                max_len: 128,
                cookie: 0x5a,
                recirc_id: 2,
                continuation: true,
            }],
            "userspace(pid=0,controller(reason=0,dont_send=0,continuation=1,recirc_id=2,rule_cookie=0x5a,controller_id=9,max_len=128))",
        ),
    ];
    for (actions, text) in cases {
        assert_eq!(show_actions(&actions, &names()).to_string(), text);
    }
}

#[test]
fn datapath_flows_are_read_as_ovs_reads_them() {
    let parse = |text: &str| DatapathFlow::parse(text, &|_| None).unwrap();
    let plain = parse("in_port(1),eth_type(0x0800),ipv4(proto=1,frag=no)");
    assert_eq!(parse("in_port(1),ipv4(proto=\n1,frag=no)"), plain, "a header implies its type; lines may break");
    assert_eq!(parse("skb_priority(7),in_port(1),ipv4(proto=1,frag=no)"), DatapathFlow { skb_priority: 7, ..plain });
    let identified = "ufid:01234567-89ab-cdef-0011-223344556677 in_port(1),ipv4(proto=1,frag=no)";
    assert!(DatapathFlow::looks_like(identified));
    assert_eq!(parse(identified), plain);
}
