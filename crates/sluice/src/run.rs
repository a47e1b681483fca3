//! `sluice run`: a switch in the foreground, from its configuration to its end.

use crate::command::CommandTable;
use crate::command::options::PmdOptions;
use crate::config::Config;
use crate::metrics::Endpoint;
use crate::process::{Process, explain};
use crate::text::coverage::SAMPLE_SECS;
use crate::text::megaflows::dpctl_line;
use crate::text::{live, rules};
use crate::{command, log, privileges, rundir};
use anyhow::{Context, Result};
use sluice_action::DatapathPortNames;
use sluice_connmgr::unix_socket::{listen_private, remove_stale};
use sluice_datapath::FlowReport;
use sluice_fate::Snapshot;
use sluice_unixctl::Server;
use sluice_vswitch::Switch;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often side effects of packets are done and timeouts looked at.
const TICK: Duration = Duration::from_millis(20);

/// How often ports are looked after.
const WATCH_PORTS_EVERY: Duration = Duration::from_secs(1);

/// From one live line to the next, on a terminal or in a run of limited length.
const LIVE_EVERY: Duration = Duration::from_secs(1);

/// The same in a log that may grow for months.
const LIVE_EVERY_IN_LOG: Duration = Duration::from_secs(60);

/// Megaflows shown at the end; there may be millions.
const MEGAFLOWS_SHOWN: usize = 100;

/// Runs the switch that `file` describes until it is told to end.
///
/// # Errors
/// If it cannot start.
pub fn run(file: &Path) -> Result<()> {
    log::start();
    let config = Config::load(file)?;
    let rundir = config.switch.rundir.as_ref().map_or_else(rundir::default_rundir, |dir| config.resolve(dir));
    rundir::prepare(&rundir)?;
    let control = rundir.join(rundir::CONTROL_SOCKET);
    // Before ports are opened: another switch that runs may have the same ones.
    remove_stale(&control, "control socket").map_err(rundir::socket_error)?;
    privileges::give_rundir(&rundir)?;
    let process = Process::prepare(file, config)?;
    let switch = process.switch();
    let kinds = switch.port_kinds();
    match privileges::leave_root(kinds.iter().map(String::as_str)) {
        Ok(Some(left)) => tracing::info!("{left}"),
        Ok(None) => {}
        // A container may forbid it; the switch works nevertheless.
        Err(error) => tracing::warn!("still running as root: {error:#}"),
    }
    watch_signals(&process)?;
    switch.start()?;
    // An error leaves no socket behind.
    let (server, endpoint) = listen(&process, &rundir, &control).inspect_err(|_| switch.stop())?;
    tracing::info!("running, control socket {}", control.display());
    let why = attend(&process);
    match &why {
        Ok(why) => tracing::info!("ending: {why}"),
        Err(error) => tracing::error!("ending: {error}"),
    }
    drop(server);
    drop(endpoint);
    switch.stop();
    let mut out = std::io::stdout().lock();
    // The reader of standard output may be gone.
    let _ = write!(out, "{}", summary(switch)).and_then(|()| out.flush());
    why.map(drop)
}

/// Opens the sockets of controllers, Prometheus and commands. The control socket comes last: once it is there, all
/// commands work.
fn listen(process: &Arc<Process>, rundir: &Path, control: &Path) -> Result<(Server, Option<Endpoint>)> {
    let switch = process.switch();
    switch.start_openflow(rundir).map_err(explain)?;
    let endpoint =
        process.metrics_address().map(|address| Endpoint::listen(address, Arc::clone(switch))).transpose()?;
    if let Some(endpoint) = &endpoint {
        tracing::info!("metrics at http://{}/metrics", endpoint.address());
    }
    let listener = listen_private(control, "control socket").map_err(rundir::socket_error)?;
    let server = Server::start(listener, control, Box::new(CommandTable(Arc::clone(process))));
    let server = server.context("control thread")?;
    Ok((server, endpoint))
}

/// SIGTERM, SIGINT and SIGHUP (the terminal is gone) end the switch in order; a second signal ends it at once. SIGINT
/// counts even if it was ignored at the start: shells ignore it in background jobs.
fn watch_signals(process: &Arc<Process>) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    let wanted = [SIGTERM, SIGINT].into_iter().chain(hangup);
    let mut signals = signal_hook::iterator::Signals::new(wanted).context("signals")?;
    let process = Arc::downgrade(process);
    let watch = move || {
        for (i, signal) in signals.forever().enumerate() {
            let name = match signal {
                SIGTERM => "SIGTERM",
                SIGINT => "SIGINT",
                _ => "SIGHUP",
            };
            match process.upgrade() {
                Some(process) if i == 0 => process.end(name),
                _ => std::process::exit(1),
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch).context("signal thread")?;
    Ok(())
}

/// Whether the switch was started with a signal ignored, as `nohup` does. Source: proc(5), `SigIgn`.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 != 0)
}

/// Runs what is due until the switch is to end, and returns why it ends.
///
/// # Errors
/// If a PMD thread has panicked: the switch should be started again.
fn attend(process: &Process) -> Result<String> {
    let switch = process.switch();
    let began = Instant::now();
    let mut live = LiveLine::new(switch, began);
    let mut next_sample = began + Duration::from_secs(SAMPLE_SECS);
    let mut next_watch = began;
    loop {
        let stop_after = process.stop_after();
        let now = Instant::now();
        if let Some(after) = stop_after.filter(|after| now - began >= *after) {
            live.finish();
            return Ok(format!("{} s have passed", after.as_secs_f64()));
        }
        let until = stop_after.map_or(now + TICK, |after| (now + TICK).min(began + after));
        if let Some(why) = process.wait_for_end(until) {
            live.finish();
            return Ok(why);
        }
        switch.tick();
        let now = Instant::now();
        if now >= next_watch {
            switch.watch_ports();
            let lost = switch.datapath().lost_pmds();
            anyhow::ensure!(
                lost.is_empty(),
                "PMD threads {lost:?} have panicked; this is a bug in sluice, see the lines above"
            );
            next_watch = now + WATCH_PORTS_EVERY;
        }
        if now >= next_sample {
            process.coverage().sample(&switch.totals());
            next_sample += Duration::from_secs(SAMPLE_SECS);
        }
        live.show_if_due(switch, stop_after.is_some());
    }
}

/// The live line, and what was shown last.
struct LiveLine {
    began: Instant,
    last: Instant,
    totals: Snapshot,
    on_terminal: bool,
}

impl LiveLine {
    fn new(switch: &Switch, began: Instant) -> Self {
        LiveLine { began, last: began, totals: switch.totals(), on_terminal: std::io::stdout().is_terminal() }
    }

    fn show_if_due(&mut self, switch: &Switch, is_short_run: bool) {
        let every = if self.on_terminal || is_short_run { LIVE_EVERY } else { LIVE_EVERY_IN_LOG };
        let now = Instant::now();
        if now - self.last < every {
            return;
        }
        let totals = switch.totals();
        let line = live::line(&totals.since(&self.totals), now - self.last, now - self.began, switch.lookups().flows);
        (self.last, self.totals) = (now, totals);
        let mut out = std::io::stdout().lock();
        // On a terminal the line stays in its place; what is left of a longer one before is erased.
        let _ = if self.on_terminal { write!(out, "\r{line}\x1b[K") } else { writeln!(out, "{line}") };
        let _ = out.flush();
    }

    /// Leaves the line, and what follows starts on one of its own.
    fn finish(&self) {
        if self.on_terminal && self.last != self.began {
            let _ = writeln!(std::io::stdout());
        }
    }
}

/// What is printed at the end: PMD statistics, rules, megaflows.
fn summary(switch: &Switch) -> String {
    let mut out = command::datapath::perf_show(switch, &PmdOptions::default());
    let now_ms = switch.now_ms();
    for bridge in switch.ofproto().bridges() {
        let names = switch.port_names(&bridge.name);
        let text = rules::dump(switch.ofproto(), &bridge.name, now_ms, |line| format!(" {}", line.display(&names)));
        out += &format!("\nrules of {}:\n{}", bridge.name, text.unwrap_or_default());
    }
    let (names, flows) = (DatapathPortNames::default(), switch.datapath().flows());
    out += &format!("\nmegaflows: {}\n", flows.len());
    let line = |flow: &FlowReport| dpctl_line(flow, flow.flow.stats, false, &names, now_ms) + "\n";
    out.extend(flows.iter().take(MEGAFLOWS_SHOWN).map(line));
    if flows.len() > MEGAFLOWS_SHOWN {
        out += &format!("… and {} more\n", flows.len() - MEGAFLOWS_SHOWN);
    }
    out
}
