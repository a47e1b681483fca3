//! Log lines that a plan wants written.

use std::collections::HashSet;

/// A line's level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something to know.
    Info,
    /// Something is not as it should be.
    Warn,
    /// Something cannot be.
    Error,
}

/// A line of the log, of Open vSwitch's module `bridge` unless it says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its level.
    pub level: Level,
    /// Its text.
    pub text: String,
    /// Whether it is written the first time only.
    pub is_once: bool,
    module: Module,
}

/// The module of a line. Targets of log lines are fixed when the program is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Module {
    Bridge,
    Dpdk,
}

impl Note {
    /// A line for every reconfiguration that finds this.
    pub fn new(level: Level, text: impl Into<String>) -> Self {
        Note { level, text: text.into(), is_once: false, module: Module::Bridge }
    }

    /// The line as one of the module `dpdk`.
    pub fn of_dpdk(self) -> Self {
        Note { module: Module::Dpdk, ..self }
    }

    /// A line for the first of them.
    pub fn once(level: Level, text: impl Into<String>) -> Self {
        Note { is_once: true, ..Note::new(level, text) }
    }

    /// Writes it, unless it is to be written once and is among `written`.
    pub fn log(&self, written: &mut HashSet<String>) {
        if self.is_once && !written.insert(self.text.clone()) {
            return;
        }
        match (self.module, self.level) {
            (Module::Bridge, Level::Info) => tracing::info!(target: "bridge", "{}", self.text),
            (Module::Bridge, Level::Warn) => tracing::warn!(target: "bridge", "{}", self.text),
            (Module::Bridge, Level::Error) => tracing::error!(target: "bridge", "{}", self.text),
            (Module::Dpdk, Level::Info) => tracing::info!(target: "dpdk", "{}", self.text),
            (Module::Dpdk, Level::Warn) => tracing::warn!(target: "dpdk", "{}", self.text),
            (Module::Dpdk, Level::Error) => tracing::error!(target: "dpdk", "{}", self.text),
        }
    }
}
