//! Tunnels beside their plain passes: two switches with the same rules get the same packets. One looks up outer and inner
//! headers apart, pass by pass; the other remembers what took headers off, and composes the passes of the connections
//! within. Meanwhile rules come and go, a tunnel's port gets another key, a neighbour another address, connections expire.
//! What is sent, the counters of every rule, the state of connections and the counters of drops must be the same.

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
use sluice_flow::geneve::{GeneveOption, OptionKind};
use sluice_flow::{Mac, PortNames, TunnelKey, tunnel_flags};
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{BridgeConfig, DeviceAddresses, Ofproto, PortConfig, TunnelPort};
use sluice_tunnel::header::{OuterLink, PerPacket, TunnelHeader};
use sluice_tunnel::{TunnelKind, parse};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The bridge with the rules and the tunnels, and the one with the wire.
const INT: &str = "int";
const EXT: &str = "ext";
/// The wire; ports that packets leave by plainly; the device with the address; what serves the tunnels.
const WIRE: PortNo = PortNo(1);
const PLAIN: [u32; 2] = [3, 4];
const DEVICE: PortNo = PortNo(100);
const BACKEND: PortNo = PortNo(9);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 1);
const OWN_MAC: Mac = Mac([2, 0, 0, 0, 9, 1]);
/// Bits in front of an IPv4 address in an IPv6 address that maps it, and those of the network.
const PREFIX: u8 = 96 + 24;
const OPTION: OptionKind = OptionKind { class: 0x102, kind: 0x80, length: 4 };

/// Clients are behind port 1, a tunnel; servers behind port 2, another one.
fn remote(end: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 200, 0, 11 + end as u8)
}

/// The rules that the test adds and deletes; most are there at first.
const RULES: &[&str] = &[
    "table=0,priority=10,ct_state=-trk,ip,actions=ct(table=1)",
    "table=0,priority=20,ct_state=-trk,udp,actions=ct(table=1,zone=5)",
    "table=0,priority=30,ct_state=-trk,ip,nw_src=10.0.0.3,actions=ct(table=1,nat)",
    "table=0,priority=40,ip,nw_tos=32,actions=drop",
    "table=0,priority=50,ip,tun_id=5,nw_src=10.0.0.4,actions=output:3",
    "table=0,priority=51,ip,tun_metadata0=7,nw_src=10.0.0.2,actions=output:4",
    "table=1,priority=10,ct_state=+new+trk,ip,in_port=1,actions=ct(commit),output:2",
    "table=1,priority=11,ct_state=+new+trk,ip,in_port=1,ct_zone=5,actions=ct(commit,zone=5),output:2",
    "table=1,priority=10,ct_state=+est+trk,ip,in_port=1,actions=output:2",
    "table=1,priority=10,ct_state=+est+trk,ip,in_port=2,actions=output:1",
    "table=1,priority=20,ct_state=+est+trk,udp,tun_id=5,actions=output:3",
    "table=1,priority=30,ct_state=+est+trk,ip,tun_metadata0=9/0xf,actions=output:4",
    "table=1,priority=40,ct_state=+est+rpl+trk,ip,actions=ct(table=2,zone=9)",
    "table=1,priority=41,ct_state=+est-rpl+trk,ip,actions=ct(table=2,zone=9)",
    "table=1,priority=45,ct_state=+est+trk,udp,nw_src=10.0.0.1,actions=output:2,output:3",
    "table=2,priority=10,ct_state=+new+trk,ip,actions=ct(commit,zone=9),output:3",
    "table=2,priority=10,ct_state=+est+trk,ip,in_port=1,actions=output:2",
    "table=2,priority=10,ct_state=+est+trk,ip,in_port=2,actions=output:1",
    "table=2,priority=20,ct_state=+est+trk,ip,tun_src=10.200.0.12,actions=output:4",
    "table=0,priority=10,ct_state=-trk,ipv6,actions=ct(table=1)",
    "table=1,priority=10,ct_state=+new+trk,ipv6,in_port=1,actions=ct(commit),output:2",
    "table=1,priority=10,ct_state=+est+trk,ipv6,in_port=1,actions=output:2",
    "table=1,priority=10,ct_state=+est+trk,ipv6,in_port=2,actions=output:1",
    "table=1,priority=20,ct_state=+est+trk,udp6,tun_id=5,actions=output:3",
    "table=1,priority=30,ct_state=+est+trk,ipv6,ipv6_src=::1/::1,actions=output:4",
    "table=1,priority=41,ct_state=+est-rpl+trk,ipv6,actions=ct(table=2,zone=9)",
    "table=2,priority=10,ct_state=+new+trk,ipv6,actions=ct(commit,zone=9),output:3",
    "table=2,priority=10,ct_state=+est+trk,ipv6,in_port=1,actions=output:2",
];

/// What is done to both switches.
#[derive(Clone, Debug)]
enum Step {
    /// Packets come, in bursts.
    Packets(Vec<Outer>),
    /// A rule is added if it is not there, and deleted otherwise.
    Toggle(usize),
    /// The first tunnel gets another key.
    Key,
    /// The neighbour behind a tunnel gets another Ethernet address.
    Neighbour(usize, u8),
    /// The route's device gets another Ethernet address.
    Device(u8),
    /// Milliseconds pass; the revalidator runs and connections expire.
    Wait(u64),
    /// All connections are flushed.
    Flush,
}

/// A packet that comes by the wire.
#[derive(Clone, Debug)]
struct Outer {
    inner: Offered,
    /// The tunnel's key.
    key: u64,
    /// The value of its option, if it has one.
    option: Option<u64>,
    /// 1: without a header; 2: a wrong version; 3: another UDP port; 4: congested; 5: a checksum; 6: from the other end.
    twist: u8,
}

impl Outer {
    fn bytes(&self, tag: u16, own_mac: Mac) -> Vec<u8> {
        let (end, frame) = self.inner.frame(tag);
        if self.twist == 1 {
            return frame;
        }
        let options: Vec<_> =
            self.option.map(|value| GeneveOption::new(OPTION, u128::from(value).into())).into_iter().collect();
        let src = remote(if self.twist == 6 { 1 - end } else { end }).to_ipv6_mapped();
        let config = config(OWN, "flow");
        let key = TunnelKey {
            id: self.key,
            src: src.to_bits(),
            dst: OWN.to_ipv6_mapped().to_bits(),
            flags: tunnel_flags::KEY | if self.twist == 5 { tunnel_flags::CSUM } else { 0 },
            tos: if self.twist == 4 { 3 } else { 0 },
            ttl: 64,
            tp_dst: config.dst_port,
            ..TunnelKey::default()
        };
        let link = OuterLink { link_dst: own_mac.0, link_src: [6; 6], src };
        let header = TunnelHeader::build(&config, &key, &options, &link).unwrap();
        let mut packet = [header.bytes(), &frame].concat();
        let source_port = 40_000 + u16::from(self.inner.connection);
        header.complete(&mut packet, PerPacket { source_port, ..PerPacket::default() }).unwrap();
        match self.twist {
            2 => packet[42] |= 0x40,
            3 => packet[37] ^= 1,
            _ => {}
        }
        packet
    }
}

fn config(remote: Ipv4Addr, key: &str) -> sluice_tunnel::TunnelConfig {
    let options = [("remote_ip".to_owned(), remote.to_string()), ("key".to_owned(), key.to_owned())].into();
    parse("t", TunnelKind::Geneve, &options).unwrap().config
}

fn outer() -> impl Strategy<Value = Outer> {
    let twist = prop_oneof![20 => Just(0u8), 1 => 1..6u8, 2 => Just(6)];
    let option = prop_oneof![1 => Just(None), 2 => prop::sample::select(vec![7u64, 9, 0x19]).prop_map(Some)];
    (offered(), prop_oneof![8 => Just(5u64), 1 => Just(6)], option, twist)
        .prop_map(|(inner, key, option, twist)| Outer { inner, key, option, twist })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => prop::collection::vec(outer(), 1..70).prop_map(Step::Packets),
        3 => (0..RULES.len()).prop_map(Step::Toggle),
        1 => Just(Step::Key),
        1 => (0..2usize, 1..4u8).prop_map(|(end, mac)| Step::Neighbour(end, mac)),
        1 => (1..3u8).prop_map(Step::Device),
        2 => prop_oneof![Just(1u64), Just(700), Just(16_000), Just(31_000)].prop_map(Step::Wait),
        1 => Just(Step::Flush),
    ]
}

/// A switch.
struct Switch {
    ofproto: Ofproto,
    datapath: Datapath,
    feed: Feed,
    sent: Vec<Sent>,
    there: Vec<bool>,
    key: u64,
    own_mac: Mac,
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
        [INT, EXT].into_iter().for_each(|bridge| ofproto.add_bridge(BridgeConfig::new(bridge), 0).unwrap());
        ofproto.add_port(EXT, PortConfig::new(EXT, 0xfffe, DEVICE)).unwrap();
        ofproto.add_port(EXT, PortConfig::new("wire", 1, WIRE)).unwrap();
        let pool = pool(4096);
        let (mut feed, mut sent) = (Feed::default(), Vec::new());
        for number in [WIRE.0].into_iter().chain(PLAIN) {
            let port = TestPort::new(1, 32, &pool);
            sent.push(port.sent.clone());
            if number == WIRE.0 {
                feed = port.feeds[0].clone();
            } else {
                ofproto.add_port(INT, PortConfig::new(&format!("p{number}"), number as u16, PortNo(number))).unwrap();
            }
            datapath.add_port(PortNo(number), Box::new(port)).unwrap();
        }
        let mut switch = Switch {
            ofproto,
            datapath,
            feed,
            sent,
            there: vec![false; RULES.len()],
            key: 5,
            own_mac: OWN_MAC,
            now_ms: 1000,
        };
        switch.set_device(OWN_MAC);
        for end in 0..2 {
            switch.add_tunnel(end, 5);
            switch.set_neighbour(end, 1);
        }
        for rule in ["in_port=LOCAL,actions=output:1", "in_port=1,actions=LOCAL"] {
            switch.flow_mod(EXT, rule, FlowCommand::Add);
        }
        switch.ofproto.map_tunnel_options(INT, &[(0, OPTION)]);
        (0..RULES.len()).filter(|i| there[*i]).for_each(|i| switch.toggle(i));
        switch
    }

    fn flow_mod(&self, bridge: &str, text: &str, command: FlowCommand) {
        let change = FlowMod::parse(text, command, &PortNames::NONE).unwrap();
        self.ofproto.flow_mod(bridge, &change, self.now_ms).unwrap();
    }

    fn add_tunnel(&self, end: usize, key: u64) {
        let tunnel = TunnelPort { config: config(remote(end), &key.to_string()), backend: BACKEND };
        self.ofproto.add_port(INT, PortConfig::tunnel(&format!("t{end}"), 1 + end as u16, tunnel)).unwrap();
    }

    fn set_neighbour(&self, end: usize, mac: u8) {
        let ip: Ipv6Addr = remote(end).to_ipv6_mapped();
        self.ofproto.set_neighbour(EXT, ip, Mac([2, 0, 0, 0, 7, mac]), self.now_ms);
    }

    fn set_device(&mut self, mac: Mac) {
        self.own_mac = mac;
        let device = DeviceAddresses { mac, addresses: vec![(OWN.to_ipv6_mapped(), PREFIX)] };
        let routes = device.routes(EXT);
        self.ofproto.set_devices([(EXT.to_owned(), device)].into(), routes);
    }

    fn toggle(&mut self, rule: usize) {
        let was_there = self.there[rule];
        self.there[rule] = !was_there;
        match was_there {
            true => self.flow_mod(INT, RULES[rule].split(",actions").next().unwrap(), FlowCommand::DeleteStrict),
            false => self.flow_mod(INT, RULES[rule], FlowCommand::Add),
        }
    }

    fn step(&mut self, step: &Step, tag: &mut u16) {
        match step {
            Step::Packets(packets) => {
                for packet in packets {
                    self.feed.lock().unwrap().push_back(packet.bytes(*tag, OWN_MAC));
                    *tag = tag.wrapping_add(1);
                }
                while !self.datapath.run_once(self.now_ms).exhausted {}
            }
            Step::Toggle(rule) => self.toggle(*rule),
            Step::Key => {
                self.key = 11 - self.key;
                self.ofproto.remove_port(INT, "t0").unwrap();
                self.add_tunnel(0, self.key);
            }
            Step::Neighbour(end, mac) => self.set_neighbour(*end, *mac),
            Step::Device(last) => self.set_device(Mac([2, 0, 0, 0, 9, *last])),
            Step::Wait(ms) => {
                self.now_ms += ms;
                self.datapath.service(self.now_ms);
                self.ofproto.tick(self.now_ms);
                self.ofproto.revalidate(&*self.datapath.store(), self.now_ms, 10_000);
                self.datapath.run_once(self.now_ms);
            }
            Step::Flush => {
                self.datapath.conntrack().flush(&Filter::zone(None));
            }
        }
    }

    /// Everything that must not depend on the lookup.
    fn outcome(&self) -> Outcome {
        self.ofproto.revalidate(&*self.datapath.store(), self.now_ms, u64::MAX);
        let all = FlowMod::new(FlowCommand::Delete);
        let rules = [INT, EXT].into_iter().flat_map(|bridge| self.ofproto.rules(bridge, &all).unwrap());
        let mut rules: Vec<String> = rules
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
        let counted = [Counter::Received, Counter::Sent, Counter::Cloned, Counter::Passes, Counter::ConntrackCommits];
        let mut counters: Vec<(&str, u64)> = counted.iter().map(|c| (c.name(), totals[*c])).collect();
        counters.extend(DropReason::ALL.iter().map(|reason| (reason.name(), totals.dropped(*reason))));
        let sent = self.sent.iter().map(|sent| std::mem::take(&mut *sent.lock().unwrap())).collect();
        let tunnels =
            [1, 2].map(|port| format!("{:?}", self.ofproto.vport_stats(INT, sluice_flow::OfPort(port)))).into();
        Outcome { sent, rules, tunnels, connections, counters }
    }
}

#[derive(Debug, PartialEq)]
struct Outcome {
    sent: Vec<Vec<Vec<u8>>>,
    rules: Vec<String>,
    tunnels: Vec<String>,
    connections: Vec<String>,
    counters: Vec<(&'static str, u64)>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn one_lookup_for_outer_and_inner_changes_nothing(
        there in prop::collection::vec(prop::bool::weighted(0.6), RULES.len()),
        steps in prop::collection::vec(step(), 1..20),
        batch in prop::sample::select(vec![1usize, 7, 32]),
        emc in prop::sample::select(vec![Level::On, Level::Off]),
        recirculations in prop::sample::select(vec![8u8, 8, 6, 3, 2, 1]),
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

fn by_tunnel(inner: Offered) -> Outer {
    Outer { inner, key: 5, option: None, twist: 0 }
}

/// The rules of a test, by a part of their text.
fn only(wanted: &[&str]) -> Vec<bool> {
    RULES.iter().map(|rule| wanted.iter().any(|part| rule.contains(part))).collect()
}

/// What a tunnel says of a packet is part of its path: packets of one connection with another option, from another end or with
/// another key do not follow it.
#[test]
fn a_path_is_that_of_a_tunnels_fields() {
    let rules = ["table=0,priority=10,", "table=1,priority=10,", "table=1,priority=30,"];
    let mut both = [Level::Off, Level::On].map(|composed| Switch::new((composed, Level::Off), 32, 8, &only(&rules)));
    let mut tags = [0; 2];
    let talk = |option, twist| -> Vec<Outer> {
        let packets = [false, true].map(|reply| packet(1, reply, Some(0x10)));
        packets.map(|inner| Outer { inner, key: 5, option, twist }).into()
    };
    let mut sent = |packets: Vec<Outer>| {
        let [plain, composed] = [0, 1].map(|i| {
            both[i].step(&Step::Packets(packets.clone()), &mut tags[i]);
            both[i].outcome()
        });
        assert_eq!(composed, plain, "{packets:?}");
        composed.sent.iter().map(Vec::len).collect::<Vec<_>>()
    };
    for _ in 0..4 {
        sent(talk(Some(7), 0));
    }
    assert_eq!(sent(talk(Some(7), 0)), [2, 0, 0], "both by tunnels");
    assert_eq!(sent(talk(Some(9), 0)), [0, 0, 2], "by its option");
    for _ in 0..4 {
        sent(talk(None, 0));
    }
    // What comes back to the end that it came from is dropped: it is the port that the packet came by.
    assert_eq!(sent(talk(None, 0)), [2, 0, 0]);
    assert_eq!(sent(talk(None, 6)), [2, 0, 0]);
    let other_key = |packet: Outer| Outer { key: 6, ..packet };
    assert_eq!(sent(talk(None, 0).into_iter().map(other_key).collect()), [0, 0, 0], "no port has that key");
}

/// The passes of so many packets of known connections, and those of them that were answered without a lookup of their own.
fn passes_and_composed(there: &[bool], packets: usize) -> (u64, u64) {
    let mut switch = Switch::new((Level::On, Level::Off), 32, 8, there);
    let mut tag = 0;
    for _ in 0..4 {
        for n in 1..4 {
            for reply in [false, true] {
                switch.step(&Step::Packets(vec![by_tunnel(packet(n, reply, Some(0x10)))]), &mut tag);
            }
        }
    }
    let before = switch.datapath.totals();
    let many = (0..packets).map(|i| by_tunnel(packet(1 + i as u8 % 3, i % 2 == 0, Some(0x10)))).collect();
    switch.step(&Step::Packets(many), &mut tag);
    let since = switch.datapath.totals().since(&before);
    assert_eq!((since[Counter::Sent], since[Counter::Passes]), (packets as u64, since[Counter::MegaflowHits]));
    (since[Counter::Passes], since[Counter::ComposedHits])
}

/// The random test covers what it should: of a packet that comes by a tunnel, is tracked and leaves by another, no pass takes
/// a lookup of its own; without tracking only that of the inner packet does.
#[test]
fn every_pass_that_is_known_is_answered_without_a_lookup_of_its_own() {
    assert_eq!(passes_and_composed(&only(&["table=0,priority=10,", "table=1,priority=10,"]), 96), (3 * 96, 3 * 96));
    let two =
        ["table=0,priority=10,", "priority=40,ct", "priority=41,", "table=1,priority=10,", "table=2,priority=10,"];
    assert_eq!(passes_and_composed(&only(&two), 96), (4 * 96, 4 * 96));
    let mut switch = Switch::new((Level::On, Level::Off), 32, 8, &vec![false; RULES.len()]);
    switch.flow_mod(INT, "ip,actions=output:3", FlowCommand::Add);
    let mut tag = 0;
    for _ in 0..2 {
        let burst = |n: u8| (0..n).map(|i| by_tunnel(packet(1 + i % 3, i % 2 == 0, None))).collect();
        switch.step(&Step::Packets(burst(1)), &mut tag);
        switch.step(&Step::Packets(burst(64)), &mut tag);
    }
    let totals = switch.datapath.totals();
    assert!(totals[Counter::ComposedHits] >= 96 && totals[Counter::ComposedHits] * 2 <= totals[Counter::Passes]);
}
