//! `sluice run`: a switch in the foreground, from its configuration to its end.

use crate::command::CommandTable;
use crate::command::options::PmdOptions;
use crate::config::Config;
use crate::config_file::ConfigFile;
use crate::housekeeping::Housekeeping;
use crate::metrics::Endpoint;
use crate::privileges::Identity;
use crate::process::{Process, explain};
use crate::service_manager::{self, Notice};
use crate::text::megaflows::dpctl_line;
use crate::text::{live, rules};
use crate::{command, kept_tables, panics, privileges, rundir, signals, watchdog};
use anyhow::{Context, Result};
use sluice_action::DatapathPortNames;
use sluice_connmgr::openflow_sockets;
use sluice_connmgr::unix_socket::{self, SocketMode, remove_stale};
use sluice_datapath::FlowReport;
use sluice_fate::Snapshot;
use sluice_ofp::text::FlowLine;
use sluice_unixctl::Server;
use sluice_vlog::{Log, write_output};
use sluice_vswitch::Switch;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// From one live line to the next, on a terminal or in a run of limited length.
const LIVE_EVERY: Duration = Duration::from_secs(1);

/// The same in a log that may grow for months.
const LIVE_EVERY_IN_LOG: Duration = Duration::from_secs(60);

/// What to do in a container that takes too much away from root.
const CANNOT_LEAVE_ROOT: &str = "the switch does not go on as root; start it as an ordinary user, or let it have \
    CAP_SETUID, CAP_SETGID and CAP_SETPCAP";

/// How long the text at the end waits for its reader.
const SUMMARY_PATIENCE: Duration = Duration::from_millis(500);

/// Megaflows, rules of a bridge, and bridges shown at the end; there may be millions.
const SHOWN_MAX: usize = 100;

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

/// Checks the configuration `file` and all that it names: rules are read as at a start, into a switch without devices.
///
/// # Errors
/// With the first thing that a switch would not start with.
pub fn check(file: &Path) -> Result<String> {
    let config = Config::load(file)?;
    config.check_build()?;
    config.switch.identity().with_context(|| file.display().to_string())?;
    check_log_file(&config).with_context(|| file.display().to_string())?;
    let mut desired = config.desired()?;
    desired.dpdk = None;
    for port in desired.bridges.iter_mut().flat_map(|bridge| &mut bridge.ports) {
        // Patch ports and tunnels have no device.
        if sluice_port::PORT_TYPES.iter().any(|kind| kind.name == port.kind) {
            port.kind = "null".into();
            port.options.clear();
        }
    }
    let switch = Switch::prepare(&desired).map_err(explain)?;
    switch.close_ports();
    let warnings: String = config.warnings().iter().map(|text| format!("warning: {text}\n")).collect();
    Ok(format!("{warnings}{}: can be run\n", file.display()))
}

/// Whether the log file can be where the configuration has it.
fn check_log_file(config: &Config) -> Result<()> {
    let Some(path) = config.switch.log_file.as_ref().map(|path| config.resolve(path)) else { return Ok(()) };
    let directory = path.parent().unwrap_or(Path::new("/"));
    anyhow::ensure!(
        directory.as_os_str().is_empty() || directory.is_dir(),
        "switch.log-file: {}: there is no directory {}; make it",
        path.display(),
        directory.display()
    );
    Ok(())
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
    let log = Log::to_console("sluice");
    if options.quiet {
        log.set("console:warn").map_err(anyhow::Error::msg)?;
    }
    log.install();
    panics::watch();
    let config = Config::load(file)?;
    let rundir = config.switch.rundir.as_ref().map_or_else(rundir::default_rundir, |dir| config.resolve(dir));
    let identity = config.switch.identity().with_context(|| file.display().to_string())?;
    rundir::prepare(&rundir, identity.uid)?;
    let control = rundir.join(rundir::CONTROL_SOCKET);
    // Before ports are opened: another switch that runs may have the same ones.
    remove_stale(&control, "control socket").map_err(rundir::socket_error)?;
    let (socket_mode, mut kinds) = (config.switch.socket_mode(), config.switch.port_types.clone());
    let is_own = privileges::give_rundir(&rundir, &identity, socket_mode)?;
    start_log_of(&config, &log, &identity)?;
    config.warnings().iter().for_each(|text| tracing::warn!("{text}"));
    let process = Process::of_config(file, config, log)?;
    let switch = process.switch();
    kinds.extend(switch.port_kinds());
    if !is_own {
        make_sockets_as_root(&process, &rundir, SocketMode::Bits(socket_mode))?;
    }
    leave_root(&identity, &kinds)?;
    if keeps_tables(&process) {
        kept_tables::restore(switch, &rundir)?
    } else if is_own {
        kept_tables::forget(&rundir)?
    }
    signals::watch(&process)?;
    watchdog::start(&process)?;
    switch.start()?;
    // An error leaves no socket behind.
    let (server, endpoint) =
        listen(&process, &rundir, &control, SocketMode::Bits(socket_mode)).inspect_err(|_| process.stop_switch())?;
    tracing::info!("running, control socket {}", control.display());
    service_manager::tell(&Notice::Ready);
    let why = attend(&process, options);
    service_manager::tell(&Notice::Stopping);
    match &why {
        Ok(why) => tracing::info!("ending: {why}"),
        Err(error) => tracing::error!("ending: {error}"),
    }
    let busy = process.heartbeat().begin("end of control sockets");
    drop((server, endpoint));
    busy.go_on("end of the switch's threads");
    process.stop_switch();
    // After an end that is no orderly one, what there is may be what has gone wrong.
    if why.is_ok() && keeps_tables(&process) {
        busy.go_on_within("saving of tables", watchdog::SAVE_WITHIN);
        let saved = process.save(|| kept_tables::save(switch, &rundir));
        saved.unwrap_or_else(|error| tracing::error!("tables are not kept: {error:#}"));
    }
    busy.go_on("statistics");
    switch.settle();
    busy.go_on("summary");
    if !options.quiet {
        write_output(&summary(switch, options.dump), SUMMARY_PATIENCE);
    }
    busy.go_on("close of ports");
    switch.close_ports();
    why.map(drop)
}

/// Leaves root, if this is root, and says what is left of it.
fn leave_root(identity: &Identity, kinds: &[String]) -> Result<()> {
    let left = privileges::leave_root(identity, kinds.iter().map(String::as_str)).context(CANNOT_LEAVE_ROOT)?;
    if let Some(left) = left {
        identity.warning().inspect(|text| tracing::warn!("{text}"));
        tracing::info!("{left}");
    }
    Ok(())
}

fn keeps_tables(process: &Process) -> bool {
    process.config_file().is_some_and(ConfigFile::keeps_tables)
}

/// Opens the sockets of controllers, Prometheus and commands. The control socket comes last: once it is there, all
/// commands work.
fn listen(
    process: &Arc<Process>,
    rundir: &Path,
    control: &Path,
    mode: SocketMode,
) -> Result<(Server, Option<Endpoint>)> {
    let switch = process.switch();
    switch.start_openflow(rundir, mode).map_err(explain)?;
    let address = process.config_file().and_then(ConfigFile::metrics_address);
    let endpoint = address.map(|address| Endpoint::listen(address, Arc::clone(switch))).transpose()?;
    if let Some(endpoint) = &endpoint {
        tracing::info!("metrics at http://{}/metrics", endpoint.address());
    }
    let listener = unix_socket::listen(control, "control socket", mode).map_err(rundir::socket_error)?;
    let server = Server::start(listener, control, Box::new(CommandTable(Arc::clone(process))));
    let server = server.context("control thread")?;
    Ok((server, endpoint))
}

/// Makes the sockets of a directory that stays root's while this process is root.
fn make_sockets_as_root(process: &Process, rundir: &Path, mode: SocketMode) -> Result<()> {
    let named = rundir.display();
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
    let of_bridges = bridges.iter().flat_map(|bridge| openflow_sockets(rundir, &bridge.name));
    for path in of_bridges.chain([rundir.join(rundir::CONTROL_SOCKET)]) {
        unix_socket::make_ready(&path, "socket", mode).map_err(rundir::socket_error)?;
    }
    Ok(())
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

/// The live line, and what was shown last.
struct LiveLine {
    began: Instant,
    last: Instant,
    totals: Snapshot,
    on_terminal: bool,
    is_quiet: bool,
}

impl LiveLine {
    fn new(switch: &Switch, began: Instant, is_quiet: bool) -> Self {
        let on_terminal = std::io::stdout().is_terminal();
        LiveLine { began, last: began, totals: switch.totals(), on_terminal, is_quiet }
    }

    /// How long until it is shown next.
    fn due_in(&self, is_short_run: bool) -> Duration {
        if self.is_quiet {
            return Duration::MAX;
        }
        let every = if self.on_terminal || is_short_run { LIVE_EVERY } else { LIVE_EVERY_IN_LOG };
        every.saturating_sub(self.last.elapsed())
    }

    fn show_if_due(&mut self, switch: &Switch, is_short_run: bool) {
        if !self.due_in(is_short_run).is_zero() {
            return;
        }
        let now = Instant::now();
        let totals = switch.totals();
        let line = live::line(&totals.since(&self.totals), now - self.last, now - self.began, switch.lookups().flows);
        (self.last, self.totals) = (now, totals);
        // On a terminal the line stays in its place; what is left of a longer one before is erased.
        let text = if self.on_terminal { format!("\r{line}\x1b[K") } else { format!("{line}\n") };
        // The next line comes soon: this one does not wait for its reader.
        write_output(&text, Duration::ZERO);
    }

    /// Leaves the line, and what follows starts on one of its own.
    fn finish(&self) {
        if self.on_terminal && !self.is_quiet && self.last != self.began {
            write_output("\n", Duration::ZERO);
        }
    }
}

/// What is printed at the end: PMD statistics, and how many rules and megaflows there were; some of them, if `dumps`.
fn summary(switch: &Switch, dumps: bool) -> String {
    let out = command::datapath::perf_show(switch, &PmdOptions::default());
    if dumps {
        return out + &dump(switch);
    }
    let bridges = switch.ofproto().bridges();
    let count = |bridge: &str| rules::dump_some(switch.ofproto(), bridge, 0, switch.now_ms(), |_| String::new());
    let rules: usize = bridges.iter().filter_map(|bridge| Some(count(&bridge.name).ok()?.1)).sum();
    let counts = format!("\nbridges: {}, rules: {rules}, megaflows: {}", bridges.len(), switch.lookups().flows);
    out + &counts + " (--dump shows them here; bridge/dump-flows and dpctl/dump-flows while the switch runs)\n"
}

/// Some rules and some megaflows. The end is to be soon, so it does not format all there is; commands do that while the
/// switch runs.
fn dump(switch: &Switch) -> String {
    let mut out = String::new();
    let now_ms = switch.now_ms();
    let bridges = switch.ofproto().bridges();
    for bridge in bridges.iter().take(SHOWN_MAX).map(|bridge| &*bridge.name) {
        let names = switch.port_names(bridge);
        let show = |line: &FlowLine<'_>| format!(" {}", line.display(&names));
        let (text, more) = rules::dump_some(switch.ofproto(), bridge, SHOWN_MAX, now_ms, show).unwrap_or_default();
        out += &format!("\nrules of {bridge}:\n{text}");
        out += &more_text(more, &format!(" rules: bridge/dump-flows {bridge} lists them while the switch runs"));
    }
    out += &more_text(bridges.len().saturating_sub(SHOWN_MAX), " bridges");
    let names = DatapathPortNames::default();
    let (flows, count) = switch.datapath().oldest_flows(SHOWN_MAX);
    out += &format!("\nmegaflows: {count}\n");
    let line = |flow: &FlowReport| dpctl_line(flow, flow.flow.stats, false, &names, now_ms) + "\n";
    out.extend(flows.iter().map(line));
    out + &more_text(count - flows.len(), "")
}

/// What stands for things that are not shown.
fn more_text(n: usize, what: &str) -> String {
    if n == 0 { String::new() } else { format!("… and {n} more{what}\n") }
}
