//! Leaving root: the switch runs as an ordinary user with exactly the capabilities that it still needs.
//!
//! This comes after ports are open and before the switch's own threads are started, which inherit what is left. Threads
//! that ports have started already (vhost-user, DPDK) become the same user and keep no capability.

use anyhow::{Context, Result};
use rustix::thread::{CapabilitySet, CapabilitySets};
use sluice_daemon::account::Account;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The user to become if sudo names none. Source: Linux's overflow user, "nobody".
const NOBODY: u32 = 65534;

/// What was done, for the log.
#[derive(Debug)]
pub struct Left {
    /// The user now.
    pub uid: u32,
    /// What was kept.
    pub kept: CapabilitySet,
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.kept.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect();
        let kept = if names.is_empty() { "none".into() } else { names.join(", ") };
        write!(f, "running as user {}, capabilities kept: {kept}", self.uid)
    }
}

/// The user and group to become: `$SUDO_UID` and `$SUDO_GID`, or nobody.
fn user() -> (u32, u32) {
    let variable = |name: &str| std::env::var(name).ok().and_then(|id| id.parse().ok()).filter(|id| *id != 0);
    (variable("SUDO_UID").unwrap_or(NOBODY), variable("SUDO_GID").unwrap_or(NOBODY))
}

/// Gives `rundir` to the user that [`leave_root`] will become, so that sockets in it can be made and removed. Only root
/// does so.
///
/// # Errors
/// If the directory is neither private to root nor holds only sockets.
pub fn give_rundir(rundir: &Path) -> Result<()> {
    let (uid, gid) = user();
    if rustix::process::geteuid().is_root() { give(rundir, uid, gid) } else { Ok(()) }
}

/// Leaves root, if this is root: becomes an ordinary user and keeps what ports of `kinds` need.
///
/// Files that are read later (configuration and rules, on command) must be readable to that user.
///
/// # Errors
/// If the system refuses a step; what was done until then stays done.
pub fn leave_root<'a>(kinds: impl Iterator<Item = &'a str>) -> Result<Option<Left>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let (uid, gid) = user();
    let wanted = kinds.fold(CapabilitySet::empty(), |set, kind| set.union(of_port_type(kind)));
    become_user(uid, gid, wanted).map(Some)
}

/// Becomes the user of `--user` and keeps what ports need that the database may ask for at any time: those of every
/// type, and low TCP ports. `raw_io` is for drivers that access devices directly.
///
/// # Errors
/// If the system refuses a step; what was done until then stays done.
pub fn become_account(account: Account, raw_io: bool) -> Result<Left> {
    let ports = sluice_port::PORT_TYPES.iter().fold(CapabilitySet::empty(), |set, kind| set | of_port_type(kind.name));
    let raw_io = if raw_io { CapabilitySet::SYS_RAWIO } else { CapabilitySet::empty() };
    let wanted = ports | raw_io | CapabilitySet::NET_BIND_SERVICE | CapabilitySet::IPC_LOCK;
    become_user(account.uid, account.gid, wanted)
}

fn become_user(uid: u32, gid: u32, wanted: CapabilitySet) -> Result<Left> {
    let own = rustix::thread::capabilities(None).context("capabilities")?.permitted;
    let kept = own.intersection(wanted);
    rustix::thread::set_keep_capabilities(true).context("keeping capabilities")?;
    // This changes the user of every thread; only this thread keeps its capabilities.
    sluice_port::become_user(uid, gid).with_context(|| format!("becoming user {uid}"))?;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).context("dropping capabilities")?;
    rustix::thread::set_no_new_privs(true).context("giving up new privileges")?;
    Ok(Left { uid, kept })
}

/// Why a file cannot be read. Files of root cannot be read once root was left.
pub fn cannot_read(error: &std::io::Error) -> String {
    let uid = rustix::process::geteuid().as_raw();
    let advice = match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            format!("; the switch runs as user {uid}: let that user read it (chmod, chgrp), or restart the switch")
        }
        std::io::ErrorKind::InvalidData => return "cannot be read: expected text in UTF-8".into(),
        _ => String::new(),
    };
    format!("cannot be read: {error}{advice}")
}

/// The capabilities that it takes to open a port of a type again.
fn of_port_type(kind: &str) -> CapabilitySet {
    let kind = sluice_port::PORT_TYPES.iter().find(|known| known.name == kind);
    let names = kind.map_or(&[][..], |kind| kind.capabilities);
    names.iter().filter_map(|name| CapabilitySet::from_name(name)).collect()
}

/// Gives the directory to the user, unless the user may make files in it already, as after an earlier run.
fn give(rundir: &Path, uid: u32, gid: u32) -> Result<()> {
    let context = || format!("rundir {}", rundir.display());
    let dir = rundir.canonicalize().with_context(context)?;
    let found = std::fs::metadata(&dir).with_context(context)?;
    if found.uid() == uid || found.mode() & 0o002 != 0 {
        return Ok(());
    }
    let is_home = std::env::var_os("HOME").is_some_and(|home| Path::new(&home) == dir);
    let is_private = found.mode() & 0o777 == 0o700;
    anyhow::ensure!(
        found.uid() == 0 && !is_home && (is_private || holds_only_sockets(&dir).with_context(context)?),
        "rundir {}: expected a directory that can be given to user {uid}: one that does not exist yet, or one of \
         root's that has mode 0700 or holds only sockets; set switch.rundir to such a directory, for example /run/sluice",
        rundir.display()
    );
    std::os::unix::fs::chown(&dir, Some(uid), Some(gid)).with_context(context)
}

fn holds_only_sockets(dir: &Path) -> std::io::Result<bool> {
    for entry in std::fs::read_dir(dir)? {
        if !entry?.file_type()?.is_socket() {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_types_need_what_their_sockets_need() {
        assert_eq!(of_port_type("tap"), CapabilitySet::NET_ADMIN);
        assert_eq!(of_port_type("null"), CapabilitySet::empty());
        assert!(of_port_type("af_xdp").contains(CapabilitySet::BPF));
        for kind in sluice_port::PORT_TYPES {
            assert_eq!(of_port_type(kind.name).iter_names().count(), kind.capabilities.len(), "{}", kind.name);
        }
    }

    #[test]
    fn only_a_directory_of_the_switchs_own_is_given() {
        let dir = tempfile::tempdir().unwrap();
        let (me, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        give(dir.path(), me, group).unwrap();
        assert!(give(&dir.path().join("none"), me, group).is_err());
        // Root's, readable to all, and full of other things.
        let error = give(Path::new("/usr"), 12345, 12345).unwrap_err().to_string();
        assert!(error.starts_with("rundir /usr: expected ") && error.contains("user 12345"), "{error}");
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("sluice.ctl")).unwrap();
        assert!(holds_only_sockets(dir.path()).unwrap());
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(!holds_only_sockets(dir.path()).unwrap());
    }

    #[test]
    fn what_was_kept_is_named() {
        let left = Left { uid: 65534, kept: CapabilitySet::NET_ADMIN | CapabilitySet::BPF };
        assert_eq!(left.to_string(), "running as user 65534, capabilities kept: net_admin, bpf");
        let left = Left { uid: 7, kept: CapabilitySet::empty() };
        assert_eq!(left.to_string(), "running as user 7, capabilities kept: none");
    }
}
