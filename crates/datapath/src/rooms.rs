//! Where a PMD's cycles go, room by room, when asked for (`Config::profile`): the clock is read between rooms, once a
//! batch, which itself costs some cycles a packet. When not asked for, it is a branch a room.

use sluice_simd::tsc;

/// A part of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Room {
    /// Polling a receive queue; with a generator port, making the packets.
    Rx,
    /// From bytes to keys.
    Parse,
    /// Hashing keys and asking the exact match cache.
    Emc,
    /// The signature match cache.
    Smc,
    /// The megaflow subtables, the distributor before them, and inserting into the caches what they found.
    Subtables,
    /// Asking the tables.
    Upcall,
    /// Actions.
    Act,
    /// Handing packets to ports.
    Tx,
}

impl Room {
    /// All of them, in the order of the walk.
    pub const ALL: [Room; 8] =
        [Room::Rx, Room::Parse, Room::Emc, Room::Smc, Room::Subtables, Room::Upcall, Room::Act, Room::Tx];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Room::Rx => "rx",
            Room::Parse => "parse",
            Room::Emc => "emc",
            Room::Smc => "smc",
            Room::Subtables => "subtables",
            Room::Upcall => "upcall",
            Room::Act => "act",
            Room::Tx => "tx",
        }
    }
}

/// Cycles by room, in the order of [`Room::ALL`].
pub type RoomCycles = [u64; Room::ALL.len()];

/// Counts cycles by room.
#[derive(Debug)]
pub(crate) struct RoomClock {
    is_on: bool,
    last: u64,
    pub cycles: RoomCycles,
}

impl RoomClock {
    pub fn new(is_on: bool) -> Self {
        RoomClock { is_on, last: 0, cycles: Default::default() }
    }

    /// Lets what follows be counted from now.
    #[inline]
    pub fn start(&mut self) {
        if self.is_on {
            self.last = tsc::now();
        }
    }

    /// Charges what has passed since the last mark to `room`.
    #[inline]
    pub fn mark(&mut self, room: Room) {
        if self.is_on {
            let now = tsc::now();
            self.cycles[room as usize] += now.saturating_sub(self.last);
            self.last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_in_their_places() {
        Room::ALL.iter().enumerate().for_each(|(i, room)| assert_eq!(*room as usize, i));
        let mut clock = RoomClock::new(false);
        clock.start();
        clock.mark(Room::Tx);
        assert_eq!(clock.cycles, RoomCycles::default());
    }
}
