//! What is wrong with a configuration, in one line: file, line, key, what was expected.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Why a configuration was refused.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigError {
    file: PathBuf,
    /// From 1; `None` if the file could not be read.
    line: Option<usize>,
    /// Such as `bridge[0].port[1].type`; empty if no key is to blame.
    key: String,
    message: String,
}

impl ConfigError {
    /// The file could not be read.
    pub fn unreadable(file: &Path, error: &std::io::Error) -> Self {
        ConfigError {
            file: file.into(),
            line: None,
            key: String::new(),
            message: crate::privileges::cannot_read(error),
        }
    }

    /// TOML or serde refused it.
    pub fn of_toml(file: &Path, text: &str, error: &toml::de::Error) -> Self {
        let span = error.span().unwrap_or(0..0);
        let key = path_at(text, &span).unwrap_or_default();
        // serde's message is one line, but what it quotes may not be.
        let message = error.message().lines().map(str::trim).collect::<Vec<_>>().join(" ");
        let message = in_words_of_toml(&message);
        ConfigError { file: file.into(), line: Some(line_of(text, span.start)), key, message }
    }

    /// A value this build or another key does not allow.
    pub fn of_key(file: &Path, text: &str, key: &str, message: &str) -> Self {
        let at = offset_of(text, key);
        ConfigError {
            file: file.into(),
            line: at.map(|at| line_of(text, at)),
            key: key.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for ConfigError {}

/// What serde expects, and how that is written in a file.
const EXPECTED: [(&str, &str); 10] = [
    ("a sequence", "a list in brackets"),
    ("a map", "a table in braces, as in { mac = \"02:00:00:00:00:01\" }"),
    ("a string", "a text in quotes"),
    ("a borrowed string", "a text in quotes"),
    ("a boolean", "true or false"),
    ("path string", "a path in quotes, as in \"/run/sluice\""),
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("usize", "a whole number"),
];

/// serde's message without the names of Rust's types.
fn in_words_of_toml(message: &str) -> String {
    if message.starts_with("missing field ") {
        return format!("{message}; `sluice run --help-config` explains each key");
    }
    let Some((before, expected)) = message.rsplit_once("expected ") else { return message.to_owned() };
    let known = EXPECTED.iter().find(|(name, _)| *name == expected);
    let example = match (expected, quoted(before)) {
        ("a sequence", Some(value)) => format!(", as in [{value}]"),
        ("a string" | "a borrowed string", Some(value)) => format!(", as in \"{value}\""),
        _ => String::new(),
    };
    known.map_or_else(|| message.to_owned(), |(_, words)| format!("{before}expected {words}{example}"))
}

/// The value that serde quotes, as a file has it: what stands between backticks, or a text with its quotes.
fn quoted(message: &str) -> Option<&str> {
    let (start, end) = (message.find(['`', '"'])?, message.rfind(['`', '"'])?);
    (start < end).then(|| message[start..=end].trim_matches('`'))
}

/// The line, from 1, that byte `at` is on.
fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1
}

/// The path of the innermost key or value that holds `span`.
fn path_at(text: &str, span: &Range<usize>) -> Option<String> {
    let (root, _) = DeTable::parse_recoverable(text);
    path_in_table(root.get_ref(), span)
}

fn path_in_table(table: &DeTable<'_>, span: &Range<usize>) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        if holds(&key.span(), span) {
            return Some(key.get_ref().to_string());
        }
        let inner = path_in_value(value.get_ref(), span);
        match inner {
            Some(inner) if inner.starts_with('[') || inner.is_empty() => Some(format!("{}{inner}", key.get_ref())),
            Some(inner) => Some(format!("{}.{inner}", key.get_ref())),
            None => holds(&value.span(), span).then(|| key.get_ref().to_string()),
        }
    })
}

fn path_in_value(value: &DeValue<'_>, span: &Range<usize>) -> Option<String> {
    match value {
        DeValue::Table(table) => path_in_table(table, span),
        DeValue::Array(array) => {
            array.iter().enumerate().find_map(|(i, item)| match path_in_value(item.get_ref(), span) {
                Some(inner) if inner.is_empty() || inner.starts_with('[') => Some(format!("[{i}]{inner}")),
                Some(inner) => Some(format!("[{i}].{inner}")),
                None => holds(&item.span(), span).then(|| format!("[{i}]")),
            })
        }
        _ => None,
    }
}

fn holds(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end && !outer.is_empty()
}

/// Where the key of that path is written; of its nearest parent if it is not written itself.
fn offset_of(text: &str, path: &str) -> Option<usize> {
    let (root, _) = DeTable::parse_recoverable(text);
    let mut at = None;
    let mut table = root.get_ref();
    for step in path.split('.') {
        let (name, index) = match step.split_once('[') {
            Some((name, index)) => (name, index.trim_end_matches(']').parse::<usize>().ok()),
            None => (step, None),
        };
        let Some((key, value)) = table.get_key_value(name) else { break };
        at = Some(key.span().start);
        let mut value = value.get_ref();
        if let Some(index) = index
            && let Some(item) = value.as_array().and_then(|array| array.get(index))
        {
            at = Some(item.span().start);
            value = item.get_ref();
        }
        let Some(inner) = value.as_table() else { break };
        table = inner;
    }
    at
}
