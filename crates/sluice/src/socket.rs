//! Private sockets in the file system.

use anyhow::{Context, Result, bail};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Listens on `path`, replacing a socket that nobody listens on any more. Only the owner may connect. `what` names the
/// socket in errors.
///
/// # Errors
/// If something else is there, or another switch answers on it.
pub fn listen_private(path: &Path, what: &str) -> Result<UnixListener> {
    remove_stale(path, what)?;
    // The mode of a socket comes from the umask alone; there must be no moment in which others may connect.
    static UMASK: Mutex<()> = Mutex::new(());
    let _one_at_a_time = UMASK.lock().unwrap_or_else(PoisonError::into_inner);
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(before);
    listener.with_context(|| format!("{what} {}: cannot listen", path.display()))
}

/// Removes a socket that a switch left behind; anything else in its place is an error.
fn remove_stale(path: &Path, what: &str) -> Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e).with_context(|| format!("{what} {}", path.display())),
        Ok(meta) if !meta.file_type().is_socket() => {
            bail!("{what} {}: there is something else of that name; remove it", path.display())
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            bail!("{what} {}: another switch listens on it; end it, or set switch.rundir", path.display())
        }
        Ok(_) => {
            std::fs::remove_file(path).with_context(|| format!("stale {what} {}: cannot be removed", path.display()))
        }
    }
}
