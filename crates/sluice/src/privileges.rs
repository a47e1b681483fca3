//! Leaving root: the switch runs as an ordinary user with exactly the capabilities that it still needs.
//!
//! This comes after ports are open and before the switch's own threads are started, which inherit what is left. Threads
//! that ports have started already (vhost-user, DPDK) become the same user and keep no capability.

use anyhow::{Context, Result, anyhow, ensure};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::thread::{CapabilitySet, CapabilitySets};
use sluice_daemon::account::{self, Account};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The user of the switch, which its package makes.
const OWN_USER: &str = "sluice";

/// The user to become if there is none of the switch's own and sudo names none. Source: Linux's overflow user, "nobody".
const NOBODY: u32 = 65534;

/// Whom the switch runs as, and who else may use its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The group that may use the sockets, too.
    pub socket_group: Option<u32>,
    /// Whether it is nobody only because nobody else was found.
    is_fallback: bool,
}

impl Identity {
    /// Whom the settings `switch.user`, `group` and `socket-group` name. Root becomes, if `user` is not set, the user who
    /// called sudo, else the user `sluice`, else nobody; any other user stays what it is.
    ///
    /// # Errors
    /// If there is no such user or group, or this is not root and they name somebody else.
    pub fn new(user: Option<&str>, group: Option<&str>, socket_group: Option<&str>) -> Result<Self> {
        let number = |key: &str, name: &str| {
            let no_group = || format!("switch.{key}: there is no group {name}; make one: groupadd --system {name}");
            account::group_number(name).map_err(|_| anyhow!(no_group()))
        };
        let socket_group = socket_group.map(|name| number("socket-group", name)).transpose()?;
        let group = group.map(|name| number("group", name)).transpose()?;
        let named = user.map(named_user).transpose()?;
        let own = Account { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
        let (account, is_fallback) = match named {
            Some(named) if own.uid == 0 => (named, false),
            None if own.uid == 0 => default_user(std::env::var("SUDO_UID").ok(), std::env::var("SUDO_GID").ok())?,
            _ => {
                let is_own = named.is_none_or(|named| named.uid == own.uid) && group.is_none_or(|gid| gid == own.gid);
                ensure!(
                    is_own,
                    "switch.user, switch.group: only root can become another user; start as root, or remove them"
                );
                (own, false)
            }
        };
        Ok(Identity { uid: account.uid, gid: group.unwrap_or(account.gid), socket_group, is_fallback })
    }

    /// What the user should know about the choice.
    pub fn warning(&self) -> Option<&'static str> {
        self.is_fallback.then_some(
            "there is no user sluice: running as nobody, whom other programs may use, too; make one (useradd --system \
             sluice), or set switch.user",
        )
    }
}

fn named_user(name: &str) -> Result<Account> {
    let found = Account::named(name, None).map_err(|error| anyhow!("switch.user: {error}"))?;
    let found =
        found.ok_or_else(|| anyhow!("switch.user: there is no user {name}; make one: useradd --system {name}"))?;
    ensure!(found.uid != 0, "switch.user: the switch does not run as root; expected another user");
    Ok(found)
}

/// The user that root becomes if the configuration names none, and whether it was the last resort. Who called sudo keeps
/// access to the switch and its files.
fn default_user(sudo_uid: Option<String>, sudo_gid: Option<String>) -> Result<(Account, bool)> {
    let number = |text: Option<String>| text.and_then(|id| id.parse().ok()).filter(|id| *id != 0);
    if let Some(uid) = number(sudo_uid) {
        return Ok((Account { uid, gid: number(sudo_gid).unwrap_or(NOBODY) }, false));
    }
    let own = Account::named(OWN_USER, None).context("user sluice")?.filter(|own| own.uid != 0);
    Ok(own.map_or((Account { uid: NOBODY, gid: NOBODY }, true), |own| (own, false)))
}

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

/// Gives `rundir` to the user that [`leave_root`] will become, so that sockets in it can be made and removed; only root does
/// so. A group that may use the sockets gets the directory, too, and everything made in it belongs to that group. Whoever
/// may connect to the sockets may also enter the directory.
///
/// A directory of root's that holds other things than sockets is not given away: then this is false, and whatever the switch
/// needs there has to be made before it leaves root.
///
/// # Errors
/// If the directory is somebody else's, or root's and not given away although a group is to use the sockets.
pub fn give_rundir(rundir: &Path, to: &Identity, socket_mode: u16) -> Result<bool> {
    if rustix::process::geteuid().is_root() && !give(rundir, to.uid, to.gid)? {
        anyhow::ensure!(
            to.socket_group.is_none(),
            "rundir {}: switch.socket-group cannot be given a directory of root's that holds other things than sockets; \
             set switch.rundir to one that does not exist yet, for example /run/sluice",
            rundir.display()
        );
        return Ok(false);
    }
    open_to(rundir, to.socket_group, socket_mode)?;
    Ok(true)
}

/// Lets a group read the directory, and lets others enter it if the sockets' mode lets them connect. Its set-group-ID bit gives the group each socket that
/// is made there later, when the switch may not be allowed to. Source: inode(7).
fn open_to(rundir: &Path, group: Option<u32>, socket_mode: u16) -> Result<()> {
    let opened_to = || group.map_or("others".to_owned(), |group| format!("group {group}"));
    let context =
        || format!("rundir {}: opening it to {} (switch.socket-group, socket-mode)", rundir.display(), opened_to());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(rundir, flags, Mode::empty()).with_context(context)?;
    let found = rustix::fs::fstat(&dir).with_context(context)?;
    // To connect takes the right to write to the socket, and to search its directory.
    let search = u32::from(socket_mode & 0o022) >> 1;
    let wanted = (found.st_mode & 0o777) | group.map_or(0, |_| 0o2750) | search;
    let owner = group.unwrap_or(found.st_gid);
    if (found.st_gid, found.st_mode & 0o7777) == (owner, wanted) {
        return Ok(());
    }
    if found.st_gid != owner {
        rustix::fs::fchown(&dir, None, Some(rustix::fs::Gid::from_raw(owner))).with_context(context)?;
    }
    // Behind the change of owner, which clears the bit.
    rustix::fs::fchmod(&dir, Mode::from_raw_mode(wanted)).with_context(context)
}

/// Leaves root, if this is root: becomes an ordinary user and keeps what ports of `kinds` need. Ports that come later can
/// be opened if they are of these kinds. A helper that stays root and hands descriptors over would keep more in one place, for
/// all kinds, and would have to check each request; capabilities are checked by the kernel.
///
/// Files that are read later (configuration and rules, on command) must be readable to that user.
///
/// # Errors
/// If the system refuses a step; what was done until then stays done.
pub fn leave_root<'a>(to: &Identity, kinds: impl Iterator<Item = &'a str>) -> Result<Option<Left>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let wanted = kinds.fold(CapabilitySet::empty(), |set, kind| set.union(of_port_type(kind)));
    become_user(to.uid, to.gid, wanted).map(Some)
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

/// Gives the directory to the user, unless the user may make files in it already, as after an earlier run, or it holds what
/// is root's. Returns whether the user may make files in it.
///
/// All steps are taken on one descriptor: what the path names may change meanwhile.
fn give(rundir: &Path, uid: u32, gid: u32) -> Result<bool> {
    let context = || format!("rundir {}", rundir.display());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(rundir, flags, Mode::empty()).with_context(context)?;
    let found = rustix::fs::fstat(&dir).with_context(context)?;
    if found.st_uid == uid || found.st_mode & 0o002 != 0 {
        return Ok(true);
    }
    anyhow::ensure!(
        found.st_uid == 0,
        "rundir {}: expected a directory of root's or of user {uid}; set switch.rundir to one that does not exist yet, \
         for example /run/sluice",
        rundir.display()
    );
    let home = std::env::var_os("HOME").and_then(|home| std::fs::metadata(home).ok());
    let is_home = home.is_some_and(|home| (home.dev(), home.ino()) == (found.st_dev, found.st_ino));
    if is_home || !holds_only_sockets(&dir).with_context(context)? {
        return Ok(false);
    }
    let owner = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
    rustix::fs::fchown(&dir, Some(owner.0), Some(owner.1)).with_context(context)?;
    Ok(true)
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
    fn root_becomes_the_caller_of_sudo_or_the_switchs_own_user_or_nobody() {
        let given = |id: u32| Some(id.to_string());
        assert_eq!(default_user(given(1000), given(100)).unwrap(), (Account { uid: 1000, gid: 100 }, false));
        // Root that calls sudo is no ordinary user.
        for sudo in [given(0), Some("x".into()), None] {
            let (chosen, is_fallback) = default_user(sudo.clone(), sudo).unwrap();
            match Account::named(OWN_USER, None).unwrap() {
                Some(own) => assert_eq!((chosen, is_fallback), (own, false)),
                None => assert_eq!((chosen.uid, chosen.gid, is_fallback), (NOBODY, NOBODY, true)),
            }
        }
    }

    #[test]
    fn users_and_groups_that_there_are_not_are_named_with_their_key() {
        let error = |user, group, socket| Identity::new(user, group, socket).unwrap_err().to_string();
        assert!(error(Some("no-such"), None, None).starts_with("switch.user: there is no user no-such; "));
        assert!(error(None, Some("no-such"), None).starts_with("switch.group: there is no group no-such; make one: "));
        assert!(error(None, None, Some("no-such")).starts_with("switch.socket-group: there is no group no-such; "));
        assert!(error(Some("root"), None, None).starts_with("switch.user: the switch does not run as root"));
    }

    #[test]
    fn a_group_that_may_use_the_sockets_gets_all_that_is_made_in_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(dir.path(), private).unwrap();
        let group = rustix::process::getegid().as_raw();
        for _ in 0..2 {
            open_to(dir.path(), Some(group), 0o660).unwrap();
            let meta = std::fs::metadata(dir.path()).unwrap();
            assert_eq!((meta.gid(), meta.mode() & 0o7777), (group, 0o2750));
        }
    }

    #[test]
    fn whom_the_sockets_mode_lets_in_the_directory_lets_by() {
        let dir = tempfile::tempdir().unwrap();
        for (socket_mode, wanted) in [(0o600, 0o700), (0o660, 0o710), (0o666, 0o711)] {
            let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            std::fs::set_permissions(dir.path(), private).unwrap();
            open_to(dir.path(), None, socket_mode).unwrap();
            assert_eq!(std::fs::metadata(dir.path()).unwrap().mode() & 0o7777, wanted, "sockets of {socket_mode:o}");
        }
    }

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
        assert!(give(dir.path(), me, group).unwrap());
        assert!(give(&dir.path().join("none"), me, group).is_err());
        // Root's, readable to all, and full of other things.
        assert!(!give(Path::new("/usr"), 12345, 12345).unwrap());
        assert_eq!(std::fs::metadata("/usr").unwrap().uid(), 0);
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
