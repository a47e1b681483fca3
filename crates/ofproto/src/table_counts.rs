//! Counters of the searches of a table.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How often a table was searched.
#[derive(Debug, Default)]
pub(crate) struct TableCounts {
    matched: AtomicU64,
    missed: AtomicU64,
}

impl TableCounts {
    pub fn credit(&self, matched: bool, packets: u64) {
        let count = if matched { &self.matched } else { &self.missed };
        count.fetch_add(packets, Relaxed);
    }

    pub fn read(&self) -> (u64, u64) {
        (self.matched.load(Relaxed), self.missed.load(Relaxed))
    }
}
