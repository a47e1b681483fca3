//! The monitor: a process that waits for the daemon's end and starts it again after a crash.

use crate::detach::{DetachError, Program, Spawned, Stage, Startup, status_text};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

/// From one restart to the next at least.
const RESTART_INTERVAL: Duration = Duration::from_secs(10);

/// Signals that end a process because of an error in it: SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGILL, SIGPIPE, SIGSEGV,
/// SIGXCPU and SIGXFSZ. Source: ovs-vswitchd(8), `--monitor`.
const CRASH_SIGNALS: [i32; 9] = [6, 14, 7, 8, 4, 13, 11, 24, 25];

/// Starts the daemon, and starts it again for as long as it crashes.
///
/// # Errors
/// If the daemon does not start for the first time.
pub(crate) fn run(program: Program<'_>, startup: Startup) -> Result<ExitCode, DetachError> {
    let mut next = program.spawn(Stage::Daemon)?;
    if let Spawned::Ended(status) = next
        && !is_crash(status)
    {
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
    }
    startup.complete()?;
    let (mut crashes, mut last_restart) = (0, None);
    loop {
        let (pid, status) = match next {
            Spawned::Ready(child) => wait(child)?,
            Spawned::Ended(status) => (None, status),
        };
        let died = match pid {
            Some(pid) => format!("pid {pid} died, {}", status_text(status)),
            None => format!("the new process died, {}", status_text(status)),
        };
        if !is_crash(status) {
            tracing::info!(target: "daemon_unix", "{died}, exiting");
            return Ok(ExitCode::SUCCESS);
        }
        crashes += 1;
        if status.core_dumped() {
            // One core is enough to find the bug; more would fill the disk.
            let none = Rlimit { current: Some(0), maximum: Some(0) };
            let _ = setrlimit(Resource::Core, none);
        }
        let now = Instant::now();
        if let Some(wait) = last_restart.and_then(|last| pause(last, now)) {
            tracing::warn!(
                target: "daemon_unix",
                "{crashes} crashes: {died}, waiting until {} seconds since last restart", RESTART_INTERVAL.as_secs()
            );
            std::thread::sleep(wait);
        }
        last_restart = Some(Instant::now());
        tracing::error!(target: "daemon_unix", "{crashes} crashes: {died}, restarting");
        next = program.spawn(Stage::Daemon)?;
    }
}

fn wait(mut child: Child) -> Result<(Option<u32>, ExitStatus), DetachError> {
    let status = child.wait().map_err(|source| DetachError::Io { action: "waitpid", source })?;
    Ok((Some(child.id()), status))
}

fn is_crash(status: ExitStatus) -> bool {
    status.signal().is_some_and(|signal| CRASH_SIGNALS.contains(&signal))
}

/// How long a restart has to wait after the last one.
fn pause(last: Instant, now: Instant) -> Option<Duration> {
    (last + RESTART_INTERVAL).checked_duration_since(now).filter(|wait| !wait.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_crash_starts_the_daemon_again() {
        assert!(is_crash(ExitStatus::from_raw(11)), "SIGSEGV");
        assert!(is_crash(ExitStatus::from_raw(6 | 0x80)), "SIGABRT with a core");
        assert!(!is_crash(ExitStatus::from_raw(15)), "SIGTERM");
        assert!(!is_crash(ExitStatus::from_raw(9)), "SIGKILL");
        assert!(!is_crash(ExitStatus::from_raw(1 << 8)), "an exit code");
    }

    #[test]
    fn restarts_are_ten_seconds_apart() {
        let last = Instant::now();
        assert_eq!(pause(last, last + Duration::from_secs(4)), Some(Duration::from_secs(6)));
        assert_eq!(pause(last, last + Duration::from_secs(10)), None);
    }
}
