//! A switch without threads, whose clock is the fuzzer's.

use super::Operation;
use sluice_action::PortNo;
use sluice_conntrack::Filter;
use sluice_datapath::{Config, ConnectionTables, Datapath, PacketIns, Settings};
use sluice_fate::Counter;
use sluice_mem::{FramePool, HeapPool, PoolConfig};
use sluice_ofproto::{BridgeConfig, Ofproto, PortConfig};
use sluice_scenarios::Wire;
use std::sync::Arc;

const BRIDGE: &str = "br0";
/// Ports 1 to 4.
pub const PORTS: u16 = 4;
/// Few, so that the limit is met.
const MEGAFLOWS_MAX: u32 = 256;
/// A round takes a batch of each port; a burst has at most two.
const ROUNDS_MAX: usize = 8;
/// How often a packet is sent round again. Source: OVS, MAX_RECIRC_DEPTH.
const RECIRCULATIONS: u8 = 6;
/// Longer than a fragment waits for the others of its datagram.
const FRAGMENT_TIMEOUT_MS: u64 = 60_000;
/// A fragment waits at most this often.
const WAITS_MAX: usize = 10_000;
/// Source: OVS, max-idle.
const MAX_IDLE_MS: u64 = 10_000;

pub struct Bench {
    datapath: Datapath,
    ofproto: Ofproto,
    packet_ins: PacketIns,
    wires: Vec<Wire>,
    now_ms: u64,
    received: u64,
    sent: u64,
}

impl Bench {
    pub fn new(settings: Settings) -> Self {
        let config = Config {
            cores: vec![0],
            settings,
            max_megaflows: MEGAFLOWS_MAX,
            connection_tables: ConnectionTables::SMALL,
            recirculations: RECIRCULATIONS,
            seed: Some(1),
            ..Config::default()
        };
        let datapath = Datapath::new(config).expect("a datapath without threads");
        let ofproto = Ofproto::new();
        ofproto.add_bridge(BridgeConfig::new(BRIDGE), 0).expect("the first bridge");
        let tables = ofproto.clone();
        datapath.set_upcalls(move |_| Box::new(tables.upcall()));
        ofproto.set_store(datapath.store());
        ofproto.set_meters(datapath.meters());
        let pool = HeapPool::new(PoolConfig { frames: 1024, frame_size: 2048, reserve: 64 }).expect("a small pool");
        let pool: Arc<dyn FramePool> = Arc::new(pool);
        let wires: Vec<Wire> = (0..PORTS).map(|_| Wire::new(&pool, 1)).collect();
        let packet_ins = datapath.take_packet_ins().expect("nobody took them before");
        let mut bench = Bench { datapath, ofproto, packet_ins, wires, now_ms: 0, received: 0, sent: 0 };
        (1..=PORTS).for_each(|number| bench.plug(number));
        bench
    }

    fn plug(&mut self, number: u16) {
        let port = self.wires[usize::from(number - 1)].port();
        self.datapath.add_port(PortNo(number.into()), port).expect("a port with a number of its own");
        let config = PortConfig::new(&format!("p{number}"), number, PortNo(number.into()));
        self.ofproto.add_port(BRIDGE, config).expect("a port with a name of its own");
    }

    fn unplug(&mut self, number: u16) {
        self.ofproto.remove_port(BRIDGE, &format!("p{number}")).expect("a port of that name");
        self.datapath.del_port(PortNo(number.into())).expect("a port of that number");
    }

    /// Carries it out; the frames that each port sends then. What the switch refuses changes nothing.
    pub fn carry_out(&mut self, operation: &Operation) -> Vec<Vec<Vec<u8>>> {
        match operation {
            Operation::Flow(flow_mod) => drop(self.ofproto.flow_mod(BRIDGE, flow_mod, self.now_ms)),
            Operation::Group(group_mod) => drop(self.ofproto.group_mod(BRIDGE, group_mod, self.now_ms)),
            Operation::Meter(meter_mod) => drop(self.ofproto.meter_mod(BRIDGE, meter_mod, self.now_ms)),
            Operation::Packets(packets) => self.receive(packets),
            Operation::Wait(ms) => self.now_ms += ms,
            Operation::FlushConnections => drop(self.datapath.conntrack().flush(&Filter::default())),
            Operation::Replug(number) => {
                self.unplug(*number);
                self.plug(*number);
            }
            Operation::Nothing => {}
        }
        self.keep_house();
        self.packet_ins.try_iter().for_each(drop);
        let sent: Vec<_> = self.wires.iter().map(Wire::take_sent).collect();
        self.sent += sent.iter().map(|frames| frames.len() as u64).sum::<u64>();
        self.check();
        sent
    }

    fn receive(&mut self, packets: &[(u16, Vec<u8>)]) {
        for (port, bytes) in packets {
            self.wires[usize::from(port - 1)].send(bytes);
        }
        self.received += packets.len() as u64;
        for _ in 0..ROUNDS_MAX {
            self.datapath.run_once(self.now_ms);
            self.ofproto.tick(self.now_ms);
        }
        assert!(self.wires.iter().all(Wire::is_empty), "packets still wait after {ROUNDS_MAX} rounds");
    }

    /// Ages connections and fragments, expires rules, and revalidates megaflows: twice, for what the first changed.
    fn keep_house(&self) {
        self.datapath.run_once(self.now_ms);
        self.datapath.service(self.now_ms);
        for _ in 0..2 {
            self.ofproto.tick(self.now_ms);
            self.ofproto.revalidate(&*self.datapath.store(), self.now_ms, MAX_IDLE_MS);
        }
    }

    fn check(&self) {
        let totals = self.datapath.totals();
        assert_eq!(totals.conserved(), Ok(()));
        assert_eq!(totals[Counter::Received], self.received, "packets received");
        assert_eq!(totals[Counter::Sent], self.sent, "packets sent");
        let answers =
            [Counter::EmcHits, Counter::SmcHits, Counter::MegaflowHits, Counter::Upcalls, Counter::UpcallsLost];
        assert_eq!(
            totals[Counter::Passes],
            answers.iter().map(|level| totals[*level]).sum::<u64>(),
            "lookups answered"
        );
        let came = [Counter::Received, Counter::Originated, Counter::Cloned, Counter::Released];
        let came: u64 = came.iter().map(|counter| totals[*counter]).sum();
        assert!(totals[Counter::Passes] <= came * (1 + u64::from(RECIRCULATIONS)), "passes of {came} packets");
        // Names, as a view of each megaflow copies it.
        assert!(self.datapath.flow_names().len() <= MEGAFLOWS_MAX as usize, "megaflows");
    }

    /// Fragments that wait in vain go on when their time is over. One may wait again at the next `ct` of the same pass and
    /// of each later one, so what bounds its waits is the length of the action lists.
    pub fn finish(mut self) {
        assert_eq!(self.datapath.flows().len(), self.datapath.flow_names().len(), "megaflows shown and named");
        for _ in 0..WAITS_MAX {
            let held = self.datapath.totals()[Counter::Held];
            self.carry_out(&Operation::Wait(FRAGMENT_TIMEOUT_MS));
            let totals = self.datapath.totals();
            assert!(totals[Counter::Released] >= held, "of {held} fragments {} went on", totals[Counter::Released]);
            if totals[Counter::Held] == totals[Counter::Released] {
                return;
            }
        }
        panic!("fragments still wait after {WAITS_MAX} timeouts");
    }
}
