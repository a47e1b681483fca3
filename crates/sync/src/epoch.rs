//! Who may still be looking: epochs.
//!
//! A global number counts retirements. A reader that pins writes the number it saw into its own seat, alone on its
//! cache lines; unpinning writes "away". What was retired when the number was `t` may go once every seat is away or
//! above `t`: a reader above `t` loaded the number after the retirement bumped it, hence sees what the retirement
//! wrote before.
//!
//! The race that remains is a reader pinning while a writer scans. Each side writes, fences, and reads the other's
//! word (reader: seat, then the record's state; writer: the record's state, then the seats), so at least one sees the
//! other: either the writer waits, or the reader finds the record dead.
//!
//! Cost of a pin: a load, a store, a fence (some 20 cycles); once a loop iteration, not once a packet.

use crate::primitive::atomic::{AtomicU64, Ordering, fence};
use crate::primitive::{Arc, Mutex, lock};

/// The seat of a reader that holds no guard.
const AWAY: u64 = u64::MAX;

/// All readers of a set of arenas, and the number of retirements so far.
#[derive(Debug)]
pub struct Epochs {
    retirements: AtomicU64,
    seats: Mutex<Vec<Arc<ReaderSlot>>>,
}

/// Where one reader writes what it saw.
#[derive(Debug)]
#[repr(align(128))] // readers write theirs once a loop: keep them off each other's line pair
struct ReaderSlot {
    saw: AtomicU64,
}

/// One thread's right to read. Dropping it gives the seat up.
#[derive(Debug)]
pub struct Reader {
    epochs: Arc<Epochs>,
    seat: Arc<ReaderSlot>,
}

/// While it lives, nothing its holder can see is dropped. Dropping it is the quiet point.
#[derive(Debug)]
pub struct Guard<'r> {
    reader: &'r Reader,
}

impl Epochs {
    /// No readers yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Epochs { retirements: AtomicU64::new(0), seats: Mutex::new(Vec::new()) })
    }

    /// A new reader.
    pub fn register(this: &Arc<Self>) -> Reader {
        let seat = Arc::new(ReaderSlot { saw: AtomicU64::new(AWAY) });
        lock(&this.seats).push(seat.clone());
        Reader { epochs: this.clone(), seat }
    }

    /// Says that something has been made unreachable, and returns the number to compare [`Epochs::oldest`] with.
    pub(crate) fn retire(&self) -> u64 {
        self.retirements.fetch_add(1, Ordering::AcqRel)
    }

    /// Whatever was retired with a number below this is seen by nobody any more.
    pub(crate) fn oldest(&self) -> u64 {
        fence(Ordering::SeqCst);
        lock(&self.seats).iter().map(|seat| seat.saw.load(Ordering::Acquire)).min().unwrap_or(AWAY)
    }
}

impl Reader {
    /// Begins to look.
    #[inline]
    pub fn pin(&mut self) -> Guard<'_> {
        let saw = self.epochs.retirements.load(Ordering::Acquire);
        // Release: a writer that finds this newer number must also find all reads under the previous guard done.
        self.seat.saw.store(saw, Ordering::Release);
        fence(Ordering::SeqCst);
        Guard { reader: self }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        lock(&self.epochs.seats).retain(|seat| !Arc::ptr_eq(seat, &self.seat));
    }
}

impl Guard<'_> {
    /// Whether it guards what `epochs` retires.
    #[inline]
    pub(crate) fn belongs_to(&self, epochs: &Arc<Epochs>) -> bool {
        Arc::ptr_eq(&self.reader.epochs, epochs)
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.reader.seat.saw.store(AWAY, Ordering::Release);
    }
}
