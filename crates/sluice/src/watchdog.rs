//! A thread that waits for no other: it watches heartbeats, and ends the process if the orderly end takes too long.
//!
//! The orderly end is the main thread's: it stops the switch and removes its sockets. The watchdog waits for the request
//! to end, gives the main thread [`END_WITHIN`], and then ends the process itself; what writes tables for the next process has
//! [`SAVE_WITHIN`]. It takes no lock that another thread
//! holds while it waits: the last words are another thread's, and have a bound as well.

use crate::heartbeat::HeartbeatWatch;
use crate::process::Process;
use crate::signals;
use anyhow::{Context, Result};
use sluice_clock::real_ms;
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

/// How long the orderly end may take, so that the whole takes no more than two seconds.
const END_WITHIN: Duration = Duration::from_millis(1700);

/// How long the end may write tables, if the configuration wants that: a million rules take seconds.
pub const SAVE_WITHIN: Duration = Duration::from_secs(30);

/// From one look at whether tables are written to the next.
const LOOK_AT_SAVE_EVERY: Duration = Duration::from_millis(10);

/// How long the rest of the end may take once tables are written.
const AFTER_SAVE_WITHIN: Duration = Duration::from_secs(1);

/// What stands still for this long when the process ends at once is named in the last words, milliseconds.
const NAMED_AFTER_MS: u64 = 1000;

/// How long the last words may take: the log may be what the process waits for.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(100);

/// From one look at the heartbeats to the next.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Starts the watchdog of `process`.
///
/// # Errors
/// If there can be no thread.
pub fn start(process: &Arc<Process>) -> Result<()> {
    // The switch closes its ports when its last user lets go of it, which must be the main thread.
    let (main_loop, process) = (Arc::clone(process.main_loop()), Arc::downgrade(process));
    let watch = move || {
        let mut heartbeats = HeartbeatWatch::default();
        let why = loop {
            if let Some(why) = main_loop.wait_for_end(LOOK_EVERY) {
                break why;
            }
            // The end that nobody has asked for has no bound until somebody does.
            if !main_loop.is_over()
                && let Some(process) = process.upgrade()
            {
                heartbeats.look(process.switch(), real_ms());
            }
        };
        // Nothing here holds the switch meanwhile.
        std::thread::sleep(END_WITHIN);
        wait_for_save(&process);
        end_at_once(&why, &process, heartbeats);
    };
    std::thread::Builder::new().name("watchdog".into()).spawn(watch).context("watchdog thread")?;
    Ok(())
}

/// Lets the end finish writing tables, if that is what it does, and the rest of the end follow.
fn wait_for_save(process: &Weak<Process>) {
    // Nothing here holds the switch while it sleeps.
    let is_saving = || process.upgrade().is_some_and(|process| process.is_saving());
    let until_ms = real_ms() + SAVE_WITHIN.as_millis() as u64;
    while is_saving() && real_ms() < until_ms {
        std::thread::sleep(LOOK_AT_SAVE_EVERY);
    }
    // The tables may also have been written just before the first look.
    if let Some(saved_at_ms) = process.upgrade().and_then(|process| process.saved_at_ms()) {
        let until_ms = saved_at_ms + AFTER_SAVE_WITHIN.as_millis() as u64;
        std::thread::sleep(Duration::from_millis(until_ms.saturating_sub(real_ms())));
    }
}

/// Ends the process without waiting for any of its threads: by the signal that asked for the end, if one did.
fn end_at_once(why: &str, process: &Weak<Process>, heartbeats: HeartbeatWatch) -> ! {
    let (asked, process) = (why.to_owned(), process.clone());
    say(move || {
        let standing = process.upgrade().map(|it| heartbeats.standing(it.switch(), NAMED_AFTER_MS, real_ms()));
        let standing = standing.unwrap_or_default().join("; ");
        let standing = if standing.is_empty() { "no thread that has a heartbeat".to_owned() } else { standing };
        tracing::error!(
            "ending at once: the orderly end ({asked}) took more than {END_WITHIN:?}; waited for {standing}"
        );
    });
    signals::die_by(signals::number(why))
}

/// Has something said by another thread, which may find the log held for good: it is waited for a short time only.
pub fn say(words: impl FnOnce() + Send + 'static) {
    let (said, is_said) = mpsc::channel();
    let say = move || {
        words();
        let _ = said.send(());
    };
    if std::thread::Builder::new().name("last-words".into()).spawn(say).is_ok() {
        let _ = is_said.recv_timeout(LAST_WORDS_WITHIN);
    }
}
