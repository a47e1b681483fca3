//! The lock of the tables: PMDs read them for each packet that misses, control threads read and change them.
//!
//! A PMD that waits forwards nothing, so it does not wait: if a change has the tables, the packets that miss are set aside and
//! ask again at the next poll. That this is seldom and short:
//!
//! - A change of many rules is made in pieces; the lock is free between them. A PMD that has misses to translate says so
//!   ([`TablesLock::begin_asking`]), and no piece begins until it is done: its misses are put off for one piece at most.
//! - Control threads that read keep changes out by a lock of their own. A change waits for them there, where it does not
//!   stand in the PMDs' way: one that waited at the tables' lock would, for as long as a reader has lost its core.
//! - A control thread that makes many changes gives its core away between two of them now and then. The scheduler would
//!   else take it in the middle of one, and misses would wait until the thread runs again.

use parking_lot::{RwLock, RwLockReadGuard};
use sluice_sync::{try_in_passing, try_often};
use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

/// Changes after which a control thread gives its core away. In pieces of a large one they take some 2 ms; Linux lets others
/// wait for 3.
const CHANGES_A_TURN: u32 = 64;

thread_local! {
    /// Changes that this thread has made since it gave its core away.
    static CHANGES: Cell<u32> = const { Cell::new(0) };
}

/// A value behind it.
#[derive(Debug, Default)]
pub(crate) struct TablesLock<T> {
    tables: RwLock<T>,
    /// Held for reading by control threads that read, for writing by a change.
    readers: RwLock<()>,
    /// PMDs that have misses to translate.
    asking: AtomicUsize,
}

/// The value, as a control thread reads it: no change begins meanwhile.
pub(crate) struct TablesGuard<'a, T> {
    tables: RwLockReadGuard<'a, T>,
    _no_change: RwLockReadGuard<'a, ()>,
}

impl<T> Deref for TablesGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.tables
    }
}

impl<T> TablesLock<T> {
    /// For a control thread. It must not be taken twice.
    pub fn read(&self) -> TablesGuard<'_, T> {
        let no_change = self.readers.read();
        TablesGuard { tables: self.tables.read(), _no_change: no_change }
    }

    /// For a PMD, which does not wait. `None` if a change has the value, or waits for another PMD to let go of it.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        try_in_passing(|| self.tables.try_read())
    }

    /// Changes the value once the control threads that read are done, and the PMDs that ask, which cannot keep it waiting
    /// for long.
    pub fn change<R>(&self, with: impl FnOnce(&mut T) -> R) -> R {
        yield_now_and_then();
        let _no_reader = self.readers.write();
        let no_pmd_asks = || self.asking.load(Relaxed) == 0;
        let tables = try_often(|| no_pmd_asks().then(|| self.tables.try_write())?);
        with(&mut tables.unwrap_or_else(|| self.tables.write()))
    }

    /// A PMD has misses to translate; [`Self::end_asking`] follows.
    pub fn begin_asking(&self) {
        self.asking.fetch_add(1, Relaxed);
    }

    /// Whether one has.
    #[cfg(test)]
    pub fn is_asked(&self) -> bool {
        self.asking.load(Relaxed) != 0
    }

    /// It is done with them.
    pub fn end_asking(&self) {
        self.asking.fetch_sub(1, Relaxed);
    }
}

/// Yields the core after a number of changes, before the next one.
fn yield_now_and_then() {
    let changes = CHANGES.get() + 1;
    CHANGES.set(changes % CHANGES_A_TURN);
    if changes == CHANGES_A_TURN {
        thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;

    /// While a control thread reads, a change waits, and a PMD reads nevertheless.
    #[test]
    fn a_change_that_waits_for_a_reader_stands_in_no_pmds_way() {
        let lock = TablesLock::<u32>::default();
        let (told, heard) = channel();
        thread::scope(|scope| {
            let before = lock.read();
            scope.spawn(|| {
                told.send(()).unwrap();
                lock.change(|value| *value += 1);
            });
            heard.recv().unwrap();
            while lock.readers.try_read().is_some() {
                thread::yield_now();
            }
            // The change waits now.
            assert_eq!((*before, *lock.tables.try_read().expect("nothing stands in its way")), (0, 0));
        });
        assert_eq!(*lock.read(), 1);
    }

    /// A change that holds the value keeps no PMD waiting.
    #[test]
    fn a_pmd_goes_on_without_it() {
        let lock = TablesLock::<u32>::default();
        lock.change(|_| assert!(lock.try_read().is_none()));
        assert_eq!(lock.try_read().map(|value| *value), Some(0));
    }

    /// A change waits for those that ask, but not for ever.
    #[test]
    fn a_change_waits_for_a_while_for_those_that_ask() {
        let lock = TablesLock::<u32>::default();
        lock.begin_asking();
        lock.change(|value| *value += 1);
        lock.end_asking();
        assert_eq!((*lock.read(), lock.asking.load(Relaxed)), (1, 0));
    }

    /// Readers and changes together: each change is whole, none is lost, and all end.
    #[test]
    fn what_is_read_is_whole() {
        let lock = TablesLock::<(u32, u32)>::default();
        thread::scope(|scope| {
            for i in 0..4 {
                let lock = &lock;
                scope.spawn(move || {
                    for _ in 0..500 {
                        match i {
                            0 | 1 => lock.change(|(one, two)| (*one, *two) = (*one + 1, *two + 1)),
                            2 => {
                                let pair = lock.read();
                                assert_eq!(pair.0, pair.1);
                            }
                            _ => {
                                lock.begin_asking();
                                if let Some(pair) = lock.try_read() {
                                    assert_eq!(pair.0, pair.1);
                                }
                                lock.end_asking();
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(*lock.read(), (1000, 1000));
    }
}
