//! The log: to standard error, in `vlog`'s format, with levels that `vlog/set` changes while the switch runs.
//!
//! `2026-01-31T12:00:00.000Z|00001|switch|INFO|text`. A module is a crate of the switch, or a part of this one.

use crate::clock::date_and_time;
use parking_lot::Mutex;
use std::fmt::{self, Write as _};
use std::iter::repeat;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use time::OffsetDateTime;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Registry, reload};

/// A module of the log.
struct LogModule {
    /// Its name in the log and in `vlog/set`.
    name: &'static str,
    /// The targets that its messages come from.
    targets: &'static [&'static str],
    /// Other names that `vlog/set` takes for it.
    aliases: &'static [&'static str],
}

/// The modules, by name.
const MODULES: &[LogModule] = &[
    LogModule { name: "command", targets: &["sluice::command"], aliases: &[] },
    LogModule { name: "connmgr", targets: &["sluice_connmgr"], aliases: &["openflow"] },
    LogModule { name: "ctl", targets: &["sluice_unixctl"], aliases: &[] },
    LogModule { name: "sluice", targets: &["sluice"], aliases: &[] },
    LogModule { name: "switch", targets: &["sluice_vswitch"], aliases: &["vswitch"] },
];

/// Modules that were listed once but log nothing: `vlog/set` still takes their names.
const SILENT: &[&str] = &["datapath", "flow_cache", "mem", "ofproto", "port", "privileges"];

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
struct LogState {
    levels: Vec<usize>,
    filter: reload::Handle<Targets, Registry>,
}

static STATE: OnceLock<Mutex<LogState>> = OnceLock::new();

/// Starts logging. Later calls do nothing.
pub fn start() {
    let info = LEVELS.iter().position(|(name, _)| *name == "info").expect("invariant: vlog has the level info");
    let levels = vec![info; MODULES.len()];
    let (filter, handle) = reload::Layer::new(filter_of(&levels));
    let console = tracing_subscriber::fmt::layer().event_format(Vlog::default()).with_writer(std::io::stderr);
    let subscriber = tracing_subscriber::registry().with(filter).with(console);
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        let _ = STATE.set(Mutex::new(LogState { levels, filter: handle }));
    }
}

fn filter_of(levels: &[usize]) -> Targets {
    // What is in no module (another crate's warnings, say) is shown from INFO on, as nobody can ask for more.
    let targets = MODULES.iter().zip(levels).flat_map(|(module, level)| module.targets.iter().zip(repeat(level)));
    let filter = Targets::new().with_default(LevelFilter::INFO);
    targets.fold(filter, |filter, (target, level)| filter.with_target(*target, LEVELS[*level].1))
}

/// The module that a message of `target` belongs to: the one that names the longest part of its path.
fn module_of(target: &str) -> &'static str {
    let covers = |own: &str| target.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    let targets = MODULES.iter().flat_map(|module| module.targets.iter().map(|own| (own, module.name)));
    let longest = targets.filter(|(own, _)| covers(own)).max_by_key(|(own, _)| own.len());
    longest.map_or("sluice", |(_, name)| name)
}

/// What a name in `vlog/set` selects: a module by its place in [`MODULES`], or one that logs nothing.
fn module_named(name: &str) -> Option<Option<usize>> {
    let found = MODULES.iter().position(|module| module.name == name || module.aliases.contains(&name));
    if found.is_some() || SILENT.contains(&name) { Some(found) } else { None }
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
        } else if let Some(selected) = module_named(word) {
            once(&mut module, selected, "modules")?;
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
    let mut state = state.lock();
    match module {
        Some(Some(at)) => state.levels[at] = level,
        Some(None) => return Ok(()),
        None => state.levels.fill(level),
    }
    let filter = filter_of(&state.levels);
    state.filter.reload(filter).map_err(|e| format!("the log has ended: {e}"))
}

fn once<T>(place: &mut Option<T>, value: T, what: &str) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("cannot specify multiple {what}")),
    }
}

/// `vlog/list`.
pub fn list() -> String {
    let mut out =
        String::from("                 console    syslog    file\n                 -------    ------    ------\n");
    let state = STATE.get().map(Mutex::lock);
    for (i, LogModule { name, .. }) in MODULES.iter().enumerate() {
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
        write!(writer, "{}|{sequence:05}|{module}|{level}|", date_and_time(OffsetDateTime::now_utc()))?;
        ctx.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn levels_change_by_module_and_for_all() {
        start();
        set("ctl:dbg").unwrap();
        assert!(list().contains("\nctl                DBG        OFF        OFF\n"), "{}", list());
        assert!(list().contains("\nswitch            INFO        OFF        OFF\n"), "{}", list());
        set("ANY:console:warn").unwrap();
        assert!(list().contains("\nswitch            WARN        OFF        OFF\n"), "{}", list());
        set("openflow:dbg").unwrap();
        assert!(list().contains("\nconnmgr            DBG        OFF        OFF\n"), "{}", list());
        let before = list();
        SILENT.iter().for_each(|name| set(&format!("{name}:dbg")).unwrap());
        assert_eq!(list(), before);
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
        assert_eq!(module_of("sluice_connmgr::connection"), "connmgr");
        assert_eq!(module_of("sluice_vswitch::ports"), "switch");
        assert_eq!(module_of("sluice_unixctl::server"), "ctl");
        assert_eq!(module_of("sluice::run"), "sluice");
        assert_eq!(module_of("elsewhere"), "sluice");
    }

    /// The targets of all messages in the sources of the workspace.
    fn targets() -> Vec<String> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut files = Vec::new();
        let mut directories = vec![crates.to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { directories.push(path) } else { files.push(path) }
            }
        }
        let macros = ["error!", "warn!", "info!", "debug!"].map(|name| format!("tracing::{name}"));
        let is_logging = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            path.extension().is_some_and(|e| e == "rs") && macros.iter().any(|name| text.contains(name))
        };
        let logging = files.iter().filter(|path| is_logging(path));
        logging.map(|path| target(path.strip_prefix(crates).unwrap())).collect()
    }

    /// The target of a file such as `port/src/tap/mod.rs`.
    fn target(path: &Path) -> String {
        let mut parts: Vec<_> = path.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        parts.remove(1);
        parts[0] = match parts[0].as_str() {
            "sluice" => "sluice".into(),
            name => format!("sluice_{}", name.replace('-', "_")),
        };
        parts.retain(|part| !["mod", "lib", "main"].contains(&part.as_str()));
        parts.join("::")
    }

    #[test]
    fn every_message_has_a_module_and_every_module_messages() {
        let targets = targets();
        let debug = LEVELS.iter().position(|(name, _)| *name == "dbg").unwrap();
        let filter = filter_of(&[debug; MODULES.len()]);
        let hidden = targets.iter().filter(|target| !filter.would_enable(target, &Level::DEBUG));
        assert_eq!(hidden.collect::<Vec<_>>(), Vec::<&String>::new(), "messages that no module shows");
        let silent = MODULES.iter().filter(|module| !targets.iter().any(|target| module_of(target) == module.name));
        assert_eq!(
            silent.map(|module| module.name).collect::<Vec<_>>(),
            Vec::<&str>::new(),
            "modules without messages"
        );
    }
}
