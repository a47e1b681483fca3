//! A bundle: ports that serve as one, or a port on which LACP is spoken.

use std::collections::BTreeMap;

/// A bundle of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// Its name: what commands and other settings call the ports together.
    pub name: String,
    /// The names of its ports, which have the same VLANs. The first stands for all in the MAC table.
    pub members: Vec<String>,
    /// How they serve as one; `None` if there is one port.
    pub bond: Option<sluice_bond::Config>,
    /// How LACP is spoken on them, if it is. Their [`super::Port::speaks_lacp`] says so, too.
    pub lacp: Option<LacpSettings>,
}

/// How LACP is spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LacpSettings {
    /// Whether this end begins to talk.
    pub active: bool,
    /// Whether the partner is asked to send every second.
    pub fast: bool,
    /// The system's id; `None`: the bridge's Ethernet address.
    pub system_id: Option<[u8; 6]>,
    /// The system's priority.
    pub system_priority: u16,
    /// What is special of members, by name.
    pub members: BTreeMap<String, LacpMember>,
}

/// What is special of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LacpMember {
    /// The id of its port; `None`: its OpenFlow number.
    pub port_id: Option<u16>,
    /// The priority of its port.
    pub port_priority: u16,
    /// Its aggregation key; 0: the id of the first port.
    pub key: u16,
}

impl Default for LacpMember {
    fn default() -> Self {
        LacpMember { port_id: None, port_priority: u16::MAX, key: 0 }
    }
}

impl LacpSettings {
    /// Passive and slow, for a bundle of `members` ports. A system with a bond counts more than one without.
    pub fn new(members: usize) -> Self {
        LacpSettings {
            active: false,
            fast: false,
            system_id: None,
            system_priority: u16::MAX - u16::from(members > 1),
            members: BTreeMap::new(),
        }
    }
}
