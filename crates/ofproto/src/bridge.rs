//! A bridge: its ports, tables, groups, meters and MAC table. One writer and many translations share it behind a lock.

use crate::bond::Bonds;
use crate::bridge_config::{BridgeConfig, BridgeId, FragmentMode, N_TABLES, TableConfig, TableMiss};
use crate::cookie_counts::CookieCounts;
use crate::expiry::Expirable;
use crate::features::DpFeatures;
use crate::groups::Groups;
use crate::hidden_flow::HiddenFlow;
use crate::mac::MacTable;
use crate::meter::Meters;
use crate::mirror::Mirrors;
use crate::port::{Attach, PortConfig};
use crate::routes::Routes;
use crate::rule::Rule;
use crate::rule_memory::SubtableCharge;
use crate::rule_users::RuleUsers;
use crate::sflow::SFlowSettings;
use crate::table_capacity::TableCapacity;
use crate::table_counts::TableCounts;
use crate::tunnel_ports::TunnelPorts;
use crate::vport_counts::VportCounts;
use parking_lot::RwLock;
use sluice_classifier::{Classifier, EmptySubtable, RuleId, TrieField};
use sluice_fate::{DropReason, MemoryShare};
use sluice_flow::geneve::OptionMap;
use sluice_flow::{DEFAULT_PRIORITY, FlowKey, Match, OfPort, PacketKey, PortNames, VlanLimit};
use sluice_ofp::FlowRemovedReason;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Rules by match and priority.
pub(crate) type Rules = Classifier<Arc<Rule>>;

/// A bridge.
pub(crate) struct Bridge {
    pub id: BridgeId,
    pub config: BridgeConfig,
    pub fragments: FragmentMode,
    /// Whether packets without a matching rule in table 0 go to controllers.
    pub misses_to_controllers: bool,
    pub ports: BTreeMap<OfPort, PortConfig>,
    /// The counters of its patch ports and tunnels.
    pub vport_counts: BTreeMap<OfPort, Arc<VportCounts>>,
    /// Port numbers in order of addition, which is the order of `NORMAL` flooding.
    pub port_order: Vec<OfPort>,
    pub tables: Box<[OfTable]>,
    pub groups: Groups,
    pub meters: Meters,
    /// The options of Geneve that fields stand for in its rules.
    pub tunnel_options: OptionMap,
    pub mirrors: Mirrors,
    pub bonds: Bonds,
    /// How its packets are sampled, if they are.
    pub sflow: Option<SFlowSettings>,
    pub macs: RwLock<MacTable>,
    /// Flows that OpenFlow does not show.
    pub hidden_flows: Vec<HiddenFlow>,
    /// Whether it has controllers in its own network.
    pub has_in_band: bool,
    /// Rules with a timeout.
    pub expirable: Expirable,
    /// Which rules use groups and meters.
    pub users: RuleUsers,
    /// How many rules with `delete_learned` learn into a table with a cookie.
    pub learners: HashMap<LearnedCookie, usize>,
}

/// Where a `learn` action puts its rules, and the cookie it gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LearnedCookie {
    pub table: u8,
    pub cookie: u64,
}

/// A table.
pub(crate) struct OfTable {
    /// Its name; empty: none.
    pub name: String,
    /// What happens to packets that no rule matches.
    pub miss: TableMiss,
    /// Fields with a prefix trie; `None`: as the bridge says.
    pub prefixes: Option<Vec<TrieField>>,
    /// `None` until it gets its first rule.
    pub rules: Option<Box<Rules>>,
    pub counts: Arc<TableCounts>,
    pub capacity: TableCapacity,
    /// The memory of its subtables.
    pub subtables: SubtableCharge,
    pub cookies: CookieCounts,
}

impl OfTable {
    /// A table without rules, whose subtables take memory of that share.
    pub fn new(memory: &Arc<MemoryShare>) -> Self {
        OfTable {
            name: String::new(),
            miss: TableMiss::default(),
            prefixes: None,
            rules: None,
            counts: Arc::default(),
            capacity: TableCapacity::default(),
            subtables: SubtableCharge::new(memory),
            cookies: CookieCounts::default(),
        }
    }

    /// Takes a configuration, before there are rules or once they are dealt with.
    pub fn configure(&mut self, config: &TableConfig) {
        self.name.clone_from(&config.name);
        self.prefixes.clone_from(&config.prefixes);
        self.capacity.configure(config);
    }

    /// Takes its rules away, none of which is visible to a lookup.
    pub fn take_rules(&mut self) -> Option<Box<Rules>> {
        self.subtables.set(0);
        self.rules.take()
    }

    /// Removes a rule that is visible to no lookup. The caller drops what it leaves once the tables are not locked.
    pub fn remove(&mut self, id: RuleId, emptied: &mut Vec<EmptySubtable>) {
        if let Some(rules) = &mut self.rules {
            rules.remove_leaving(id, emptied);
            self.subtables.set(rules.subtables_bytes());
        }
    }
}

/// A rule whose timeout is over.
pub(crate) struct ExpiredRule {
    pub table: u8,
    pub id: RuleId,
    pub reason: FlowRemovedReason,
}

impl Bridge {
    /// A bridge without ports and rules. What its tables take beside their rules is charged to that share of memory.
    pub fn new(id: BridgeId, config: BridgeConfig, memory: &Arc<MemoryShare>) -> Self {
        let mut macs = MacTable::new(config.normal.mac_age_s, config.normal.mac_table_size);
        macs.set_flood_vlans(&config.normal.flood_vlans);
        let mut tables: Box<[OfTable]> = std::iter::repeat_with(|| OfTable::new(memory)).take(N_TABLES).collect();
        for table in &config.tables {
            if let Some(found) = tables.get_mut(usize::from(table.table)) {
                found.configure(table);
            }
        }
        Bridge {
            id,
            config,
            fragments: FragmentMode::Normal,
            misses_to_controllers: false,
            ports: BTreeMap::new(),
            vport_counts: BTreeMap::new(),
            port_order: Vec::new(),
            tables,
            groups: Groups::new(),
            meters: Meters::new(),
            tunnel_options: OptionMap::default(),
            mirrors: Mirrors::default(),
            bonds: Bonds::default(),
            sflow: None,
            macs: RwLock::new(macs),
            hidden_flows: Vec::new(),
            has_in_band: false,
            expirable: Expirable::default(),
            users: RuleUsers::default(),
            learners: HashMap::new(),
        }
    }

    /// Notes a rule that the latest version has.
    pub fn note_rule(&mut self, rule: &Rule, id: RuleId) {
        self.tables[usize::from(rule.table)].cookies.add(rule.cookie);
        self.users.add(rule, id);
    }

    /// Forgets one that it has no more.
    pub fn forget_rule(&mut self, rule: &Rule, id: RuleId) {
        self.tables[usize::from(rule.table)].cookies.remove(rule.cookie);
        self.users.remove(rule, id);
    }

    /// The rules of a table, for a change.
    pub fn rules_mut(&mut self, table: u8) -> &mut Rules {
        let OfTable { rules, prefixes, .. } = &mut self.tables[usize::from(table)];
        let prefixes = prefixes.as_ref().unwrap_or(&self.config.prefixes);
        rules.get_or_insert_with(|| Box::new(Classifier::new(prefixes, 0)))
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// The port of that name.
    pub fn port_named(&self, name: &str) -> Option<&PortConfig> {
        self.ports.values().find(|p| p.name == name)
    }
}

/// Everything that a translation reads, except MAC tables and recirculations.
#[derive(Default)]
pub(crate) struct SwitchState {
    pub bridges: Vec<Bridge>,
    /// The bridge and the port of each datapath port.
    pub by_datapath: HashMap<u32, (BridgeId, OfPort)>,
    /// The ports that are tunnels.
    pub tunnels: TunnelPorts,
    /// Where the packets of tunnels leave.
    pub routes: Routes,
    /// The bridge and the port of each port name.
    pub by_name: HashMap<String, (BridgeId, OfPort)>,
    /// The version of the tables at which lookups search.
    pub tables_version: u64,
    /// How many VLAN tags are read of a packet.
    pub vlan_limit: VlanLimit,
    /// What translation may use of the datapath.
    pub features: DpFeatures,
}

impl SwitchState {
    pub fn bridge(&self, id: BridgeId) -> Option<&Bridge> {
        self.bridges.iter().find(|b| b.id == id)
    }

    pub fn bridge_mut(&mut self, id: BridgeId) -> Option<&mut Bridge> {
        self.bridges.iter_mut().find(|b| b.id == id)
    }

    /// Whether a bridge names its datapath so: `ovs-dummy`, or `dummy@ovs-dummy`.
    pub fn has_datapath(&self, name: &str) -> bool {
        self.bridges.iter().any(|bridge| {
            let own = &bridge.config.datapath_type;
            let short = name.strip_prefix(own.as_str()).and_then(|rest| rest.strip_prefix('@')).unwrap_or(name);
            short.strip_prefix("ovs-") == Some(own)
        })
    }

    /// The bridge and the port that a packet belongs to which has that key.
    pub fn port_of(&self, key: &PacketKey) -> Option<(BridgeId, OfPort)> {
        let known = self.by_datapath.get(&key.in_port()).copied();
        known.or_else(|| self.tunnels.receive(key))
    }

    /// Why a packet with that key belongs to no port. Of a tunnel that nobody has the log tells, too.
    pub fn why_no_port(&self, key: &PacketKey) -> DropReason {
        let flow = FlowKey::of_packet(key);
        if !flow.has_tunnel() {
            return DropReason::UpcallLost;
        }
        let packet = Match::of_packet(&flow);
        let packet = packet.display(&PortNames::NONE, DEFAULT_PRIORITY);
        tracing::warn!(target: "tunnel", rate_limit = 1, "receive tunnel port not found ({packet})");
        DropReason::NoTunnelPort
    }

    pub fn bridge_named(&self, name: &str) -> Option<&Bridge> {
        self.bridges.iter().find(|b| b.name() == name)
    }

    /// The peer of a patch port. Both ports must name each other.
    pub fn peer(&self, port: &PortConfig) -> Option<(&Bridge, &PortConfig)> {
        let Attach::Patch(peer) = &port.attach else { return None };
        let (bridge, number) = self.by_name.get(peer)?;
        let bridge = self.bridge(*bridge)?;
        let other = bridge.ports.get(number)?;
        matches!(&other.attach, Attach::Patch(back) if *back == port.name).then_some((bridge, other))
    }
}
