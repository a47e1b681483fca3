//! The cases of Open vSwitch's own classifier tests (tests/classifier.at of 3.1, with Debian's later one on the final
//! stage), at the level of the classifier. What they require of translation, ports or the parser is tested there.
//!
//! Expected masks are those of the suite without the bits that translation adds (recirculation id, fragment bits).

use sluice_classifier::{Classifier, Conjunction, TrieField};
use sluice_flow::FieldId::*;
use sluice_flow::{FieldId, FlowKey, Match};

fn ip() -> Match {
    Match::ANY.with(EthType, 0x0800)
}

fn tcp() -> Match {
    ip().with(IpProto, 6)
}

fn icmp6() -> Match {
    Match::ANY.with(EthType, 0x86dd).with(IpProto, 58)
}

fn ip4(a: u8, b: u8, c: u8, d: u8) -> u128 {
    u32::from_be_bytes([a, b, c, d]).into()
}

/// The mask of the first `len` of `width` bits.
fn prefix(len: u32, width: u32) -> u128 {
    (u128::MAX >> (128 - width)) & !(u128::MAX >> (128 - width)).checked_shr(len).unwrap_or(0)
}

/// The key of a packet with these fields.
fn packet(fields: &[(FieldId, u128)]) -> FlowKey {
    fields.iter().fold(Match::ANY, |m, &(field, value)| m.with(field, value)).key
}

/// The mask of these bits of these fields.
fn mask(bits: &[(FieldId, u128)]) -> FlowKey {
    bits.iter().fold(Match::ANY, |m, &(field, bits)| m.with_masked(field, bits, bits)).mask
}

fn all(field: FieldId) -> (FieldId, u128) {
    (field, field.field().match_ones())
}

/// A table whose rules carry an output port, 0 for a drop.
struct Table(Classifier<u32>);

impl Table {
    fn new(rules: &[(u32, Match, u32)]) -> Self {
        Table::with_tries(TrieField::DEFAULT, rules)
    }

    fn with_tries(tries: &[TrieField], rules: &[(u32, Match, u32)]) -> Self {
        let mut table = Table(Classifier::new(tries, 0));
        for (priority, matching, output) in rules {
            let (priority, matching, output) = (*priority, matching.clone(), *output);
            table.0.insert(&matching, priority, 1, &[], output);
        }
        table
    }

    fn soft(&mut self, priority: u32, matching: Match, parts: &[(u32, u8, u8)]) {
        let parts: Vec<_> =
            parts.iter().map(|&(id, k, n_clauses)| Conjunction { id, clause: k - 1, n_clauses }).collect();
        self.0.insert(&matching, priority, 1, &parts, u32::MAX);
    }

    fn output(&self, key: &FlowKey) -> Option<u32> {
        self.0.lookup(key, 1, None).map(|rule| *rule.payload())
    }

    /// Looks up, adds to `looked_at` and returns the output.
    fn look(&self, key: &FlowKey, looked_at: &mut FlowKey) -> Option<u32> {
        self.0.lookup(key, 1, Some(looked_at)).map(|rule| *rule.payload())
    }

    /// Expects an output and the bits looked at, including those of every translation.
    #[track_caller]
    fn expect(&self, key: &FlowKey, output: u32, bits: &[(FieldId, u128)]) {
        let mut looked_at = mask(&[all(InPort), all(EthType)]);
        let mut wanted = looked_at.clone();
        wanted.or_with(&mask(bits));
        assert_eq!(self.look(key, &mut looked_at), Some(output));
        assert_eq!(looked_at, wanted);
    }
}

fn segmented() -> Vec<(u32, Match, u32)> {
    let from = |port| tcp().with(InPort, port);
    let host = from(1).with(Ipv4Dst, ip4(10, 1, 2, 15));
    vec![
        (16, from(1).with_masked(Ipv4Dst, ip4(10, 1, 0, 0), prefix(16, 32)), 3),
        (32, host.clone(), 2),
        (33, host.with(TcpDst, 80), 0),
        (0, ip().with(InPort, 1), 0),
        (16, from(2).with_masked(Ipv4Dst, ip4(192, 168, 0, 0), prefix(16, 32)), 1),
        (0, ip().with(InPort, 2), 0),
        (16, from(3).with_masked(Ipv4Src, ip4(10, 1, 0, 0), prefix(16, 32)), 1),
        (0, ip().with(InPort, 3), 0),
    ]
}

fn segment_packet(port: u128, dst: u128, tp_dst: u128) -> FlowKey {
    let rest = [(IpTtl, 128), (IpProto, 6), (TcpSrc, 8), (TcpDst, tp_dst), (Ipv4Src, ip4(192, 168, 0, 1))];
    packet(&[&[(InPort, port), (EthType, 0x0800), (Ipv4Dst, dst)], &rest[..]].concat())
}

#[test]
fn a_stage_that_fails_hides_the_later_ones() {
    let table = Table::new(&segmented());
    let dst = |len| (Ipv4Dst, prefix(len, 32));
    table.expect(&segment_packet(2, ip4(192, 168, 0, 2), 80), 1, &[all(IpProto), dst(16)]);
    // The trie rules the address out before the protocol is looked at.
    table.expect(&segment_packet(1, ip4(11, 1, 2, 15), 80), 0, &[dst(8)]);
    table.expect(&segment_packet(1, ip4(10, 1, 2, 15), 80), 0, &[all(IpProto), dst(32), all(TcpDst)]);
    table.expect(&segment_packet(1, ip4(10, 1, 2, 15), 79), 2, &[all(IpProto), dst(32), (TcpDst, 0xfff0)]);
}

#[test]
fn a_last_stage_that_fails_keeps_all_but_the_ports() {
    const PSH: u128 = 0x008;
    let table = Table::new(&[
        (33, tcp().with(InPort, 1).with(TcpDst, 80).with_masked(TcpFlags, PSH, PSH), 2),
        (0, ip().with(InPort, 1), 0),
    ]);
    for (tp_dst, flags, output, port_bits) in [
        (80, 0x002, 0, 0xffff),
        (80, 0x012, 0, 0xffff),
        (80, 0x018, 2, 0xffff),
        (80, 0x000, 0, 0xffff),
        (79, 0x000, 0, 0xfff0),
        (81, 0x000, 0, 0xffff),
    ] {
        let key = packet(&[(InPort, 1), (EthType, 0x0800), (IpProto, 6), (TcpDst, tp_dst), (TcpFlags, flags)]);
        table.expect(&key, output, &[all(IpProto), (TcpDst, port_bits), (TcpFlags, PSH)]);
    }
}

#[test]
fn a_neighbour_discovery_target_stays_in_the_mask() {
    let target = 0x1000 << 112 | 1;
    let table = Table::new(&[
        (16, icmp6().with(IpTtl, 255).with(Icmpv6Type, 135).with(Icmpv6Code, 0).with(NdTarget, target), 1),
        (0, Match::ANY.with(EthType, 0x86dd), 0),
    ]);
    let key = |kind, target| {
        packet(&[(EthType, 0x86dd), (IpProto, 58), (IpTtl, 255), (Icmpv6Type, kind), (NdTarget, target)])
    };
    let common = [all(IpProto), all(IpTtl), all(NdTarget)];
    // As 16-bit ports, 128 differs from 135 in the fifth of the low eight bits.
    table.expect(&key(128, 0), 0, &[&common[..], &[(TcpSrc, 0xfffc)]].concat());
    table.expect(&key(135, 0), 0, &[&common[..], &[(TcpSrc, 0xffff), (TcpDst, 0xffff)]].concat());
    table.expect(&key(135, target), 1, &[&common[..], &[(TcpSrc, 0xffff), (TcpDst, 0xffff)]].concat());
    table.expect(&key(135, target + 1), 0, &[&common[..], &[(TcpSrc, 0xffff), (TcpDst, 0xffff)]].concat());
}

#[test]
fn ports_of_the_original_tuple_are_no_part_of_the_ports_trie() {
    const PSH: u128 = 0x008;
    let rule = tcp()
        .with_masked(CtState, 0x28, 0x28)
        .with(CtNwProto, 6)
        .with_masked(CtTpSrc, 1, 1)
        .with(TcpDst, 80)
        .with_masked(TcpFlags, PSH, PSH);
    let table = Table::new(&[(45, rule, 2), (10, ip(), 0)]);
    let key = |tp_dst| {
        let connection = [(CtState, 0x28), (CtNwProto, 6), (CtTpSrc, 3)];
        packet(&[&connection[..], &[(EthType, 0x0800), (IpProto, 6), (TcpDst, tp_dst), (TcpFlags, PSH)]].concat())
    };
    let common = [(CtState, 0x28), all(CtNwProto), (CtTpSrc, 1), all(IpProto), (TcpFlags, PSH)];
    table.expect(&key(80), 2, &[&common[..], &[(TcpDst, 0xffff)]].concat());
    table.expect(&key(79), 0, &[&common[..], &[(TcpDst, 0xfff0)]].concat());
}

fn prefixed() -> Vec<(u32, Match, u32)> {
    let from = |port| tcp().with(InPort, port);
    let host = from(1).with(Ipv4Dst, ip4(10, 1, 2, 15));
    vec![
        (16, from(1).with_masked(Ipv4Dst, ip4(10, 1, 0, 0), prefix(16, 32)), 3),
        (32, from(1).with_masked(Ipv4Dst, ip4(10, 1, 2, 0), prefix(24, 32)).with(TcpSrc, 79), 2),
        (33, host.clone().with(TcpDst, 80), 0),
        (33, host.clone().with(TcpDst, 8080), 2),
        (33, host.with(TcpDst, 192), 2),
        (0, ip().with(InPort, 1), 0),
        (16, from(2).with_masked(Ipv4Dst, ip4(192, 168, 0, 0), prefix(16, 32)), 1),
        (0, ip().with(InPort, 2), 0),
        (16, from(3).with_masked(Ipv4Src, ip4(10, 1, 0, 0), prefix(16, 32)), 1),
        (0, ip().with(InPort, 3), 0),
    ]
}

#[test]
fn prefix_tries_shorten_addresses() {
    let dst = |len| (Ipv4Dst, prefix(len, 32));
    for tries in [TrieField::DEFAULT, &[TrieField::NwDst]] {
        let table = Table::with_tries(tries, &prefixed());
        table.expect(&segment_packet(1, ip4(192, 168, 0, 2), 80), 0, &[all(IpProto), dst(16)]);
        table.expect(&segment_packet(2, ip4(192, 168, 0, 2), 80), 1, &[all(IpProto), dst(16)]);
        let host = ip4(10, 1, 2, 15);
        table.expect(&segment_packet(1, host, 80), 0, &[all(IpProto), dst(32), all(TcpDst)]);
        let few_ports = [(TcpSrc, 0xffc0), (TcpDst, 0xfff0)];
        table.expect(&segment_packet(1, host, 79), 3, &[&[all(IpProto), dst(32)], &few_ports[..]].concat());
    }
}

#[test]
fn without_tries_addresses_are_whole() {
    let table = Table::with_tries(&[], &prefixed());
    let key = segment_packet(1, ip4(10, 1, 3, 16), 79);
    table.expect(&key, 3, &[all(IpProto), (Ipv4Dst, prefix(32, 32))]);
}

#[test]
fn ipv6_tries_work_like_those_of_ipv4() {
    let tcp6 = Match::ANY.with(EthType, 0x86dd).with(IpProto, 6);
    let net = 0xcccc_dddd_000a_000b_000c_000c_0000_0000;
    let other = 0xaaaa_bbbb_000c_000d_000e_000f_0000_0000;
    let rules = [
        (16, tcp6.clone().with_masked(Ipv6Src, other, prefix(96, 128)).with_masked(Ipv6Dst, other, prefix(96, 128)), 3),
        (33, tcp6.clone().with(Ipv6Src, other | 0x1_0002).with(Ipv6Dst, other | 0x1_0002).with(TcpDst, 80), 0),
        (16, tcp6.with_masked(Ipv6Src, net, prefix(95, 128)).with_masked(Ipv6Dst, net, prefix(95, 128)), 4),
        (0, Match::ANY.with(EthType, 0x86dd), 0),
    ];
    let key = packet(&[
        (EthType, 0x86dd),
        (IpProto, 6),
        (Ipv6Src, net | 1 << 32 | 0x7_0008),
        (Ipv6Dst, net | 1 << 32 | 0x7_0009),
    ]);
    let both = |len| [all(IpProto), (Ipv6Src, prefix(len, 128)), (Ipv6Dst, prefix(len, 128))];
    Table::with_tries(&[TrieField::Ipv6Dst, TrieField::Ipv6Src], &rules).expect(&key, 4, &both(95));
    Table::new(&rules).expect(&key, 4, &both(128));
}

#[test]
fn an_echo_request_does_not_depend_on_a_discovery_target() {
    let echo = packet(&[
        (EthType, 0x86dd),
        (Ipv6Src, 0x1000 << 112 | 3),
        (Ipv6Dst, 0x1000 << 112 | 4),
        (IpProto, 58),
        (Icmpv6Type, 128),
    ]);
    let ipv6 = Match::ANY.with(EthType, 0x86dd);
    let tables = [
        vec![(100, ipv6.clone().with_masked(Ipv6Src, 0x1000 << 112, prefix(10, 128)), 1), (0, Match::ANY, 9)],
        vec![
            (110, ipv6.clone().with(Ipv6Dst, 0x1000 << 112 | 3), 2),
            (100, ipv6.clone().with(Ipv6Dst, 0x1000 << 112 | 4), 2),
            (0, Match::ANY, 9),
        ],
        vec![
            (
                120,
                icmp6().with(IpTtl, 255).with(Icmpv6Type, 135).with(Icmpv6Code, 0).with(NdTarget, 0x1000 << 112 | 1),
                9,
            ),
            (100, ipv6.with(IpProto, 6), 9),
            (100, icmp6(), 9),
            (0, Match::ANY, 9),
        ],
    ];
    let mut looked_at = FlowKey::ZERO;
    let outputs: Vec<_> = tables.iter().map(|rules| Table::new(rules).look(&echo, &mut looked_at)).collect();
    assert_eq!(outputs, [Some(1), Some(2), Some(9)]);
    let wanted = [all(EthType), (Ipv6Src, prefix(10, 128)), all(Ipv6Dst), all(IpProto), all(IpTtl)];
    assert_eq!(looked_at, mask(&wanted));
}

fn addresses(src: u128, dst: u128) -> FlowKey {
    packet(&[(EthType, 0x0800), (Ipv4Src, src), (Ipv4Dst, dst)])
}

#[test]
fn a_conjunction_of_two_sets_matches_their_product() {
    let host = |n: u8| ip4(10, 0, 0, n);
    let mut table = Table::new(&[
        (32768, Match::ANY.with(ConjId, 1), 3),
        (100, ip().with(Ipv4Src, host(1)).with(Ipv4Dst, host(4)), 4),
        (100, ip().with(Ipv4Src, host(3)).with(Ipv4Dst, host(5)), 5),
        (0, Match::ANY, 2),
    ]);
    [1, 4, 6, 7].iter().for_each(|&n| table.soft(100, ip().with(Ipv4Src, host(n)), &[(1, 1, 2)]));
    [2, 5, 7, 8].iter().for_each(|&n| table.soft(100, ip().with(Ipv4Dst, host(n)), &[(1, 2, 2)]));
    for src in 0..8 {
        for dst in 0..8 {
            let wanted = match (src, dst) {
                (1, 4) => 4,
                (3, 5) => 5,
                (1 | 4 | 6 | 7, 2 | 5 | 7 | 8) => 3,
                _ => 2,
            };
            assert_eq!(table.output(&addresses(host(src), host(dst))), Some(wanted), "{src} to {dst}");
        }
    }
}

#[test]
fn rules_take_part_in_several_conjunctions() {
    let mut table = Table::new(&[
        (32768, Match::ANY.with(ConjId, 1), 1),
        (32768, Match::ANY.with(ConjId, 2), 2),
        (32768, Match::ANY.with(ConjId, 3), 3),
        (0, Match::ANY, 4),
    ]);
    let net = |field, (a, b, c, d), len| ip().with_masked(field, ip4(a, b, c, d), prefix(len, 32));
    let sources = [(20, 0, 0, 0), (10, 1, 0, 0), (10, 2, 0, 0), (10, 1, 3, 0), (10, 1, 4, 5)];
    let lens = [8, 16, 16, 24, 32];
    for (i, (&address, len)) in sources.iter().zip(lens).enumerate() {
        let second = if i % 2 == 0 { (2, 1, 2) } else { (3, 2, 3) };
        table.soft(5, net(Ipv4Src, address, len), &[(1, 1, 2), second]);
    }
    for (&address, len) in sources.iter().zip(lens) {
        table.soft(5, net(Ipv4Dst, address, len), &[(1, 2, 2)]);
    }
    for (address, len) in [((30, 0, 0, 0), 8), ((40, 5, 0, 0), 16)] {
        table.soft(5, net(Ipv4Dst, address, len), &[(2, 2, 2), (3, 1, 3)]);
    }
    for field in [TcpDst, TcpSrc] {
        [80, 443].iter().for_each(|&port| table.soft(5, tcp().with(field, port), &[(3, 3, 3)]));
    }
    let hosts = [(20, 0, 0, 1), (10, 1, 0, 1), (10, 2, 0, 1), (10, 1, 3, 1), (10, 1, 4, 5), (1, 2, 3, 4)];
    let destinations = [&hosts[..5], &[(30, 0, 0, 1), (40, 5, 0, 1), (1, 2, 3, 4)]].concat();
    // 10.1.3.1 and 10.1.4.5 are in 10.1.0.0/16 too, and both rules count. So the last source completes conjunctions 2
    // and 3 both; that 2 wins follows from the order of the subtables.
    for (a, &(a1, a2, a3, a4)) in hosts.iter().enumerate() {
        for (b, &(b1, b2, b3, b4)) in destinations.iter().enumerate() {
            for (c, d) in [80, 443, 8080].iter().flat_map(|&c| [80, 443, 8080].map(|d| (c, d))) {
                let wanted = match (a, b) {
                    (0..5, 0..5) => 1,
                    (0 | 2 | 4, 5 | 6) => 2,
                    (1 | 3, 5 | 6) if c != 8080 || d != 8080 => 3,
                    _ => 4,
                };
                let ports = [(IpProto, 6), (TcpSrc, c), (TcpDst, d)];
                let ends = [(EthType, 0x0800), (Ipv4Src, ip4(a1, a2, a3, a4)), (Ipv4Dst, ip4(b1, b2, b3, b4))];
                let key = packet(&[&ends[..], &ports[..]].concat());
                assert_eq!(table.output(&key), Some(wanted), "{a} {b} {c} {d}");
            }
        }
    }
}

#[test]
fn a_conjunction_that_fails_gives_way_to_lower_priorities() {
    let host = |n: u8| ip4(10, 0, 0, n);
    let src = |n| ip().with(Ipv4Src, host(n));
    let dst = |n| ip().with(Ipv4Dst, host(n));
    let mut table = Table::new(&[
        (32768, Match::ANY.with(ConjId, 1), 1),
        (32768, Match::ANY.with(ConjId, 3), 3),
        (4, src(3).with(Ipv4Dst, host(2)), 2),
        (2, dst(1), 4),
        (1, src(1).with(Ipv4Dst, host(5)), 5),
        (0, Match::ANY, 6),
    ]);
    [1, 2].iter().for_each(|&n| table.soft(5, src(n), &[(1, 1, 2)]));
    [1, 2, 3].iter().for_each(|&n| table.soft(5, dst(n), &[(1, 2, 2)]));
    [1, 3].iter().for_each(|&n| table.soft(3, src(n), &[(3, 1, 2)]));
    [2, 3, 4].iter().for_each(|&n| table.soft(3, dst(n), &[(3, 2, 2)]));
    for s in 0..4 {
        for d in 0..6 {
            let wanted = match (s, d) {
                (1 | 2, 1..=3) => 1,
                (3, 2) => 2,
                (1 | 3, 2..=4) => 3,
                (_, 1) => 4,
                (1, 5) => 5,
                _ => 6,
            };
            assert_eq!(table.output(&addresses(host(s), host(d))), Some(wanted), "{s} to {d}");
        }
    }
}

#[test]
fn conjunctions_of_equal_priority_do_not_mix() {
    let host = |n: u8| ip4(10, 0, 0, n);
    let mut table = Table::new(&[(32768, Match::ANY.with(ConjId, 1), 2), (32768, Match::ANY.with(ConjId, 2), 0)]);
    table.soft(10, ip().with(Ipv4Dst, host(1)), &[(1, 1, 2)]);
    table.soft(10, ip().with(Ipv4Src, host(2)), &[(1, 2, 2)]);
    table.soft(10, ip().with(Ipv4Dst, host(3)), &[(2, 1, 2)]);
    table.soft(10, ip().with(InPort, 1), &[(2, 2, 2)]);
    let from_one = |src, dst| packet(&[(InPort, 1), (EthType, 0x0800), (Ipv4Src, src), (Ipv4Dst, dst)]);
    assert_eq!(table.output(&from_one(host(2), host(1))), Some(2));
    assert_eq!(table.output(&from_one(host(2), host(3))), Some(0));
    assert_eq!(table.output(&from_one(host(9), host(1))), None);
}

#[test]
fn many_clauses_need_them_all() {
    // 64 clauses is the most there can be.
    let mut table = Table::new(&[(32768, Match::ANY.with(ConjId, 7), 1), (0, Match::ANY, 2)]);
    for clause in 0..64u32 {
        let bit = 1u128 << (clause % 32);
        let field = if clause < 32 { Reg0 } else { Reg1 };
        table.soft(9, Match::ANY.with_masked(field, bit, bit), &[(7, clause as u8 + 1, 64)]);
    }
    assert_eq!(table.output(&packet(&[(Reg0, 0xffff_ffff), (Reg1, 0xffff_ffff)])), Some(1));
    assert_eq!(table.output(&packet(&[(Reg0, 0xffff_ffff), (Reg1, 0x7fff_ffff)])), Some(2));
}
