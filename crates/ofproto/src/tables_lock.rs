//! The lock of the tables: PMDs read them for each packet that misses, control threads read and change them.
//!
//! A PMD that waits forwards nothing, so what makes it wait is short, and it never sleeps for it:
//!
//! - A change of many rules is made in pieces; the lock is free between them. A PMD that has misses to translate says so
//!   ([`TablesLock::begin_asking`]), and no piece begins until it is done: a batch waits for one piece at most.
//! - What reads for long ([`TablesLock::survey`]) keeps changes out by a lock of its own. A change that waits for it does
//!   not stand in the PMDs' way, as one that waits at the tables' lock would.
//! - A reader tries for a while before it sleeps: to be woken costs more than most changes.

use parking_lot::{RwLock, RwLockReadGuard};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How often a reader tries before it sleeps, and how often a change looks whether PMDs still ask before it goes on: some
/// 100 µs, a pause of the processor each. Who shares a core with the other side gives it up after that time.
const TRIES: usize = 4096;

/// A value behind it.
#[derive(Debug, Default)]
pub(crate) struct TablesLock<T> {
    tables: RwLock<T>,
    /// Held for reading by those that read for long, for writing by a change.
    surveys: RwLock<()>,
    /// PMDs that have misses to translate.
    asking: AtomicUsize,
}

impl<T> TablesLock<T> {
    /// For a look that is short.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        for _ in 0..TRIES {
            if let Some(tables) = self.tables.try_read() {
                return tables;
            }
            spin_loop();
        }
        self.tables.read()
    }

    /// For a look that may take long. It must not be taken twice.
    pub fn survey<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        let _no_change = self.surveys.read();
        look(&self.read())
    }

    /// Changes the value once those that survey are done, and the PMDs that ask, which cannot keep it waiting for long.
    pub fn change<R>(&self, with: impl FnOnce(&mut T) -> R) -> R {
        let _no_survey = self.surveys.write();
        for _ in 0..TRIES {
            if self.asking.load(Relaxed) == 0
                && let Some(mut tables) = self.tables.try_write()
            {
                return with(&mut tables);
            }
            spin_loop();
        }
        with(&mut self.tables.write())
    }

    /// A PMD has misses to translate; [`Self::end_asking`] follows.
    pub fn begin_asking(&self) {
        self.asking.fetch_add(1, Relaxed);
    }

    /// It is done with them.
    pub fn end_asking(&self) {
        self.asking.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;

    /// While somebody surveys, a change waits, and a PMD reads nevertheless.
    #[test]
    fn a_change_that_waits_for_a_survey_stands_in_no_readers_way() {
        let lock = TablesLock::<u32>::default();
        let (told, heard) = channel();
        thread::scope(|scope| {
            lock.survey(|before| {
                scope.spawn(|| {
                    told.send(()).unwrap();
                    lock.change(|value| *value += 1);
                });
                heard.recv().unwrap();
                while lock.surveys.try_read().is_some() {
                    thread::yield_now();
                }
                // The change waits now.
                assert_eq!((*before, *lock.tables.try_read().expect("nothing stands in its way")), (0, 0));
            });
        });
        assert_eq!(*lock.read(), 1);
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
                            2 => lock.survey(|(one, two)| assert_eq!(one, two)),
                            _ => {
                                lock.begin_asking();
                                let pair = lock.read();
                                assert_eq!(pair.0, pair.1);
                                drop(pair);
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
