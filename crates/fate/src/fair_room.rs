//! Room in a bounded queue that several parties fill.
//!
//! A party may have as many things in the queue as `most`, and seven times as many as there is free room. So one party alone
//! uses seven eighths of the queue, several that fill it have equal parts, and one that comes next finds room in any case.
//! (This is the dynamic threshold of Choudhury and Hahne, 1998, with a factor of seven.) It takes no lock and no clock.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Counts of parties. Parties whose numbers collide share one.
const COUNTS: usize = 1024;

/// A party that has this many times the free room gets no more.
const FACTOR: u32 = 7;

/// Room beyond that, so that short queues have some for others, too.
const SPARE: u32 = 8;

/// How much each party has in a queue.
#[derive(Debug)]
pub struct FairRoom {
    counts: Box<[AtomicU32]>,
    total: AtomicU32,
    most: u32,
}

impl FairRoom {
    /// Room for `most` things of a party, and for some of others.
    pub fn new(most: usize) -> Self {
        let most = u32::try_from(most).unwrap_or(u32::MAX / 2);
        FairRoom { counts: (0..COUNTS).map(|_| AtomicU32::new(0)).collect(), total: 0.into(), most }
    }

    /// How long a queue has to be for it.
    pub fn capacity(&self) -> usize {
        (self.most + self.most / FACTOR + SPARE) as usize
    }

    /// Takes room for one thing of a party; whether there was any.
    pub fn enter(&self, party: usize) -> bool {
        let count = self.count(party);
        // Threads that come at the same time may each see the other: then both are refused, at the bound only.
        let (own, total) = (count.fetch_add(1, Relaxed), self.total.fetch_add(1, Relaxed));
        let free = (self.capacity() as u32).saturating_sub(total);
        let has_room = own < self.most && own < free.saturating_mul(FACTOR);
        if !has_room {
            self.leave(party);
        }
        has_room
    }

    /// Gives back the room of a thing.
    pub fn leave(&self, party: usize) {
        self.count(party).fetch_sub(1, Relaxed);
        self.total.fetch_sub(1, Relaxed);
    }

    /// How much the party with most has, and how much one may have.
    pub fn usage(&self) -> (usize, usize) {
        let most = self.counts.iter().map(|count| count.load(Relaxed)).max().unwrap_or_default();
        (most as usize, self.most as usize)
    }

    fn count(&self, party: usize) -> &AtomicU32 {
        &self.counts[party % COUNTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_fills_it_leaves_room_for_others() {
        for most in [1, 2, 100, 1024, 4096] {
            let room = FairRoom::new(most);
            assert_eq!((0..2 * most).filter(|_| room.enter(1)).count(), most, "one alone has all that one may have");
            let others = (0..2 * most).filter(|_| room.enter(2)).count();
            assert!(others > most / 10, "{others} of {most}");
            assert!(room.enter(3), "{most}");
            assert_eq!(room.usage(), (most, most));
        }
    }

    #[test]
    fn those_that_fill_it_have_equal_parts() {
        let (room, mut queue) = (FairRoom::new(1024), std::collections::VecDeque::new());
        for n in 0..100_000 {
            // The first one tries twenty times as often as each other.
            let party = if n % 2 == 0 { 0 } else { n / 2 % 20 };
            if room.enter(party) {
                queue.push_back(party);
            }
            if n % 7 == 0 {
                queue.pop_front().into_iter().for_each(|party| room.leave(party));
            }
        }
        let has: Vec<usize> = (0..20).map(|party| queue.iter().filter(|it| **it == party).count()).collect();
        assert!(has.iter().all(|n| (40..80).contains(n)) && queue.len() <= room.capacity(), "{has:?}");
    }

    #[test]
    fn threads_lose_no_count() {
        let room = FairRoom::new(50);
        std::thread::scope(|scope| {
            for party in 0..4 {
                let room = &room;
                scope.spawn(move || (0..20_000).filter(|_| room.enter(party)).for_each(|_| room.leave(party)));
            }
        });
        assert_eq!(room.total.load(Relaxed), 0);
        assert!((0..50).all(|_| room.enter(9)) && !room.enter(9));
    }
}
