//! The configuration of a bridge, and its number.

use crate::mac::{DEFAULT_AGE_S, DEFAULT_MAX};
use sluice_classifier::TrieField;
use sluice_flow::SubField;
use std::collections::BTreeSet;

/// The type of the userspace datapath. Source: OVS lib/dpif-netdev.c.
const NETDEV: &str = "netdev";

/// Tables of a bridge: 0 to 254. In requests, 255 means all tables or the current one.
pub const N_TABLES: usize = 255;

/// What a bridge does without rules from a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailMode {
    /// It drops all packets.
    #[default]
    Secure,
    /// It forwards like an ordinary switch: it starts with the rule `priority=0 actions=NORMAL`.
    Standalone,
}

/// How rules match IP fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FragmentMode {
    /// L4 ports are zero in every fragment.
    #[default]
    Normal,
    /// Fragments are dropped.
    Drop,
    /// The first fragment has its L4 ports, later ones have zero.
    NxMatch,
}

/// How action NORMAL forwards. Source: `ovs-vswitchd.conf.db(5)`, `Bridge`, `other_config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormalSettings {
    /// Seconds until an unused MAC entry expires.
    pub mac_age_s: u64,
    /// MAC entries at most.
    pub mac_table_size: usize,
    /// Whether packets to addresses that are reserved for protocols between bridges are forwarded.
    pub forward_bpdu: bool,
    /// VLANs in which nothing is learned, so that all packets are flooded, as mirrors to a VLAN want it.
    pub flood_vlans: BTreeSet<u16>,
}

impl Default for NormalSettings {
    fn default() -> Self {
        NormalSettings {
            mac_age_s: DEFAULT_AGE_S,
            mac_table_size: DEFAULT_MAX,
            forward_bpdu: false,
            flood_vlans: BTreeSet::new(),
        }
    }
}

/// The configuration of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeConfig {
    /// Name, unique in the switch.
    pub name: String,
    /// The type of its datapath, by OVS's name: `system`, `netdev` or `dummy`.
    pub datapath_type: String,
    /// OpenFlow datapath id.
    pub datapath_id: u64,
    /// Fail mode.
    pub fail_mode: FailMode,
    /// How action NORMAL forwards.
    pub normal: NormalSettings,
    /// Fields with a prefix trie, which makes the megaflows of rules that match prefixes wider: of all tables whose own
    /// configuration does not say otherwise.
    pub prefixes: Vec<TrieField>,
    /// Tables that differ from the usual ones.
    pub tables: Vec<TableConfig>,
}

impl BridgeConfig {
    /// A secure bridge with the usual settings.
    pub fn new(name: &str) -> Self {
        let name = name.to_owned();
        let prefixes = TrieField::DEFAULT.to_vec();
        BridgeConfig {
            name,
            datapath_type: NETDEV.to_owned(),
            datapath_id: 1,
            fail_mode: FailMode::Secure,
            normal: NormalSettings::default(),
            prefixes,
            tables: Vec::new(),
        }
    }
}

/// A bridge's number, which is never reused while the switch runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BridgeId(pub u32);

/// The configuration of a table. Source: `ovs-vswitchd.conf.db(5)`, `Flow_Table`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableConfig {
    /// Number of the table.
    pub table: u8,
    /// Its name; empty: none.
    pub name: String,
    /// Rules at most; `None`: no limit.
    pub flow_limit: Option<usize>,
    /// Whether it evicts when it is full, even if no controller enabled that.
    pub evicts: bool,
    /// Rules that agree in these bits are a group. The largest group loses a rule first; without bits all rules are one.
    pub groups: Vec<SubField>,
    /// Fields with a prefix trie; `None`: as the bridge says.
    pub prefixes: Option<Vec<TrieField>>,
}

impl TableConfig {
    /// A table like all others.
    pub fn new(table: u8) -> Self {
        TableConfig { table, name: String::new(), flow_limit: None, evicts: false, groups: Vec::new(), prefixes: None }
    }
}

/// What happens to packets that no rule of a table matches. Source: OpenFlow 1.1, `OFPTC_TABLE_MISS_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TableMiss {
    /// They go to controllers if there is one whose version expects that, else they are dropped.
    #[default]
    Default,
    /// They go to controllers.
    Controller,
    /// They go to the next table.
    Continue,
    /// They are dropped.
    Drop,
}
