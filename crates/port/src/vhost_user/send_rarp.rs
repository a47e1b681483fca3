//! After a migration the switch announces, in the guest's place, where the guest is now (request SEND_RARP).
//! Source: vhost-user protocol, VHOST_USER_SEND_RARP; RFC 903.

/// A guest's Ethernet address.
pub type GuestMac = [u8; 6];

/// The frame that says where a guest is: a reverse request of its own, which everybody gets.
pub fn frame(mac: GuestMac) -> [u8; 60] {
    let mut frame = [0; 60];
    let ethernet = [&[0xff; 6][..], &mac, &[0x80, 0x35]].concat();
    // Ethernet and IPv4 addresses, and a reverse request; no IPv4 address is known.
    let rarp = [&[0, 1, 8, 0, 6, 4, 0, 3][..], &mac, &[0; 4], &mac, &[0; 4]].concat();
    frame[..42].copy_from_slice(&[ethernet, rarp].concat());
    frame
}
