//! OpenFlow numbers of ports: requested ones, kept ones, and free ones for the others. Datapath numbers.

use crate::desired::Port;
use sluice_action::PortNo;
use sluice_flow::OfPort;
use std::collections::{BTreeMap, BTreeSet};

/// Numbers by port name.
pub type Numbers = BTreeMap<String, OfPort>;

/// Numbers for the ports of a bridge. A port gets the number that it requests; else the one it has in `kept`, unless
/// another port requests that one; else the lowest free one. Numbers in `taken` are not free. A port for which no
/// number is left is not in the result.
pub fn assign<'a>(ports: impl Iterator<Item = &'a Port> + Clone, kept: &Numbers, taken: &BTreeSet<OfPort>) -> Numbers {
    let requested = ports.clone().filter_map(|port| Some((port.name.clone(), port.ofport_request?)));
    let mut numbers: Numbers = requested.collect();
    let mut used: BTreeSet<OfPort> = numbers.values().chain(taken).copied().collect();
    let others: Vec<&Port> = ports.filter(|port| port.ofport_request.is_none()).collect();
    for port in &others {
        if let Some(number) = kept.get(&port.name)
            && used.insert(*number)
        {
            numbers.insert(port.name.clone(), *number);
        }
    }
    let mut free = (1..OfPort::MAX.0).map(OfPort);
    for port in others {
        if !numbers.contains_key(&port.name)
            && let Some(number) = free.find(|number| !used.contains(number))
        {
            numbers.insert(port.name.clone(), number);
        }
    }
    numbers
}

/// The datapath numbers that ports have. A thousand ports get theirs in linear time.
#[derive(Clone, Debug)]
pub struct DatapathNumbers {
    taken: BTreeSet<PortNo>,
    /// No number below it is free.
    lowest: u32,
}

impl Default for DatapathNumbers {
    fn default() -> Self {
        DatapathNumbers { taken: BTreeSet::new(), lowest: 1 }
    }
}

impl DatapathNumbers {
    /// The wanted number if it is free, else the lowest free one; `None` if none is left. It is not taken yet.
    pub fn free(&mut self, wanted: Option<u32>) -> Option<PortNo> {
        if let Some(wanted) = wanted.map(PortNo).filter(|wanted| !self.is_taken(*wanted)) {
            return Some(wanted);
        }
        while self.is_taken(PortNo(self.lowest)) {
            self.lowest += 1;
        }
        (self.lowest < sluice_datapath::PORTS_MAX).then_some(PortNo(self.lowest))
    }

    /// Whether a port has the number.
    pub fn is_taken(&self, number: PortNo) -> bool {
        self.taken.contains(&number)
    }

    /// A port has the number now.
    pub fn take(&mut self, number: PortNo) {
        self.taken.insert(number);
    }

    /// No port has the number any more.
    pub fn release(&mut self, number: PortNo) {
        self.taken.remove(&number);
        self.lowest = self.lowest.min(number.0).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_lowest_free_number_is_what_a_search_finds(
            steps in proptest::collection::vec((any::<bool>(), 1..12u32, proptest::option::of(1..12u32)), 0..60),
        ) {
            let mut numbers = DatapathNumbers::default();
            let mut taken = BTreeSet::new();
            for (is_taken, number, wanted) in steps {
                if is_taken {
                    let naive = wanted.into_iter().chain(1..).find(|n| !taken.contains(n)).unwrap();
                    prop_assert_eq!(numbers.free(wanted), Some(PortNo(naive)));
                    numbers.take(PortNo(naive));
                    taken.insert(naive);
                } else {
                    numbers.release(PortNo(number));
                    taken.remove(&number);
                }
            }
        }
    }

    fn port(name: &str, request: u16) -> Port {
        let port = Port::new(name, "null");
        if request == 0 { port } else { port.numbered(request) }
    }

    fn assigned(ports: &[(&str, u16)], kept: &[(&str, u16)], taken: &[u16]) -> Vec<(String, u16)> {
        let ports: Vec<Port> = ports.iter().map(|(name, request)| port(name, *request)).collect();
        let kept = kept.iter().map(|(name, number)| ((*name).to_owned(), OfPort(*number))).collect();
        let taken = taken.iter().copied().map(OfPort).collect();
        assign(ports.iter(), &kept, &taken).into_iter().map(|(name, number)| (name, number.0)).collect()
    }

    fn numbers(expected: &[(&str, u16)]) -> Vec<(String, u16)> {
        expected.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect()
    }

    #[test]
    fn requests_go_first_then_kept_numbers_then_free_ones() {
        let ports = [("a", 0), ("b", 0), ("c", 2), ("d", 0)];
        let kept = [("a", 2), ("b", 7), ("c", 9), ("gone", 1)];
        assert_eq!(assigned(&ports, &kept, &[1]), numbers(&[("a", 3), ("b", 7), ("c", 2), ("d", 4)]));
    }

    #[test]
    fn numbers_stay_when_others_come_and_go() {
        let first = assigned(&[("a", 0), ("b", 0)], &[], &[]);
        assert_eq!(first, numbers(&[("a", 1), ("b", 2)]));
        assert_eq!(assigned(&[("b", 0), ("new", 0)], &[("a", 1), ("b", 2)], &[]), numbers(&[("b", 2), ("new", 1)]));
    }
}
