//! The configuration file of a switch that runs: what it said when it was read last, and reading it again.

use crate::config::{self, Config};
use crate::process::explain;
use crate::text::change;
use parking_lot::Mutex;
use sluice_vswitch::Switch;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A configuration file.
pub struct ConfigFile {
    path: PathBuf,
    /// What the file said of the process when it was read last.
    settings: Mutex<config::Switch>,
}

/// What came of reading the file again: a line for each step.
struct Reloaded {
    done: Vec<String>,
    failed: Vec<String>,
}

impl ConfigFile {
    /// The file at `path`, which said this of the process.
    pub fn new(path: &Path, settings: config::Switch) -> Self {
        ConfigFile { path: path.to_owned(), settings: Mutex::new(settings) }
    }

    /// The time after which the switch ends by itself, if the file has one.
    pub fn stop_after(&self) -> Option<Duration> {
        self.settings.lock().stop_after.map(|after| after.0)
    }

    /// Whether tables outlast the process.
    pub fn keeps_tables(&self) -> bool {
        self.settings.lock().keep_tables
    }

    /// The address at which Prometheus reads metrics, if the file has one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.settings.lock().metrics
    }

    /// `sluice/reload`: reads the file again and applies what changed in it: a line for each step, or a line that says
    /// that there was none. The log gets each of these lines, too.
    ///
    /// # Errors
    /// If the file is wrong (nothing has changed then), or steps failed (the others have been taken).
    pub fn reload(&self, switch: &Switch) -> Result<String, String> {
        let Reloaded { mut done, failed } =
            self.apply(switch).inspect_err(|error| tracing::error!("reload: {error}"))?;
        failed.iter().for_each(|line| tracing::error!("reload: {line}"));
        if done.is_empty() && failed.is_empty() {
            done.push("nothing changed".to_owned());
        }
        done.iter().for_each(|line| tracing::info!("reload: {line}"));
        if failed.is_empty() { Ok(done.join("\n")) } else { Err([failed, done].concat().join("\n")) }
    }

    fn apply(&self, switch: &Switch) -> Result<Reloaded, String> {
        let new = Config::load(&self.path).map_err(|error| error.to_string())?;
        let desired = new.desired().map_err(|error| error.to_string())?;
        let outcomes = switch.reconfigure(&desired).map_err(|error| explain(error).to_string())?;
        switch.sync_bundles();
        new.warnings().iter().for_each(|text| tracing::warn!("{text}"));
        let mut done = self.set(new.switch);
        let mut failed = Vec::new();
        for outcome in outcomes {
            let lines = change::lines(&outcome);
            match outcome.error {
                Some(error) => failed.push(change::failure(&outcome.change, &explain(error).to_string())),
                None => done.extend(lines),
            }
        }
        done.dedup();
        Ok(Reloaded { done, failed })
    }

    /// Takes over what the file says of the process; a line for each change.
    fn set(&self, new: config::Switch) -> Vec<String> {
        let mut settings = self.settings.lock();
        let changes = [
            (settings.stop_after != new.stop_after).then(|| "switch.stop-after: changed".to_owned()),
            (settings.keep_tables != new.keep_tables).then(|| "switch.keep-tables: changed".to_owned()),
            (who(&settings) != who(&new))
                .then(|| change::at_next_start("switch.user, group, socket-group, port-types")),
            (settings.socket_mode != new.socket_mode).then(|| change::at_next_start("switch.socket-mode")),
            ((&settings.log_file, settings.syslog) != (&new.log_file, new.syslog))
                .then(|| change::at_next_start("switch.log-file, syslog")),
            (settings.rundir != new.rundir).then(|| change::at_next_start("switch.rundir")),
            (settings.metrics != new.metrics).then(|| change::at_next_start("switch.metrics")),
        ];
        *settings = new;
        changes.into_iter().flatten().collect()
    }
}

/// Whom the switch runs as, and what it keeps.
fn who(settings: &config::Switch) -> impl PartialEq + use<> {
    let config::Switch { user, group, socket_group, port_types, .. } = settings.clone();
    (user, group, socket_group, port_types)
}
