//! What a poll or a batch costs, in tests: a bound that holds on any machine, however busy.

use std::cell::Cell;

/// Work on a guest's rings and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Descriptors that were read from a ring.
    pub descriptors: usize,
    /// Accesses to the guest's memory by address: descriptors in tables, and parts of buffers.
    pub accesses: usize,
    /// Their bytes.
    pub bytes: usize,
}

thread_local!(static WORK: Cell<Work> = const { Cell::new(Work { descriptors: 0, accesses: 0, bytes: 0 }) });

/// Notes a descriptor.
pub fn note_descriptor() {
    let work = WORK.get();
    WORK.set(Work { descriptors: work.descriptors + 1, ..work });
}

/// Notes an access.
pub fn note_access(bytes: usize) {
    let work = WORK.get();
    WORK.set(Work { accesses: work.accesses + 1, bytes: work.bytes + bytes, ..work });
}

/// Runs something. Returns its result, and what this thread did meanwhile.
pub fn counted<R>(run: impl FnOnce() -> R) -> (R, Work) {
    WORK.take();
    let result = run();
    (result, WORK.get())
}
