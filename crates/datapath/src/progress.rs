//! What a PMD is doing, for a watch that tells when it stands still.
//!
//! A PMD writes a byte when it begins a part of its work, a few times a batch, to a cache line that no other thread
//! writes. That it goes on shows in the cycles that it counts each iteration anyway. The watch reads both and takes no
//! lock that a control thread holds while it waits for a PMD.

use crate::Datapath;
use crate::pmd_shared::PmdShared;
use parking_lot::Mutex;
use sluice_action::PortNo;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// A part of a PMD's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Activity {
    /// Between two polls: notices of deleted megaflows, counters, sleep.
    Idle,
    /// Commands of control threads.
    Commands,
    /// Polling a receive queue, and reading the packets' headers.
    Rx,
    /// Asking the caches and the subtables.
    Lookup,
    /// Asking the tables.
    Upcall,
    /// Actions.
    Act,
    /// Handing packets to ports.
    Tx,
}

impl Activity {
    const ALL: [Activity; 7] = [
        Activity::Idle,
        Activity::Commands,
        Activity::Rx,
        Activity::Lookup,
        Activity::Upcall,
        Activity::Act,
        Activity::Tx,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Activity::Idle => "idle",
            Activity::Commands => "commands",
            Activity::Rx => "rx",
            Activity::Lookup => "lookup",
            Activity::Upcall => "upcall",
            Activity::Act => "act",
            Activity::Tx => "tx",
        }
    }
}

/// What a PMD is doing: written by that PMD, read by the watch.
#[derive(Debug, Default)]
#[repr(align(128))] // no other thread writes to this pair of cache lines
pub(crate) struct Progress {
    activity: AtomicU8,
    /// The port whose queue was polled last.
    port: AtomicU32,
    /// Whether its thread runs.
    is_running: AtomicBool,
}

impl Progress {
    /// Notes what the PMD does from now on.
    #[inline]
    pub fn enter(&self, activity: Activity) {
        self.activity.store(activity as u8, Relaxed);
    }

    /// Notes that the PMD polls a queue of this port from now on.
    #[inline]
    pub fn poll(&self, port: PortNo) {
        self.port.store(port.0, Relaxed);
        self.enter(Activity::Rx);
    }

    /// Marks the life of the PMD's thread, until this is dropped.
    pub fn running(&self) -> Running<'_> {
        self.is_running.store(true, Relaxed);
        Running(self)
    }

    fn activity(&self) -> Activity {
        Activity::ALL[usize::from(self.activity.load(Relaxed))]
    }
}

/// The life of a PMD's thread.
#[must_use = "the thread's life is over when this is dropped"]
pub(crate) struct Running<'a>(&'a Progress);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.is_running.store(false, Relaxed);
    }
}

/// How far a PMD whose thread runs has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmdProgress {
    /// Its number.
    pub pmd: usize,
    /// Whether it is the main worker, which is bound to no core.
    pub is_main_worker: bool,
    /// A number that changes with each of its iterations.
    pub beat: u64,
    /// What it does.
    pub activity: Activity,
    /// The name of the port whose packets it has, unless it is between two polls.
    pub port: Option<String>,
}

impl PmdProgress {
    fn of(shared: &PmdShared) -> Option<PmdProgress> {
        let progress = &shared.progress;
        if !progress.is_running.load(Relaxed) {
            return None;
        }
        let (activity, number) = (progress.activity(), progress.port.load(Relaxed));
        let has_packets = !matches!(activity, Activity::Idle | Activity::Commands);
        let name = || {
            let rxqs = shared.rxqs();
            let rxq = rxqs.iter().find(|rxq| rxq.port.0 == number);
            // A port that is being removed has no name here any more.
            rxq.map_or_else(|| number.to_string(), |rxq| rxq.port_name.clone())
        };
        let port = has_packets.then(name);
        let (pmd, is_main_worker) = (shared.pmd, shared.core.is_none());
        Some(PmdProgress { pmd, is_main_worker, beat: shared.cycles.now(), activity, port })
    }
}

impl std::fmt::Display for PmdProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.is_main_worker {
            true => write!(f, "main worker")?,
            false => write!(f, "PMD {}", self.pmd)?,
        }
        write!(f, " in stage {}", self.activity.name())?;
        self.port.as_ref().map_or(Ok(()), |port| write!(f, ", port {port}"))
    }
}

/// The PMDs that the watch looks at. PMDs that are gone leave it by themselves.
#[derive(Default)]
pub(crate) struct Watched(Mutex<Vec<Weak<PmdShared>>>);

impl Watched {
    pub fn add(&self, pmd: &Arc<PmdShared>) {
        let mut all = self.0.lock();
        all.retain(|other| other.strong_count() != 0);
        all.push(Arc::downgrade(pmd));
    }

    fn progress(&self) -> Vec<PmdProgress> {
        let all: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        all.iter().filter_map(|pmd| PmdProgress::of(pmd)).collect()
    }
}

impl Datapath {
    /// How far each PMD has come whose thread runs. It never waits, not even for a PMD that stands still.
    pub fn progress(&self) -> Vec<PmdProgress> {
        self.factory().watched.progress()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pmd_says_what_it_does_and_with_which_ports_packets() {
        let shared = Arc::new(PmdShared::new(1, Some(3), 0).unwrap());
        let watched = Watched::default();
        watched.add(&shared);
        assert_eq!(watched.progress(), [], "its thread does not run");
        let running = shared.progress.running();
        shared.progress.poll(PortNo(7));
        let texts = || watched.progress().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(), ["PMD 1 in stage rx, port 7"]);
        shared.progress.enter(Activity::Act);
        assert_eq!(texts(), ["PMD 1 in stage act, port 7"]);
        shared.progress.enter(Activity::Commands);
        assert_eq!(texts(), ["PMD 1 in stage commands"]);
        let before = watched.progress()[0].beat;
        shared.cycles.add(5);
        shared.cycles.end_interval();
        assert_ne!(watched.progress()[0].beat, before);
        drop(running);
        assert_eq!(watched.progress(), []);
    }

    #[test]
    fn activities_are_in_their_places() {
        Activity::ALL.iter().enumerate().for_each(|(at, activity)| assert_eq!(*activity as usize, at));
    }
}
