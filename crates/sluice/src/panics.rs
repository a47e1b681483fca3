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

    #[test]
    fn only_threads_that_are_looked_after_may_panic() {
        for name in ["ctl-conn", "pmd-c00", "pmd-c17", "main-worker"] {
            assert!(is_handled(name), "{name}");
        }
        for name in ["main", "revalidator", "packet-in", "openflow-conn", "ctl", "metrics", "watchdog", "vhost p1"] {
            assert!(!is_handled(name), "{name}");
        }
    }
}
