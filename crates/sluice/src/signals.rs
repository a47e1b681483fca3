//! Signals that end the switch.

use crate::process::Process;
use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use sluice_clock::heartbeat::Heartbeat;
use std::sync::Arc;

/// The signals that end the switch.
const NAMES: [(i32, &str); 3] = [(SIGTERM, "SIGTERM"), (SIGINT, "SIGINT"), (SIGHUP, "SIGHUP")];

/// SIGTERM, SIGINT and SIGHUP (the terminal is gone) end the switch in order; a second signal ends it at once, without
/// waiting for any thread. SIGINT counts even if it was ignored at the start: shells ignore it in background jobs.
///
/// # Errors
/// If there can be no thread for them.
pub fn watch(process: &Arc<Process>) -> Result<()> {
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    let wanted = [SIGTERM, SIGINT].into_iter().chain(hangup);
    let mut signals = signal_hook::iterator::Signals::new(wanted).context("signals")?;
    let process = Arc::downgrade(process);
    let watch = move || {
        let heartbeat = Heartbeat::of("signals");
        for (i, signal) in signals.forever().enumerate() {
            let _busy = heartbeat.begin("asking for the end");
            match process.upgrade() {
                Some(process) if i == 0 => process.end(name(signal)),
                _ => die_by(Some(signal)),
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch).context("signal thread")?;
    Ok(())
}

/// Ends the process at once, by a signal if there is one. Nothing runs that might wait, neither destructors nor what
/// libraries have registered for the exit.
pub fn die_by(signal: Option<i32>) -> ! {
    if let Some(signal) = signal {
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
    signal_hook::low_level::exit(1)
}

fn name(signal: i32) -> &'static str {
    NAMES.iter().find(|(number, _)| *number == signal).map_or("a signal", |(_, name)| name)
}

/// The number of a signal that ended the switch, by the reason that was given for the end.
pub fn number(why: &str) -> Option<i32> {
    NAMES.iter().find(|(_, name)| *name == why).map(|(number, _)| *number)
}

/// Whether the switch was started with a signal ignored, as `nohup` does. Source: proc(5), `SigIgn`.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 != 0)
}
