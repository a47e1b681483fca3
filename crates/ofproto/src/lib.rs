//! OpenFlow tables and translation.
//!
//! The datapath forwards packets by megaflows. For a packet that no megaflow matches it makes an *upcall*: this crate
//! walks the packet through the OpenFlow tables and returns datapath actions and a mask, and the datapath makes a
//! megaflow of them. This crate also keeps megaflows correct when anything they depend on changes. It does what
//! `ofproto/` does in Open vSwitch, in its terms: upcall, xlate cache, revalidator, recirculation, freezing.
//!
//! # From an upcall to a megaflow
//!
//! [`Ofproto`] holds all bridges of the switch: ports, tables of rules, groups, meters, MAC tables. Each PMD has an
//! [`UpcallHandle`]. Its `translate` runs a [`xlate::Translator`], which
//!
//! 1. finds the bridge and the OpenFlow port of the packet's datapath port,
//! 2. searches table 0, carries out the actions of the rule it finds, and searches further tables as they say,
//! 3. collects in a mask every bit of the packet that it has looked at,
//! 4. emits datapath actions that turn the packet that came into the packet that leaves,
//! 5. records in an [`xlate_cache`] what it has used: rules, tables, groups, MAC entries, ports.
//!
//! The PMD installs the result. A translation changes nothing. What a packet causes (a learned MAC entry, a learned
//! rule, a shorter timeout) goes to the control thread as an effect through a bounded queue; [`Ofproto::tick`] carries
//! effects out.
//!
//! The megaflow carries its xlate cache. The revalidator ([`Ofproto::revalidate`]) reads the megaflow's counters and
//! credits them to the rules, groups and tables in the cache, so that flow statistics are right although most packets
//! never come here. It deletes idle megaflows.
//!
//! # When rules change
//!
//! Tables have one writer. A rule has the version at which it appears and the version at which it disappears, so a
//! bundle becomes visible when the version number changes once. A translation remembers the epoch in which it began,
//! and installation compares it again while the megaflow store is locked. Every change increases the epoch and then
//! walks the store. So a megaflow is either installed before the increase, and the walk visits it, or it is not
//! installed.
//!
//! The walk *suspends* the megaflows that depend on the change (`depends.rs`): those that searched the rule's table
//! with a key that the rule, old or new, may match, and those that looked up the MAC entry, port, group or meter that
//! changed. Lookups in the datapath miss a suspended megaflow. So when a change returns, no packet follows the old
//! state. The next packet of a suspended megaflow makes an upcall. If the answer is the same, the megaflow is live
//! again, with its counters and its entries in the caches; if not, another one takes its place. The revalidator does
//! the same for suspended megaflows without packets. All other megaflows are untouched.
//!
//! # Threads
//!
//! A translation holds one lock for reading. A change takes that lock for writing, and for a short moment only. A PMD does
//! not wait even for that: the translation ends as busy, and its packet asks again at the next poll; so it is with the
//! locks of MAC tables and recirculation ids. One change is made at a time. A PMD does not wait for its effects either: a
//! full queue loses an effect, and the next packet causes it again.
//!
//! # Costs
//!
//! A translation works on four copies of its key, visits the subtables that can match in each table it searches, and
//! allocates its actions and its xlate cache. A change visits every megaflow, and causes one translation of each
//! megaflow that it affects.
//!
//! # Modules
//!
//! | module | what it does |
//! |---|---|
//! | [`ofproto`], [`switch_settings`] | the switch: state, writer, epoch; settings that all translations depend on |
//! | [`bridges`], [`ports`] | adds, changes and removes bridges and ports |
//! | [`bridge`], [`bridge_config`], [`port`], [`rule`], [`mac`] | the parts of a bridge |
//! | [`rules`], [`flow_mod`], [`transaction`], [`check`], [`removed`] | atomic changes of rules and groups |
//! | [`rule_select`], [`action_refs`] | finding rules; the ports, groups and meters of actions |
//! | [`table_capacity`], [`eviction`], [`table_mod`], [`table_counts`] | limits of tables, eviction, vacancy events |
//! | [`rule_memory`] | the memory of rules and groups, shared by those who make them |
//! | [`bfd`] | the ports that have BFD sessions |
//! | [`bond`] | bonds of several ports |
//! | [`peers`] | the other ends of patch ports |
//! | [`hidden_flow`] | flows that OpenFlow does not show |
//! | [`rule_monitor`], [`rule_updates`] | tells one subscriber of every changed rule |
//! | [`group`], [`groups`] | groups, how a select group maps hashes to buckets, and all of a bridge |
//! | [`meter`], [`meter_mod`] | meters; each one is a meter of the datapath |
//! | [`xlate`] | translation |
//! | [`mirror`] | copies of what ports receive and send |
//! | [`recirc`] | frozen translations, which wait for their packet to recirculate |
//! | [`upcall`], [`xlate_cache`], [`effects`], [`tick`] | upcalls, what they have used, and their effects |
//! | [`depends`], [`search_key`], [`revalidate`] | which megaflows a change affects; whether a megaflow is still right |
//! | [`controller`], [`metadata`] | packets from and to controllers |
//! | [`trace`], [`trace_command`], [`trace_passes`] | `ofproto/trace`: a translation as text |
//! | [`tunnel`], [`tunnel_ports`] | tunnel fields; which port a tunnel packet belongs to |
//! | [`routes`], [`neighbours`], [`tunnel_config`] | the device and the next hop of tunnel packets |
//! | [`fdb`] | the commands `fdb/*` on MAC entries |
#![forbid(unsafe_code)]

mod action_refs;
mod bfd;
mod bond;
mod bridge;
mod bridge_config;
mod bridge_mirrors;
mod bridges;
mod changed_rules;
mod check;
mod controller;
mod cookie_counts;
mod dependency_index;
mod depends;
mod effects;
mod error;
mod eviction;
mod expiry;
mod fdb;
mod features;
mod flow_log;
mod flow_mod;
mod flow_put;
mod group;
mod groups;
mod hidden_flow;
mod log_limit;
mod mac;
mod metadata;
mod meter;
mod meter_mod;
mod mirror;
mod neighbours;
mod ofproto;
mod peers;
mod port;
mod port_number;
mod port_usage;
mod ports;
mod postponed_free;
mod recirc;
mod removed;
mod revalidate;
mod routes;
mod rule;
mod rule_memory;
mod rule_monitor;
mod rule_select;
mod rule_updates;
mod rule_users;
mod rules;
mod search_key;
mod sflow;
mod switch_settings;
mod table_capacity;
mod table_counts;
mod table_mod;
mod tables_lock;
mod tick;
mod trace;
mod trace_command;
mod trace_passes;
mod transaction;
mod tunnel;
mod tunnel_config;
mod tunnel_ports;
mod upcall;
mod usage;
mod vport_counts;
mod xlate;
mod xlate_cache;
mod xlate_cache_size;

pub use bfd::BfdPort;
pub use bond::{BondBalance, BondState};
pub use bridge_config::{
    BridgeConfig, BridgeId, FailMode, FragmentMode, N_TABLES, NormalSettings, TableConfig, TableMiss,
};
pub use controller::{ExecuteRequest, PacketInMetadata, PacketOutRequest, ResumeRequest};
pub use effects::EffectStats;
pub use error::Error;
pub use features::{DpFeatures, Feature};
pub use flow_mod::{BundleChange, FlowModCounts};
pub use group::GroupEntry;
pub use hidden_flow::HiddenFlow;
pub use mac::{DEFAULT_AGE_S, MacCounts, MacRow};
pub use meter::{BANDS_MAX, METERS_MAX, MeterEntry};
pub use mirror::{MIRRORS_MAX, MirrorConfig, MirrorOutput, MirrorPorts, MirrorStats};
pub use neighbours::NeighbourRequest;
pub use ofproto::Ofproto;
pub use port::{Attach, PortConfig, PriorityTags, TunnelPort, VlanMode};
pub use removed::{RemovalCounts, RuleRemoved};
pub use revalidate::{DEFAULT_MAX_IDLE_MS, RevalidateStats};
pub use routes::{DeviceAddresses, Path, SystemRoute};
pub use rule::{Rule, RuleCounts, RuleStats};
pub use rule_memory::{RULE_MEMORY, RuleMemory, RuleOwner};
pub use rule_monitor::{Requester, RuleFilter, RuleMonitor, RuleUpdate, RuleUpdateEvent, Transaction};
pub use rules::{RuleEntry, TableStats, Users};
pub use sflow::SFlowSettings;
pub use sluice_classifier::TrieField;
pub use table_capacity::{TableDesc, TableSettings, VacancyEvent, VacancyReason, VacancyThresholds};
pub use tick::TickStats;
pub use upcall::UpcallHandle;
pub use vport_counts::VportStats;
pub use xlate_cache::{is_put, matched_rules, packet_of, xcache_of_put};
