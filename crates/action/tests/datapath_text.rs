//! Datapath flow text, read and written back.

use proptest::collection::vec;
use proptest::prelude::*;
use sluice_action::DatapathFlow;
use sluice_action::{DatapathPortNames, PortNo, show_flow};

fn ports(name: &str) -> Option<u32> {
    (name == "p1").then_some(1)
}

/// Texts as OVS 3.1 prints them.
const TEXTS: &[&str] = &[
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(src=1.0.0.2/255.0.0.0,proto=6,frag=no)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a),eth_type(0x0800),\
     ipv4(src=10.0.0.2,dst=10.0.0.1,proto=6,tos=0,ttl=64,frag=no),tcp(src=8,dst=9),tcp_flags(+syn-ack)",
    "recirc_id(0x1),dp_hash(0x5/0xf),in_port(2),packet_type(ns=0,id=0),eth_type(0x86dd),\
     ipv6(src=fc00::/ffff::,dst=::1,label=0x5,proto=58,tclass=0x4,hlimit=255,frag=no),icmpv6(type=135,code=0),\
     nd(target=fe80::1,sll=00:00:00:00:00:01)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x8100),vlan(vid=5,pcp=0),encap(eth_type(0x0806),\
     arp(sip=1.2.3.4,tip=1.2.3.5,op=1,sha=00:00:00:00:00:01,tha=00:00:00:00:00:00))",
    "skb_mark(0x7),ct_state(+est-new+trk),ct_zone(0x5),ct_mark(0x1/0xf),ct_label(0x1),recirc_id(0x3),in_port(1),\
     packet_type(ns=0,id=0),eth_type(0x0800),ipv4(proto=17,frag=no),udp(src=53/0xfff0,dst=53)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x88a8),vlan(vid=1,pcp=1),encap(eth_type(0x8100),\
     vlan(vid=2,pcp=2),encap(eth_type(0x0800),ipv4(frag=later)))",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x8847),mpls(label=10,tc=3,ttl=64,bos=1)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth(dst=01:80:c2:00:00:00),eth_type(0/0xffff)",
];

#[test]
fn what_is_printed_reads_back() {
    for text in TEXTS {
        let text: String = text.split_whitespace().collect();
        let text = text.replace("ct_state(+est-new+trk)", "ct_state(-new+est+trk)");
        let flow = DatapathFlow::parse(&text, &ports).unwrap_or_else(|e| panic!("{text}: {e}"));
        let shown = show_flow(&flow.key, &flow.mask, false, &DatapathPortNames::default()).to_string();
        assert_eq!(shown, text);
        let mut names = DatapathPortNames::default();
        names.insert(PortNo(1), "p1");
        let verbose = show_flow(&flow.key, &flow.mask, true, &names).to_string();
        let again = DatapathFlow::parse(&verbose, &ports).unwrap_or_else(|e| panic!("{verbose}: {e}"));
        assert_eq!(again.mask, flow.mask, "{verbose}");
        assert_eq!(again.key, flow.key, "{verbose}");
    }
}

#[test]
fn errors_say_where_and_what() {
    let error = |text: &str| DatapathFlow::parse(text, &ports).unwrap_err().to_string();
    assert_eq!(
        error("in_port(p7),eth()"),
        "line 1, column 9: found \"p7\", expected the number or name of a datapath port"
    );
    assert_eq!(
        error("in_port(1),eth(src=1:2:3)"),
        "line 1, column 20: found \"1:2:3\", expected an Ethernet address (six pairs of hexadecimal digits, \":\" between)"
    );
    assert!(error("in_port=1").contains("expected an attribute"));
    assert!(error("encap(eth_type(1))").contains("expected vlan(…) before encap(…)"));
    assert!(error("eth(").contains("closes"));
}

/// Pieces that random text is glued from.
const PIECES: &[&str] = &[
    "in_port(",
    "eth_type(0x0800)",
    "eth_type(",
    "vlan(",
    "encap(",
    "mpls(label=1",
    "tcp(src=",
    ")",
    ",",
    "/",
    "1",
    "-1",
];

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[ -~\n]{0,60}", pieces in vec(prop::sample::select(PIECES), 0..12)) {
        for text in [text, pieces.concat()] {
            let _ = DatapathFlow::parse(&text, &ports);
        }
    }
}
