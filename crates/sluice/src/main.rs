//! The sluice command: `run` a switch, `replay` captures through its tables, `lab` what it can do, `ctl` one that runs;
//! `vswitchd` is Open vSwitch's daemon, as which the program also runs under the name `ovs-vswitchd`.
//!
//! Wiring only: the crates below do the work. Exit codes: 0, 1 for an error (one line on standard error),
//! and for `ctl` 2 if the switch answered with an error, as `ovs-appctl` has it.
#![forbid(unsafe_code)]

mod capture;
mod check;
mod clock;
mod command;
mod config;
mod config_file;
mod heartbeat;
mod housekeeping;
mod kept_tables;
mod live_line;
mod manual;
mod metrics;
mod overview;
mod panics;
mod privileges;
mod process;
mod program;
mod replay;
mod run;
mod rundir;
mod service_manager;
mod signals;
mod summary;
mod text;
mod vswitchd;
mod watchdog;

use clap::{Parser, Subcommand};
use sluice_daemon::detach::is_run_as;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Rules and messages hold keys aligned to cache lines, which the C library's allocator puts into larger holes: with 200,000
/// rules that was more than half of the memory (ci/flow-mods).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A userspace software switch.
#[derive(Parser)]
#[command(name = "sluice", version)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    /// Run the switch that a configuration describes, in the foreground
    Run {
        /// The configuration file (TOML)
        #[arg(required_unless_present = "help_config")]
        config: Option<PathBuf>,
        /// Print the whole configuration, every key explained, and exit
        #[arg(long)]
        help_config: bool,
        #[command(flatten)]
        options: run::RunOptions,
    },
    /// Run in the place of ovs-vswitchd; a program of that name that links to sluice does the same
    #[command(disable_help_flag = true)]
    Vswitchd {
        /// The options and the database of ovs-vswitchd(8); --help lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    Replay(replay::ReplayArgs),
    Lab(sluice_lab::LabArgs),
    Top(sluice_top::TopArgs),
    Capture(capture::CaptureArgs),
    Manual(manual::ManualArgs),
    /// Send a command to a running switch, as ovs-appctl does
    Ctl {
        /// The switch's control socket [default: sluice.ctl in the default rundir]
        #[arg(short, long, value_name = "SOCKET")]
        target: Option<PathBuf>,
        /// Wait at most this many seconds for the answer
        #[arg(short = 'T', long, value_name = "SECS")]
        timeout: Option<u32>,
        /// The command; list-commands shows all
        command: String,
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

fn main() -> ExitCode {
    // Before there are threads.
    sluice_mem::grow_heaps_in_large_steps();
    let name = std::env::args_os().next().unwrap_or_default();
    if is_run_as(&name, vswitchd::PROGRAM) {
        return vswitchd::main(std::env::args_os().skip(1));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return if e.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let done = match cli.command {
        CliCommand::Run { help_config: true, .. } | CliCommand::Run { config: None, .. } => Ok(show(&config::help())),
        CliCommand::Run { config: Some(config), options, .. } if options.check => {
            check::check(&config).map(|text| show(&text))
        }
        CliCommand::Run { config: Some(config), options, .. } => run::run(&config, options).map(|()| ExitCode::SUCCESS),
        CliCommand::Vswitchd { args } => Ok(vswitchd::main(args)),
        CliCommand::Replay(args) => replay::replay(&args).map(|summary| show(&summary)),
        CliCommand::Top(args) => sluice_top::run(&args, rundir::default_control_socket()).map(|()| ExitCode::SUCCESS),
        CliCommand::Capture(args) => capture::run(&args).map(|()| ExitCode::SUCCESS),
        CliCommand::Manual(args) => manual::write(&args).map(|text| show(&text)),
        CliCommand::Lab(args) => sluice_lab::run(&args).map(|()| ExitCode::SUCCESS),
        CliCommand::Ctl { target, timeout, command, args } => ctl(target, timeout, &command, &args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("sluice: {}", one_line(&error));
        ExitCode::FAILURE
    })
}

/// An error's chain, outermost first; a cause that an error has in its own words is not said again.
fn one_line(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| match said.as_str() {
        "" => cause,
        said_before if said_before.contains(&cause) => said,
        _ => format!("{said}: {cause}"),
    })
}

/// Writes to standard output, whether or not anybody reads it.
fn show(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    ExitCode::SUCCESS
}

/// Asks a running switch and shows the answer, with `ovs-appctl`'s exit codes.
fn ctl(target: Option<PathBuf>, timeout: Option<u32>, command: &str, args: &[String]) -> anyhow::Result<ExitCode> {
    let target = target.unwrap_or_else(rundir::default_control_socket);
    let timeout = timeout.filter(|s| *s != 0).map(|s| Duration::from_secs(s.into()));
    match sluice_unixctl::transact(&target, timeout, command, args)? {
        Ok(text) => Ok(show(&text)),
        Err(text) => {
            eprintln!("{text}sluice: {}: server returned an error", target.display());
            Ok(ExitCode::from(2))
        }
    }
}
