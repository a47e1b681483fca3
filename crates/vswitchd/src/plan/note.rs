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

/// A line of Open vSwitch's module `bridge`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its level.
    pub level: Level,
    /// Its text.
    pub text: String,
    /// Whether it is written the first time only.
    pub is_once: bool,
}

impl Note {
    /// A line for every reconfiguration that finds this.
    pub fn new(level: Level, text: impl Into<String>) -> Self {
        Note { level, text: text.into(), is_once: false }
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
        match self.level {
            Level::Info => tracing::info!(target: "bridge", "{}", self.text),
            Level::Warn => tracing::warn!(target: "bridge", "{}", self.text),
            Level::Error => tracing::error!(target: "bridge", "{}", self.text),
        }
    }
}
