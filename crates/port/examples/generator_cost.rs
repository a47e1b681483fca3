//! The cost of a generated packet: choosing the flow, taking a buffer, writing the frame, giving the buffer back.
//!
//! `cargo run --release -p sluice-port --example generator_cost [KEY=VALUE…]`; the keys are those of a generator port.
//! Default: the cuckoo distributor's traffic, 20 subtables and 1 M flows. Prints time stamp counter cycles a packet:
//! best and median of many rounds, since other load on the machine only adds.

use sluice_fate::Tally;
use sluice_packet::{Buffers, PacketBatch};
use sluice_port::{Pools, PortConfig, open};

const ROUNDS: usize = 200;
const POLLS: usize = 2000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut config = PortConfig { name: "p1".into(), kind: "generator".into(), ..PortConfig::default() };
    for arg in std::env::args().skip(1) {
        let (key, value) = arg.split_once('=').ok_or_else(|| format!("{arg}: expected KEY=VALUE"))?;
        config.options.insert(key.into(), value.into());
    }
    if config.options.is_empty() {
        config.options = [("subtables".into(), "20".into()), ("flows".into(), "1M".into())].into();
    }
    let mut pools = Pools::default();
    let mut port = open(&config, &mut pools)?;
    let mut sink = open(&PortConfig { name: "p2".into(), kind: "null".into(), ..PortConfig::default() }, &mut pools)?;
    let (mut rx, mut tx) = (port.rx_queue(0), sink.tx_queue(0));
    let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
    let mut costs: Vec<f64> = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let (start, mut packets) = (sluice_simd::tsc::now(), 0);
        for _ in 0..POLLS {
            rx.poll(&mut batch, &mut buffers, &mut tally);
            packets += batch.len();
            tx.send(&mut batch, &mut buffers, &mut tally);
        }
        costs.push((sluice_simd::tsc::now() - start) as f64 / packets as f64);
    }
    costs.sort_by(f64::total_cmp);
    println!("generator -> null: {:.1} cycles a packet at best, {:.1} median", costs[0], costs[ROUNDS / 2]);
    for pool in pools.iter() {
        println!("packet buffers in {}", pool.pages().name());
    }
    Ok(())
}
