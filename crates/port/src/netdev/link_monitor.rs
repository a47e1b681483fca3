//! Which network devices of the kernel have come, gone or changed: rtnetlink's messages about links.

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The group of messages about links. Source: rtnetlink(7), `RTMGRP_LINK`.
const RTMGRP_LINK: u32 = 1;

/// Bytes of a datagram that are read. A device's name is the first attribute, so a cut message still says whose it is.
const DATAGRAM_BYTES: usize = 8192;

/// Bytes of a message's header, and of the part of a link message before its attributes.
/// Source: linux/netlink.h, `struct nlmsghdr`; linux/rtnetlink.h, `struct ifinfomsg`.
const HEADER_BYTES: usize = 16;
const LINK_BYTES: usize = 16;

/// The attribute with the device's name. Source: linux/if_link.h.
const IFLA_IFNAME: u16 = 3;

/// Hears of devices of the network namespace in which it was made.
#[derive(Debug)]
pub struct LinkMonitor {
    socket: OwnedFd,
}

/// The devices that changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkChanges {
    /// Messages were lost or made no sense: any device may have changed.
    any: bool,
    names: BTreeSet<Vec<u8>>,
    indexes: BTreeSet<u32>,
}

impl LinkMonitor {
    /// From now on.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn new() -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        // Protocol 0 of this family is NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, RTMGRP_LINK))?;
        Ok(LinkMonitor { socket })
    }

    /// Can be read when a device has changed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What changed since this was last asked. The kernel has told of a change before the call that made it returns.
    pub fn take_changes(&mut self) -> LinkChanges {
        let mut changes = LinkChanges::default();
        let mut datagram = [0; DATAGRAM_BYTES];
        loop {
            match recv(&self.socket, &mut datagram, RecvFlags::empty()) {
                Ok((len, _)) => changes.read(&datagram[..len]),
                Err(Errno::NOBUFS) => changes.any = true,
                Err(Errno::INTR) => {}
                Err(_) => return changes,
            }
        }
    }
}

impl LinkChanges {
    /// Whether no device changed.
    pub fn is_empty(&self) -> bool {
        !self.any && self.indexes.is_empty()
    }

    /// Whether a device changed that had this name and this index, or has one of them now.
    pub fn concern(&self, name: &str, index: u32) -> bool {
        self.any || self.indexes.contains(&index) || self.names.contains(name.as_bytes())
    }

    /// Takes over a datagram's messages.
    fn read(&mut self, mut datagram: &[u8]) {
        while let Some(len) = u32_at(datagram, 0) {
            let len = len as usize;
            if len < HEADER_BYTES + LINK_BYTES || self.read_link(&datagram[..len.min(datagram.len())]).is_none() {
                self.any = true;
                return;
            }
            datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
    }

    /// Takes over a message; `None` if it does not say whose it is.
    fn read_link(&mut self, message: &[u8]) -> Option<()> {
        let index = u32_at(message, HEADER_BYTES + 4)?;
        let mut attributes = message.get(HEADER_BYTES + LINK_BYTES..)?;
        loop {
            let (len, kind) = (u16_at(attributes, 0)?.into(), u16_at(attributes, 2)?);
            let value = attributes.get(4..len)?;
            if kind == IFLA_IFNAME {
                self.names.insert(value.split(|byte| *byte == 0).next().unwrap_or_default().to_owned());
                self.indexes.insert(index);
                return Some(());
            }
            attributes = attributes.get(len.next_multiple_of(4)..)?;
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A message of RTM_NEWLINK about device `index`, with these attributes.
    fn message(index: u32, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut link = [0; LINK_BYTES];
        link[4..8].copy_from_slice(&index.to_ne_bytes());
        let mut body = link.to_vec();
        for (kind, value) in attributes {
            body.extend((4 + value.len() as u16).to_ne_bytes());
            body.extend(kind.to_ne_bytes());
            body.extend(*value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        let mut message = vec![0; HEADER_BYTES];
        message[..4].copy_from_slice(&((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
        message.extend(body);
        message
    }

    fn read(datagram: &[u8]) -> LinkChanges {
        let mut changes = LinkChanges::default();
        changes.read(datagram);
        changes
    }

    #[test]
    fn a_device_is_known_by_its_name_and_by_its_index() {
        assert!(read(&[]).is_empty());
        let two = [message(7, &[(1, b"x"), (IFLA_IFNAME, b"veth0\0")]), message(9, &[(IFLA_IFNAME, b"tap1\0")])];
        let changes = read(&two.concat());
        assert!(!changes.is_empty());
        // The second was called otherwise before.
        for (name, index, expected) in [("veth0", 1, true), ("other", 9, true), ("veth", 8, false)] {
            assert_eq!(changes.concern(name, index), expected, "{name}");
        }
    }

    #[test]
    fn what_does_not_say_whose_it_is_may_be_anybodys() {
        let nameless = message(7, &[(1, b"x")]);
        let cut = &message(7, &[(IFLA_IFNAME, b"veth0\0")])[..40];
        for datagram in [&nameless[..], cut, &[1, 0, 0, 0]] {
            assert!(read(datagram).concern("another", 1), "{datagram:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic_or_loop(bytes in proptest::collection::vec(prop_oneof![Just(0), 1..40u8, any::<u8>()], 0..90)) {
            let changes = read(&bytes);
            prop_assert_eq!(changes.is_empty(), bytes.len() < 4);
        }
    }
}
