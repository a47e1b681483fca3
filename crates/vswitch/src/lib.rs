//! A switch from its description: what it is to be, the steps from one description to the next, and its assembly.
//!
//! | module | what |
//! |---|---|
//! | [`desired`] | what a switch is to be, in plain types; front ends produce it |
//! | [`change`] | the steps from one desired state to the next, as data |
//! | [`numbers`] | which OpenFlow number a port gets |
//! | [`assembly`], [`ports`] | pools, PMDs, tables, bridges and ports, joined |
//! | [`backends`] | the datapath ports that serve tunnels |
//! | [`bfd`] | the BFD sessions of its ports |
//! | [`bundles`] | its bonds, and LACP on its ports |
//! | [`qos`] | what ports may receive and send, and by which queues |
//! | [`sflow`] | the sFlow agents of its bridges |
//! | [`sources`] | what tables hold, from text |
//! | [`switch`], [`revalidator`] | a switch that runs, and is taken from one state to the next |
//!
//! An [`Assembly`] has no thread and no clock of its own: PMDs rest until `Datapath::start`, and take turns in the
//! caller's thread until then, at times that the caller names. So a test, an experiment, a replay and a switch that
//! runs are assembled in the same way.
//!
//! **A port that cannot be opened** is there all the same: rules can name it, it is down, [`PortEntry::error`] says
//! why, and it is tried again with growing pauses unless only another configuration helps.
#![forbid(unsafe_code)]

mod assembly;
mod backends;
mod bfd;
mod bundles;
mod change;
mod desired;
mod error;
mod kernel_routes;
mod numbers;
mod pages;
mod ports;
mod qos;
mod revalidator;
mod sflow;
mod sources;
mod switch;

pub use assembly::Assembly;
pub use backends::{Backend, Backends};
pub use bundles::BundleStatus;
pub use change::{Change, StartSetting, changes};
pub use desired::{
    Bridge, Bundle, DatapathSettings, DesiredState, ETHERNET_MTU, FailedPorts, Invalid, LacpMember, LacpSettings,
    PATCH, PMD_SLEEP_MAX, PMDS_MAX, Port, Qos, Queue, SFlow, Source, Sources,
};
pub use error::{Error, PortFailure};
pub use ports::PortEntry;
pub use qos::{QosStatus, QueueCounters, QueueStatus, types as qos_types};
pub use revalidator::RevalidatorFigures;
pub use sources::{ParsedSources, SourceKind};
pub use switch::{
    DatapathRef, DpifError, LimitUsage, Lookups, LoosePort, MadeDatapath, Outcome, PortStatus, Switch, Usage,
};
