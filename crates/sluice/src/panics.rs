//! What happens when a thread panics, which is always a bug of ours: the log has it, and the process does not go on as if
//! nothing had happened.
//!
//! A switch that lacks a thread fails later and elsewhere, so the process aborts, as Open vSwitch does after a failed
//! assertion; a monitor starts it again. Two kinds of thread are excepted: a command's, whose client gets an error, and
//! a PMD's, whose end the main thread notices; the switch then ends in order.

use crate::watchdog;
use std::panic::PanicHookInfo;

/// Threads whose panic is handled elsewhere, by the beginning of their names.
const HANDLED: [&str; 3] = ["ctl-conn", "pmd-c", "main-worker"];

/// Has every panic of the process logged and, unless it is handled elsewhere, abort the process.
pub fn watch() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        let text = describe(name, panic);
        // The thread may hold the log.
        watchdog::say(move || tracing::error!("{text}"));
        if !is_handled(name) {
            std::process::abort();
        }
    }));
}

fn is_handled(thread: &str) -> bool {
    HANDLED.iter().any(|handled| thread.starts_with(handled))
}

fn describe(thread: &str, panic: &PanicHookInfo<'_>) -> String {
    let place = panic.location().map(|place| format!(" at {place}")).unwrap_or_default();
    let why = panic.payload_as_str().unwrap_or("no text");
    format!("thread {thread} panicked{place}: {why}; this is a bug in sluice")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_vlog::Log;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Output};

    /// Tells the test's process that it is the one in which a thread of this name panics.
    const PANICS: &str = "SLUICE_TEST_THREAD_PANICS";

    /// Runs this test alone in a process where a thread of that name panics.
    fn process_whose_thread_panics(name: &str) -> Output {
        let test = "panics::tests::a_control_thread_that_panics_is_told_and_ends_the_process";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(PANICS, name).output().unwrap()
    }

    #[test]
    fn a_control_thread_that_panics_is_told_and_ends_the_process() {
        if let Ok(name) = std::env::var(PANICS) {
            Log::to_console("sluice").install();
            watch();
            let thread = std::thread::Builder::new().name(name).spawn(|| panic!("a bug that this test made"));
            let _ = thread.unwrap().join();
            return;
        }
        for name in ["revalidator", "controller", "packet-in", "openflow-conn", "vhost p1"] {
            let ended = process_whose_thread_panics(name);
            let log = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.signal(), Some(signal_hook::consts::SIGABRT), "{name}: {log}");
            let told = format!("thread {name} panicked at crates/sluice/src/panics.rs:");
            assert!(log.contains(&told) && log.contains("a bug that this test made"), "{name}: {log}");
        }
        // A command's client gets an error, and the switch goes on.
        let went_on = process_whose_thread_panics("ctl-conn");
        let log = String::from_utf8_lossy(&went_on.stderr);
        assert!(went_on.status.success() && log.contains("thread ctl-conn panicked"), "{log}");
    }

    #[test]
    fn only_threads_that_are_looked_after_may_panic() {
        for name in ["ctl-conn", "pmd-c00", "pmd-c17", "main-worker"] {
            assert!(is_handled(name), "{name}");
        }
        for name in
            ["main", "revalidator", "packet-in", "openflow-conn", "ctl", "metrics", "watchdog", "vhost p1", "openflow"]
        {
            assert!(!is_handled(name), "{name}");
        }
    }
}
