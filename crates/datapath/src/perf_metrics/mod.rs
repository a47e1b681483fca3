//! What each iteration of a PMD did, if `pmd-perf-metrics` asks for it: histograms, the last iterations and milliseconds, and
//! iterations that took too long.
//!
//! A PMD without it pays a test an iteration, and one a queue. With it an iteration costs some hundred cycles more, and takes
//! a lock that only commands take, too. What is to be logged waits for the control thread that logs it.
//!
//! Upcalls of one iteration count at their average. Source: Open vSwitch lib/dpif-netdev-perf.c.

mod control;
mod histogram;
mod history;
mod slot;
pub mod text;
mod watch;

pub use histogram::Histogram;
pub use history::{HISTORY_LEN, PerfSample};
pub(crate) use slot::PerfSlot;
pub use watch::{PerfLog, Suspicion};

use crate::rxq::Rxq;
use history::History;
use sluice_fate::{Counter, Tally};
use sluice_packet::BATCH_MAX;
use watch::Watch;

/// Suspicious iterations that wait to be logged; others are lost meanwhile.
const SUSPICIONS_MAX: usize = 16;

/// What the iterations of a PMD did.
#[derive(Clone, Debug)]
pub struct PerfMetrics {
    /// Cycles an iteration.
    pub cycles: Histogram,
    /// Packets an iteration.
    pub packets: Histogram,
    /// Cycles a packet, by iteration.
    pub cycles_per_packet: Histogram,
    /// Packets a burst.
    pub packets_per_batch: Histogram,
    /// The fullest ring of a guest, by iteration.
    pub vhost_qfill: Histogram,
    /// Upcalls an iteration.
    pub upcalls: Histogram,
    /// Cycles an upcall.
    pub cycles_per_upcall: Histogram,
    /// All milliseconds together.
    pub totals: PerfSample,
    iterations: History,
    milliseconds: History,
    /// What the iteration under way has done so far.
    current: PerfSample,
    /// The millisecond under way.
    millisecond: PerfSample,
    watch: Watch,
    suspicions: Vec<Suspicion>,
}

/// What a queue had counted before it was polled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueMark {
    received: u64,
    upcalls: u64,
    upcall_cycles: u64,
}

impl QueueMark {
    pub fn of(tally: &Tally) -> Self {
        let upcalls = tally[Counter::Upcalls] + tally[Counter::UpcallsLost];
        QueueMark { received: tally[Counter::Received], upcalls, upcall_cycles: tally[Counter::UpcallCycles] }
    }

    /// Notes what the poll of the queue came to.
    #[cold]
    pub fn note(self, rxq: &Rxq, metrics: &mut PerfMetrics) {
        let now = QueueMark::of(&rxq.tally);
        if now.received != self.received {
            metrics.note_poll(now.received - self.received, rxq.queue.waiting().map(|n| n as u64));
            metrics.note_upcalls(now.upcalls - self.upcalls, now.upcall_cycles - self.upcall_cycles);
        }
    }
}

impl PerfMetrics {
    /// Nothing has been done yet.
    pub fn new(log: PerfLog, tsc_hz: u64) -> Self {
        // The bounds are those of Open vSwitch's `pmd_perf_stats_init`.
        PerfMetrics {
            cycles: Histogram::logarithmic(500, 24_000_000),
            packets: Histogram::logarithmic(0, 1000),
            cycles_per_packet: Histogram::linear(100, 30_000),
            packets_per_batch: Histogram::linear(0, 32),
            vhost_qfill: Histogram::logarithmic(0, 512),
            upcalls: Histogram::linear(0, 30),
            cycles_per_upcall: Histogram::logarithmic(1000, 1_000_000),
            totals: PerfSample::default(),
            iterations: History::default(),
            milliseconds: History::default(),
            current: PerfSample::default(),
            millisecond: PerfSample::default(),
            watch: Watch::new(log, tsc_hz),
            suspicions: Vec::with_capacity(SUSPICIONS_MAX),
        }
    }

    /// Forgets what was done.
    pub fn clear(&mut self) {
        let watch = self.watch.restarted();
        *self = PerfMetrics { watch, ..PerfMetrics::new(PerfLog::default(), 0) };
    }

    /// Logs other iterations from now on.
    pub fn set_log(&mut self, log: PerfLog, tsc_hz: u64) {
        self.watch = Watch::new(log, tsc_hz);
    }

    /// A queue has been polled: it gave `packets`, and `waiting` are left if it is a guest's. A queue is polled again while
    /// its bursts are full, so only the last one can be shorter.
    #[inline(never)]
    pub fn note_poll(&mut self, packets: u64, waiting: Option<u64>) {
        let (full, last) = (packets / BATCH_MAX as u64, packets % BATCH_MAX as u64);
        self.packets_per_batch.add(BATCH_MAX as u64, full);
        if last != 0 {
            self.packets_per_batch.add(last, 1);
        }
        self.current.packets += packets;
        self.current.batches += full + u64::from(last != 0);
        if let Some(waiting) = waiting {
            let burst = if last == 0 { BATCH_MAX as u64 } else { last };
            self.current.vhost_qfill = self.current.vhost_qfill.max(burst + waiting);
        }
    }

    /// Upcalls were made.
    pub fn note_upcalls(&mut self, upcalls: u64, cycles: u64) {
        self.current.upcalls += upcalls;
        self.current.upcall_cycles += cycles;
        if let Some(each) = cycles.checked_div(upcalls) {
            self.cycles_per_upcall.add(each, upcalls);
        }
    }

    /// An iteration has ended.
    #[inline(never)]
    pub fn end_iteration(&mut self, now_ms: u64, cycles: u64) {
        let timestamp = self.current.timestamp + 1;
        let busy_cycles = if self.current.packets == 0 { 0 } else { cycles };
        let sample = PerfSample { timestamp, iterations: 1, cycles, busy_cycles, ..self.current };
        self.current = PerfSample { timestamp, ..PerfSample::default() };
        self.cycles.add(cycles, 1);
        self.packets.add(sample.packets, 1);
        if let Some(each) = cycles.checked_div(sample.packets) {
            self.cycles_per_packet.add(each, 1);
        }
        self.upcalls.add(sample.upcalls, 1);
        self.vhost_qfill.add(sample.vhost_qfill, 1);
        self.iterations.push(sample);
        if now_ms != self.millisecond.timestamp {
            self.totals.add(&self.millisecond);
            if self.millisecond.iterations != 0 {
                self.milliseconds.push(self.millisecond);
            }
            self.millisecond = PerfSample { timestamp: now_ms, ..PerfSample::default() };
        }
        self.millisecond.add(&sample);
        let suspicions = &mut self.suspicions;
        self.watch.see(&sample, &self.iterations, &mut |suspicion| {
            if suspicions.len() < SUSPICIONS_MAX {
                suspicions.push(suspicion);
            }
        });
    }

    /// The last iterations, the newest first.
    pub fn iterations(&self) -> impl Iterator<Item = &PerfSample> {
        self.iterations.newest_first()
    }

    /// The last whole milliseconds, the newest first.
    pub fn milliseconds(&self) -> impl Iterator<Item = &PerfSample> {
        self.milliseconds.newest_first()
    }

    /// What is to be logged since this was last asked. The room for more stays, so that the PMD does not allocate it again.
    pub fn take_suspicions(&mut self) -> Vec<Suspicion> {
        self.suspicions.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iteration_is_in_its_millisecond_and_in_the_histograms() {
        let mut metrics = PerfMetrics::new(PerfLog::default(), 1_000_000);
        metrics.note_poll(70, Some(100));
        metrics.note_poll(3, None);
        metrics.note_upcalls(2, 3000);
        metrics.end_iteration(7, 730);
        metrics.end_iteration(7, 100);
        metrics.end_iteration(8, 100);
        let of = |histogram: &Histogram| -> Vec<_> {
            histogram.bins().filter(|(_, n)| *n != 0).map(|(wall, n)| (wall.unwrap_or(0), n)).collect()
        };
        assert_eq!(of(&metrics.packets_per_batch), [(3, 1), (6, 1), (32, 2)]);
        assert_eq!(of(&metrics.cycles_per_packet), [(100, 1)]);
        assert_eq!(of(&metrics.upcalls), [(0, 2), (2, 1)]);
        assert_eq!(of(&metrics.cycles_per_upcall).iter().map(|(_, n)| n).sum::<u64>(), 2);
        let millisecond = metrics.milliseconds().next().unwrap();
        let expected = PerfSample {
            timestamp: 7,
            iterations: 2,
            cycles: 830,
            busy_cycles: 730,
            packets: 73,
            batches: 4,
            vhost_qfill: 106,
            upcalls: 2,
            upcall_cycles: 3000,
        };
        assert_eq!(*millisecond, expected);
        assert_eq!(metrics.totals, PerfSample { timestamp: 0, ..expected });
        let packets: Vec<_> = metrics.iterations().map(|sample| (sample.timestamp, sample.packets)).collect();
        assert_eq!(packets, [(3, 0), (2, 0), (1, 73)]);
    }
}
