//! The configuration of a bridge, and its number.

use crate::mac::DEFAULT_AGE_S;
use sluice_classifier::TrieField;

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
    /// Seconds until an unused MAC entry expires.
    pub mac_age_s: u64,
    /// Fields with a prefix trie, which makes the megaflows of rules that match prefixes wider. As `prefixes` of a
    /// `Flow_Table` in Open vSwitch, but for all tables.
    pub prefixes: Vec<TrieField>,
    /// Tables with a limit on their number of rules.
    pub limits: Vec<TableLimit>,
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
            mac_age_s: DEFAULT_AGE_S,
            prefixes,
            limits: Vec::new(),
        }
    }
}

/// A bridge's number, which is never reused while the switch runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BridgeId(pub u32);

/// A limit of a table, from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLimit {
    /// Number of the table.
    pub table: u8,
    /// Rules at most.
    pub rules: usize,
    /// Whether it evicts when it is full, even if no controller enabled that.
    pub evicts: bool,
}
