//! What a switch is to be, in plain types: whichever front end says so, a file or a database.

mod bridge;
mod bundle;
mod check;
mod port;
mod qos;
mod sflow;

pub use bridge::{Bridge, Source, Sources};
pub use bundle::{Bundle, LacpMember, LacpSettings};
pub use check::{Invalid, PMD_SLEEP_MAX, PMDS_MAX};
pub use port::{ETHERNET_MTU, PATCH, Port};
pub use qos::{Qos, Queue};
pub use sflow::SFlow;

use sluice_connmgr::{BUNDLE_IDLE_TIMEOUT, BUNDLE_MEMORY, TlsFiles};
use sluice_conntrack::TimeoutPolicy;
use sluice_datapath::{AutoLb, GovernorMode, MissBudget, RxqAssignment, Settings, numa};
use sluice_flow::VlanLimit;
use sluice_ofproto::RULE_MEMORY;
use sluice_port::DpdkConfig;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Memory that a megaflow takes: its record, key, translation, and its entries in one PMD's indexes, bytes.
const MEGAFLOW_BYTES: u64 = 512;

/// What a switch is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredState {
    /// One PMD thread for each of these cores, pinned to it; none named: the lowest core of each NUMA node.
    pub pmd_cores: Vec<usize>,
    /// Whether ports that a thread can wait for belong to a main worker, which sleeps until there are packets, and PMDs
    /// exist only while there is another port. So it is in any case if no core is named.
    pub main_worker: bool,
    /// The lookup hierarchy and its limits.
    pub datapath: DatapathSettings,
    /// How DPDK is started, should there be a port that needs it; `None`: as usual.
    pub dpdk: Option<DpdkConfig>,
    /// Key and certificates of OpenFlow over TLS.
    pub tls: Option<TlsFiles>,
    /// An OpenFlow bundle that no message is about for so long ends.
    pub bundle_idle_timeout: Duration,
    /// The memory of OpenFlow bundles that are not committed, bytes, over all connections.
    pub bundle_memory: usize,
    /// The memory of rules and groups, bytes, over all bridges.
    pub rule_memory: usize,
    /// The bridges, by unique names.
    pub bridges: Vec<Bridge>,
    /// Where relative paths in options of ports start.
    pub base_dir: PathBuf,
    /// What becomes of a port that cannot be opened.
    pub failed_ports: FailedPorts,
}

/// What becomes of ports that cannot be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailedPorts {
    /// They are there for rules to name, down, and are tried again with growing pauses.
    #[default]
    Stay,
    /// They are left out, so that the next reconfiguration tries them again. Source: Open vSwitch.
    LeaveOut,
}

/// Settings of the datapath.
#[derive(Clone, Debug, PartialEq)]
pub struct DatapathSettings {
    /// How packets are looked up.
    pub lookup: Settings,
    /// Which misses install a megaflow.
    pub governor: GovernorMode,
    /// What a receive queue's misses may cost.
    pub miss_budget: MissBudget,
    /// How many VLAN tags are read of a packet.
    pub vlan_limit: VlanLimit,
    /// A megaflow that no packet has used for so long is deleted.
    pub max_idle: Duration,
    /// Memory for megaflows, bytes.
    pub flow_memory_bytes: u64,
    /// How receive queues are assigned to PMDs.
    pub rxq_assignment: RxqAssignment,
    /// The longest sleep of an idle PMD; zero: it never sleeps.
    pub pmd_sleep_max: Duration,
    /// Whether PMDs keep metrics of their iterations.
    pub perf_metrics: bool,
    /// When receive queues are assigned to PMDs again by themselves.
    pub auto_lb: AutoLb,
    /// Conntrack zones whose connections live for other times than the usual ones.
    pub zone_timeouts: BTreeMap<u16, TimeoutPolicy>,
}

impl Default for DesiredState {
    /// One PMD and no bridge.
    fn default() -> Self {
        DesiredState {
            pmd_cores: vec![1],
            main_worker: false,
            datapath: DatapathSettings::default(),
            dpdk: None,
            tls: None,
            bundle_idle_timeout: BUNDLE_IDLE_TIMEOUT,
            bundle_memory: BUNDLE_MEMORY,
            rule_memory: RULE_MEMORY,
            bridges: Vec::new(),
            base_dir: PathBuf::new(),
            failed_ports: FailedPorts::Stay,
        }
    }
}

impl Default for DatapathSettings {
    fn default() -> Self {
        DatapathSettings {
            lookup: Settings::default(),
            governor: GovernorMode::Auto,
            miss_budget: MissBudget::Auto,
            vlan_limit: VlanLimit::default(),
            max_idle: Duration::from_millis(sluice_datapath::MAX_IDLE_MS),
            flow_memory_bytes: 256 << 20,
            rxq_assignment: RxqAssignment::default(),
            pmd_sleep_max: Duration::ZERO,
            perf_metrics: false,
            auto_lb: AutoLb::default(),
            zone_timeouts: BTreeMap::new(),
        }
    }
}

/// The threads that carry packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Workers {
    /// The cores that PMDs run on while there are any.
    pub cores: Vec<usize>,
    /// Whether there is a main worker.
    pub has_main: bool,
}

impl Workers {
    /// Those of a state with these [`DesiredState::pmd_cores`] and [`DesiredState::main_worker`].
    pub(crate) fn of(pmd_cores: &[usize], main_worker: bool) -> Self {
        let cores = if pmd_cores.is_empty() { numa::lowest_core_of_each_node() } else { pmd_cores.to_vec() };
        Workers { cores, has_main: main_worker || pmd_cores.is_empty() }
    }
}

impl DesiredState {
    /// The bridge of that name.
    pub fn bridge(&self, name: &str) -> Option<&Bridge> {
        self.bridges.iter().find(|bridge| bridge.name == name)
    }

    /// The datapath that these settings describe.
    pub fn datapath_config(&self) -> sluice_datapath::Config {
        let settings = &self.datapath;
        let workers = Workers::of(&self.pmd_cores, self.main_worker);
        sluice_datapath::Config {
            cores: workers.cores,
            owns_process: true,
            main_worker: workers.has_main,
            settings: settings.lookup,
            governor: settings.governor,
            miss_budget: settings.miss_budget,
            max_idle_ms: u64::try_from(settings.max_idle.as_millis()).unwrap_or(u64::MAX),
            vlan_limit: settings.vlan_limit,
            max_megaflows: settings.max_megaflows(),
            flow_memory: settings.flow_memory_bytes,
            rxq_assignment: settings.rxq_assignment,
            auto_lb: settings.auto_lb,
            perf_metrics: settings.perf_metrics,
            sleep_max_us: u32::try_from(settings.pmd_sleep_max.as_micros()).unwrap_or(u32::MAX),
            ..sluice_datapath::Config::default()
        }
    }
}

impl DatapathSettings {
    /// As many megaflows as the memory given to them holds if they are as small as they can be; larger ones meet the
    /// bound on bytes first.
    pub fn max_megaflows(&self) -> u32 {
        u32::try_from(self.flow_memory_bytes / MEGAFLOW_BYTES)
            .unwrap_or(u32::MAX)
            .clamp(1, sluice_datapath::MEGAFLOWS_LIMIT)
    }
}
