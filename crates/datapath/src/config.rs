//! How a datapath is set up, and what can go wrong with it.

use crate::settings::{CACHE_ENTRIES_ALLOWED, CACHE_ENTRIES_EXPECTED};
use crate::{AutoLb, GovernorMode, MissBudget, RxqAssignment, Settings};
use sluice_action::PortNo;
use sluice_packet::{BATCH_MAX, VlanLimit};

/// How a datapath is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// One PMD for each core named, pinned to it when it runs as a thread. At least one without a main worker.
    pub cores: Vec<usize>,
    /// Whether the process is the datapath's own: its other threads then keep off the PMDs' cores, if it may use others.
    pub owns_process: bool,
    /// Whether a main worker serves the queues that a thread can wait for. PMDs exist then only while there are others.
    pub main_worker: bool,
    /// The most packets that go through the stages together, 1 to 32.
    pub batch: usize,
    /// How packets are looked up.
    pub settings: Settings,
    /// Which misses install a megaflow.
    pub governor: GovernorMode,
    /// What a receive queue's misses may cost.
    pub miss_budget: MissBudget,
    /// How long an unused megaflow stays, milliseconds. The governor calculates with it.
    pub max_idle_ms: u64,
    /// The most megaflows there can be.
    pub max_megaflows: u32,
    /// How large the tables of connections are made.
    pub connection_tables: ConnectionTables,
    /// The most bytes that megaflows may take, with all that belongs to them.
    pub flow_memory: u64,
    /// The most masks of a port's megaflows. Beyond it, megaflows get coarser masks.
    pub masks_a_port: usize,
    /// How many VLAN tags are read of a packet.
    pub vlan_limit: VlanLimit,
    /// How often a packet may be recirculated.
    pub recirculations: u8,
    /// The seed of all secrets (hash, eviction, samples); `None`: drawn from the system.
    pub seed: Option<u64>,
    /// How receive queues are assigned to PMDs.
    pub rxq_assignment: RxqAssignment,
    /// The longest sleep of an idle PMD in one iteration, microseconds; 0: it never sleeps.
    pub sleep_max_us: u32,
    /// Whether PMDs keep metrics of their iterations.
    pub perf_metrics: bool,
    /// When receive queues are assigned to PMDs again by themselves.
    pub auto_lb: AutoLb,
    /// The most messages to controllers that wait.
    pub packet_in_queue: usize,
    /// Whether cycles are counted by stage; see [`crate::Stage`].
    pub profile: bool,
}

/// Masks of a port's megaflows. Rules written by people need at most hundreds; with some thousands, lookups stay
/// bounded.
const MASKS_A_PORT: usize = 1024;

/// Source: OVS, MAX_RECIRC_DEPTH, since 2024; 3.1 has 6.
const RECIRCULATIONS: u8 = 8;

/// How large the tables of connections are made. They hold any number; small ones are made and freed sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionTables {
    /// Parts of the table that are locked apart.
    pub shards: usize,
    /// Connections in the cache of each PMD.
    pub cached: usize,
}

impl ConnectionTables {
    /// Those of a switch that is made for a moment.
    pub const SMALL: ConnectionTables = ConnectionTables { shards: 2, cached: 64 };
}

impl Default for ConnectionTables {
    fn default() -> Self {
        // The caches take 2 MiB each.
        ConnectionTables { shards: sluice_conntrack::SHARDS, cached: 1 << 17 }
    }
}

/// The usual time that an unused megaflow stays, milliseconds. Source: Open vSwitch, `OFPROTO_MAX_IDLE_DEFAULT`.
pub const MAX_IDLE_MS: u64 = 10_000;

/// The most that [`Config::max_megaflows`] may be.
pub const MEGAFLOWS_LIMIT: u32 = 1 << 28;

impl Default for Config {
    fn default() -> Self {
        Config {
            cores: vec![0],
            owns_process: false,
            main_worker: false,
            batch: 32,
            settings: Settings::default(),
            governor: GovernorMode::Off,
            miss_budget: MissBudget::Unlimited,
            max_idle_ms: MAX_IDLE_MS,
            max_megaflows: 1 << 21,
            connection_tables: ConnectionTables::default(),
            flow_memory: u64::MAX,
            masks_a_port: MASKS_A_PORT,
            vlan_limit: VlanLimit::default(),
            recirculations: RECIRCULATIONS,
            seed: None,
            rxq_assignment: RxqAssignment::default(),
            sleep_max_us: 0,
            perf_metrics: false,
            auto_lb: AutoLb::default(),
            packet_in_queue: 1024,
            profile: false,
        }
    }
}

impl Config {
    /// Whether this configuration is valid.
    pub(crate) fn check(&self) -> Result<(), DatapathError> {
        let wrong = |what, value, expected| Err(DatapathError::Config { what, value, expected });
        if self.cores.is_empty() && !self.main_worker {
            return wrong("the number of PMD cores", 0, "at least one");
        }
        if !(1..=BATCH_MAX).contains(&self.batch) {
            return wrong("the batch size", self.batch, "1 to 32");
        }
        if !(1..=MEGAFLOWS_LIMIT).contains(&self.max_megaflows) {
            return wrong("the limit on megaflows", self.max_megaflows as usize, "1 to 268435456");
        }
        check_settings(&self.settings)
    }
}

/// Whether these settings are valid.
pub(crate) fn check_settings(settings: &Settings) -> Result<(), DatapathError> {
    let sizes = [("emc-entries", settings.emc_entries), ("smc-entries", settings.smc_entries)];
    match sizes.into_iter().find(|(_, value)| !CACHE_ENTRIES_ALLOWED.contains(value)) {
        Some((what, value)) => Err(DatapathError::Config { what, value, expected: CACHE_ENTRIES_EXPECTED }),
        None => Ok(()),
    }
}

/// Why the datapath could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum DatapathError {
    /// A number in the configuration is out of range.
    #[error("{what} is {value}: expected {expected}")]
    Config {
        /// Which number.
        what: &'static str,
        /// What it was.
        value: usize,
        /// What it may be.
        expected: &'static str,
    },
    /// No memory for the tables.
    #[error("no address space for {megaflows} megaflows: {cause}; lower flow-memory")]
    Memory {
        /// How many there were to be.
        megaflows: u32,
        /// The kernel's error.
        cause: std::io::Error,
    },
    /// No memory for reassembly.
    #[error("no memory to put fragments together: {0}")]
    Buffers(sluice_mem::PoolError),
    /// The port exists already.
    #[error("datapath port {} exists already", .0.0)]
    PortExists(PortNo),
    /// There is no such port.
    #[error("there is no datapath port {}", .0.0)]
    NoPort(PortNo),
    /// The port number is too large.
    #[error("datapath port {}: expected a number below {}", .0.0, crate::PORTS_MAX)]
    PortNumber(PortNo),
    /// The main worker could not get a descriptor.
    #[error("no descriptor for the main worker: {0}")]
    Descriptor(std::io::Error),
    /// A worker's thread could not be started.
    #[error("PMD {pmd} could not be started: {cause}")]
    Thread {
        /// Which one.
        pmd: usize,
        /// The system's error.
        cause: std::io::Error,
    },
}
