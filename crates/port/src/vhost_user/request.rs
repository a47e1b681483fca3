//! Requests that the `vhost` crate does not know, or refuses at a time at which frontends send them.
//!
//! - SEND_RARP: the crate does not know it.
//! - SET_VRING_ENABLE: the crate takes it only after SET_FEATURES has accepted the protocol's features. QEMU enables the rings of
//!   a network device before that, and once: rings would stay disabled. DPDK's vhost library accepts it at any time.
//!
//! Source: vhost-user protocol, "Front-end message types"; QEMU hw/net/vhost_net.c, `vhost_net_start`.

use super::send_rarp::GuestMac;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io::Read;
use std::os::unix::net::UnixStream;

/// The numbers of the requests.
const SET_VRING_ENABLE: u32 = 18;
const SEND_RARP: u32 = 19;
/// Flags of a message: version 1, a reply, a request that wants a reply.
const VERSION: u32 = 1;
const IS_REPLY: u32 = 1 << 2;
const WANTS_REPLY: u32 = 1 << 3;
/// Bytes of a message's header and of its body, which all these requests share.
const HEADER: usize = 12;
const BODY: usize = 8;

/// A request that is not the crate's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Announce this guest.
    SendRarp(GuestMac),
    /// Enable or disable a ring. `None`: what it says is neither.
    SetVringEnable { ring: u32, enable: Option<bool> },
}

/// Reads the next request, if it is one of these, has `handle` carry it out, and replies if it wants that. Returns whether it
/// was one of these: what is not read is there for the crate.
pub fn serve(mut frontend: &UnixStream, handle: impl FnOnce(Request) -> bool) -> bool {
    let mut header = [0; HEADER];
    let Ok((_, n)) = recv(frontend, &mut header[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) else { return false };
    let [number, flags, size] = words(&header);
    if n < HEADER || ![SET_VRING_ENABLE, SEND_RARP].contains(&number) || size != BODY as u32 {
        return false;
    }
    let mut message = [0; HEADER + BODY];
    if frontend.read_exact(&mut message).is_err() {
        return false;
    }
    let body: [u8; BODY] = std::array::from_fn(|at| message[HEADER + at]);
    let is_done = handle(Request::of(number, body));
    if flags & WANTS_REPLY != 0 {
        let reply = [number, VERSION | IS_REPLY, BODY as u32, u32::from(!is_done), 0].map(u32::to_le_bytes).concat();
        // One that does not read its replies gets none.
        let _ = send(frontend, &reply, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
    true
}

impl Request {
    fn of(number: u32, body: [u8; BODY]) -> Self {
        if number == SEND_RARP {
            return Request::SendRarp(std::array::from_fn(|at| body[at]));
        }
        let [ring, value] = words(&body);
        Request::SetVringEnable { ring, enable: [false, true].get(value as usize).copied() }
    }
}

/// The first words of a message.
fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    std::array::from_fn(|i| bytes[4 * i..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn message(words: [u32; 5]) -> Vec<u8> {
        words.map(u32::to_le_bytes).concat()
    }

    /// The request that is read, if one is.
    fn received(from: &UnixStream, is_done: bool) -> Option<Request> {
        let mut found = None;
        let served = serve(from, |request| {
            found = Some(request);
            is_done
        });
        assert_eq!(served, found.is_some());
        found
    }

    #[test]
    fn a_request_is_read_and_replied_to_if_it_wants_that() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let rarp = Request::SendRarp([1, 2, 3, 4, 5, 6]);
        let enable = |enable| Request::SetVringEnable { ring: 3, enable };
        let cases = [
            ([SEND_RARP, VERSION, 8, 0x0403_0201, 0x0605], rarp),
            ([SET_VRING_ENABLE, VERSION, 8, 3, 0], enable(Some(false))),
            ([SET_VRING_ENABLE, VERSION, 8, 3, 1], enable(Some(true))),
            ([SET_VRING_ENABLE, VERSION, 8, 3, 2], enable(None)),
        ];
        for (words, request) in cases {
            theirs.write_all(&message(words)).unwrap();
            assert_eq!(received(&ours, true), Some(request));
            assert!(theirs.read(&mut [0]).is_err(), "no reply");
            for (is_done, status) in [(true, 0), (false, 1)] {
                let [number, flags, rest @ ..] = words;
                theirs.write_all(&message([number, flags | WANTS_REPLY, rest[0], rest[1], rest[2]])).unwrap();
                assert_eq!(received(&ours, is_done), Some(request));
                let mut reply = [0; 20];
                theirs.read_exact(&mut reply).unwrap();
                assert_eq!(reply.to_vec(), message([number, 5, 8, status, 0]));
            }
        }
    }

    #[test]
    fn other_requests_are_left() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        assert_eq!(received(&ours, true), None, "nothing to read, and nothing to wait for");
        for other in [message([20, VERSION, 8, 1500, 0]), message([SEND_RARP, VERSION, 4, 0, 0])] {
            theirs.write_all(&other[..8]).unwrap();
            assert_eq!(received(&ours, true), None, "a part of a header");
            theirs.write_all(&other[8..]).unwrap();
            assert_eq!(received(&ours, true), None);
            let mut left = [0; 20];
            ours.read_exact(&mut left).unwrap();
            assert_eq!(left.to_vec(), other);
        }
    }
}
