//! OpenFlow tables and translation: an upcall becomes a megaflow; the revalidator keeps it true.
//!
//! [`Ofproto`] holds all bridges of the switch: ports, tables of rules, stations. Its commands change them; its
//! [`UpcallHandle`]s, one a PMD, translate packets that no cache knows ([`xlate`]); its revalidator
//! ([`Ofproto::revalidate`]) looks after the megaflows that came of it, and [`Ofproto::tick`] does what translations
//! brought about and what time brings.
//!
//! | module | what |
//! |---|---|
//! | [`ofproto`] | all bridges; bridges, ports and rules come and go |
//! | [`bridge`], [`port`], [`rule`], [`mac`] | what there is |
//! | [`flow_mod`], [`check`], [`removed`] | rules and groups change, all at once or not at all |
//! | [`group`] | groups, and how a select group maps hashes to buckets |
//! | [`meter`] | meters, each of which stands for one of the datapath |
//! | [`xlate`] | translation |
//! | [`recirc`] | translations that stopped in the middle |
//! | [`upcall`], [`xlate_cache`], [`effects`], [`tick`] | PMDs ask; whom to credit; what must be done for them |
//! | [`revalidate`] | megaflows are visited, credited, kept or deleted |
//! | [`controller`] | packets from and to controllers |
//! | [`trace`], [`trace_command`] | a translation, written down for people |
//! | [`rules`], [`transaction`], [`rule_monitor`] | commands on rules and groups, done at once, and who hears of it |
//! | [`fdb`] | commands on stations |
//!
//! **Threads.** A translation holds one lock for reading; changes take it for writing, one changer at a time. What a
//! translation wants changed goes through a bounded queue to the control thread.
#![forbid(unsafe_code)]

mod bridge;
mod check;
mod controller;
mod depends;
mod effects;
mod error;
mod fdb;
mod flow_mod;
mod group;
mod mac;
mod metadata;
mod meter;
mod ofproto;
mod port;
mod recirc;
mod removed;
mod revalidate;
mod rule;
mod rule_monitor;
mod rules;
mod table_capacity;
mod tick;
mod trace;
mod trace_command;
mod trace_passes;
mod transaction;
mod tunnel;
mod upcall;
mod xlate;
mod xlate_cache;

pub use bridge::{BridgeConfig, BridgeId, FailMode, FragmentMode, N_TABLES};
pub use controller::{ExecuteRequest, PacketInMetadata, PacketOutRequest, ResumeRequest};
pub use effects::EffectStats;
pub use error::Error;
pub use flow_mod::{BundleChange, FlowModCounts};
pub use group::GroupEntry;
pub use mac::{DEFAULT_AGE_S, MacCounts, MacRow};
pub use meter::{BANDS_MAX, METERS_MAX, MeterEntry};
pub use ofproto::Ofproto;
pub use port::{Attach, PortConfig, PriorityTags, VlanMode};
pub use removed::{RemovalCounts, RuleRemoved};
pub use revalidate::{DEFAULT_MAX_IDLE_MS, RevalidateStats};
pub use rule::{Rule, RuleCounts, RuleStats};
pub use rule_monitor::{Requester, RuleFilter, RuleMonitor, RuleUpdate, RuleUpdateEvent, Transaction};
pub use rules::{RuleEntry, TableStats};
pub use sluice_classifier::TrieField;
pub use table_capacity::{TableDesc, TableLimit, TableSettings, VacancyEvent, VacancyReason, VacancyThresholds};
pub use tick::TickStats;
pub use upcall::UpcallHandle;
pub use xlate_cache::packet_of;
