//! Composed entries beside the plain passes: two switches with the same rules get the same packets, one with composed
//! entries and one without. Meanwhile rules are added and deleted, connections end, are flushed and marked, and time
//! passes. The packets sent and their order, the counters of every rule, the state of every connection and the counters
//! of drops must be the same.

#[path = "harness/connections.rs"]
mod connections;
#[path = "harness/ports.rs"]
mod ports;

use connections::*;
use ports::*;
use proptest::prelude::*;
use sluice_action::PortNo;
use sluice_conntrack::Filter;
use sluice_datapath::{Config, Datapath, Level, Settings};
use sluice_fate::{Counter, DropReason};
use sluice_flow::PortNames;
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{BridgeConfig, Ofproto, PortConfig};

const BRIDGE: &str = "br0";
const PORTS: u32 = 4;
/// Times that a packet may recirculate, unless a test says otherwise.
const RECIRCULATIONS: u8 = 8;

/// The rules that the test adds and deletes; some are there at first.
const RULES: &[&str] = &[
    "table=0,priority=10,ct_state=-trk,ip,actions=ct(table=1)",
    "table=0,priority=20,ct_state=-trk,udp,actions=ct(table=1,zone=5)",
    "table=0,priority=30,ct_state=-trk,ip,nw_src=10.0.0.3,actions=ct(table=1,nat)",
    "table=0,priority=31,ct_state=-trk,ip,nw_dst=10.0.0.3,actions=ct(table=1,nat)",
    "table=0,priority=25,ct_state=-trk,ip,nw_dst=10.0.0.2,actions=ct(table=1,zone=5,nat)",
    "table=0,priority=32,ct_state=-trk,ip,nw_dst=10.9.9.9,actions=ct(table=1,nat)",
    "table=0,priority=33,ct_state=-trk,ip,nw_src=10.0.0.4,actions=ct(table=1,nat)",
    "table=0,priority=33,ct_state=-trk,ip,nw_src=20.0.0.7,actions=ct(table=1,nat)",
    "table=0,priority=34,ct_state=-trk,udp,actions=ct(table=1,nat)",
    "table=0,priority=35,ct_state=-trk,ip,nw_dst=10.9.9.9,actions=ct(table=4,zone=9,nat)",
    "table=0,priority=40,ip,nw_tos=32,actions=drop",
    "table=1,priority=10,ct_state=+new+trk,ip,in_port=1,actions=ct(commit),output:2",
    "table=1,priority=11,ct_state=+new+trk,ip,in_port=1,ct_zone=5,actions=ct(commit,zone=5),output:2",
    "table=1,priority=12,ct_state=+new+trk,udp,in_port=1,actions=ct(commit,zone=5,exec(load:7->NXM_NX_CT_MARK[])),output:3",
    "table=1,priority=13,ct_state=+new+trk,ip,in_port=1,nw_src=10.0.0.3,actions=ct(commit,nat(src=10.9.9.9)),output:2",
    "table=1,priority=14,ct_state=+new+trk,ip,in_port=1,nw_src=10.0.0.3,actions=ct(commit,nat(src=10.0.0.3)),output:2",
    "table=1,priority=15,ct_state=+new+trk,ip,in_port=1,nw_src=10.0.0.4,actions=ct(commit,nat(dst=20.0.0.7:8080)),output:2",
    "table=1,priority=16,ct_state=+new+trk,udp,in_port=1,actions=ct(commit,nat(src=10.9.9.9:2000-2002)),output:2",
    "table=1,priority=10,ct_state=+new+trk,ip,in_port=2,actions=drop",
    "table=1,priority=10,ct_state=+est+trk,ip,in_port=1,actions=output:2",
    "table=1,priority=10,ct_state=+est+trk,ip,in_port=2,actions=output:1",
    "table=1,priority=20,ct_state=+est+trk,ip,ct_mark=7,actions=output:4",
    "table=1,priority=30,ct_state=+est+trk,ip,nw_src=10.0.0.1,actions=output:3",
    "table=1,priority=31,ct_state=+est+trk,ip,nw_src=10.9.9.9,actions=output:4",
    "table=1,priority=32,ct_state=+est+trk,udp,tp_dst=8080,actions=output:3",
    "table=1,priority=33,ct_state=+est+rpl+trk,ip,nw_dst=10.0.0.3,actions=output:1",
    "table=1,priority=40,ct_state=+est+rpl+trk,ip,actions=ct(table=2,zone=9)",
    "table=1,priority=41,ct_state=+est-rpl+trk,ip,actions=ct(table=2,zone=9)",
    "table=1,priority=42,ct_state=+est-rpl+trk,ip,actions=ct(commit,zone=9,exec(load:6->NXM_NX_CT_MARK[]),table=2)",
    "table=1,priority=43,ct_state=+est+rpl+trk,ip,actions=ct(commit,zone=9,exec(load:3->NXM_NX_CT_MARK[]),table=2)",
    "table=1,priority=44,ct_state=+est-rpl+trk,ip,actions=ct(commit,zone=9,exec(load:6->NXM_NX_CT_LABEL[0..31]),table=2)",
    "table=1,priority=45,ct_state=+est+rpl+trk,ip,actions=ct(commit,zone=9,exec(load:3->NXM_NX_CT_LABEL[0..31]),table=2)",
    "table=1,priority=46,ct_state=+est+rpl+trk,ip,actions=ct(commit,force,zone=9,table=2)",
    "table=1,priority=47,ct_state=+snat+trk,ip,actions=output:3",
    "table=1,priority=48,ct_state=+dnat+trk,ip,actions=output:4",
    "table=1,priority=49,ct_state=+est-rpl+trk,ip,nw_src=10.9.9.9,actions=ct(table=2,zone=9,nat)",
    "table=1,priority=50,ct_state=+est+trk,udp,ct_zone=5,actions=ct(commit,zone=5,exec(load:9->NXM_NX_CT_MARK[])),output:2",
    "table=1,priority=52,ct_state=+est+trk,udp,in_port=2,ct_zone=5,actions=ct(commit,zone=5,exec(load:9->NXM_NX_CT_MARK[])),output:1",
    "table=1,priority=60,ct_state=+inv+trk,actions=output:4",
    "table=1,priority=61,ct_state=+inv+trk,tcp,actions=ct(table=2,zone=9)",
    "table=1,priority=70,tcp,tcp_flags=+psh,actions=output:4",
    "table=2,priority=10,ct_state=+new+trk,ip,actions=ct(commit,zone=9),output:3",
    "table=2,priority=10,ct_state=+est+trk,ip,actions=output:1",
    "table=2,priority=20,ct_state=+est+trk,ip,ct_label=0x5,actions=output:2",
    "table=2,priority=22,ct_state=+new+trk,ip,nw_src=10.9.9.9,actions=ct(commit,zone=9,nat(dst=20.0.0.7:8080)),output:3",
    "table=2,priority=23,ct_state=+est+trk,ip,nw_src=10.9.9.9,actions=output:4",
    "table=4,priority=1,ct_state=+trk,ip,actions=ct(table=1,nat)",
    "table=2,priority=30,ct_state=+est+trk,tcp,actions=ct(commit,zone=9,exec(load:5->NXM_NX_CT_LABEL[0..31])),output:1",
    "table=2,priority=35,ct_state=+est+trk,udp,actions=ct(table=3,zone=11)",
    "table=3,priority=1,ct_state=+new+trk,ip,actions=ct(commit,zone=11),output:4",
    "table=3,priority=1,ct_state=+est+trk,ip,actions=output:3",
    "table=0,priority=10,ct_state=-trk,ipv6,actions=ct(table=1)",
    "table=0,priority=20,ct_state=-trk,udp6,actions=ct(table=1,zone=5)",
    "table=0,priority=32,ct_state=-trk,udp6,actions=ct(table=1,nat)",
    "table=0,priority=33,ct_state=-trk,tcp6,actions=ct(table=1,nat)",
    "table=0,priority=40,ipv6,nw_tos=32,actions=drop",
    "table=1,priority=10,ct_state=+new+trk,ipv6,in_port=1,actions=ct(commit),output:2",
    "table=1,priority=11,ct_state=+new+trk,ipv6,in_port=1,ct_zone=5,actions=ct(commit,zone=5),output:2",
    "table=1,priority=13,ct_state=+new+trk,udp6,in_port=1,actions=ct(commit,nat(src=2001:db8::99)),output:2",
    "table=1,priority=14,ct_state=+new+trk,tcp6,in_port=1,actions=ct(commit,nat(dst=[2001:db8::7]:8080)),output:2",
    "table=1,priority=10,ct_state=+est+trk,ipv6,in_port=1,actions=output:2",
    "table=1,priority=10,ct_state=+est+trk,ipv6,in_port=2,actions=output:1",
    "table=1,priority=30,ct_state=+est+trk,ipv6,ipv6_src=::1/::1,actions=output:3",
    "table=1,priority=31,ct_state=+est+trk,ipv6,ipv6_dst=::100/::100,actions=output:4",
    "table=1,priority=32,ct_state=+est+trk,ipv6,ipv6_label=5,actions=output:4",
    "table=1,priority=33,ct_state=+est+trk,ipv6,ipv6_src=2001:db8::99,actions=output:4",
    "table=1,priority=34,ct_state=+est+trk,ipv6,ipv6_dst=2001:db8::7,actions=output:3",
    "table=1,priority=40,ct_state=+est+rpl+trk,ipv6,actions=ct(table=2,zone=9)",
    "table=1,priority=41,ct_state=+est-rpl+trk,ipv6,actions=ct(table=2,zone=9)",
    "table=2,priority=10,ct_state=+new+trk,ipv6,actions=ct(commit,zone=9),output:3",
    "table=2,priority=10,ct_state=+est+trk,ipv6,actions=output:1",
    "table=2,priority=20,ct_state=+est+trk,ipv6,ipv6_src=::1/::1,actions=output:2",
];

/// What is done to both switches.
#[derive(Clone, Debug)]
enum Step {
    /// Packets come, in bursts.
    Packets(Vec<Offered>),
    /// A rule is added if it is not there, and deleted otherwise.
    Toggle(usize),
    /// Milliseconds pass; the revalidator runs and connections expire.
    Wait(u64),
    /// Connections of a zone are flushed.
    Flush(Option<u16>),
    /// Sequence numbers are checked, or not.
    Judge(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let packets = prop::collection::vec(offered(), 1..70);
    prop_oneof![
        12 => packets.prop_map(Step::Packets),
        3 => (0..RULES.len()).prop_map(Step::Toggle),
        2 => prop_oneof![Just(1u64), Just(700), Just(16_000), Just(31_000)].prop_map(Step::Wait),
        1 => prop::option::of(prop::sample::select(vec![0u16, 5, 9])).prop_map(Step::Flush),
        1 => any::<bool>().prop_map(Step::Judge),
    ]
}

/// A switch.
struct Switch {
    ofproto: Ofproto,
    datapath: Datapath,
    feeds: Vec<Feed>,
    sent: Vec<Sent>,
    there: Vec<bool>,
    now_ms: u64,
}

impl Switch {
    fn new((composed, emc): (Level, Level), batch: usize, recirculations: u8, there: &[bool]) -> Switch {
        let settings = Settings { composed, emc, vector: Settings::default().vector, ..Settings::BARE };
        let config =
            Config { settings, batch, recirculations, max_megaflows: 4096, seed: Some(SEED), ..Config::default() };
        let datapath = Datapath::new(config).unwrap();
        let ofproto = Ofproto::new();
        let tables = ofproto.clone();
        datapath.set_upcalls(move |_| Box::new(tables.upcall()));
        ofproto.set_store(datapath.store());
        ofproto.add_bridge(BridgeConfig::new(BRIDGE), 0).unwrap();
        let pool = pool(4096);
        let (mut feeds, mut sent) = (Vec::new(), Vec::new());
        for number in 1..=PORTS {
            let port = TestPort::new(1, 32, &pool);
            feeds.push(port.feeds[0].clone());
            sent.push(port.sent.clone());
            ofproto.add_port(BRIDGE, PortConfig::new(&format!("p{number}"), number as u16, PortNo(number))).unwrap();
            datapath.add_port(PortNo(number), Box::new(port)).unwrap();
        }
        let mut switch = Switch { ofproto, datapath, feeds, sent, there: vec![false; RULES.len()], now_ms: 1000 };
        (0..RULES.len()).filter(|i| there[*i]).for_each(|i| switch.toggle(i));
        switch
    }

    fn toggle(&mut self, rule: usize) {
        let command = if self.there[rule] { FlowCommand::DeleteStrict } else { FlowCommand::Add };
        let text = match self.there[rule] {
            true => RULES[rule].split(",actions").next().unwrap(),
            false => RULES[rule],
        };
        let change = FlowMod::parse(text, command, &PortNames::NONE).unwrap();
        self.ofproto.flow_mod(BRIDGE, &change, self.now_ms).unwrap();
        self.there[rule] = !self.there[rule];
    }

    fn step(&mut self, step: &Step, tag: &mut u16) {
        match step {
            Step::Packets(packets) => {
                for packet in packets {
                    let (port, bytes) = packet.frame(*tag);
                    self.feeds[port].lock().unwrap().push_back(bytes);
                    *tag = tag.wrapping_add(1);
                }
                while !self.datapath.run_once(self.now_ms).exhausted {}
            }
            Step::Toggle(rule) => self.toggle(*rule),
            Step::Wait(ms) => {
                self.now_ms += ms;
                self.datapath.service(self.now_ms);
                self.ofproto.tick(self.now_ms);
                self.ofproto.revalidate(&*self.datapath.store(), self.now_ms, 10_000);
                self.datapath.run_once(self.now_ms);
            }
            Step::Flush(zone) => {
                self.datapath.conntrack().flush(&Filter::zone(*zone));
            }
            Step::Judge(judge) => self.datapath.conntrack().set_check_tcp_seq(*judge),
        }
    }

    /// Everything that must not depend on the lookup.
    fn outcome(&self) -> Outcome {
        self.ofproto.revalidate(&*self.datapath.store(), self.now_ms, u64::MAX);
        let all = FlowMod::new(FlowCommand::Delete);
        let rules = self.ofproto.rules(BRIDGE, &all).unwrap();
        let mut rules: Vec<String> = rules
            .iter()
            .map(|entry| format!("{:?} {:?} {:?}", entry.rule.priority, entry.matches, entry.rule.stats()))
            .collect();
        rules.sort();
        let mut connections = Vec::new();
        self.datapath.conntrack().dump(&Filter::default(), self.now_ms, |entry| connections.push(format!("{entry:?}")));
        connections.sort();
        let totals = self.datapath.totals();
        assert_eq!(totals.conserved(), Ok(()));
        let answered = [Counter::EmcHits, Counter::MegaflowHits, Counter::Upcalls, Counter::UpcallsLost];
        assert_eq!(totals[Counter::Passes], answered.iter().map(|counter| totals[*counter]).sum::<u64>());
        let counted = [
            Counter::Received,
            Counter::Sent,
            Counter::Cloned,
            Counter::Passes,
            Counter::ConntrackCommits,
            Counter::ConntrackInvalid,
        ];
        let mut counters: Vec<(&str, u64)> = counted.iter().map(|c| (c.name(), totals[*c])).collect();
        counters.extend(DropReason::ALL.iter().map(|reason| (reason.name(), totals.dropped(*reason))));
        let sent = self.sent.iter().map(|sent| std::mem::take(&mut *sent.lock().unwrap())).collect();
        Outcome { sent, rules, connections, counters }
    }
}

#[derive(Debug, PartialEq)]
struct Outcome {
    sent: Vec<Vec<Vec<u8>>>,
    rules: Vec<String>,
    connections: Vec<String>,
    counters: Vec<(&'static str, u64)>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn composed_entries_change_nothing(
        there in prop::collection::vec(prop::bool::weighted(0.6), RULES.len()),
        steps in prop::collection::vec(step(), 1..24),
        batch in prop::sample::select(vec![1usize, 7, 32]),
        emc in prop::sample::select(vec![Level::On, Level::Off]),
        recirculations in prop::sample::select(vec![8u8, 8, 3, 2, 1]),
    ) {
        let mut plain = Switch::new((Level::Off, emc), batch, recirculations, &there);
        let mut composed = Switch::new((Level::On, emc), batch, recirculations, &there);
        let (mut tag, mut tag_again) = (0, 0);
        for step in &steps {
            plain.step(step, &mut tag);
            composed.step(step, &mut tag_again);
            prop_assert_eq!(composed.outcome(), plain.outcome(), "after {:?}", step);
        }
        prop_assert_eq!(plain.datapath.totals()[Counter::ComposedHits], 0);
    }
}

/// The rules of a test, by a part of their text.
fn only(wanted: &[&str]) -> Vec<bool> {
    RULES.iter().map(|rule| wanted.iter().any(|part| rule.contains(part))).collect()
}

/// The passes that composed entries answer of this many packets, after two packets in both directions.
fn composed_hits(rules: &[&str], tcp: Option<u8>, packets: usize) -> u64 {
    let mut switch = Switch::new((Level::On, Level::Off), 32, RECIRCULATIONS, &only(rules));
    let (mut tag, both) = (0, |n| [packet(n, false, tcp), packet(n, true, tcp)]);
    for _ in 0..4 {
        (1..4).for_each(|n| both(n).into_iter().for_each(|one| switch.step(&Step::Packets(vec![one]), &mut tag)));
    }
    let before = switch.datapath.totals();
    let many = (0..packets).map(|i| packet(1 + i as u8 % 3, i % 2 == 0, tcp)).collect();
    switch.step(&Step::Packets(many), &mut tag);
    let since = switch.datapath.totals().since(&before);
    assert_eq!(since[Counter::Passes], since[Counter::MegaflowHits]);
    since[Counter::ComposedHits]
}

/// The random test covers what it should: paths with one, two and three `ct` are composed.
#[test]
fn every_pass_of_a_known_connection_is_composed() {
    let one = ["table=0,priority=10,", "table=1,priority=10,"];
    assert_eq!(composed_hits(&one, None, 100), 200);
    assert_eq!(composed_hits(&one, Some(0x10), 100), 200);
    let two = [&one[..], &["table=1,priority=40,", "table=1,priority=41,", "table=2,priority=10,"]].concat();
    assert_eq!(composed_hits(&two, None, 100), 300);
    assert_eq!(composed_hits(&two, Some(0x10), 100), 300);
    let three = [&two[..], &["table=2,priority=35,", "table=3,"]].concat();
    assert_eq!(composed_hits(&three, None, 100), 400);
}

/// IPv6 as well, whose addresses an entry has only as a hash: a connection whose packets have the hash of another one's is
/// told apart from it, and each takes the other's entry.
#[test]
fn connections_over_ipv6_are_composed_and_told_apart_by_their_addresses() {
    let one = ["table=0,priority=10,", "table=1,priority=10,"];
    let two = [&one[..], &["table=1,priority=40,", "table=1,priority=41,", "table=2,priority=10,"]].concat();
    for (rules, lookups) in [(&one[..], 2), (&two, 3)] {
        for tcp in [None, Some(0x10)] {
            let mut both = Both::new(&only(rules));
            let of = |n, reply| Offered { v6: true, ..packet(n, reply, tcp) };
            let apart = [of(0, false), of(0, true), of(2, false), of(2, true)];
            both.packets(&apart);
            assert_eq!(both.packets(&apart).1, 4 * lookups);
            let alike = [of(0, false), of(1, false)];
            both.packets(&alike);
            let (_, hits) = both.step(&Step::Packets([&alike[..], &alike].concat()));
            // Of two one is replayed, and the other takes its passes after its entry was refused.
            assert!((2 * lookups + 2..4 * lookups).contains(&hits), "{hits}");
        }
    }
}

/// A path is that of the IPv6 addresses and the label that rules match on.
#[test]
fn what_rules_match_on_of_the_line_of_addresses_is_compared() {
    let rules = ["table=0,priority=10,", "table=1,priority=10,", "ipv6_src=::1/::1,actions=output:3", "ipv6_label=5,"];
    let mut both = Both::new(&only(&rules));
    let of = |n| Offered { v6: true, ..packet(n, false, None) };
    let talk: Vec<_> = (0..4).flat_map(|n| [of(n), Offered { reply: true, ..of(n) }]).collect();
    both.packets(&talk);
    let (sent, hits) = both.packets(&(0..4).map(of).collect::<Vec<_>>());
    let sent: Vec<_> = sent.iter().map(Vec::len).collect();
    assert!(sent[1] != 0 && sent[2] != 0 && sent[1] + sent[2] == 4 && hits != 0, "{sent:?} {hits}");
    let (sent, _) = both.packets(&[of(2), Offered { twist: 7, ..of(2) }]);
    assert_eq!(sent[3].len(), 1);
}

/// Two switches, one of them with composed entries.
struct Both {
    plain: Switch,
    composed: Switch,
    tag: u16,
}

impl Both {
    fn new(there: &[bool]) -> Both {
        Both::that_recirculate(RECIRCULATIONS, there)
    }

    fn that_recirculate(recirculations: u8, there: &[bool]) -> Both {
        let switch = |composed| Switch::new((composed, Level::Off), 32, recirculations, there);
        Both { plain: switch(Level::Off), composed: switch(Level::On), tag: 0 }
    }

    /// Applies a step to both switches, whose results must be the same. Returns what each port sent, and how many
    /// lookups composed entries answered.
    fn step(&mut self, step: &Step) -> (Vec<Vec<Vec<u8>>>, u64) {
        let (before, mut again) = (self.composed.datapath.totals(), self.tag);
        self.plain.step(step, &mut self.tag);
        self.composed.step(step, &mut again);
        let outcome = self.plain.outcome();
        assert_eq!(self.composed.outcome(), outcome, "after {step:?}");
        (outcome.sent, self.composed.datapath.totals().since(&before)[Counter::ComposedHits])
    }

    /// Receives these packets, each alone and all of them twice; as [`Self::step`].
    fn packets(&mut self, packets: &[Offered]) -> (Vec<Vec<Vec<u8>>>, u64) {
        for packet in packets.iter().chain(packets) {
            self.step(&Step::Packets(vec![packet.clone()]));
        }
        self.step(&Step::Packets(packets.to_vec()))
    }
}

/// If a rule is added or deleted while two `ct` are composed into one lookup, even between them, the next packet
/// follows the rules.
#[test]
fn every_change_of_a_rule_is_followed_at_once() {
    let two = [
        "table=0,priority=10,",
        "table=1,priority=10,",
        "table=1,priority=40,",
        "table=1,priority=41,",
        "table=2,priority=10,",
    ];
    let talk: Vec<_> = (1..4)
        .flat_map(|n| [None, Some(0x18)].map(|tcp| [packet(n, false, tcp), packet(n, true, tcp)]))
        .flatten()
        .collect();
    for (rule, text) in RULES.iter().enumerate() {
        let mut both = Both::new(&only(&two));
        both.packets(&talk);
        assert_eq!(both.packets(&talk).1, 3 * talk.len() as u64, "composed before {text}");
        for _ in 0..2 {
            both.step(&Step::Toggle(rule));
            both.packets(&talk);
        }
    }
}

/// One direction writes the connection's mark, and the composed path of the other direction matches on it.
#[test]
fn a_mark_that_changes_is_seen() {
    let rules = ["table=0,priority=20,", "table=1,priority=12,", "table=1,priority=10,", "table=1,priority=20,"];
    let mut both = Both::new(&only(&rules));
    let (there, back) = (packet(1, false, None), packet(1, true, None));
    both.packets(&[there.clone(), back.clone()]);
    let (sent, hits) = both.packets(std::slice::from_ref(&there));
    assert_eq!((sent.iter().map(Vec::len).collect::<Vec<_>>(), hits), (vec![0, 0, 0, 1], 2), "by its mark of 7");
    both.step(&Step::Toggle(RULES.iter().position(|rule| rule.contains("priority=52,")).unwrap()));
    both.step(&Step::Packets(vec![back]));
    let (sent, _) = both.step(&Step::Packets(vec![there]));
    assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [0, 1, 0, 0], "its mark is 9 now");
}

/// Packets that are translated are composed, by source and by destination and in both directions; what is sent, and on what
/// rules match, are the translated addresses and ports.
#[test]
fn translated_packets_are_composed() {
    let tables = ["table=0,priority=10,", "table=0,priority=30,", "table=0,priority=32,", "table=0,priority=33,"];
    let rules =
        [&tables[..], &["table=1,priority=13,", "table=1,priority=15,", "table=1,priority=14,ct_state=+new+trk,tcp6"]];
    let rules = [&rules.concat()[..], &["table=1,priority=10,"]].concat();
    let further = ["table=1,priority=31,ct_state=+est+trk,ip,", "table=1,priority=34,"];
    for (v6, n, tcp) in [
        (false, 3, None),
        (false, 3, Some(0x10)),
        (false, 4, None),
        (false, 4, Some(0x10)),
        (true, 3, None),
        (true, 4, Some(0x10)),
    ] {
        let mut both = Both::new(&only(&rules));
        let there = Offered { v6, ..packet(n, false, tcp) };
        let back = Offered { v6, reply: true, translated: true, ..there.clone() };
        both.packets(&[there.clone(), back.clone()]);
        let (sent, hits) = both.packets(&[there.clone(), back.clone()]);
        assert_eq!((sent[0].len(), sent[1].len(), hits), (1, 1, 4), "{there:?}");
        // Both directions say what the other receives: the addresses exchanged, and the ports.
        let addresses = if v6 { 22..54 } else { 26..34 };
        let (l4, middle) = (addresses.end, (addresses.start + addresses.end) / 2);
        for (received, sent) in [(&there, &sent[0][0]), (&back, &sent[1][0])] {
            let (_, received) = received.frame(0);
            assert_eq!(sent[addresses.start..middle], received[middle..addresses.end]);
            assert_eq!(sent[middle..addresses.end], received[addresses.start..middle]);
            assert_eq!(sent[l4..l4 + 2], received[l4 + 2..l4 + 4]);
            assert_eq!(sent[l4 + 2..l4 + 4], received[l4..l4 + 2]);
        }
        for rule in further {
            both.step(&Step::Toggle(RULES.iter().position(|text| text.starts_with(rule)).unwrap()));
        }
        let (sent, hits) = both.packets(std::slice::from_ref(&there));
        let port = [(false, 3, 3), (true, 4, 2)]
            .iter()
            .find(|(six, of, _)| (*six, *of) == (v6, n))
            .map_or(1, |(_, _, port)| *port);
        assert_eq!((sent[port].len(), hits), (1, 2), "{there:?}");
    }
}

/// Behind a translation a further `ct` knows the packet by its new addresses, and may translate it again.
#[test]
fn a_path_may_translate_twice() {
    let rules = [
        "table=0,priority=30,",
        "table=0,priority=35,",
        "table=1,priority=13,ct_state=+new+trk,ip,",
        "table=1,priority=10,",
        "table=1,priority=49,",
        "table=2,priority=22,",
        "table=2,priority=23,",
        "table=4,",
    ];
    for tcp in [None, Some(0x10)] {
        let mut both = Both::new(&only(&rules));
        let there = packet(3, false, tcp);
        let back = Offered { translated: true, ..packet(3, true, tcp) };
        let from_translated = Offered { twist: 9, ..back.clone() };
        both.packets(&[there.clone(), back]);
        let talk = [there.clone(), from_translated.clone()];
        (0..2).for_each(|_| _ = both.packets(&talk));
        for (offered, port, addresses, ports) in [
            (there, 3, [10, 9, 9, 9, 20, 0, 0, 7], [1003u16, 8080]),
            (from_translated, 0, [20, 0, 0, 1, 10, 0, 0, 3], [80, 1003]),
        ] {
            let (sent, hits) = both.packets(&[offered]);
            assert_eq!((sent[port].len(), hits), (1, 3));
            assert_eq!(sent[port][0][26..34], addresses);
            assert_eq!(sent[port][0][34..38], ports.map(u16::to_be_bytes).concat());
        }
    }
}

/// A connection may be translated to its own address: its state says so.
#[test]
fn packets_translated_to_what_they_were_are_known_as_translated() {
    let rules =
        ["table=0,priority=30,", "table=0,priority=31,", "table=1,priority=14,", "priority=47,", "priority=48,"];
    let mut both = Both::new(&only(&rules));
    let (there, back) = (packet(3, false, None), packet(3, true, None));
    both.packets(&[there.clone(), back.clone()]);
    let (sent, hits) = both.packets(&[there, back]);
    assert_eq!((sent.iter().map(Vec::len).collect::<Vec<_>>(), hits), (vec![0, 0, 1, 1], 4));
}

/// What opens a connection whose address is translated, and a reply to the translated address behind it.
#[test]
fn a_reply_to_a_translated_address_waits_behind_packets_of_its_connection() {
    let rules = ["table=0,priority=30,", "table=0,priority=32,", "table=1,priority=13,", "table=1,priority=10,"];
    let mut both = Both::new(&only(&rules));
    let there = packet(3, false, Some(0x10));
    let back = Offered { translated: true, twist: 8, ..packet(3, true, Some(0x10)) };
    for _ in 0..3 {
        both.packets(&[there.clone(), back.clone()]);
    }
    let opens = |packet: &Offered| Offered { tcp: Some(0x02), ..packet.clone() };
    for [front, behind] in [[&there, &back], [&back, &there]] {
        assert_eq!(both.step(&Step::Packets(vec![behind.clone()])).1, 2);
        assert_eq!(both.step(&Step::Packets(vec![opens(front), behind.clone()])).1, 1 + 1);
    }
}

/// Marks, labels and directions that every packet of a connection writes are written by every packet.
#[test]
fn what_a_ct_writes_every_packet_writes() {
    for writers in
        [["priority=42,", "priority=43,"], ["priority=44,", "priority=45,"], ["priority=41,", "priority=46,"]]
    {
        let rules = [&["table=0,priority=10,", "table=1,priority=10,", "table=2,priority=10,"][..], &writers].concat();
        let mut both = Both::new(&only(&rules));
        let talk = [None, Some(0x10)].map(|tcp| [packet(1, false, tcp), packet(1, true, tcp)]);
        for _ in 0..3 {
            both.packets(talk.as_flattened());
        }
    }
}

/// A packet that diverges from its path has recirculated as often as a plain one: it is dropped at the same limit.
#[test]
fn a_diverged_packet_may_not_recirculate_more_often() {
    let rules = ["table=0,priority=10,", "table=1,priority=10,", "table=1,priority=61,"];
    let mut both = Both::that_recirculate(1, &only(&rules));
    let talk = [packet(1, false, Some(0x10)), packet(1, true, Some(0x10))];
    for _ in 0..3 {
        both.packets(&talk);
    }
    both.step(&Step::Packets(vec![Offered { wild: true, ..packet(1, false, Some(0x10)) }]));
    for switch in [&both.plain, &both.composed] {
        assert_eq!(switch.datapath.totals().dropped(DropReason::RecircDepth), 1);
    }
}

/// Behind a packet that takes the passes one by one, packets of other connections are composed, those of its own are not.
#[test]
fn only_packets_of_its_connection_wait_behind_one_that_is_tracked_later() {
    let rules = [
        "table=0,priority=10,",
        "table=1,priority=10,",
        "table=1,priority=40,",
        "table=1,priority=41,",
        "table=2,priority=10,",
    ];
    let mut both = Both::new(&only(&rules));
    let [known, other] = [2, 1].map(|n| packet(n, false, Some(0x10)));
    let fragment = Offered { twist: 3, ..packet(2, false, None) };
    for _ in 0..3 {
        both.packets(&[known.clone(), other.clone(), fragment.clone()]);
        both.packets(&[1, 2].map(|n| packet(n, true, Some(0x10))));
    }
    let hits = |both: &mut Both, packets: &[Offered]| both.step(&Step::Packets(packets.to_vec())).1;
    // Three lookups of a packet that is composed, and the first one of a packet that waits.
    assert_eq!(hits(&mut both, std::slice::from_ref(&known)), 3);
    assert_eq!(hits(&mut both, &[packet(4, false, Some(0x02)), known.clone()]), 3, "a connection that begins");
    let [opens, other_opens] = [2, 1].map(|n| packet(n, false, Some(0x02)));
    assert_eq!(hits(&mut both, &[other_opens, known.clone()]), 1 + 3, "what opens another connection");
    assert_eq!(hits(&mut both, &[opens, known.clone(), other.clone()]), 1 + 1 + 3, "what opens its own");
    assert_eq!(hits(&mut both, &[fragment, known, other]), 1 + 1, "a fragment, which may be of any");
}
