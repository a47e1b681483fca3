//! Results as files: records as JSON, and what is rendered from them.

use crate::record::Record;
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;

/// Writes a file whole or not at all: an interrupted run, or a full disk, leaves the one before.
///
/// # Errors
/// If it cannot be written.
pub fn put(path: &Path, text: &str) -> Result<()> {
    let fresh = path.with_extension("new");
    let written = std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, path));
    if written.is_err() {
        // A part of a file is useless and takes room.
        let _ = std::fs::remove_file(&fresh);
    }
    written.with_context(|| format!("{}: cannot be written", path.display()))
}

/// Writes a record, or the state of one under way, as JSON on one line: records are kept in git, and programs read
/// them.
///
/// # Errors
/// If it cannot be written.
pub fn put_json(path: &Path, record: &impl Serialize) -> Result<()> {
    put(path, &serde_json::to_string(record)?)
}

/// Makes a directory for results, if there is none, and sees that files can be written there: before hours of
/// measuring.
///
/// # Errors
/// If not.
pub fn make_dir(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("{}: cannot be made", dir.display()))?;
    let probe = dir.join("probe");
    put(&probe, "can this directory be written to?\n")?;
    std::fs::remove_file(&probe).with_context(|| format!("{}: cannot be removed", probe.display()))
}

/// The record in a file; `None` if there is no such file.
///
/// # Errors
/// If it cannot be read, or is no record.
pub fn read(path: &Path) -> Result<Option<Record>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("{}: cannot be read", path.display())),
    };
    let record = serde_json::from_str(&text);
    record.map(Some).with_context(|| format!("{}: expected a record of this version; remove it", path.display()))
}
