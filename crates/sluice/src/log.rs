//! The log: to standard error, in `vlog`'s format, with levels that `vlog/set` changes while the switch runs.
//!
//! `2026-01-31T12:00:00.000Z|00001|datapath|INFO|text`. A module is a crate of the switch, or a part of this one.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Registry, reload};

/// The modules, with the path that their messages come from.
const MODULES: &[(&str, &str)] = &[
    ("command", "sluice::command"),
    ("ctl", "sluice::ctl"),
    ("datapath", "sluice_datapath"),
    ("flow_cache", "sluice_flow_cache"),
    ("mem", "sluice_mem"),
    ("ofproto", "sluice_ofproto"),
    ("port", "sluice_port"),
    ("privileges", "sluice::privileges"),
    ("switch", "sluice::switch"),
];

/// vlog's names of the levels.
const LEVELS: &[(&str, LevelFilter)] = &[
    ("off", LevelFilter::OFF),
    // Nothing here is ever logged as an emergency.
    ("emer", LevelFilter::OFF),
    ("err", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("dbg", LevelFilter::DEBUG),
];

/// vlog's destinations; this switch logs to the console, that is standard error.
const DESTINATIONS: [&str; 3] = ["console", "syslog", "file"];

/// The level of each module, by index into [`LEVELS`], and the filter they make.
struct State {
    levels: Vec<usize>,
    filter: reload::Handle<Targets, Registry>,
}

static STATE: OnceLock<Mutex<State>> = OnceLock::new();

/// Starts logging. Later calls do nothing.
pub fn start() {
    let info = LEVELS.iter().position(|(name, _)| *name == "info").expect("invariant: vlog has the level info");
    let levels = vec![info; MODULES.len()];
    let (filter, handle) = reload::Layer::new(filter_of(&levels));
    let console = tracing_subscriber::fmt::layer().event_format(Vlog::default()).with_writer(std::io::stderr);
    let subscriber = tracing_subscriber::registry().with(filter).with(console);
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        let _ = STATE.set(Mutex::new(State { levels, filter: handle }));
    }
}

fn filter_of(levels: &[usize]) -> Targets {
    // What is in no module (another crate's warnings, say) is shown from INFO on, as nobody can ask for more.
    MODULES.iter().zip(levels).fold(Targets::new().with_default(LevelFilter::INFO), |filter, ((_, path), level)| {
        filter.with_target(*path, LEVELS[*level].1)
    })
}

/// The module that a message of `target` belongs to.
fn module_of(target: &str) -> &str {
    MODULES.iter().find(|(_, path)| target.starts_with(path)).map_or("sluice", |(name, _)| name)
}

/// `vlog/set SPEC`.
///
/// # Errors
/// With vlog's text, if the specification names what does not exist.
pub fn set(spec: &str) -> Result<(), String> {
    let (mut module, mut level, mut destination) = (None, None, None);
    for word in spec.split([' ', ',', ':', '\t']).filter(|w| !w.is_empty()) {
        let lower = word.to_ascii_lowercase();
        if lower == "any" {
        } else if lower == "pattern" || lower == "facility" {
            return Err(format!("this build has no {lower} to set"));
        } else if let Some(at) = DESTINATIONS.iter().position(|d| *d == lower) {
            once(&mut destination, at, "destinations")?;
        } else if let Some(at) = LEVELS.iter().position(|(name, _)| *name == lower) {
            once(&mut level, at, "levels")?;
        } else if let Some(at) = MODULES.iter().position(|(name, _)| *name == word) {
            once(&mut module, at, "modules")?;
        } else {
            return Err(format!("no destination, level, or module \"{word}\""));
        }
    }
    let level = level.unwrap_or(LEVELS.len() - 1);
    if let Some(at @ 1..) = destination
        && level != 0
    {
        return Err(format!("this build does not log to {}; expected console", DESTINATIONS[at]));
    }
    if matches!(destination, Some(1..)) {
        return Ok(());
    }
    let Some(state) = STATE.get() else { return Err("the log has not been started".into()) };
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    match module {
        Some(at) => state.levels[at] = level,
        None => state.levels.fill(level),
    }
    let filter = filter_of(&state.levels);
    state.filter.reload(filter).map_err(|e| format!("the log has ended: {e}"))
}

fn once(place: &mut Option<usize>, at: usize, what: &str) -> Result<(), String> {
    match place.replace(at) {
        None => Ok(()),
        Some(_) => Err(format!("cannot specify multiple {what}")),
    }
}

/// `vlog/list`.
pub fn list() -> String {
    let mut out =
        String::from("                 console    syslog    file\n                 -------    ------    ------\n");
    let state = STATE.get().map(|state| state.lock().unwrap_or_else(PoisonError::into_inner));
    for (i, (name, _)) in MODULES.iter().enumerate() {
        let level = state.as_ref().map_or("off", |state| LEVELS[state.levels[i]].0).to_ascii_uppercase();
        let _ = writeln!(out, "{name:<16}  {level:>4}       {:>4}       {:>4}", "OFF", "OFF");
    }
    out
}

/// vlog's line.
#[derive(Default)]
struct Vlog {
    /// Lines written.
    sequence: AtomicU64,
}

impl<S, N> FormatEvent<S, N> for Vlog
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, ctx: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let level = match *event.metadata().level() {
            Level::ERROR => "ERR",
            Level::WARN => "WARN",
            Level::INFO => "INFO",
            _ => "DBG",
        };
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let module = module_of(event.metadata().target());
        write!(writer, "{}|{sequence:05}|{module}|{level}|", crate::clock::WallTime::now())?;
        ctx.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_change_by_module_and_for_all() {
        start();
        set("ctl:dbg").unwrap();
        assert!(list().contains("\nctl                DBG        OFF        OFF\n"), "{}", list());
        assert!(list().contains("\nport              INFO        OFF        OFF\n"), "{}", list());
        set("ANY:console:warn").unwrap();
        assert!(list().contains("\nport              WARN        OFF        OFF\n"), "{}", list());
        set("info").unwrap();
    }

    #[test]
    fn what_does_not_exist_is_named() {
        assert_eq!(set("nonsense:dbg"), Err("no destination, level, or module \"nonsense\"".into()));
        assert_eq!(set("ctl:dbg:info"), Err("cannot specify multiple levels".into()));
        assert_eq!(set("ctl:port:info"), Err("cannot specify multiple modules".into()));
        assert!(set("syslog:dbg").is_err());
        assert_eq!(set("syslog:off"), Ok(()));
    }

    #[test]
    fn messages_belong_to_a_module() {
        assert_eq!(module_of("sluice_port::pcap"), "port");
        assert_eq!(module_of("sluice::ctl::server"), "ctl");
        assert_eq!(module_of("elsewhere"), "sluice");
    }
}
