//! The log: levels, patterns and destinations under one lock.

use crate::console;
use crate::layer::LogLayer;
use crate::levels::{Destination, Level};
use crate::modules::{self, Selected};
use crate::options::LogOptions;
use crate::pattern::{self, Message};
use crate::rate_limit::{Decision, RateLimit};
use crate::sinks::{LogFile, Syslog, SyslogMethod, udp_socket};
use crate::spec::Spec;
use crate::strerror::strerror;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::callsite::Identifier;
use tracing_subscriber::layer::SubscriberExt;

/// The facility of messages if no other is named: `daemon`, and `local0` in what `%B` shows.
const DAEMON: u32 = 3;
const LOCAL0: u32 = 16;

/// A line of `--syslog-target`. Source: RFC 5424.
const RFC_5424: &str = "<%B>1 %D{%Y-%m-%dT%H:%M:%S.###Z} %E %A %P %c - \u{feff}%m";

/// A line of the journal.
const JOURNAL_PATTERN: &str = "%c: %m";

/// A log. Clones are handles of the same one.
#[derive(Clone)]
pub struct Log(Arc<Mutex<LogState>>);

/// Why there is no log file.
#[derive(Debug, thiserror::Error)]
pub enum LogFileError {
    /// None has been named.
    #[error("Logging to file not configured")]
    NotConfigured,
    /// It cannot be opened.
    #[error("{}", strerror(.0))]
    Open(#[from] io::Error),
}

struct LogState {
    program: String,
    program_start: jiff::Timestamp,
    /// Messages written.
    written: u64,
    /// By module.
    modules: Vec<ModuleState>,
    /// By destination.
    patterns: [String; 3],
    file: Option<LogFile>,
    /// The log file's name, also after it was closed.
    file_path: Option<PathBuf>,
    syslog: Syslog,
    syslog_target: Option<UdpSocket>,
    /// Whether the console is the journal's.
    is_journal: bool,
    facility: Option<u32>,
    limits: HashMap<Identifier, RateLimit>,
}

#[derive(Clone, Copy)]
struct ModuleState {
    /// By destination.
    levels: [Level; 3],
    honours_rate_limits: bool,
}

impl Log {
    /// A log of `program` that shows INFO and up on the console, in the form that files have, and goes nowhere else.
    pub fn to_console(program: &str) -> Self {
        let log = Self::new(program, &SyslogMethod::Null);
        let mut state = log.0.lock();
        state.set_levels(None, Some(Destination::Syslog), Level::Off);
        // The journal knows time and level itself.
        let pattern = if state.is_journal { JOURNAL_PATTERN } else { Destination::File.default_pattern() };
        state.patterns[Destination::Console as usize] = pattern.into();
        drop(state);
        log
    }

    /// A log as the options want it; its file is not open yet. `own_messages` is the level up to which the console shows
    /// messages that Open vSwitch does not have.
    ///
    /// # Errors
    /// If an option is wrong, with vlog's text.
    pub fn with_options(program: &str, options: &LogOptions, own_messages: Level) -> Result<Self, String> {
        let from_environment = || std::env::var("OVS_SYSLOG_METHOD").ok().filter(|method| !method.is_empty());
        let method = match (&options.syslog_method, from_environment()) {
            (Some(method), _) => method.clone(),
            (None, Some(method)) => method.parse().map_err(|error| format!("{error}"))?,
            (None, None) => SyslogMethod::Libc,
        };
        let log = Self::new(program, &method);
        let mut state = log.0.lock();
        for module in (0..state.modules.len()).filter(|module| modules::is_own(*module)) {
            state.modules[module].levels[Destination::Console as usize] = own_messages;
        }
        state.syslog_target = options.syslog_target.as_deref().and_then(udp_socket);
        drop(state);
        for spec in &options.verbose {
            match spec {
                Some(spec) => log.set(spec).map_err(|error| format!("processing \"{spec}\": {error}"))?,
                None => log.set("dbg")?,
            }
        }
        Ok(log)
    }

    fn new(program: &str, syslog: &SyslogMethod) -> Self {
        let module = ModuleState { levels: [Level::Info; 3], honours_rate_limits: true };
        Log(Arc::new(Mutex::new(LogState {
            program: program.to_owned(),
            program_start: jiff::Timestamp::now(),
            written: 0,
            modules: vec![module; modules::names().len()],
            patterns: Destination::ALL.map(|destination| destination.default_pattern().to_owned()),
            file: None,
            file_path: None,
            syslog: Syslog::new(syslog),
            syslog_target: None,
            is_journal: console::is_journal(),
            facility: None,
            limits: HashMap::new(),
        })))
    }

    /// Makes this the log of the whole process. Only the first call of a process has an effect.
    pub fn install(&self) {
        let subscriber = tracing_subscriber::registry().with(LogLayer(self.clone()));
        let _ = tracing::subscriber::set_global_default(subscriber);
    }

    /// Logs to the file at `path` from now on.
    ///
    /// # Errors
    /// If it cannot be opened. The present log file stays.
    pub fn open_file(&self, path: &Path) -> Result<(), LogFileError> {
        let file = LogFile::open(path).inspect_err(|error| {
            let text = format!("failed to open {} for logging: {}", path.display(), strerror(error));
            self.write("vlog", Level::Warn, &text);
        })?;
        let is_open = match &self.0.lock().file {
            Some(open) if open.is_same(&file) => return Ok(()),
            open => open.is_some(),
        };
        if is_open {
            self.write("vlog", Level::Info, "closing log file");
        }
        {
            let mut state = self.0.lock();
            state.file_path = Some(file.path().to_owned());
            state.file = Some(file);
        }
        tracing::callsite::rebuild_interest_cache();
        self.write("vlog", Level::Info, &format!("opened log file {}", path.display()));
        Ok(())
    }

    /// Sends what INFO and up is to the system's log, too, by the way of the C library.
    pub fn use_syslog(&self) {
        let mut state = self.0.lock();
        state.syslog = Syslog::new(&SyslogMethod::Libc);
        state.set_levels(None, Some(Destination::Syslog), Level::Info);
        drop(state);
        tracing::callsite::rebuild_interest_cache();
    }

    /// Gives the log file to a user and a group.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn give_file(&self, uid: u32, gid: u32) -> io::Result<()> {
        let path = self.0.lock().file_path.clone();
        path.map_or(Ok(()), |path| std::os::unix::fs::chown(path, Some(uid), Some(gid)))
    }

    /// `vlog/reopen`: opens the file of that name again, which log rotation has put there.
    ///
    /// # Errors
    /// If there is no log file, or it cannot be opened.
    pub fn reopen_file(&self) -> Result<(), LogFileError> {
        let path = self.0.lock().file_path.clone().ok_or(LogFileError::NotConfigured)?;
        self.open_file(&path)
    }

    /// `vlog/close`: closes the log file until it is opened again.
    pub fn close_file(&self) {
        self.0.lock().file = None;
        tracing::callsite::rebuild_interest_cache();
    }

    /// `vlog/set SPEC`.
    ///
    /// # Errors
    /// With vlog's text, if the specification names what does not exist.
    pub fn set(&self, spec: &str) -> Result<(), String> {
        match Spec::parse(spec)? {
            Spec::Level { module: Some(Selected::Silent), .. } => {}
            Spec::Level { module, destination, level } => {
                let module = module.map(|module| match module {
                    Selected::Module(module) => module,
                    Selected::Silent => unreachable!("matched above"),
                });
                self.0.lock().set_levels(module, destination, level);
            }
            Spec::Pattern { destination, pattern } => {
                let mut state = self.0.lock();
                for one in Destination::ALL.into_iter().filter(|one| destination.is_none_or(|only| only == *one)) {
                    state.patterns[one as usize].clone_from(&pattern);
                }
            }
            Spec::Facility(facility) => self.0.lock().facility = Some(facility),
        }
        tracing::callsite::rebuild_interest_cache();
        Ok(())
    }

    /// `vlog/list`.
    pub fn list(&self) -> String {
        let mut out =
            String::from("                 console    syslog    file\n                 -------    ------    ------\n");
        let state = self.0.lock();
        for (name, module) in modules::names().iter().zip(&state.modules) {
            let level = |destination: Destination| module.levels[destination as usize].name();
            let unlimited = if module.honours_rate_limits { "" } else { "    (rate limiting disabled)" };
            let _ = writeln!(
                out,
                "{name:<16}  {:>4}       {:>4}       {:>4}{unlimited}",
                level(Destination::Console),
                level(Destination::Syslog),
                level(Destination::File),
            );
        }
        out
    }

    /// `vlog/list-pattern`.
    pub fn list_pattern(&self) -> String {
        let mut out = String::from(
            "         prefix                            format\n         ------                            ------\n",
        );
        let state = self.0.lock();
        for destination in Destination::ALL {
            let prefix = if destination == Destination::Syslog { state.syslog.prefix() } else { "none" };
            let pattern = &state.patterns[destination as usize];
            let _ = writeln!(out, "{:<7}  {prefix:<32}  {pattern}", destination.name());
        }
        out
    }

    /// `vlog/enable-rate-limit` and `vlog/disable-rate-limit`: whether messages of these modules, or of all if none is
    /// named, are limited.
    ///
    /// # Errors
    /// If a module is not known; those before it are done.
    pub fn honour_rate_limits(&self, names: &[&str], honour: bool) -> Result<(), String> {
        let names = if names.is_empty() { &["any"] } else { names };
        let mut state = self.0.lock();
        for name in names {
            if name.eq_ignore_ascii_case("any") {
                state.modules.iter_mut().for_each(|module| module.honours_rate_limits = honour);
                continue;
            }
            match modules::named(name) {
                Some(Selected::Module(module)) => state.modules[module].honours_rate_limits = honour,
                Some(Selected::Silent) => {}
                None => return Err("unknown module".into()),
            }
        }
        Ok(())
    }

    /// Writes a message that ends the process: nothing hides it but a level OFF.
    pub fn emergency(&self, target: &str, text: &str) {
        self.write(target, Level::Emer, text);
    }

    /// Turns the console off: nobody sees it any more.
    pub fn leave_console(&self) {
        self.0.lock().set_levels(None, Some(Destination::Console), Level::Off);
        tracing::callsite::rebuild_interest_cache();
    }

    /// Whether a destination takes messages of this level.
    pub(crate) fn takes(&self, target: &str, level: Level) -> bool {
        let state = self.0.lock();
        state.greatest_level_of(&state.modules[modules::of_target(target)]) >= level
    }

    /// The greatest level that any destination takes.
    pub(crate) fn greatest_level(&self) -> Level {
        let state = self.0.lock();
        state.modules.iter().map(|module| state.greatest_level_of(module)).max().unwrap_or(Level::Off)
    }

    /// Writes a message.
    pub(crate) fn write(&self, target: &str, level: Level, text: &str) {
        self.0.lock().write(modules::of_target(target), level, text);
    }

    /// Writes a message unless its place in the source has used up its limit.
    pub(crate) fn write_limited(&self, place: &Identifier, limit: u32, target: &str, level: Level, text: &str) {
        let module = modules::of_target(target);
        let mut state = self.0.lock();
        if state.modules[module].honours_rate_limits {
            let now_ms = sluice_clock::now_ms();
            let bucket = state.limits.entry(place.clone()).or_insert_with(|| RateLimit::new(limit, now_ms));
            match bucket.decide(now_ms) {
                Decision::Drop => return,
                Decision::Write { summary: None } => {}
                Decision::Write { summary: Some(summary) } => state.write(module, level, &summary),
            }
        }
        state.write(module, level, text);
    }
}

impl LogState {
    fn set_levels(&mut self, module: Option<usize>, destination: Option<Destination>, level: Level) {
        let chosen = self.modules.iter_mut().enumerate().filter(|(i, _)| module.is_none_or(|only| only == *i));
        for (_, module) in chosen {
            match destination {
                Some(destination) => module.levels[destination as usize] = level,
                None => module.levels = [level; 3],
            }
        }
    }

    /// A file that is not open takes nothing.
    fn greatest_level_of(&self, module: &ModuleState) -> Level {
        let open = Destination::ALL.into_iter().filter(|one| *one != Destination::File || self.file.is_some());
        open.map(|one| module.levels[one as usize]).max().unwrap_or(Level::Off)
    }

    fn write(&mut self, module: usize, level: Level, text: &str) {
        let levels = self.modules[module].levels;
        let takes = |destination: Destination| levels[destination as usize] >= level;
        if self.greatest_level_of(&self.modules[module]) < level {
            return;
        }
        self.written += 1;
        let thread = std::thread::current();
        let message = Message {
            program: &self.program,
            number: self.written,
            module: modules::names()[module],
            level: level.name(),
            priority: self.facility.unwrap_or(LOCAL0) * 8 + level.syslog_severity(),
            time: jiff::Timestamp::now(),
            program_start: self.program_start,
            thread: thread_label(thread.name()),
            text,
        };
        let line = |destination: Destination| pattern::format(&self.patterns[destination as usize], &message);
        if takes(Destination::Console) {
            let line = line(Destination::Console);
            let line = if self.is_journal { console::for_journal(level.journal_severity(), &line) } else { line };
            console::write_error_line(&line);
        }
        if takes(Destination::File)
            && let Some(file) = &mut self.file
        {
            file.write(&line(Destination::File));
        }
        if takes(Destination::Syslog) {
            let priority = self.facility.unwrap_or(DAEMON) * 8 + level.syslog_severity();
            let ident = pattern::format("%d{%h %e %T} %A[%P]: ", &message);
            line(Destination::Syslog).lines().for_each(|line| self.syslog.send(priority, &ident, line));
            if let Some(target) = &self.syslog_target {
                let _ = target.send(pattern::format(RFC_5424, &message).as_bytes());
            }
        }
    }
}

/// What a line says about its thread. Commands and OpenFlow connections have threads of their own here; in Open vSwitch
/// they are the main thread's, whose lines name none.
fn thread_label(name: Option<&str>) -> &str {
    match name {
        None | Some("main" | "ctl" | "ctl-conn" | "signals" | "openflow" | "openflow-conn" | "controller") => "",
        Some(name) => name,
    }
}

#[cfg(test)]
mod tests;
