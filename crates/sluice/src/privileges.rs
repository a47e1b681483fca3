//! Leaving root: the switch runs as an ordinary user with exactly the capabilities that it still needs.
//!
//! This comes after ports are open and before the switch's own threads are started, which inherit what is left. Threads
//! that ports have started already (vhost-user, DPDK) become the same user and keep no capability.

use anyhow::{Context, Result};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The user to become if nobody else asks for the switch. Source: Linux's overflow user, "nobody".
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

/// Leaves root, if this is root: becomes `$SUDO_UID` or nobody and keeps what ports of `kinds` need.
///
/// `rundir` is given to that user, so that the sockets in it can be made and removed, if it is the switch's own
/// (private to root). Files that are read later (configuration and rules, on command) must be readable to that user.
///
/// # Errors
/// If the system refuses a step; what was done until then stays done.
pub fn leave_root<'a>(rundir: &Path, kinds: impl Iterator<Item = &'a str>) -> Result<Option<Left>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let variable = |name: &str| std::env::var(name).ok().and_then(|id| id.parse().ok()).filter(|id| *id != 0);
    let uid: u32 = variable("SUDO_UID").unwrap_or(NOBODY);
    let gid: u32 = variable("SUDO_GID").unwrap_or(NOBODY);

    let own = rustix::thread::capabilities(None).context("capabilities")?.permitted;
    let mut wanted = kinds.fold(CapabilitySet::empty(), |set, kind| set.union(of_port_type(kind)));
    if !give_rundir(rundir, uid, gid) {
        wanted |= CapabilitySet::DAC_OVERRIDE;
        tracing::warn!(
            "rundir {} is root's and not private: dac_override is kept, or sockets in it could not be made and removed; \
             better is a directory of mode 0700, which is given to user {uid}",
            rundir.display()
        );
    }
    let kept = own.intersection(wanted);

    rustix::thread::set_keep_capabilities(true).context("keeping capabilities")?;
    // Every thread's; only this one has asked to keep its capabilities.
    sluice_port::become_user(uid, gid).with_context(|| format!("becoming user {uid}"))?;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).context("dropping capabilities")?;
    rustix::thread::set_no_new_privs(true).context("giving up new privileges")?;
    Ok(Some(Left { uid, kept }))
}

/// Why a file cannot be read; that root's files cannot once root was left, too.
pub fn cannot_read(error: &std::io::Error) -> String {
    let user = rustix::process::geteuid();
    let advice = match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            format!("; this runs as user {}: let that user read it (chmod, chgrp), or start again", user.as_raw())
        }
        _ => String::new(),
    };
    format!("cannot be read: {error}{advice}")
}

/// What a port type takes to be opened again.
fn of_port_type(kind: &str) -> CapabilitySet {
    let kind = sluice_port::KINDS.iter().find(|known| known.name == kind);
    let names = kind.map_or(&[][..], |kind| kind.capabilities);
    names.iter().filter_map(|name| CapabilitySet::from_name(name)).collect()
}

/// Gives the directory to the user if it is private to root and no system directory; whether it is the user's now.
/// An earlier run has given it already.
fn give_rundir(rundir: &Path, uid: u32, gid: u32) -> bool {
    let is_home = std::env::var_os("HOME").is_some_and(|home| Path::new(&home) == rundir);
    let Ok(found) = std::fs::symlink_metadata(rundir) else { return false };
    let private = found.is_dir() && found.mode() & 0o777 == 0o700;
    match found.uid() {
        0 => private && !is_home && std::os::unix::fs::chown(rundir, Some(uid), Some(gid)).is_ok(),
        owner => private && owner == uid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_types_need_what_their_sockets_need() {
        assert_eq!(of_port_type("tap"), CapabilitySet::NET_ADMIN);
        assert_eq!(of_port_type("null"), CapabilitySet::empty());
        assert!(of_port_type("af_xdp").contains(CapabilitySet::BPF));
        for kind in sluice_port::KINDS {
            assert_eq!(of_port_type(kind.name).iter_names().count(), kind.capabilities.len(), "{}", kind.name);
        }
    }

    #[test]
    fn a_directory_that_is_the_users_already_needs_no_giving() {
        let dir = tempfile::tempdir().unwrap();
        let me = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let set_mode = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(dir.path(), mode).unwrap();
        };
        set_mode(0o700);
        assert!(give_rundir(dir.path(), me, gid));
        set_mode(0o755);
        assert!(!give_rundir(dir.path(), me, gid), "others may read it");
        assert!(!give_rundir(&dir.path().join("none"), me, gid));
    }

    #[test]
    fn what_was_kept_is_named() {
        let left = Left { uid: 65534, kept: CapabilitySet::NET_ADMIN | CapabilitySet::BPF };
        assert_eq!(left.to_string(), "running as user 65534, capabilities kept: net_admin, bpf");
        let left = Left { uid: 7, kept: CapabilitySet::empty() };
        assert_eq!(left.to_string(), "running as user 7, capabilities kept: none");
    }
}
