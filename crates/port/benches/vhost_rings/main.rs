//! What a packet costs between a guest's rings and the switch, in either direction, without a datapath.
//!
//! A port of type vhost-user meets a guest whose memory and driver are in this process. valgrind's callgrind counts what
//! runs inside [`counted`] and nothing else: one poll of 32 packets, or one batch of 32 sent.
//!
//! ```text
//! cargo bench -p sluice-port --bench vhost_rings                 instructions, loads, stores and lines a packet
//! cargo bench -p sluice-port --bench vhost_rings -- --cycles     cycles a packet instead, without valgrind
//! ```
//!
//! Lines are cache lines that a simulated first-level cache of 32 KiB did not have: the guest's ring and buffers, which
//! its driver has touched, and frames of the pool.
//!
//! As a test (`cargo test --bench vhost_rings`) each case runs once, and only its answers are checked.

use sluice_packet::{BATCH_MAX, PacketBatch};
use sluice_port::Pools;
use sluice_simd::tsc;
use sluice_testkit::vhost_guest::{BUFFERS, GuestPort, NEXT, WRITE, feature};
use std::process::Command;
use vm_memory::{Bytes, GuestAddress};

const RING: u16 = 256;
/// Bytes of each buffer of the guest.
const BUFFER: u64 = 2048;
/// The virtio-net header in front of a packet.
const HEADER: usize = 12;

/// One thing to count.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    /// Whether the guest sends.
    receive: bool,
    frame: usize,
    /// The guest's header is in a buffer of its own.
    split: bool,
    features: u64,
}

const CASES: &[Case] = &[
    Case { name: "receive/64", receive: true, frame: 64, split: false, features: feature::VERSION_1 },
    Case { name: "receive/64/two-buffers", receive: true, frame: 64, split: true, features: feature::VERSION_1 },
    Case { name: "receive/1514", receive: true, frame: 1514, split: false, features: feature::VERSION_1 },
    Case { name: "send/64", receive: false, frame: 64, split: false, features: feature::VERSION_1 },
    Case { name: "send/64/mergeable", receive: false, frame: 64, split: false, features: MERGING },
    Case { name: "send/1514", receive: false, frame: 1514, split: false, features: feature::VERSION_1 },
    Case { name: "receive/64/packed", receive: true, frame: 64, split: false, features: PACKED },
    Case { name: "receive/64/two-buffers/packed", receive: true, frame: 64, split: true, features: PACKED },
    Case { name: "send/64/packed", receive: false, frame: 64, split: false, features: PACKED },
];
const PACKED: u64 = feature::VERSION_1 | feature::RING_PACKED;
const MERGING: u64 = feature::VERSION_1 | feature::MERGEABLE;

/// A port and its guest.
struct Bench {
    case: Case,
    port: GuestPort,
    batch: PacketBatch,
}

impl Bench {
    fn new(case: Case) -> Self {
        let port = GuestPort::open(&mut Pools::new(4096), case.features, RING);
        let mut bench = Bench { case, port, batch: PacketBatch::new() };
        bench.describe();
        bench
    }

    /// Describes the guest's buffers, which it uses in turn.
    fn describe(&mut self) {
        let len = (HEADER + self.case.frame) as u32;
        for at in 0..RING {
            let address = BUFFERS + u64::from(at) * BUFFER;
            match (self.case.receive, self.case.split) {
                (true, false) => self.port.guest.describe(1, at, (address, len, 0, 0)),
                (true, true) if at % 2 == 0 => self.port.guest.describe(1, at, (address, HEADER as u32, NEXT, at + 1)),
                (true, true) => self.port.guest.describe(1, at, (address, len - HEADER as u32, 0, 0)),
                (false, _) => self.port.guest.describe(0, at, (address, BUFFER as u32, WRITE, 0)),
            }
        }
    }

    /// The guest makes as many chains available as a batch has packets.
    fn offer(&mut self) {
        let ring = u32::from(self.case.receive);
        let apart = if self.case.split { 2 } else { 1 };
        for _ in 0..BATCH_MAX {
            let head = self.port.guest.available[ring as usize].wrapping_mul(apart) % RING;
            if self.case.receive {
                // Writes the packet, as a guest would.
                let at = BUFFERS + u64::from(head) * BUFFER;
                self.port.guest.memory.write_slice(&[0; HEADER], GuestAddress(at)).unwrap();
                let at = at + if self.case.split { BUFFER } else { HEADER as u64 };
                self.port.guest.memory.write_slice(&[7; 1514][..self.case.frame], GuestAddress(at)).unwrap();
            }
            self.port.guest.offer(ring, head);
        }
        self.port.guest.publish(ring);
    }

    /// What is counted.
    fn carry(&mut self) {
        let GuestPort { rx, tx, buffers, tally, .. } = &mut self.port;
        if self.case.receive {
            rx.poll(&mut self.batch, buffers, tally);
        } else {
            tx.send(&mut self.batch, buffers, tally);
        }
    }

    /// One round: prepares it, has it carried by `run`, checks it.
    fn round<R>(&mut self, run: impl FnOnce(&mut Self) -> R) -> R {
        self.offer();
        if !self.case.receive {
            let GuestPort { buffers, pool, .. } = &mut self.port;
            buffers.fill(pool, BATCH_MAX, self.case.frame, &mut self.batch);
            self.batch.iter_mut().for_each(|packet| packet.bytes_mut().fill(7));
        }
        let result = run(self);
        let used = self.port.guest.take_used(u32::from(self.case.receive));
        assert_eq!(used.len(), BATCH_MAX);
        if self.case.receive {
            assert_eq!(self.batch.len(), BATCH_MAX);
            assert!(self.batch.iter().all(|packet| packet.bytes() == &[7; 1514][..self.case.frame]));
            self.port.buffers.give_batch(&mut self.batch);
        } else {
            let last = used[BATCH_MAX - 1];
            assert_eq!(last.1 as usize, HEADER + self.case.frame);
            let mut bytes = vec![0; self.case.frame];
            let at = BUFFERS + u64::from(last.0) * BUFFER + HEADER as u64;
            self.port.guest.memory.read_slice(&mut bytes, GuestAddress(at)).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 7));
        }
        result
    }
}

/// What callgrind counts.
#[inline(never)]
fn counted(bench: &mut Bench) {
    bench.carry();
}

/// What callgrind counted, a packet.
struct Counts {
    instructions: f64,
    loads: f64,
    stores: f64,
    /// Cache lines that the first-level cache did not have.
    lines: f64,
}

/// Counts a case by this program again under callgrind.
fn counts(case: Case) -> Counts {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*counted*"])
        // The same lines on every machine.
        .args(["--cache-sim=yes", "--D1=32768,8,64"])
        .arg(std::env::current_exe().expect("the path of this program"))
        .args(["--case", case.name])
        .output()
        .unwrap_or_else(|error| panic!("valgrind: {error}; Debian's package valgrind has it"));
    let said = String::from_utf8_lossy(&output.stderr);
    let total = said.lines().find_map(|line| line.split_once("Collected : "));
    let events: Vec<f64> =
        total.map_or("", |(_, rest)| rest).split_whitespace().filter_map(|count| count.parse().ok()).collect();
    // In callgrind's order; misses of the instruction cache stand between.
    match events[..] {
        [instructions, loads, stores, _, load_misses, store_misses, ..] if output.status.success() => {
            let [instructions, loads, stores, lines] =
                [instructions, loads, stores, load_misses + store_misses].map(|count| count / BATCH_MAX as f64);
            Counts { instructions, loads, stores, lines }
        }
        _ => panic!("{} under callgrind: {}\n{said}", case.name, output.status),
    }
}

/// Cycles a packet: the median of many rounds.
fn cycles(case: Case) -> f64 {
    let mut bench = Bench::new(case);
    let mut each: Vec<u64> = (0..20_000)
        .map(|_| {
            bench.round(|bench| {
                let began = tsc::now();
                bench.carry();
                tsc::now() - began
            })
        })
        .collect();
    each.sort_unstable();
    each[each.len() / 2] as f64 / BATCH_MAX as f64
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = args.iter().position(|arg| arg == "--case") {
        let case = CASES.iter().find(|case| case.name == args[at + 1]).expect("a case of that name");
        let mut bench = Bench::new(*case);
        // The second time, when nothing is done for the first time.
        (0..16).for_each(|_| bench.round(Bench::carry));
        return bench.round(counted);
    }
    let wanted = args.iter().find(|arg| !arg.starts_with("--"));
    for case in CASES.iter().filter(|case| wanted.is_none_or(|wanted| case.name.contains(wanted.as_str()))) {
        // As criterion has it: cargo bench says so, cargo test does not.
        if !args.iter().any(|arg| arg == "--bench") {
            Bench::new(*case).round(Bench::carry);
        } else if args.iter().any(|arg| arg == "--cycles") {
            println!("{:<30} {:>9.2}", case.name, cycles(*case));
        } else {
            let Counts { instructions, loads, stores, lines } = counts(*case);
            println!("{:<30} {instructions:>9.2} {loads:>8.2} {stores:>8.2} {lines:>7.2}", case.name);
        }
    }
}
