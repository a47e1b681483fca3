//! The watch over PMDs and control threads: one that stands still is told in the log and counted.
//!
//! It runs in the watchdog's thread ([`crate::watchdog`]) and takes no lock that a thread holds while it waits. A PMD
//! stands still if none of its iterations ends; a control thread if one piece of its work does not.

use parking_lot::Mutex;
use sluice_clock::heartbeat::{BusyThread, WORK_WITHIN, busy_threads};
use sluice_vswitch::Switch;
use std::collections::BTreeMap;

/// A PMD that has stood still for this long has missed its heartbeat.
const MISSED_AFTER_MS: u64 = WORK_WITHIN.as_millis() as u64;

/// Heartbeats missed since the start, by thread.
static MISSED: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

/// Heartbeats missed since the start, by thread.
pub fn missed() -> BTreeMap<String, u64> {
    MISSED.lock().clone()
}

/// What was seen of the threads.
#[derive(Default)]
pub struct HeartbeatWatch {
    seen: BTreeMap<String, Seen>,
}

/// What was seen of a thread.
struct Seen {
    beat: u64,
    since_ms: u64,
    is_told: bool,
}

/// A thread that was looked at.
struct Looked {
    thread: String,
    /// Differs if the thread has gone on.
    beat: u64,
    /// Where it is.
    place: String,
    /// Since when, if it says so, in the real clock's milliseconds.
    since_ms: Option<u64>,
    /// Standing still for that long is a missed heartbeat.
    missed_after_ms: u64,
}

impl HeartbeatWatch {
    /// Looks at all threads, at this time of the real clock.
    pub fn look(&mut self, switch: &Switch, now_ms: u64) {
        let (standing, going_on) = self.note(threads(switch), now_ms);
        // No warning: on a busy machine a thread may wait for a processor that long. Alarms have the metric.
        for Standing { place, for_ms } in standing {
            tracing::info!("waited {} s for {place}", for_ms / 1000);
        }
        for Standing { place, for_ms } in going_on {
            tracing::info!("{place} goes on after {:.1} s", for_ms as f64 / 1000.0);
        }
    }

    /// The threads that have just been found to stand still, and those that go on after that.
    fn note(&mut self, threads: Vec<Looked>, now_ms: u64) -> (Vec<Standing>, Vec<Standing>) {
        let (mut standing, mut going_on) = (Vec::new(), Vec::new());
        let mut before = std::mem::take(&mut self.seen);
        for Looked { thread, beat, place, since_ms, missed_after_ms } in threads {
            let mut seen = match before.remove(&thread) {
                Some(seen) if seen.beat == beat => seen,
                other => {
                    going_on.extend(other.and_then(|seen| seen.end(&thread, now_ms)));
                    Seen { beat, since_ms: since_ms.unwrap_or(now_ms), is_told: false }
                }
            };
            let for_ms = now_ms.saturating_sub(seen.since_ms);
            if for_ms >= missed_after_ms && !seen.is_told {
                seen.is_told = true;
                *MISSED.lock().entry(thread.clone()).or_default() += 1;
                standing.push(Standing { place, for_ms });
            }
            self.seen.insert(thread, seen);
        }
        going_on.extend(before.into_iter().filter_map(|(thread, seen)| seen.end(&thread, now_ms)));
        (standing, going_on)
    }

    /// Where the threads are that have stood still for that long, for the last words of the process.
    pub fn standing(&self, switch: &Switch, for_ms: u64, now_ms: u64) -> Vec<String> {
        let is_standing = |looked: &Looked| {
            let seen = self.seen.get(&looked.thread).filter(|seen| seen.beat == looked.beat);
            let since_ms = looked.since_ms.or(seen.map(|seen| seen.since_ms));
            since_ms.is_some_and(|since_ms| now_ms.saturating_sub(since_ms) >= for_ms)
        };
        threads(switch).into_iter().filter(is_standing).map(|looked| looked.place).collect()
    }
}

/// A thread that stands still, or did.
#[derive(Debug, PartialEq, Eq)]
struct Standing {
    place: String,
    for_ms: u64,
}

impl Seen {
    /// The thread has gone on; what to tell if it was told to stand still.
    fn end(self, thread: &str, now_ms: u64) -> Option<Standing> {
        let for_ms = now_ms.saturating_sub(self.since_ms);
        self.is_told.then(|| Standing { place: thread.to_owned(), for_ms })
    }
}

/// All threads that are to go on.
fn threads(switch: &Switch) -> Vec<Looked> {
    let pmds = switch.datapath().progress().into_iter().map(|pmd| {
        let thread = if pmd.is_main_worker { "main worker".to_owned() } else { format!("PMD {}", pmd.pmd) };
        let missed_after_ms = MISSED_AFTER_MS;
        Looked { thread, beat: pmd.beat, place: pmd.to_string(), since_ms: None, missed_after_ms }
    });
    let control = first_due(busy_threads()).into_iter().map(|busy| Looked {
        thread: format!("thread {}", busy.thread),
        beat: busy.since_ms,
        place: busy.to_string(),
        since_ms: Some(busy.since_ms),
        missed_after_ms: busy.within_ms,
    });
    pmds.chain(control).collect()
}

/// Of threads with the same name, such as those of control connections, the one whose work is due first.
fn first_due(mut threads: Vec<BusyThread>) -> Vec<BusyThread> {
    threads.sort_by(|a, b| (&a.thread, a.due_ms()).cmp(&(&b.thread, b.due_ms())));
    threads.dedup_by(|later, first| later.thread == first.thread);
    threads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_threads_of_one_name_the_one_due_first_is_watched() {
        let busy = |thread: &str, since_ms, within_ms| {
            let thread = thread.into();
            BusyThread { thread, work: "work", since_ms, within_ms }
        };
        let conn = |since_ms, within_ms| busy("ctl-conn", since_ms, within_ms);
        let all = vec![conn(9, 5), busy("main", 8, 5), conn(7, 5), conn(11, 5), conn(1, 20)];
        assert_eq!(first_due(all), [conn(7, 5), busy("main", 8, 5)]);
    }

    fn looked(beat: u64, place: &str) -> Vec<Looked> {
        vec![Looked { thread: "PMD 1".into(), beat, place: place.into(), since_ms: None, missed_after_ms: 2000 }]
    }

    #[test]
    fn a_thread_that_stands_still_is_told_once_and_counted() {
        let mut watch = HeartbeatWatch::default();
        let before = missed().get("PMD 1").copied().unwrap_or_default();
        let place = "PMD 1 in stage act, port p3";
        assert_eq!(watch.note(looked(7, place), 1000), (vec![], vec![]));
        assert_eq!(watch.note(looked(7, place), 2900), (vec![], vec![]), "not long enough");
        let standing = vec![Standing { place: place.into(), for_ms: 2000 }];
        assert_eq!(watch.note(looked(7, place), 3000), (standing, vec![]));
        assert_eq!(watch.note(looked(7, place), 9000), (vec![], vec![]), "it was told");
        assert_eq!(missed()["PMD 1"], before + 1);
        let going_on = vec![Standing { place: "PMD 1".into(), for_ms: 9000 }];
        assert_eq!(watch.note(looked(8, place), 10_000), (vec![], going_on));
        assert_eq!(watch.note(looked(8, place), 12_000).0.len(), 1, "it stands still again");
    }

    #[test]
    fn work_that_may_take_long_is_told_when_it_takes_longer() {
        let mut watch = HeartbeatWatch::default();
        let connecting = || {
            let (thread, place) = ("thread controller".into(), "thread controller in connecting".into());
            vec![Looked { thread, beat: 1000, place, since_ms: Some(1000), missed_after_ms: 20_000 }]
        };
        assert_eq!(watch.note(connecting(), 15_000), (vec![], vec![]));
        assert_eq!(watch.note(connecting(), 21_000).0.len(), 1);
        assert_eq!(missed()["thread controller"], 1);
    }

    #[test]
    fn a_thread_that_has_ended_does_not_stand_still() {
        let mut watch = HeartbeatWatch::default();
        watch.note(looked(7, "PMD 1 in stage idle"), 1000);
        assert_eq!(watch.note(vec![], 9000), (vec![], vec![]));
        assert_eq!(watch.note(looked(7, "PMD 1 in stage idle"), 9100), (vec![], vec![]));
    }

    #[test]
    fn a_thread_that_goes_on_is_never_told() {
        let mut watch = HeartbeatWatch::default();
        for beat in 0..100 {
            assert_eq!(watch.note(looked(beat, "PMD 1 in stage rx, port p1"), beat * 1900), (vec![], vec![]));
        }
    }
}
