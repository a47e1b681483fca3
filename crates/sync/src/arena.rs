//! Shared records under stable ids.
//!
//! One array of a fixed number of slots, in pages that the kernel provides when they are first written. So an id is
//! found by one multiplication, and a large limit costs nothing until it is used. Writers take a lock; readers take a
//! guard and load the slot's state.
//!
//! A slot is free, live, suspended or dead. [`Slots::get`] ignores a suspended record, which becomes live again or
//! dies; only [`Slots::get_any`] returns it. A dead slot waits for the epochs (see `epoch.rs`). Then its record is
//! handed to the thread that reclaims, and its id can be used again. Each owner, such as a PMD, has runs of ids (see
//! `id_runs.rs`).

use crate::id_runs::IdRuns;
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::primitive::{Arc, Mutex, lock};
use crate::{BlockDeque, Epochs, Guard};
use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;

const FREE: u32 = 0;
const LIVE: u32 = 1;
const DEAD: u32 = 2;
/// Like `LIVE`, but ignored by [`Slots::get`].
const SUSPENDED: u32 = 3;

/// Records of type `T` under ids below a fixed capacity.
///
/// Shape:  a slot is the state (4 bytes), then the record, aligned to a cache line.
/// Errors: [`ArenaFull`] when every slot is live or cannot be reclaimed yet. Reading any id that names no live record
/// gives `None`.
pub struct Arena<T> {
    epochs: Arc<Epochs>,
    slots: SlotArray<T>,
    writer: Mutex<Writer>,
}

#[repr(C, align(64))]
struct ArenaSlot<T> {
    state: AtomicU32,
    /// Initialised unless the state is `FREE`.
    value: UnsafeCell<MaybeUninit<T>>,
}

/// What writers share.
#[derive(Debug)]
struct Writer {
    /// Which slots are free.
    ids: IdRuns,
    /// Dead slots with their retirement numbers, oldest first.
    dead: BlockDeque<(u32, u64)>,
}

// SAFETY: the arena owns its records and may drop them on any thread (`T: Send`) and lends them to several threads at
// once (`T: Sync`). The cells are written only by writers, under the lock, in slots no reader looks into: see
// `insert` and `reclaim`.
unsafe impl<T: Send + Sync> Sync for Arena<T> {}
// SAFETY: as above; moving the arena moves records of `T: Send`.
unsafe impl<T: Send + Sync> Send for Arena<T> {}

/// Every slot is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaFull {
    /// How many slots there are.
    pub capacity: usize,
}

/// An arena read under a guard.
pub struct Slots<'g, T> {
    slots: &'g [ArenaSlot<T>],
}

impl<T> Clone for Slots<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slots<'_, T> {}

impl<T: Send + Sync> Arena<T> {
    /// An empty arena of `capacity` slots, read under guards of `epochs`.
    pub fn new(epochs: &Arc<Epochs>, capacity: u32) -> io::Result<Self> {
        let writer = Writer { ids: IdRuns::new(capacity), dead: BlockDeque::default() };
        Ok(Arena { epochs: epochs.clone(), slots: free_slots(capacity as usize)?, writer: Mutex::new(writer) })
    }

    /// How many records it can hold.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Inserts the record that `make` returns for its id. Returns the id, if possible of a run of owner number `owner`.
    pub fn insert(&self, owner: usize, make: impl FnOnce(u32) -> T) -> Result<u32, ArenaFull> {
        let mut writer = lock(&self.writer);
        let id = writer.ids.free_id(owner).ok_or(ArenaFull { capacity: self.slots.len() })?;
        let slot = &self.slots[id as usize];
        debug_assert_eq!(slot.state.load(Ordering::Relaxed), FREE);
        let record = make(id);
        // SAFETY: the slot is FREE and nobody else has its id: readers read LIVE slots only, the slot has not been LIVE
        // since it was last reclaimed, and the lock keeps other writers out.
        unsafe { (*slot.value.get()).write(record) };
        slot.state.store(LIVE, Ordering::Release);
        writer.ids.take(id);
        Ok(id)
    }

    /// The owner of the run that contains the id of a record.
    pub fn owner(&self, id: u32) -> usize {
        lock(&self.writer).ids.owner(id)
    }

    /// Makes a record unreachable for guards taken from now on. Returns whether it was live or suspended.
    pub fn retire(&self, id: u32) -> bool {
        let mut writer = lock(&self.writer);
        let Some(slot) = self.slots.get(id as usize) else { return false };
        if !matches!(slot.state.load(Ordering::Relaxed), LIVE | SUSPENDED) {
            return false;
        }
        // A swap, not a store: a concurrent suspend or resume happens before it, or finds the record dead.
        slot.state.swap(DEAD, Ordering::AcqRel);
        writer.dead.push_back((id, self.epochs.retire()));
        true
    }

    /// Passes dead records that no guard can see to `each` and frees their ids; `max` at most. Returns how many there were.
    ///
    /// `each` runs before the id can be used again, with the arena locked: it must not call the arena.
    pub fn reclaim(&self, max: usize, mut each: impl FnMut(u32, T)) -> usize {
        let mut writer = lock(&self.writer);
        if writer.dead.is_empty() {
            return 0;
        }
        let oldest = self.epochs.oldest();
        let mut n = 0;
        while n < max
            && let Some(&(id, number)) = writer.dead.front()
            && number < oldest
        {
            writer.dead.pop_front();
            let slot = &self.slots[id as usize];
            // SAFETY: a DEAD slot holds a record, which is moved out once, since its id has just left `dead`. No reader
            // has a reference: all guards that could have seen it LIVE are gone (`Epochs::oldest`).
            let value = unsafe { (*slot.value.get()).assume_init_read() };
            slot.state.store(FREE, Ordering::Relaxed);
            each(id, value);
            writer.ids.give(id);
            n += 1;
        }
        n
    }

    /// Makes the pages of some slots resident now, so that a writer does not wait for the kernel.
    #[cfg(not(test))]
    pub fn populate(&self, ids: std::ops::Range<usize>) -> io::Result<()> {
        self.slots.populate(ids)
    }

    /// Dead records that are not reclaimed yet.
    pub fn waiting(&self) -> usize {
        lock(&self.writer).dead.len()
    }

    /// Every id that was ever used is below.
    pub fn used(&self) -> u32 {
        lock(&self.writer).ids.used()
    }

    /// The arena under a guard, whose epochs must be the arena's own.
    #[inline]
    pub fn read<'g>(&'g self, guard: &'g Guard<'_>) -> Slots<'g, T> {
        assert!(guard.belongs_to(&self.epochs), "invariant: an arena is read under a guard of its own epochs");
        Slots { slots: &self.slots }
    }
}

impl<'g, T> Slots<'g, T> {
    /// The record, if it is live.
    #[inline(always)]
    pub fn get(&self, id: u32) -> Option<&'g T> {
        let slot = self.slots.get(id as usize)?;
        if slot.state.load(Ordering::Acquire) != LIVE {
            return None;
        }
        // SAFETY: LIVE was stored after the record was written, and was loaded with acquire. The record stays until
        // every guard that saw it LIVE is gone, and this guard outlives 'g. Nothing writes to it meanwhile.
        Some(unsafe { (*slot.value.get()).assume_init_ref() })
    }

    /// The record, if it is live or suspended, and whether it is suspended.
    #[inline]
    pub fn get_any(&self, id: u32) -> Option<(&'g T, bool)> {
        let slot = self.slots.get(id as usize)?;
        let state = slot.state.load(Ordering::Acquire);
        if !matches!(state, LIVE | SUSPENDED) {
            return None;
        }
        // SAFETY: as in `get`: a slot becomes SUSPENDED only from LIVE, with its record as it was.
        Some((unsafe { (*slot.value.get()).assume_init_ref() }, state == SUSPENDED))
    }

    /// Makes [`Slots::get`] ignore a live record. Returns whether it was live.
    pub fn suspend(&self, id: u32) -> bool {
        self.change(id, LIVE, SUSPENDED)
    }

    /// Makes a suspended record live. Returns whether it was suspended.
    pub fn resume(&self, id: u32) -> bool {
        self.change(id, SUSPENDED, LIVE)
    }

    fn change(&self, id: u32, from: u32, to: u32) -> bool {
        // A record that dies meanwhile stays dead: the swap in `retire` comes after this exchange, or the exchange
        // fails.
        self.slots
            .get(id as usize)
            .is_some_and(|slot| slot.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok())
    }

    /// Prefetches a record's first two cache lines.
    #[inline(always)]
    pub fn prefetch(&self, id: u32) {
        if let Some(slot) = self.slots.get(id as usize) {
            let line = std::ptr::from_ref(slot).cast::<[u8; 64]>();
            sluice_simd::prefetch::read(line);
            sluice_simd::prefetch::read(line.wrapping_add(1));
        }
    }
}

impl<T> Drop for Arena<T> {
    fn drop(&mut self) {
        let used = lock(&self.writer).ids.used() as usize;
        for slot in &self.slots[..used] {
            if slot.state.load(Ordering::Relaxed) != FREE {
                // SAFETY: a slot that is not FREE holds a record, and `&mut self` excludes readers.
                unsafe { (*slot.value.get()).assume_init_drop() };
            }
        }
    }
}

// SAFETY: zeros are a slot in state FREE, whose record is not initialised; the arena drops records itself.
#[cfg(not(test))]
unsafe impl<T> crate::lazy::Zeroed for ArenaSlot<T> {}
const _: () = assert!(FREE == 0);

#[cfg(not(test))]
type SlotArray<T> = crate::LazyArray<ArenaSlot<T>>;

#[cfg(not(test))]
fn free_slots<T>(n: usize) -> io::Result<SlotArray<T>> {
    crate::LazyArray::new(n)
}

/// Loom's atomics must be made one by one.
#[cfg(test)]
type SlotArray<T> = Box<[ArenaSlot<T>]>;

#[cfg(test)]
fn free_slots<T>(n: usize) -> io::Result<SlotArray<T>> {
    let free = || ArenaSlot { state: AtomicU32::new(FREE), value: UnsafeCell::new(MaybeUninit::uninit()) };
    Ok((0..n).map(|_| free()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::cell;
    use loom::thread;

    /// A record whose reads and drop loom checks against each other.
    struct Record {
        number: cell::UnsafeCell<u64>,
    }

    impl Record {
        fn new(number: u64) -> Self {
            Record { number: cell::UnsafeCell::new(number) }
        }
        fn read(&self) -> u64 {
            // SAFETY: loom checks exactly this.
            self.number.with(|p| unsafe { *p })
        }
    }

    impl Drop for Record {
        fn drop(&mut self) {
            // SAFETY: loom checks exactly this.
            self.number.with_mut(|p| unsafe { *p = u64::MAX });
        }
    }

    // SAFETY: the cell is loom's, which reports every race.
    unsafe impl Sync for Record {}

    #[test]
    fn a_record_outlives_every_guard_that_saw_it() {
        loom::model(|| {
            let epochs = Epochs::new();
            let arena = Arc::new(Arena::new(&epochs, 2).unwrap());
            let id = arena.insert(0, |_| Record::new(7)).unwrap();
            let mut reader = Epochs::register(&epochs);
            let looking = arena.clone();
            let thread = thread::spawn(move || {
                for _ in 0..2 {
                    let guard = reader.pin();
                    if let Some(record) = looking.read(&guard).get(id) {
                        assert_eq!(record.read(), 7);
                    }
                }
            });
            assert!(arena.retire(id));
            assert!(!arena.retire(id));
            arena.reclaim(usize::MAX, |_, record| drop(record));
            thread.join().unwrap();
            arena.reclaim(usize::MAX, |_, record| drop(record));
            assert_eq!(arena.waiting(), 0, "an unpinned reader keeps nobody waiting");
        });
    }

    #[test]
    fn a_reused_id_shows_the_old_record_or_the_new() {
        loom::model(|| {
            let epochs = Epochs::new();
            let arena = Arc::new(Arena::new(&epochs, 1).unwrap());
            let id = arena.insert(0, |_| Record::new(1)).unwrap();
            let mut reader = Epochs::register(&epochs);
            let looking = arena.clone();
            let thread = thread::spawn(move || {
                let guard = reader.pin();
                let slots = looking.read(&guard);
                let first = slots.get(id);
                let second = slots.get(id);
                first.inspect(|r| assert!([1, 2].contains(&r.read())));
                second.inspect(|r| assert!([1, 2].contains(&r.read())));
                // What the guard saw first is still whole.
                first.inspect(|r| assert!([1, 2].contains(&r.read())));
            });
            arena.retire(id);
            arena.reclaim(usize::MAX, |_, record| drop(record));
            if let Ok(again) = arena.insert(0, |_| Record::new(2)) {
                assert_eq!(again, id);
            }
            thread.join().unwrap();
        });
    }

    #[test]
    fn a_suspended_record_is_passed_over_and_a_dead_one_stays_dead() {
        loom::model(|| {
            let epochs = Epochs::new();
            let arena = Arc::new(Arena::new(&epochs, 1).unwrap());
            let id = arena.insert(0, |_| Record::new(7)).unwrap();
            let mut reader = Epochs::register(&epochs);
            let other = arena.clone();
            let thread = thread::spawn(move || {
                let guard = reader.pin();
                let slots = other.read(&guard);
                if slots.suspend(id) {
                    assert!(slots.get(id).is_none() || !slots.suspend(id));
                    slots.get_any(id).inspect(|(r, _)| assert_eq!(r.read(), 7));
                    slots.resume(id);
                }
            });
            assert!(arena.retire(id));
            arena.reclaim(usize::MAX, |_, record| drop(record));
            thread.join().unwrap();
            let mut reader = Epochs::register(&epochs);
            assert!(arena.read(&reader.pin()).get_any(id).is_none(), "nobody brought it back");
            arena.reclaim(usize::MAX, |_, record| drop(record));
            assert_eq!(arena.waiting(), 0);
        });
    }

    #[test]
    fn a_reader_that_registers_late_sees_no_dead_record() {
        loom::model(|| {
            let epochs = Epochs::new();
            let arena = Arc::new(Arena::new(&epochs, 1).unwrap());
            let id = arena.insert(0, |_| Record::new(1)).unwrap();
            let (looking, theirs) = (arena.clone(), epochs.clone());
            let thread = thread::spawn(move || {
                let mut reader = Epochs::register(&theirs);
                let guard = reader.pin();
                looking.read(&guard).get(id).inspect(|r| assert_eq!(r.read(), 1));
            });
            arena.retire(id);
            arena.reclaim(usize::MAX, |_, record| drop(record));
            thread.join().unwrap();
        });
    }
}
