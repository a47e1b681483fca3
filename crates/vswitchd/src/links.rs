//! Whether network devices of the kernel have come, gone or changed.

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The group of messages about links. Source: rtnetlink(7), `RTMGRP_LINK`.
const RTMGRP_LINK: u32 = 1;

/// Bytes of a message that are read: what it says is not looked at.
const MESSAGE_BYTES: usize = 64;

/// Hears of links that change.
#[derive(Debug)]
pub struct LinkWatch {
    socket: OwnedFd,
}

impl LinkWatch {
    /// From now on.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn new() -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        // Protocol 0 of this family is NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, RTMGRP_LINK))?;
        Ok(LinkWatch { socket })
    }

    /// Can be read when a link has changed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether a link changed since this was last asked.
    pub fn changed(&mut self) -> bool {
        let mut changed = false;
        loop {
            match recv(&self.socket, &mut [0; MESSAGE_BYTES], RecvFlags::empty()) {
                Ok(_) => changed = true,
                // Messages were lost, and so something happened.
                Err(rustix::io::Errno::NOBUFS) => changed = true,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return changed,
            }
        }
    }
}
