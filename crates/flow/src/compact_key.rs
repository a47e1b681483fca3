//! A packet's key without its absent lines.

use crate::layout::{self, PACKET_LINES};
use crate::{LINE_SIZE, Line, PacketKey};

/// A [`PacketKey`] to be kept: 80 bytes for an ordinary IPv4 packet and a line more for each further one that is there,
/// where the key itself has 512.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactKey {
    /// Line 0 as words, with its presence byte: words, since a line would want to be aligned.
    first: [u64; 8],
    /// Those of lines 1 to 7 that are there.
    further: Box<[Line]>,
}

/// Bit `i`: line `i` is there, by the words of line 0.
fn presence(first: &[u64; 8]) -> usize {
    usize::from(first[layout::PRESENCE.offset / 8].to_le_bytes()[layout::PRESENCE.offset % 8])
}

impl CompactKey {
    /// One of the words of the key, as [`Line::words`] gives them; zero if its line is absent.
    pub fn word(&self, place: usize) -> u64 {
        let (line, presence) = (place / 8, presence(&self.first));
        match line {
            0 => self.first[place],
            _ if presence >> line & 1 == 0 => 0,
            _ => self.further[before(presence, line)].words()[place % 8],
        }
    }

    /// The memory that it takes beside itself, without what an allocation takes.
    pub fn further_bytes(&self) -> usize {
        self.further.len() * LINE_SIZE
    }
}

/// How many of the lines 1 to 7 in front of `line` are there.
fn before(presence: usize, line: usize) -> usize {
    (presence & ((1 << line) - 1) & !1).count_ones() as usize
}

impl From<&PacketKey> for CompactKey {
    fn from(key: &PacketKey) -> Self {
        let first = key.lines[0].words();
        let there = (1..PACKET_LINES).filter(|i| presence(&first) >> i & 1 != 0);
        CompactKey { first, further: there.map(|i| key.lines[i]).collect() }
    }
}

impl From<&CompactKey> for PacketKey {
    fn from(compact: &CompactKey) -> Self {
        let mut key = PacketKey::ZERO;
        key.lines[0] = Line::from_words(compact.first);
        let there = (1..PACKET_LINES).filter(|i| presence(&compact.first) >> i & 1 != 0);
        there.zip(&compact.further).for_each(|(i, line)| key.lines[i] = *line);
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout;

    #[test]
    fn a_key_comes_back_as_it_was() {
        let mut key = PacketKey::ZERO;
        key.set(layout::NW_SRC, &[10, 0, 0, 1]);
        for span in [layout::TP_DST, layout::IPV6_DST, layout::CT_LABEL] {
            key.make_present(span.line());
            assert_eq!(PacketKey::from(&CompactKey::from(&key)), key, "a line of zeros");
            key.set(span, &vec![7; span.size]);
            let again = PacketKey::from(&CompactKey::from(&key));
            assert_eq!((again, again.get(span)), (key, key.get(span)));
            let words = |line: usize| key.line(line).words();
            (0..8 * PACKET_LINES).for_each(|i| assert_eq!(CompactKey::from(&key).word(i), words(i / 8)[i % 8]));
        }
    }
}
