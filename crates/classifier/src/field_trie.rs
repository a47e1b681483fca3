//! The prefix tries of address fields, over all rules of a table, and their answers during a lookup.

use crate::mask::StagedMask;
use crate::stage::LineWords;
use crate::trie::{Prefixes, Trie};
use sluice_flow::FlowKey;
use sluice_flow::layout::{self, Span};
use sluice_packet::headers::ethertype;

/// Fields that can have a trie, at most. Source: OVS lib/classifier.h, CLS_MAX_TRIES.
pub(crate) const MAX_TRIES: usize = 4;

/// A field for which a classifier can keep a trie of its rules' prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrieField {
    /// IPv4 destination.
    NwDst,
    /// IPv4 source.
    NwSrc,
    /// IPv6 destination.
    Ipv6Dst,
    /// IPv6 source.
    Ipv6Src,
}

impl TrieField {
    /// The default of OVS 3.1. Source: ofproto/ofproto.c, `default_prefix_fields`.
    pub const DEFAULT: &[TrieField] = &[TrieField::NwDst, TrieField::NwSrc];

    /// The field of that name in `ovs-fields(7)`, if it can have a trie.
    pub fn named(name: &str) -> Option<TrieField> {
        match name {
            "ip_dst" | "nw_dst" => Some(TrieField::NwDst),
            "ip_src" | "nw_src" => Some(TrieField::NwSrc),
            "ipv6_dst" => Some(TrieField::Ipv6Dst),
            "ipv6_src" => Some(TrieField::Ipv6Src),
            _ => None,
        }
    }

    const fn span(self) -> Span {
        match self {
            TrieField::NwDst => layout::NW_DST,
            TrieField::NwSrc => layout::NW_SRC,
            TrieField::Ipv6Dst => layout::IPV6_DST,
            TrieField::Ipv6Src => layout::IPV6_SRC,
        }
    }

    /// The Ethernet type of packets that have the field. ARP uses the same bytes of the key for its addresses.
    const fn ethertype(self) -> u16 {
        match self {
            TrieField::NwDst | TrieField::NwSrc => ethertype::IPV4,
            TrieField::Ipv6Dst | TrieField::Ipv6Src => ethertype::IPV6,
        }
    }

    /// The field's value in a key, left-aligned at bit 127.
    fn value(self, key: &LineWords) -> u128 {
        let span = self.span();
        let first = key[span.offset / 8].swap_bytes();
        match span.size {
            4 => u128::from(first << (span.offset % 8 * 8)) << 64 & 0xffff_ffff << 96,
            _ => u128::from(first) << 64 | u128::from(key[span.offset / 8 + 1].swap_bytes()),
        }
    }

    /// The length of the prefix of this field in `mask`; 0 if the mask has none of its bits, or bits that are no
    /// prefix.
    fn prefix_len(self, mask: &StagedMask) -> u8 {
        let span = self.span();
        let mut words = [0; crate::stage::WORDS];
        let at = span.offset / 8;
        (at..at + span.size.div_ceil(8)).for_each(|i| words[i] = mask.bits_at(i));
        let bits = self.value(&words);
        if bits.leading_ones() == bits.count_ones() { bits.leading_ones() as u8 } else { 0 }
    }
}

/// A field's trie.
pub(crate) struct FieldTrie {
    pub field: TrieField,
    prefixes: AnyTrie,
}

enum AnyTrie {
    Short(Trie<u32>),
    Long(Trie<u128>),
}

impl FieldTrie {
    /// The size of a node of a trie of 32-bit values.
    pub const SHORT_NODE_SIZE: usize = Trie::<u32>::NODE_SIZE;

    /// The size of its nodes.
    pub fn node_size(&self) -> usize {
        match &self.prefixes {
            AnyTrie::Short(_) => Trie::<u32>::NODE_SIZE,
            AnyTrie::Long(_) => Trie::<u128>::NODE_SIZE,
        }
    }

    pub fn new(field: TrieField) -> Self {
        let prefixes =
            if field.span().size == 4 { AnyTrie::Short(Trie::that_grows()) } else { AnyTrie::Long(Trie::new()) };
        FieldTrie { field, prefixes }
    }

    pub fn insert(&mut self, key: &LineWords, len: u8) {
        let value = self.field.value(key);
        match &mut self.prefixes {
            AnyTrie::Short(trie) => trie.insert((value >> 96) as u32, len.into()),
            AnyTrie::Long(trie) => trie.insert(value, len.into()),
        }
    }

    pub fn remove(&mut self, key: &LineWords, len: u8) {
        let value = self.field.value(key);
        match &mut self.prefixes {
            AnyTrie::Short(trie) => trie.remove((value >> 96) as u32, len.into()),
            AnyTrie::Long(trie) => trie.remove(value, len.into()),
        }
    }

    fn lookup(&self, key: &LineWords) -> Prefixes {
        let ethertype = key[layout::DL_TYPE.offset / 8].swap_bytes() >> (48 - layout::DL_TYPE.offset % 8 * 8);
        if ethertype as u16 != self.field.ethertype() {
            return Prefixes { lengths: u128::MAX, proof_bits: 0 }; // without the field nothing can be ruled out
        }
        let value = self.field.value(key);
        match &self.prefixes {
            AnyTrie::Short(trie) => trie.lookup((value >> 96) as u32),
            AnyTrie::Long(trie) => trie.lookup(value),
        }
    }
}

#[cfg(test)]
impl FieldTrie {
    /// The answer of an IPv4 field's trie.
    pub fn lookup_short(&self, value: u32) -> Prefixes {
        match &self.prefixes {
            AnyTrie::Short(trie) => trie.lookup(value),
            AnyTrie::Long(_) => unreachable!("asked of an IPv6 field"),
        }
    }
}

/// For each trie, the prefix length of its field in a mask.
pub(crate) fn trie_lens(tries: &[FieldTrie], mask: &StagedMask) -> [u8; MAX_TRIES] {
    std::array::from_fn(|i| tries.get(i).map_or(0, |trie| trie.field.prefix_len(mask)))
}

/// The tries' answers during one lookup. A trie is asked when a subtable first needs it, and once: a trie that is not
/// asked adds nothing to the mask.
pub(crate) struct TrieLookups<'a> {
    tries: &'a [FieldTrie],
    key: &'a LineWords,
    answers: [Option<Prefixes>; MAX_TRIES],
}

impl<'a> TrieLookups<'a> {
    pub fn new(tries: &'a [FieldTrie], key: &'a LineWords) -> Self {
        TrieLookups { tries, key, answers: [None; MAX_TRIES] }
    }

    /// Whether the tries prove that a subtable with these prefix lengths cannot match. A proof counts if it needs no
    /// more bits than the subtable itself would look at or `looked_at` already has; its bits are added to `looked_at`.
    #[inline]
    pub fn rule_out(&mut self, lens: &[u8; MAX_TRIES], looked_at: &mut FlowKey) -> bool {
        for (i, trie) in self.tries.iter().enumerate() {
            let len = u32::from(lens[i]);
            if len == 0 {
                continue;
            }
            let answer = *self.answers[i].get_or_insert_with(|| trie.lookup(self.key));
            if answer.may_match(len) {
                continue;
            }
            if answer.proof_bits <= len || has_prefix(looked_at, trie.field.span(), answer.proof_bits) {
                add_prefix(looked_at, trie.field.span(), answer.proof_bits);
                return true;
            }
        }
        false
    }
}

/// The bits of byte `i` of a field that belong to its first `len` bits.
fn prefix_byte(i: usize, len: u32) -> u8 {
    let left = len.saturating_sub(i as u32 * 8).min(8);
    (0xff00u16 >> left) as u8
}

fn has_prefix(mask: &FlowKey, span: Span, len: u32) -> bool {
    mask.get(span).iter().enumerate().all(|(i, &byte)| prefix_byte(i, len) & !byte == 0)
}

fn add_prefix(mask: &mut FlowKey, span: Span, len: u32) {
    mask.get_mut(span).iter_mut().enumerate().for_each(|(i, byte)| *byte |= prefix_byte(i, len));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask::mask_words;
    use crate::stage::words_of;

    #[test]
    fn fields_are_read_whole_and_at_their_offset() {
        let mut key = FlowKey::ZERO;
        key.set_number(layout::NW_SRC, 0x0102_0304);
        key.set_number(layout::NW_DST, 0x0506_0708);
        key.set(layout::IPV6_DST, &[9; 16]);
        let words = words_of(&key).lines;
        assert_eq!(TrieField::NwSrc.value(&words) >> 96, 0x0102_0304);
        assert_eq!(TrieField::NwDst.value(&words) >> 96, 0x0506_0708);
        assert_eq!(TrieField::Ipv6Dst.value(&words).to_be_bytes(), [9; 16]);
        assert_eq!(TrieField::Ipv6Src.value(&words), 0);
    }

    #[test]
    fn only_prefixes_have_a_length() {
        let len = |bits: u64| {
            let mut mask = FlowKey::ZERO;
            mask.set_number(layout::NW_DST, bits);
            TrieField::NwDst.prefix_len(&StagedMask::new(&mask_words(&mask)))
        };
        assert_eq!([0, 0x8000_0000, 0xffff_0000, 0xffff_ffff, 0xff00_ff00, 1].map(len), [0, 1, 16, 32, 0, 0]);
    }

    #[test]
    fn prefixes_of_a_field_are_set_bit_by_bit() {
        let mut mask = FlowKey::ZERO;
        add_prefix(&mut mask, layout::NW_SRC, 11);
        assert_eq!(mask.get(layout::NW_SRC), [0xff, 0xe0, 0, 0]);
        assert!(has_prefix(&mask, layout::NW_SRC, 11) && !has_prefix(&mask, layout::NW_SRC, 12));
        assert_eq!(mask.get(layout::NW_DST), [0; 4]);
    }
}
