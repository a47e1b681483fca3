//! Open vSwitch's daemon by another name: its command line, its files, and a main loop that a database drives.
//!
//! The program runs as this under the name `ovs-vswitchd`, or as `sluice vswitchd`. What it prints, logs and answers
//! about itself is what tools of Open vSwitch 3.1 read from its own daemon.

mod options;

use crate::command::CommandTable;
use crate::housekeeping::Housekeeping;
use crate::process::Process;
use crate::{panics, privileges, signals, watchdog};
use anyhow::{Context, Result, anyhow};
use clap::Parser;
use options::{Dummy, VswitchdOptions};
use rustix::event::{PollFd, PollFlags};
use sluice_connmgr::Tls;
use sluice_connmgr::unix_socket::{self, SocketMode};
use sluice_daemon::account::Account;
use sluice_daemon::detach::{Program, Role, Startup};
use sluice_daemon::dirs::Dirs;
use sluice_daemon::options::with_long_verbose;
use sluice_daemon::pidfile::Pidfile;
use sluice_datapath::numa;
use sluice_unixctl::Server;
use sluice_vlog::{Level, Log};
use sluice_vswitch::{DesiredState, Switch};
use sluice_vswitchd::{self as vswitchd, DummyOverride, Interest, Remote, Vswitchd};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// The name of the program, and of what it has in the directories of sockets and logs.
pub const PROGRAM: &str = "ovs-vswitchd";

/// The version of Open vSwitch that the program stands in for: tools compare it.
const OPEN_VSWITCH_VERSION: &str = "3.1.0";

/// Runs the program with these arguments (its name is not among them).
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = with_long_verbose(arguments);
    let options = match VswitchdOptions::try_parse_from([PROGRAM.into()].iter().chain(&arguments)) {
        Ok(options) => options,
        Err(error) => return refuse(&error),
    };
    if options.version {
        println!("{}\nSluice {}", version(), env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    crate::program::set_name(PROGRAM);
    // Scripts find the daemon's process by this name.
    let _ = rustix::thread::set_name(c"ovs-vswitchd");
    run(&options, &arguments).unwrap_or_else(|error| {
        eprintln!("{PROGRAM}: {error:#}");
        ExitCode::FAILURE
    })
}

/// What the program tells about itself, in a form that Open vSwitch's scripts read.
fn version() -> String {
    format!("{PROGRAM} (Open vSwitch) {OPEN_VSWITCH_VERSION}")
}

/// Says what is wrong with the command line, or helps.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    let text = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    eprintln!("{PROGRAM}: {text}; use --help for usage");
    ExitCode::FAILURE
}

/// Becomes the process that the options ask for and does its work.
fn run(options: &VswitchdOptions, arguments: &[OsString]) -> Result<ExitCode> {
    let dirs = Dirs::from_env();
    let log = start_log(options)?;
    let program = Program { name: PROGRAM, arguments, options: &options.daemon };
    match program.become_daemon()? {
        Role::Exit(code) => Ok(code),
        Role::Daemon(startup) => {
            let ended_by = Daemon { options, dirs, log }.run(startup)?;
            if let Some(signal) = ended_by {
                // As Open vSwitch's daemons, it dies by the signal once its files are gone: its parent sees why it ended.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Starts a log that has no file yet: each stage of a daemon begins with one, and only the daemon itself has the file.
fn start_log(options: &VswitchdOptions) -> Result<Log> {
    // Tests of Open vSwitch know every line that the daemon prints before it detaches.
    let log = Log::with_options(PROGRAM, &options.log, Level::Warn).map_err(anyhow::Error::msg)?;
    log.install();
    panics::watch();
    Ok(log)
}

/// The daemon itself.
struct Daemon<'a> {
    options: &'a VswitchdOptions,
    dirs: Dirs,
    log: Log,
}

impl Daemon<'_> {
    /// Runs until it is told to end. The result is the signal that ended it, if one did.
    fn run(&self, startup: Startup) -> Result<Option<i32>> {
        let done = self.open_log_file().and_then(|()| self.start_and_attend(startup));
        done.inspect_err(|error| {
            // The console gets the text as the program's last word.
            self.log.leave_console();
            self.log.emergency("vswitchd", &format!("{error:#}"));
        })
    }

    fn open_log_file(&self) -> Result<()> {
        let Some(file) = &self.options.log.log_file else { return Ok(()) };
        let path = file.clone().unwrap_or_else(|| self.dirs.log_file(PROGRAM));
        // The daemon leaves the directory that it was started in, and logs go on.
        let path = std::path::absolute(&path).unwrap_or(path);
        // As in Open vSwitch, a log file that cannot be opened is a warning.
        let _ = self.log.open_file(&path);
        Ok(())
    }

    fn start_and_attend(&self, startup: Startup) -> Result<Option<i32>> {
        self.change_user()?;
        let _pidfile = self.create_pidfile()?;
        if self.options.mlockall {
            lock_memory();
        }
        if !self.options.datapath.dummy_numa.is_empty() {
            numa::pretend(&self.options.datapath.dummy_numa);
        }
        numa::log();
        let switch = Switch::prepare(&self.empty_switch())?;
        let process = Process::of_database(switch, self.log.clone(), version())?;
        signals::watch(&process)?;
        watchdog::start(&process)?;
        process.switch().start()?;
        let served = self.serve(&process, startup);
        let _busy = process.heartbeat().begin("end of the switch's threads");
        process.stop_switch();
        process.switch().close_ports();
        served.map(|()| process.main_loop().why_end().and_then(|why| signals::number(&why)))
    }

    fn change_user(&self) -> Result<()> {
        let Some(spec) = &self.options.daemon.user else { return Ok(()) };
        let account = Account::look_up(spec)?;
        self.log.give_file(account.uid, account.gid).context("Failed to change the log file's ownership")?;
        let left = privileges::become_account(account, self.options.datapath.hw_rawio_access)?;
        tracing::info!("{left}");
        Ok(())
    }

    fn create_pidfile(&self) -> Result<Option<Pidfile>> {
        let Some(file) = &self.options.daemon.pidfile else { return Ok(None) };
        let path = file.as_ref().map_or_else(|| self.dirs.pidfile(PROGRAM), |file| self.dirs.in_rundir(file));
        Ok(Some(Pidfile::create(&path, self.options.daemon.overwrite_pidfile)?))
    }

    /// Opens the sockets, and takes turns until the end. The control socket goes before the switch does.
    fn serve(&self, process: &Arc<Process>, startup: Startup) -> Result<()> {
        let _server = self.control_socket().map(|path| serve_commands(process, &path)).transpose()?;
        process.switch().start_openflow(&self.dirs.rundir, SocketMode::OpenVSwitch)?;
        if self.options.datapath.disable_system_route {
            process.switch().disable_kernel_routes();
        }
        let mut vswitchd = Vswitchd::new(Arc::clone(process.switch()), self.database()?)?;
        attend(process, &mut vswitchd, startup)
    }

    /// A switch without bridges. Only ports that must be polled will bring PMDs.
    fn empty_switch(&self) -> DesiredState {
        let tls = self.options.tls.files();
        DesiredState { pmd_cores: Vec::new(), main_worker: true, tls, ..DesiredState::default() }
    }

    /// How the database is reached, and what it may name.
    fn database(&self) -> Result<vswitchd::Options> {
        let default = || format!("unix:{}", self.dirs.rundir.join("db.sock").display());
        let remotes = self.options.database.clone().unwrap_or_else(default);
        let dummies = match self.options.datapath.enable_dummy {
            None => DummyOverride::Unavailable,
            Some(Dummy::Types) => DummyOverride::None,
            Some(Dummy::System) => DummyOverride::System,
            Some(Dummy::Override) => DummyOverride::All,
        };
        let (rundir, is_confined) = (self.dirs.rundir.clone(), !self.options.no_self_confinement);
        let tls = self.options.tls.files().map(|files| Tls::load(&files)).transpose()?;
        let tls = tls.map(|tls| tls.client_config());
        Ok(vswitchd::Options { remotes: Remote::parse_list(&remotes)?, tls, dummies, rundir, is_confined })
    }

    /// The path of the control socket, unless there is to be none.
    fn control_socket(&self) -> Option<std::path::PathBuf> {
        match &self.options.unixctl {
            None => Some(self.dirs.control_socket(PROGRAM)),
            Some(path) if path == Path::new("none") => None,
            Some(path) => Some(self.dirs.in_rundir(path)),
        }
    }
}

/// Locks pages when they are first used: the switch reserves much more memory than it uses.
fn lock_memory() {
    use rustix::mm::{MlockAllFlags, mlockall};
    if let Err(error) = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT) {
        tracing::error!(target: "vswitchd", "mlockall failed: {error}");
    }
}

fn serve_commands(process: &Arc<Process>, path: &Path) -> Result<Server> {
    let listener = unix_socket::listen(path, "control socket", SocketMode::OpenVSwitch)
        .map_err(|error| anyhow!("could not initialize control socket {} ({error})", path.display()))?;
    let server = Server::start(listener, path, Box::new(CommandTable(Arc::clone(process))));
    server.context("control thread")
}

/// Takes turns until the switch is to end. The start is complete when the first configuration is in force.
fn attend(process: &Process, vswitchd: &mut Vswitchd, startup: Startup) -> Result<()> {
    let main_loop = process.main_loop();
    let mut startup = Some(startup);
    let mut housekeeping = Housekeeping::new(process, sluice_clock::now_ms());
    let _running = main_loop.running();
    loop {
        let turn = main_loop.turn();
        let busy = process.heartbeat().begin("housekeeping");
        if let Err(lost) = housekeeping.run(process, &busy, sluice_clock::now_ms()) {
            // The monitor starts a daemon again that dies so.
            process.log().emergency("vswitchd", &lost.to_string());
            std::process::abort();
        }
        busy.go_on("database");
        vswitchd.run(sluice_clock::now_ms());
        if let Some(failure) = vswitchd.failure() {
            return Err(anyhow!(failure));
        }
        if vswitchd.is_configured()
            && let Some(startup) = startup.take()
        {
            if startup.complete()? {
                process.log().leave_console();
            }
            tracing::info!(target: "bridge", "{}", version());
            crate::service_manager::tell(&crate::service_manager::Notice::Ready);
        }
        drop((busy, turn));
        if main_loop.why_end().is_some() {
            return Ok(());
        }
        let deadline_ms = vswitchd.deadline_ms().unwrap_or(u64::MAX).min(housekeeping.deadline_ms());
        main_loop.sleep(vswitchd.interests().map(|interest| poll_fd(&interest)), Some(deadline_ms));
    }
}

/// What to wait for on the database's socket.
fn poll_fd<'fd>(interest: &Interest<'fd>) -> PollFd<'fd> {
    let read = if interest.read { PollFlags::IN } else { PollFlags::empty() };
    let write = if interest.write { PollFlags::OUT } else { PollFlags::empty() };
    PollFd::from_borrowed_fd(interest.fd, read | write)
}
