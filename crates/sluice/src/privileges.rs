//! Leaving root: the switch runs as an ordinary user with exactly the capabilities that it still needs.
//!
//! This comes after ports are open and before the switch's own threads are started, which inherit what is left. Threads
//! that ports have started already (vhost-user, DPDK) become the same user and keep no capability.

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::thread::{CapabilitySet, CapabilitySets};
use sluice_daemon::account::Account;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
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
pub fn user() -> (u32, u32) {
    let variable = |name: &str| std::env::var(name).ok().and_then(|id| id.parse().ok()).filter(|id| *id != 0);
    (variable("SUDO_UID").unwrap_or(NOBODY), variable("SUDO_GID").unwrap_or(NOBODY))
}

/// Gives `rundir` to the user that [`leave_root`] will become, so that sockets in it can be made and removed. Only root
/// does so.
///
/// # Errors
/// If the directory holds anything but sockets, or is not root's.
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
    // It takes a capability that is about to go.
    limit_bounding_set(kept).context("reducing the capability bounding set")?;
    rustix::thread::set_keep_capabilities(true).context("keeping capabilities")?;
    // This changes the user of every thread; only this thread keeps its capabilities.
    sluice_port::become_user(uid, gid).with_context(|| format!("becoming user {uid}"))?;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).context("dropping capabilities")?;
    rustix::thread::set_no_new_privs(true).context("giving up new privileges")?;
    Ok(Left { uid, kept })
}

/// Makes sure that no program that the switch might execute gets a capability that the switch has given up.
fn limit_bounding_set(kept: CapabilitySet) -> rustix::io::Result<()> {
    for capability in CapabilitySet::all().difference(kept) {
        // An older kernel does not know all of them.
        if rustix::thread::capability_is_in_bounding_set(capability).unwrap_or(false) {
            rustix::thread::remove_capability_from_bounding_set(capability)?;
        }
    }
    Ok(())
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
///
/// All steps are taken on one descriptor: what the path names may change meanwhile.
fn give(rundir: &Path, uid: u32, gid: u32) -> Result<()> {
    let context = || format!("rundir {}", rundir.display());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(rundir, flags, Mode::empty()).with_context(context)?;
    let found = rustix::fs::fstat(&dir).with_context(context)?;
    if found.st_uid == uid || found.st_mode & 0o002 != 0 {
        return Ok(());
    }
    let home = std::env::var_os("HOME").and_then(|home| std::fs::metadata(home).ok());
    let is_home = home.is_some_and(|home| (home.dev(), home.ino()) == (found.st_dev, found.st_ino));
    anyhow::ensure!(
        found.st_uid == 0 && !is_home && holds_only_sockets(&dir).with_context(context)?,
        "rundir {}: expected a directory that can be given to user {uid}: one that does not exist yet, or one of \
         root's that holds nothing but sockets; set switch.rundir to such a directory, for example /run/sluice",
        rundir.display()
    );
    let owner = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
    rustix::fs::fchown(&dir, Some(owner.0), Some(owner.1)).with_context(context)
}

fn holds_only_sockets(dir: &OwnedFd) -> Result<bool> {
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let found = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
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
        let opened = || OwnedFd::from(std::fs::File::open(dir.path()).unwrap());
        let socket = dir.path().join("sluice.ctl");
        let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(holds_only_sockets(&opened()).unwrap());
        // A link to a socket is not a socket.
        std::os::unix::fs::symlink(&socket, dir.path().join("link")).unwrap();
        assert!(!holds_only_sockets(&opened()).unwrap());
        std::fs::remove_file(dir.path().join("link")).unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(!holds_only_sockets(&opened()).unwrap());
    }

    #[test]
    fn what_was_kept_is_named() {
        let left = Left { uid: 65534, kept: CapabilitySet::NET_ADMIN | CapabilitySet::BPF };
        assert_eq!(left.to_string(), "running as user 65534, capabilities kept: net_admin, bpf");
        let left = Left { uid: 7, kept: CapabilitySet::empty() };
        assert_eq!(left.to_string(), "running as user 7, capabilities kept: none");
    }
}
