//! A socket of rtnetlink that asks and waits for the answer.

use crate::message::{Request, i32_at, messages};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The kernel answers before `send` returns, or not at all.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Bytes of a datagram at most. Source: Linux net/netlink/af_netlink.c, `netlink_dump`.
const DATAGRAM_BYTES: usize = 32 << 10;

/// Messages about the exchange itself. Source: linux/netlink.h.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

impl Socket {
    /// In the network namespace of the thread.
    pub fn open() -> io::Result<Self> {
        // Protocol 0 of this family is NETLINK_ROUTE.
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&fd, Timeout::Recv, Some(ANSWER_WITHIN))?;
        Ok(Socket { fd, sequence: 0 })
    }

    /// Sends a request, which has asked for an acknowledgement or a dump, and hands over what is answered.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn ask(&mut self, request: Request, mut answer: impl FnMut(&[u8])) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        send(&self.fd, &request.finish(self.sequence), SendFlags::empty())?;
        let mut datagram = vec![0; DATAGRAM_BYTES];
        loop {
            let len = match recv(&self.fd, &mut datagram[..], RecvFlags::empty()) {
                Ok((len, _)) => len,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            // An answer that an earlier question did not wait for is left out.
            for message in messages(&datagram[..len]).filter(|message| message.sequence == self.sequence) {
                match message.kind {
                    NLMSG_ERROR | NLMSG_DONE => {
                        return match i32_at(message.body, 0).unwrap_or(0) {
                            0 => Ok(()),
                            error => Err(io::Error::from_raw_os_error(error.saturating_neg())),
                        };
                    }
                    _ => answer(message.body),
                }
            }
        }
    }
}
