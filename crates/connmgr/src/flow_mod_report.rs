//! How many flow-mods a connection has made: a line in the log now and then, and at its end.
//! Source: Open vSwitch, connmgr.c, `ofconn_report_flow_mod`, `ofconn_log_flow_mods`.

use sluice_ofp::FlowCommand;

/// A line comes this long after the first flow-mod that it counts, milliseconds.
const REPORT_AFTER_MS: u64 = 10_000;

/// At least as long lies between two lines, milliseconds.
const BACKOFF_MS: u64 = 60_000;

/// The flow-mods that have been carried out and not been logged yet.
#[derive(Debug, Default)]
pub struct FlowModReport {
    adds: u64,
    deletes: u64,
    modifications: u64,
    first_ms: u64,
    last_ms: u64,
    due_ms: Option<u64>,
    not_before_ms: u64,
}

impl FlowModReport {
    /// Counts a flow-mod.
    pub fn count(&mut self, command: FlowCommand, now_ms: u64) {
        match command {
            FlowCommand::Add => self.adds += 1,
            FlowCommand::Modify | FlowCommand::ModifyStrict => self.modifications += 1,
            FlowCommand::Delete | FlowCommand::DeleteStrict => self.deletes += 1,
        }
        if self.due_ms.is_none() {
            self.first_ms = now_ms;
            let due_ms = (now_ms + REPORT_AFTER_MS).max(self.not_before_ms);
            (self.due_ms, self.not_before_ms) = (Some(due_ms), due_ms + BACKOFF_MS);
        }
        self.last_ms = now_ms;
    }

    /// When the next line is due.
    pub fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// What is to be logged of the flow-mods since the last call, if there are any.
    pub fn take(&mut self, now_ms: u64) -> Option<String> {
        let old = std::mem::replace(self, FlowModReport { not_before_ms: self.not_before_ms, ..Self::default() });
        let n = old.adds + old.deletes + old.modifications;
        let counts = [(old.adds, "adds"), (old.deletes, "deletes"), (old.modifications, "modifications")];
        let counts: Vec<String> =
            counts.iter().filter(|(n, _)| *n != 0).map(|(n, what)| format!("{n} {what}")).collect();
        let seconds = |ms: u64| ms.saturating_sub(old.first_ms) / 1000;
        let when = match (seconds(old.last_ms), seconds(now_ms)) {
            (interval, ago) if interval == ago => format!("in the last {ago} s"),
            (0, ago) => format!("{ago} s ago"),
            (interval, ago) => format!("in the {interval} s starting {ago} s ago"),
        };
        (n != 0).then(|| format!("{n} flow_mods {when} ({})", counts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_those_of_open_vswitch() {
        let mut report = FlowModReport::default();
        assert_eq!((report.due_ms(), report.take(0)), (None, None));
        for command in [FlowCommand::Add, FlowCommand::Add, FlowCommand::DeleteStrict] {
            report.count(command, 1000);
        }
        assert_eq!(report.due_ms(), Some(11_000));
        assert_eq!(report.take(1500).as_deref(), Some("3 flow_mods in the last 0 s (2 adds, 1 deletes)"));
        report.count(FlowCommand::Modify, 2000);
        assert_eq!(report.due_ms(), Some(71_000), "lines keep their distance");
        report.count(FlowCommand::Modify, 5000);
        let want = "2 flow_mods in the 3 s starting 69 s ago (2 modifications)";
        assert_eq!(report.take(71_000).as_deref(), Some(want));
        report.count(FlowCommand::Delete, 100_000);
        assert_eq!(report.take(104_000).as_deref(), Some("1 flow_mods 4 s ago (1 deletes)"));
    }
}
