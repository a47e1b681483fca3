//! Measuring a switch with traffic: sending packets, counting what arrives, and searching for the highest rate.
//!
//! A [`Plan`] (`profile.rs`) is a traffic profile in JSON, read into [`Lane`]s: a lane is a stream from one port to
//! another. A [`Generator`] runs a trial: it sends each lane at a given rate for a given time, and reports each lane's
//! loss, latency and reordering. There are three:
//!
//! | generator | for | how |
//! |---|---|---|
//! | [`InProcess`] | a switch in this process | its ports provide due packets by the clock, and read sent ones |
//! | [`OverPorts`] | an external switch | sends and receives over its own ports: AF_XDP, AF_PACKET, a tap |
//! | [`External`] | anything | runs a program, reads its figures as JSON |
//!
//! [`Connections`] measures connection rates instead: a client and a server in the process perform one transaction
//! after another.
//!
//! [`search`] decides which trial comes next, by bisection as in RFC 2544, and [`Estimate`] does on a machine that disturbs
//! trials. They use no clock, sockets or threads.
#![forbid(unsafe_code)]

mod arrivals;
mod connections;
mod estimate;
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
mod trial_clock;

pub use connections::{Connections, Transactions};
pub use estimate::Estimate;
pub use external::External;
pub use generator::{Generator, GeneratorError, LaneFigures, Trial, TrialFigures};
pub use in_process::InProcess;
pub use lane::Lane;
pub use latency::{Histogram, Latency};
pub use over_ports::OverPorts;
pub use profile::{Plan, PlanError};
pub use trial_clock::Pauses;
