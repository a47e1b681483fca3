//! Measuring a switch with traffic: sending it, telling what became of it, searching for the highest rate carried.
//!
//! A [`Plan`] (`profile.rs`) is a traffic profile in JSON, read into [`Lane`]s: a stream from one port to another. A
//! [`Generator`] runs a trial: lanes at given rates for a given time, and tells what each lost, how late it was and
//! whether it came in order. There are three:
//!
//! | generator | for | how |
//! |---|---|---|
//! | [`InProcess`] | a switch in this process | its ports make packets due by the clock, and read those sent |
//! | [`OverPorts`] | a switch elsewhere | sends and receives over ports of its own: AF_XDP, AF_PACKET, a tap |
//! | [`External`] | anything | runs a program, reads its figures as JSON |
//!
//! [`Connections`] is for rates of connections instead: a client and a server in the process that do one transaction
//! after another.
//!
//! [`search`] says which trial comes next. It knows no clock, no sockets and no threads.
#![forbid(unsafe_code)]

mod arrivals;
mod connections;
mod external;
mod generator;
mod in_process;
mod lane;
mod latency;
mod ledger;
mod over_ports;
mod profile;
pub mod search;
mod stamp;

pub use connections::{Connections, Transactions};
pub use external::External;
pub use generator::{Generator, GeneratorError, LaneFigures, Trial, TrialFigures};
pub use in_process::InProcess;
pub use lane::Lane;
pub use latency::{Histogram, Latency};
pub use over_ports::OverPorts;
pub use profile::{Plan, PlanError};
