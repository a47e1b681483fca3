//! What an aggregator and its members are asked for.

/// The configuration of an aggregator; the fields are keys of `Port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Whether it begins to talk; otherwise it only answers.
    pub active: bool,
    /// Whether it asks its partner to send every second; otherwise every 30.
    pub fast: bool,
    /// The system's id, an Ethernet address.
    pub system_id: [u8; 6],
    /// The system's priority; the lower number counts more.
    pub system_priority: u16,
    /// Whether members may carry traffic although no partner was heard (`lacp-fallback-ab`).
    pub fallback_ab: bool,
}

/// The configuration of a member; the fields are keys of `Interface:other_config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberConfig {
    /// The interface's name.
    pub name: String,
    /// The port's id.
    pub port_id: u16,
    /// The port's priority; the lower number counts more.
    pub port_priority: u16,
    /// The aggregation key; 0: the id of the aggregator's first port.
    pub key: u16,
}
