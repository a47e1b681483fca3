//! The generator for a switch in this process, with ports whose packets arrive by the clock.
//!
//! A port's receive queue delivers the packets that have arrived by now (`arrivals.rs`), and its transmit queue counts
//! what the switch sends (`ledger.rs`). So no core is used for sending, and only the switch can delay a packet. The PMD
//! writes the frames, where a NIC would write memory; that costs a few cycles a packet.

use crate::arrivals::Arrivals;
use crate::generator::{Generator, GeneratorError, Trial, TrialFigures, check_rate};
use crate::lane::Lane;
use crate::ledger::Ledger;
use crate::profile::{MEASUREMENT, Plan, TEACHING};
use crate::stamp::Stamp;
use crate::trial_clock::{PAUSED_MAX, Pauses, TrialClock};
use parking_lot::Mutex;
use sluice_fate::{Counter, Tally};
use sluice_mem::FramePool;
use sluice_packet::{Buffers, PacketBatch};
use sluice_port::{Port, PortInfo, PortStats, RxQueue, TxQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Packets that may wait at a port, over all its lanes. Source: the usual size of a NIC's receive ring.
const RING: u64 = 2048;
/// How long to wait for packets after the last was sent.
const DRAIN: Duration = Duration::from_millis(300);
/// How often to check whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Time between the setup of a trial and its first packet.
const LEAD: Duration = Duration::from_millis(5);

/// The generator for a switch in this process.
#[derive(Debug)]
pub struct InProcess {
    lanes: Vec<Lane>,
    shared: Arc<Shared>,
    trial: u16,
}

/// The state shared by the ports and the generator.
#[derive(Debug)]
struct Shared {
    /// All times are by it.
    clock: TrialClock,
    /// By port: the lanes that it receives.
    sending: Vec<Mutex<Vec<Sending>>>,
    ledger: Mutex<Ledger>,
    /// By port: whether its next poll is waited for.
    awaited: Vec<AtomicBool>,
    rx_packets: AtomicU64,
    tx_packets: AtomicU64,
}

/// A lane that is sending.
#[derive(Debug)]
struct Sending {
    stamp: Stamp,
    lane: Lane,
    arrivals: Arrivals,
}

impl InProcess {
    /// The generator of a plan, and the ports for the switch. Their frames are of `pool`, which must have long enough
    /// frames.
    pub fn new(plan: &Plan, pool: &Arc<dyn FramePool>) -> (InProcess, Vec<Box<dyn Port>>) {
        Self::with_pauses(plan, pool, None)
    }

    /// The same, with a clock that stands still while it is told to, for eight lengths of a trial at most.
    pub fn with_pauses(
        plan: &Plan,
        pool: &Arc<dyn FramePool>,
        pauses: Option<Pauses>,
    ) -> (InProcess, Vec<Box<dyn Port>>) {
        let shared = Arc::new(Shared {
            clock: TrialClock::new(pauses),
            sending: (0..plan.ports).map(|_| Mutex::default()).collect(),
            ledger: Mutex::default(),
            awaited: (0..plan.ports).map(|_| AtomicBool::new(false)).collect(),
            rx_packets: AtomicU64::new(0),
            tx_packets: AtomicU64::new(0),
        });
        let port = |number| -> Box<dyn Port> {
            Box::new(LanePort {
                number,
                mtu: plan.longest() as u32,
                shared: Arc::clone(&shared),
                pool: Arc::clone(pool),
            })
        };
        let ports = (0..plan.ports).map(port).collect();
        (InProcess { lanes: plan.lanes.clone(), shared, trial: 0 }, ports)
    }

    /// Starts sending.
    fn begin(&mut self, trial: &Trial, own_rates: f64) {
        self.trial = self.trial.wrapping_add(1);
        *self.shared.ledger.lock() = Ledger::new(self.trial, self.lanes.iter().map(|lane| lane.to));
        self.shared.clock.begin(u64::from(PAUSED_MAX) * trial.duration.as_nanos() as u64);
        let began_ns = self.shared.clock.now_ns() + LEAD.as_nanos() as u64;
        for (port, sending) in self.shared.sending.iter().enumerate() {
            let here =
                || self.lanes.iter().enumerate().filter(|(_, lane)| lane.from == port && takes_part(lane, trial));
            let room = RING / (here().count() as u64).max(1);
            *sending.lock() = here()
                .map(|(number, lane)| {
                    let rate = trial.rate_pps * lane.rate_pps / own_rates;
                    let total = (rate * trial.duration.as_secs_f64()).round() as u64;
                    Sending {
                        stamp: Stamp { trial: self.trial, lane: number as u16, number: 0, due_ns: 0 },
                        lane: lane.clone(),
                        arrivals: Arrivals::new(rate, began_ns, total, room),
                    }
                })
                .collect();
        }
    }

    /// For how long its clock has stood still since it was made.
    pub fn paused(&self) -> Duration {
        Duration::from_nanos(self.shared.clock.paused_ns())
    }

    /// Waits until each port has been polled once more; by then the packets of the poll before are sent. It gives up after
    /// [`DRAIN`], because a switch may have stopped polling.
    fn wait_for_polls(&self) {
        let awaited = &self.shared.awaited;
        awaited.iter().for_each(|port| port.store(true, Relaxed));
        let waits = Instant::now();
        while waits.elapsed() < DRAIN && awaited.iter().any(|port| port.load(Relaxed)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_over(&self) -> bool {
        self.shared.sending.iter().all(|sending| sending.lock().iter().all(|s| s.arrivals.is_over()))
    }
}

/// Whether a lane sends in a trial.
pub(crate) fn takes_part(lane: &Lane, trial: &Trial) -> bool {
    if trial.is_warmup { lane.teaches } else { lane.measures }
}

/// The sum of the lanes' own rates; an error if no lane takes part, or the trial's rate is invalid.
pub(crate) fn own_rates(lanes: &[Lane], trial: &Trial) -> Result<f64, GeneratorError> {
    check_rate(trial.rate_pps)?;
    let sum: f64 = lanes.iter().filter(|lane| takes_part(lane, trial)).map(|lane| lane.rate_pps).sum();
    let kind = if trial.is_warmup { TEACHING } else { MEASUREMENT };
    if sum > 0.0 { Ok(sum) } else { Err(GeneratorError::Nothing(kind)) }
}

impl Generator for InProcess {
    fn run(&mut self, trial: &Trial, stop: &AtomicBool) -> Result<TrialFigures, GeneratorError> {
        let own_rates = own_rates(&self.lanes, trial)?;
        let paused = self.paused();
        self.begin(trial, own_rates);
        let ends = Instant::now() + LEAD + trial.duration;
        while Instant::now() < ends && !stop.load(Relaxed) {
            std::thread::sleep(LOOK_EVERY.min(ends.saturating_duration_since(Instant::now())));
        }
        // What the clock stood still is still to come.
        let waits = Instant::now();
        while waits.elapsed() < DRAIN + self.paused().saturating_sub(paused) && !self.is_over() && !stop.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if !stop.load(Relaxed) {
            self.wait_for_polls();
        }
        // A switch may hold packets back for some iterations, in order to send more together.
        std::thread::sleep(LEAD);
        let mut lanes = Vec::new();
        let ledger = self.shared.ledger.lock();
        for sending in &self.shared.sending {
            for sent in sending.lock().drain(..) {
                let number = usize::from(sent.stamp.lane);
                lanes.push((number, ledger.figures(number, sent.lane.name, sent.arrivals.come())));
                // The next trial continues where this one ended, so that flows that never repeat do not repeat.
                self.lanes[number].frames = sent.lane.frames;
            }
        }
        lanes.sort_by_key(|(number, _)| *number);
        let lanes = lanes.into_iter().map(|(_, figures)| figures).collect();
        Ok(TrialFigures { lanes, latencies: Some(ledger.histogram()) })
    }
}

/// A port of the generator.
#[derive(Debug)]
struct LanePort {
    number: usize,
    mtu: u32,
    shared: Arc<Shared>,
    pool: Arc<dyn FramePool>,
}

impl Port for LanePort {
    fn info(&self) -> PortInfo {
        let mac = [2, 0, 0, 0, 1, self.number as u8];
        PortInfo { kind: "lane", n_rxq: 1, n_txq: 1, mtu: self.mtu, mac }
    }

    fn rx_queue(&mut self, _queue: usize) -> Box<dyn RxQueue> {
        Box::new(LaneRx { number: self.number, shared: Arc::clone(&self.shared), pool: Arc::clone(&self.pool) })
    }

    fn tx_queue(&mut self, _pmd: usize) -> Box<dyn TxQueue> {
        Box::new(LaneTx { number: self.number, shared: Arc::clone(&self.shared) })
    }

    fn stats(&self) -> PortStats {
        PortStats {
            rx_packets: self.shared.rx_packets.load(Relaxed),
            tx_packets: self.shared.tx_packets.load(Relaxed),
            ..PortStats::default()
        }
    }
}

struct LaneRx {
    number: usize,
    shared: Arc<Shared>,
    pool: Arc<dyn FramePool>,
}

impl RxQueue for LaneRx {
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, _tally: &mut Tally) {
        if self.number == 0 {
            self.shared.clock.ask();
        }
        let awaited = &self.shared.awaited[self.number];
        if awaited.load(Relaxed) {
            awaited.store(false, Relaxed);
        }
        let mut sending = self.shared.sending[self.number].lock();
        if sending.is_empty() {
            return;
        }
        let now_ns = self.shared.clock.now_ns();
        let lanes = sending.len();
        for (i, lane) in sending.iter_mut().enumerate() {
            lane.arrivals.advance(now_ns);
            // Lanes share the batch: what one leaves is for the next ones.
            let mut left = (batch.room() / (lanes - i)) as u64;
            // A ring that has lost packets holds them in several pieces.
            while left != 0 {
                let Some((first, n)) = lane.arrivals.take(left) else { break };
                left -= n;
                for number in first..first + n {
                    let size = lane.lane.frames.size(number);
                    // Without a free buffer the packet is lost, as in a NIC.
                    if buffers.fill(&self.pool, 1, size, batch) == 0 {
                        break;
                    }
                    let stamp = Stamp { number: number as u32, due_ns: lane.arrivals.due_ns(number), ..lane.stamp };
                    if let Some(packet) = batch.last_mut() {
                        lane.lane.frames.write(number, &stamp, packet.frame.bytes_mut());
                    }
                }
            }
        }
        self.shared.rx_packets.fetch_add(batch.len() as u64, Relaxed);
    }
}

struct LaneTx {
    number: usize,
    shared: Arc<Shared>,
}

impl TxQueue for LaneTx {
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let now_ns = self.shared.clock.now_ns();
        let mut ledger = self.shared.ledger.lock();
        batch.iter().for_each(|packet| ledger.count(packet.bytes(), self.number, now_ns));
        drop(ledger);
        tally[Counter::Sent] += batch.len() as u64;
        self.shared.tx_packets.fetch_add(batch.len() as u64, Relaxed);
        buffers.give_batch(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_port::Pools;
    use std::path::Path;

    const PROFILE: &str = r#"{ "port_pairs": 2, "streams": [
        { "flows": 10, "rate": 3, "stream_types": ["teaching_warmup", "measurement"] },
        { "flows": 10, "rate": 1, "frame_size": "imix", "stream_types": ["measurement"],
          "traffic_direction": "revunidirectional", "port_pairs": [1] } ] }"#;

    /// Exchanges packets between the ports of a pair, and loses every `lose`th one.
    fn switch(ports: &mut [Box<dyn Port>], lose: u64, ends: &AtomicBool) {
        let mut rx: Vec<_> = ports.iter_mut().map(|port| port.rx_queue(0)).collect();
        let mut tx: Vec<_> = ports.iter_mut().map(|port| port.tx_queue(0)).collect();
        let (mut buffers, mut tally, mut batch, mut seen) =
            (Buffers::new(), Tally::default(), PacketBatch::new(), 0u64);
        while !ends.load(Relaxed) {
            for (i, rx) in rx.iter_mut().enumerate() {
                rx.poll(&mut batch, &mut buffers, &mut tally);
                let mut kept = PacketBatch::new();
                for packet in batch.drain(..) {
                    seen += 1;
                    if lose != 0 && seen % lose == 0 {
                        buffers.give(std::iter::once(packet))
                    } else {
                        kept.push(packet)
                    }
                }
                tx[i ^ 1].send(&mut kept, &mut buffers, &mut tally);
            }
        }
    }

    fn run(lose: u64, trial: &Trial) -> TrialFigures {
        let plan = Plan::parse(PROFILE, Path::new("p.json")).unwrap();
        let pool: Arc<dyn FramePool> = Pools::new(4096).of_size(plan.longest()).unwrap();
        let (mut generator, mut ports) = InProcess::new(&plan, &pool);
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| switch(&mut ports, lose, &ends));
            let figures = generator.run(trial, &AtomicBool::new(false));
            ends.store(true, Relaxed);
            figures.unwrap()
        })
    }

    #[test]
    fn every_packet_is_accounted_for() {
        let trial = Trial { rate_pps: 7000.0, duration: Duration::from_millis(200), is_warmup: false };
        let figures = run(0, &trial);
        let sent: Vec<u64> = figures.lanes.iter().map(|lane| lane.sent).collect();
        assert_eq!(sent, [600, 600, 200], "3 : 3 : 1 of 1400 packets");
        for lane in &figures.lanes {
            assert_eq!((lane.received, lane.out_of_order, lane.astray), (lane.sent, 0, 0), "{}", lane.lane);
            assert!(lane.latency.unwrap().p50_ns > 0);
        }
        let figures = run(10, &trial);
        let outcome = figures.outcome();
        assert_eq!(outcome.sent - outcome.received, 140, "a tenth was lost");
    }

    #[test]
    fn a_ring_that_lost_packets_gives_full_bursts() {
        let profile = r#"{ "streams": [{ "flows": 10, "rate": 1, "stream_types": ["measurement"] }] }"#;
        let plan = Plan::parse(profile, Path::new("p.json")).unwrap();
        let pool: Arc<dyn FramePool> = Pools::new(4096).of_size(plan.longest()).unwrap();
        let (mut generator, mut ports) = InProcess::new(&plan, &pool);
        let mut rx = ports[0].rx_queue(0);
        let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
        generator.begin(&Trial { rate_pps: 1e7, duration: Duration::from_secs(60), is_warmup: false }, 1.0);
        std::thread::sleep(LEAD);
        // Each poll makes room for a few packets behind others that were lost.
        for most in std::iter::repeat_n(8, 300).chain([32; 3]) {
            std::thread::sleep(Duration::from_micros(400));
            batch.limit(most);
            rx.poll(&mut batch, &mut buffers, &mut tally);
            assert_eq!(batch.len(), most);
            buffers.give(batch.drain(..));
        }
    }

    #[test]
    fn a_warm_up_is_of_those_who_teach() {
        let trial = Trial { rate_pps: 7000.0, duration: Duration::from_millis(50), is_warmup: true };
        assert_eq!(run(0, &trial).lanes.len(), 2);
    }

    #[test]
    fn a_trial_goes_on_where_the_one_before_ended() {
        use sluice_traffic::{Choice, Profile};
        let profile = Profile { flows: Some(1 << 20), choice: Choice::Sequential, ..Profile::default() };
        let lane = Lane::made("endless", [0, 1], 1e5, &profile).unwrap();
        let plan = Plan { lanes: vec![lane], ports: 2 };
        let pool: Arc<dyn FramePool> = Pools::new(4096).of_size(plan.longest()).unwrap();
        let (mut generator, mut ports) = InProcess::new(&plan, &pool);
        let ends = AtomicBool::new(false);
        let destinations = std::thread::scope(|scope| {
            let seen = scope.spawn(|| {
                let mut rx = ports[0].rx_queue(0);
                let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
                let mut seen = Vec::new();
                while !ends.load(Relaxed) {
                    rx.poll(&mut batch, &mut buffers, &mut tally);
                    seen.extend(batch.iter().map(|packet| packet.bytes()[30..34].to_vec()));
                    buffers.give(batch.drain(..));
                }
                seen
            });
            for _ in 0..2 {
                let trial = Trial { rate_pps: 1e5, duration: Duration::from_millis(20), is_warmup: false };
                generator.run(&trial, &AtomicBool::new(false)).unwrap();
            }
            ends.store(true, Relaxed);
            seen.join().unwrap()
        });
        // While the machine stalls, packets are lost from the ring, and are not made up for.
        assert!(destinations.windows(2).all(|pair| pair[0] < pair[1]), "a flow came again: {destinations:?}");
    }

    #[test]
    fn impossible_rates_are_refused() {
        let plan = Plan::parse(PROFILE, Path::new("p.json")).unwrap();
        let pool: Arc<dyn FramePool> = Pools::new(64).of_size(plan.longest()).unwrap();
        let (mut generator, _ports) = InProcess::new(&plan, &pool);
        for rate_pps in [0.0, -1.0, f64::NAN, 1e10] {
            let trial = Trial { rate_pps, duration: Duration::ZERO, is_warmup: false };
            let error = generator.run(&trial, &AtomicBool::new(false)).unwrap_err().to_string();
            assert!(error.contains("expected one above 0 and at most 1000000000"), "{error}");
        }
    }
}
