//! A value that changes rarely and is looked at often.

use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::primitive::{Mutex, lock};

/// A value behind a lock, and a number that goes up with each change. A reader keeps what it needs of the value and
/// asks only for the number: one load, unless there was a change.
#[derive(Debug, Default)]
pub struct Versioned<T> {
    version: AtomicU64,
    value: Mutex<T>,
}

impl<T> Versioned<T> {
    /// That value, in version 0.
    pub fn new(value: T) -> Self {
        Versioned { version: AtomicU64::new(0), value: Mutex::new(value) }
    }

    /// How many changes there were. What [`Self::read`] shows after this is at least as new.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Changes the value.
    pub fn change<R>(&self, with: impl FnOnce(&mut T) -> R) -> R {
        let mut value = lock(&self.value);
        let out = with(&mut value);
        // Under the lock: a thread that sees the number finds the change, because the lock is free only once the change is made.
        self.version.fetch_add(1, Ordering::Release);
        out
    }

    /// Reads the value, behind the lock.
    pub fn read<R>(&self, with: impl FnOnce(&T) -> R) -> R {
        with(&lock(&self.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Each change makes the value its own number, so that a reader can tell how new it is.
    #[test]
    fn what_is_read_is_as_new_as_the_version_seen_before() {
        loom::model(|| {
            let shared = Arc::new(Versioned::new(0));
            let writers = [(); 2].map(|()| {
                let shared = shared.clone();
                thread::spawn(move || shared.change(|value| *value += 1))
            });
            let (first, version) = (shared.version(), shared.version());
            let value = shared.read(|value| *value);
            assert!(first <= version && version <= value, "{first}, {version}, {value}");
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            assert_eq!((shared.version(), shared.read(|value| *value)), (2, 2));
        });
    }

    /// A reader that reads again only when the version is another one misses no change.
    #[test]
    fn a_reader_that_looks_at_the_version_alone_misses_no_change() {
        loom::model(|| {
            let shared = Arc::new(Versioned::new('a'));
            let writer = {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.change(|value| *value = 'b');
                    shared.change(|value| *value = 'c');
                })
            };
            let (mut kept, mut of) = ('a', 0);
            let mut look = || {
                let version = shared.version();
                if version != of {
                    (kept, of) = (shared.read(|value| *value), version);
                }
                kept
            };
            let seen = look();
            writer.join().unwrap();
            let last = look();
            assert!(seen <= last && last == 'c', "{seen}, then {last}");
        });
    }
}
