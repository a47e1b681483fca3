//! The datapath: PMDs that poll, look up and act, and the walk a packet takes through them.
//!
//! [`Datapath`] is what control threads hold. `pmd` is the loop of a PMD and `walk.rs` the walk of its packets, one
//! call a stage: `parse`, `lookup`, `upcall`, `act` with `execute`, and `tx`. The packets under way are a [`batch`],
//! and all stages share a [`context`].
//!
//! Threads: a PMD owns its queues, indexes and buffers. Control threads send it commands through a queue, and see it
//! through counters that it alone writes. Per packet there is no allocation, log, clock read, shared write or lock.
#![forbid(unsafe_code)]

mod act;
mod action_context;
mod answers;
mod arm;
mod auto_lb;
mod autopilot;
mod batch;
mod cache_memory;
mod caches;
mod capture;
mod command;
mod compose;
mod config;
mod context;
mod control;
mod control_cores;
mod datapath;
mod deferred;
mod device_statuses;
mod emc_insert;
mod emc_recirc;
mod execute;
mod first_index;
mod flow_log;
mod flow_put;
mod frequency;
mod hit_window;
mod load;
mod lookup;
mod main_worker;
mod meter;
mod misses;
mod no_tables;
pub mod numa;
mod packet_samples;
mod parse;
pub mod perf_metrics;
mod pmd;
mod pmd_factory;
mod pmd_shared;
mod policing;
mod progress;
mod punts;
mod reassembly;
mod recirc;
mod reconfigure;
mod report;
mod rxq;
mod rxq_assignment;
mod rxq_scheduler;
mod session_packets;
mod settings;
mod stage_cycles;
mod thread;
mod tracking;
mod tuner;
mod tunnel;
mod tx;
mod upcall;
mod usage;
mod walk;
mod workers;

pub use arm::{Arm, EmcInsert};
pub use auto_lb::AutoLb;
pub use autopilot::{Doing, Why};
pub use cache_memory::CachePages;
pub use capture::{
    CAPTURES_MAX, Capture, CapturePoint, CaptureRequest, CaptureTarget, CaptureVerdict, CapturedFlow, CapturedPacket,
};
pub use command::PacketOut;
pub use config::{Config, ConnectionTables, DatapathError, MAX_IDLE_MS, MEGAFLOWS_LIMIT};
pub use datapath::{Datapath, PortPolling, Round};
pub use emc_recirc::EmcRecirc;
pub use frequency::tsc_hz;
pub use misses::MissBudget;
pub use packet_samples::{PacketSample, PacketSamples, SampleArrivals};
pub use progress::{Activity, PmdProgress};
pub use punts::{PacketIn, PacketIns};
pub use report::{FlowReport, PmdReport, PortReport, RxqReport, USAGE_INTERVAL, USAGE_SPAN};
pub use rxq_assignment::{RxqAlgorithm, RxqAssignment};
pub use session_packets::{SessionArrivals, SessionPacket, SessionPackets, SessionProtocol};
pub use settings::{InsertInvProb, Level, SettingError, Settings};
pub use sluice_flow_cache::{DistributorTable, EmcUsage, FlowView, PutError, SubtableSearch, ufid};
pub use sluice_governor::Mode as GovernorMode;
pub use sluice_simd::Isa;
pub use stage_cycles::{Stage, StageCycles};
pub use tuner::{ArmReport, AutopilotReport};
pub use workers::Unpinned;

/// Datapath port numbers are below this.
pub const PORTS_MAX: u32 = 1 << 16;
