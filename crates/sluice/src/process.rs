//! The process that runs a switch: its configuration file, its event rates, and its end.

use crate::config::{self, Config};
use crate::rundir;
use crate::text::change;
use crate::text::coverage::Coverage;
use anyhow::Result;
use parking_lot::{Condvar, Mutex, MutexGuard};
use sluice_connmgr::{TlsError, TlsFile};
use sluice_vswitch::{Error, Switch};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A process that runs a switch.
pub struct Process {
    switch: Arc<Switch>,
    file: PathBuf,
    /// What the file said of the process when it was read last.
    settings: Mutex<config::Switch>,
    coverage: Mutex<Coverage>,
    /// Why the end was asked for, if it was.
    end: Mutex<Option<String>>,
    end_asked: Condvar,
}

impl Process {
    /// Prepares the switch that `config`, read from `file`, describes.
    ///
    /// # Errors
    /// As [`Switch::prepare`], or if a file of rules cannot be read.
    pub fn prepare(file: &Path, config: Config) -> Result<Arc<Process>> {
        let switch = Switch::prepare(&config.desired()?).map_err(explain)?;
        Ok(Arc::new(Process {
            switch,
            file: file.into(),
            settings: Mutex::new(config.switch),
            coverage: Mutex::default(),
            end: Mutex::default(),
            end_asked: Condvar::new(),
        }))
    }

    /// The switch.
    pub fn switch(&self) -> &Arc<Switch> {
        &self.switch
    }

    /// Event rates.
    pub fn coverage(&self) -> MutexGuard<'_, Coverage> {
        self.coverage.lock()
    }

    /// The time after which the switch ends by itself, if the configuration has one.
    pub fn stop_after(&self) -> Option<Duration> {
        self.settings.lock().stop_after.map(|after| after.0)
    }

    /// The address at which Prometheus reads metrics, if the configuration has one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.settings.lock().metrics
    }

    /// Asks for the end.
    pub fn end(&self, why: &str) {
        self.end.lock().get_or_insert_with(|| why.to_owned());
        self.end_asked.notify_all();
    }

    /// Waits until `until` at most; why it is to end, if it is.
    pub fn wait_for_end(&self, until: Instant) -> Option<String> {
        let mut why = self.end.lock();
        if why.is_none() {
            self.end_asked.wait_until(&mut why, until);
        }
        why.clone()
    }

    /// `sluice/reload`: reads the configuration file again and applies what changed in it: a line for each step, or a
    /// line that says that there was none.
    ///
    /// # Errors
    /// If the file is wrong (nothing has changed then), or steps failed (the others have been taken).
    pub fn reload(&self) -> Result<String, String> {
        let new = Config::load(&self.file).map_err(|error| error.to_string())?;
        let desired = new.desired().map_err(|error| error.to_string())?;
        let outcomes = self.switch.reconfigure(&desired).map_err(|error| explain(error).to_string())?;
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
        if !failed.is_empty() {
            failed.extend(done);
            return Err(failed.join("\n"));
        }
        let nothing = || "nothing changed".to_owned();
        tracing::info!("configuration read again: {}", if done.is_empty() { nothing() } else { done.join("; ") });
        Ok(if done.is_empty() { nothing() } else { done.join("\n") })
    }

    /// Takes over what the file says of the process; a line for each change.
    fn set(&self, new: config::Switch) -> Vec<String> {
        let mut settings = self.settings.lock();
        let changes = [
            (settings.stop_after != new.stop_after).then(|| "switch.stop-after: changed".to_owned()),
            (settings.rundir != new.rundir).then(|| change::at_next_start("switch.rundir")),
            (settings.metrics != new.metrics).then(|| change::at_next_start("switch.metrics")),
        ];
        *settings = new;
        changes.into_iter().flatten().collect()
    }
}

/// An error of the switch with what the user can do about it in the configuration.
pub fn explain(error: Error) -> anyhow::Error {
    match error {
        Error::OpenFlow(sluice_connmgr::Error::Socket(error)) => rundir::socket_error(error),
        Error::Tls(error) => anyhow::anyhow!("{}: {error}", tls_key(&error)),
        other => other.into(),
    }
}

/// The key of the configuration whose file is wrong.
fn tls_key(error: &TlsError) -> &'static str {
    match error {
        TlsError::Pem { file: TlsFile::PrivateKey, .. } => "switch.tls.private-key",
        TlsError::Pem { file: TlsFile::Certificate, .. } => "switch.tls.certificate",
        TlsError::Pem { file: TlsFile::CaCert, .. } | TlsError::Authority { .. } => "switch.tls.ca-cert",
        TlsError::KeyPair { .. } => "switch.tls",
    }
}
