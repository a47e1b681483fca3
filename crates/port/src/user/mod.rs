//! Leaving root on every thread of the process: those that ports have started, too.

mod sys;

use std::io;

/// Makes every thread the user `uid` of the one group `gid`, for good. Threads that have not asked to keep their
/// capabilities lose them.
///
/// # Errors
/// If the system refuses, as it does to all but root; what was done until then stays done.
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
            // As root it is shown by the privileged lane `switch`: here it would change every other test's user.
            return;
        }
        assert_eq!(super::become_user(0, 0).unwrap_err().raw_os_error(), Some(libc::EPERM));
    }
}
