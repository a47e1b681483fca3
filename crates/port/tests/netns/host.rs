//! Shared by the cases: commands, a port under test, and a host that answers ARP and ping.

use rustix::event::{PollFd, PollFlags, Timespec};
use sluice_fate::{Counter, DropReason, Tally};
use sluice_mem::FramePool;
use sluice_packet::{Buffers, PacketBatch};
use sluice_port::{OpenError, Pools, Port, PortConfig, RxQueue, TxQueue};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs a command line; its output. Panics with both if it fails.
pub fn sh(line: &str) -> String {
    let out = Command::new("sh").args(["-c", line]).output().expect("sh runs");
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{line}\n{text}");
    text
}

pub fn config(kind: &str, name: &str, keys: &[(&str, &str)]) -> PortConfig {
    let options = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    PortConfig { name: name.into(), kind: kind.into(), options, ..PortConfig::default() }
}

/// A port with its queues, and what one PMD has.
pub struct Rig {
    pub port: Box<dyn Port>,
    pub rx: Vec<Box<dyn RxQueue>>,
    pub tx: Box<dyn TxQueue>,
    pub buffers: Buffers,
    pub tally: Tally,
    pub batch: PacketBatch,
    pools: Vec<Arc<dyn FramePool>>,
}

impl Rig {
    pub fn open(config: &PortConfig, pools: &mut Pools) -> Result<Self, OpenError> {
        let mut port = sluice_port::open(config, pools)?;
        let rx = (0..config.n_rxq).map(|queue| port.rx_queue(queue)).collect();
        let tx = port.tx_queue(0);
        let (buffers, tally, batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
        let pools = pools.iter().map(|pool| Arc::clone(pool) as Arc<dyn FramePool>).collect();
        Ok(Rig { port, rx, tx, buffers, tally, batch, pools })
    }

    /// Polls every queue once. What came is in `batch`.
    pub fn poll(&mut self) {
        assert!(self.batch.is_empty());
        for rx in &mut self.rx {
            let before = self.batch.len();
            rx.poll(&mut self.batch, &mut self.buffers, &mut self.tally);
            self.tally[Counter::Received] += (self.batch.len() - before) as u64;
        }
    }

    /// Whether the first queue has packets within that time, as poll(2) says.
    pub fn is_readable_within(&self, span: Duration) -> bool {
        let mut queue = [PollFd::from_borrowed_fd(self.rx[0].readiness().expect("a descriptor"), PollFlags::IN)];
        let span = Timespec { tv_sec: span.as_secs() as i64, tv_nsec: span.subsec_nanos().into() };
        rustix::event::poll(&mut queue, Some(&span)).unwrap();
        queue[0].revents().contains(PollFlags::IN)
    }

    /// Takes all packets that wait.
    pub fn drain(&mut self) {
        while self.is_readable_within(Duration::from_millis(20)) {
            self.poll();
            let n = self.batch.len();
            self.tally.drop(DropReason::Rules, n);
            self.buffers.give_batch(&mut self.batch);
        }
    }

    /// Sends what is in `batch`.
    pub fn send(&mut self) {
        // Packets received by another rig may be of a pool that this one does not know.
        self.pools.iter().for_each(|pool| self.buffers.add_pool(pool));
        self.tx.send(&mut self.batch, &mut self.buffers, &mut self.tally);
        assert!(self.batch.is_empty());
    }

    /// Acts as host `ip`, answering ARP requests and pings, until `done`. Panics after 20 seconds.
    pub fn answer_until(&mut self, ip: [u8; 4], mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(20), "nothing more happens: {:?}", self.port.stats());
            self.poll();
            let came = std::mem::take(&mut self.batch);
            let mut came = came;
            for mut packet in came.drain(..) {
                match answer(packet.bytes_mut(), ip) {
                    true => self.batch.push(packet),
                    false => {
                        self.buffers.give_frame(packet.frame);
                        self.tally[Counter::Delivered] += 1;
                    }
                }
            }
            self.send();
            std::thread::yield_now();
        }
        assert_eq!(self.tally.conserved(), Ok(()));
    }
}

/// Turns an ARP request for `ip`, or a ping to it, into the reply. Returns whether it was one.
fn answer(frame: &mut [u8], ip: [u8; 4]) -> bool {
    let mac = [2, 0, 0, 0, 0, 9];
    let swap = |frame: &mut [u8]| {
        frame.copy_within(6..12, 0);
        frame[6..12].copy_from_slice(&mac);
    };
    if frame.len() >= 42 && frame[12..14] == [8, 6] && frame[20..22] == [0, 1] && frame[38..42] == ip {
        swap(frame);
        frame[21] = 2;
        frame.copy_within(22..32, 32);
        frame[22..28].copy_from_slice(&mac);
        frame[28..32].copy_from_slice(&ip);
        return true;
    }
    if frame.len() >= 42 && frame[12..14] == [8, 0] && frame[23] == 1 && frame[34] == 8 && frame[30..34] == ip {
        swap(frame);
        frame.copy_within(26..30, 30);
        frame[26..30].copy_from_slice(&ip);
        frame[34] = 0;
        // The type decreased by 8, so the checksum's first byte increases by 8, with carry.
        let sum = u32::from(u16::from_be_bytes([frame[36], frame[37]])) + 0x0800;
        let sum = (sum & 0xffff) + (sum >> 16);
        frame[36..38].copy_from_slice(&(sum as u16).to_be_bytes());
        return true;
    }
    false
}

/// Another network namespace, kept by a sleeping process; removed on drop.
pub struct Namespace(Child);

impl Namespace {
    pub fn new() -> Self {
        let child = Command::new("unshare")
            .args(["--net", "sleep", "100"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("unshare runs");
        let space = Namespace(child);
        // It exists when it differs from ours.
        let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
        while std::fs::read_link(format!("/proc/{}/ns/net", space.pid())).unwrap() == ours {
            std::thread::yield_now();
        }
        space
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Runs a command line in it.
    pub fn sh(&self, line: &str) -> String {
        sh(&format!("nsenter -t {} -n sh -c '{line}'", self.pid()))
    }

    /// Whether a TCP socket listens on a port in it.
    pub fn listens_on(&self, port: u16) -> bool {
        const LISTENS: &str = "0A";
        let address_end = format!(":{port:04X}");
        let is_there = |line: &str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.get(1).is_some_and(|local| local.ends_with(&address_end)) && fields.get(3) == Some(&LISTENS)
        };
        ["tcp", "tcp6"].iter().any(|family| {
            let sockets = std::fs::read_to_string(format!("/proc/{}/net/{family}", self.pid()));
            sockets.is_ok_and(|sockets| sockets.lines().any(is_there))
        })
    }

    /// Starts a command in it.
    pub fn spawn(&self, line: &str) -> Child {
        let pid = self.pid().to_string();
        let mut command = Command::new("nsenter");
        command.args(["-t", &pid, "-n"]).args(line.split(' ')).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("nsenter runs")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Set in a process that only opens a port of that type, on device v0, and prints why it cannot.
pub const OPEN_ONLY: &str = "SLUICE_NETNS_OPEN";

pub fn open_only(kind: &str) -> ExitCode {
    if let Err(error) = sluice_port::open(&config(kind, "p1", &[("device", "v0")]), &mut Pools::default()) {
        println!("{error}");
    }
    ExitCode::SUCCESS
}

/// Opens a port in a process that `prefix` starts with fewer privileges. Returns its output.
pub fn opened_with(prefix: &str, kind: &str) -> String {
    let this = std::env::current_exe().expect("the path of this program");
    let mut words = prefix.split(' ');
    let mut command = Command::new(words.next().expect("a program"));
    let out = command.args(words).arg(this).env(OPEN_ONLY, kind).output().expect("it runs");
    String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned()
}
