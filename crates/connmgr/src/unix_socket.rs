//! Private sockets in the file system.

use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, RenameFlags};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Longest path of a socket, bytes. Source: Linux's `sockaddr_un`, less the zero behind it.
const PATH_MAX: usize = 107;

/// Why a socket cannot be made. `what` is the socket's name for the reader.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The path is longer than the system takes.
    #[error("{what} {}: its path has {size} bytes, a socket's at most {PATH_MAX}", path.display())]
    PathTooLong {
        /// What the socket is for.
        what: String,
        /// Where it is.
        path: PathBuf,
        /// Bytes of the path.
        size: usize,
    },
    /// There is something that is no socket.
    #[error("{what} {}: there is something else of that name; remove it", path.display())]
    NotASocket {
        /// What the socket is for.
        what: String,
        /// Where it is.
        path: PathBuf,
    },
    /// Another process serves it.
    #[error("{what} {}: another switch listens on it", path.display())]
    InUse {
        /// What the socket is for.
        what: String,
        /// Where it is.
        path: PathBuf,
    },
    /// The system refuses.
    #[error("{what} {}: {action}: {source}", path.display())]
    Io {
        /// What the socket is for.
        what: String,
        /// Where it is.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

/// The mode that sockets get. The named ones let the owner alone connect, because connecting takes permission to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SocketMode {
    /// 0600.
    #[default]
    Private,
    /// 0750, as Open vSwitch's sockets have it: scripts and tests read it.
    OpenVSwitch,
    /// These bits of permission.
    Bits(u16),
}

impl SocketMode {
    fn bits(self) -> Mode {
        match self {
            SocketMode::Private => Mode::RUSR | Mode::WUSR,
            SocketMode::OpenVSwitch => Mode::RWXU | Mode::RGRP | Mode::XGRP,
            SocketMode::Bits(bits) => Mode::from_raw_mode(u32::from(bits)) & Mode::from_raw_mode(0o777),
        }
    }
}

/// The sockets of [`make_ready`] that nobody has asked for yet.
static READY: Mutex<BTreeMap<PathBuf, UnixListener>> = Mutex::new(BTreeMap::new());

/// Makes a socket that [`listen`] hands out later, for a directory in which the process may soon make none any more.
///
/// # Errors
/// As [`listen`].
pub fn make_ready(path: &Path, what: &str, mode: SocketMode) -> Result<(), SocketError> {
    let listener = listen(path, what, mode)?;
    READY.lock().insert(path.to_owned(), listener);
    Ok(())
}

/// Listens on `path`, replacing a socket that nobody listens on any more. `what` names the socket in errors.
///
/// # Errors
/// If something else is there, or another switch answers on it.
pub fn listen(path: &Path, what: &str, mode: SocketMode) -> Result<UnixListener, SocketError> {
    if let Some(ready) = READY.lock().remove(path) {
        return Ok(ready);
    }
    let size = path.as_os_str().len();
    if size > PATH_MAX {
        return Err(SocketError::PathTooLong { what: what.to_owned(), path: path.to_owned(), size });
    }
    remove_stale(path, what)?;
    bind_and_rename(path, mode.bits()).map_err(|source| io_error(path, what, "cannot listen", source))
}

fn io_error(path: &Path, what: &str, action: &'static str, source: io::Error) -> SocketError {
    SocketError::Io { what: what.to_owned(), path: path.to_owned(), action, source }
}

/// Binds and listens under a name of this process, then takes the place at `path`: a client that sees the socket there can
/// connect to it, which between `bind` and `listen` it could not.
fn bind_and_rename(path: &Path, mode: Mode) -> io::Result<UnixListener> {
    // The mode of a socket comes from the umask alone; there must be no moment in which others may connect.
    static UMASK: Mutex<()> = Mutex::new(());
    let _one_at_a_time = UMASK.lock();
    // No longer than what it stands in for, whose length has been looked at.
    let unfinished = path.with_file_name(format!(".{:x}", std::process::id()));
    let before = rustix::process::umask(Mode::from_raw_mode(0o777) - mode);
    let listener = UnixListener::bind(&unfinished);
    rustix::process::umask(before);
    let listener = listener?;
    rustix::fs::renameat_with(CWD, &unfinished, CWD, path, RenameFlags::NOREPLACE).inspect_err(|_| {
        // It is ours alone, and nobody knows it.
        let _ = std::fs::remove_file(&unfinished);
    })?;
    Ok(listener)
}

/// Connects without waiting for the one that listens to have room for one more.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if it has none; else as [`UnixStream::connect`].
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// Whether somebody listens on a socket.
fn is_served(path: &Path) -> bool {
    connect(path).map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |_| true)
}

/// Removes a socket that a switch left behind.
///
/// # Errors
/// If something else is there, or another switch answers on it.
pub fn remove_stale(path: &Path, what: &str) -> Result<(), SocketError> {
    let (what_owned, path_owned) = (what.to_owned(), path.to_owned());
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(io_error(path, what, "cannot be looked at", e)),
        Ok(meta) if !meta.file_type().is_socket() => {
            Err(SocketError::NotASocket { what: what_owned, path: path_owned })
        }
        Ok(_) if is_served(path) => Err(SocketError::InUse { what: what_owned, path: path_owned }),
        Ok(_) => std::fs::remove_file(path).map_err(|e| io_error(path, what, "is stale and cannot be removed", e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// A socket whose listener takes no connection, and has room for none.
    fn full_socket(path: &Path) -> Vec<UnixStream> {
        let listener = net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        net::bind(&listener, &SocketAddrUnix::new(path).unwrap()).unwrap();
        net::listen(&listener, 0).unwrap();
        let mut held = vec![listener.into()];
        held.extend(std::iter::from_fn(|| connect(path).ok()));
        held
    }

    #[test]
    fn a_listener_without_room_is_not_waited_for_and_served() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("full");
        let _held = full_socket(&path);
        let (done, is_done) = mpsc::channel();
        std::thread::spawn({
            let path = path.clone();
            move || done.send((connect(&path).map(drop), listen(&path, "socket", SocketMode::Private).map(drop)))
        });
        let (connected, listening) = is_done.recv_timeout(Duration::from_secs(20)).expect("it waits");
        assert_eq!(connected.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(matches!(listening, Err(SocketError::InUse { .. })), "{listening:?}");
    }

    /// A link in a socket's place is neither followed nor replaced, wherever it leads: to a file, to nothing, or to a
    /// socket that nobody listens on.
    #[test]
    fn a_link_in_a_sockets_place_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let [file, none, stale, link] = ["file", "none", "stale", "link"].map(|name| dir.path().join(name));
        std::fs::write(&file, "theirs").unwrap();
        drop(UnixListener::bind(&stale).unwrap());
        for target in [&file, &none, &stale] {
            std::os::unix::fs::symlink(target, &link).unwrap();
            let refused = listen(&link, "socket", SocketMode::Private);
            assert!(matches!(refused, Err(SocketError::NotASocket { .. })), "{}: {refused:?}", target.display());
            assert!(link.is_symlink() && !none.exists() && stale.exists());
            std::fs::remove_file(&link).unwrap();
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"theirs");
    }

    #[test]
    fn a_socket_that_is_ready_is_handed_out_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ready");
        make_ready(&path, "socket", SocketMode::Private).unwrap();
        let waiting = connect(&path).unwrap();
        let listener = listen(&path, "socket", SocketMode::Private).unwrap();
        listener.accept().unwrap();
        drop((waiting, listener));
        // The next one is a socket of its own.
        let listener = listen(&path, "socket", SocketMode::Private).unwrap();
        connect(&path).unwrap();
        listener.accept().unwrap();
    }

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
                let listener = listen(&path, "socket", SocketMode::Private).unwrap();
                watching.join().unwrap().unwrap_or_else(|error| panic!("round {round}: {error}"));
                listener
            });
            std::fs::remove_file(&path).unwrap();
            drop(listener);
        }
    }
}
