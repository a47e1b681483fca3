//! The order in which a lookup visits subtables: by falling maximum priority; Open vSwitch's priority vector.
//!
//! The subtables visited before the winner add bits to the mask, so the order among subtables of equal maximum priority
//! matters. It equals that of OVS (lib/pvector.c) after the same history: a new subtable goes to the end, the last one
//! takes the place of a removed one, a changed priority is changed in place, and then everything is sorted stably.

/// A subtable and its maximum priority. A lookup reads no other memory to know when to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubtableRank {
    pub priority: u32,
    pub subtable: u32,
}

/// The visiting order.
#[derive(Debug, Default)]
pub(crate) struct VisitOrder {
    ranks: Vec<SubtableRank>,
    /// Sorting waits for [`VisitOrder::publish`].
    deferred: bool,
    /// It has changed since it was last sorted.
    unsorted: bool,
}

impl VisitOrder {
    pub fn insert(&mut self, subtable: u32, priority: u32) {
        self.ranks.push(SubtableRank { priority, subtable });
        self.settle(self.ranks.len() - 1);
    }

    pub fn remove(&mut self, subtable: u32) {
        let at = self.find(subtable);
        self.ranks.swap_remove(at);
        if at < self.ranks.len() {
            self.settle(at);
        }
    }

    pub fn change(&mut self, subtable: u32, priority: u32) {
        let at = self.find(subtable);
        self.ranks[at].priority = priority;
        self.settle(at);
    }

    fn find(&self, subtable: u32) -> usize {
        self.ranks.iter().position(|p| p.subtable == subtable).expect("invariant: every subtable is in the order")
    }

    /// Moves element `at`, the only one that may be out of order, to where a stable sort would: after equals if it
    /// moves to the front, before them if it moves to the end.
    fn settle(&mut self, at: usize) {
        if self.deferred {
            self.unsorted = true;
            return;
        }
        let priority = self.ranks[at].priority;
        let front = self.ranks[..at].partition_point(|p| p.priority >= priority);
        self.ranks[front..=at].rotate_right(1);
        if front == at {
            let behind = self.ranks[at + 1..].partition_point(|p| p.priority > priority);
            self.ranks[at..=at + behind].rotate_left(1);
        }
    }

    /// Leaves changes unsorted until [`publish`](Self::publish).
    pub fn defer(&mut self) {
        self.deferred = true;
    }

    /// Sorts now and after each further change.
    pub fn publish(&mut self) {
        self.deferred = false;
        if self.unsorted {
            self.ranks.sort_by_key(|p| std::cmp::Reverse(p.priority));
            self.unsorted = false;
        }
    }

    /// Whether the subtables are sorted, so that a lookup may stop early.
    #[inline]
    pub fn is_sorted(&self) -> bool {
        !self.unsorted
    }

    #[inline]
    pub fn ranks(&self) -> &[SubtableRank] {
        &self.ranks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::Index;

    fn subtables(order: &VisitOrder) -> Vec<u32> {
        order.ranks().iter().map(|p| p.subtable).collect()
    }

    #[test]
    fn equals_keep_the_order_of_arrival() {
        let mut order = VisitOrder::default();
        [(0, 5), (1, 7), (2, 5), (3, 7)].iter().for_each(|&(subtable, priority)| order.insert(subtable, priority));
        assert_eq!(subtables(&order), [1, 3, 0, 2]);
        order.change(0, 7);
        assert_eq!(subtables(&order), [1, 3, 0, 2]);
        order.change(1, 5);
        assert_eq!(subtables(&order), [3, 0, 1, 2]);
    }

    #[test]
    fn the_last_takes_the_place_of_a_vanished_one() {
        let mut order = VisitOrder::default();
        [(0, 5), (1, 5), (2, 5), (3, 5)].iter().for_each(|&(subtable, priority)| order.insert(subtable, priority));
        order.remove(0);
        assert_eq!(subtables(&order), [3, 1, 2]);
    }

    proptest! {
        #[test]
        fn settling_one_place_is_sorting_stably(
            steps in prop::collection::vec((0u8..4, any::<Index>(), 0u32..5), 1..60),
        ) {
            let mut order = VisitOrder::default();
            let mut sorted: Vec<SubtableRank> = Vec::new();
            for (next, (verb, which, priority)) in steps.into_iter().enumerate() {
                if verb < 2 || sorted.is_empty() {
                    order.insert(next as u32, priority);
                    sorted.push(SubtableRank { priority, subtable: next as u32 });
                } else {
                    let at = which.index(sorted.len());
                    if verb == 2 {
                        order.change(sorted[at].subtable, priority);
                        sorted[at].priority = priority;
                    } else {
                        order.remove(sorted[at].subtable);
                        sorted.swap_remove(at);
                    }
                }
                sorted.sort_by_key(|p| std::cmp::Reverse(p.priority));
                prop_assert_eq!(order.ranks(), &sorted[..]);
            }
        }
    }
}
