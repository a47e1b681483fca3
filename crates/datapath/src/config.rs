//! How a datapath is set up, and what can go wrong with it.

use sluice_action::PortNo;

/// How a datapath is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// One PMD for each core named, pinned to it when it runs as a thread. At least one.
    pub cores: Vec<usize>,
    /// The most packets that go through the rooms together, 1 to 32.
    pub batch: usize,
    /// Entries of each PMD's exact match cache; rounded up to a power of two.
    pub emc_entries: usize,
    /// One in so many flows found elsewhere enters the exact match cache; 0: it is off.
    pub emc_insert_inv_prob: u32,
    /// Whether the signature match cache is on.
    pub smc: bool,
    /// The most megaflows there can be.
    pub max_megaflows: u32,
    /// What the secrets grow from (the hash, the choice of victims, samples); `None`: drawn from the system.
    pub seed: Option<u64>,
    /// The longest an idle PMD sleeps in one iteration, microseconds; 0: it never does.
    pub sleep_max_us: u32,
    /// Messages to controllers that may wait for their owner.
    pub packet_in_queue: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            cores: vec![0],
            batch: 32,
            emc_entries: 8192,        // Source: OVS, EM_FLOW_HASH_SHIFT
            emc_insert_inv_prob: 100, // Source: OVS, DEFAULT_EM_FLOW_INSERT_INV_PROB
            smc: false,
            max_megaflows: 1 << 21,
            seed: None,
            sleep_max_us: 0,
            packet_in_queue: 1024,
        }
    }
}

/// Why the datapath could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum DatapathError {
    /// A number in the configuration makes no sense.
    #[error("{what} is {value}: expected {expected}")]
    Config {
        /// Which number.
        what: &'static str,
        /// What it was.
        value: usize,
        /// What it may be.
        expected: &'static str,
    },
    /// Memory for the tables could not be had.
    #[error("no address space for {megaflows} megaflows: {source}; lower flow-memory")]
    Memory {
        /// How many there were to be.
        megaflows: u32,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// There is such a port already.
    #[error("datapath port {} exists already", .0.0)]
    PortExists(PortNo),
    /// There is no such port.
    #[error("there is no datapath port {}", .0.0)]
    NoPort(PortNo),
    /// The port number is too large.
    #[error("datapath port {}: expected a number below {}", .0.0, crate::PORTS_MAX)]
    PortNumber(PortNo),
    /// A PMD thread could not be started.
    #[error("PMD {pmd} could not be started: {source}")]
    Thread {
        /// Which one.
        pmd: usize,
        /// What the system said.
        source: std::io::Error,
    },
}
