//! The protocol data unit, IEEE 802.1AX section 6.4.2, and its frame.

use std::fmt;

/// Its length, bytes.
pub const PDU_LEN: usize = 110;

/// The Ethernet type of the slow protocols.
pub const ETHERTYPE: u16 = 0x8809;

const ETHERNET_LEN: usize = 14;

/// The length of its frame, bytes.
pub const FRAME_LEN: usize = ETHERNET_LEN + PDU_LEN;

/// The address of the slow protocols.
const DST_MAC: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x02];

const SUBTYPE_LACP: u8 = 1;
const SUBTYPE_MARKER: u8 = 2;
const VERSION: u8 = 1;

/// The three parts of a unit: where each begins, its type and its length.
const ACTOR: (usize, u8, u8) = (2, 1, 20);
const PARTNER: (usize, u8, u8) = (22, 2, 20);
const COLLECTOR: (usize, u8, u8) = (42, 3, 16);

/// The flags of an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State(pub u8);

impl State {
    /// It begins to talk.
    pub const ACTIVITY: State = State(0x01);
    /// It wants to hear from the other end every second.
    pub const TIMEOUT: State = State(0x02);
    /// Its link may be one of several.
    pub const AGGREGATION: State = State(0x04);
    /// Its link is in the right aggregate.
    pub const SYNC: State = State(0x08);
    /// It takes traffic.
    pub const COLLECTING: State = State(0x10);
    /// It sends traffic.
    pub const DISTRIBUTING: State = State(0x20);
    /// It has heard nothing of the other end.
    pub const DEFAULTED: State = State(0x40);
    /// It has not heard of the other end for a while.
    pub const EXPIRED: State = State(0x80);

    const NAMES: [(State, &'static str); 8] = [
        (Self::ACTIVITY, "activity"),
        (Self::TIMEOUT, "timeout"),
        (Self::AGGREGATION, "aggregation"),
        (Self::SYNC, "synchronized"),
        (Self::COLLECTING, "collecting"),
        (Self::DISTRIBUTING, "distributing"),
        (Self::DEFAULTED, "defaulted"),
        (Self::EXPIRED, "expired"),
    ];

    /// Whether all flags of the other are set.
    pub const fn has(self, other: State) -> bool {
        self.0 & other.0 == other.0
    }

    /// Sets or clears flags.
    pub const fn set(&mut self, other: State, is_set: bool) {
        if is_set {
            self.0 |= other.0;
        } else {
            self.0 &= !other.0;
        }
    }
}

/// Each flag behind a space, as Open vSwitch writes them.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Self::NAMES.iter().filter(|(flag, _)| self.has(*flag)).try_for_each(|(_, name)| write!(f, " {name}"))
    }
}

/// What a unit says of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Info {
    /// The priority of its system.
    pub system_priority: u16,
    /// The id of its system.
    pub system_id: [u8; 6],
    /// Its operational key: links with the same one may form an aggregate.
    pub key: u16,
    /// The priority of its port.
    pub port_priority: u16,
    /// The id of its port.
    pub port_id: u16,
    /// Its flags.
    pub state: State,
}

impl Info {
    fn read(bytes: &[u8; PDU_LEN], at: usize) -> Self {
        let word = |offset: usize| u16::from_be_bytes([bytes[at + offset], bytes[at + offset + 1]]);
        let mut system_id = [0; 6];
        system_id.copy_from_slice(&bytes[at + 2..at + 8]);
        let (system_priority, key, port_priority, port_id) = (word(0), word(8), word(10), word(12));
        Info { system_priority, system_id, key, port_priority, port_id, state: State(bytes[at + 14]) }
    }

    fn write(&self, bytes: &mut [u8; PDU_LEN], at: usize) {
        let to = &mut bytes[at..at + 15];
        to[..2].copy_from_slice(&self.system_priority.to_be_bytes());
        to[2..8].copy_from_slice(&self.system_id);
        to[8..10].copy_from_slice(&self.key.to_be_bytes());
        to[10..12].copy_from_slice(&self.port_priority.to_be_bytes());
        to[12..14].copy_from_slice(&self.port_id.to_be_bytes());
        to[14] = self.state.0;
    }
}

/// A unit of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pdu {
    /// The end that sends it.
    pub actor: Info,
    /// The other end, as the sender knows it.
    pub partner: Info,
}

/// What a payload of a slow protocol is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A unit of this protocol.
    Lacp(Pdu),
    /// One of the marker protocol.
    Marker,
    /// Too short, of another protocol, or broken.
    Bad,
}

impl Pdu {
    /// Reads a frame's payload. What stands behind the unit is ignored.
    pub fn read(payload: &[u8]) -> Received {
        let Some(bytes) = payload.first_chunk::<PDU_LEN>() else { return Received::Bad };
        let has = |(at, kind, len): (usize, u8, u8)| bytes[at] == kind && bytes[at + 1] == len;
        match bytes[0] {
            SUBTYPE_LACP if has(ACTOR) && has(PARTNER) => {
                Received::Lacp(Pdu { actor: Info::read(bytes, ACTOR.0 + 2), partner: Info::read(bytes, PARTNER.0 + 2) })
            }
            SUBTYPE_MARKER => Received::Marker,
            _ => Received::Bad,
        }
    }

    /// The bytes.
    pub fn write(&self) -> [u8; PDU_LEN] {
        let mut bytes = [0; PDU_LEN];
        (bytes[0], bytes[1]) = (SUBTYPE_LACP, VERSION);
        for (at, kind, len) in [ACTOR, PARTNER, COLLECTOR] {
            (bytes[at], bytes[at + 1]) = (kind, len);
        }
        self.actor.write(&mut bytes, ACTOR.0 + 2);
        self.partner.write(&mut bytes, PARTNER.0 + 2);
        bytes
    }
}

/// The frame that carries a unit from a port with that Ethernet address.
pub fn compose_frame(pdu: &Pdu, mac: [u8; 6]) -> [u8; FRAME_LEN] {
    let mut frame = [0; FRAME_LEN];
    frame[..6].copy_from_slice(&DST_MAC);
    frame[6..12].copy_from_slice(&mac);
    frame[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
    frame[ETHERNET_LEN..].copy_from_slice(&pdu.write());
    frame
}

/// The payload of a received frame of the slow protocols, VLAN tags or not; `None` if it is of another type.
pub fn read_frame(frame: &[u8]) -> Option<&[u8]> {
    const TAG_LEN: usize = 4;
    let mut rest = frame.get(12..)?;
    while let [0x81, 0x00, ..] | [0x88, 0xa8, ..] = rest {
        rest = rest.get(TAG_LEN..)?;
    }
    rest.strip_prefix(&ETHERTYPE.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn info() -> impl Strategy<Value = Info> {
        let words = (any::<u16>(), any::<[u8; 6]>(), any::<u16>(), any::<u16>(), any::<u16>(), any::<u8>());
        words.prop_map(|(system_priority, system_id, key, port_priority, port_id, state)| Info {
            system_priority,
            system_id,
            key,
            port_priority,
            port_id,
            state: State(state),
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(actor in info(), partner in info(), tags in 0usize..3) {
            let pdu = Pdu { actor, partner };
            let plain = compose_frame(&pdu, [2, 0, 0, 0, 0, 1]);
            let tagged = [&plain[..12], &[0x81, 0, 0, 5].repeat(tags), &plain[12..], &[0; 4]].concat();
            prop_assert_eq!(Pdu::read(read_frame(&tagged).unwrap()), Received::Lacp(pdu));
        }

        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Received::Lacp(pdu) = Pdu::read(&bytes) {
                prop_assert_eq!(Pdu::read(&pdu.write()), Received::Lacp(pdu));
            }
            let _ = read_frame(&bytes);
        }
    }

    #[test]
    fn what_is_no_unit_is_told_apart() {
        let bytes = Pdu::default().write();
        assert_eq!(Pdu::read(&bytes), Received::Lacp(Pdu::default()));
        (0..PDU_LEN).for_each(|n| assert_eq!(Pdu::read(&bytes[..n]), Received::Bad, "{n} bytes"));
        for (at, value, expected) in [
            (0, 2, Received::Marker),
            (0, 3, Received::Bad),
            (2, 2, Received::Bad),
            (3, 19, Received::Bad),
            (23, 0, Received::Bad),
        ] {
            let mut changed = bytes;
            changed[at] = value;
            assert_eq!(Pdu::read(&changed), expected, "byte {at}");
        }
    }

    /// The layout of Open vSwitch's `struct lacp_pdu`, byte by byte.
    #[test]
    fn the_bytes_are_the_standards() {
        let actor = Info {
            system_priority: 0x0102,
            system_id: [3, 4, 5, 6, 7, 8],
            key: 0x090a,
            port_priority: 0x0b0c,
            port_id: 0x0d0e,
            state: State(0x0f),
        };
        let bytes = Pdu { actor, partner: Info::default() }.write();
        assert_eq!(bytes[..19], [1, 1, 1, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!((bytes[22], bytes[23], bytes[42], bytes[43]), (2, 20, 3, 16));
        assert_eq!(bytes[44..], [0; 66]);
    }
}
