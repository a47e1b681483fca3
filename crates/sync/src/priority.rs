//! A mutex that PMDs take before control threads, and without sleeping.
//!
//! A PMD that waits forwards nothing. So a control thread that has much to do behind the lock does it in pieces, and begins
//! none while a PMD asks: a PMD waits for one piece at most. If the control thread has lost its core meanwhile, the PMD
//! goes on without the lock after a while.

use crate::primitive::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::primitive::{Mutex, MutexGuard, lock, try_lock};
use std::hint::spin_loop;

/// How often a control thread tries: some 100 µs, a pause of the processor each.
#[cfg(not(test))]
const TRIES: usize = 4096;
/// How often a PMD tries: some 25 µs, about as long as a control thread keeps a lock for a piece of its work.
#[cfg(not(test))]
const TRIES_OF_PMD: usize = 1024;
/// How often a PMD tries that has something better to do than to wait: a microsecond or two.
#[cfg(not(test))]
const TRIES_IN_PASSING: usize = 64;
/// Under loom each try is a branch.
#[cfg(test)]
const TRIES: usize = 2;
#[cfg(test)]
const TRIES_OF_PMD: usize = 2;
#[cfg(test)]
const TRIES_IN_PASSING: usize = 1;

/// A value behind it.
#[derive(Debug, Default)]
pub struct PriorityMutex<T> {
    mutex: Mutex<T>,
    /// PMDs that ask for it.
    asking: AtomicUsize,
}

impl<T> PriorityMutex<T> {
    /// A value behind such a lock.
    pub fn new(value: T) -> Self {
        PriorityMutex { mutex: Mutex::new(value), asking: AtomicUsize::new(0) }
    }

    /// Locks for a PMD, ahead of the control threads that wait; unless the holder keeps it for longer than a PMD waits.
    pub fn try_first(&self) -> Option<MutexGuard<'_, T>> {
        self.asking.fetch_add(1, Relaxed);
        let guard = try_times(TRIES_OF_PMD, || try_lock(&self.mutex));
        self.asking.fetch_sub(1, Relaxed);
        guard
    }

    /// Locks for a control thread, once no PMD asks for it, or after a while.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let no_pmd_asks = || self.asking.load(Relaxed) == 0;
        try_often(|| no_pmd_asks().then(|| try_lock(&self.mutex))?).unwrap_or_else(|| lock(&self.mutex))
    }
}

/// Tries, with a pause after each that fails, until it succeeds or has been tried for a while.
pub fn try_often<R>(attempt: impl Fn() -> Option<R>) -> Option<R> {
    try_times(TRIES, attempt)
}

/// The same for a PMD that can put off what it wants: it gives up after a moment.
pub fn try_in_passing<R>(attempt: impl Fn() -> Option<R>) -> Option<R> {
    try_times(TRIES_IN_PASSING, attempt)
}

fn try_times<R>(times: usize, attempt: impl Fn() -> Option<R>) -> Option<R> {
    (0..times).find_map(|_| {
        let result = attempt();
        if result.is_none() {
            spin_loop();
        }
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Only one thread at a time holds it; a PMD may go on without it.
    #[test]
    fn both_sides_have_it_alone() {
        loom::model(|| {
            let number = Arc::new(PriorityMutex::new(0));
            let pmd = {
                let number = number.clone();
                thread::spawn(move || number.try_first().map(|mut number| *number += 1).is_some())
            };
            *number.lock() += 1;
            let had_it = pmd.join().unwrap();
            assert_eq!((*number.lock(), number.asking.load(Relaxed)), (1 + u32::from(had_it), 0));
        });
    }

    /// A control thread gets it though a PMD asks for long, and a PMD gets what is free.
    #[test]
    fn a_pmd_that_asks_for_long_keeps_nobody_away_for_ever() {
        loom::model(|| {
            let number = PriorityMutex::new(0);
            number.asking.fetch_add(1, Relaxed);
            *number.lock() += 1;
            assert_eq!(number.try_first().as_deref(), Some(&1));
        });
    }
}
