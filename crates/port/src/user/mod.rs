//! Giving up root on every thread of the process, including those that ports have started.

#[allow(unsafe_code)]
mod sys;

use std::io;

/// Changes every thread to user `uid` with `gid` as its only group, for good. Threads that have not asked to keep their
/// capabilities lose them.
///
/// # Errors
/// If the system refuses, as it does for any user but root; the steps completed before remain in effect.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    sys::leave_groups()?;
    sys::set_group(gid)?;
    sys::set_user(uid)
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_ordinary_user_cannot_become_another() {
        if rustix::process::geteuid().is_root() {
            // As root, the privileged lane `switch` tests this; here it would change the user of all other tests.
            return;
        }
        assert_eq!(super::become_user(0, 0).unwrap_err().raw_os_error(), Some(libc::EPERM));
    }
}
