//! The request SEND_RARP, which the `vhost` crate does not know: after a migration the switch announces, in the guest's
//! place, where the guest is now. Source: vhost-user protocol, VHOST_USER_SEND_RARP; RFC 903.

use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io::Read;
use std::os::unix::net::UnixStream;

/// The request's number.
const SEND_RARP: u32 = 19;
/// Flags of a message: version 1, a reply, a request that wants a reply.
const VERSION: u32 = 1;
const IS_REPLY: u32 = 1 << 2;
const WANTS_REPLY: u32 = 1 << 3;
/// Bytes of a message's header and of its number.
const HEADER: usize = 12;
const BODY: usize = 8;

/// A guest's Ethernet address.
pub type GuestMac = [u8; 6];

/// Reads the next request, if it is this one, and replies if it wants that. Returns the guest's address.
///
/// What is not read is there for the crate.
pub fn receive(mut frontend: &UnixStream) -> Option<GuestMac> {
    let mut header = [0; HEADER];
    let (_, n) = recv(frontend, &mut header[..], RecvFlags::PEEK | RecvFlags::DONTWAIT).ok()?;
    let [request, flags, size] = [0, 4, 8].map(|at| header[at..].first_chunk().map(|word| u32::from_le_bytes(*word)));
    if n < HEADER || request != Some(SEND_RARP) || size != Some(BODY as u32) {
        return None;
    }
    let mut message = [0; HEADER + BODY];
    frontend.read_exact(&mut message).ok()?;
    if flags.is_some_and(|flags| flags & WANTS_REPLY != 0) {
        let reply = [SEND_RARP, VERSION | IS_REPLY, BODY as u32, 0, 0].map(u32::to_le_bytes).concat();
        // One that does not read its replies gets none.
        let _ = send(frontend, &reply, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
    message[HEADER..].first_chunk().copied()
}

/// The frame that says where a guest is: a reverse request of its own, which everybody gets.
pub fn frame(mac: GuestMac) -> [u8; 60] {
    let mut frame = [0; 60];
    let ethernet = [&[0xff; 6][..], &mac, &[0x80, 0x35]].concat();
    // Ethernet and IPv4 addresses, and a reverse request; no IPv4 address is known.
    let rarp = [&[0, 1, 8, 0, 6, 4, 0, 3][..], &mac, &[0; 4], &mac, &[0; 4]].concat();
    frame[..42].copy_from_slice(&[ethernet, rarp].concat());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn message(words: [u32; 5]) -> Vec<u8> {
        words.map(u32::to_le_bytes).concat()
    }

    #[test]
    fn the_request_is_read_and_replied_to_if_it_wants_that() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mac = Some([1, 2, 3, 4, 5, 6]);
        theirs.write_all(&message([SEND_RARP, VERSION, 8, 0x0403_0201, 0x0605])).unwrap();
        assert_eq!(receive(&ours), mac);
        assert!(theirs.read(&mut [0]).is_err(), "no reply");
        theirs.write_all(&message([SEND_RARP, VERSION | WANTS_REPLY, 8, 0x0403_0201, 0x0605])).unwrap();
        assert_eq!(receive(&ours), mac);
        let mut reply = [0; 20];
        theirs.read_exact(&mut reply).unwrap();
        assert_eq!(reply.to_vec(), message([SEND_RARP, 5, 8, 0, 0]), "success");
    }

    #[test]
    fn other_requests_are_left() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        assert_eq!(receive(&ours), None, "nothing to read, and nothing to wait for");
        for other in [message([20, VERSION, 8, 1500, 0]), message([SEND_RARP, VERSION, 4, 0, 0])] {
            theirs.write_all(&other[..8]).unwrap();
            assert_eq!(receive(&ours), None, "a part of a header");
            theirs.write_all(&other[8..]).unwrap();
            assert_eq!(receive(&ours), None);
            let mut left = [0; 20];
            ours.read_exact(&mut left).unwrap();
            assert_eq!(left.to_vec(), other);
        }
    }
}
