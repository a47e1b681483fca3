//! The arena under load: ids reused all the time while readers look at whatever they can get.

use sluice_sync::{Arena, Epochs, MessageQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// A record that notices when it is looked at after its end: all words are equal while it lives.
struct Record {
    words: [u64; 12],
    dropped: Arc<AtomicUsize>,
}

impl Record {
    fn check(&self) {
        assert!(self.words.iter().all(|w| *w == self.words[0]) && self.words[0] != 0, "{:?}", self.words);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.check();
        self.words = std::array::from_fn(|i| i as u64);
        self.dropped.fetch_add(1, Relaxed);
    }
}

#[test]
fn readers_see_whole_records_while_ids_are_reused() {
    let (epochs, dropped, stop) = (Epochs::new(), Arc::new(AtomicUsize::new(0)), AtomicBool::new(false));
    let arena: Arena<Record> = Arena::new(&epochs, 4).unwrap();
    let inserted = std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut reader = Epochs::register(&epochs);
            let (arena, stop) = (&arena, &stop);
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    let guard = reader.pin();
                    let slots = arena.read(&guard);
                    let seen: Vec<_> = (0..6).filter_map(|id| slots.get(id)).collect();
                    (0..3).for_each(|_| seen.iter().for_each(|record| record.check()));
                }
            });
        }
        let (mut live, mut inserted) = (std::collections::VecDeque::new(), 0);
        for round in 1..60_000u64 {
            if let Ok(id) = arena.insert(0, |_| Record { words: [round; 12], dropped: dropped.clone() }) {
                live.push_back(id);
                inserted += 1;
            }
            if live.len() > 2 || round % 3 == 0 {
                live.pop_front().inspect(|id| assert!(arena.retire(*id)));
            }
            arena.reclaim(usize::MAX, |_, record| record.check());
        }
        stop.store(true, Relaxed);
        inserted
    });
    drop(arena);
    assert_eq!(dropped.load(Relaxed), inserted, "every record is dropped exactly once");
}

#[test]
fn a_sleeping_reader_does_not_block_reclaim_and_a_looking_one_does() {
    let epochs = Epochs::new();
    let arena = Arena::new(&epochs, 8).unwrap();
    let (mut looking, _asleep) = (Epochs::register(&epochs), Epochs::register(&epochs));
    let id = arena.insert(0, |_| 5u32).unwrap();
    let guard = looking.pin();
    let seen = arena.read(&guard).get(id).unwrap();
    assert!(arena.retire(id));
    assert_eq!(arena.reclaim(usize::MAX, |_, _| ()), 0);
    assert_eq!(*seen, 5);
    assert_eq!(arena.read(&guard).get(id), None, "a dead record is not found again");
    drop(guard);
    assert_eq!(arena.reclaim(usize::MAX, |_, _| ()), 1);
    assert_eq!(arena.insert(0, |_| 6).unwrap(), id, "the id is the first to be reused");
}

#[test]
fn an_id_whose_record_was_not_made_is_used_by_the_next() {
    let arena: Arena<u8> = Arena::new(&Epochs::new(), 1).unwrap();
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| arena.insert(0, |_| panic!("no record"))));
    assert!(made.is_err());
    assert_eq!(arena.insert(1, |_| 7), Ok(0));
}

#[test]
fn capacity_is_a_limit_not_a_panic() {
    let epochs = Epochs::new();
    let arena = Arena::new(&epochs, 1).unwrap();
    assert_eq!(arena.insert(0, |_| 'a').unwrap(), 0);
    assert_eq!(arena.insert(0, |_| 'b').unwrap_err().capacity, 1);
    let mut reader = Epochs::register(&epochs);
    let guard = reader.pin();
    assert_eq!(arena.read(&guard).get(u32::MAX), None);
    assert!(!arena.retire(u32::MAX));
}

#[test]
#[should_panic = "its own epochs"]
fn a_guard_of_other_epochs_is_refused() {
    let arena: Arena<u8> = Arena::new(&Epochs::new(), 1).unwrap();
    let mut reader = Epochs::register(&Epochs::new());
    let guard = reader.pin();
    arena.read(&guard);
}

#[test]
fn mail_of_several_senders_arrives_whole() {
    let mailbox = MessageQueue::default();
    let mut got = Vec::new();
    std::thread::scope(|scope| {
        for sender in 0..3 {
            let mailbox = &mailbox;
            scope.spawn(move || (0..1000).for_each(|i| mailbox.post((sender, i))));
        }
        while got.len() < 3000 {
            mailbox.take(5, &mut got);
            std::thread::yield_now();
        }
    });
    for sender in 0..3 {
        let of_sender: Vec<_> = got.iter().filter(|m| m.0 == sender).map(|m| m.1).collect();
        assert_eq!(of_sender, (0..1000).collect::<Vec<_>>());
    }
}
