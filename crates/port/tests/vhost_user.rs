//! vhost-user ports against DPDK's virtio-user in testpmd, which needs no privileges and no huge pages.
//!
//! Not a libtest harness: without `dpdk-testpmd` (Debian: dpdk-dev) each case is skipped by name, and the last line
//! counts passed, failed and skipped.

use sluice_fate::{Counter, DropReason, Tally};
use sluice_mem::FramePool;
use sluice_packet::{Buffers, PacketBatch};
use sluice_port::{Pools, Port, PortConfig, RxQueue, TxQueue, open};
use sluice_testkit::cases::{self, Case};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A testpmd whose only device is virtio-user.
struct Testpmd {
    child: Child,
    lines: Receiver<String>,
}

impl Testpmd {
    fn start(vdev: &str, mode: &str, queues: usize) -> Self {
        // Line by line; otherwise its output stays in its buffer.
        let mut child = Command::new("stdbuf")
            .args(["-oL", "dpdk-testpmd"])
            .args(["-l", "0,1", "--no-pci", "--no-huge", "-m", "256", "--no-telemetry", "--vdev", vdev])
            .arg(format!("--file-prefix=sluice{}-{queues}", std::process::id()))
            .args(["--", "-i", "--no-flush-rx", &format!("--forward-mode={mode}"), "--total-num-mbufs=8192"])
            .args([format!("--rxq={queues}"), format!("--txq={queues}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Testpmd { child, lines }
    }

    fn say(&mut self, command: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{command}").unwrap();
    }

    /// The text behind `label` in the next line that has it.
    fn wait_for(&self, label: &str) -> String {
        let end = Instant::now() + Duration::from_secs(20);
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            if let Some(rest) = line.split(label).nth(1) {
                return rest.to_owned();
            }
        }
        panic!("testpmd never said {label}");
    }

    /// Packets that its device took for sending.
    fn sent(&mut self) -> u64 {
        self.say("show port stats 0");
        self.wait_for("NIC statistics for port 0");
        self.wait_for("TX-packets:").split_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Our side: a port with its queues and what they need.
struct Bench {
    port: Box<dyn Port>,
    rx: Vec<Box<dyn RxQueue>>,
    tx: Box<dyn TxQueue>,
    pool: Arc<dyn FramePool>,
    buffers: Buffers,
    tally: Tally,
}

impl Bench {
    fn open(path: &Path, mode: &str, queues: usize) -> Self {
        let mut pools = Pools::new(4096);
        let options = [("path".to_owned(), path.display().to_string()), ("mode".to_owned(), mode.to_owned())].into();
        let config = PortConfig {
            name: "vm1".into(),
            kind: "vhost-user".into(),
            n_rxq: queues,
            options,
            ..PortConfig::default()
        };
        let mut port = open(&config, &mut pools).unwrap();
        let rx = (0..queues).map(|q| port.rx_queue(q)).collect();
        let (tx, pool) = (port.tx_queue(0), pools.of_size(1500).unwrap());
        Bench { port, rx, tx, pool, buffers: Buffers::new(), tally: Tally::default() }
    }

    fn wait_until_up(&self) {
        let end = Instant::now() + Duration::from_secs(30);
        while !self.port.is_up() {
            assert!(Instant::now() < end, "the port never came up");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Checks which format of rings was negotiated.
    fn assert_packed(&self, is_packed: bool) {
        let details = self.port.device_status().details;
        let features = details.iter().find(|(key, _)| key == "features").expect("the frontend is connected");
        let features = u64::from_str_radix(features.1.trim_start_matches("0x"), 16).unwrap();
        assert_eq!(features & 1 << 34 != 0, is_packed, "{features:#x}");
    }

    /// Polls every queue once, and discards the packets. Returns how many came.
    fn receive(&mut self) -> usize {
        let mut batch = PacketBatch::new();
        let mut n = 0;
        for rx in &mut self.rx {
            rx.poll(&mut batch, &mut self.buffers, &mut self.tally);
            n += batch.len();
            self.tally[Counter::Received] += batch.len() as u64;
            batch.discard(DropReason::Rules, &mut self.buffers, &mut self.tally);
        }
        n
    }

    /// Receives until at most `allowed` of `outstanding` packets are missing. Returns how many came.
    fn receive_down_to(&mut self, outstanding: usize, allowed: usize) -> usize {
        let mut came = 0;
        let mut last = Instant::now();
        while outstanding - came > allowed {
            let n = self.receive();
            came += n;
            if n > 0 {
                last = Instant::now();
            }
            assert!(last.elapsed() < Duration::from_secs(20), "{} packets never came back", outstanding - came);
        }
        came
    }

    /// Sends repeatedly until the guest, whose rings are up before its program runs, returns packets; then waits until
    /// no more come.
    fn warm_up(&mut self) {
        let end = Instant::now() + Duration::from_secs(30);
        let mut came = 0;
        while came == 0 {
            assert!(Instant::now() < end, "the guest never answered");
            self.send(1);
            std::thread::sleep(Duration::from_millis(100));
            came = self.receive();
        }
        while self.receive() > 0 {
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn send(&mut self, n: usize) {
        let mut batch = PacketBatch::new();
        let mut frame = [0; 100];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        for _ in 0..n {
            batch.push(self.buffers.write(&self.pool, &frame).unwrap());
        }
        self.tally[Counter::Originated] += n as u64;
        self.tx.send(&mut batch, &mut self.buffers, &mut self.tally);
    }
}

/// What makes virtio-user offer packed rings.
const PACKED: &str = ",packed_vq=1";

const CASES: &[Case] = &[
    ("what_the_guest_sent_is_delivered_or_counted", || what_the_guest_sent_is_delivered_or_counted("")),
    ("paced_packets_to_a_guest_and_back_are_not_lost", || paced_packets_to_a_guest_and_back_are_not_lost("")),
    ("what_the_guest_sent_through_packed_rings_is_delivered_or_counted", || {
        what_the_guest_sent_is_delivered_or_counted(PACKED);
    }),
    ("paced_packets_through_packed_rings_are_not_lost", || paced_packets_to_a_guest_and_back_are_not_lost(PACKED)),
];

fn main() -> ExitCode {
    cases::run("vhost-user", CASES, |_| cases::lacking(&["dpdk-testpmd"]))
}

fn what_the_guest_sent_is_delivered_or_counted(rings: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vm.sock");
    let mut bench = Bench::open(&path, "server", 2);
    // Twice: a frontend that disconnected is replaced by another one.
    for _ in 0..2 {
        let mut guest =
            Testpmd::start(&format!("net_virtio_user0,path={},queues=2{rings}", path.display()), "txonly", 2);
        bench.wait_until_up();
        bench.assert_packed(!rings.is_empty());
        let before = bench.port.stats().rx_packets;
        guest.say("start");
        let mut got = 0;
        while got < 100_000 {
            got += bench.receive() as u64;
        }
        guest.say("stop");
        let (mut silent, mut sent) = (0, guest.sent());
        let end = Instant::now() + Duration::from_secs(20);
        // A guest that has lost its core is silent, too, before all that it sent is there.
        while silent < 200 || (sent != got && Instant::now() < end) {
            let n = bench.receive() as u64;
            got += n;
            silent = if n == 0 { silent + 1 } else { 0 };
            if silent >= 200 && silent % 200 == 0 {
                sent = guest.sent();
            }
            std::thread::sleep(Duration::from_millis(u64::from(n == 0)));
        }
        assert_eq!(sent, got);
        assert_eq!(bench.port.stats().rx_packets - before, got);
        drop(guest);
        let end = Instant::now() + Duration::from_secs(10);
        while bench.port.is_up() {
            assert!(Instant::now() < end, "the frontend is gone, the port is up");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    assert_eq!(bench.tally.conserved(), Ok(()));
}

fn paced_packets_to_a_guest_and_back_are_not_lost(rings: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vm.sock");
    // The guest listens and we connect; then we disconnect and come back.
    let vdev = format!("net_virtio_user0,path={},server=1,queues=1{rings}", path.display());
    let mut guest = Testpmd::start(&vdev, "macswap", 1);
    guest.say("start");
    for _ in 0..2 {
        let mut bench = Bench::open(&path, "client", 1);
        bench.wait_until_up();
        bench.assert_packed(!rings.is_empty());
        bench.warm_up();
        let before = bench.tally.clone();
        let (mut sent, mut back) = (0, 0);
        while sent < 20_000 {
            bench.send(16);
            sent += 16;
            // At most 128 are under way: the guest's ring has 256 entries.
            back += bench.receive_down_to(sent - back, 128);
        }
        back += bench.receive_down_to(sent - back, 0);
        assert_eq!(back, sent);
        assert_eq!(bench.tally.dropped(DropReason::TxFull), before.dropped(DropReason::TxFull));
        assert_eq!(bench.tally.conserved(), Ok(()));
    }
}
