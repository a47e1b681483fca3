//! Ports that tell how long the PMD's iterations take, and when a packet last left by which of them.
//!
//! The PMD polls the one receive queue once an iteration, so from poll to poll is an iteration. One that took longer
//! than [`SUSPECT_NS`] while another thread had its core, or the host took the core or slowed it down, says nothing of the
//! switch and is left out. Its own sleep counts. A probe that asks [`Asking::Always`] asks every millisecond besides: then
//! only time lost within a millisecond of an iteration excuses it.

use crate::core_speed::CoreSpeed;
use crate::switch::Ports;
use anyhow::{Context, Result};
use parking_lot::{Mutex, MutexGuard};
use rustix::time::{ClockId, clock_gettime};
use sluice_fate::{Counter, Tally};
use sluice_mem::FramePool;
use sluice_packet::{BATCH_MAX, Buffers, PacketBatch};
use sluice_port::{Pools, Port, PortInfo, PortStats, RxQueue, TxQueue};
use sluice_traffic::{FlowStream, Profile};
use sluice_trafficgen::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Iterations that took longer are asked whether the PMD was running all the time.
const SUSPECT_NS: u64 = 80_000;

/// How old the answer about lost time may be that an iteration is compared with.
const FRESH_NS: u64 = 1_000_000;

/// When a probe asks how much time the thread has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// After an iteration that took long.
    WhenSuspect,
    /// Every millisecond besides, which costs some of the rate.
    Always,
}

/// What the ports have seen.
#[derive(Debug)]
pub struct Probe {
    origin: Instant,
    asking: Asking,
    iterations: Mutex<Iterations>,
    /// By sending port: packets, and when the last was sent.
    sent: [AtomicU64; SINKS],
    last_ns: [AtomicU64; SINKS],
}

/// Ports that send.
pub const SINKS: usize = 2;

/// How long iterations took.
#[derive(Clone, Debug, Default)]
pub struct Iterations {
    /// Nanoseconds.
    pub times: Histogram,
    /// How many were left out because the thread was kept from running.
    pub interrupted: u64,
    /// How many were left out because its core ran at a fraction of its speed.
    pub slowed: u64,
}

impl Probe {
    /// Ports to give to a switch: the first receives as many packets of the profile as it takes, the others send.
    ///
    /// # Errors
    /// If there is no memory for packets.
    pub fn new(profile: &Profile, asking: Asking) -> Result<(Arc<Probe>, Ports)> {
        let probe = Arc::new(Probe {
            origin: Instant::now(),
            asking,
            iterations: Mutex::default(),
            sent: Default::default(),
            last_ns: Default::default(),
        });
        let stream = profile.streams(1)?.pop().context("a profile without a stream")?;
        let pool: Arc<dyn FramePool> = Pools::default().of_size(stream.frame_size())?;
        let end = |stream, sink| -> Box<dyn Port> {
            Box::new(ProbePort { probe: Arc::clone(&probe), pool: Arc::clone(&pool), stream, sink })
        };
        let ports = [end(Some(stream), None)].into_iter().chain((0..SINKS).map(|sink| end(None, Some(sink)))).collect();
        Ok((Arc::clone(&probe), ports))
    }

    /// Now, as the times here count; nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// The iterations since this was last asked.
    pub fn take_iterations(&self) -> Iterations {
        std::mem::take(&mut *self.iterations())
    }

    /// Packets sent by all ports.
    pub fn sent(&self) -> u64 {
        self.sent.iter().map(|sent| sent.load(Relaxed)).sum()
    }

    /// When a packet last left by that port.
    pub fn last_ns(&self, sink: usize) -> u64 {
        self.last_ns[sink].load(Relaxed)
    }

    fn iterations(&self) -> MutexGuard<'_, Iterations> {
        self.iterations.lock()
    }
}

#[derive(Debug)]
struct ProbePort {
    probe: Arc<Probe>,
    pool: Arc<dyn FramePool>,
    stream: Option<FlowStream>,
    sink: Option<usize>,
}

impl Port for ProbePort {
    fn info(&self) -> PortInfo {
        let mac = [2, 0, 0, 0, 3, self.sink.map_or(0, |sink| sink as u8 + 1)];
        PortInfo { kind: "probe", n_rxq: 1, n_txq: 1, mtu: 1500, mac }
    }

    fn rx_queue(&mut self, _queue: usize) -> Box<dyn RxQueue> {
        let (probe, pool) = (Arc::clone(&self.probe), Arc::clone(&self.pool));
        Box::new(ProbeRx {
            probe,
            pool,
            stream: self.stream.take(),
            polled_ns: 0,
            asked_ns: 0,
            lost: None,
            speed: None,
        })
    }

    fn tx_queue(&mut self, _pmd: usize) -> Box<dyn TxQueue> {
        Box::new(ProbeTx { probe: Arc::clone(&self.probe), sink: self.sink })
    }

    fn stats(&self) -> PortStats {
        PortStats::default()
    }
}

struct ProbeRx {
    probe: Arc<Probe>,
    pool: Arc<dyn FramePool>,
    /// `None` at a port that only sends.
    stream: Option<FlowStream>,
    polled_ns: u64,
    asked_ns: u64,
    /// Of the thread that polls; `None` before it does.
    lost: Option<LostTime>,
    /// Of its core.
    speed: Option<CoreSpeed>,
}

impl RxQueue for ProbeRx {
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, _tally: &mut Tally) {
        let Some(stream) = &mut self.stream else { return };
        let now_ns = self.probe.now_ns();
        let took = now_ns - self.polled_ns;
        let is_suspect = took > SUSPECT_NS;
        let asks = is_suspect || self.probe.asking == Asking::Always && now_ns - self.asked_ns > FRESH_NS;
        let has_lost_time = asks && self.lost.get_or_insert_with(LostTime::now).has_grown();
        let is_slow = asks && self.speed.get_or_insert_with(CoreSpeed::now).is_slow();
        if self.polled_ns != 0 {
            let mut iterations = self.probe.iterations();
            match is_suspect {
                true if has_lost_time => iterations.interrupted += 1,
                true if is_slow => iterations.slowed += 1,
                _ => iterations.times.record(took),
            }
        }
        self.polled_ns = now_ns;
        if asks {
            // The time that the question took belongs to no iteration.
            self.polled_ns = self.probe.now_ns();
            self.asked_ns = self.polled_ns;
        }
        let first = batch.len();
        let n = buffers.fill(&self.pool, batch.room(), stream.frame_size(), batch);
        let mut flows = [0; BATCH_MAX];
        stream.pick(&mut flows[..n]);
        let writer = stream.writer();
        for (packet, flow) in batch[first..].iter_mut().zip(flows) {
            writer.write(flow, packet.frame.bytes_mut());
        }
    }
}

/// Lost time of less than that may be the measurement's own; nanoseconds.
const LOST_MIN_NS: u64 = 5_000;

/// Time that the thread was kept from running.
#[derive(Debug)]
struct LostTime {
    /// By the clock on the wall.
    wall_ns: u64,
    /// In which the thread ran. Time that the host took away does not count where the kernel hears of it.
    ran_ns: u64,
    /// In which it could have run and another thread did.
    waited_ns: u64,
    /// How often it slept.
    sleeps: u64,
}

impl LostTime {
    /// What the kernel says of the caller's thread.
    fn now() -> Self {
        // "Time spent running, time spent waiting for a core, slices".
        let waited_ns = number("/proc/thread-self/schedstat", 1).unwrap_or(0);
        let sleeps = sleeps_of_thread();
        let clock = |id| Duration::try_from(clock_gettime(id)).map_or(0, |time| time.as_nanos() as u64);
        let (wall_ns, ran_ns) = (clock(ClockId::Monotonic), clock(ClockId::ThreadCPUTime));
        LostTime { wall_ns, ran_ns, waited_ns, sleeps }
    }

    /// Whether it has grown since this was last asked. A thread that slept did so by itself, which is not lost: then only
    /// time counts in which it waited for its core.
    fn has_grown(&mut self) -> bool {
        let now = LostTime::now();
        let not_run = (now.wall_ns - self.wall_ns).saturating_sub(now.ran_ns - self.ran_ns);
        let lost_ns = if now.sleeps == self.sleeps { not_run } else { now.waited_ns - self.waited_ns };
        *self = now;
        lost_ns > LOST_MIN_NS
    }
}

/// How often the caller's thread has slept: "voluntary context switches".
fn sleeps_of_thread() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// A word of a file's first line, counted from 0, as a number.
fn number(path: &str, word: usize) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.lines().next()?.split_whitespace().nth(word)?.parse().ok()
}

struct ProbeTx {
    probe: Arc<Probe>,
    sink: Option<usize>,
}

impl TxQueue for ProbeTx {
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        if let Some(sink) = self.sink {
            self.probe.sent[sink].fetch_add(batch.len() as u64, Relaxed);
            self.probe.last_ns[sink].store(self.probe.now_ns(), Relaxed);
        }
        tally[Counter::Sent] += batch.len() as u64;
        buffers.give_batch(batch);
    }
}
