//! Which ids of an array are free, and which owner gets which.

/// Ids of a run: a bit each in a word.
const RUN: u32 = u64::BITS;
/// The list of runs of which no id is used.
const UNUSED: u32 = 0;
/// The end of a list.
const END: u32 = u32::MAX;
/// No run is begun while this part of all ids handed out so far, and a run for each owner, is free.
const FREE_PART: u32 = 4;

/// The ids below a fixed capacity, handed out to owners in runs of 64.
///
/// What an owner keeps by id, such as counters of four words, lies beside what it keeps of its other ids: with ids
/// handed out in one row, two owners that insert by turns would each use half of every cache line.
///
/// An owner gets a free id of its own runs; else one of an unused run, which becomes its own; else one of the next run,
/// or of another owner's if many ids are free there. So the ids handed out so far are at most a third more than were
/// ever used at once, and two runs for each owner. A full run in which an id is freed becomes the first of its list, which
/// keeps the cache warm.
///
/// Shape:  24 bytes a run; runs with free ids are linked, in a list for each owner and one of unused runs.
#[derive(Debug)]
pub(crate) struct IdRuns {
    capacity: u32,
    /// Free ids of the runs.
    free: u32,
    /// Runs that were handed out.
    runs: Vec<Run>,
    /// The first run of each list: the unused ones, then those of each owner.
    first: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    /// A bit for each free id.
    free: u64,
    /// Its list, also while it is full and in none.
    list: u32,
    before: u32,
    after: u32,
}

impl IdRuns {
    pub fn new(capacity: u32) -> Self {
        // Reserved, so that it never moves: the lock that protects it is one that a PMD takes.
        IdRuns { capacity, free: 0, runs: Vec::with_capacity(capacity.div_ceil(RUN) as usize), first: vec![END] }
    }

    /// All ids handed out so far are below this.
    pub fn used(&self) -> u32 {
        (self.runs.len() as u32).saturating_mul(RUN).min(self.capacity)
    }

    /// An id that owner number `owner` may [`take`](IdRuns::take); `None` if all are used.
    pub fn free_id(&mut self, owner: usize) -> Option<u32> {
        let list = owner + 1;
        if self.first.len() <= list {
            self.first.resize(list + 1, END);
        }
        let run = match (self.first[list], self.first[UNUSED as usize]) {
            (END, END) if self.has_many_free() => self.run_of_another()?,
            (END, END) => self.next_run(list as u32).or_else(|| self.run_of_another())?,
            (END, unused) => {
                self.unlink(unused);
                self.runs[unused as usize].list = list as u32;
                self.link(unused);
                unused
            }
            (own, _) => own,
        };
        Some(run * RUN + self.runs[run as usize].free.trailing_zeros())
    }

    /// Makes a free id a used one.
    pub fn take(&mut self, id: u32) {
        let run = id / RUN;
        let free = &mut self.runs[run as usize].free;
        debug_assert!(*free >> (id % RUN) & 1 != 0);
        *free &= !(1 << (id % RUN));
        if *free == 0 {
            self.unlink(run);
        }
        self.free -= 1;
    }

    /// The owner of the run that contains a used id.
    pub fn owner(&self, id: u32) -> usize {
        self.runs[(id / RUN) as usize].list.saturating_sub(1) as usize
    }

    /// Frees an id.
    pub fn give(&mut self, id: u32) {
        let run = id / RUN;
        let was = self.runs[run as usize].free;
        let free = was | 1 << (id % RUN);
        debug_assert_ne!(was, free);
        self.runs[run as usize].free = free;
        self.free += 1;
        if free == self.all_of(run) {
            if was != 0 {
                self.unlink(run);
            }
            self.runs[run as usize].list = UNUSED;
            self.link(run);
        } else if was == 0 {
            self.link(run);
        }
    }

    /// The ids of a run; the last one may have fewer.
    fn all_of(&self, run: u32) -> u64 {
        u64::MAX >> (RUN - (self.capacity - run * RUN).min(RUN))
    }

    fn has_many_free(&self) -> bool {
        let owners = self.first.len() as u32 - 1;
        self.free > self.used() / FREE_PART + owners * RUN
    }

    fn next_run(&mut self, list: u32) -> Option<u32> {
        let run = self.runs.len() as u32;
        if self.used() == self.capacity {
            return None;
        }
        self.free += self.all_of(run).count_ones();
        self.runs.push(Run { free: self.all_of(run), list, before: END, after: END });
        self.link(run);
        Some(run)
    }

    fn run_of_another(&self) -> Option<u32> {
        self.first.iter().copied().find(|run| *run != END)
    }

    /// Puts a run at the front of its list.
    fn link(&mut self, run: u32) {
        let list = self.runs[run as usize].list as usize;
        let after = std::mem::replace(&mut self.first[list], run);
        if after != END {
            self.runs[after as usize].before = run;
        }
        let linked = &mut self.runs[run as usize];
        (linked.before, linked.after) = (END, after);
    }

    fn unlink(&mut self, run: u32) {
        let Run { list, before, after, .. } = self.runs[run as usize];
        match before {
            END => self.first[list as usize] = after,
            _ => self.runs[before as usize].after = after,
        }
        if after != END {
            self.runs[after as usize].before = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    impl IdRuns {
        fn get(&mut self, owner: usize) -> Option<u32> {
            let id = self.free_id(owner)?;
            self.take(id);
            Some(id)
        }

        /// The runs of each list, first to last.
        fn lists(&self) -> Vec<Vec<u32>> {
            let list = |first: &u32| {
                let (mut runs, mut at, mut before) = (Vec::new(), *first, END);
                while at != END {
                    assert_eq!(self.runs[at as usize].before, before);
                    runs.push(at);
                    (before, at) = (at, self.runs[at as usize].after);
                }
                runs
            };
            self.first.iter().map(list).collect()
        }

        /// Whether everything is as the ids in use, with their owners, say.
        fn check(&self, used: &BTreeMap<u32, usize>) {
            let lists = self.lists();
            for (run, has) in (0..).zip(&self.runs) {
                let ids = run * RUN..(run * RUN).saturating_add(RUN).min(self.capacity);
                let free = ids.clone().filter(|id| !used.contains_key(id)).fold(0, |free, id| free | 1 << (id % RUN));
                assert_eq!(has.free, free);
                let at: Vec<usize> = (0..lists.len()).filter(|list| lists[*list].contains(&run)).collect();
                let is_unused = used.range(ids).next().is_none();
                assert_eq!(is_unused, has.list == UNUSED);
                assert_eq!(at, if free == 0 { vec![] } else { vec![has.list as usize] });
            }
            assert_eq!(self.free, self.runs.iter().map(|run| run.free.count_ones()).sum::<u32>());
            assert_eq!(lists.iter().flatten().count(), self.runs.iter().filter(|run| run.free != 0).count());
        }
    }

    proptest! {
        #[test]
        fn ids_are_used_once_and_by_the_owner_of_their_run_unless_many_are_free(
            capacity in prop_oneof![1..5u32, 60..70u32, 100..400u32, 4000..5000u32],
            steps in prop::collection::vec((0..3usize, 0..5u8, any::<prop::sample::Index>()), 1..900),
        ) {
            let mut ids = IdRuns::new(capacity);
            let mut used: BTreeMap<u32, usize> = BTreeMap::new();
            let mut most_used = 0;
            for (owner, kind, which) in steps {
                if kind < 3 {
                    let before = ids.lists();
                    let many_are_free = ids.has_many_free();
                    let Some(id) = ids.get(owner) else {
                        prop_assert_eq!(used.len(), capacity as usize);
                        continue;
                    };
                    prop_assert!(id < ids.used() && ids.used() <= capacity);
                    let list = |list: usize| before.get(list).map_or(&[][..], |runs| &runs[..]);
                    let (own, unused, run) = (list(owner + 1), list(UNUSED as usize), id / RUN);
                    if !own.is_empty() {
                        prop_assert_eq!(run, own[0]);
                    } else if !unused.is_empty() {
                        prop_assert_eq!(run, unused[0]);
                    } else if ids.owner(id) != owner {
                        prop_assert!(many_are_free || ids.used() == capacity);
                    }
                    prop_assert!(used.insert(id, owner).is_none());
                } else if !used.is_empty() {
                    let id = *used.keys().nth(which.index(used.len())).unwrap();
                    used.remove(&id);
                    ids.give(id);
                }
                ids.check(&used);
                most_used = most_used.max(used.len() as u32);
                prop_assert!(ids.used() <= most_used * FREE_PART / (FREE_PART - 1) + 2 * 3 * RUN);
            }
        }
    }

    #[test]
    fn owners_that_take_by_turns_share_no_run() {
        let mut ids = IdRuns::new(1 << 12);
        let taken: Vec<(usize, u32)> = (0..2000).map(|n| (n % 2, ids.get(n % 2).unwrap())).collect();
        assert!(taken.iter().all(|(owner, id)| ids.owner(*id) == *owner && (id / RUN) as usize % 2 == *owner));
        assert_eq!(ids.used(), 2048);
    }

    #[test]
    fn an_unused_run_is_reused_before_a_new_one() {
        let mut ids = IdRuns::new(1 << 12);
        let of_first: Vec<u32> = (0..128).map(|_| ids.get(0).unwrap()).collect();
        of_first.iter().for_each(|id| ids.give(*id));
        let of_second: Vec<u32> = (0..128).map(|_| ids.get(1).unwrap()).collect();
        assert_eq!((ids.used(), ids.owner(of_second[0]), ids.owner(of_second[127])), (128, 1, 1));
        assert_eq!(ids.get(0), Some(128));
    }

    /// One id that stays used keeps a run from becoming another owner's.
    #[test]
    fn what_owners_leave_behind_is_used_by_the_next() {
        let (live, owners) = (64_000, 16);
        let mut ids = IdRuns::new(1 << 22);
        let mut used: Vec<u32> = (0..live).map(|_| ids.get(0).unwrap()).collect();
        for owner in 1..owners {
            let (stay, go): (Vec<u32>, Vec<u32>) = used.iter().partition(|id| **id % RUN == 7);
            go.iter().for_each(|id| ids.give(*id));
            used = (stay.len()..live).map(|_| ids.get(owner).unwrap()).chain(stay).collect();
        }
        let bound = live as u32 * FREE_PART / (FREE_PART - 1) + 2 * owners as u32 * RUN;
        assert!(ids.used() <= bound, "{} ids for {live} that are used", ids.used());
    }
}
