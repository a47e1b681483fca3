//! The process that runs a switch: its log, its event rates, its main loop and its end.

use crate::config::Config;
use crate::config_file::ConfigFile;
use crate::rundir;
use crate::text::coverage::Coverage;
use anyhow::{Context, Result};
use parking_lot::{Mutex, MutexGuard};
use sluice_clock::heartbeat::Heartbeat;
use sluice_clock::real_ms;
use sluice_connmgr::{TlsError, TlsFile};
use sluice_daemon::main_loop::MainLoop;
use sluice_vlog::Log;
use sluice_vswitch::{Error, Switch};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A process that runs a switch.
pub struct Process {
    switch: Arc<Switch>,
    log: Log,
    main_loop: Arc<MainLoop>,
    /// The main thread's.
    heartbeat: Arc<Heartbeat>,
    coverage: Mutex<Coverage>,
    /// The file that describes the switch, if that is not a database.
    config_file: Option<ConfigFile>,
    version: String,
    /// Whether the end deletes the devices of ports that would outlast the process.
    cleans_up: AtomicBool,
    /// Whether the end is writing what the next process needs.
    is_saving: AtomicBool,
    /// When that was written, milliseconds as of [`real_ms`]; 0 before.
    saved_at_ms: AtomicU64,
}

impl Process {
    /// Prepares the switch that `config`, read from `file`, describes.
    ///
    /// # Errors
    /// As [`Switch::prepare`], or if a file of rules cannot be read.
    pub fn of_config(file: &Path, config: Config, log: Log) -> Result<Arc<Process>> {
        let switch = Switch::prepare(&config.desired()?).map_err(explain)?;
        let version = format!("sluice {}", env!("CARGO_PKG_VERSION"));
        Self::new(switch, log, Some(ConfigFile::new(file, config.switch)), version)
    }

    /// A process whose switch is described by a database. `version` is what the command of that name tells.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn of_database(switch: Arc<Switch>, log: Log, version: String) -> Result<Arc<Process>> {
        Self::new(switch, log, None, version)
    }

    fn new(switch: Arc<Switch>, log: Log, config_file: Option<ConfigFile>, version: String) -> Result<Arc<Process>> {
        let main_loop = Arc::new(MainLoop::new().context("main loop")?);
        let (heartbeat, coverage) = (Heartbeat::of("main"), Mutex::default());
        // Behind a database the next process is to find the devices, as behind Open vSwitch's daemon.
        let cleans_up = AtomicBool::new(config_file.is_some());
        let is_saving = AtomicBool::new(false);
        Ok(Arc::new(Process {
            switch,
            log,
            main_loop,
            heartbeat,
            coverage,
            config_file,
            version,
            cleans_up,
            is_saving,
            saved_at_ms: AtomicU64::new(0),
        }))
    }

    /// The switch.
    pub fn switch(&self) -> &Arc<Switch> {
        &self.switch
    }

    /// The log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The main loop: its end is the process's.
    pub fn main_loop(&self) -> &Arc<MainLoop> {
        &self.main_loop
    }

    /// The heartbeat of the main thread.
    pub fn heartbeat(&self) -> &Heartbeat {
        &self.heartbeat
    }

    /// Event rates.
    pub fn coverage(&self) -> MutexGuard<'_, Coverage> {
        self.coverage.lock()
    }

    /// The file that describes the switch, if that is not a database.
    pub fn config_file(&self) -> Option<&ConfigFile> {
        self.config_file.as_ref()
    }

    /// The program and its version, as a user is told.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Asks for the end.
    pub fn end(&self, why: &str) {
        self.main_loop.end(why);
    }

    /// Asks for an end that deletes the devices of ports.
    pub fn end_and_clean_up(&self, why: &str) {
        self.cleans_up.store(true, Ordering::Relaxed);
        self.end(why);
    }

    /// Stops the switch's threads, and deletes the devices of its ports if that was asked for.
    pub fn stop_switch(&self) {
        self.switch.stop();
        if self.cleans_up.load(Ordering::Relaxed) {
            self.switch.delete_devices();
        }
    }

    /// Writes what the next process needs: the end has more time for that.
    pub fn save<T>(&self, save: impl FnOnce() -> T) -> T {
        self.is_saving.store(true, Ordering::Relaxed);
        let saved = save();
        self.saved_at_ms.store(real_ms(), Ordering::Relaxed);
        // Who sees that it is over sees when.
        self.is_saving.store(false, Ordering::Release);
        saved
    }

    /// Whether the end is writing what the next process needs.
    pub fn is_saving(&self) -> bool {
        self.is_saving.load(Ordering::Acquire)
    }

    /// When the end had written that, milliseconds as of [`real_ms`]; `None` before.
    pub fn saved_at_ms(&self) -> Option<u64> {
        Some(self.saved_at_ms.load(Ordering::Relaxed)).filter(|ms| *ms != 0)
    }

    /// Returns when the main loop has done one whole turn that began after the call, or is over. Must not be called from
    /// the main loop.
    pub fn wait_for_turn(&self) {
        self.main_loop.wait_for_turn();
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
