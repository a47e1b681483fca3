//! The line that tells how a running switch is doing: once a second on a terminal.

use crate::text::live;
use sluice_fate::Snapshot;
use sluice_vlog::write_output;
use sluice_vswitch::Switch;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// From one live line to the next, on a terminal or in a run of limited length.
const LIVE_EVERY: Duration = Duration::from_secs(1);

/// The same in a log that may grow for months.
const LIVE_EVERY_IN_LOG: Duration = Duration::from_secs(60);

/// The live line, and what was shown last.
pub struct LiveLine {
    began: Instant,
    last: Instant,
    totals: Snapshot,
    on_terminal: bool,
    is_quiet: bool,
}

impl LiveLine {
    /// Nothing has been shown yet.
    pub fn new(switch: &Switch, began: Instant, is_quiet: bool) -> Self {
        let on_terminal = std::io::stdout().is_terminal();
        LiveLine { began, last: began, totals: switch.totals(), on_terminal, is_quiet }
    }

    /// How long until it is shown next.
    pub fn due_in(&self, is_short_run: bool) -> Duration {
        if self.is_quiet {
            return Duration::MAX;
        }
        let every = if self.on_terminal || is_short_run { LIVE_EVERY } else { LIVE_EVERY_IN_LOG };
        every.saturating_sub(self.last.elapsed())
    }

    /// Shows the line when it is time.
    pub fn show_if_due(&mut self, switch: &Switch, is_short_run: bool) {
        if !self.due_in(is_short_run).is_zero() {
            return;
        }
        let now = Instant::now();
        let totals = switch.totals();
        let line = live::line(&totals.since(&self.totals), now - self.last, now - self.began, switch.lookups().flows);
        (self.last, self.totals) = (now, totals);
        // On a terminal the line stays in its place; what is left of a longer one before is erased.
        let text = if self.on_terminal { format!("\r{line}\x1b[K") } else { format!("{line}\n") };
        // The next line comes soon: this one does not wait for its reader.
        write_output(&text, Duration::ZERO);
    }

    /// Leaves the line, and what follows starts on one of its own.
    pub fn finish(&self) {
        if self.on_terminal && !self.is_quiet && self.last != self.began {
            write_output("\n", Duration::ZERO);
        }
    }
}
