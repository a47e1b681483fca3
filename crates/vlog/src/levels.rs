//! Levels and destinations.

/// How important a message is; the greatest level is the least important.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No message has this level; as a limit it lets nothing through.
    Off,
    /// The daemon cannot go on.
    Emer,
    /// An error.
    Err,
    /// A warning.
    Warn,
    /// Information.
    Info,
    /// Debugging.
    Dbg,
}

/// Where messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The system's log.
    Syslog,
    /// Standard error.
    Console,
    /// The log file.
    File,
}

impl Level {
    /// All levels.
    pub const ALL: [Level; 6] = [Level::Off, Level::Emer, Level::Err, Level::Warn, Level::Info, Level::Dbg];

    /// vlog's name.
    pub fn name(self) -> &'static str {
        match self {
            Level::Off => "OFF",
            Level::Emer => "EMER",
            Level::Err => "ERR",
            Level::Warn => "WARN",
            Level::Info => "INFO",
            Level::Dbg => "DBG",
        }
    }

    /// The level of that name, in upper or lower case.
    pub(crate) fn named(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(name))
    }

    /// The severity in the journal. Source: sd-daemon(3).
    pub(crate) fn journal_severity(self) -> u32 {
        if self == Level::Info { 6 } else { self.syslog_severity() }
    }

    /// The severity in the system's log. Source: vlog, which reports INFO as a notice.
    pub(crate) fn syslog_severity(self) -> u32 {
        match self {
            Level::Off | Level::Emer => 1,
            Level::Err => 3,
            Level::Warn => 4,
            Level::Info => 5,
            Level::Dbg => 7,
        }
    }
}

impl From<tracing::Level> for Level {
    fn from(level: tracing::Level) -> Self {
        match level {
            tracing::Level::ERROR => Level::Err,
            tracing::Level::WARN => Level::Warn,
            tracing::Level::INFO => Level::Info,
            _ => Level::Dbg,
        }
    }
}

impl Destination {
    /// All destinations, in the order of `vlog/list-pattern`.
    pub const ALL: [Destination; 3] = [Destination::Syslog, Destination::Console, Destination::File];

    /// vlog's name.
    pub fn name(self) -> &'static str {
        match self {
            Destination::Syslog => "SYSLOG",
            Destination::Console => "CONSOLE",
            Destination::File => "FILE",
        }
    }

    /// The destination of that name, in upper or lower case.
    pub(crate) fn named(name: &str) -> Option<Destination> {
        Destination::ALL.into_iter().find(|destination| destination.name().eq_ignore_ascii_case(name))
    }

    /// What a line looks like if nobody says anything else.
    pub(crate) fn default_pattern(self) -> &'static str {
        match self {
            Destination::Syslog => "ovs|%05N|%c%T|%p|%m",
            Destination::Console => "%D{%Y-%m-%dT%H:%M:%SZ}|%05N|%c%T|%p|%m",
            Destination::File => "%D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%m",
        }
    }
}
