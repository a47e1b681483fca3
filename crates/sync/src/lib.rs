//! Epochs, arenas and mailboxes between control threads and PMDs.
//!
//! - [`Epochs`]: who may still be looking. A PMD holds a [`Guard`] while it works on a batch; letting go of it is its
//!   quiet point. A PMD that idles or sleeps holds none, so it keeps nobody waiting.
//! - [`Arena`]: shared records under stable 32-bit ids. Reading takes a guard, never a lock; what has been retired is
//!   dropped after every guard of that time has gone.
//! - [`LazyArray`]: an array whose limit costs nothing until it is used.
//! - [`MessageQueue`]: messages from control threads to a PMD; one flag is read when there are none.
//!
//! This crate is one of the locked rooms where `unsafe` may live. Its unit tests run every interleaving of small
//! cases under loom (atomics, mutexes and cells are loom's when the crate is compiled for its own tests); the tests in
//! `tests/` run the real thing under load. Loom does not see reorderings that only relaxed accesses of more than a
//! few threads could show, and treats sequentially consistent accesses as acquire-release; the code relies on
//! fences, which loom does model.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod arena;
mod epoch;
#[allow(unsafe_code)]
mod lazy;
mod message_queue;

pub use arena::{Arena, ArenaFull, Slots};
pub use epoch::{Epochs, Guard, Reader};
pub use lazy::{LazyArray, Zeroed};
pub use message_queue::MessageQueue;

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
}
