//! A safe interface to the C library's changes of user.
//!
//! The kernel changes one thread's user; the C library makes every thread of the process do it, which a system call
//! would not (source: nptl(7)).

use std::io;

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Leaves all supplementary groups.
pub(super) fn leave_groups() -> io::Result<()> {
    // SAFETY: a list of no groups is not read.
    done(unsafe { libc::setgroups(0, std::ptr::null()) })
}

/// Sets the real, effective and saved group.
pub(super) fn set_group(gid: u32) -> io::Result<()> {
    // SAFETY: takes numbers only.
    done(unsafe { libc::setresgid(gid, gid, gid) })
}

/// Sets the real, effective and saved user.
pub(super) fn set_user(uid: u32) -> io::Result<()> {
    // SAFETY: takes numbers only.
    done(unsafe { libc::setresuid(uid, uid, uid) })
}
