//! The command-line options of the log.

use crate::sinks::SyslogMethod;
use std::path::PathBuf;

/// How the program logs.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Logging options")]
pub struct LogOptions {
    /// Set levels, as -vSPEC does; without SPEC everything is logged
    #[arg(long, value_name = "SPEC", num_args = 0..=1, require_equals = true)]
    pub verbose: Vec<Option<String>>,
    /// Log to a file [default: PROGRAM.log in the directory of logs]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub log_file: Option<Option<PathBuf>>,
    /// How messages get to the system's log: null, libc, unix:FILE or udp:IP:PORT
    #[arg(long, value_name = "METHOD")]
    pub syslog_method: Option<SyslogMethod>,
    /// Send what goes to the system's log to this address by UDP, too
    #[arg(long, value_name = "HOST:PORT")]
    pub syslog_target: Option<String>,
}
