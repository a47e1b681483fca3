//! Metrics as control threads begin, end, read and log them.

use super::{PerfLog, PerfMetrics, text};
use crate::{Datapath, tsc_hz};

impl Datapath {
    /// Has PMDs keep metrics, or no longer.
    pub fn set_perf_metrics(&self, is_on: bool) {
        let mut control = self.control();
        if std::mem::replace(&mut control.perf_metrics, is_on) == is_on {
            return;
        }
        let state = if is_on { "enabled" } else { "disabled" };
        tracing::info!(target: "dpif_netdev", "PMD performance metrics collection {state}");
        let log = control.perf_log;
        for worker in &control.workers {
            worker.shared.perf.set(is_on.then(|| PerfMetrics::new(log, tsc_hz())));
        }
    }

    /// Which iterations are logged while there are metrics.
    pub fn perf_log(&self) -> PerfLog {
        self.control().perf_log
    }

    /// Logs other iterations from now on.
    pub fn set_perf_log(&self, log: PerfLog) {
        let mut control = self.control();
        control.perf_log = log;
        for worker in &control.workers {
            worker.shared.perf.change(|metrics| metrics.set_log(log, tsc_hz()));
        }
    }

    /// The metrics of a worker, if it keeps any.
    pub fn perf_metrics(&self, pmd: usize) -> Option<PerfMetrics> {
        let control = self.control();
        let worker = control.workers.iter().find(|worker| worker.shared.pmd == pmd)?;
        worker.shared.perf.change(|metrics| metrics.clone())
    }

    /// Logs the iterations that took too long since this was last called. Once a second.
    pub fn log_suspicions(&self) {
        let control = self.control();
        let found = control.workers.iter().filter_map(|worker| worker.shared.perf.change(PerfMetrics::take_suspicions));
        let found: Vec<_> = found.flatten().collect();
        drop(control);
        for suspicion in found {
            let (sample, reason) = (&suspicion.sample, suspicion.reason);
            let us = sample.cycles.saturating_mul(1_000_000) / tsc_hz().max(1);
            let iteration = sample.timestamp;
            tracing::warn!(target: "pmd_perf", "Suspicious iteration ({reason}): iter={iteration} duration={us} us");
            if !suspicion.around.is_empty() {
                let table = text::iterations(suspicion.around.iter());
                tracing::warn!(target: "pmd_perf", "Neighborhood of suspicious iteration:\n{table}");
            }
        }
    }
}
