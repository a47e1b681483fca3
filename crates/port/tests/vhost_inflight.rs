//! Switches that are killed while they work on a guest's rings. Each successor finds in the records what was in flight.
//!
//! Not a libtest harness: this program is the switch, too.

use rustix::process::{Pid, Signal, kill_process};
use sluice_fate::{DropReason, Tally};
use sluice_mem::FramePool;
use sluice_packet::{BATCH_MAX, Buffers, PacketBatch};
use sluice_port::{Pools, PortConfig, open};
use sluice_testkit::cases::{self, Case};
use sluice_testkit::vhost_guest::{BUFFERS, Guest, Inflight, NEXT, WRITE, feature};
use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Names the socket to the process that is the switch.
const SOCKET: &str = "SLUICE_TEST_SWITCH_SOCKET";
const SIZE: u16 = 64;
/// A packed ring's place as it begins, which is all that the frontend of a killed switch knows.
const FIRST: u32 = 1 << 15;
/// Switches that are killed in a case, at least; and at most, until some had a chain in flight.
const KILLS: u32 = 25;
const KILLS_MAX: u32 = 1000;
/// Switches that had one.
const CAUGHT: u32 = 3;

/// The switch: it takes what the guest sends, and sends all that the guest can take, until it is killed.
fn be_the_switch(path: String) -> ExitCode {
    let mut pools = Pools::new(256);
    let options = [("path".to_owned(), path), ("mode".to_owned(), "server".to_owned())].into();
    let config = PortConfig { name: "vm1".into(), kind: "vhost-user".into(), options, ..PortConfig::default() };
    let mut port = open(&config, &mut pools).unwrap();
    let (mut rx, mut tx) = (port.rx_queue(0), port.tx_queue(0));
    let pool: Arc<dyn FramePool> = pools.of_size(1500).unwrap();
    let (mut buffers, mut tally) = (Buffers::new(), Tally::default());
    loop {
        let mut batch = PacketBatch::new();
        rx.poll(&mut batch, &mut buffers, &mut tally);
        batch.discard(DropReason::Rules, &mut buffers, &mut tally);
        buffers.fill(&pool, BATCH_MAX, 60, &mut batch);
        tx.send(&mut batch, &mut buffers, &mut tally);
    }
}

/// One ring's driver, which offers chains of two descriptors and sees that each comes back once and in order.
struct Driver {
    ring: u32,
    free: VecDeque<u16>,
    offered: VecDeque<u16>,
    came_back: u64,
}

impl Driver {
    fn new(guest: &mut Guest, ring: u32) -> Self {
        let flags = if ring == 0 { WRITE } else { 0 };
        for at in 0..SIZE {
            let next = if at % 2 == 0 { NEXT } else { 0 };
            guest.describe(ring, at, (BUFFERS + 0x1000 * u64::from(at), 64, flags | next, at + 1));
        }
        let free = (0..SIZE).step_by(2).collect();
        Driver { ring, free, offered: VecDeque::new(), came_back: 0 }
    }

    fn offer(&mut self, guest: &mut Guest) {
        for head in self.free.drain(..) {
            guest.offer(self.ring, head);
            self.offered.push_back(head);
        }
        guest.publish(self.ring);
    }

    fn take(&mut self, guest: &mut Guest) {
        for (head, _) in guest.take_used(self.ring) {
            assert_eq!(self.offered.pop_front().map(u32::from), Some(head), "ring {}", self.ring);
            self.free.push_front(head as u16);
            self.came_back += 1;
        }
    }
}

/// Whether the records say that a chain is in flight: the first byte of an entry, of which each queue has `SIZE` behind
/// a header as long as one.
fn has_chain_in_flight(inflight: &Inflight, features: u64) -> bool {
    let entry = if features & feature::RING_PACKED != 0 { 32 } else { 16 };
    let stride = (entry * (usize::from(SIZE) + 1)).next_multiple_of(64);
    let mut bytes = vec![0; 2 * stride];
    inflight.file.read_exact_at(&mut bytes, 0).unwrap();
    bytes.chunks(stride).any(|queue| queue.chunks(entry).skip(1).take(SIZE.into()).any(|entry| entry[0] != 0))
}

/// A switch that runs, connected to the guest.
fn start(guest: &mut Guest, inflight: &mut Option<Inflight>, path: &Path, features: u64) -> Child {
    let program = std::env::current_exe().unwrap();
    let switch = Command::new(program).env(SOCKET, path).spawn().unwrap();
    guest.reconnect(path, features);
    let inflight = inflight.get_or_insert_with(|| guest.ask_inflight());
    guest.hand_inflight(inflight);
    (0..2).for_each(|ring| guest.start(ring, FIRST));
    switch
}

fn killed_switches_lose_no_chain(features: u64) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vm.sock");
    let mut first = Command::new(std::env::current_exe().unwrap()).env(SOCKET, &path).spawn().unwrap();
    let mut guest = Guest::connect(&path, features, SIZE);
    first.kill().unwrap();
    first.wait().unwrap();
    let mut drivers = [0, 1].map(|ring| Driver::new(&mut guest, ring));
    let (mut inflight, mut caught) = (None, 0);
    for round in 0..KILLS_MAX {
        let is_last = round >= KILLS && caught >= CAUGHT;
        let mut switch = start(&mut guest, &mut inflight, &path, features);
        let before = drivers.each_ref().map(|driver| driver.came_back);
        let (began, mut killer) = (Instant::now(), None);
        loop {
            assert!(began.elapsed() < Duration::from_secs(20), "chains never came back in round {round}");
            for driver in &mut drivers {
                if !is_last {
                    driver.offer(&mut guest);
                }
                driver.take(&mut guest);
            }
            // Each works on both rings, and is then killed while it has chains to work on.
            let works = drivers.iter().zip(before).all(|(driver, before)| driver.came_back > before + 200);
            if !is_last && works && killer.is_none() {
                let (pid, wait) = (Pid::from_child(&switch), Duration::from_micros(u64::from(round) * 173 % 1999));
                killer = Some(std::thread::spawn(move || {
                    std::thread::sleep(wait);
                    kill_process(pid, Signal::KILL)
                }));
            }
            let has_all = is_last && drivers.iter().all(|driver| driver.offered.is_empty());
            if has_all || killer.as_ref().is_some_and(JoinHandle::is_finished) {
                break;
            }
        }
        if is_last {
            switch.kill().unwrap();
        }
        switch.wait().unwrap();
        drivers.iter_mut().for_each(|driver| driver.take(&mut guest));
        caught += u32::from(inflight.as_ref().is_some_and(|inflight| has_chain_in_flight(inflight, features)));
        if is_last {
            return;
        }
    }
    panic!("{caught} of {KILLS_MAX} switches were killed with a chain in flight");
}

const CASES: &[Case] = &[
    ("killed_switches_lose_no_chain_of_split_rings", || killed_switches_lose_no_chain(feature::VERSION_1)),
    ("killed_switches_lose_no_chain_of_packed_rings", || {
        killed_switches_lose_no_chain(feature::VERSION_1 | feature::RING_PACKED);
    }),
];

fn main() -> ExitCode {
    match std::env::var(SOCKET) {
        Ok(path) => be_the_switch(path),
        Err(_) => cases::run("vhost_inflight", CASES, |_| None),
    }
}
