//! The end of the process within a bounded time, whatever its threads wait for.
//!
//! The orderly end is the main thread's: it stops the switch and removes its sockets. A thread that does nothing else
//! waits for the request to end, gives the main thread [`END_WITHIN`], and then ends the process itself. It takes no
//! lock that another thread holds while it waits: the last words are another thread's, and have a bound as well.

use crate::process::Process;
use crate::signals;
use anyhow::{Context, Result};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// How long the orderly end may take, so that the whole takes no more than two seconds.
const END_WITHIN: Duration = Duration::from_millis(1700);

/// How long the last words may take: the log may be what the process waits for.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(100);

/// The longest sleep of the thread.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Starts the thread that bounds the end of `process`.
///
/// # Errors
/// If there can be no thread.
pub fn bound(process: &Arc<Process>) -> Result<()> {
    // The switch closes its ports when its last user lets go of it, which must be the main thread.
    let main_loop = Arc::clone(process.main_loop());
    let watch = move || {
        loop {
            if let Some(why) = main_loop.wait_for_end(LOOK_EVERY) {
                std::thread::sleep(END_WITHIN);
                end_at_once(&why);
            }
        }
    };
    std::thread::Builder::new().name("end-watch".into()).spawn(watch).context("end-watch thread")?;
    Ok(())
}

/// Ends the process without waiting for any of its threads: by the signal that asked for the end, if one did.
fn end_at_once(why: &str) -> ! {
    let (said, is_said) = mpsc::channel();
    let why_text = why.to_owned();
    let last_words = move || {
        tracing::error!("ending at once: the orderly end ({why_text}) was not done within {END_WITHIN:?}");
        let _ = said.send(());
    };
    if std::thread::Builder::new().name("last-words".into()).spawn(last_words).is_ok() {
        let _ = is_said.recv_timeout(LAST_WORDS_WITHIN);
    }
    signals::die_by(signals::number(why))
}
