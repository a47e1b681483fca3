//! One PMD's counters, by megaflow.

use sluice_action::{FlowId, FlowStats};
use sluice_sync::LazyArray;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One PMD's counters of every megaflow, written by that PMD only and read by any thread.
///
/// Shape:  four words a megaflow: packets, bytes, time of the last packet plus one (0: no packet yet), TCP flags with
///         the bit [`INDEXED`]. Two megaflows share a cache line.
///
/// Writes happen under a guard that saw the megaflow live. So nobody writes after the record is reclaimed, and the
/// table zeroes the counters for the next megaflow of that id.
pub struct FlowCounters {
    cells: LazyArray<[AtomicU64; 4]>,
}

/// The counters of a PMD at one time, for the packets of a batch: each of them would load both again otherwise.
#[derive(Clone, Copy)]
pub struct CountersAt<'a> {
    cells: &'a [[AtomicU64; 4]],
    /// The time plus one.
    used: u64,
}

impl CountersAt<'_> {
    /// Counts a packet. Only the owning PMD calls this, under a guard that saw the megaflow live.
    #[inline(always)]
    pub fn add(&self, id: FlowId, bytes: u64, tcp_flags: u16) {
        let Some([packets, size, used, flags]) = self.cells.get(id.0 as usize) else { return };
        // With a single writer, a load and a store replace an atomic addition.
        packets.store(packets.load(Relaxed) + 1, Relaxed);
        size.store(size.load(Relaxed) + bytes, Relaxed);
        // The packets of a millisecond have one time, and those of a flow mostly the same flags: a predicted branch costs
        // less than a store, of which the processor completes one a cycle.
        if used.load(Relaxed) != self.used {
            used.store(self.used, Relaxed);
        }
        let (have, new) = (flags.load(Relaxed), u64::from(tcp_flags));
        if have & new != new {
            flags.store(have | new, Relaxed);
        }
    }
}

/// This PMD's subtables contain or contained the megaflow.
const INDEXED: u64 = 1 << 16;

/// What a PMD's counters of one megaflow take.
pub(crate) const COUNTERS_BYTES: usize = size_of::<[AtomicU64; 4]>();

impl FlowCounters {
    pub(crate) fn new(capacity: usize) -> io::Result<Self> {
        Ok(FlowCounters { cells: LazyArray::new(capacity)? })
    }

    pub(crate) fn populate(&self, ids: std::ops::Range<usize>) -> io::Result<()> {
        self.cells.populate(ids)
    }

    /// The counters, to count packets of this time.
    #[inline(always)]
    pub fn at(&self, now_ms: u64) -> CountersAt<'_> {
        CountersAt { cells: &self.cells, used: now_ms + 1 }
    }

    /// Counts a packet: see [`CountersAt::add`].
    #[inline(always)]
    pub fn add(&self, id: FlowId, bytes: u64, tcp_flags: u16, now_ms: u64) {
        self.at(now_ms).add(id, bytes, tcp_flags);
    }

    /// Prefetches a megaflow's counters.
    #[inline(always)]
    pub(crate) fn prefetch(&self, id: FlowId) {
        if let Some(cell) = self.cells.get(id.0 as usize) {
            sluice_simd::prefetch::read(cell);
        }
    }

    /// Records that this PMD's subtables have the megaflow.
    pub fn set_indexed(&self, id: FlowId) {
        if let Some([.., flags]) = self.cells.get(id.0 as usize) {
            flags.store(flags.load(Relaxed) | INDEXED, Relaxed);
        }
    }

    /// Forgets that this PMD's subtables have the megaflow. Only while the PMD does not run.
    pub(crate) fn unset_indexed(&self, id: FlowId) {
        if let Some([.., flags]) = self.cells.get(id.0 as usize) {
            flags.store(flags.load(Relaxed) & !INDEXED, Relaxed);
        }
    }

    /// Whether this PMD has, or had, the megaflow in its subtables.
    pub fn is_indexed(&self, id: FlowId) -> bool {
        self.cells.get(id.0 as usize).is_some_and(|[.., flags]| flags.load(Relaxed) & INDEXED != 0)
    }

    /// The counts of a megaflow. Values read together may be one batch apart.
    pub fn read(&self, id: FlowId) -> FlowStats {
        let Some([n, size, used, flags]) = self.cells.get(id.0 as usize) else { return FlowStats::default() };
        FlowStats {
            packets: n.load(Relaxed),
            bytes: size.load(Relaxed),
            used_ms: used.load(Relaxed).checked_sub(1),
            tcp_flags: flags.load(Relaxed) as u16,
            created_ms: 0,
        }
    }

    /// Zeroes a megaflow's counters, once its record is reclaimed.
    pub(crate) fn clear(&self, id: FlowId) {
        if let Some(cell) = self.cells.get(id.0 as usize) {
            cell.iter().for_each(|word| word.store(0, Relaxed));
        }
    }
}

/// Adds one PMD's counts to the sum.
pub(crate) fn add_up(sum: &mut FlowStats, one: FlowStats) {
    sum.packets += one.packets;
    sum.bytes += one.bytes;
    sum.used_ms = sum.used_ms.max(one.used_ms);
    sum.tcp_flags |= one.tcp_flags;
}
