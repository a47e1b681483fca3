//! The stages of a program that becomes a daemon, and the pipe between one stage and the next.

use crate::monitor;
use crate::options::{DaemonOptions, names_stage};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};

/// Which process of the program this is, if not the one that the user started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Stage {
    /// The process that watches the daemon.
    Monitor,
    /// The daemon.
    Daemon,
}

/// A program that is to become a daemon.
#[derive(Clone, Copy)]
pub struct Program<'a> {
    /// Its name: what later stages are run under.
    pub name: &'a str,
    /// Its arguments, without the name.
    pub arguments: &'a [OsString],
    /// How it becomes a daemon.
    pub options: &'a DaemonOptions,
}

/// What a process of the program is to do.
pub enum Role {
    /// Be the daemon, and report when it has started.
    Daemon(Startup),
    /// End with this exit code: another process is the daemon.
    Exit(ExitCode),
}

/// Why there is no daemon.
#[derive(Debug, thiserror::Error)]
pub enum DetachError {
    /// The system refuses.
    #[error("{action} failed: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// The next stage ended in a way that says nothing.
    #[error("fork child died before signaling startup ({status}); could not detach from foreground session")]
    Died {
        /// How it ended.
        status: String,
    },
}

/// The daemon's start. [`Startup::complete`] reports its end to the process that waits for it.
pub struct Startup {
    notify: Option<OwnedFd>,
    detached: bool,
    change_directory: bool,
}

/// How the start of a stage went.
pub(crate) enum Spawned {
    /// It has started up.
    Ready(Child),
    /// It ended before that.
    Ended(ExitStatus),
}

impl Program<'_> {
    /// Does this process's part until it is clear what it is. A launcher waits until the daemon has started; a monitor
    /// until the daemon ends for good.
    ///
    /// # Errors
    /// If the next stage does not start. If it ends with an exit code, that is this process's role.
    pub fn become_daemon(self) -> Result<Role, DetachError> {
        let DaemonOptions { detach, monitor, no_chdir, daemon_stage, .. } = *self.options;
        let next = match daemon_stage {
            None if monitor => Some(Stage::Monitor),
            None if detach => Some(Stage::Daemon),
            _ => None,
        };
        if let Some(stage) = next.filter(|_| detach) {
            return match self.spawn(stage)? {
                Spawned::Ready(_) => Ok(Role::Exit(ExitCode::SUCCESS)),
                Spawned::Ended(status) => exit_as(status).map(Role::Exit),
            };
        }
        let notify = daemon_stage.map(|_| take_pipe()).transpose().map_err(failed("taking the startup pipe"))?;
        if detach && (daemon_stage == Some(Stage::Monitor) || !monitor) {
            rustix::process::setsid().map_err(|error| failed("setsid")(error.into()))?;
        }
        let startup = Startup { notify, detached: detach, change_directory: detach && !no_chdir };
        if daemon_stage == Some(Stage::Monitor) || next == Some(Stage::Monitor) {
            return monitor::run(self, startup).map(Role::Exit);
        }
        Ok(Role::Daemon(startup))
    }

    /// Runs the program again as `stage` and waits until that has started up or ended.
    pub(crate) fn spawn(self, stage: Stage) -> Result<Spawned, DetachError> {
        let (mut reader, writer) = io::pipe().map_err(failed("pipe"))?;
        let stage = match stage {
            Stage::Monitor => "--daemon-stage=monitor",
            Stage::Daemon => "--daemon-stage=daemon",
        };
        let mut command = Command::new("/proc/self/exe");
        let arguments = self.arguments.iter().filter(|argument| !names_stage(argument));
        command.arg0(self.name).arg(stage).args(arguments).stdin(writer);
        let mut child = command.spawn().map_err(failed("starting the daemon's process"))?;
        // Only the child has the other end now, so that its end is the pipe's.
        drop(command);
        if has_started(&mut reader) {
            return Ok(Spawned::Ready(child));
        }
        child.wait().map(Spawned::Ended).map_err(failed("waitpid"))
    }
}

impl Startup {
    /// Tells the process that waits that the daemon has started; a daemon in the background leaves the directory and the
    /// standard descriptors that it was started with. Whether it has left them.
    ///
    /// # Errors
    /// If the system refuses a step.
    pub fn complete(self) -> Result<bool, DetachError> {
        if self.change_directory {
            rustix::process::chdir("/").map_err(|error| failed("chdir")(error.into()))?;
        }
        if self.detached {
            let null = File::options().read(true).write(true).open("/dev/null").map_err(failed("opening /dev/null"))?;
            let replaced = dup2_stdin(&null).and_then(|()| dup2_stdout(&null)).and_then(|()| dup2_stderr(&null));
            replaced.map_err(|error| failed("replacing the standard descriptors")(error.into()))?;
        }
        if let Some(pipe) = self.notify {
            // A launcher that is gone waits no longer.
            let _ = File::from(pipe).write_all(&[0]);
        }
        Ok(self.detached)
    }
}

fn failed(action: &'static str) -> impl Fn(io::Error) -> DetachError {
    move |source| DetachError::Io { action, source }
}

/// Waits for the byte that a stage sends when it has started. `false`: it has ended.
fn has_started(pipe: &mut PipeReader) -> bool {
    pipe.read_exact(&mut [0]).is_ok()
}

/// Takes the pipe to the stage before this one away from standard input.
fn take_pipe() -> io::Result<OwnedFd> {
    let pipe = fcntl_dupfd_cloexec(io::stdin(), 3)?;
    dup2_stdin(File::open("/dev/null")?)?;
    Ok(pipe)
}

/// A launcher ends as the stage that it waited for, if that was an error.
fn exit_as(status: ExitStatus) -> Result<ExitCode, DetachError> {
    match status.code().map(u8::try_from) {
        Some(Ok(code)) if code != 0 => Ok(ExitCode::from(code)),
        _ => Err(DetachError::Died { status: status_text(status) }),
    }
}

/// How a process ended, in the words of Open vSwitch.
pub(crate) fn status_text(status: ExitStatus) -> String {
    let core = if status.core_dumped() { ", core dumped" } else { "" };
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed (signal {signal}){core}"),
        (None, None) => format!("terminated abnormally ({})", status.into_raw()),
    }
}

/// Whether a name of the program, as it was run, is `name`.
pub fn is_run_as(argument_zero: &OsStr, name: &str) -> bool {
    std::path::Path::new(argument_zero).file_name().is_some_and(|file| file == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_processes_end_is_told_as_open_vswitch_tells_it() {
        assert_eq!(status_text(ExitStatus::from_raw(1 << 8)), "exit status 1");
        assert_eq!(status_text(ExitStatus::from_raw(11)), "killed (signal 11)");
        assert_eq!(status_text(ExitStatus::from_raw(6 | 0x80)), "killed (signal 6), core dumped");
    }

    #[test]
    fn an_error_of_the_daemon_is_the_launchers() {
        assert_eq!(exit_as(ExitStatus::from_raw(3 << 8)).unwrap(), ExitCode::from(3));
        let error = exit_as(ExitStatus::from_raw(0)).unwrap_err().to_string();
        assert!(error.starts_with("fork child died before signaling startup (exit status 0)"), "{error}");
    }

    #[test]
    fn a_link_names_the_program() {
        assert!(is_run_as("/usr/sbin/ovs-vswitchd".as_ref(), "ovs-vswitchd"));
        assert!(!is_run_as("/usr/sbin/sluice".as_ref(), "ovs-vswitchd"));
    }
}
