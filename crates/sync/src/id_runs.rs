//! Which ids of an array are free, and who gets which.

/// Ids of a run: a bit each in a word.
const RUN: u32 = u64::BITS;
/// The list of runs of which no id is used.
const UNUSED: u32 = 0;
/// The end of a list.
const END: u32 = u32::MAX;

/// The ids below a fixed capacity, handed out to owners in runs of 64.
///
/// What an owner keeps by id, such as counters of four words, lies beside what it keeps of its other ids: with ids
/// handed out in one row, two owners that insert by turns would each use half of every cache line.
///
/// An owner gets a free id of its own runs; else an unused run, which may have been another's; else the next run that
/// nobody has had; else another's id. The run in which an id was freed last comes first, which keeps the cache warm.
///
/// Shape:  24 bytes a run; runs with free ids are linked, in a list for each owner and one of unused runs.
#[derive(Debug)]
pub(crate) struct IdRuns {
    capacity: u32,
    /// Runs that somebody has had.
    runs: Vec<Run>,
    /// The first run of each list: the unused ones, then those of each owner.
    first: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    /// A bit for each free id.
    free: u64,
    /// The list that it is in, or that it comes to with the first id that is freed.
    list: u32,
    before: u32,
    after: u32,
}

impl IdRuns {
    pub fn new(capacity: u32) -> Self {
        // Reserved, so that it never moves: the lock that protects it is one that a PMD takes.
        IdRuns { capacity, runs: Vec::with_capacity(capacity.div_ceil(RUN) as usize), first: vec![END] }
    }

    /// The ids that anybody has had are below.
    pub fn used(&self) -> u32 {
        (self.runs.len() as u32).saturating_mul(RUN).min(self.capacity)
    }

    /// A free id for an owner, numbered from 0; `None` if there is none.
    pub fn take(&mut self, owner: usize) -> Option<u32> {
        let list = owner + 1;
        if self.first.len() <= list {
            self.first.resize(list + 1, END);
        }
        let run = match (self.first[list], self.first[UNUSED as usize]) {
            (END, END) => self.next_run(list as u32).or_else(|| self.run_of_another())?,
            (END, unused) => {
                self.unlink(unused);
                self.runs[unused as usize].list = list as u32;
                self.link(unused);
                unused
            }
            (own, _) => own,
        };
        let free = &mut self.runs[run as usize].free;
        let id = run * RUN + free.trailing_zeros();
        *free &= *free - 1;
        if *free == 0 {
            self.unlink(run);
        }
        Some(id)
    }

    /// Whose run a used id is of.
    pub fn owner(&self, id: u32) -> usize {
        self.runs[(id / RUN) as usize].list.saturating_sub(1) as usize
    }

    /// Frees an id.
    pub fn give(&mut self, id: u32) {
        let run = id / RUN;
        let was = self.runs[run as usize].free;
        let free = was | 1 << (id % RUN);
        self.runs[run as usize].free = free;
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

    fn next_run(&mut self, list: u32) -> Option<u32> {
        let run = self.runs.len() as u32;
        if self.used() == self.capacity {
            return None;
        }
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
            assert_eq!(lists.iter().flatten().count(), self.runs.iter().filter(|run| run.free != 0).count());
        }
    }

    proptest! {
        #[test]
        fn ids_are_used_once_and_an_owner_has_runs_of_its_own_while_there_are_any(
            capacity in prop_oneof![1..5u32, 60..70u32, 100..400u32],
            steps in prop::collection::vec((0..3usize, 0..5u8, any::<prop::sample::Index>()), 1..900),
        ) {
            let mut ids = IdRuns::new(capacity);
            let mut used: BTreeMap<u32, usize> = BTreeMap::new();
            for (owner, kind, which) in steps {
                if kind < 3 {
                    let others = used.iter().filter(|(_, by)| **by != owner).map(|(id, _)| id / RUN);
                    let others: std::collections::BTreeSet<u32> = others.collect();
                    let Some(id) = ids.take(owner) else {
                        prop_assert_eq!(used.len(), capacity as usize);
                        continue;
                    };
                    prop_assert!(id < ids.used() && ids.used() <= capacity);
                    if others.contains(&(id / RUN)) && ids.owner(id) != owner {
                        prop_assert_eq!(ids.used(), capacity, "another's id, although there are runs left");
                    }
                    prop_assert!(used.insert(id, owner).is_none());
                } else if !used.is_empty() {
                    let id = *used.keys().nth(which.index(used.len())).unwrap();
                    used.remove(&id);
                    ids.give(id);
                }
                ids.check(&used);
            }
        }
    }

    #[test]
    fn owners_that_take_by_turns_share_no_run() {
        let mut ids = IdRuns::new(1 << 12);
        let taken: Vec<(usize, u32)> = (0..2000).map(|n| (n % 2, ids.take(n % 2).unwrap())).collect();
        assert!(taken.iter().all(|(owner, id)| ids.owner(*id) == *owner && (id / RUN) as usize % 2 == *owner));
        assert_eq!(ids.used(), 2048);
    }

    #[test]
    fn an_unused_run_goes_to_whoever_needs_one_before_a_new_run() {
        let mut ids = IdRuns::new(1 << 12);
        let of_first: Vec<u32> = (0..128).map(|_| ids.take(0).unwrap()).collect();
        of_first.iter().for_each(|id| ids.give(*id));
        let of_second: Vec<u32> = (0..128).map(|_| ids.take(1).unwrap()).collect();
        assert_eq!((ids.used(), ids.owner(of_second[0]), ids.owner(of_second[127])), (128, 1, 1));
        assert_eq!(ids.take(0), Some(128));
    }
}
