//! `[[bridge]]`: a bridge, its tables and its ports.

use super::bfd::Bfd;
use super::qos::{IngressPolicing, Qos};
use super::sflow::SFlow;
use super::value::{Affinity, Duration};
use super::{Bond, Mirror};
use serde::Deserialize;
use sluice_vswitch::ETHERNET_MTU;
use std::collections::BTreeMap;
use std::path::PathBuf;

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
    /// Whether a reload keeps rules that the file never listed.
    #[serde(default)]
    pub keep_rules: bool,
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
    /// `[[bridge.mirror]]`.
    #[serde(default)]
    pub mirror: Vec<Mirror>,
    /// `[[bridge.bond]]`.
    #[serde(default)]
    pub bond: Vec<Bond>,
    /// Samples for collectors, if there are to be any.
    #[serde(default)]
    pub sflow: Option<SFlow>,
    /// `[[bridge.port]]`.
    #[serde(default)]
    pub port: Vec<Port>,
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
    /// How what it sends is spread over its transmit queues.
    #[serde(default)]
    pub tx_steering: TxSteering,
    /// Access VLAN.
    #[serde(default)]
    pub tag: Option<u16>,
    /// Trunked VLANs.
    #[serde(default)]
    pub trunks: Vec<u16>,
    /// Its BFD session, if it is to have one.
    #[serde(default)]
    pub bfd: Option<Bfd>,
    /// What it may receive.
    #[serde(default)]
    pub ingress_policing: IngressPolicing,
    /// What it may send, and by which queues.
    #[serde(default)]
    pub qos: Option<Qos>,
    /// What its type wants to know.
    #[serde(default)]
    pub options: BTreeMap<String, toml::Value>,
}

/// How packets are spread over a port's transmit queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TxSteering {
    /// Each worker uses one.
    #[default]
    Thread,
    /// Each packet uses that of its hash.
    Hash,
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
