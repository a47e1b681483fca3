//! Signals that end the switch, and the one that has it read its configuration again.

use crate::process::Process;
use crate::service_manager::{self, Notice};
use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use sluice_clock::heartbeat::Heartbeat;
use std::io::IsTerminal as _;
use std::sync::Arc;

/// The signals that end the switch.
const NAMES: [(i32, &str); 3] = [(SIGTERM, "SIGTERM"), (SIGINT, "SIGINT"), (SIGHUP, "SIGHUP")];

/// SIGTERM and SIGINT end the switch in order; a second signal ends it at once, without waiting for any thread. SIGINT counts
/// even if it was ignored at the start: shells ignore it in background jobs.
///
/// SIGHUP has a switch with a configuration file read it again, unless it says that the terminal is gone. It ends one whose
/// configuration is a database, as it does Open vSwitch's daemon.
///
/// # Errors
/// If there can be no thread for them.
pub fn watch(process: &Arc<Process>) -> Result<()> {
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    let wanted = [SIGTERM, SIGINT].into_iter().chain(hangup);
    let mut signals = signal_hook::iterator::Signals::new(wanted).context("signals")?;
    let (has_file, had_terminal) = (process.config_file().is_some(), std::io::stdin().is_terminal());
    let process = Arc::downgrade(process);
    let watch = move || {
        let heartbeat = Heartbeat::of("signals");
        let mut is_ending = false;
        for signal in signals.forever() {
            let _busy = heartbeat.begin("a signal");
            let reloads = signal == SIGHUP && has_file && !is_ending && had_terminal == std::io::stdin().is_terminal();
            match process.upgrade() {
                Some(process) if reloads => reload(process),
                Some(process) if !is_ending => process.end(name(signal)),
                _ => die_by(Some(signal)),
            }
            is_ending |= !reloads;
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch).context("signal thread")?;
    Ok(())
}

/// Reads the configuration again on a thread of its own: files may take their time, and the next signal may end the switch.
fn reload(process: Arc<Process>) {
    let work = move || {
        let heartbeat = Heartbeat::of("reload");
        let _busy = heartbeat.begin("reading the configuration again");
        let Some(file) = process.config_file() else { return };
        service_manager::tell(&Notice::Reloading);
        // The log has what came of it.
        if file.reload(process.switch()).is_ok() {
            process.wait_for_turn();
        }
        service_manager::tell(&Notice::Ready);
    };
    if let Err(error) = std::thread::Builder::new().name("reload".into()).spawn(work) {
        tracing::error!("reload: no thread for it: {error}");
    }
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
