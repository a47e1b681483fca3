//! What `ovs-vswitchd` does with its database: it makes the switch what the records say, and writes back what came of it.
//!
//! ```text
//!  ovsdb-server ══► Replica ─► Records ─► Plan ─► DesiredState ─► Switch::reconfigure
//!       ▲                                                                │
//!       └──────────── one transaction: cur_cfg, ofport, error, … ◄───────┘
//! ```
//!
//! | module | what |
//! |---|---|
//! | `schema` | the tables and columns of interest |
//! | `records` | rows as plain types |
//! | `plan` | what the records make of the switch: pure functions; what they find wrong, as log lines |
//! | `numbers` | OpenFlow numbers of ports, given out as Open vSwitch gives them out |
//! | `dpdk` | DPDK, started when the settings ask for it |
//! | `status` | what is written back |
//! | `vswitchd` | the loop: events, lock, reconfiguration, transactions |
//!
//! **Threads.** None of its own: [`Vswitchd::run`] takes a turn in the caller's thread and never waits for the database.
//!
//! **What is lost** when the server goes: nothing. The switch stays as it is; contents that come later are compared.
//!
//! Source: Open vSwitch vswitchd/bridge.c, vswitchd/vswitch.xml.
#![forbid(unsafe_code)]

mod dpdk;
mod ofport_allocator;
mod plan;
mod records;
mod schema;
mod status;
mod vhost_sock_dir;
mod vswitchd;

pub use plan::DummyOverride;
pub use sluice_ovsdb::{ConfigError, Interest, Remote, TlsConfig};
pub use vswitchd::{Options, Vswitchd};
