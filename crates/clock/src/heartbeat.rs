//! What the threads of control code are doing, for a watch that tells when one stands still.
//!
//! A thread says what it does while it does something; a thread that sleeps until there is something to do says nothing.
//! Time is real here, also while the control clock is stopped.

use crate::real_ms;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A piece of work that names no bound of its own is to take no longer.
pub const WORK_WITHIN: Duration = Duration::from_secs(2);

/// The heartbeats of all threads that have one.
static ALL: Mutex<Vec<Weak<Heartbeat>>> = Mutex::new(Vec::new());

/// The sign of life of a thread.
#[derive(Debug)]
pub struct Heartbeat {
    thread: Arc<str>,
    work: Mutex<Option<Work>>,
}

/// What a thread does.
#[derive(Clone, Copy, Debug)]
struct Work {
    name: &'static str,
    since_ms: u64,
    within_ms: u64,
}

impl Work {
    fn new(name: &'static str, within: Duration) -> Work {
        Work { name, since_ms: real_ms(), within_ms: u64::try_from(within.as_millis()).unwrap_or(u64::MAX) }
    }
}

/// A thread that does something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusyThread {
    /// The thread.
    pub thread: Arc<str>,
    /// What it does.
    pub work: &'static str,
    /// Since when, in the real clock's milliseconds.
    pub since_ms: u64,
    /// How long that may take, milliseconds.
    pub within_ms: u64,
}

impl BusyThread {
    /// When the work is to be done at the latest.
    pub fn due_ms(&self) -> u64 {
        self.since_ms.saturating_add(self.within_ms)
    }
}

impl std::fmt::Display for BusyThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "thread {} in {}", self.thread, self.work)
    }
}

/// Work under way; dropping it ends it.
#[must_use = "the work ends when this is dropped"]
pub struct Busy<'a>(&'a Heartbeat);

impl Heartbeat {
    /// The heartbeat of a thread of that name, which does nothing yet.
    pub fn of(thread: impl Into<Arc<str>>) -> Arc<Heartbeat> {
        let heartbeat = Arc::new(Heartbeat { thread: thread.into(), work: Mutex::new(None) });
        let mut all = ALL.lock();
        all.retain(|other| other.strong_count() != 0);
        all.push(Arc::downgrade(&heartbeat));
        heartbeat
    }

    /// The thread begins a piece of work of [`WORK_WITHIN`]; what it did before is done.
    pub fn begin(&self, work: &'static str) -> Busy<'_> {
        let busy = Busy(self);
        busy.go_on(work);
        busy
    }
}

impl Busy<'_> {
    /// The thread goes on to the next piece of work, of [`WORK_WITHIN`].
    pub fn go_on(&self, work: &'static str) {
        self.go_on_within(work, WORK_WITHIN);
    }

    /// The thread goes on to a piece of work that may take that long.
    pub fn go_on_within(&self, work: &'static str, within: Duration) {
        *self.0.work.lock() = Some(Work::new(work, within));
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        *self.0.work.lock() = None;
    }
}

/// The threads that do something now.
pub fn busy_threads() -> Vec<BusyThread> {
    let all: Vec<_> = ALL.lock().iter().filter_map(Weak::upgrade).collect();
    let busy = all.iter().filter_map(|one| {
        let work = (*one.work.lock())?;
        let Work { name, since_ms, within_ms } = work;
        Some(BusyThread { thread: Arc::clone(&one.thread), work: name, since_ms, within_ms })
    });
    busy.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_busy_between_begin_and_drop() {
        let heartbeat = Heartbeat::of("one of this test");
        let works = || -> Vec<_> {
            let own = busy_threads().into_iter().filter(|busy| &*busy.thread == "one of this test");
            own.map(|busy| busy.to_string()).collect()
        };
        assert!(works().is_empty());
        let busy = heartbeat.begin("ticks");
        assert_eq!(works(), ["thread one of this test in ticks"]);
        let since = heartbeat.work.lock().unwrap().since_ms;
        assert!(since <= real_ms());
        busy.go_on("ports");
        assert_eq!(works(), ["thread one of this test in ports"]);
        busy.go_on_within("a connection attempt", Duration::from_secs(20));
        let work = heartbeat.work.lock().unwrap();
        assert_eq!((work.name, work.within_ms), ("a connection attempt", 20_000));
        drop(busy);
        assert!(works().is_empty());
        drop(heartbeat);
        assert!(works().is_empty());
    }
}
