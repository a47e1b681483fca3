//! How many learned MAC entries each port has, and which port has most.
//!
//! A binary heap with the place of each port in it. Which of several equally full ports is on top follows from the order
//! of changes, as in Open vSwitch (`lib/heap`), so that both evict the same entries.

use sluice_flow::OfPort;
use std::collections::HashMap;

/// The ports with learned entries, as a heap.
#[derive(Debug, Default)]
pub(crate) struct PortUsage {
    heap: Vec<PortCount>,
    places: HashMap<OfPort, usize>,
}

#[derive(Clone, Copy, Debug)]
struct PortCount {
    port: OfPort,
    entries: usize,
}

impl PortUsage {
    /// The port with most entries.
    pub fn fullest(&self) -> Option<OfPort> {
        self.heap.first().map(|top| top.port)
    }

    /// A port has an entry more.
    pub fn increase(&mut self, port: OfPort) {
        let place = self.places.get(&port).copied().unwrap_or(self.heap.len());
        if place == self.heap.len() {
            self.heap.push(PortCount { port, entries: 0 });
            self.places.insert(port, place);
        }
        self.heap[place].entries += 1;
        self.rise(place);
    }

    /// A port has an entry less.
    pub fn decrease(&mut self, port: OfPort) {
        let Some(&place) = self.places.get(&port) else { return };
        self.heap[place].entries -= 1;
        if self.heap[place].entries != 0 {
            return self.sink(place);
        }
        self.places.remove(&port);
        self.heap.swap_remove(place);
        if let Some(moved) = self.heap.get(place) {
            self.places.insert(moved.port, place);
            if !self.rise(place) {
                self.sink(place);
            }
        }
    }

    /// Moves a port up past those with fewer entries; whether it moved.
    fn rise(&mut self, mut place: usize) -> bool {
        let from = place;
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent].entries >= self.heap[place].entries {
                break;
            }
            self.swap(parent, place);
            place = parent;
        }
        place != from
    }

    /// Moves a port down past those with more entries; of two that are equally full, past the left one.
    fn sink(&mut self, mut place: usize) {
        loop {
            let mut largest = place;
            for child in [2 * place + 1, 2 * place + 2] {
                if self.heap.get(child).is_some_and(|other| other.entries > self.heap[largest].entries) {
                    largest = child;
                }
            }
            if largest == place {
                return;
            }
            self.swap(largest, place);
            place = largest;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.places.insert(self.heap[a].port, a);
        self.places.insert(self.heap[b].port, b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against plain counts.
        #[test]
        fn the_fullest_port_has_most_entries(steps in prop::collection::vec((0u16..6, prop::bool::weighted(0.6)), 0..200)) {
            let (mut usage, mut counts) = (PortUsage::default(), BTreeMap::<u16, usize>::new());
            for (port, more) in steps {
                let count = counts.entry(port).or_default();
                if more {
                    usage.increase(OfPort(port));
                    *count += 1;
                } else {
                    usage.decrease(OfPort(port));
                    *count = count.saturating_sub(1);
                }
                let most = counts.values().copied().max().filter(|most| *most != 0);
                prop_assert_eq!(usage.fullest().map(|port| counts[&port.0]), most);
                prop_assert_eq!(usage.heap.len(), counts.values().filter(|count| **count != 0).count());
            }
        }
    }
}
