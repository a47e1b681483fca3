//! The configuration file: a front end that produces a desired state.
//!
//! It is read in three steps, each with its own errors: TOML, the shape (types and known keys, by serde), and the state
//! that it asks for ([`desired`]), which must be one that this build supports. Nothing is parsed and then ignored.
//! Every error is one line and names file, line and key.

mod bfd;
mod bond;
mod bridge;
mod desired;
mod error;
mod mirror;
mod qos;
mod sflow;
mod value;

pub use bond::Bond;
pub use bridge::{Bridge, FailMode, OverflowPolicy, Port, Table, TxSteering};
pub use desired::read_source;
pub use error::ConfigError;
pub use mirror::Mirror;
pub use value::{Affinity, AutoOr, Duration, FileMode, InvProb, Share, Size};

use crate::privileges::Identity;
use serde::Deserialize;
use sluice_connmgr::BUNDLE_MEMORY;
use sluice_datapath::{Level, Settings};
use sluice_ofproto::RULE_MEMORY;
use std::path::{Path, PathBuf};

/// The annotated configuration. The tests hold it to the structs below.
pub const REFERENCE: &str = include_str!("reference.toml");

/// What `sluice run --help-config` prints: the whole configuration, every key explained, and every port type's options.
pub fn help() -> String {
    let mut out = String::from(REFERENCE);
    out += "\n# The options of each port type, as text, number or boolean: flows = \"1M\", seed = 7, promiscuous = true.\n";
    out += "#\n# type = \"patch\": joins two bridges; packets sent to one end come in by the other\n";
    out += "#   peer         name of the other end, a patch port whose peer is this one\n";
    for kind in sluice_port::PORT_TYPES {
        out += &format!("#\n# type = \"{}\": {}\n", kind.name, kind.help);
        for option in kind.options {
            out += &format!("#   {:<12} {}\n", option.key, option.help);
        }
    }
    out
}

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `[switch]`: the process.
    pub switch: Switch,
    /// `[datapath]`: the lookup hierarchy and its limits.
    pub datapath: Datapath,
    /// `[[bridge]]`.
    pub bridge: Vec<Bridge>,
    /// Where relative paths in the file start.
    #[serde(skip)]
    pub directory: PathBuf,
    /// The file and its text, for errors that are found later.
    #[serde(skip)]
    read_from: (PathBuf, String),
}

/// `[switch]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Switch {
    /// Where the sockets are made; `None` is the default of [`crate::rundir`].
    pub rundir: Option<PathBuf>,
    /// The user that root becomes; `None` is the default of [`crate::privileges::Identity`].
    pub user: Option<String>,
    /// Its group.
    pub group: Option<String>,
    /// The group that may use the sockets, too.
    pub socket_group: Option<String>,
    /// The mode of the sockets.
    pub socket_mode: Option<FileMode>,
    /// Types of ports that may come later.
    pub port_types: Vec<String>,
    /// The log file.
    pub log_file: Option<PathBuf>,
    /// Whether lines go to the system's log, too.
    pub syslog: bool,
    /// One PMD thread for each, pinned to it.
    pub pmd_cores: Vec<u32>,
    /// Whether a thread that sleeps takes the ports that can be waited for.
    pub main_worker: bool,
    /// End after this time.
    pub stop_after: Option<Duration>,
    /// The address at which Prometheus reads metrics.
    #[serde(deserialize_with = "value::address")]
    pub metrics: Option<std::net::SocketAddr>,
    /// Memory for OpenFlow bundles that are not committed.
    pub bundle_memory: Size,
    /// Memory for rules and groups.
    pub rule_memory: Size,
    /// Whether rules, groups and meters outlast the process.
    pub keep_tables: bool,
    /// `[switch.tls]`.
    pub tls: Option<Tls>,
    /// `[switch.dpdk]`.
    pub dpdk: Option<Dpdk>,
}

/// `[switch.tls]`: files in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Tls {
    /// The switch's key.
    pub private_key: PathBuf,
    /// Its certificate, and those between it and the peers' authority.
    pub certificate: PathBuf,
    /// The authority that must have signed the peers' certificates.
    pub ca_cert: PathBuf,
}

/// `[switch.dpdk]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Dpdk {
    /// Arguments to the environment abstraction layer.
    pub eal_args: Vec<String>,
    /// Buffers in the packet pool.
    pub mbufs: u32,
}

/// `[datapath]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Datapath {
    /// Exact match cache.
    #[serde(deserialize_with = "value::level")]
    pub emc: Level,
    /// Signature match cache.
    #[serde(deserialize_with = "value::level")]
    pub smc: Level,
    /// Cuckoo distributor.
    #[serde(deserialize_with = "value::level")]
    pub distributor: Level,
    /// Entries of the exact match cache.
    pub emc_entries: u32,
    /// How many misses it takes, on average, until one is inserted.
    pub emc_insert_inv_prob: AutoOr<InvProb>,
    /// Which recirculated packets use the exact match cache.
    pub emc_recirc: String,
    /// The occupancy above which they are kept away, percent.
    pub emc_recirc_threshold: u8,
    /// The most flows that the signature match cache holds.
    pub smc_entries: u32,
    /// Composed entries.
    #[serde(deserialize_with = "value::level")]
    pub composed: Level,
    /// What the distributor keeps its entries in.
    pub distributor_table: String,
    /// The most flows that it holds.
    pub distributor_entries: AutoOr<u32>,
    /// The vector instructions that it uses.
    pub distributor_vector: String,
    /// Whether subtables that cannot match are skipped.
    pub subtable_pruning: String,
    /// Whether the subtables with the most recent hits come first.
    pub subtable_ranking: String,
    /// Vector instructions.
    pub vector: String,
    /// Flow-setup governor.
    pub governor: String,
    /// How many VLAN tags are read of a packet; 0: as many as can be.
    pub vlan_limit: u32,
    /// A megaflow that is unused for this long is deleted.
    pub max_idle: Duration,
    /// Memory for megaflow records.
    pub flow_memory: Size,
    /// Share of a PMD's cycles that a port may spend on misses.
    pub miss_budget: AutoOr<Share>,
    /// How receive queues are spread over PMDs.
    pub pmd_rxq_assign: String,
    /// Whether a PMD with a pinned queue polls pinned queues only.
    pub pmd_rxq_isolate: bool,
    /// Longest sleep of an idle PMD.
    pub pmd_sleep_max: Duration,
    /// Whether PMDs keep metrics of their iterations.
    pub pmd_perf_metrics: bool,
}

impl Switch {
    /// The mode of the sockets: the owner's, and that of the group that may use them, if one is named.
    pub fn socket_mode(&self) -> u16 {
        let default = if self.socket_group.is_some() { 0o660 } else { 0o600 };
        self.socket_mode.map_or(default, |mode| mode.0)
    }

    /// Whom the switch runs as.
    ///
    /// # Errors
    /// As [`Identity::new`].
    pub fn identity(&self) -> anyhow::Result<Identity> {
        Identity::new(self.user.as_deref(), self.group.as_deref(), self.socket_group.as_deref())
    }
}

impl Default for Switch {
    fn default() -> Self {
        Switch {
            rundir: None,
            user: None,
            group: None,
            socket_group: None,
            socket_mode: None,
            port_types: Vec::new(),
            log_file: None,
            syslog: false,
            pmd_cores: vec![1],
            main_worker: false,
            stop_after: None,
            metrics: None,
            bundle_memory: Size(BUNDLE_MEMORY as u64),
            rule_memory: Size(RULE_MEMORY as u64),
            keep_tables: false,
            tls: None,
            dpdk: None,
        }
    }
}

impl Default for Dpdk {
    fn default() -> Self {
        Dpdk { eal_args: vec!["--no-pci".into(), "--in-memory".into()], mbufs: 262_144 }
    }
}

impl Default for Datapath {
    fn default() -> Self {
        let lookup = Settings::default();
        Datapath {
            emc: Level::Auto,
            smc: Level::Auto,
            distributor: Level::Auto,
            emc_entries: lookup.emc_entries as u32,
            emc_insert_inv_prob: AutoOr::Auto,
            emc_recirc: "auto".into(),
            emc_recirc_threshold: lookup.emc_recirc_threshold,
            smc_entries: lookup.smc_entries as u32,
            composed: Level::Auto,
            distributor_table: "auto".into(),
            distributor_entries: AutoOr::Auto,
            distributor_vector: "auto".into(),
            subtable_pruning: "on".into(),
            subtable_ranking: "on".into(),
            vector: "auto".into(),
            governor: "auto".into(),
            vlan_limit: 1,
            max_idle: Duration::from_secs(10),
            flow_memory: Size(256 << 20),
            miss_budget: AutoOr::Auto,
            pmd_rxq_assign: "cycles".into(),
            pmd_rxq_isolate: true,
            pmd_sleep_max: Duration::from_secs(0),
            pmd_perf_metrics: false,
        }
    }
}

impl Config {
    /// Reads and checks a configuration file.
    ///
    /// # Errors
    /// If it cannot be read, is not TOML, has an unknown key or a wrong type, or asks for what this build lacks.
    pub fn load(file: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(file).map_err(|e| ConfigError::unreadable(file, &e))?;
        let mut config = Config::parse(file, &text)?;
        // `parent` of a bare file name is the empty path, which joins as the current directory.
        config.directory = file.parent().map(Path::to_path_buf).unwrap_or_default();
        config.read_from = (file.to_owned(), text);
        Ok(config)
    }

    /// Checks the text of a configuration; `file` is for the errors.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(file: &Path, text: &str) -> Result<Config, ConfigError> {
        let config: Config = toml::from_str(text).map_err(|e| ConfigError::of_toml(file, text, &e))?;
        config.check().map_err(|wrong| ConfigError::of_key(file, text, &wrong.key, &wrong.message))?;
        Ok(config)
    }

    /// What is no error but does less than it seems to: a line for each.
    pub fn warnings(&self) -> Vec<String> {
        let ports = || self.bridge.iter().flat_map(|bridge| bridge.port.iter().map(move |port| (&bridge.name, port)));
        let both = ports().filter(|(_, port)| port.tag.is_some() && !port.trunks.is_empty());
        let both = both.map(|(bridge, port)| {
            format!(
                "bridge {bridge}: port {}: tag makes it an access port, so trunks has no effect; remove one of them",
                port.name
            )
        });
        let patches = || ports().filter(|(_, port)| port.kind == sluice_vswitch::PATCH);
        let alone = patches().filter_map(|(bridge, port)| {
            let peer = port.options.get("peer")?.as_str()?;
            let is_there = patches().any(|(_, other)| other.name == peer);
            (!is_there).then(|| {
                let why = format!("peer = \"{peer}\", but no patch port has that name: packets to it are dropped");
                format!("bridge {bridge}: port {}: {why}; name the patch port at the other end", port.name)
            })
        });
        both.chain(alone).collect()
    }

    /// What is wrong with the value of a key, with the file and its line.
    pub fn refuse(&self, key: &str, message: &str) -> ConfigError {
        let (file, text) = &self.read_from;
        ConfigError::of_key(file, text, key, message)
    }

    /// A path from the file, made absolute or relative to where the switch was started.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        self.directory.join(path)
    }
}

#[cfg(test)]
mod tests;
