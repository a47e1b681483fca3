//! What a caller passes to the tracker with a packet, and what it returns.

use crate::connection::Connection;
use sluice_flow::PacketKey;
use sluice_packet::Packet;
use sluice_simd::Isa;

/// What is known about a packet's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Nothing: compute them, by this instruction set.
    Unknown(Isa),
    /// They are right, or will be put right when the packet is sent.
    Good,
    /// One is wrong.
    Bad,
}

impl Default for Checksums {
    fn default() -> Self {
        Checksums::Unknown(Isa::SCALAR)
    }
}

/// Time and randomness, which the tracker never obtains itself, and what is known about the packet's checksums.
#[derive(Clone, Copy, Debug, Default)]
pub struct CtInput {
    /// Coarse time, milliseconds on any clock that does not go back. One reading a batch is enough.
    pub now_ms: u64,
    /// Unpredictable bits, for choosing ports.
    pub entropy: u64,
    /// Of this packet.
    pub checksums: Checksums,
}

/// A packet to be tracked, with what belongs to it.
#[derive(Debug)]
pub struct CtPacket<'a> {
    /// Its bytes; NAT rewrites them.
    pub packet: &'a mut Packet,
    /// Its key; receives the connection fields.
    pub key: &'a mut PacketKey,
    /// The connection that an earlier `ct` found for it.
    pub cached: &'a mut CachedConn,
}

/// The connection that an earlier `ct` found for a packet, so that a later `ct` in the same zone does not count the
/// packet twice (OVS: `pkt_metadata.conn`).
///
/// Keep it with the packet, also over recirculation. Forget it at `ct_clear`, and when an address or port of the packet
/// is set by anything but this crate. Losing it is safe, but a later `ct` then counts a second packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct CachedConn(pub(crate) Option<ConnId>);

/// A connection's address in memory, which is compared and never dereferenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnId {
    pub zone: u16,
    pub connection: usize,
}

impl ConnId {
    pub fn of(connection: &Connection) -> Self {
        ConnId { zone: connection.original.zone, connection: std::ptr::from_ref(connection).addr() }
    }
}

impl CachedConn {
    /// Forgets the connection.
    pub fn forget(&mut self) {
        self.0 = None;
    }
}

/// What became of a packet. It continues in every case, with its state in the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CtOutcome {
    /// It belongs to a connection, or would begin one but the action does not commit.
    Tracked,
    /// It began a connection.
    Committed,
    /// It belongs to no connection and cannot begin one; state `inv`.
    Invalid,
    /// It should have begun a connection, but could not: state `new`, no connection, no NAT.
    NotCommitted(CommitError),
}

/// Why a connection was not committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitError {
    /// The zone is at its limit.
    ZoneLimit,
    /// All zones together are at the limit.
    TableFull,
    /// Every address and port of the NAT range is in use.
    NatExhausted,
}

impl std::fmt::Display for CommitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            CommitError::ZoneLimit => "the zone has as many connections as its limit allows",
            CommitError::TableFull => "there are as many connections as the limit allows (ct-set-maxconns)",
            CommitError::NatExhausted => "no address and port in the range of the NAT is free for this connection",
        })
    }
}
