//! The stamp that identifies a packet: the last bytes of its frame, which stay when a switch pushes or pops headers.

/// Identifies a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The trial; packets of an earlier one do not count.
    pub trial: u16,
    /// The lane.
    pub lane: u16,
    /// Its number in the lane, modulo 2^32.
    pub number: u32,
    /// When it was due, nanoseconds of the generator's clock.
    pub due_ns: u64,
}

/// Bytes of a stamp: the payload of the shortest UDP frame.
pub const STAMP_SIZE: usize = 18;

const MAGIC: [u8; 2] = [0x51, 0x1c];

impl Stamp {
    /// Writes it over the end of a frame.
    pub fn write(&self, frame: &mut [u8]) {
        if let Some(end) = frame.last_chunk_mut::<STAMP_SIZE>() {
            *end = self.bytes();
        }
    }

    fn bytes(&self) -> [u8; STAMP_SIZE] {
        let mut out = [0; STAMP_SIZE];
        out[..2].copy_from_slice(&MAGIC);
        out[2..4].copy_from_slice(&self.trial.to_be_bytes());
        out[4..6].copy_from_slice(&self.lane.to_be_bytes());
        out[6..10].copy_from_slice(&self.number.to_be_bytes());
        out[10..].copy_from_slice(&self.due_ns.to_be_bytes());
        out
    }

    /// Reads the end of a frame; `None` if there is no stamp.
    pub fn read(frame: &[u8]) -> Option<Stamp> {
        let end: &[u8; STAMP_SIZE] = frame.last_chunk()?;
        let word = |at: usize| u16::from_be_bytes([end[at], end[at + 1]]);
        (end[..2] == MAGIC).then(|| Stamp {
            trial: word(2),
            lane: word(4),
            number: u32::from(word(6)) << 16 | u32::from(word(8)),
            due_ns: (0..4).fold(0, |sum, i| sum << 16 | u64::from(word(10 + 2 * i))),
        })
    }

    /// The ones' complement sum of its 16-bit words, for a checksum that covers them. `is_odd`: they begin at an odd
    /// offset from the checksum's words.
    pub fn sum(&self, is_odd: bool) -> u16 {
        let sum: u32 = self.bytes().chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = ((sum & 0xffff) + (sum >> 16)) as u16;
        if is_odd { sum.swap_bytes() } else { sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(trial: u16, lane: u16, number: u32, due_ns: u64, size in 0usize..80) {
            let stamp = Stamp { trial, lane, number, due_ns };
            let mut frame = vec![0; size];
            stamp.write(&mut frame);
            prop_assert_eq!(Stamp::read(&frame), (size >= STAMP_SIZE).then_some(stamp));
        }

        #[test]
        fn no_bytes_make_it_panic(frame in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Stamp::read(&frame);
        }
    }
}
