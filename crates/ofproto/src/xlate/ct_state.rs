//! The bits of `ct_state`. Source: OVS lib/packets.h, CS_STATES.

pub(crate) const NEW: u8 = 0x01;
pub(crate) const ESTABLISHED: u8 = 0x02;
pub(crate) const REPLY: u8 = 0x08;
pub(crate) const INVALID: u8 = 0x10;
pub(crate) const TRACKED: u8 = 0x20;

/// The name of each bit, the lowest first.
pub(crate) const NAMES: [&str; 8] = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];

/// A valid connection has one of these. Source: OVS lib/flow.h, CS_VALID_MASK.
pub(crate) const VALID: u8 = NEW | ESTABLISHED | REPLY;
