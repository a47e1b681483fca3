//! The bits of `ct_state` and their names. Source: OVS lib/packets.h, CS_STATES; `ovs-fields(7)`.

/// The packet begins a new connection.
pub const NEW: u8 = 0x01;
/// The connection has seen packets both ways.
pub const ESTABLISHED: u8 = 0x02;
/// The connection belongs to another one: an ICMP error, an FTP data connection.
pub const RELATED: u8 = 0x04;
/// The packet goes against the direction of the connection's first one.
pub const REPLY: u8 = 0x08;
/// The packet belongs to no connection and cannot begin one.
pub const INVALID: u8 = 0x10;
/// The packet has been through `ct`.
pub const TRACKED: u8 = 0x20;
/// The connection's source is translated.
pub const SRC_NAT: u8 = 0x40;
/// The connection's destination is translated.
pub const DST_NAT: u8 = 0x80;
/// The connection is translated.
pub const NAT: u8 = SRC_NAT | DST_NAT;

/// The name of each bit, the lowest first.
pub const NAMES: [&str; 8] = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];
