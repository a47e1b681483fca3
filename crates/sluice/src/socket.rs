//! Private sockets in the file system.

use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, RenameFlags};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Longest path of a socket, bytes. Source: Linux's `sockaddr_un`, less the zero behind it.
const PATH_MAX: usize = 107;

/// Listens on `path`, replacing a socket that nobody listens on any more. Only the owner may connect. `what` names the
/// socket in errors.
///
/// # Errors
/// If something else is there, or another switch answers on it.
pub fn listen_private(path: &Path, what: &str) -> Result<UnixListener> {
    let size = path.as_os_str().len();
    anyhow::ensure!(
        size <= PATH_MAX,
        "{what} {}: its path has {size} bytes, a socket's at most {PATH_MAX}; set switch.rundir to a shorter one",
        path.display()
    );
    remove_stale(path, what)?;
    bind_and_rename(path).with_context(|| format!("{what} {}: cannot listen", path.display()))
}

/// Binds and listens under a name of this process, then takes the place at `path`: a client that sees the socket there can
/// connect to it, which between `bind` and `listen` it could not.
fn bind_and_rename(path: &Path) -> io::Result<UnixListener> {
    // The mode of a socket comes from the umask alone; there must be no moment in which others may connect.
    static UMASK: Mutex<()> = Mutex::new(());
    let _one_at_a_time = UMASK.lock().unwrap_or_else(PoisonError::into_inner);
    // No longer than what it stands in for, whose length has been looked at.
    let unfinished = path.with_file_name(format!(".{:x}", std::process::id()));
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(&unfinished);
    rustix::process::umask(before);
    let listener = listener?;
    rustix::fs::renameat_with(CWD, &unfinished, CWD, path, RenameFlags::NOREPLACE).inspect_err(|_| {
        // It is ours alone, and nobody knows it.
        let _ = std::fs::remove_file(&unfinished);
    })?;
    Ok(listener)
}

/// Removes a socket that a switch left behind.
///
/// # Errors
/// If something else is there, or another switch answers on it.
pub fn remove_stale(path: &Path, what: &str) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_is_there_can_be_connected_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        for round in 0..500 {
            let listener = std::thread::scope(|scope| {
                let watching = scope.spawn(|| {
                    while !path.exists() {
                        std::hint::spin_loop();
                    }
                    UnixStream::connect(&path).map(drop)
                });
                let listener = listen_private(&path, "socket").unwrap();
                watching.join().unwrap().unwrap_or_else(|error| panic!("round {round}: {error}"));
                listener
            });
            std::fs::remove_file(&path).unwrap();
            drop(listener);
        }
    }
}
