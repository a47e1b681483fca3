//! The generator for an external switch, which sends and receives over its own ports: AF_XDP, AF_PACKET or any other.
//!
//! One thread does both in turn. Latency is measured from a packet's due time, so a delay in this generator counts; if
//! it cannot reach the rate, the trial is an error instead of a result.

use crate::generator::{Generator, GeneratorError, Trial, TrialFigures, check_pace};
use crate::in_process::{own_rates, takes_part};
use crate::lane::Lane;
use crate::ledger::Ledger;
use crate::profile::Plan;
use crate::stamp::Stamp;
use sluice_fate::Tally;
use sluice_mem::FramePool;
use sluice_packet::{BATCH_MAX, Buffers, PacketBatch};
use sluice_port::{Port, RxQueue, TxQueue};
use sluice_traffic::Pacer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long to wait for packets after the last was sent.
const DRAIN: Duration = Duration::from_millis(300);

/// The generator for an external switch.
pub struct OverPorts {
    lanes: Vec<Lane>,
    ends: Vec<End>,
    pool: Arc<dyn FramePool>,
    buffers: Buffers,
    tally: Tally,
    origin: Instant,
    trial: u16,
    /// Kept, since its queues need it.
    _ports: Vec<Box<dyn Port>>,
}

/// A port's queues.
struct End {
    rx: Box<dyn RxQueue>,
    tx: Box<dyn TxQueue>,
}

/// A lane that is sending.
struct Sending {
    number: usize,
    stamp: Stamp,
    rate: f64,
    pacer: Pacer,
    sent: u64,
}

impl OverPorts {
    /// The generator of a plan over as many ports as the plan has; frames are of `pool`.
    pub fn new(plan: &Plan, mut ports: Vec<Box<dyn Port>>, pool: Arc<dyn FramePool>) -> OverPorts {
        let ends = ports.iter_mut().map(|port| End { rx: port.rx_queue(0), tx: port.tx_queue(0) }).collect();
        OverPorts {
            lanes: plan.lanes.clone(),
            ends,
            pool,
            buffers: Buffers::new(),
            tally: Tally::default(),
            origin: Instant::now(),
            trial: 0,
            _ports: ports,
        }
    }

    fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Sends a lane's due packets. Returns whether there were any.
    fn send(&mut self, sending: &mut Sending, began_ns: u64, now_ns: u64) -> Result<bool, GeneratorError> {
        let n = sending.pacer.due(now_ns, BATCH_MAX);
        if n == 0 {
            return Ok(false);
        }
        let lane = &mut self.lanes[sending.number];
        let mut batch = PacketBatch::new();
        for _ in 0..n {
            if self.buffers.fill(&self.pool, 1, lane.frames.size(sending.sent), &mut batch) == 0 {
                break;
            }
            let due_ns = began_ns + (sending.sent as f64 * 1e9 / sending.rate) as u64;
            let stamp = Stamp { number: sending.sent as u32, due_ns, ..sending.stamp };
            if let Some(packet) = batch.last_mut() {
                lane.frames.write(sending.sent, &stamp, packet.frame.bytes_mut());
            }
            sending.sent += 1;
        }
        if batch.is_empty() {
            return Err(GeneratorError::Buffers);
        }
        let tx = &mut self.ends[lane.from].tx;
        tx.send(&mut batch, &mut self.buffers, &mut self.tally);
        tx.send_kept(&mut self.buffers, &mut self.tally);
        Ok(true)
    }

    /// Counts the packets that arrived at every port. Returns whether there were any.
    fn receive(&mut self, ledger: &mut Ledger) -> bool {
        let mut any = false;
        for port in 0..self.ends.len() {
            let mut batch = PacketBatch::new();
            self.ends[port].rx.poll(&mut batch, &mut self.buffers, &mut self.tally);
            let now_ns = self.now_ns();
            any |= !batch.is_empty();
            batch.iter().for_each(|packet| ledger.count(packet.bytes(), port, now_ns));
            self.buffers.give_batch(&mut batch);
        }
        any
    }
}

impl Generator for OverPorts {
    fn run(&mut self, trial: &Trial, stop: &AtomicBool) -> Result<TrialFigures, GeneratorError> {
        let own_rates = own_rates(&self.lanes, trial)?;
        self.trial = self.trial.wrapping_add(1);
        let mut ledger = Ledger::new(self.trial, self.lanes.iter().map(|lane| lane.to));
        let began_ns = self.now_ns();
        let lanes = self.lanes.iter().enumerate().filter(|(_, lane)| takes_part(lane, trial));
        let mut sending: Vec<Sending> = lanes
            .map(|(number, lane)| {
                let rate = trial.rate_pps * lane.rate_pps / own_rates;
                let stamp = Stamp { trial: self.trial, lane: number as u16, number: 0, due_ns: 0 };
                Sending { number, stamp, rate, pacer: Pacer::new(rate, began_ns), sent: 0 }
            })
            .collect();
        let ends_ns = began_ns + trial.duration.as_nanos() as u64;
        while !stop.load(Relaxed) {
            let now_ns = self.now_ns();
            if now_ns >= ends_ns {
                break;
            }
            for sending in &mut sending {
                self.send(sending, began_ns, now_ns)?;
            }
            self.receive(&mut ledger);
        }
        let took = Duration::from_nanos(self.now_ns() - began_ns);
        let drained = Instant::now() + DRAIN;
        while Instant::now() < drained {
            self.receive(&mut ledger);
        }
        let sent: u64 = sending.iter().map(|s| s.sent).sum();
        check_pace(trial, sent, took)?;
        let figures = |s: Sending| ledger.figures(s.number, self.lanes[s.number].name.clone(), s.sent);
        let lanes = sending.into_iter().map(figures).collect();
        Ok(TrialFigures { lanes, latencies: Some(ledger.histogram()) })
    }
}

impl Drop for OverPorts {
    fn drop(&mut self) {
        self.buffers.flush();
    }
}
