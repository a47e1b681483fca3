//! Rules, groups and meters that outlast the process, if `keep-tables` is set: an orderly end writes them into the
//! directory of the sockets, and the next start reads them instead of the configuration's files. So a restart, also one
//! with another version of the program, forwards as before. A start after a crash finds nothing there, nor does one after
//! a reboot if the directory is under `/run`.

use anyhow::{Context, Result};
use sluice_vswitch::{Source, Sources, Switch};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Holds them in the directory of the sockets.
const DIRECTORY: &str = "tables";

/// Takes its place when all is written.
const UNFINISHED: &str = "tables.new";

/// The file that says how the others are written.
const VERSION_FILE: &str = "version";

/// How this program writes them, and the only way that it reads. What was written before there was the file is version 1,
/// too. A program that writes what this one cannot read has another number.
const VERSION: &str = "1";

/// Writes the tables of all bridges.
///
/// # Errors
/// If a file cannot be written: then the next start finds none.
pub fn save(switch: &Switch, rundir: &Path) -> Result<()> {
    let unfinished = rundir.join(UNFINISHED);
    remove(&unfinished)?;
    fs::create_dir(&unfinished).with_context(|| unfinished.display().to_string())?;
    fs::write(unfinished.join(VERSION_FILE), format!("{VERSION}\n")).context(VERSION_FILE)?;
    for bridge in switch.ofproto().bridges() {
        let Sources { meters, groups, rules, .. } = switch.tables(&bridge.name)?;
        for (kind, source) in [("meters", meters), ("groups", groups), ("flows", rules)] {
            let file = file_of(&unfinished, &bridge.name, kind);
            let text = source.map(|source| source.text).unwrap_or_default();
            fs::write(&file, &*text).with_context(|| file.display().to_string())?;
        }
    }
    fs::rename(&unfinished, rundir.join(DIRECTORY)).context("tables")
}

/// Gives the bridges the tables that the process before had written, and removes the files. A bridge whose tables are
/// refused keeps those of the configuration, and its files stay in `tables.new` until the next end; so do those of a program
/// that writes them in another way.
///
/// # Errors
/// If the files cannot be read or removed.
pub fn restore(switch: &Switch, rundir: &Path) -> Result<()> {
    let (kept, unfinished) = (rundir.join(DIRECTORY), rundir.join(UNFINISHED));
    remove(&unfinished)?;
    // A start that fails from here on finds them no more: if they are the reason, the next one comes up.
    match fs::rename(&kept, &unfinished) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        result => result.with_context(|| kept.display().to_string())?,
    }
    let version = read_version(&unfinished)?;
    if version != VERSION {
        let refusal = "tables of before the restart are not read";
        tracing::error!("{refusal}: they are of version {version}, and this program reads version {VERSION}");
        return Ok(());
    }
    let mut is_refused = false;
    for bridge in switch.ofproto().bridges() {
        let Some(tables) = read(&unfinished, &bridge.name)? else { continue };
        match switch.restore_tables(&bridge.name, &tables) {
            Ok(()) => tracing::info!("bridge {}: has the rules, groups and meters of before the restart", bridge.name),
            Err(error) => {
                is_refused = true;
                tracing::error!("bridge {}: does not get the tables of before the restart: {error}", bridge.name);
            }
        }
    }
    if is_refused { Ok(()) } else { remove(&unfinished) }
}

/// Removes what an earlier process has written.
///
/// # Errors
/// If it cannot be removed.
pub fn forget(rundir: &Path) -> Result<()> {
    remove(&rundir.join(DIRECTORY))
}

/// How the files in a directory are written.
fn read_version(directory: &Path) -> Result<String> {
    match fs::read_to_string(directory.join(VERSION_FILE)) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(VERSION.to_owned()),
        Err(error) => Err(error).context(VERSION_FILE),
    }
}

/// What was written of a bridge; nothing if it was not there.
fn read(directory: &Path, bridge: &str) -> Result<Option<Sources>> {
    let source = |kind| -> Result<Option<Source>> {
        let file = file_of(directory, bridge, kind);
        match fs::read_to_string(&file) {
            Ok(text) => Ok(Some(Source::new(file.display().to_string(), text))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| file.display().to_string()),
        }
    };
    let Some(rules) = source("flows")? else { return Ok(None) };
    Ok(Some(Sources { meters: source("meters")?, groups: source("groups")?, rules: Some(rules), keeps_rules: false }))
}

fn file_of(directory: &Path, bridge: &str, kind: &str) -> PathBuf {
    directory.join(format!("{bridge}.{kind}"))
}

fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.with_context(|| directory.display().to_string()),
    }
}
