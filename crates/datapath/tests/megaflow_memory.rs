//! The memory of a megaflow: what it is charged for, and what the process really takes. A program of its own, so that no
//! other test's memory counts.

#[expect(dead_code, reason = "the tables of this test are real ones")]
mod harness;

use harness::{TestPort, pool, udp};
use sluice_action::PortNo;
use sluice_datapath::{Config, Datapath, Settings};
use sluice_flow::PortNames;
use sluice_ofp::FlowMod;
use sluice_ofproto::{BridgeConfig, Ofproto, PortConfig};

const MEGAFLOWS: u32 = 60_000;

/// Packets that are fed together, so that little of the memory is theirs.
const FED: u32 = 1000;

/// What an ordinary megaflow may be charged for, bytes: a record of three lines, counters, an entry of each index, the
/// packet's key, what its translation used, and the notice of its deletion. It was twice that with keys of five lines in
/// the notice and in the xlate cache.
const CHARGED_MAX: u64 = 832;

/// A rule that reads addresses and ports, so that each flow gets a megaflow.
const RULE: &str =
    "udp,actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],move:NXM_OF_UDP_SRC[]->NXM_NX_REG2[0..15],output:2\n";

/// The memory of this process, bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4096
}

#[test]
fn a_megaflow_takes_no_more_than_it_is_charged_for_and_that_is_little() {
    let config = Config { settings: Settings::BARE, max_megaflows: 1 << 16, seed: Some(1), ..Config::default() };
    let datapath = Datapath::new(config).expect("a datapath");
    let ofproto = Ofproto::new();
    let tables = ofproto.clone();
    datapath.set_upcalls(move |_| Box::new(tables.upcall()));
    ofproto.set_store(datapath.store());
    ofproto.add_bridge(BridgeConfig::new("br0"), 0).expect("a bridge");
    let pool = pool(2048);
    let ports = [1, 2].map(|number| {
        ofproto
            .add_port("br0", PortConfig::new(&format!("p{number}"), number, PortNo(number.into())))
            .expect("a number");
        let port = TestPort::new(1, 32, &pool);
        let (feed, sent) = (port.feeds[0].clone(), port.sent.clone());
        datapath.add_port(PortNo(number.into()), Box::new(port)).expect("a free number");
        (feed, sent)
    });
    let rules = FlowMod::parse_file(RULE, &PortNames::NONE).expect("rules");
    ofproto.bundle("br0", &rules, 0).expect("a table");
    let send = |flows: std::ops::Range<u32>| {
        for from in flows.step_by(FED as usize) {
            let packets = (from..from + FED).map(|flow| udp(flow.to_be_bytes(), [192, 0, 2, 1], 1024, 80, 0));
            ports[0].0.lock().unwrap().extend(packets);
            datapath.run_iterations(FED as usize / 16, 0);
            ports[1].1.lock().unwrap().clear();
        }
    };
    // Batches, tables and the first pages of each array are there before the others come.
    send(0..FED);
    let (store, before) = (datapath.store(), resident());
    let (n, charged) = (store.len() as u64, store.memory().used());
    send(FED..MEGAFLOWS);
    let more = store.len() as u64 - n;
    assert_eq!(store.len() as u32, MEGAFLOWS, "a megaflow a flow");
    let (charged, taken) = ((store.memory().used() - charged) / more, (resident() - before) / more);
    println!("a megaflow: {charged} bytes charged, {taken} bytes of the process");
    assert!(charged <= CHARGED_MAX, "{charged} bytes charged");
    assert!(taken <= charged, "{taken} bytes taken, {charged} charged");
}
