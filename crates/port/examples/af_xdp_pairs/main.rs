//! AF_XDP ports compared with bare AF_XDP sockets of the crate `xdp`, alternately over one veth pair.
//!
//! As root: `unshare -n target/release/examples/af_xdp_pairs [native|generic]` (it makes the pair v0-v1 in that
//! namespace). In each run one thread, on core 0, sends 60-byte frames as fast as it can and another, on core 1,
//! receives; seven pairs of runs of one second each. Prints the packets received in every run, the medians, and the
//! median of the pairs' ratios.

mod af_xdp;

use sluice_fate::Tally;
use sluice_packet::{Buffers, PacketBatch};
use sluice_port::{Pools, PortConfig, open};
use std::error::Error;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const PAIRS: usize = 7;
const RUN: Duration = Duration::from_secs(1);
/// Warm-up: rings fill and both threads run.
const WARM_UP: Duration = Duration::from_millis(200);

/// Shared by both threads: whether to stop, and packets received.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    received: AtomicU64,
}

impl Shared {
    fn goes_on(&self) -> bool {
        !self.stop.load(Relaxed)
    }

    fn came(&self, packets: usize) {
        self.received.fetch_add(packets as u64, Relaxed);
    }

    /// Lets the threads run, then stops them. Returns millions of packets received a second.
    fn measure(&self) -> f64 {
        std::thread::sleep(WARM_UP);
        let (start, before) = (Instant::now(), self.received.load(Relaxed));
        std::thread::sleep(RUN);
        let rate = (self.received.load(Relaxed) - before) as f64 / start.elapsed().as_secs_f64() / 1e6;
        self.stop.store(true, Relaxed);
        rate
    }
}

/// Pins this thread to a core, so that the scheduler's choices are the same in all runs.
fn keep_to(core: usize) {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    // With one core there is no choice.
    let _ = rustix::thread::sched_setaffinity(None, &cores);
}

/// One run of our ports.
fn ports(mode: &str) -> Result<f64, Box<dyn Error>> {
    let mut pools = Pools::default();
    let mut port = |kind: &str, name: &str, keys: &[(&str, &str)]| {
        let options = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        open(&PortConfig { name: name.into(), kind: kind.into(), options, ..PortConfig::default() }, &mut pools)
    };
    let mut source = port("generator", "g", &[("flows", "1")])?;
    let mut near = port("af_xdp", "p1", &[("device", "v0"), ("mode", mode)])?;
    let mut far = port("af_xdp", "p2", &[("device", "v1"), ("mode", mode)])?;
    let (mut from, mut tx, mut rx) = (source.rx_queue(0), near.tx_queue(0), far.rx_queue(0));
    let shared = Shared::default();
    Ok(std::thread::scope(|scope| {
        scope.spawn(|| {
            keep_to(0);
            let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
            while shared.goes_on() {
                from.poll(&mut batch, &mut buffers, &mut tally);
                tx.send(&mut batch, &mut buffers, &mut tally);
            }
        });
        scope.spawn(|| {
            keep_to(1);
            let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
            while shared.goes_on() {
                rx.poll(&mut batch, &mut buffers, &mut tally);
                shared.came(batch.len());
                buffers.give_batch(&mut batch);
            }
        });
        shared.measure()
    }))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let mode = std::env::args().nth(1).unwrap_or("native".into());
    let sockets = || af_xdp::sys::sockets(&mode);
    let line = "ip link add v0 numrxqueues 1 numtxqueues 1 type veth peer name v1 numrxqueues 1 numtxqueues 1 && \
                sysctl -qw net.ipv6.conf.v0.disable_ipv6=1 net.ipv6.conf.v1.disable_ipv6=1 && \
                ip link set v0 up && ip link set v1 up";
    if !Command::new("sh").args(["-c", line]).status()?.success() {
        return Err("the veth pair could not be made; run it as root in a network namespace of its own".into());
    }
    println!("pair  ports  sockets  ratio   (Mpps received, 60-byte frames, {mode} mode, copied)");
    let mut rates = Vec::new();
    for pair in 1..=PAIRS {
        // The order alternates, so that neither side has an advantage.
        let first = if pair % 2 == 0 { Some(sockets()?) } else { None };
        let ours = ports(&mode)?;
        let bare = first.map_or_else(sockets, Ok)?;
        println!("{pair:>4}  {ours:>5.3}  {bare:>7.3}  {:>5.3}", ours / bare);
        rates.push((ours, bare));
    }
    let of = |value: fn(&(f64, f64)) -> f64| median(rates.iter().map(value).collect());
    println!("median ports {:.3}, sockets {:.3}, of the ratios {:.3}", of(|r| r.0), of(|r| r.1), of(|r| r.0 / r.1));
    Ok(())
}
