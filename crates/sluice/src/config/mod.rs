//! The configuration file: what it may say, and what this build does with it.
//!
//! Three steps, each with its own errors: TOML, the shape (types and known keys, by serde), and what this build
//! supports ([`check`]). A key that belongs to a feature this build lacks is accepted only with the value that says
//! so; nothing is parsed and then ignored. Every error names file, line and key, and is one line.

mod check;
mod error;
mod target;
mod value;

pub use error::ConfigError;
pub use target::{Controller, Listen};
pub use value::{Affinity, AutoOr, Duration, Share, Size};

use serde::Deserialize;
use sluice_datapath::{InsertInvProb, Level, Settings};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The annotated configuration. The tests hold it to the structs below.
const REFERENCE: &str = include_str!("reference.toml");

/// The type of ports that join two bridges and have nothing to do with the datapath.
pub const PATCH: &str = "patch";

/// What `sluice run --help-config` prints: the whole configuration, every key explained, and every port type's options.
pub fn help() -> String {
    let mut out = String::from(REFERENCE);
    out += "\n# The options of each port type. Text, numbers and booleans all do: flows = \"1M\", seed = 7, promiscuous = true.\n";
    out += "#\n# type = \"patch\": joins two bridges; packets sent to one end come in by the other\n";
    out += "#   peer         name of the other end, a patch port whose peer is this one\n";
    for kind in sluice_port::KINDS {
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
}

/// `[switch]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Switch {
    /// Where the sockets are made; `None` is the default of [`crate::rundir`].
    pub rundir: Option<PathBuf>,
    /// One PMD thread for each, pinned to it.
    pub pmd_cores: Vec<u32>,
    /// End by itself after so long.
    pub stop_after: Option<Duration>,
    /// Where Prometheus may ask.
    pub metrics: Option<std::net::SocketAddr>,
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
    /// Entries of the exact match cache, a power of two.
    pub emc_entries: u32,
    /// One insertion in so many.
    pub emc_insert_inv_prob: AutoOr<u32>,
    /// Which recirculated packets use the exact match cache.
    pub emc_recirc: String,
    /// Composed entries.
    #[serde(deserialize_with = "value::level")]
    pub composed: Level,
    /// What the distributor keeps its entries in.
    pub distributor_table: String,
    /// Vector instructions.
    pub vector: String,
    /// Flow-setup governor.
    pub governor: String,
    /// A megaflow unused for so long goes.
    pub max_idle: Duration,
    /// Memory for megaflow records.
    pub flow_memory: Size,
    /// Share of a PMD's cycles that a port may spend on misses.
    pub miss_budget: AutoOr<Share>,
    /// Longest sleep of an idle PMD.
    pub pmd_sleep_max: Duration,
}

/// `[[bridge]]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bridge {
    /// Its name.
    pub name: String,
    /// What it does without rules or controller.
    #[serde(default)]
    pub fail_mode: FailMode,
    /// Its rules, in ovs-ofctl syntax.
    #[serde(default)]
    pub flows: Option<PathBuf>,
    /// Its groups, in ovs-ofctl syntax.
    #[serde(default)]
    pub groups: Option<PathBuf>,
    /// Its meters, in ovs-ofctl syntax.
    #[serde(default)]
    pub meters: Option<PathBuf>,
    /// OpenFlow datapath id, 16 hexadecimal digits.
    #[serde(default)]
    pub datapath_id: Option<String>,
    /// How long a learned address is kept.
    #[serde(default = "five_minutes")]
    pub mac_age: Duration,
    /// Fields whose prefixes its tables keep in tries.
    #[serde(default = "usual_prefixes")]
    pub prefixes: Vec<String>,
    /// Whether LOCAL is a tap device named like the bridge.
    #[serde(default)]
    pub local: bool,
    /// Controllers to connect to.
    #[serde(default)]
    pub controllers: Vec<String>,
    /// Packets a second that each of them gets at most; 0 is without limit.
    #[serde(default)]
    pub controller_rate_limit: u32,
    /// Packets that it gets at once, and that wait, at most; 0 is a quarter of a second's.
    #[serde(default)]
    pub controller_burst_limit: u32,
    /// Where to listen for controllers.
    #[serde(default)]
    pub listen: Vec<String>,
    /// `[[bridge.table]]`.
    #[serde(default)]
    pub table: Vec<Table>,
    /// `[[bridge.port]]`.
    #[serde(default)]
    pub port: Vec<Port>,
}

impl Bridge {
    /// Packets a second and packets at once that a controller gets, if there is a limit.
    pub fn packet_in_limit(&self) -> Option<(u32, u32)> {
        let (rate, burst) = (self.controller_rate_limit, self.controller_burst_limit);
        (rate != 0).then_some((rate, if burst == 0 { (rate / 4).max(1) } else { burst }))
    }
}

/// `[[bridge.table]]`: a table with a limit.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Table {
    /// Its number.
    pub number: u8,
    /// Rules that it holds at most.
    pub flow_limit: u32,
    /// What it does when it is full.
    #[serde(default)]
    pub overflow_policy: OverflowPolicy,
}

/// What a full table does with one rule more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverflowPolicy {
    /// Refuses it, unless a controller lets the table evict.
    #[default]
    Refuse,
    /// Evicts another for it.
    Evict,
}

/// What a bridge does for packets no rule matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailMode {
    /// Drop them.
    #[default]
    Secure,
    /// Switch them as a learning switch does.
    Standalone,
}

/// `[[bridge.port]]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Port {
    /// Its name, unique in the switch.
    pub name: String,
    /// Its OpenFlow number, unique in the bridge.
    pub ofport: u32,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// Longest packet without its Ethernet header and tags, bytes.
    #[serde(default = "ethernet_mtu")]
    pub mtu: u32,
    /// Receive queues.
    #[serde(default = "one")]
    pub n_rxq: usize,
    /// Cores that poll certain receive queues; the other queues are spread.
    #[serde(default)]
    pub pmd_rxq_affinity: Affinity,
    /// Access VLAN.
    #[serde(default)]
    pub tag: Option<u16>,
    /// Trunked VLANs.
    #[serde(default)]
    pub trunks: Vec<u16>,
    /// What its type wants to know.
    #[serde(default)]
    pub options: BTreeMap<String, toml::Value>,
}

/// Checks a port that comes from elsewhere than a file.
///
/// # Errors
/// With the key and what was expected.
pub fn check_port(port: &Port, pmd_cores: &[u32]) -> Result<(), String> {
    let checked = check::check_port("port", port).and_then(|()| check::check_affinity("port", port, pmd_cores));
    checked.map_err(|wrong| format!("{}: {}", wrong.key, wrong.message))
}

/// The MTU of a port that does not say.
pub const ETHERNET_MTU: u32 = 1500;

impl Port {
    /// A port about which nothing more is said.
    pub fn of_type(kind: &str, name: &str, ofport: u32) -> Self {
        Port {
            name: name.into(),
            ofport,
            kind: kind.into(),
            mtu: ETHERNET_MTU,
            n_rxq: 1,
            pmd_rxq_affinity: Affinity::default(),
            tag: None,
            trunks: Vec::new(),
            options: BTreeMap::new(),
        }
    }
}

fn ethernet_mtu() -> u32 {
    ETHERNET_MTU
}

fn one() -> usize {
    1
}

fn usual_prefixes() -> Vec<String> {
    ["ip_dst", "ip_src"].map(str::to_owned).to_vec()
}

fn five_minutes() -> Duration {
    Duration::from_secs(300)
}

impl Default for Switch {
    fn default() -> Self {
        Switch { rundir: None, pmd_cores: vec![1], stop_after: None, metrics: None, tls: None, dpdk: None }
    }
}

impl Default for Dpdk {
    fn default() -> Self {
        Dpdk { eal_args: vec!["--no-pci".into(), "--in-memory".into()], mbufs: 262_144 }
    }
}

impl Default for Datapath {
    fn default() -> Self {
        Datapath {
            emc: Level::Auto,
            smc: Level::Auto,
            distributor: Level::Auto,
            emc_entries: 8192,
            emc_insert_inv_prob: AutoOr::Auto,
            emc_recirc: "auto".into(),
            composed: Level::Auto,
            distributor_table: "auto".into(),
            vector: "auto".into(),
            governor: "auto".into(),
            max_idle: Duration::from_secs(10),
            flow_memory: Size(256 << 20),
            miss_budget: AutoOr::Auto,
            pmd_sleep_max: Duration::from_secs(0),
        }
    }
}

impl Datapath {
    /// How packets are to be looked up.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings {
            emc: self.emc,
            smc: self.smc,
            distributor: self.distributor,
            emc_insert_inv_prob: match self.emc_insert_inv_prob {
                AutoOr::Auto => InsertInvProb::Auto,
                AutoOr::Is(n) => InsertInvProb::OneIn(n),
            },
            emc_entries: self.emc_entries as usize,
            composed: self.composed,
            ..Settings::default()
        };
        for (key, value) in self.settings_by_name() {
            settings.set(key, value).expect("invariant: the check of the configuration has set it once");
        }
        settings
    }

    /// Settings whose values the datapath knows by name.
    fn settings_by_name(&self) -> [(&'static str, &String); 3] {
        [("distributor-table", &self.distributor_table), ("vector", &self.vector), ("emc-recirc", &self.emc_recirc)]
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
        Ok(config)
    }

    /// Checks the text of a configuration; `file` is for the errors.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(file: &Path, text: &str) -> Result<Config, ConfigError> {
        let config: Config = toml::from_str(text).map_err(|e| ConfigError::of_toml(file, text, &e))?;
        check::check(&config).map_err(|wrong| ConfigError::of_key(file, text, &wrong.key, &wrong.message))?;
        Ok(config)
    }

    /// `[switch.tls]`, its paths resolved.
    pub fn tls(&self) -> Option<Tls> {
        self.switch.tls.as_ref().map(|tls| Tls {
            private_key: self.resolve(&tls.private_key),
            certificate: self.resolve(&tls.certificate),
            ca_cert: self.resolve(&tls.ca_cert),
        })
    }

    /// A path from the file, made absolute or relative to where the switch was started.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        self.directory.join(path)
    }
}

#[cfg(test)]
mod tests;
