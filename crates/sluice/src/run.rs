//! `sluice run`: a switch in the foreground, from its configuration to its end.

use crate::command::CommandTable;
use crate::config::Config;
use crate::config_file::ConfigFile;
use crate::housekeeping::Housekeeping;
use crate::live_line::LiveLine;
use crate::metrics::Endpoint;
use crate::privileges::Identity;
use crate::process::{Process, explain};
use crate::service_manager::{self, Notice};
use crate::{kept_tables, panics, privileges, rundir, signals, summary, watchdog};
use anyhow::{Context, Result};
use sluice_connmgr::openflow_sockets;
use sluice_connmgr::unix_socket::{self, SocketMode, remove_stale};
use sluice_unixctl::Server;
use sluice_vlog::{Log, write_output};
use sluice_vswitch::Switch;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What to do in a container that takes too much away from root.
const CANNOT_LEAVE_ROOT: &str = "the switch does not go on as root; start it as an ordinary user, or let it have \
    CAP_SETUID, CAP_SETGID and CAP_SETPCAP";

/// How long the text at the end waits for its reader.
const SUMMARY_PATIENCE: Duration = Duration::from_millis(500);

/// How a switch is run.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct RunOptions {
    /// Check the configuration and the files that it names, without opening a port, and exit
    #[arg(long)]
    pub check: bool,
    /// Print no statistics, and no lines of the log below warnings
    #[arg(short, long)]
    pub quiet: bool,
    /// Print rules and megaflows at the end, a hundred of each
    #[arg(long)]
    pub dump: bool,
}

/// A log as the configuration wants it. Its file belongs to the user that the switch becomes.
fn start_log_of(config: &Config, log: &Log, identity: &Identity) -> Result<()> {
    if config.switch.syslog {
        log.use_syslog();
    }
    let Some(path) = config.switch.log_file.as_ref().map(|path| config.resolve(path)) else { return Ok(()) };
    let context = || format!("switch.log-file: {}", path.display());
    log.open_file(&path).with_context(context)?;
    if rustix::process::geteuid().is_root() {
        log.give_file(identity.uid, identity.gid).with_context(context)?;
    }
    Ok(())
}

/// Runs the switch that `file` describes until it is told to end.
///
/// # Errors
/// If it cannot start.
pub fn run(file: &Path, options: RunOptions) -> Result<()> {
    let log = log_to_console(options.quiet)?;
    panics::watch();
    let config = Config::load(file)?;
    let identity = config.switch.identity().with_context(|| file.display().to_string())?;
    let rundir = Rundir::take(&config, &identity)?;
    start_log_of(&config, &log, &identity)?;
    config.warnings().iter().for_each(|text| tracing::warn!("{text}"));
    let port_types = config.switch.port_types.clone();
    let process = Process::of_config(file, config, log)?;
    rundir.make_sockets_of_root(&process)?;
    leave_root(&identity, port_types, process.switch())?;
    restore_tables(&process, &rundir)?;
    start_threads(&process)?;
    // An error leaves no socket behind.
    let listeners = listen(&process, &rundir).inspect_err(|_| process.stop_switch())?;
    tracing::info!("running, control socket {}", rundir.control.display());
    service_manager::tell(&Notice::Ready);
    let why = attend(&process, options);
    end(&process, listeners, &rundir, &why, options);
    why.map(drop)
}

/// The log on the console until the configuration is known.
fn log_to_console(is_quiet: bool) -> Result<Log> {
    let log = Log::to_console("sluice");
    if is_quiet {
        log.set("console:warn").map_err(anyhow::Error::msg)?;
    }
    log.install();
    Ok(log)
}

/// The directory of the sockets.
struct Rundir {
    path: PathBuf,
    /// The control socket in it.
    control: PathBuf,
    socket_mode: u16,
    /// Whether it belongs to the switch. Else it stays root's, with all else that is in it.
    is_own: bool,
}

impl Rundir {
    /// Makes the directory, if it is not there, and gives it to the user that the switch becomes.
    fn take(config: &Config, identity: &Identity) -> Result<Rundir> {
        let path = config.switch.rundir.as_ref().map_or_else(rundir::default_rundir, |dir| config.resolve(dir));
        rundir::prepare(&path, identity.uid)?;
        let control = path.join(rundir::CONTROL_SOCKET);
        // Before ports are opened: another switch that runs may have the same ones.
        remove_stale(&control, "control socket").map_err(rundir::socket_error)?;
        let socket_mode = config.switch.socket_mode();
        let is_own = privileges::give_rundir(&path, identity, socket_mode)?;
        Ok(Rundir { path, control, socket_mode, is_own })
    }

    /// Makes the sockets of a directory that stays root's while this process is root.
    fn make_sockets_of_root(&self, process: &Process) -> Result<()> {
        if self.is_own {
            return Ok(());
        }
        let named = self.path.display();
        anyhow::ensure!(
            !keeps_tables(process),
            "rundir {named}: tables cannot be kept (switch.keep-tables) in a directory of root's that holds other things than \
             sockets; set switch.rundir to one that does not exist yet, for example /run/sluice"
        );
        tracing::warn!(
            "rundir {named} holds other things than sockets and stays root's: bridges that are added later get no sockets there, \
             and at the end the sockets stay"
        );
        let bridges = process.switch().ofproto().bridges();
        let of_bridges = bridges.iter().flat_map(|bridge| openflow_sockets(&self.path, &bridge.name));
        for path in of_bridges.chain([self.control.clone()]) {
            unix_socket::make_ready(&path, "socket", SocketMode::Bits(self.socket_mode))
                .map_err(rundir::socket_error)?;
        }
        Ok(())
    }
}

/// Leaves root, if this is root, and says what is left of it. `port_types`: what ports may be added later.
fn leave_root(identity: &Identity, mut port_types: Vec<String>, switch: &Switch) -> Result<()> {
    port_types.extend(switch.port_kinds());
    let left = privileges::leave_root(identity, port_types.iter().map(String::as_str)).context(CANNOT_LEAVE_ROOT)?;
    if let Some(left) = left {
        identity.warning().inspect(|text| tracing::warn!("{text}"));
        tracing::info!("{left}");
    }
    Ok(())
}

fn keeps_tables(process: &Process) -> bool {
    process.config_file().is_some_and(ConfigFile::keeps_tables)
}

/// Takes up the tables that an earlier run has kept, or forgets them if tables are not kept any more.
fn restore_tables(process: &Process, rundir: &Rundir) -> Result<()> {
    if keeps_tables(process) {
        kept_tables::restore(process.switch(), &rundir.path)
    } else if rundir.is_own {
        kept_tables::forget(&rundir.path)
    } else {
        Ok(())
    }
}

/// Starts the threads: that of signals and the watchdog, which see to an end, before those of the switch.
fn start_threads(process: &Arc<Process>) -> Result<()> {
    signals::watch(process)?;
    watchdog::start(process)?;
    process.switch().start()?;
    Ok(())
}

/// What listens while the switch runs: for commands, and for Prometheus.
type Listeners = (Server, Option<Endpoint>);

/// Opens the sockets of controllers, Prometheus and commands. The control socket comes last: once it is there, all
/// commands work.
fn listen(process: &Arc<Process>, rundir: &Rundir) -> Result<Listeners> {
    let (switch, mode) = (process.switch(), SocketMode::Bits(rundir.socket_mode));
    switch.start_openflow(&rundir.path, mode).map_err(explain)?;
    let address = process.config_file().and_then(ConfigFile::metrics_address);
    let endpoint = address.map(|address| Endpoint::listen(address, Arc::clone(switch))).transpose()?;
    if let Some(endpoint) = &endpoint {
        tracing::info!("metrics at http://{}/metrics", endpoint.address());
    }
    let listener = unix_socket::listen(&rundir.control, "control socket", mode).map_err(rundir::socket_error)?;
    let server = Server::start(listener, &rundir.control, Box::new(CommandTable(Arc::clone(process))));
    Ok((server.context("control thread")?, endpoint))
}

/// Runs what is due until the switch is to end, and returns why it ends.
///
/// # Errors
/// If a PMD thread has panicked: the switch should be started again.
fn attend(process: &Process, options: RunOptions) -> Result<String> {
    let (switch, main_loop) = (process.switch(), process.main_loop());
    let began = Instant::now();
    let mut live = LiveLine::new(switch, began, options.quiet);
    let alive_every = service_manager::alive_every();
    let mut told_alive = began;
    let mut housekeeping = Housekeeping::new(process, sluice_clock::now_ms());
    let _running = main_loop.running();
    loop {
        let turn = main_loop.turn();
        let stop_after = process.config_file().and_then(ConfigFile::stop_after);
        if let Some(after) = stop_after.filter(|after| began.elapsed() >= *after) {
            live.finish();
            return Ok(format!("{} s have passed", after.as_secs_f64()));
        }
        let busy = process.heartbeat().begin("housekeeping");
        housekeeping.run(process, &busy, sluice_clock::now_ms())?;
        busy.go_on("live line");
        live.show_if_due(switch, stop_after.is_some());
        if alive_every.is_some_and(|every| told_alive.elapsed() >= every) {
            service_manager::tell(&Notice::Alive);
            told_alive = Instant::now();
        }
        drop(busy);
        drop(turn);
        if let Some(why) = main_loop.why_end() {
            live.finish();
            return Ok(why);
        }
        let left = stop_after.map_or(Duration::MAX, |after| after.saturating_sub(began.elapsed()));
        let left = left.min(live.due_in(stop_after.is_some()));
        let left = alive_every.map_or(left, |every| left.min(every.saturating_sub(told_alive.elapsed())));
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        let deadline_ms = housekeeping.deadline_ms().min(sluice_clock::now_ms().saturating_add(left_ms));
        main_loop.sleep([], Some(deadline_ms));
    }
}

/// Ends the switch: sockets first, so that no command comes any more, then its threads, then what is left to save and say.
fn end(process: &Process, listeners: Listeners, rundir: &Rundir, why: &Result<String>, options: RunOptions) {
    let switch = process.switch();
    service_manager::tell(&Notice::Stopping);
    match why {
        Ok(why) => tracing::info!("ending: {why}"),
        Err(error) => tracing::error!("ending: {error}"),
    }
    let busy = process.heartbeat().begin("end of control sockets");
    drop(listeners);
    busy.go_on("end of the switch's threads");
    process.stop_switch();
    // After an end that is no orderly one, what there is may be what has gone wrong.
    if why.is_ok() && keeps_tables(process) {
        busy.go_on_within("saving of tables", watchdog::SAVE_WITHIN);
        let saved = process.save(|| kept_tables::save(switch, &rundir.path));
        saved.unwrap_or_else(|error| tracing::error!("tables are not kept: {error:#}"));
    }
    busy.go_on("statistics");
    switch.settle();
    busy.go_on("summary");
    if !options.quiet {
        write_output(&summary::summary(switch, options.dump), SUMMARY_PATIENCE);
    }
    busy.go_on("close of ports");
    switch.close_ports();
}
