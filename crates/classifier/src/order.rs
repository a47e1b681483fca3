//! The order in which a lookup visits subtables: by falling maximum priority.
//!
//! Which subtables are visited before the winner is found decides the mask, so the order among subtables of equal
//! maximum priority is not free: it is what OVS's priority vector (lib/pvector.c) makes of the same history. A new
//! subtable goes to the end, a vanished one is replaced by the last, a changed priority changes in place, and then
//! the whole is sorted, stably.

/// A subtable and its maximum priority, side by side so that a walk needs no other memory to know when to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub priority: u32,
    pub subtable: u32,
}

/// The visiting order.
#[derive(Debug, Default)]
pub(crate) struct Order {
    places: Vec<Place>,
    /// Changed since it was last sorted.
    unsorted: bool,
}

impl Order {
    pub fn insert(&mut self, subtable: u32, priority: u32) {
        self.places.push(Place { priority, subtable });
        self.unsorted = true;
    }

    pub fn remove(&mut self, subtable: u32) {
        let at = self.find(subtable);
        self.places.swap_remove(at);
        self.unsorted = true;
    }

    pub fn change(&mut self, subtable: u32, priority: u32) {
        let at = self.find(subtable);
        self.places[at].priority = priority;
        self.unsorted = true;
    }

    fn find(&self, subtable: u32) -> usize {
        self.places.iter().position(|p| p.subtable == subtable).expect("invariant: every subtable has a place")
    }

    pub fn sort(&mut self) {
        if self.unsorted {
            self.places.sort_by_key(|p| std::cmp::Reverse(p.priority));
            self.unsorted = false;
        }
    }

    /// Whether the places are in order, so that a walk may stop early.
    #[inline]
    pub fn is_sorted(&self) -> bool {
        !self.unsorted
    }

    #[inline]
    pub fn places(&self) -> &[Place] {
        &self.places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subtables(order: &Order) -> Vec<u32> {
        order.places().iter().map(|p| p.subtable).collect()
    }

    #[test]
    fn equals_keep_the_order_of_arrival() {
        let mut order = Order::default();
        [(0, 5), (1, 7), (2, 5), (3, 7)].iter().for_each(|&(subtable, priority)| {
            order.insert(subtable, priority);
            order.sort();
        });
        assert_eq!(subtables(&order), [1, 3, 0, 2]);
        order.change(0, 7);
        order.sort();
        assert_eq!(subtables(&order), [1, 3, 0, 2]);
        order.change(1, 5);
        order.sort();
        assert_eq!(subtables(&order), [3, 0, 1, 2]);
    }

    #[test]
    fn the_last_takes_the_place_of_a_vanished_one() {
        let mut order = Order::default();
        [(0, 5), (1, 5), (2, 5), (3, 5)].iter().for_each(|&(subtable, priority)| order.insert(subtable, priority));
        order.remove(0);
        order.sort();
        assert_eq!(subtables(&order), [3, 1, 2]);
    }
}
