//! Leaving root: the switch runs as an ordinary user with exactly the capabilities that it still needs.
//!
//! Credentials belong to threads, so this comes after ports are open and before any thread is started; threads
//! inherit them.

use anyhow::{Context, Result};
use rustix::fs::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What each port type needs to be opened again. Source: capabilities(7), packet(7), bpf(2), Linux AF_XDP sockets.
const OF_PORT_TYPE: &[(&str, CapabilitySet)] = &[
    ("tap", CapabilitySet::NET_ADMIN),
    ("af_packet", CapabilitySet::NET_RAW.union(CapabilitySet::NET_ADMIN)),
    (
        "af_xdp",
        CapabilitySet::NET_RAW.union(CapabilitySet::NET_ADMIN).union(CapabilitySet::BPF).union(CapabilitySet::IPC_LOCK),
    ),
    ("dpdk", CapabilitySet::NET_RAW.union(CapabilitySet::NET_ADMIN).union(CapabilitySet::IPC_LOCK)),
];

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
/// (private to root). To read rule files and the configuration again, reading past file modes is kept.
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
    let mut wanted = kinds.fold(CapabilitySet::DAC_READ_SEARCH, |set, kind| set.union(of_port_type(kind)));
    if !give_rundir(rundir, uid, gid) {
        // Sockets in a directory that stays root's can be made and removed only so.
        wanted |= CapabilitySet::DAC_OVERRIDE;
    }
    let kept = own.intersection(wanted);

    rustix::thread::set_keep_capabilities(true).context("keeping capabilities")?;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_groups(&[]).context("leaving root's groups")?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).context("leaving root's group")?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).context("leaving root")?;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).context("dropping capabilities")?;
    rustix::thread::set_no_new_privs(true).context("giving up new privileges")?;
    Ok(Some(Left { uid: uid.as_raw(), kept }))
}

fn of_port_type(kind: &str) -> CapabilitySet {
    OF_PORT_TYPE.iter().find(|(name, _)| *name == kind).map_or(CapabilitySet::empty(), |(_, set)| *set)
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
        let left = Left { uid: 65534, kept: CapabilitySet::NET_ADMIN | CapabilitySet::DAC_READ_SEARCH };
        assert_eq!(left.to_string(), "running as user 65534, capabilities kept: dac_read_search, net_admin");
        let left = Left { uid: 7, kept: CapabilitySet::empty() };
        assert_eq!(left.to_string(), "running as user 7, capabilities kept: none");
    }
}
