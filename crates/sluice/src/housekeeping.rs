//! What the main loop does for every switch, wherever its description comes from.
//!
//! While packets come, side effects and timeouts are looked at every [`BUSY_TICK_MS`]. While none come, the loop sleeps: until
//! the next whole second, or, if there are rules with timeouts, [`TIMEOUT_TICK_MS`]; the first packet with a side effect wakes
//! it. Duties of a second are due at whole seconds, so that one wake-up serves all.

use crate::command::note_peaks;
use crate::process::Process;
use crate::text::coverage::{SAMPLE_SECS, Totals};
use sluice_clock::heartbeat::Busy;
use sluice_fate::{Counter, LimitWatch};

/// How often side effects of packets are done and timeouts looked at while packets come.
const BUSY_TICK_MS: u64 = 20;

/// How often the timeouts of rules are looked at while none come.
const TIMEOUT_TICK_MS: u64 = 250;

/// How often ports are looked after, and everything else.
const WATCH_PORTS_MS: u64 = 1000;

/// When the main loop's duties are due, in the control clock's milliseconds.
pub struct Housekeeping {
    next_tick_ms: u64,
    next_watch_ms: u64,
    next_sample_ms: u64,
    /// Packets received so far.
    received: u64,
    limits: LimitWatch,
}

impl Housekeeping {
    /// Everything but the first sample of event rates is due now.
    pub fn new(process: &Process, now_ms: u64) -> Self {
        let to_wake = process.main_loop().waker();
        process.switch().ofproto().set_tick_waker(move || to_wake.wake());
        Housekeeping {
            next_tick_ms: now_ms,
            next_watch_ms: now_ms,
            next_sample_ms: now_ms + SAMPLE_SECS * 1000,
            received: 0,
            limits: LimitWatch::default(),
        }
    }

    /// Does what is due, and says what it does.
    ///
    /// # Errors
    /// If a PMD thread has panicked: the switch should be started again.
    pub fn run(&mut self, process: &Process, busy: &Busy<'_>, now_ms: u64) -> anyhow::Result<()> {
        let switch = process.switch();
        let has_work = switch.tick();
        self.plan_tick(process, has_work, now_ms);
        if now_ms >= self.next_watch_ms {
            busy.go_on("ports");
            switch.watch_ports();
            switch.datapath().balance_load(now_ms);
            busy.go_on("housekeeping");
            let lost = switch.datapath().lost_pmds();
            anyhow::ensure!(
                lost.is_empty(),
                "PMD threads {lost:?} have panicked; this is a bug in sluice, see the lines above"
            );
            self.next_watch_ms = next_multiple(now_ms, WATCH_PORTS_MS);
            note_peaks(switch);
            self.limits.look(now_ms, |limit, times| {
                let (name, explanation, key) = (limit.name(), limit.explanation(), limit.key());
                let text =
                    format!("{name} was met {times} times since it was last reported: {explanation} Set by: {key}");
                if limit.is_turnover() { tracing::info!("{text}") } else { tracing::warn!("{text}") }
            });
        }
        if now_ms >= self.next_sample_ms {
            process.coverage().sample(&Totals::of(switch));
            self.next_sample_ms += SAMPLE_SECS * 1000;
        }
        Ok(())
    }

    fn plan_tick(&mut self, process: &Process, has_work: bool, now_ms: u64) {
        let switch = process.switch();
        let received = switch.totals()[Counter::Received];
        let is_busy = has_work || received != self.received;
        self.received = received;
        self.next_tick_ms = if is_busy {
            now_ms + BUSY_TICK_MS
        } else {
            switch.ofproto().await_effect();
            let every_ms = if switch.ofproto().has_timeouts() { TIMEOUT_TICK_MS } else { WATCH_PORTS_MS };
            next_multiple(now_ms, every_ms)
        };
    }

    /// When something is due next.
    pub fn deadline_ms(&self) -> u64 {
        self.next_tick_ms.min(self.next_watch_ms).min(self.next_sample_ms)
    }
}

/// The first multiple of `every_ms` behind `now_ms`.
fn next_multiple(now_ms: u64, every_ms: u64) -> u64 {
    (now_ms / every_ms + 1) * every_ms
}
