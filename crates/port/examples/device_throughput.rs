//! The throughput of a port type over a veth pair: one thread sends as fast as it can, another receives.
//!
//! As root: `unshare -n target/release/examples/device_throughput [af_xdp|af_packet] [KEY=VALUE…]` (it makes the pair
//! v0-v1 in that namespace; the keys are options of the port type). Prints packets sent and received per second, median
//! of seven runs, and the latency of lone packets from port to port.

use sluice_fate::Tally;
use sluice_packet::{Buffers, PacketBatch};
use sluice_port::{Pools, PortConfig, RxQueue, TxQueue, open};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const RUNS: usize = 7;
/// Lone packets.
const LONE: usize = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let kind = args.next().unwrap_or("af_xdp".into());
    let options: Vec<(String, String)> =
        args.filter_map(|arg| arg.split_once('=').map(|(key, value)| (key.into(), value.into()))).collect();
    let line = "ip link add v0 numrxqueues 1 numtxqueues 1 type veth peer name v1 numrxqueues 1 numtxqueues 1 && \
                sysctl -qw net.ipv6.conf.v0.disable_ipv6=1 net.ipv6.conf.v1.disable_ipv6=1";
    let made = Command::new("sh").args(["-c", line]).status()?;
    if !made.success() {
        return Err("the veth pair could not be made; run it as root in a network namespace of its own".into());
    }
    let mut pools = Pools::default();
    let mut port = |kind: &str, name: &str, device: Option<&str>| {
        let mut options: std::collections::BTreeMap<_, _> = match device {
            Some(device) => options.iter().cloned().chain([("device".into(), device.into())]).collect(),
            None => [("flows".into(), "1000".into())].into(),
        };
        options.retain(|_, value: &mut String| !value.is_empty());
        open(&PortConfig { name: name.into(), kind: kind.into(), options, ..PortConfig::default() }, &mut pools)
    };
    let (mut source, mut near, mut far) =
        (port("generator", "g", None)?, port(&kind, "p1", Some("v0"))?, port(&kind, "p2", Some("v1"))?);
    let (mut from, mut tx, mut rx) = (source.rx_queue(0), near.tx_queue(0), far.rx_queue(0));
    let (stop, received) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut rates = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
            while !stop.load(Relaxed) {
                from.poll(&mut batch, &mut buffers, &mut tally);
                tx.send(&mut batch, &mut buffers, &mut tally);
            }
        });
        scope.spawn(|| {
            let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
            while !stop.load(Relaxed) {
                rx.poll(&mut batch, &mut buffers, &mut tally);
                received.fetch_add(batch.len() as u64, Relaxed);
                buffers.give_batch(&mut batch);
            }
        });
        for _ in 0..RUNS {
            let (start, sent, came) = (Instant::now(), near.stats().tx_packets, received.load(Relaxed));
            std::thread::sleep(Duration::from_secs(1));
            let seconds = start.elapsed().as_secs_f64();
            let rate = |now: u64, before: u64| (now - before) as f64 / seconds / 1e6;
            rates.push((rate(received.load(Relaxed), came), rate(near.stats().tx_packets, sent)));
        }
        stop.store(true, Relaxed);
    });
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (came, sent) = rates[RUNS / 2];
    println!("{kind}: received {came:.2} Mpps of {sent:.2} sent (60-byte frames, median of {RUNS} seconds)");
    let mut waits = lone(&mut *from, &mut *tx, &mut *rx);
    waits.sort();
    let at = |percent: usize| waits[LONE * percent / 100].as_nanos() as f64 / 1e3;
    println!(
        "{kind}: a lone packet takes {:.0} us (median; a tenth less than {:.0}, a tenth more than {:.0})",
        at(50),
        at(10),
        at(90)
    );
    Ok(())
}

/// The latency of lone packets, each sent when the last one has arrived.
fn lone(from: &mut dyn RxQueue, tx: &mut dyn TxQueue, rx: &mut dyn RxQueue) -> Vec<Duration> {
    let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
    // Packets left over from the flood.
    let quiet = Instant::now();
    while quiet.elapsed() < Duration::from_millis(100) {
        rx.poll(&mut batch, &mut buffers, &mut tally);
        buffers.give_batch(&mut batch);
    }
    let wait = |number: usize| {
        // Out of step with kernel timers.
        std::thread::sleep(Duration::from_micros(100 + 137 * (number as u64 % 13)));
        while batch.is_empty() {
            from.poll(&mut batch, &mut buffers, &mut tally);
        }
        buffers.give(batch.drain(1..));
        let sent = Instant::now();
        tx.send(&mut batch, &mut buffers, &mut tally);
        while batch.is_empty() {
            rx.poll(&mut batch, &mut buffers, &mut tally);
        }
        let took = sent.elapsed();
        buffers.give_batch(&mut batch);
        took
    };
    (0..LONE).map(wait).collect()
}
