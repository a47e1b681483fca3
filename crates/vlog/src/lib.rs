//! The log of Open vSwitch's daemons, vlog, for messages of [`tracing`].
//!
//! | module | what |
//! |---|---|
//! | [`levels`] | levels and destinations |
//! | [`modules`] | the modules of the log: Open vSwitch's and the switch's own |
//! | [`spec`] | what `-v` and `vlog/set` say |
//! | [`pattern`] | what a line looks like |
//! | [`sinks`] | the log file and the system's log |
//! | [`console`] | standard output and standard error, which never block |
//! | [`rate_limit`] | a limit on messages that repeat |
//! | [`log`] | the log: all of these under one lock |
//! | [`layer`] | messages of `tracing` on their way to the log |
//!
//! **Modules.** The target of a message names its module. A target of a crate of the switch (`sluice_port::tap`) belongs
//! to the module of that crate; every other target is the name of a module of Open vSwitch, so that a line which Open
//! vSwitch prints, too, has the same module: `tracing::info!(target: "bridge", "bridge br0: added interface …")`.
//!
//! **Limits.** A message with the field `rate_limit` is written at most that many times a minute:
//! `tracing::warn!(target: "dpif", rate_limit = 20, "…")`. What was left out is told, as vlog tells it.
#![forbid(unsafe_code)]

mod console;
mod layer;
mod levels;
mod log;
mod modules;
mod options;
mod pattern;
mod rate_limit;
mod sinks;
mod spec;
mod strerror;

pub use console::{ConsoleDropped, console_dropped, write_output};
pub use levels::{Destination, Level};
pub use log::{Log, LogFileError};
pub use options::LogOptions;
pub use sinks::{SyslogMethod, UnknownSyslogMethod};
pub use strerror::strerror;
