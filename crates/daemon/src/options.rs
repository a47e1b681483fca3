//! The command-line options that all daemons of Open vSwitch share.

use crate::detach::Stage;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// How the process becomes a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Daemon options")]
pub struct DaemonOptions {
    /// Run in the background as a daemon
    #[arg(long)]
    pub detach: bool,
    /// Create a process that monitors the daemon and starts it again after a crash
    #[arg(long)]
    pub monitor: bool,
    /// Become this user, and this group, after the start
    #[arg(long, value_name = "USER[:GROUP]")]
    pub user: Option<String>,
    /// Do not change the working directory to /
    #[arg(long)]
    pub no_chdir: bool,
    /// Create a pidfile [default: PROGRAM.pid in the directory of sockets]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub pidfile: Option<Option<PathBuf>>,
    /// With --pidfile, start even if the program is running already
    #[arg(long)]
    pub overwrite_pidfile: bool,
    /// Which of its processes the program is; it passes this to itself
    #[arg(long, hide = true, value_enum, require_equals = true)]
    pub daemon_stage: Option<Stage>,
}

/// Rewrites the short option `-vSPEC`, whose value is optional and attached, as `--verbose=SPEC`: clap has no options
/// of this kind. `arguments` do not include the program's name.
pub fn with_long_verbose(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut options_end = false;
    let mut rewrite = |argument: OsString| {
        options_end |= argument == "--";
        match argument.as_bytes() {
            b"-v" if !options_end => "--verbose".into(),
            [b'-', b'v', spec @ ..] if !options_end => {
                let long = [b"--verbose=", spec].concat();
                OsString::from_vec(long)
            }
            _ => argument,
        }
    };
    arguments.into_iter().map(&mut rewrite).collect()
}

/// Whether `argument` tells a later stage which one it is.
pub(crate) fn names_stage(argument: &OsStr) -> bool {
    argument.as_bytes().starts_with(b"--daemon-stage=")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        daemon: DaemonOptions,
    }

    fn parse(arguments: &[&str]) -> DaemonOptions {
        Program::try_parse_from([&["program"], arguments].concat()).unwrap_or_else(|e| panic!("{e}")).daemon
    }

    #[test]
    fn a_pidfile_needs_no_name() {
        assert_eq!(parse(&[]).pidfile, None);
        assert_eq!(parse(&["--pidfile", "--detach"]).pidfile, Some(None));
        assert_eq!(parse(&["--pidfile=x.pid"]).pidfile, Some(Some("x.pid".into())));
    }

    #[test]
    fn the_stage_is_for_the_program_itself() {
        assert_eq!(parse(&["--daemon-stage=monitor"]).daemon_stage, Some(Stage::Monitor));
        assert!(names_stage("--daemon-stage=monitor".as_ref()));
        assert!(!names_stage("--detach".as_ref()));
    }

    #[test]
    fn verbose_takes_its_value_attached() {
        let rewritten =
            with_long_verbose(["-v", "-vvconn", "-vconsole:emer", "-V", "x", "--", "-v"].map(OsString::from));
        assert_eq!(rewritten, ["--verbose", "--verbose=vconn", "--verbose=console:emer", "-V", "x", "--", "-v"]);
    }
}
