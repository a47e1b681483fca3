//! What PMDs and control threads share, without a lock on the packet path.
//!
//! A PMD owns its indexes and caches (`&mut`). It shares with other threads:
//!
//! - records, such as megaflows: an [`Arena`] under stable 32-bit ids. Reading takes a [`Guard`], never a lock.
//! - commands and notices: a [`MessageQueue`]. A PMD reads one flag when there are none.
//! - tables that rarely change: a [`Versioned`]. A PMD keeps a copy and reads the version.
//! - counters: a [`LazyArray`] of atomic numbers, which one PMD writes and any thread reads. A large limit costs
//!   nothing until it is used.
//!
//! What a PMD must lock after all, when it makes a megaflow, is a [`PriorityMutex`]: control threads let it go first.
//!
//! What such a lock protects does not double at once, which would take milliseconds: it is in a [`BlockDeque`], for one.
//!
//! What a PMD has for a thread that sleeps wakes it by a [`WakeWish`], once for however much there is.
//!
//! Memory is reclaimed by [`Epochs`]. A PMD holds a guard while it works on a batch; dropping it is the PMD's quiescent
//! point. A record that is taken out of an arena is dropped once every guard of that time is gone. A PMD that is idle
//! or sleeps holds no guard, so it delays nothing.
//!
//! This crate may use `unsafe`, in the files that `ci/unsafe.txt` lists. Its unit tests run every interleaving of small
//! cases under loom, with loom's atomics, mutexes and cells; the tests in `tests/` run the real ones under load. Loom
//! treats sequentially consistent accesses as acquire-release, and does not find reorderings that only relaxed accesses
//! of more than a few threads can show. The code therefore relies on fences, which loom does model.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod arena;
mod block_deque;
mod epoch;
mod id_runs;
#[allow(unsafe_code)]
mod lazy;
mod message_queue;
mod priority;
mod versioned;
mod wake;

pub use arena::{Arena, ArenaFull, Slots};
pub use block_deque::BlockDeque;
pub use epoch::{Epochs, Guard, Reader};
pub use lazy::{LazyArray, Zeroed};
pub use message_queue::MessageQueue;
pub use priority::{PriorityMutex, try_in_passing, try_often};
pub use versioned::Versioned;
pub use wake::WakeWish;

/// The primitives: the standard library's, or loom's in this crate's unit tests.
mod primitive {
    #[cfg(test)]
    pub use loom::sync::{Arc, Mutex, MutexGuard, atomic};
    #[cfg(not(test))]
    pub use parking_lot::{Mutex, MutexGuard};
    #[cfg(not(test))]
    pub use std::sync::{Arc, atomic};

    /// Locks. After a panic in another thread the lists behind the lock are still whole.
    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        #[cfg(not(test))]
        return mutex.lock();
        #[cfg(test)]
        mutex.lock().unwrap()
    }

    /// Locks if nobody else has it.
    pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        #[cfg(not(test))]
        return mutex.try_lock();
        #[cfg(test)]
        mutex.try_lock().ok()
    }
}
