//! The pidfile: the process id, in a file that the process keeps locked for as long as it runs.
//!
//! Tools ask for the lock's owner before they trust the number in the file, so the lock has to be one of `fcntl`: it
//! names its owner. Such a lock goes when its process closes any descriptor of the file; the file is opened once and
//! never read again by its owner.

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Flock, FlockType, fcntl_getlk};
use sluice_vlog::strerror;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A pidfile of this process. It goes when this is dropped.
#[derive(Debug)]
pub struct Pidfile {
    path: PathBuf,
    /// Keeps the lock.
    _locked: File,
}

/// Why there can be no pidfile. The texts are those of Open vSwitch's daemons.
#[derive(Debug, thiserror::Error)]
pub enum PidfileError {
    /// The program runs already.
    #[error("{}: already running as pid {pid}, aborting", path.display())]
    Running {
        /// The pidfile.
        path: PathBuf,
        /// The process that keeps it locked.
        pid: i32,
    },
    /// It cannot be told whether the program runs.
    #[error("{}: pidfile check failed ({}), aborting", path.display(), strerror(source))]
    Check {
        /// The pidfile.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The system refuses.
    #[error("{}: {action} failed ({})", path.display(), strerror(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

impl Pidfile {
    /// Creates the pidfile at `path` and locks it. With `overwrite`, a process that holds the one that is there does
    /// not matter.
    ///
    /// # Errors
    /// If another process holds it, or the system refuses.
    pub fn create(path: &Path, overwrite: bool) -> Result<Self, PidfileError> {
        let pid = std::process::id();
        // Without `overwrite`, all starting processes lock the same temporary file, so that one of them checks and
        // renames at a time.
        let temporary = if overwrite { format!("tmp{pid}") } else { "tmp".to_owned() };
        let temporary = path.with_added_extension(temporary);
        let failed = |action, source| PidfileError::Io { path: temporary.clone(), action, source };
        let open = OpenOptions::new().append(true).read(true).create(true).open(&temporary);
        let mut file = open.map_err(|error| failed("create", error))?;
        let lock = fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive);
        lock.map_err(|error| failed("fcntl(F_SETLK)", error.into()))?;
        let created = (|| {
            if !overwrite {
                remove_stale(path)?;
            }
            file.set_len(0).map_err(|error| failed("truncate", error))?;
            file.write_all(format!("{pid}\n").as_bytes()).map_err(|error| failed("write", error))?;
            std::fs::rename(&temporary, path).map_err(|error| failed("rename", error))
        })();
        if let Err(error) = created {
            let _ = std::fs::remove_file(&temporary);
            return Err(error);
        }
        Ok(Pidfile { path: path.to_owned(), _locked: file })
    }
}

impl Drop for Pidfile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Removes the pidfile of a process that has ended.
fn remove_stale(path: &Path) -> Result<(), PidfileError> {
    let failed = |source| PidfileError::Check { path: path.to_owned(), source };
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if let Some(pid) = owner(&file).map_err(failed)? {
        check_written_pid(&file, pid).map_err(failed)?;
        return Err(PidfileError::Running { path: path.to_owned(), pid });
    }
    // Another process may be removing it, too: the one that has the lock on the file of that name may.
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| failed(error.into()))?;
    let (named, locked) = (std::fs::metadata(path).map_err(failed)?, file.metadata().map_err(failed)?);
    if (named.dev(), named.ino()) != (locked.dev(), locked.ino()) {
        return Err(failed(io::Error::from(rustix::io::Errno::ALREADY)));
    }
    std::fs::remove_file(path).map_err(failed)
}

/// The process that keeps a pidfile locked.
fn owner(file: &File) -> io::Result<Option<i32>> {
    let holder = fcntl_getlk(file, &Flock::from(FlockType::WriteLock))?;
    Ok(holder.and_then(|lock| lock.pid).map(|pid| pid.as_raw_nonzero().get()))
}

/// A lock of another process than the one that wrote the file belongs to a process that is removing it.
fn check_written_pid(file: &File, owner: i32) -> io::Result<()> {
    let mut text = String::new();
    file.take(128).read_to_string(&mut text)?;
    let written = text.lines().next().and_then(|line| line.trim().parse().ok());
    if written == Some(owner) { Ok(()) } else { Err(io::Error::from(rustix::io::Errno::SRCH)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A process that keeps the file at `path` locked, whose text is `pid` or, if that is `None`, its own.
    fn holder(path: &Path, pid: Option<&str>) -> Child {
        let script = "import fcntl, os, sys\n\
                      f = open(sys.argv[1], 'w')\n\
                      f.write(sys.argv[2] if len(sys.argv) > 2 else str(os.getpid()))\n\
                      f.flush()\n\
                      fcntl.lockf(f, fcntl.LOCK_EX)\n\
                      print('locked', flush=True)\n\
                      sys.stdin.read()\n";
        let mut child = Command::new("python3")
            .args(["-c", script])
            .arg(path)
            .args(pid)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 7];
        child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        child
    }

    fn end(mut child: Child) {
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn it_holds_the_process_id_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.pid");
        std::fs::write(&path, "12345\n").unwrap();
        let pidfile = Pidfile::create(&path, false).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        drop(pidfile);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_running_process_keeps_its_pidfile() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.pid");
        let other = holder(&path, None);
        let error = Pidfile::create(&path, false).unwrap_err().to_string();
        assert_eq!(error, format!("{}: already running as pid {}, aborting", path.display(), other.id()));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "the temporary file is left");
        let pidfile = Pidfile::create(&path, true).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        drop(pidfile);
        end(other);
    }

    #[test]
    fn a_pidfile_that_another_process_removes_is_no_answer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.pid");
        let other = holder(&path, Some("1"));
        let error = Pidfile::create(&path, false).unwrap_err().to_string();
        assert_eq!(error, format!("{}: pidfile check failed (No such process), aborting", path.display()));
        end(other);
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let error = Pidfile::create("/nonexistent/x.pid".as_ref(), false).unwrap_err().to_string();
        assert!(error.starts_with("/nonexistent/x.pid.tmp: create failed (No such file or directory)"), "{error}");
    }
}
