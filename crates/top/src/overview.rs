//! The switch at a glance, as `sluice/overview` answers in JSON. Counters count from the start.

use serde::{Deserialize, Serialize};

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    /// Over all PMDs.
    pub totals: Totals,
    /// By datapath number.
    pub ports: Vec<PortRow>,
    /// By number.
    pub pmds: Vec<PmdRow>,
    /// What the autopilots have chosen, by receive queue.
    pub queues: Vec<QueueRow>,
    /// Megaflows there are.
    pub megaflows: usize,
    /// Those that have carried the most packets; none if there are too many to look at every second.
    pub busiest: Vec<FlowRow>,
}

/// What the ports have counted in all, and counters of sluice-fate by their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Packets received: the sum over the ports, as the next two.
    pub received: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets dropped, for whatever reason; those that the switch made itself are left out.
    pub dropped: u64,
    /// Lookups: a packet has one, and one more each time it is recirculated.
    pub passes: u64,
    /// Of those, the ones that the exact match cache answered.
    pub emc_hits: u64,
    /// The ones that the signature match cache answered.
    pub smc_hits: u64,
    /// The ones that the distributor led to their subtable.
    pub distributor_hits: u64,
    /// The ones that the subtables answered, with the distributor or without.
    pub megaflow_hits: u64,
    /// The ones that went to the OpenFlow tables.
    pub upcalls: u64,
    /// Cycles of iterations that found packets.
    pub busy_cycles: u64,
}

/// A port and what it has counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortRow {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// Whether its link is up.
    pub is_up: bool,
    /// Packets received.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Packets that came by the port and were dropped, by whatever and for whatever reason, and those that the port missed.
    pub dropped: u64,
}

/// A PMD.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PmdRow {
    /// Its number.
    pub pmd: usize,
    /// Its core; `None`: it is the main worker.
    pub core: Option<usize>,
    /// Since the statistics were cleared.
    pub busy_cycles: u64,
    /// The same.
    pub idle_cycles: u64,
    /// Entries of the exact match cache in use.
    pub emc_used: usize,
    /// Entries of the exact match cache.
    pub emc_entries: usize,
    /// Its megaflow subtables.
    pub subtables: usize,
    /// Megaflows that it has indexed.
    pub megaflows: usize,
}

/// A receive queue and the levels of the lookup it uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueRow {
    /// The name of its port.
    pub port: String,
    /// Its number.
    pub queue: usize,
    /// The levels in charge, in words.
    pub levels: String,
    /// Cycles a packet with them, when last measured.
    pub cycles: Option<f64>,
    /// How often the autopilot has changed the levels.
    pub changes: u64,
}

/// A megaflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowRow {
    /// Packets that it has carried.
    pub packets: u64,
    /// As `dpctl/dump-flows` prints it.
    pub text: String,
}
