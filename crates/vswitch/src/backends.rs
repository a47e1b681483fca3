//! The datapath ports that serve tunnels: one for all tunnels of a type, and of a UDP port if they use UDP.
//!
//! None has a device: what comes for one is popped off a packet that came by another port.

use crate::numbers::DatapathNumbers;
use sluice_action::PortNo;
use std::collections::BTreeMap;

/// The datapath ports that serve tunnels, by name.
#[derive(Clone, Debug, Default)]
pub struct Backends(BTreeMap<String, Backend>);

/// A datapath port that serves tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its number.
    pub number: PortNo,
    /// How many tunnels it serves.
    pub tunnels: usize,
}

impl Backends {
    /// A further tunnel is served by the port of that name, which gets a number if it is new; `None` if none is left.
    pub(crate) fn join(&mut self, name: &str, numbers: &mut DatapathNumbers) -> Option<PortNo> {
        if let Some(backend) = self.0.get_mut(name) {
            backend.tunnels += 1;
            return Some(backend.number);
        }
        // The number that is in its name, such as a UDP port, is a good number: people read megaflows. Source: OVS
        // lib/dpif-netdev.c, `choose_port`.
        let digits = name.split(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty());
        let wanted = digits.and_then(|digits| digits.parse().ok());
        let number = numbers.free(wanted.filter(|number| *number != 0))?;
        numbers.take(number);
        self.0.insert(name.to_owned(), Backend { number, tunnels: 1 });
        Some(number)
    }

    /// A tunnel has left the port of that name, which goes with its last one.
    pub(crate) fn leave(&mut self, name: &str, numbers: &mut DatapathNumbers) {
        let Some(backend) = self.0.get_mut(name) else { return };
        backend.tunnels -= 1;
        if backend.tunnels == 0 {
            numbers.release(backend.number);
            self.0.remove(name);
        }
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Backend)> {
        self.0.iter().map(|(name, backend)| (name.as_str(), *backend))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnels_share_a_port_that_goes_with_the_last_of_them() {
        let (mut backends, mut numbers) = (Backends::default(), DatapathNumbers::default());
        assert_eq!(backends.join("gre_sys", &mut numbers), Some(PortNo(1)));
        assert_eq!(backends.join("vxlan_sys_4789", &mut numbers), Some(PortNo(4789)));
        assert_eq!(backends.join("gre_sys", &mut numbers), Some(PortNo(1)));
        assert_eq!(backends.join("ip6gre_sys", &mut numbers), Some(PortNo(6)));
        backends.leave("ip6gre_sys", &mut numbers);
        let all: Vec<_> = backends.iter().map(|(name, backend)| (name, backend.tunnels)).collect();
        assert_eq!(all, [("gre_sys", 2), ("vxlan_sys_4789", 1)]);
        backends.leave("gre_sys", &mut numbers);
        assert!(numbers.is_taken(PortNo(1)));
        backends.leave("gre_sys", &mut numbers);
        backends.leave("gre_sys", &mut numbers);
        assert!(!numbers.is_taken(PortNo(1)) && backends.iter().count() == 1);
    }
}
