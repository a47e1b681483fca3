//! Which subtables can match a packet at all, so that a lookup can skip the others.
//!
//! For each prefix field, a trie gives the prefix *lengths* that match the packet's value. If the lengths have few
//! combinations, the subtables with each combination are looked up. Otherwise bit sets are used: for each field and
//! length there is the set of subtables whose masks have that length. The union over the matching lengths, intersected
//! over the fields, leaves the subtables that can match; each of the others has a field in which no prefix matches. A
//! mask that is no prefix counts by the prefix that it begins with. Source of the idea: Srinivasan, Suri, Varghese:
//! Packet classification using tuple space search, SIGCOMM '99. Measured alternatives: docs/notes/bounded-misses.md.

use crate::bucket;
use crate::node_pool::NodePool;
use crate::prefixes::Prefixes;
use crate::prune_index::{Lengths, PruneIndex};
use crate::tag_index::TagIndex;
use arrayvec::ArrayVec;
use sluice_action::FlowId;
use sluice_flow::PacketKey;
use sluice_flow::layout::{self, Span};

/// The prefix fields.
const FIELDS: [Span; 6] =
    [layout::NW_SRC, layout::NW_DST, layout::TP_SRC, layout::TP_DST, layout::IPV6_SRC, layout::IPV6_DST];

/// The number of prefix lengths of a field of 128 bits, 0 included.
const LENGTHS: usize = 129;

/// The index over the listed subtables of one (in_port, recirc_id) and their megaflows.
#[derive(Debug)]
pub(crate) struct Pruning {
    fields: [FieldIndex; FIELDS.len()],
    /// The meaning of the bits in the sets.
    index: PruneIndex,
    /// How many bits are in use.
    bits: u32,
    /// The megaflows whose prefixes are in the tries: their ids, by serial numbers, since an id may have a new owner
    /// before the notice of the old one has come.
    flows: TagIndex,
}

/// One field: its prefixes, and the subtables by prefix length.
#[derive(Debug)]
struct FieldIndex {
    prefixes: Prefixes,
    /// For each length, up to the longest there has been: the masks that have it, as bits of the index. If there is any
    /// set, there is one for length 0.
    by_len: Vec<Set>,
    /// How many bits each of these sets has.
    sizes: [u32; LENGTHS],
    /// Bit `n - 1`: some subtable has a prefix of `n` bits.
    present: u128,
}

/// The most combinations of lengths that are looked up one by one.
const COMBINATIONS: usize = 4;

/// So few subtables that match in one field are asked as they are: the other fields would cost more.
const FEW: u32 = 2;

/// Words in a cache line of a set.
const LINE_WORDS: usize = 8;

/// A part of a set: one cache line, so that a vector instruction takes all of it.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u64; LINE_WORDS]);

/// A set of index bits, and a summary of its words that are not zero.
#[derive(Clone, Debug, Default)]
struct Set {
    lines: Vec<Line>,
    summary: Vec<u64>,
}

/// The sets of one field that a key matches, to be united.
#[derive(Clone, Copy, Debug)]
struct Union<'a> {
    field: &'a FieldIndex,
    /// The lengths that match. Masks without a prefix match, too.
    lengths: u128,
    /// How many sets there are, and how many bits they have together.
    sets: u32,
    size: u32,
}

/// The unions of several fields, of which the intersection is what can match. Small, since a list of sets would be moved by
/// kilobytes: 165 cycles a packet (2026-11-29).
type Unions<'a> = ArrayVec<Union<'a>, { FIELDS.len() }>;

/// The tag of a serial number: its low bits, which tell a megaflow from all that had its id in the time of a notice.
fn serial_tag(serial: u64) -> u32 {
    bucket::tag(serial as u32)
}

impl Pruning {
    /// No subtable yet, of packets of that ingress port.
    pub fn new(port: u32) -> Self {
        let field =
            |_| FieldIndex { prefixes: Prefixes::new(port), by_len: Vec::new(), sizes: [0; LENGTHS], present: 0 };
        let fields = std::array::from_fn(field);
        Pruning { fields, index: PruneIndex::default(), bits: 0, flows: TagIndex::default() }
    }

    /// Lists a subtable that is not listed.
    pub fn list(&mut self, place: u32, mask: &PacketKey) {
        if let Some(bit) = self.index.insert(place, lengths(mask)) {
            self.change_sets(bit, mask, true);
        }
    }

    /// Removes a subtable from the list, if it is listed.
    pub fn unlist(&mut self, place: u32, mask: &PacketKey) {
        if let Some(bit) = self.index.remove(place, lengths(mask)) {
            self.change_sets(bit, mask, false);
        }
    }

    fn change_sets(&mut self, bit: u32, mask: &PacketKey, on: bool) {
        self.bits = if on { self.bits + 1 } else { self.bits - 1 };
        for (field, span) in self.fields.iter_mut().zip(FIELDS) {
            let len = prefix_len(mask, span);
            if field.by_len.len() <= usize::from(len) {
                field.by_len.resize_with(usize::from(len) + 1, Set::default);
            }
            field.by_len[usize::from(len)].change(bit, on);
            let size = &mut field.sizes[usize::from(len)];
            *size = if on { *size + 1 } else { *size - 1 };
            if len > 0 {
                let bit = 1 << (len - 1);
                field.present = if *size > 0 { field.present | bit } else { field.present & !bit };
            }
        }
    }

    /// Whether a subtable is listed.
    pub fn has(&self, place: u32) -> bool {
        self.index.has(place)
    }

    /// Adds the prefixes of a megaflow of a listed subtable.
    pub fn add_flow(&mut self, id: FlowId, serial: u64, mask: &PacketKey, key: &PacketKey, nodes: &mut NodePool) {
        if self.flows.insert(serial_tag(serial), id.0) {
            self.change_prefixes(mask, key, true, nodes);
        }
    }

    /// Removes the prefixes of a dead megaflow, if they were added.
    pub fn remove_flow(&mut self, id: FlowId, serial: u64, mask: &PacketKey, key: &PacketKey, nodes: &mut NodePool) {
        if self.flows.remove(serial_tag(serial), id.0) {
            self.change_prefixes(mask, key, false, nodes);
        }
    }

    fn change_prefixes(&mut self, mask: &PacketKey, key: &PacketKey, on: bool, nodes: &mut NodePool) {
        for (field, span) in self.fields.iter_mut().zip(FIELDS) {
            let len = prefix_len(mask, span);
            if len > 0 {
                let prefix = value(key, span) & !u128::MAX.checked_shr(len.into()).unwrap_or(0);
                match on {
                    true => field.prefixes.insert(nodes, prefix, len),
                    false => field.prefixes.remove(nodes, prefix, len),
                }
            }
        }
    }

    /// Puts all trie nodes back, before it is dropped.
    pub fn clear(&mut self, nodes: &mut NodePool) {
        self.fields.iter_mut().for_each(|field| field.prefixes.clear(nodes));
    }

    /// Calls `ask` with the places of the listed subtables that can match, until it returns true.
    ///
    /// Inlined, so that it is compiled for the caller's instruction set.
    #[inline(always)]
    pub fn survivors(&self, nodes: &NodePool, key: &PacketKey, mut ask: impl FnMut(u32) -> bool) {
        let mut matching = [0; FIELDS.len()];
        let mut combinations = 1;
        // The combination, if there is one alone.
        let mut only = Lengths::default();
        for (number, (field, span)) in self.fields.iter().zip(FIELDS).enumerate() {
            if field.present != 0 {
                let lengths = field.prefixes.lengths(nodes, value(key, span)) & field.present;
                matching[number] = lengths;
                combinations *= lengths.count_ones() as usize + usize::from(field.may_be_open());
                only = only.with(number, if lengths == 0 { 0 } else { lengths.trailing_zeros() as u8 + 1 });
            }
        }
        if combinations == 1 {
            if let Some(bit) = self.index.of(only) {
                let _ = self.index.subtables(bit).find(|place| ask(*place));
            }
            return;
        }
        // Some field has no prefix of the key in any subtable, so none can match, however many lengths others have.
        if combinations == 0 {
            return;
        }
        if combinations > COMBINATIONS {
            return self.places(&self.unions(&matching), ask);
        }
        let (all, n) = self.combinations(&matching);
        for lengths in &all[..n] {
            if self.index.of(*lengths).is_some_and(|bit| self.index.subtables(bit).any(&mut ask)) {
                return;
            }
        }
    }

    /// The combinations of matching lengths, one for each field, and their number, at most [`COMBINATIONS`].
    #[inline(always)]
    fn combinations(&self, matching: &[u128; FIELDS.len()]) -> ([Lengths; COMBINATIONS], usize) {
        let (mut all, mut n) = ([Lengths::default(); COMBINATIONS], 1);
        let fields = self.fields.iter().zip(matching).enumerate();
        for (number, (field, matching)) in fields.filter(|(_, (field, _))| field.present != 0) {
            let shorter = all;
            let shorter = &shorter[..std::mem::take(&mut n)];
            let low = bits(*matching as u64).map(|bit| bit as u8 + 1);
            let high = bits((*matching >> 64) as u64).map(|bit| bit as u8 + 65);
            for len in field.may_be_open().then_some(0).into_iter().chain(low).chain(high) {
                for lengths in shorter {
                    all[n] = lengths.with(number, len);
                    n += 1;
                }
            }
        }
        (all, n)
    }

    /// The unions of the fields that are worth it, by the lengths that match in each: the smallest first, so that most words are
    /// zero after one field. A field is left out if reading its sets costs more than what it takes away.
    #[inline(always)]
    fn unions(&self, matching: &[u128; FIELDS.len()]) -> Unions<'_> {
        let mut unions = Unions::new();
        for (field, &lengths) in self.fields.iter().zip(matching).filter(|(field, _)| field.present != 0) {
            let mut union = Union { field, lengths, size: 0, sets: 0 };
            let (mut size, mut sets) = (0, 0);
            union.for_each_length(|len| (size, sets) = (size + field.sizes[len], sets + 1));
            (union.size, union.sets) = (size, sets);
            let at = unions.partition_point(|other| other.size <= size);
            unions.insert(at, union);
        }
        let Some(smallest) = unions.first().map(|union| union.size) else { return unions };
        if smallest <= FEW {
            unions.truncate(1);
            return unions;
        }
        let lines = self.index.words().div_ceil(LINE_WORDS) as u64;
        let mut is_first = true;
        unions.retain(|union| {
            // About as large a share of the smallest union is not in this one as of all bits; and a subtable that is asked
            // in vain costs as much as the lines of two sets.
            let taken_away = u64::from(smallest) * u64::from(self.bits.saturating_sub(union.size));
            std::mem::take(&mut is_first) || 2 * taken_away >= u64::from(union.sets) * lines * u64::from(self.bits)
        });
        unions
    }

    /// Calls `ask` for every subtable in the intersection of the unions, until it returns true.
    #[inline(always)]
    fn places(&self, unions: &[Union<'_>], mut ask: impl FnMut(u32) -> bool) {
        // A summary has a bit for each word.
        for block in 0..self.index.words().div_ceil(64) {
            let mut words = unions.iter().fold(u64::MAX, |all, union| all & union.words(block));
            while words != 0 {
                let in_block = words.trailing_zeros() as usize / LINE_WORDS;
                words &= !(0xff << (in_block * LINE_WORDS));
                let line = block * 64 / LINE_WORDS + in_block;
                let mut found = [u64::MAX; LINE_WORDS];
                unions.iter().for_each(|union| union.intersect(line, &mut found));
                for (i, word) in found.iter().enumerate() {
                    for bit in bits(*word) {
                        let bit = ((line * LINE_WORDS + i) * 64 + bit) as u32;
                        for place in self.index.subtables(bit) {
                            if ask(place) {
                                return;
                            }
                        }
                    }
                }
            }
        }
    }
}

impl FieldIndex {
    /// Whether some mask has no prefix in this field.
    #[inline(always)]
    fn may_be_open(&self) -> bool {
        self.sizes[0] > 0
    }
}

impl Union<'_> {
    /// Calls `each` with every length that matches, with 0 if some mask has no prefix.
    #[inline(always)]
    fn for_each_length(&self, mut each: impl FnMut(usize)) {
        if self.field.may_be_open() {
            each(0);
        }
        bits(self.lengths as u64).for_each(|bit| each(bit + 1));
        bits((self.lengths >> 64) as u64).for_each(|bit| each(bit + 65));
    }

    /// The words of block `block`, 64 of them, that may be non-zero.
    #[inline(always)]
    fn words(&self, block: usize) -> u64 {
        let mut any = 0;
        self.for_each_length(|len| any |= self.field.by_len[len].summary.get(block).copied().unwrap_or(0));
        any
    }

    /// Takes out of `all` what is not in line `line`. Plain loops over eight words, which are one register with AVX-512: an
    /// attacker who makes similar masks puts them into many lines.
    #[inline(always)]
    fn intersect(&self, line: usize, all: &mut [u64; LINE_WORDS]) {
        let mut any = [0; LINE_WORDS];
        self.for_each_length(|len| {
            // By value: as a line, which is aligned, and not as words.
            let Some(&Line(words)) = self.field.by_len[len].lines.get(line) else { return };
            for i in 0..LINE_WORDS {
                any[i] |= words[i];
            }
        });
        for i in 0..LINE_WORDS {
            all[i] &= any[i];
        }
    }
}

impl Set {
    /// Sets a bit that was clear, or clears a bit that was set.
    fn change(&mut self, bit: u32, on: bool) {
        let (word, bit) = (bit as usize / 64, bit % 64);
        let (line, in_line) = (word / LINE_WORDS, word % LINE_WORDS);
        if self.lines.len() <= line {
            self.lines.resize(line + 1, Line([0; LINE_WORDS]));
            self.summary.resize(word / 64 + 1, 0);
        }
        let bits = &mut self.lines[line].0[in_line];
        *bits = *bits & !(1 << bit) | u64::from(on) << bit;
        let summary = &mut self.summary[word / 64];
        *summary = *summary & !(1 << (word % 64)) | u64::from(*bits != 0) << (word % 64);
    }
}

/// The positions of the bits that are set.
#[inline(always)]
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(at)
    })
}

/// A field's bits, the first in bit 127.
#[inline(always)]
fn value(key: &PacketKey, span: Span) -> u128 {
    let bytes = key.get(span);
    match *bytes {
        [a, b] => u128::from(u16::from_be_bytes([a, b])) << 112,
        [a, b, c, d] => u128::from(u32::from_be_bytes([a, b, c, d])) << 96,
        _ => bytes.first_chunk().map_or(0, |bytes| u128::from_be_bytes(*bytes)),
    }
}

/// The length of the prefix that a mask begins with in a field. Bits behind it prune nothing.
fn prefix_len(mask: &PacketKey, span: Span) -> u8 {
    value(mask, span).leading_ones() as u8
}

fn lengths(mask: &PacketKey) -> Lengths {
    let fields = FIELDS.iter().enumerate();
    fields.fold(Lengths::default(), |lengths, (number, span)| lengths.with(number, prefix_len(mask, *span)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_action::MegaflowMatch;

    #[test]
    fn an_id_used_again_before_the_notice_leaves_no_prefix() {
        let (mut pruning, mut nodes) = (Pruning::new(1), NodePool::new(9));
        let flow = |last: u8| {
            let (mut key, mut mask) = (PacketKey::ZERO, PacketKey::ZERO);
            key.set(layout::NW_SRC, &[10, 0, 0, last]);
            mask.set(layout::NW_SRC, &[0xff; 4]);
            MegaflowMatch::new(mask, &key)
        };
        let (dead, live) = (flow(1), flow(2));
        pruning.list(3, &live.mask);
        let found = |pruning: &Pruning, nodes: &NodePool, flow: &MegaflowMatch| {
            let mut places = Vec::new();
            pruning.survivors(nodes, &flow.key, |place| {
                places.push(place);
                false
            });
            places
        };
        pruning.add_flow(FlowId(7), 1, &dead.mask, &dead.key, &mut nodes);
        pruning.add_flow(FlowId(7), 2, &live.mask, &live.key, &mut nodes);
        pruning.add_flow(FlowId(7), 2, &live.mask, &live.key, &mut nodes);
        assert_eq!(
            (found(&pruning, &nodes, &dead), found(&pruning, &nodes, &live)),
            (vec![3], vec![3]),
            "its notice is still to come"
        );
        (0..2).for_each(|_| pruning.remove_flow(FlowId(7), 1, &dead.mask, &dead.key, &mut nodes));
        assert_eq!((found(&pruning, &nodes, &dead), found(&pruning, &nodes, &live)), (vec![], vec![3]));
        pruning.remove_flow(FlowId(7), 2, &live.mask, &live.key, &mut nodes);
        assert_eq!(nodes.left(), 9);
    }

    /// A key can match more lengths in one field than there are combinations, and none in another.
    #[test]
    fn a_field_without_a_match_ends_the_search_whatever_the_others_have() {
        let (mut pruning, mut nodes) = (Pruning::new(1), NodePool::new(1000));
        let flow = |len: u32| {
            let (mut key, mut mask) = (PacketKey::ZERO, PacketKey::ZERO);
            key.set(layout::NW_SRC, &(0x0a00_0000u32).to_be_bytes());
            mask.set(layout::NW_SRC, &(!0u32 << (32 - len)).to_be_bytes());
            key.set(layout::NW_DST, &[20, 0, 0, 1]);
            mask.set(layout::NW_DST, &[0xff; 4]);
            MegaflowMatch::new(mask, &key)
        };
        for len in 8..8 + 2 * COMBINATIONS as u32 {
            pruning.list(len, &flow(len).mask);
            pruning.add_flow(FlowId(len), len.into(), &flow(len).mask, &flow(len).key, &mut nodes);
        }
        let asked = |last: u8| {
            let mut key = flow(8).key;
            key.set(layout::NW_DST, &[20, 0, 0, last]);
            let mut asked = 0;
            pruning.survivors(&nodes, &key, |_| {
                asked += 1;
                false
            });
            asked
        };
        assert_eq!((asked(1), asked(2)), (2 * COMBINATIONS, 0));
    }
}
