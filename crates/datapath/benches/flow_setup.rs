//! What a miss costs: every packet begins a flow, whose megaflow is translated, installed, idles out and is removed.
//!
//! The tables are one rule that reads addresses and ports, so that each flow is a megaflow. Every flow comes once.
//! After each round the clock advances, and the revalidator, in the same thread, removes the flows of the round before.
//! The output is the cycles of a miss, as the switch counts them (translation and installation), and of a whole packet
//! with generator and null port, without the revalidator: the fastest round and the median.
//!
//! `cargo bench -p sluice-datapath --bench flow_setup`. As a test it checks: every packet is sent, and credited to the
//! rule. Instructions: `valgrind --tool=callgrind --toggle-collect='*ask_tables*'` of the
//! binary, divided by the misses that it prints.

use sluice_action::PortNo;
use sluice_datapath::{Arm, Config, Datapath};
use sluice_fate::{Counter, Snapshot};
use sluice_flow::PortNames;
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{BridgeConfig, Ofproto, PortConfig};
use sluice_port::Pools;

const BRIDGE: &str = "br0";
const RULE: &str = "in_port=1,tcp,actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],move:NXM_OF_IP_DST[]->NXM_NX_REG1[],\
    move:NXM_OF_TCP_SRC[]->NXM_NX_REG2[0..15],move:NXM_OF_TCP_DST[]->NXM_NX_REG3[0..15],output:2\n";

/// Iterations of the PMD in a round, of up to 32 packets each.
const TURNS: usize = 1 << 10;
const ROUND_MS: u64 = 1000;

/// A switch that receives nothing but new flows.
struct World {
    ofproto: Ofproto,
    datapath: Datapath,
    now_ms: u64,
}

impl World {
    fn new() -> World {
        let config = Config { settings: Arm::BARE.into(), seed: Some(1), ..Config::default() };
        let datapath = Datapath::new(config).expect("a datapath");
        let ofproto = Ofproto::new();
        let tables = ofproto.clone();
        datapath.set_upcalls(move |_| Box::new(tables.upcall()));
        ofproto.set_store(datapath.store());
        ofproto.add_bridge(BridgeConfig::new(BRIDGE), 0).expect("a bridge");
        let mut pools = Pools::default();
        let options = [("flows", "16M"), ("protocol", "tcp"), ("choice", "short:1")];
        for (number, kind, options) in [(1, "generator", &options[..]), (2, "null", &[])] {
            let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let config = sluice_port::PortConfig {
                name: kind.into(),
                kind: kind.into(),
                options,
                ..sluice_port::PortConfig::default()
            };
            let port = sluice_port::open(&config, &mut pools).expect("a port");
            let name = format!("p{number}");
            ofproto.add_port(BRIDGE, PortConfig::new(&name, number, PortNo(number.into()))).expect("a free number");
            datapath.add_port(PortNo(number.into()), port).expect("a free number");
        }
        let flows = FlowMod::parse_file(RULE, &PortNames::NONE).expect("a rule");
        ofproto.bundle(BRIDGE, &flows, 0).expect("a table");
        datapath.store().make_room().expect("memory");
        World { ofproto, datapath, now_ms: 0 }
    }

    /// Runs a round. Returns what was counted in it.
    fn round(&mut self) -> Snapshot {
        let before = self.datapath.totals();
        self.datapath.run_iterations(TURNS, self.now_ms);
        let counted = self.datapath.totals().since(&before);
        self.now_ms += ROUND_MS;
        self.ofproto.revalidate(&*self.datapath.store(), self.now_ms, ROUND_MS);
        counted
    }

    fn check(&self) {
        let all = self.datapath.totals();
        assert_eq!(all.conserved(), Ok(()));
        assert_eq!(all[Counter::Received], all[Counter::Sent], "every packet is sent");
        assert_eq!(all[Counter::Received], all[Counter::Upcalls], "every packet is a miss");
        assert_eq!(all[Counter::Upcalls], all[Counter::MegaflowsInstalled], "every miss installs a megaflow");
        let rules = self.ofproto.rules(BRIDGE, &FlowMod::new(FlowCommand::Delete)).expect("the bridge");
        assert_eq!(rules[0].rule.stats().packets, all[Counter::Received], "the rule counts every packet");
    }
}

fn main() {
    // As criterion has it: cargo bench says so, cargo test does not.
    let is_test = !std::env::args().any(|arg| arg == "--bench");
    let mut world = World::new();
    let rounds = if is_test { 6 } else { 60 };
    // The first rounds fill memory that later rounds reuse.
    let counted: Vec<Snapshot> = (0..rounds).map(|_| world.round()).skip(3).collect();
    world.check();
    let cycles = |cycles: &dyn Fn(&Snapshot) -> u64| {
        let mut each: Vec<u64> = counted.iter().map(|round| cycles(round) / round[Counter::Upcalls]).collect();
        each.sort_unstable();
        (each[0], each[each.len() / 2])
    };
    let (miss, packet) = (
        cycles(&|round| round[Counter::UpcallCycles]),
        cycles(&|round| round[Counter::BusyCycles] + round[Counter::IdleCycles]),
    );
    println!("cycles (TSC, {:.2} GHz): fastest round, median", sluice_datapath::tsc_hz() as f64 / 1e9);
    println!("a miss                 {:>6} {:>6}", miss.0, miss.1);
    println!("a packet that misses   {:>6} {:>6}", packet.0, packet.1);
    println!("misses in all          {:>6}", world.datapath.totals()[Counter::Upcalls]);
}
