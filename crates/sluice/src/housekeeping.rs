//! What the main loop does for every switch, wherever its description comes from.

use crate::process::Process;
use crate::text::coverage::{SAMPLE_SECS, Totals};

/// How often side effects of packets are done and timeouts looked at.
const TICK_MS: u64 = 20;

/// How often ports are looked after.
const WATCH_PORTS_MS: u64 = 1000;

/// When the main loop's duties are due, in the control clock's milliseconds.
pub struct Housekeeping {
    next_tick_ms: u64,
    next_watch_ms: u64,
    next_sample_ms: u64,
}

impl Housekeeping {
    /// Everything but the first sample of event rates is due now.
    pub fn new(now_ms: u64) -> Self {
        Housekeeping { next_tick_ms: now_ms, next_watch_ms: now_ms, next_sample_ms: now_ms + SAMPLE_SECS * 1000 }
    }

    /// Does what is due.
    ///
    /// # Errors
    /// If a PMD thread has panicked: the switch should be started again.
    pub fn run(&mut self, process: &Process, now_ms: u64) -> anyhow::Result<()> {
        let switch = process.switch();
        switch.tick();
        self.next_tick_ms = now_ms + TICK_MS;
        if now_ms >= self.next_watch_ms {
            switch.watch_ports();
            let lost = switch.datapath().lost_pmds();
            anyhow::ensure!(
                lost.is_empty(),
                "PMD threads {lost:?} have panicked; this is a bug in sluice, see the lines above"
            );
            self.next_watch_ms = now_ms + WATCH_PORTS_MS;
        }
        if now_ms >= self.next_sample_ms {
            process.coverage().sample(&Totals::of(switch));
            self.next_sample_ms += SAMPLE_SECS * 1000;
        }
        Ok(())
    }

    /// When something is due next.
    pub fn deadline_ms(&self) -> u64 {
        self.next_tick_ms.min(self.next_watch_ms).min(self.next_sample_ms)
    }
}
