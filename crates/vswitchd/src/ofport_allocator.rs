//! OpenFlow numbers of a bridge's ports.
//!
//! A number that is requested is given if it is free or its holder did not request it. Other ports get the number that
//! they had before a restart, or else the next one that was never given out. Numbers wait an hour before they are given
//! out again, because flows may still name them.
//!
//! Source: Open vSwitch vswitchd/bridge.c, `bridge_delete_or_reconfigure_ports`; ofproto/ofproto.c, `alloc_ofp_port`.

use std::collections::{BTreeMap, HashMap, HashSet};

/// How long a freed number is not given out, unless no other is left. Source: `alloc_ofp_port`.
const REST_MS: u64 = 60 * 60 * 1000;

/// Numbers from here on are only given on request. Source: `alloc_ofp_port`.
const AUTOMATIC_END: u16 = 32768;

/// A port that needs a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberRequest {
    /// Its name.
    pub name: String,
    /// The number that it requests.
    pub requested: Option<u16>,
    /// The number that it had before a restart.
    pub last: Option<u16>,
}

/// The numbers of one bridge.
#[derive(Clone, Debug, Default)]
pub struct OfPortAllocator {
    held: BTreeMap<String, u16>,
    /// When numbers were freed that nobody holds.
    freed_ms: HashMap<u16, u64>,
    /// The number given out last.
    cursor: u16,
    /// Ports that could not be opened: they come after the others.
    failed: HashSet<String>,
}

impl OfPortAllocator {
    /// Gives every port a number; ports that are not among them lose theirs. A port for which none is left has none.
    pub fn allocate(&mut self, ports: &[NumberRequest], now_ms: u64) -> &BTreeMap<String, u16> {
        let by_name: HashMap<&str, &NumberRequest> = ports.iter().map(|port| (port.name.as_str(), port)).collect();
        let gone = self.held.extract_if(.., |name, _| !by_name.contains_key(name.as_str()));
        self.freed_ms.extend(gone.map(|(_, number)| (number, now_ms)));
        let mut holders: HashMap<u16, &str> = HashMap::new();
        for port in ports {
            holders.extend(self.held.get(&port.name).map(|number| (*number, port.name.as_str())));
        }
        for port in ports {
            let moves_to = port.requested.filter(|number| self.held.get(&port.name).is_some_and(|held| held != number));
            let Some(number) = moves_to else { continue };
            match holders.get(&number).copied() {
                Some(holder) if by_name[holder].requested == Some(number) => {}
                holder => {
                    for number in holder.into_iter().chain([port.name.as_str()]).filter_map(|n| self.held.remove(n)) {
                        holders.remove(&number);
                        self.freed_ms.insert(number, now_ms);
                    }
                }
            }
        }
        let mut taken: HashSet<u16> = holders.into_keys().collect();
        let failed = std::mem::take(&mut self.failed);
        let mut lacking: Vec<&NumberRequest> =
            ports.iter().filter(|port| !self.held.contains_key(&port.name)).collect();
        // Of two that request a number after a restart, the one that had it gets it.
        let had_it = |port: &NumberRequest| port.requested == port.last;
        lacking.sort_by_key(|port| (port.requested.is_none(), failed.contains(&port.name), !had_it(port)));
        for port in lacking {
            let wanted = [port.requested, port.last].into_iter().flatten().find(|number| !taken.contains(number));
            if let Some(number) = wanted.or_else(|| self.next_free(&taken, now_ms)) {
                taken.insert(number);
                self.freed_ms.remove(&number);
                self.held.insert(port.name.clone(), number);
            }
        }
        &self.held
    }

    /// The port could not be opened: its number is as if it had never been given out.
    pub fn give_back(&mut self, name: &str) {
        if let Some(number) = self.held.remove(name)
            && number == self.cursor
        {
            self.cursor -= 1;
        }
        self.failed.insert(name.to_owned());
    }

    fn next_free(&mut self, taken: &HashSet<u16>, now_ms: u64) -> Option<u16> {
        let after = self.cursor;
        let mut longest_free: Option<(u64, u16)> = None;
        for number in (after + 1..AUTOMATIC_END).chain(1..=after).filter(|number| !taken.contains(number)) {
            match self.freed_ms.get(&number) {
                Some(freed) if freed.saturating_add(REST_MS) >= now_ms => {
                    if longest_free.is_none_or(|(longest, _)| *freed < longest) {
                        longest_free = Some((*freed, number));
                    }
                }
                _ => {
                    self.cursor = number;
                    return Some(number);
                }
            }
        }
        longest_free.map(|(_, number)| number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> NumberRequest {
        let (name, requested) = text.split_once('=').unwrap_or((text, ""));
        NumberRequest { name: name.to_owned(), requested: requested.parse().ok(), last: None }
    }

    fn settled(numbers: &mut OfPortAllocator, ports: &[&str], now_ms: u64) -> Vec<(String, u16)> {
        let ports: Vec<_> = ports.iter().map(|text| request(text)).collect();
        numbers.allocate(&ports, now_ms).iter().map(|(name, number)| (name.clone(), *number)).collect()
    }

    fn pairs(expected: &[(&str, u16)]) -> Vec<(String, u16)> {
        expected.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect()
    }

    #[test]
    fn requests_go_first_and_others_count_on() {
        let mut numbers = OfPortAllocator::default();
        assert_eq!(settled(&mut numbers, &["a", "b=1"], 0), pairs(&[("a", 2), ("b", 1)]));
        // A number that was given up is not given out soon.
        assert_eq!(settled(&mut numbers, &["b=1", "c"], 1), pairs(&[("b", 1), ("c", 3)]));
        assert_eq!(settled(&mut numbers, &["b=1", "d=2"], 2), pairs(&[("b", 1), ("d", 2)]));
    }

    #[test]
    fn a_holder_that_did_not_request_its_number_makes_room() {
        let mut numbers = OfPortAllocator::default();
        assert_eq!(settled(&mut numbers, &["a", "b"], 0), pairs(&[("a", 1), ("b", 2)]));
        assert_eq!(settled(&mut numbers, &["a", "b=1"], 0), pairs(&[("a", 3), ("b", 1)]));
        // One that did stays, and so does the other.
        assert_eq!(settled(&mut numbers, &["a=1", "b=1"], 0), pairs(&[("a", 3), ("b", 1)]));
    }

    #[test]
    fn numbers_survive_a_restart_unless_requested() {
        let mut numbers = OfPortAllocator::default();
        let last = |name: &str, last| NumberRequest { last: Some(last), ..request(name) };
        let ports = [last("a", 7), last("b", 5), request("c=5")];
        let settled: Vec<_> = numbers.allocate(&ports, 0).values().copied().collect();
        assert_eq!(settled, [7, 1, 5]);
    }

    #[test]
    fn ports_that_fail_leave_no_gap() {
        let mut numbers = OfPortAllocator::default();
        assert_eq!(settled(&mut numbers, &["bad"], 0), pairs(&[("bad", 1)]));
        numbers.give_back("bad");
        assert_eq!(settled(&mut numbers, &["bad", "good"], 0), pairs(&[("bad", 2), ("good", 1)]));
    }

    #[test]
    fn after_an_hour_numbers_come_again_and_at_need_at_once() {
        let mut numbers = OfPortAllocator::default();
        settled(&mut numbers, &["a"], 0);
        settled(&mut numbers, &[], 1);
        numbers.cursor = AUTOMATIC_END - 1;
        assert_eq!(settled(&mut numbers, &["a"], 2 + REST_MS), pairs(&[("a", 1)]));
        let all: Vec<String> = (0..AUTOMATIC_END - 1).map(|n| format!("p{n}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(settled(&mut numbers, &all, 3).len(), usize::from(AUTOMATIC_END) - 1);
    }
}
