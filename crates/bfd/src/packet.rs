//! The control packet, RFC 5880 section 4.1.

use std::fmt;

/// Its length without authentication, bytes.
pub const PACKET_LEN: usize = 24;

/// The version of the protocol.
const VERSION: u8 = 1;

/// `bfd.SessionState`. The order is that of the protocol's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are the protocol's")]
pub enum State {
    AdminDown,
    #[default]
    Down,
    Init,
    Up,
}

impl State {
    const ALL: [State; 4] = [State::AdminDown, State::Down, State::Init, State::Up];

    /// As Open vSwitch writes it.
    pub const fn name(self) -> &'static str {
        match self {
            State::AdminDown => "admin_down",
            State::Down => "down",
            State::Init => "init",
            State::Up => "up",
        }
    }
}

/// Why the state is what it is: `bfd.LocalDiag`, five bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Diagnostic(pub u8);

impl Diagnostic {
    /// Nothing to say.
    pub const NONE: Diagnostic = Diagnostic(0);
    /// No control packet came within the detection time.
    pub const EXPIRED: Diagnostic = Diagnostic(1);
    /// The other end said that its session is down.
    pub const NEIGHBOUR_DOWN: Diagnostic = Diagnostic(3);
    /// The path is down.
    pub const PATH_DOWN: Diagnostic = Diagnostic(5);
    /// What lies behind this end is down.
    pub const CONCATENATED_PATH_DOWN: Diagnostic = Diagnostic(6);
    /// What lies behind this end is down in the other direction.
    pub const REVERSE_CONCATENATED_PATH_DOWN: Diagnostic = Diagnostic(8);

    /// As Open vSwitch writes it.
    pub const fn name(self) -> &'static str {
        match self.0 {
            0 => "No Diagnostic",
            1 => "Control Detection Time Expired",
            2 => "Echo Function Failed",
            3 => "Neighbor Signaled Session Down",
            4 => "Forwarding Plane Reset",
            5 => "Path Down",
            6 => "Concatenated Path Down",
            7 => "Administratively Down",
            8 => "Reverse Concatenated Path Down",
            _ => "Invalid Diagnostic",
        }
    }

    /// Whether an end that says so must not be sent traffic, whatever its state.
    pub const fn is_path_down(self) -> bool {
        matches!(self, Self::PATH_DOWN | Self::CONCATENATED_PATH_DOWN | Self::REVERSE_CONCATENATED_PATH_DOWN)
    }
}

/// The six flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// For point to multipoint, which is not done.
    pub const MULTIPOINT: Flags = Flags(1);
    /// The sender wishes silence, which is not done.
    pub const DEMAND: Flags = Flags(2);
    /// There is authentication, which is not done.
    pub const AUTH: Flags = Flags(4);
    /// BFD of the sender goes on without its control plane.
    pub const CONTROL_PLANE: Flags = Flags(8);
    /// The answer to a poll.
    pub const FINAL: Flags = Flags(16);
    /// A packet with [`Flags::FINAL`] is asked for.
    pub const POLL: Flags = Flags(32);

    const NAMES: [(Flags, &'static str); 6] = [
        (Self::MULTIPOINT, "multipoint"),
        (Self::DEMAND, "demand"),
        (Self::AUTH, "auth"),
        (Self::CONTROL_PLANE, "ctl"),
        (Self::FINAL, "final"),
        (Self::POLL, "poll"),
    ];

    /// Whether all flags of the other are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Sets flags.
    pub const fn set(&mut self, other: Flags) {
        self.0 |= other.0;
    }

    /// Clears flags.
    pub const fn clear(&mut self, other: Flags) {
        self.0 &= !other.0;
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = Self::NAMES.iter().filter(|(flag, _)| self.has(*flag)).map(|(_, name)| *name);
        let names: Vec<_> = set.collect();
        f.write_str(if names.is_empty() { "none".to_owned() } else { names.join(" ") }.as_str())
    }
}

/// Too few bytes for a control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Received too-short BFD control message (only {0} bytes long, at least {PACKET_LEN} required).")]
pub struct TooShort(pub usize);

/// A control packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlPacket {
    /// The version of the protocol, three bits.
    pub version: u8,
    /// `bfd.LocalDiag` of the sender.
    pub diagnostic: Diagnostic,
    /// `bfd.SessionState` of the sender.
    pub state: State,
    /// The flags.
    pub flags: Flags,
    /// The session goes down when this number of packets in a row are lost.
    pub mult: u8,
    /// The length that the packet says it has, bytes.
    pub length: u8,
    /// The sender's number for the session.
    pub my_discriminator: u32,
    /// The receiver's number for it, 0 if the sender does not know it.
    pub your_discriminator: u32,
    /// The sender sends no more often than that, µs.
    pub min_tx_us: u32,
    /// The sender takes no more often than that, µs.
    pub min_rx_us: u32,
    /// The same for echoes, µs.
    pub min_echo_rx_us: u32,
}

/// Why a control packet is not for the session, RFC 5880 section 6.8.6. The texts are Open vSwitch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum Fault {
    #[error("Incorrect version")]
    Version,
    #[error("Authenticated control message with authentication disabled")]
    Authenticated,
    #[error("Unexpected length")]
    Length,
    #[error("Zero multiplier")]
    ZeroMult,
    #[error("Unsupported multipoint flag")]
    Multipoint,
    #[error("NULL my_disc")]
    NoMyDiscriminator,
    #[error("Incorrect your_disc")]
    YourDiscriminator,
    #[error("Null your_disc")]
    NoYourDiscriminator,
}

impl ControlPacket {
    /// A packet to be filled in.
    pub(crate) const fn outgoing() -> Self {
        ControlPacket {
            version: VERSION,
            diagnostic: Diagnostic::NONE,
            state: State::Down,
            flags: Flags(0),
            mult: 0,
            length: PACKET_LEN as u8,
            my_discriminator: 0,
            your_discriminator: 0,
            min_tx_us: 0,
            min_rx_us: 0,
            min_echo_rx_us: 0,
        }
    }

    /// Reads the payload of a UDP packet.
    ///
    /// # Errors
    /// If it is too short. Whether the packet makes sense is for [`ControlPacket::fault`] to say.
    pub fn decode(payload: &[u8]) -> Result<Self, TooShort> {
        let bytes: &[u8; PACKET_LEN] = payload.first_chunk().ok_or(TooShort(payload.len()))?;
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Ok(ControlPacket {
            version: bytes[0] >> 5,
            diagnostic: Diagnostic(bytes[0] & 0x1f),
            state: State::ALL[usize::from(bytes[1] >> 6)],
            flags: Flags(bytes[1] & 0x3f),
            mult: bytes[2],
            length: bytes[3],
            my_discriminator: word(4),
            your_discriminator: word(8),
            min_tx_us: word(12),
            min_rx_us: word(16),
            min_echo_rx_us: word(20),
        })
    }

    /// The bytes.
    pub fn encode(&self) -> [u8; PACKET_LEN] {
        let mut bytes = [0; PACKET_LEN];
        bytes[0] = self.version << 5 | self.diagnostic.0 & 0x1f;
        bytes[1] = (self.state as u8) << 6 | self.flags.0 & 0x3f;
        (bytes[2], bytes[3]) = (self.mult, self.length);
        let words =
            [self.my_discriminator, self.your_discriminator, self.min_tx_us, self.min_rx_us, self.min_echo_rx_us];
        for (place, word) in bytes[4..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// What is wrong with a packet that came as a payload of `payload_len` bytes to the session of that discriminator.
    /// The order is Open vSwitch's, which decides what the log says. A packet that says to be longer than its payload is
    /// refused as the RFC asks; Open vSwitch takes it.
    pub fn fault(&self, payload_len: usize, discriminator: u32) -> Option<Fault> {
        let length = usize::from(self.length);
        let checks = [
            (self.version != VERSION, Fault::Version),
            (self.flags.has(Flags::AUTH), Fault::Authenticated),
            (length < PACKET_LEN || length > payload_len, Fault::Length),
            (self.mult == 0, Fault::ZeroMult),
            (self.flags.has(Flags::MULTIPOINT), Fault::Multipoint),
            (self.my_discriminator == 0, Fault::NoMyDiscriminator),
            (self.your_discriminator != 0 && self.your_discriminator != discriminator, Fault::YourDiscriminator),
            (self.your_discriminator == 0 && self.state > State::Down, Fault::NoYourDiscriminator),
        ];
        checks.into_iter().find_map(|(is_wrong, fault)| is_wrong.then_some(fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_read_is_written_again(bytes: [u8; PACKET_LEN]) {
            prop_assert_eq!(ControlPacket::decode(&bytes).unwrap().encode(), bytes);
        }

        #[test]
        fn only_short_payloads_cannot_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(ControlPacket::decode(&bytes).err(), (bytes.len() < PACKET_LEN).then_some(TooShort(bytes.len())));
        }
    }

    #[test]
    fn each_fault_is_found() {
        let good = ControlPacket { mult: 3, my_discriminator: 7, your_discriminator: 9, ..ControlPacket::outgoing() };
        assert_eq!(good.fault(PACKET_LEN, 9), None);
        assert_eq!(ControlPacket { length: 30, ..good }.fault(30, 9), None, "longer than needed");
        let with = |flags| ControlPacket { flags, ..good };
        let faults = [
            (ControlPacket { version: 0, ..good }, Fault::Version),
            (with(Flags::AUTH), Fault::Authenticated),
            (ControlPacket { length: 23, ..good }, Fault::Length),
            (ControlPacket { length: 25, ..good }, Fault::Length),
            (ControlPacket { mult: 0, ..good }, Fault::ZeroMult),
            (with(Flags::MULTIPOINT), Fault::Multipoint),
            (ControlPacket { my_discriminator: 0, ..good }, Fault::NoMyDiscriminator),
            (ControlPacket { your_discriminator: 8, ..good }, Fault::YourDiscriminator),
            (ControlPacket { your_discriminator: 0, state: State::Up, ..good }, Fault::NoYourDiscriminator),
        ];
        for (packet, fault) in faults {
            assert_eq!(packet.fault(PACKET_LEN, 9), Some(fault));
        }
    }

    #[test]
    fn flags_are_named() {
        assert_eq!(Flags::default().to_string(), "none");
        assert_eq!(Flags(Flags::POLL.0 | Flags::DEMAND.0).to_string(), "demand poll");
    }
}
