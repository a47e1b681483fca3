//! What the act room asks for, and what it is told.

use crate::connection::Connection;

/// What is known about a packet's checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksums {
    /// Nothing: compute them.
    #[default]
    Unknown,
    /// They are right, or will be put right when the packet is sent.
    Good,
    /// One is wrong.
    Bad,
}

/// All that comes from outside the tables and the packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// Coarse time, milliseconds on any clock that does not go back; one reading a batch will do.
    pub now_ms: u64,
    /// Unpredictable bits, for choosing ports.
    pub entropy: u64,
    /// Of this packet.
    pub checksums: Checksums,
}

/// What an earlier call found for the same packet, so that a later one in the same zone does not count it again. Keep
/// it with the packet, over recirculation too; forget it when an address or port of the packet is set by anything but
/// this crate, and at `ct_clear`. Losing it is never unsafe, but a later pass then sees a second packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carried(pub(crate) Option<Known>);

/// The connection, by its place in memory: a name that is only ever compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub zone: u16,
    pub connection: usize,
}

impl Known {
    pub fn of(connection: &Connection) -> Self {
        Known { zone: connection.original.zone, connection: std::ptr::from_ref(connection).addr() }
    }
}

impl Carried {
    /// Forgets it.
    pub fn forget(&mut self) {
        self.0 = None;
    }
}

/// What became of a packet. It goes on in any case, its state in the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is of a connection, or would begin one but was not to be committed.
    Tracked,
    /// It began a connection.
    Committed,
    /// It is of no connection and can begin none; state `inv`.
    Invalid,
    /// It was to begin a connection, but could not: state `new`, no connection, no NAT.
    Refused(Refusal),
}

/// Why no connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The zone is at its limit.
    ZoneLimit,
    /// All zones together are at the limit.
    TableFull,
    /// No address and port of the range was found free.
    NatExhausted,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Refusal::ZoneLimit => "the zone has as many connections as its limit allows",
            Refusal::TableFull => "there are as many connections as the limit allows (ct-set-maxconns)",
            Refusal::NatExhausted => "no address and port in the range of the NAT is free for this connection",
        })
    }
}
