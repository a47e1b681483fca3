//! What is measured: a switch, its rules, its traffic, and which level of the lookup has to answer.

use crate::tunnel::{self, Way};
use crate::wire::{ACK, End, SYN, Sink, Source, Traffic, tcp, udp};
use sluice_action::PortNo;
use sluice_datapath::{Config, Datapath, Isa, Level, Settings};
use sluice_fate::{Counter, Snapshot};
use sluice_flow::PortNames;
use sluice_ofp::FlowMod;
use sluice_ofproto::{BridgeConfig, Ofproto};

/// What is measured.
pub struct Scenario {
    pub name: &'static str,
    way: Way,
    settings: Settings,
    rules: fn() -> String,
    traffic: fn() -> Traffic,
    /// Packets that are measured together.
    pub packets: usize,
    /// Whether the right level answers, by what was counted.
    answers: fn(&Snapshot) -> bool,
}

/// A scenario in one of its forms.
#[derive(Clone, Copy)]
pub struct Case {
    pub scenario: &'static Scenario,
    /// Packets that are received together.
    pub batch: usize,
    pub vector: &'static str,
}

/// Rules, and masks, of the scenarios without connections: the source address i.0.0.0/(7+i) for each i.
const SUBTABLES: u8 = 20;
const FLOWS: u16 = 240;
const CONNECTIONS: u16 = 32;

/// A scenario in which composed entries answer all packets of a few connections.
const fn composed(name: &'static str, way: Way, rules: fn() -> String, traffic: fn() -> Traffic) -> Scenario {
    let settings = Settings { composed: Level::On, ..Settings::BARE };
    let answers = |counted: &Snapshot| nearly(counted[Counter::ComposedHits], counted[Counter::Passes]);
    Scenario { name, way, settings, rules, traffic, packets: 1 << 14, answers }
}

/// A scenario in which one cache answers all packets of a few flows.
const fn cached(name: &'static str, settings: Settings, answers: fn(&Snapshot) -> bool) -> Scenario {
    Scenario { name, way: Way::Plain, settings, rules: rule_a_subtable, traffic: flows, packets: 1 << 14, answers }
}

pub const SCENARIOS: &[Scenario] = &[
    cached("emc-hit", Settings { emc: Level::On, ..Settings::BARE }, |counted| {
        nearly(counted[Counter::EmcHits], counted[Counter::Passes])
    }),
    cached("smc-hit", Settings { smc: Level::On, ..Settings::BARE }, |counted| {
        nearly(counted[Counter::SmcHits], counted[Counter::Passes])
    }),
    cached("distributor-hit", Settings { distributor: Level::On, ..Settings::BARE }, |counted| {
        nearly(counted[Counter::DistributorHits], counted[Counter::Passes])
    }),
    Scenario {
        name: "subtable-search",
        way: Way::Plain,
        settings: Settings::BARE,
        rules: rule_a_subtable,
        traffic: flows,
        packets: 1 << 14,
        answers: |counted| counted[Counter::MegaflowHits] == counted[Counter::Passes],
    },
    Scenario {
        name: "connection",
        way: Way::Plain,
        settings: Settings::BARE,
        rules: firewall,
        traffic: connections,
        packets: 1 << 14,
        answers: |counted| {
            counted[Counter::MegaflowHits] == 2 * counted[Counter::Received] && counted[Counter::ComposedHits] == 0
        },
    },
    composed("composed-connection", Way::Plain, firewall, connections),
    composed("translated-connection", Way::Plain, translating_firewall, translated_connections),
    Scenario {
        name: "flow-setup",
        way: Way::Plain,
        settings: Settings::BARE,
        rules: megaflow_a_flow,
        traffic: new_flows,
        packets: 1 << 11,
        answers: |counted| counted[Counter::MegaflowsInstalled] == counted[Counter::Received],
    },
    Scenario {
        name: "connection-setup",
        way: Way::Plain,
        settings: Settings::BARE,
        rules: udp_firewall,
        traffic: new_flows,
        packets: 1 << 11,
        answers: |counted| counted[Counter::MegaflowHits] == 2 * counted[Counter::Received],
    },
    Scenario {
        name: "tunnel-encap",
        way: Way::Encap,
        settings: Settings { emc: Level::On, ..Settings::BARE },
        rules: rule_a_subtable,
        traffic: flows,
        packets: 1 << 14,
        answers: |counted| nearly(counted[Counter::EmcHits], counted[Counter::Received]),
    },
    Scenario {
        name: "tunnel-decap",
        way: Way::Decap,
        settings: Settings { emc: Level::On, ..Settings::BARE },
        rules: rule_a_subtable,
        traffic: encapsulated_flows,
        packets: 1 << 14,
        answers: |counted| nearly(counted[Counter::EmcHits], 2 * counted[Counter::Received]),
    },
    Scenario {
        name: "known-decap",
        way: Way::Decap,
        settings: Settings { emc: Level::On, composed: Level::On, ..Settings::BARE },
        rules: rule_a_subtable,
        traffic: encapsulated_flows,
        packets: 1 << 14,
        answers: |counted| {
            let received = counted[Counter::Received];
            nearly(counted[Counter::EmcHits], received) && nearly(counted[Counter::ComposedHits], received)
        },
    },
    composed("connection-encap", Way::Encap, firewall, connections),
    composed("connection-decap", Way::Decap, firewall, encapsulated_connections),
];

/// A cache may have no place for a few flows.
fn nearly(hits: u64, passes: u64) -> bool {
    hits <= passes && hits * 100 >= passes * 98
}

fn rule_a_subtable() -> String {
    (1..=SUBTABLES).map(|i| format!("ip,nw_src={i}.0.0.0/{},actions=output:2\n", 7 + i)).collect()
}

fn firewall() -> String {
    "table=0,tcp,ct_state=-trk,actions=ct(table=1)\n\
     table=1,tcp,ct_state=+trk+new,actions=ct(commit),output:2\n\
     table=1,tcp,ct_state=+trk+est,actions=output:2\n"
        .into()
}

fn udp_firewall() -> String {
    firewall().replace("tcp", "udp")
}

/// It translates every client's address to one, and leaves them their ports, which differ.
fn translating_firewall() -> String {
    "table=0,tcp,ct_state=-trk,actions=ct(table=1,nat)\n\
     table=1,tcp,ct_state=+trk+new,actions=ct(commit,nat(src=198.51.100.1)),output:2\n\
     table=1,tcp,ct_state=+trk+est,actions=output:2\n"
        .into()
}

/// It reads addresses and ports, so that each flow gets a megaflow.
fn megaflow_a_flow() -> String {
    "udp,actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],move:NXM_OF_IP_DST[]->NXM_NX_REG1[],\
     move:NXM_OF_UDP_SRC[]->NXM_NX_REG2[0..15],move:NXM_OF_UDP_DST[]->NXM_NX_REG3[0..15],output:2\n"
        .into()
}

const SERVER: End = End { address: [192, 0, 2, 1], port: 80 };

fn flows() -> Traffic {
    let src = |flow: u16| End { address: [1 + (flow % u16::from(SUBTABLES)) as u8, 0, 0, 0], port: 1024 + flow };
    Traffic { frames: (0..FLOWS).map(|flow| udp(src(flow), SERVER)).collect(), again_from: 0, new_flows: false }
}

fn encapsulated_flows() -> Traffic {
    let flows = flows();
    Traffic { frames: tunnel::encapsulated(flows.frames), ..flows }
}

fn connections() -> Traffic {
    connections_seen_as(|client| client)
}

fn translated_connections() -> Traffic {
    connections_seen_as(|client| End { address: [198, 51, 100, 1], ..client })
}

/// Handshakes, and then segments of both sides of established connections; the server sees a client as told.
fn connections_seen_as(seen: impl Fn(End) -> End) -> Traffic {
    let clients = || (0..CONNECTIONS).map(|n| End { address: [10, 0, 0, n as u8], port: 1024 + n });
    let mut frames = Vec::new();
    for client in clients() {
        frames.push(tcp(client, SERVER, SYN, 100, 0));
        frames.push(tcp(SERVER, seen(client), SYN | ACK, 300, 101));
    }
    let again_from = frames.len();
    for client in clients() {
        frames.push(tcp(client, SERVER, ACK, 101, 301));
        frames.push(tcp(SERVER, seen(client), ACK, 301, 101));
    }
    Traffic { frames, again_from, new_flows: false }
}

fn encapsulated_connections() -> Traffic {
    let connections = connections();
    Traffic { frames: tunnel::encapsulated(connections.frames), ..connections }
}

fn new_flows() -> Traffic {
    Traffic { frames: vec![udp(End { address: [0; 4], port: 1024 }, SERVER)], again_from: 0, new_flows: true }
}

const BRIDGE: &str = "br0";

/// Milliseconds by which the clock goes on between rounds; what was not used since the last round is removed.
const ROUND_MS: u64 = 1000;

/// Rounds until caches and memory are as they stay.
const WARM_UP: usize = 4;

/// The switch of a case, warm.
pub struct Switch {
    case: Case,
    datapath: Datapath,
    ofproto: Ofproto,
    now_ms: u64,
}

impl Case {
    /// As it is named in records and arguments: `emc-hit/32/avx2`.
    pub fn name(&self) -> String {
        format!("{}/{}/{}", self.scenario.name, self.batch, self.vector)
    }

    pub fn all() -> Vec<Case> {
        let forms = [(1, "scalar"), (1, "avx2"), (32, "scalar"), (32, "avx2")];
        let cases = |scenario| forms.map(|(batch, vector)| Case { scenario, batch, vector });
        SCENARIOS.iter().flat_map(cases).collect()
    }

    /// Why this machine cannot run it.
    pub fn is_missing(&self) -> Option<String> {
        Isa::named(self.vector).err().map(|error| error.to_string())
    }

    pub fn switch(self) -> Switch {
        let scenario = self.scenario;
        let vector = Isa::named(self.vector).expect("a vector setting that this machine has");
        let settings = Settings { vector, ..scenario.settings };
        let config = Config { settings, max_megaflows: 1 << 16, seed: Some(1), ..Config::default() };
        let datapath = Datapath::new(config).expect("a datapath");
        let ofproto = Ofproto::new();
        let tables = ofproto.clone();
        datapath.set_upcalls(move |_| Box::new(tables.upcall()));
        ofproto.set_store(datapath.store());
        ofproto.add_bridge(BridgeConfig::new(BRIDGE), 0).expect("a bridge");
        tunnel::add_ports(scenario.way, BRIDGE, &ofproto);
        let source = Source::new((scenario.traffic)(), self.batch);
        datapath.add_port(PortNo(1), Box::new(source)).expect("a free number");
        datapath.add_port(PortNo(2), Box::new(Sink)).expect("a free number");
        let rules = FlowMod::parse_file(&(scenario.rules)(), &PortNames::NONE).expect("rules");
        ofproto.bundle(BRIDGE, &rules, 0).expect("a table");
        let mut switch = Switch { case: self, datapath, ofproto, now_ms: ROUND_MS };
        for _ in 0..WARM_UP {
            switch.forward();
            switch.age();
        }
        switch
    }
}

impl Switch {
    /// Takes a round of packets through the switch.
    pub fn forward(&self) {
        let Case { scenario, batch, .. } = self.case;
        self.datapath.run_iterations(scenario.packets / batch, self.now_ms);
    }

    /// Lets time pass, and removes the megaflows that were not used.
    pub fn age(&mut self) {
        self.now_ms += ROUND_MS;
        self.ofproto.revalidate(&*self.datapath.store(), self.now_ms, ROUND_MS);
    }

    /// A round in which `measure` runs [`Switch::forward`], whose answers are then checked.
    pub fn round<T>(&mut self, measure: impl FnOnce(&Switch) -> T) -> T {
        let before = self.datapath.totals();
        let measured = measure(self);
        let counted = self.datapath.totals().since(&before);
        let name = self.case.name();
        assert_eq!(self.datapath.totals().conserved(), Ok(()), "{name}");
        assert_eq!(counted[Counter::Received], self.case.scenario.packets as u64, "{name}: a round of packets comes");
        assert_eq!(counted[Counter::Received], counted[Counter::Sent], "{name}: every packet is sent");
        assert!((self.case.scenario.answers)(&counted), "{name}: another level answers: {counted:?}");
        self.age();
        measured
    }
}
