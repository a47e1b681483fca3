//! The directory of the sockets, which belongs to the switch alone.

use anyhow::{Context, Result, bail};
use sluice_connmgr::SocketError;
use std::fs::Metadata;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Name of the control socket in it.
pub const CONTROL_SOCKET: &str = "sluice.ctl";

/// The directory if the configuration names none: `$XDG_RUNTIME_DIR/sluice`, else `/run/sluice` as root, else
/// `/tmp/sluice-UID`.
pub fn default_rundir() -> PathBuf {
    let uid = rustix::process::geteuid();
    choose(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from), uid.as_raw())
}

/// The control socket in it.
pub fn default_control_socket() -> PathBuf {
    default_rundir().join(CONTROL_SOCKET)
}

fn choose(xdg_runtime_dir: Option<PathBuf>, uid: u32) -> PathBuf {
    match xdg_runtime_dir {
        // The XDG specification has relative paths ignored.
        Some(dir) if dir.is_absolute() => dir.join("sluice"),
        _ if uid == 0 => PathBuf::from("/run/sluice"),
        _ => PathBuf::from(format!("/tmp/sluice-{uid}")),
    }
}

/// Why a socket cannot be made in the directory, and what the user can do about it.
pub fn socket_error(error: SocketError) -> anyhow::Error {
    let advice = match error {
        SocketError::PathTooLong { .. } => "set switch.rundir to a shorter one",
        SocketError::InUse { .. } => "end it, or set switch.rundir",
        SocketError::NotASocket { .. } | SocketError::Io { .. } => return error.into(),
    };
    anyhow::anyhow!("{error}; {advice}")
}

/// Makes `dir` with mode 0700 if it is missing. A directory of another user in its place is an error, also to root: that
/// user could put other sockets in the place of the switch's. `becomes` is the user as whom the switch will run.
///
/// # Errors
/// If it cannot be made, or is not a directory of this user, or every user may remove what is in it.
pub fn prepare(dir: &Path, becomes: u32) -> Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        // Another thread may be lowering the umask just then, for a socket.
        Ok(()) => {
            let private = std::fs::Permissions::from_mode(0o700);
            return std::fs::set_permissions(dir, private)
                .with_context(|| format!("rundir {}: its mode", dir.display()));
        }
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => bail!(
            "rundir {}: cannot be made: its parent directory does not exist; make that, or set switch.rundir",
            dir.display()
        ),
        Err(e) => {
            return Err(e).with_context(|| {
                format!("rundir {}: cannot be made; set switch.rundir to a directory of your own", dir.display())
            });
        }
    }
    // A configured rundir may be a link. The check of the owner below follows it; but a link of another user's could lead
    // to this user's directory now, and to another one once it was checked.
    let link = std::fs::symlink_metadata(dir).with_context(|| format!("rundir {}", dir.display()))?;
    let uid = rustix::process::geteuid();
    if link.is_symlink() {
        check_link(dir, link.uid(), uid.as_raw())?;
    }
    let meta = std::fs::metadata(dir).with_context(|| format!("rundir {}", dir.display()))?;
    if !meta.is_dir() {
        bail!("rundir {}: is not a directory", dir.display());
    }
    // Root becomes another user, who has the directory after an earlier run.
    check_owner(dir, &meta, [uid.as_raw(), becomes])
}

/// Refuses a link that a user other than this one and root has made.
fn check_link(dir: &Path, owner: u32, own: u32) -> Result<()> {
    if owner != own && owner != 0 {
        let dir = dir.display();
        bail!(
            "rundir {dir}: is a link that user {owner} has made and could change; set switch.rundir to the directory itself"
        );
    }
    Ok(())
}

/// Refuses a directory in which another user could put or replace sockets.
fn check_owner(dir: &Path, meta: &Metadata, own: [u32; 2]) -> Result<()> {
    let (dir, owner) = (dir.display(), meta.uid());
    if !own.contains(&owner) {
        bail!("rundir {dir}: belongs to user {owner}, not to {}; set switch.rundir to a directory of your own", own[0]);
    }
    // With the sticky bit, others can make files but not remove those of this user.
    if meta.mode() & 0o1002 == 0o002 {
        bail!(
            "rundir {dir}: every user may remove files in it; take that right away (chmod o-w), or set switch.rundir"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn default_follows_xdg_then_root_then_tmp() {
        assert_eq!(choose(Some("/run/user/7".into()), 7), Path::new("/run/user/7/sluice"));
        assert_eq!(choose(Some("here".into()), 7), Path::new("/tmp/sluice-7"));
        assert_eq!(choose(None, 0), Path::new("/run/sluice"));
        assert_eq!(choose(None, 1000), Path::new("/tmp/sluice-1000"));
    }

    #[test]
    fn a_new_directory_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        prepare(&run, own()).unwrap();
        assert_eq!(std::fs::metadata(&run).unwrap().mode() & 0o777, 0o700);
        prepare(&run, own()).unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let error = prepare(&dir.path().join("file"), own()).unwrap_err().to_string();
        assert!(error.ends_with("is not a directory"), "{error}");
        let error = prepare(&dir.path().join("none/run"), own()).unwrap_err().to_string();
        assert!(error.contains("its parent directory does not exist"), "{error}");
    }

    /// A link of one's own is followed, and what it leads to is checked; one of another user, and one that leads nowhere,
    /// are refused.
    #[test]
    fn a_link_of_another_user_is_refused_wherever_it_leads() {
        let dir = tempfile::tempdir().unwrap();
        let [run, link, shared, dangling] = ["run", "link", "shared", "dangling"].map(|name| dir.path().join(name));
        prepare(&run, own()).unwrap();
        std::os::unix::fs::symlink(&run, &link).unwrap();
        prepare(&link, own()).unwrap();
        let me = rustix::process::geteuid().as_raw();
        check_link(&link, me, me).unwrap();
        check_link(&link, 0, me).unwrap();
        let error = check_link(&link, me + 1, me).unwrap_err().to_string();
        assert!(error.contains(&format!("is a link that user {} has made", me + 1)), "{error}");
        // Only root can make one that is another's.
        if me == 0 {
            std::os::unix::fs::lchown(&link, Some(1234), Some(1234)).unwrap();
            let error = prepare(&link, own()).unwrap_err().to_string();
            assert!(error.contains("is a link that user 1234 has made"), "{error}");
        }
        std::fs::create_dir(&shared).unwrap();
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o777)).unwrap();
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&shared, &link).unwrap();
        let error = prepare(&link, own()).unwrap_err().to_string();
        assert!(error.contains("every user may remove files in it"), "{error}");
        std::os::unix::fs::symlink(dir.path().join("nowhere"), &dangling).unwrap();
        assert!(prepare(&dangling, own()).is_err() && !dir.path().join("nowhere").exists());
    }

    #[test]
    fn a_directory_that_others_control_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let meta = std::fs::metadata(dir.path()).unwrap();
        let me = meta.uid();
        check_owner(dir.path(), &meta, [me, 12345]).unwrap();
        check_owner(dir.path(), &meta, [12345, me]).unwrap();
        let error = check_owner(dir.path(), &meta, [me + 1, me + 2]).unwrap_err().to_string();
        assert!(error.contains(&format!("belongs to user {me}, not to {}", me + 1)), "{error}");
        for (mode, is_accepted) in [(0o700, true), (0o755, true), (0o775, true), (0o777, false), (0o1777, true)] {
            std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            let meta = std::fs::metadata(dir.path()).unwrap();
            assert_eq!(check_owner(dir.path(), &meta, [me, me]).is_ok(), is_accepted, "{mode:o}");
        }
    }
}
