//! Target `tables`: packets through tables. The input is rules as `ovs-ofctl` writes them, a line each, up to a zero
//! byte; then packets, each behind a byte for its port and one for its length.

use crate::input::Input;
use sluice_action::PortNo;
use sluice_datapath::{Arm, Config, ConnectionTables, Datapath, DistributorTable, EmcInsert, Settings};
use sluice_fate::Counter;
use sluice_flow::PortNames;
use sluice_mem::{FramePool, HeapPool, PoolConfig};
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{BridgeConfig, Ofproto, PortConfig};
use sluice_scenarios::Wire;
use std::sync::Arc;

const BRIDGE: &str = "br0";
const PORTS: u16 = 4;
const RULES_MAX: usize = 64;
const PACKETS_MAX: usize = 64;
/// Entries of caches, so few that they are made soon and evicted from.
const CACHE_ENTRIES: usize = 64;
/// Buffers, so few that packets which multiply use them up.
const FRAMES: usize = 512;

/// The rules may do anything to the packets: each packet has one fate, and each lookup one answer.
pub fn tables(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let Ok(text) = std::str::from_utf8(&data[..end]) else { return };
    let ofproto = Ofproto::new();
    ofproto.add_bridge(BridgeConfig::new(BRIDGE), 0).expect("the first bridge");
    // Lines that are no rules, or that this switch refuses, are left out.
    let rules = text.lines().filter_map(|line| FlowMod::parse(line, FlowCommand::Add, &PortNames::NONE).ok());
    let added = rules.take(RULES_MAX).filter(|rule| ofproto.flow_mod(BRIDGE, rule, 0).is_ok()).count();
    let packets = packets(data.get(end + 1..).unwrap_or_default());
    if added > 0 && !packets.is_empty() {
        run(&ofproto, &packets);
    }
}

fn packets(data: &[u8]) -> Vec<(u16, &[u8])> {
    let (mut input, mut packets) = (Input(data), Vec::new());
    while !input.is_empty() && packets.len() < PACKETS_MAX {
        let port = 1 + u16::from(input.byte()) % PORTS;
        let length = input.byte().into();
        packets.push((port, input.bytes(length)));
    }
    packets
}

/// Sends the packets twice, so that caches answer, too, with all caches on and small.
fn run(ofproto: &Ofproto, packets: &[(u16, &[u8])]) {
    let arm = Arm { emc: Some(EmcInsert::OneIn(1)), smc: true, distributor: Some(DistributorTable::Own), ..Arm::BARE };
    let (smc_entries, distributor_entries) = (CACHE_ENTRIES, Some(CACHE_ENTRIES));
    let settings = Settings { emc_entries: 8, smc_entries, distributor_entries, ..arm.into() };
    let connection_tables = ConnectionTables::SMALL;
    let config =
        Config { cores: vec![0], settings, connection_tables, max_megaflows: 256, seed: Some(1), ..Config::default() };
    let datapath = Datapath::new(config).expect("a datapath without threads");
    let tables = ofproto.clone();
    datapath.set_upcalls(move |_| Box::new(tables.upcall()));
    ofproto.set_store(datapath.store());
    let pool = HeapPool::new(PoolConfig { frames: FRAMES, frame_size: 2048, reserve: 64 }).expect("a small pool");
    let pool: Arc<dyn FramePool> = Arc::new(pool);
    let wires: Vec<Wire> = (0..PORTS).map(|_| Wire::new(&pool, 1)).collect();
    for (number, wire) in (1..).zip(&wires) {
        datapath.add_port(PortNo(number.into()), wire.port()).expect("a port with a number of its own");
        let config = PortConfig::new(&format!("p{number}"), number, PortNo(number.into()));
        ofproto.add_port(BRIDGE, config).expect("a port with a name of its own");
    }
    let mut now_ms = 0;
    for _ in 0..2 {
        for (port, bytes) in packets {
            wires[usize::from(port - 1)].send(bytes);
        }
        while !wires.iter().all(Wire::is_empty) {
            datapath.run_once(now_ms);
            now_ms += 1;
        }
        ofproto.tick(now_ms);
        ofproto.revalidate(&*datapath.store(), now_ms, 10_000);
    }
    // Fragments that wait in vain go on, and what they become.
    for _ in 0..4 {
        now_ms += 60_000;
        datapath.run_once(now_ms);
    }
    let totals = datapath.totals();
    assert_eq!(totals.conserved(), Ok(()));
    assert_eq!(totals[Counter::Received], 2 * packets.len() as u64, "packets received");
    assert_eq!(totals[Counter::Held], totals[Counter::Released], "packets held");
    let sent: usize = wires.iter().map(|wire| wire.take_sent().len()).sum();
    assert_eq!(totals[Counter::Sent], sent as u64, "packets sent");
    let answers = [Counter::EmcHits, Counter::SmcHits, Counter::MegaflowHits, Counter::Upcalls, Counter::UpcallsLost];
    assert_eq!(totals[Counter::Passes], answers.iter().map(|level| totals[*level]).sum::<u64>(), "lookups answered");
}
