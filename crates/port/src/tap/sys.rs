//! The border to the tap driver, made safe. A locked room.

use crate::netdev::sys::{ask, request};
use std::io;
use std::os::fd::OwnedFd;

/// Attaches an open `/dev/net/tun` to the tap device called `name` as one more of its queues, making the device if there
/// is none.
pub(super) fn attach(fd: &OwnedFd, name: &str) -> io::Result<()> {
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_MULTI_QUEUE) as libc::c_short;
    ask(fd, libc::TUNSETIFF, &mut request)
}
