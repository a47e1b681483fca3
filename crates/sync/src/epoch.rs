//! Epochs: which retired records a reader may still see.
//!
//! A global counter counts retirements. A reader that pins writes the count it read into its own slot, which is alone
//! on its cache lines; unpinning writes "away". A record that was retired when the count was `t` may be dropped once
//! every slot is away or above `t`: a reader above `t` loaded the count after the retirement had raised it, hence sees
//! what the retirement wrote before.
//!
//! What remains is a reader that pins while a writer scans the slots. Each side writes, fences, and reads the other's
//! word (reader: its slot, then the record's state; writer: the record's state, then the slots), so at least one of
//! them sees the other: either the writer waits, or the reader finds the record dead.
//!
//! Cost of a pin: a load, a store and a fence, some 20 cycles; once a loop iteration, not once a packet.

use crate::primitive::atomic::{AtomicU64, Ordering, fence};
use crate::primitive::{Arc, Mutex, lock};

/// The slot of a reader that holds no guard.
const AWAY: u64 = u64::MAX;

/// All readers of a set of arenas, and the number of retirements so far.
#[derive(Debug)]
pub struct Epochs {
    retirements: AtomicU64,
    seats: Mutex<Vec<Arc<ReaderSlot>>>,
}

/// The count that one reader saw when it pinned.
#[derive(Debug)]
#[repr(align(128))] // one pair of cache lines a reader, since each writes once a loop iteration
struct ReaderSlot {
    saw: AtomicU64,
}

/// One thread's right to read. Dropping it frees the slot.
#[derive(Debug)]
pub struct Reader {
    epochs: Arc<Epochs>,
    seat: Arc<ReaderSlot>,
}

/// While a guard lives, nothing that its holder can see is dropped. Dropping it is the quiescent point.
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

    /// Records that something has become unreachable, and returns the number to compare with [`Epochs::oldest`].
    pub(crate) fn retire(&self) -> u64 {
        self.retirements.fetch_add(1, Ordering::AcqRel)
    }

    /// No reader can see anything that was retired with a number below this.
    pub(crate) fn oldest(&self) -> u64 {
        fence(Ordering::SeqCst);
        lock(&self.seats).iter().map(|seat| seat.saw.load(Ordering::Acquire)).min().unwrap_or(AWAY)
    }
}

impl Reader {
    /// Begins to read.
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
    /// Whether it guards records of `epochs`.
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
