//! What `-v` and `vlog/set` say.

use crate::levels::{Destination, Level};
use crate::modules::{self, Selected};

/// Facilities of the system's log. Source: ovs-vswitchd(8), `-vFACILITY`.
const FACILITIES: &[(&str, u32)] = &[
    ("kern", 0),
    ("user", 1),
    ("mail", 2),
    ("daemon", 3),
    ("auth", 4),
    ("syslog", 5),
    ("lpr", 6),
    ("news", 7),
    ("uucp", 8),
    ("clock", 9),
    ("ftp", 11),
    ("ntp", 12),
    ("audit", 13),
    ("alert", 14),
    ("clock2", 15),
    ("local0", 16),
    ("local1", 17),
    ("local2", 18),
    ("local3", 19),
    ("local4", 20),
    ("local5", 21),
    ("local6", 22),
    ("local7", 23),
];

/// What separates the words.
const SEPARATORS: [char; 4] = [' ', ',', ':', '\t'];

/// A change of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spec {
    /// The level of a module, or of all, at a destination, or at all.
    Level { module: Option<Selected>, destination: Option<Destination>, level: Level },
    /// What a line looks like at a destination, or at all.
    Pattern { destination: Option<Destination>, pattern: String },
    /// The facility of messages in the system's log.
    Facility(u32),
}

impl Spec {
    /// Reads `[MODULE][:DESTINATION][:LEVEL]`, `PATTERN:DESTINATION:PATTERN` or `FACILITY:NAME`.
    ///
    /// # Errors
    /// With vlog's text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (word, rest) = first_word(text);
        if word.eq_ignore_ascii_case("pattern") {
            let (destination, pattern) = first_word(rest);
            let destination = match destination {
                "" => return Err("missing destination".into()),
                any if any.eq_ignore_ascii_case("any") => None,
                name => Some(Destination::named(name).ok_or_else(|| format!("unknown destination \"{name}\""))?),
            };
            return Ok(Spec::Pattern { destination, pattern: pattern.to_owned() });
        }
        if word.eq_ignore_ascii_case("facility") {
            let found = FACILITIES.iter().find(|(name, _)| name.eq_ignore_ascii_case(rest));
            return found.map(|(_, number)| Spec::Facility(*number)).ok_or_else(|| "invalid facility".into());
        }
        Self::parse_level(text)
    }

    fn parse_level(text: &str) -> Result<Self, String> {
        let (mut module, mut destination, mut level) = (None, None, None);
        let words = text.split(SEPARATORS).filter(|word| !word.is_empty() && !word.eq_ignore_ascii_case("any"));
        for word in words {
            if let Some(named) = Destination::named(word) {
                once(&mut destination, named, "destinations")?;
            } else if let Some(named) = Level::named(word) {
                once(&mut level, named, "levels")?;
            } else if let Some(named) = modules::named(word) {
                once(&mut module, named, "modules")?;
            } else {
                return Err(format!("no destination, level, or module \"{word}\""));
            }
        }
        Ok(Spec::Level { module, destination, level: level.unwrap_or(Level::Dbg) })
    }
}

/// The first word, and what stands behind the separator that ends it.
fn first_word(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches(SEPARATORS);
    text.split_once(SEPARATORS).unwrap_or((text, ""))
}

fn once<T>(place: &mut Option<T>, value: T, what: &str) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("cannot specify multiple {what}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(name: &str) -> Option<Selected> {
        Some(modules::named(name).unwrap())
    }

    #[test]
    fn words_may_come_in_any_order() {
        let dbg_of_file =
            Spec::Level { module: module("vconn"), destination: Some(Destination::File), level: Level::Dbg };
        for text in ["vconn:file:dbg", "dbg file vconn", "FILE,VCONN", "ANY:vconn:file"] {
            assert_eq!(Spec::parse(text), Ok(dbg_of_file.clone()), "{text}");
        }
        assert_eq!(Spec::parse(""), Ok(Spec::Level { module: None, destination: None, level: Level::Dbg }));
        assert_eq!(Spec::parse("info"), Ok(Spec::Level { module: None, destination: None, level: Level::Info }));
    }

    #[test]
    fn patterns_keep_their_separators() {
        let pattern = |destination, pattern: &str| Ok(Spec::Pattern { destination, pattern: pattern.into() });
        assert_eq!(Spec::parse("PATTERN:ANY:'%D{%H:%M} %m'"), pattern(None, "'%D{%H:%M} %m'"));
        assert_eq!(Spec::parse("pattern:console:"), pattern(Some(Destination::Console), ""));
        assert_eq!(Spec::parse("pattern file|%m"), Err("unknown destination \"file|%m\"".into()));
        assert_eq!(Spec::parse("pattern"), Err("missing destination".into()));
    }

    #[test]
    fn facilities_have_names() {
        assert_eq!(Spec::parse("FACILITY:local7"), Ok(Spec::Facility(23)));
        assert_eq!(Spec::parse("FACILITY:local8"), Err("invalid facility".into()));
    }

    #[test]
    fn what_does_not_exist_is_named() {
        assert_eq!(Spec::parse("nonsense:dbg"), Err("no destination, level, or module \"nonsense\"".into()));
        assert_eq!(Spec::parse("vconn:dbg:info"), Err("cannot specify multiple levels".into()));
        assert_eq!(Spec::parse("vconn:rconn:info"), Err("cannot specify multiple modules".into()));
        assert_eq!(Spec::parse("file:syslog"), Err("cannot specify multiple destinations".into()));
    }
}
