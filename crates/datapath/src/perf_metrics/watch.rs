//! Iterations that took too long, or found a guest's ring too full, with those around them: what
//! `pmd-perf-log-set on` has logged. Source: Open vSwitch lib/dpif-netdev-perf.c, `pmd_perf_set_log_susp_iteration`.

use super::history::{HISTORY_LEN, History, PerfSample};

/// Iterations of which more than this are logged at once disturb what is measured: the numbers are the usual ones then.
const RANGE_MAX: u64 = 100;

/// Which iterations are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfLog {
    /// Whether any is.
    pub is_on: bool,
    /// Iterations logged before it.
    pub before: u64,
    /// Iterations logged behind it.
    pub after: u64,
    /// Whether another one among those moves their end.
    pub extends: bool,
    /// It took more microseconds than this.
    pub limit_us: u64,
    /// Or it found at least this number of packets in a guest's ring.
    pub limit_qfill: u64,
}

impl Default for PerfLog {
    /// Source: lib/dpif-netdev-perf.c, LOG_IT_BEFORE, LOG_IT_AFTER, LOG_US_THR, LOG_Q_THR.
    fn default() -> Self {
        PerfLog { is_on: false, before: 5, after: 5, extends: false, limit_us: 1000, limit_qfill: 128 }
    }
}

impl PerfLog {
    /// The same with no more iterations than the history has.
    pub fn bounded(mut self) -> Self {
        let most = HISTORY_LEN as u64 - 2;
        self.before = self.before.min(most);
        self.after = self.after.min(most - self.before);
        self
    }
}

/// An iteration to be logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// Why.
    pub reason: &'static str,
    /// The iteration.
    pub sample: PerfSample,
    /// It and those around it, the last first; none if they are logged with a later one.
    pub around: Vec<PerfSample>,
}

/// Watches a PMD's iterations.
#[derive(Clone, Debug)]
pub struct Watch {
    log: PerfLog,
    limit_cycles: u64,
    pending: Option<Pending>,
}

/// A suspicious iteration whose successors are still to come.
#[derive(Clone, Copy, Debug)]
struct Pending {
    reason: &'static str,
    sample: PerfSample,
    /// The numbers of the first iteration to be logged and of the one behind the last.
    begin: u64,
    end: u64,
}

impl Watch {
    /// Watches with a clock of that frequency.
    pub fn new(log: PerfLog, tsc_hz: u64) -> Self {
        let log = log.bounded();
        Watch { log, limit_cycles: log.limit_us.saturating_mul(tsc_hz) / 1_000_000, pending: None }
    }

    /// The same watch over other iterations.
    pub fn restarted(&self) -> Self {
        Watch { pending: None, ..self.clone() }
    }

    /// Looks at an iteration, the last of `history`. What is to be logged now goes to `found`.
    #[inline]
    pub fn see(&mut self, sample: &PerfSample, history: &History, found: &mut impl FnMut(Suspicion)) {
        if !self.log.is_on {
            return;
        }
        if sample.cycles > self.limit_cycles {
            self.suspect("Excessive total cycles", sample, found);
        } else if sample.vhost_qfill >= self.log.limit_qfill {
            self.suspect("Vhost RX queue full", sample, found);
        }
        if let Some(pending) = self.pending.take_if(|pending| sample.timestamp + 1 >= pending.end) {
            let around = history.newest_first().take_while(|sample| sample.timestamp >= pending.begin);
            found(Suspicion { reason: pending.reason, sample: pending.sample, around: around.copied().collect() });
            if pending.end - pending.begin > RANGE_MAX {
                let usual = PerfLog::default();
                (self.log.before, self.log.after, self.log.extends) = (usual.before, usual.after, usual.extends);
            }
        }
    }

    #[cold]
    fn suspect(&mut self, reason: &'static str, sample: &PerfSample, found: &mut impl FnMut(Suspicion)) {
        let end = sample.timestamp + self.log.after + 1;
        let begin = sample.timestamp.saturating_sub(self.log.before);
        match &mut self.pending {
            None => self.pending = Some(Pending { reason, sample: *sample, begin, end }),
            Some(pending) if self.log.extends => {
                found(Suspicion { reason: pending.reason, sample: pending.sample, around: Vec::new() });
                let end = end.min(pending.begin + HISTORY_LEN as u64);
                *pending = Pending { reason, sample: *sample, begin: pending.begin, end };
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The iterations that are logged, each with those around it, if iterations take these cycles of a clock of 1 MHz.
    fn logged(log: PerfLog, cycles: &[u64]) -> Vec<(u64, Vec<u64>)> {
        let (mut watch, mut history, mut found) = (Watch::new(log, 1_000_000), History::default(), Vec::new());
        for (cycles, timestamp) in cycles.iter().zip(1..) {
            let sample = PerfSample { timestamp, cycles: *cycles, iterations: 1, ..PerfSample::default() };
            history.push(sample);
            watch.see(&sample, &history, &mut |suspicion| {
                let around = suspicion.around.iter().map(|sample| sample.timestamp).collect();
                found.push((suspicion.sample.timestamp, around));
            });
        }
        found
    }

    const LOG: PerfLog = PerfLog { is_on: true, before: 2, after: 1, extends: false, limit_us: 10, limit_qfill: 128 };

    #[test]
    fn a_long_iteration_is_logged_with_its_neighbours() {
        assert_eq!(logged(LOG, &[1, 1, 1, 11, 1, 1]), [(4, vec![5, 4, 3, 2])]);
        assert_eq!(logged(PerfLog { is_on: false, ..LOG }, &[11; 9]), []);
        assert_eq!(logged(LOG, &[10; 9]), []);
        assert_eq!(logged(PerfLog { after: 0, ..LOG }, &[11]), [(1, vec![1])]);
    }

    #[test]
    fn another_one_among_them_moves_the_end_if_it_may() {
        assert_eq!(logged(LOG, &[1, 11, 11, 1, 1]), [(2, vec![3, 2, 1])]);
        let extending = PerfLog { extends: true, ..LOG };
        assert_eq!(logged(extending, &[1, 11, 11, 1, 1]), [(2, vec![]), (3, vec![4, 3, 2, 1])]);
    }

    #[test]
    fn no_more_is_logged_than_is_kept_and_a_long_range_once() {
        let long = PerfLog { before: 5000, after: 5000, ..LOG }.bounded();
        assert_eq!((long.before, long.after), (998, 0));
        let found = logged(PerfLog { before: 200, ..LOG }, &[[1; 299].as_slice(), &[11; 20], &[1; 9]].concat());
        assert_eq!(found[0].1.len(), 202);
        assert!(found[1..].iter().all(|(_, around)| around.len() == 11), "{found:?}");
    }
}
