//! The changed rules of one table, and whether one of them may match the key of a search.
//!
//! Rules of the same mask are found by their value: a batch of learned rules, which differ in an address, costs a
//! megaflow one look. If the search left bits of that mask open, the rules are compared one by one; if they are many,
//! the megaflow counts as affected.

use crate::bridge_config::BridgeId;
use crate::search_key::{
    IN_PORT_BITS, IN_PORT_PLACE, INITIAL, PACKET_WORDS, SearchKey, WORDS, in_port_word, mask_word, span_bits, word,
};
use crate::xlate_cache::XlateCache;
use arrayvec::ArrayVec;
use sluice_flow::{Match, PacketKey, layout};
use std::collections::HashSet;

/// Changed rules of one mask that are compared one by one.
const COMPARED_MAX: usize = 64;
/// Masks, and rules in all, that are told apart. If there are more, all megaflows that searched the table are affected.
const MASKS_MAX: usize = 64;
const RULES_MAX: usize = 1 << 14;

/// The rules that were added, removed or modified in one table.
#[derive(Debug)]
pub(crate) struct TableChanges {
    pub bridge: BridgeId,
    pub table: u8,
    /// Not all of them if there are too many rules to tell apart. They stay until the transaction ends: to free thousands
    /// of them takes long, and the tables are locked meanwhile.
    masks: Vec<RulesOfMask>,
    count: usize,
}

/// Rules of one mask.
#[derive(Debug)]
pub(crate) struct RulesOfMask {
    /// The words in which the mask has bits.
    pub mask: Vec<WordMask>,
    /// The rules' values of these words.
    pub values: HashSet<Box<[u64]>>,
}

/// The bits of a mask in word `place` of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WordMask {
    place: usize,
    bits: u64,
}

/// A word of the key of a search: its value in the bits that are known, which are the same for each packet of the
/// megaflow.
pub(crate) struct KnownWord {
    value: u64,
    known: u64,
}

impl TableChanges {
    /// No rule of the table.
    pub fn new(bridge: BridgeId, table: u8) -> Self {
        TableChanges { bridge, table, masks: Vec::new(), count: 0 }
    }

    /// Adds a rule. `matches` is called only if its result is needed.
    pub fn add(&mut self, matches: impl FnOnce() -> Option<Match>) {
        self.count = self.count.saturating_add(1);
        if self.count > RULES_MAX {
            return;
        }
        let Some(matches) = matches() else { return self.give_up() };
        let bits = |place| WordMask { place, bits: word(&matches.mask, place) & !CONJUNCTION[place] };
        let mask: Vec<WordMask> = (0..WORDS).map(bits).filter(|word| word.bits != 0).collect();
        let value = mask.iter().map(|at| word(&matches.key, at.place) & at.bits).collect();
        if let Some(rules) = self.masks.iter_mut().find(|rules| rules.mask == mask) {
            rules.values.insert(value);
        } else if self.masks.len() == MASKS_MAX {
            self.give_up();
        } else {
            self.masks.push(RulesOfMask { mask, values: [value].into() });
        }
    }

    /// The rules by mask, unless they are too many to tell apart.
    pub fn rules(&self) -> Option<&[RulesOfMask]> {
        (self.count <= RULES_MAX).then_some(&self.masks[..])
    }

    /// Makes room for `n` more of each mask that is known.
    pub fn reserve(&mut self, n: usize) {
        if self.count <= RULES_MAX {
            self.masks.iter_mut().for_each(|rules| rules.values.reserve(n));
        }
    }

    fn give_up(&mut self) {
        self.count = RULES_MAX + 1;
    }

    /// Whether a search with that key may find one of the rules, for some packet of the megaflow.
    pub fn affect(&self, record: &XlateCache, mask: &PacketKey, key: &SearchKey) -> bool {
        self.count > RULES_MAX
            || key.is_open
            || self.masks.iter().any(|rules| rules.may_match(|place| known(record, mask, key, place)))
    }
}

impl RulesOfMask {
    fn may_match(&self, known: impl Fn(usize) -> KnownWord) -> bool {
        if let Some(value) = search_value(&self.mask, &known) {
            return self.values.contains(&value[..]);
        }
        let words: ArrayVec<KnownWord, WORDS> = self.mask.iter().map(|at| known(at.place)).collect();
        let agrees = |value: &[u64]| {
            let pairs = self.mask.iter().zip(&words);
            pairs.zip(value).all(|((at, word), value)| (word.value ^ value) & at.bits & word.known == 0)
        };
        self.values.len() > COMPARED_MAX || self.values.iter().any(|value| agrees(value))
    }
}

/// The value that a rule of that mask must have to match a search, if all bits of the mask are known of its key.
pub(crate) fn search_value(mask: &[WordMask], known: impl Fn(usize) -> KnownWord) -> Option<ArrayVec<u64, WORDS>> {
    let value = |at: &WordMask| {
        let word = known(at.place);
        (at.bits & !word.known == 0).then_some(word.value & at.bits)
    };
    mask.iter().map(value).collect()
}

/// What is known of a word of the key of a search.
pub(crate) fn known(record: &XlateCache, mask: &PacketKey, key: &SearchKey, place: usize) -> KnownWord {
    let (mut value, mut known) = match place {
        // Those of an IPv4 tunnel stand there in the record's key, and nothing in the search's.
        TUNNEL_ADDRESSES_START..TUNNEL_ADDRESSES_END => (0, 0),
        0..PACKET_WORDS => (record.word(place), mask_word(mask, place)),
        // Registers and metadata have fixed initial values.
        _ => (INITIAL[place], u64::MAX),
    };
    if let Some(altered) = key.altered.iter().find(|altered| usize::from(altered.place) == place) {
        (value, known) = (altered.value, known | altered.mask);
    }
    if place == IN_PORT_PLACE {
        value = value & !IN_PORT_BITS | in_port_word(key.in_port);
        known |= IN_PORT_BITS;
    }
    KnownWord { value, known }
}

/// The words of a tunnel's addresses in the datapath's key.
const TUNNEL_ADDRESSES_START: usize = layout::TUN_IPV6_SRC.offset / 8;
const TUNNEL_ADDRESSES_END: usize = layout::TUN_FLAGS.offset / 8;

/// The bits of each word that the classifier sets during a search: a rule may match any value of them.
const CONJUNCTION: [u64; WORDS] = {
    let mut bits = [0; WORDS];
    bits[layout::CONJ_ID.offset / 8] = span_bits(layout::CONJ_ID);
    bits
};

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_flow::PortNames;

    fn changes(rules: impl IntoIterator<Item = String>) -> TableChanges {
        let mut changes = TableChanges::new(BridgeId(0), 0);
        for text in rules {
            changes.add(|| Some(Match::parse(&text, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"))));
        }
        changes
    }

    /// Whether the rules may match a search for `key`, of which the bits of `known` are known.
    fn affect(changes: &TableChanges, key: &str, known: &str) -> bool {
        let parse = |text: &str| Match::parse(text, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"));
        let (key, known) = (parse(key).key, parse(known).mask);
        let word_of = |place| KnownWord { value: word(&key, place), known: word(&known, place) };
        changes.count > RULES_MAX || changes.masks.iter().any(|rules| rules.may_match(word_of))
    }

    #[test]
    fn many_rules_of_one_mask_are_told_apart() {
        let all = changes((0..4000).map(|i| format!("dl_dst=02:00:00:00:{:02x}:{:02x}", i >> 8, i & 255)));
        assert_eq!(all.masks.len(), 1);
        assert!(affect(&all, "dl_dst=02:00:00:00:0f:9f", "dl_dst=00:00:00:00:00:01"));
        assert!(!affect(&all, "dl_dst=02:00:00:00:0f:a0", "dl_dst=00:00:00:00:00:01"));
        // A search that did not look at the address may find any of them.
        assert!(affect(&all, "dl_dst=02:00:00:00:0f:a0", "dl_src=00:00:00:00:00:01"));
        let few = changes((0..3).map(|i| format!("dl_dst=02:00:00:00:00:0{i},dl_src=02:00:00:00:00:01")));
        assert!(!affect(&few, "dl_src=02:00:00:00:00:02", "dl_src=00:00:00:00:00:01"));
        assert!(affect(&few, "dl_src=02:00:00:00:00:01", "dl_src=00:00:00:00:00:01"));
    }

    #[test]
    fn too_many_affect_all() {
        let masks =
            changes((1..=32).flat_map(|i| [format!("ip,nw_src=10.0.0.1/{i}"), format!("ip,nw_dst=10.0.0.1/{i}")]));
        assert!(!affect(&masks, "arp", "arp"));
        let three = |i: u32| {
            let source = format!("ip,nw_src=10.0.0.1/{i}");
            [format!("{source},nw_ttl=1"), source, format!("ip,nw_dst=10.0.0.1/{i}")]
        };
        let more = changes((1..=32).flat_map(three));
        assert!(affect(&more, "arp", "arp"));
        let rules = changes((0..=RULES_MAX).map(|i| format!("udp,nw_dst=10.0.{}.{}", i >> 8, i & 255)));
        assert!(affect(&rules, "arp", "arp") && rules.rules().is_none());
    }
}
