//! Log lines that a plan wants written.

/// A line's level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
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
}

impl Note {
    /// A line.
    pub fn new(level: Level, text: impl Into<String>) -> Self {
        Note { level, text: text.into() }
    }

    /// Writes it.
    pub fn log(&self) {
        match self.level {
            Level::Warn => tracing::warn!(target: "bridge", "{}", self.text),
            Level::Error => tracing::error!(target: "bridge", "{}", self.text),
        }
    }
}
