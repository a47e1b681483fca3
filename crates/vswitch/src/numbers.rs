//! OpenFlow numbers of ports: requested ones, kept ones, and free ones for the others.

use crate::desired::Port;
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

#[cfg(test)]
mod tests {
    use super::*;

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
