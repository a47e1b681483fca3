//! The key of a table search, stored as its difference from the packet's key, and the words of keys.

use arrayvec::ArrayVec;
use sluice_action::ALLOCATION_BYTES;
use sluice_flow::layout::{self, FLOW_KEY_SIZE, SHARED_LINES, Span};
use sluice_flow::{FlowKey, LINE_SIZE, Line, OfPort, PacketKey};

/// Words of a key's lines, and of those that packets have, too. A tunnel's options are left out of all this: what a rule
/// matches of them, any search may have.
pub(crate) const WORDS: usize = FLOW_KEY_SIZE / 8;
pub(crate) const PACKET_WORDS: usize = SHARED_LINES * LINE_WORDS;
const LINE_WORDS: usize = LINE_SIZE / 8;

/// Bits of word `place` of a key: `value` where `mask` has ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WordBits {
    pub place: u8,
    pub mask: u64,
    pub value: u64,
}

/// The key of a search, as its difference from the packet's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SearchKey {
    pub in_port: OfPort,
    /// Only the input port is known of it: it stands for many searches.
    pub is_open: bool,
    /// The words that differ, each with the bits that differ.
    pub altered: Box<[WordBits]>,
}

impl SearchKey {
    /// The key of a search for a packet that came with key `original`. Both have an OpenFlow port.
    pub fn new(original: &FlowKey, key: &FlowKey) -> Self {
        // On the stack first: what is kept is one allocation of its size.
        let mut altered: ArrayVec<WordBits, WORDS> = ArrayVec::new();
        for (line, (now, initial)) in key.lines.iter().zip(&INITIAL_LINES).enumerate() {
            let was = if line < PACKET_WORDS / LINE_WORDS { &original.lines[line] } else { initial };
            // Most lines are unchanged.
            if was == now {
                continue;
            }
            for place in LINE_WORDS * line..LINE_WORDS * (line + 1) {
                let (was, value) = (line_word(was, place), line_word(now, place));
                let mask = (was ^ value) & !(if place == IN_PORT_PLACE { IN_PORT_BITS } else { 0 });
                if mask != 0 {
                    altered.push(WordBits { place: place as u8, mask, value });
                }
            }
        }
        SearchKey {
            in_port: OfPort(key.number(layout::IN_PORT) as u16),
            is_open: false,
            altered: Box::from(&altered[..]),
        }
    }

    /// The key of many searches with that input port.
    pub fn open(in_port: OfPort) -> Self {
        SearchKey { in_port, is_open: true, altered: Box::default() }
    }

    /// The memory that it takes beside itself.
    pub fn further_bytes(&self) -> usize {
        if self.altered.is_empty() { 0 } else { ALLOCATION_BYTES + size_of_val(&*self.altered) }
    }
}

/// The word of the input port, and the port's bits in it.
pub(crate) const IN_PORT_PLACE: usize = layout::IN_PORT.offset / 8;
pub(crate) const IN_PORT_BITS: u64 = span_bits(layout::IN_PORT);

/// The initial values of registers and metadata.
pub(crate) const INITIAL: [u64; WORDS] = {
    let mut words = [0; WORDS];
    let unset = (OfPort::UNSET.0 as u32).swap_bytes() as u64;
    words[layout::ACTSET_OUTPUT.offset / 8] = unset << (layout::ACTSET_OUTPUT.offset % 8 * 8);
    words
};

/// The same, as lines.
const INITIAL_LINES: [Line; WORDS / LINE_WORDS] = {
    let mut lines = [Line::ZERO; WORDS / LINE_WORDS];
    let mut byte = 0;
    while byte < WORDS * 8 {
        lines[byte / LINE_SIZE].0[byte % LINE_SIZE] = INITIAL[byte / 8].to_le_bytes()[byte % 8];
        byte += 1;
    }
    lines
};

/// A field's bits in its word, as a little-endian number.
pub(crate) const fn span_bits(span: Span) -> u64 {
    (u64::MAX >> (64 - span.size * 8)) << (span.offset % 8 * 8)
}

pub(crate) fn in_port_word(port: OfPort) -> u64 {
    u64::from(u32::from(port.0).swap_bytes()) << (layout::IN_PORT.offset % 8 * 8)
}

pub(crate) fn word(key: &FlowKey, place: usize) -> u64 {
    line_word(&key.lines[place / 8], place)
}

pub(crate) fn mask_word(mask: &PacketKey, place: usize) -> u64 {
    line_word(mask.line(place / 8), place)
}

fn line_word(line: &Line, place: usize) -> u64 {
    let (chunks, _) = line.0.as_chunks::<8>();
    u64::from_le_bytes(chunks[place % 8])
}
