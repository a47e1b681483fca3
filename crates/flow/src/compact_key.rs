//! A packet's key without its absent lines.

use crate::layout::PACKET_LINES;
use crate::{Line, PacketKey};

/// A [`PacketKey`] to be kept: 72 bytes for an ordinary IPv4 packet, where the key itself has 320.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactKey {
    /// Line 0 as words, with its presence byte: words, since a line would want to be aligned.
    first: [u64; 8],
    /// Lines 1 to 4, if one of them is there.
    further: Option<Box<[Line; PACKET_LINES - 1]>>,
}

impl CompactKey {
    /// One of the words of the key, as [`Line::words`] gives them; zero if its line is absent.
    pub fn word(&self, place: usize) -> u64 {
        match place / 8 {
            0 => self.first[place],
            line => self.further.as_ref().map_or(0, |lines| lines[line - 1].words()[place % 8]),
        }
    }
}

impl From<&PacketKey> for CompactKey {
    fn from(key: &PacketKey) -> Self {
        let is_there = (1..PACKET_LINES).any(|i| !key.line(i).is_zero());
        let further = is_there.then(|| Box::new(std::array::from_fn(|i| *key.line(i + 1))));
        CompactKey { first: key.lines[0].words(), further }
    }
}

impl From<&CompactKey> for PacketKey {
    fn from(compact: &CompactKey) -> Self {
        let mut key = PacketKey::ZERO;
        key.lines[0] = Line::from_words(compact.first);
        match &compact.further {
            Some(further) => key.lines[1..].copy_from_slice(&further[..]),
            // A line said to be there is one of zeros.
            None => key.lines[1..].fill(Line::ZERO),
        }
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
