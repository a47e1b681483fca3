//! A bridge: its tables, its controllers and its ports.

use super::{Bundle, Port, SFlow};
use sluice_connmgr::{BridgeDescription, BridgeSettings, ControllerSettings, InBandSettings, PassiveTarget};
use sluice_ofproto::{BridgeConfig, FailMode, MirrorConfig, NormalSettings, TableConfig, TrieField};
use std::sync::Arc;

/// The userspace datapath's type. Source: OVS lib/dpif-netdev.c.
const NETDEV: &str = "netdev";

/// A bridge.
#[derive(Clone, Debug, PartialEq)]
pub struct Bridge {
    /// Its name, unique in the switch.
    pub name: String,
    /// The type of its datapath by Open vSwitch's name: `system`, `netdev` or `dummy`. One datapath serves all bridges; the
    /// type decides which numbers its ports get there, and what texts call it.
    pub datapath_type: String,
    /// OpenFlow datapath id; `None`: the switch chooses it.
    pub datapath_id: Option<u64>,
    /// What it does without rules or controller.
    pub fail_mode: FailMode,
    /// How action NORMAL forwards.
    pub normal: NormalSettings,
    /// Fields whose prefixes its tables keep in tries.
    pub prefixes: Vec<TrieField>,
    /// Tables that differ from the usual ones.
    pub tables: Vec<TableConfig>,
    /// Copies of what its ports receive and send, of unique ids.
    pub mirrors: Vec<MirrorConfig>,
    /// Samples of its packets and counters for collectors.
    pub sflow: Option<SFlow>,
    /// OpenFlow versions that it speaks, as bits.
    pub versions: u32,
    /// Controllers to connect to.
    pub controllers: Vec<ControllerSettings>,
    /// Where to listen for controllers, besides its Unix socket.
    pub listeners: Vec<PassiveTarget>,
    /// The controllers and managers that it reaches through its own ports.
    pub in_band: InBandSettings,
    /// What it says of itself to controllers.
    pub description: BridgeDescription,
    /// What its tables hold.
    pub sources: Sources,
    /// Its ports, by names that are unique in the switch. One that is named like the bridge is its LOCAL port
    /// ([`Port::local`]); without it, packets sent to LOCAL are dropped.
    pub ports: Vec<Port>,
    /// Its bonds, and the ports on which LACP is spoken, by unique names.
    pub bundles: Vec<Bundle>,
}

/// What the tables of a bridge hold, as text in ovs-ofctl's syntax.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Its meters, one a line.
    pub meters: Option<Source>,
    /// Its groups.
    pub groups: Option<Source>,
    /// Its rules.
    pub rules: Option<Source>,
    /// Whether rules that came from elsewhere stay when other rules are loaded.
    pub keeps_rules: bool,
}

/// Text that has been read, and where from.
///
/// A state holds the text, not the path: so it is complete, two states can be compared, and nothing can fail to be read
/// once steps are under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file it was read from, or what else errors are to name.
    pub origin: String,
    /// The text.
    pub text: Arc<str>,
}

impl Bridge {
    /// A secure bridge without ports and rules.
    pub fn new(name: &str) -> Self {
        let (usual, served) = (BridgeConfig::new(name), BridgeSettings::default());
        Bridge {
            name: usual.name,
            datapath_type: NETDEV.to_owned(),
            datapath_id: None,
            fail_mode: usual.fail_mode,
            normal: usual.normal,
            prefixes: usual.prefixes,
            tables: usual.tables,
            mirrors: Vec::new(),
            sflow: None,
            versions: served.versions,
            controllers: served.controllers,
            listeners: served.listeners,
            in_band: served.in_band,
            description: served.description,
            sources: Sources::default(),
            ports: Vec::new(),
            bundles: Vec::new(),
        }
    }

    /// The port of that name.
    pub fn port(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// How it is to be served.
    pub fn openflow(&self) -> BridgeSettings {
        BridgeSettings {
            fail_mode: self.fail_mode,
            versions: self.versions,
            listeners: self.listeners.clone(),
            controllers: self.controllers.clone(),
            description: self.description.clone(),
            in_band: self.in_band.clone(),
        }
    }

    /// The bridge as the tables want to know it.
    pub(crate) fn tables_config(&self) -> BridgeConfig {
        let usual = BridgeConfig::new(&self.name);
        BridgeConfig {
            datapath_type: self.datapath_type.clone(),
            datapath_id: self.datapath_id.unwrap_or(usual.datapath_id),
            fail_mode: self.fail_mode,
            normal: self.normal.clone(),
            prefixes: self.prefixes.clone(),
            tables: self.tables.clone(),
            ..usual
        }
    }
}

impl Source {
    /// Text from `origin`.
    pub fn new(origin: impl Into<String>, text: impl Into<Arc<str>>) -> Self {
        Source { origin: origin.into(), text: text.into() }
    }

    /// What is wrong with it.
    pub(crate) fn error(&self, message: impl std::fmt::Display) -> crate::Error {
        crate::Error::Source { origin: self.origin.clone(), message: message.to_string() }
    }
}
