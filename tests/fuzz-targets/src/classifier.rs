//! Target `classifier`: histories of a table against the linear oracle.
//!
//! Shape of the input: operations of an opcode byte and its arguments; see [`classifier`].

use crate::input::Input;
use sluice_classifier::{Classifier, LATEST, NEVER, RuleId, TrieField};
use sluice_flow::layout::{self, Span};
use sluice_flow::{FlowKey, Match};
use sluice_oracle::{LinearClassifier, LinearRule};

const FIELDS: [Span; 12] = [
    layout::IN_PORT,
    layout::METADATA,
    layout::DL_SRC,
    layout::DL_TYPE,
    layout::VLAN0_TCI,
    layout::NW_SRC,
    layout::NW_DST,
    layout::NW_PROTO,
    layout::TP_SRC,
    layout::TP_DST,
    Span { offset: layout::IPV6_SRC.offset, size: 8 },
    Span { offset: layout::IPV6_DST.offset + 8, size: 8 },
];
const RULES_MAX: usize = 64;

/// After any inserts and removals a lookup finds what the list of rules says, and every key that agrees with it on the
/// bits it says it looked at finds the same.
pub fn classifier(data: &[u8]) {
    let mut input = Input(data);
    let mut table = Classifier::new(TrieField::DEFAULT, 0x5eed);
    let mut twin = LinearClassifier::default();
    let mut ids: Vec<(RuleId, u32)> = Vec::new();
    let mut serial = 0;
    while !input.is_empty() {
        match input.byte() % 4 {
            0 | 1 if ids.len() < RULES_MAX => {
                serial += 1;
                let matching = a_match(&mut input);
                let priority = u32::from(input.byte() % 8);
                let (id, displaced) = table.insert(&matching, priority, 1, &[], serial);
                ids.retain(|(_, payload)| displaced.as_ref().is_none_or(|old| old.payload != *payload));
                ids.push((id, serial));
                let rule = LinearRule {
                    matching,
                    priority,
                    add_version: 1,
                    remove_version: NEVER,
                    clauses: Vec::new(),
                    payload: serial,
                };
                twin.insert(rule);
            }
            2 if !ids.is_empty() => {
                let (id, payload) = ids.swap_remove(usize::from(input.byte()) % ids.len());
                assert_eq!(table.remove(id), Some(payload));
                twin.rules.retain(|rule| rule.payload != payload);
            }
            _ => look_up(&table, &twin, &mut input),
        }
        assert_eq!(table.len(), twin.rules.len());
    }
}

fn look_up(table: &Classifier<u32>, twin: &LinearClassifier<u32>, input: &mut Input) {
    let key = a_match(input).key;
    let mut looked_at = FlowKey::ZERO;
    let found = table.lookup(&key, LATEST, Some(&mut looked_at)).map(|rule| *rule.payload());
    let winners: Vec<u32> = twin.winners(&key, LATEST).iter().map(|rule| rule.payload).collect();
    assert_eq!(found.is_none(), winners.is_empty(), "found {found:?}, the list says {winners:?}");
    assert!(found.is_none_or(|f| winners.contains(&f)), "found {found:?}, the list says {winners:?}");
    // Another key that agrees on the bits looked at.
    let other = a_match(input).key;
    let mut mixed = key.and(&looked_at);
    let mut free = other.clone();
    for span in FIELDS {
        free.set_number(span, other.number(span) & !looked_at.number(span));
    }
    mixed.or_with(&free);
    let winners: Vec<u32> = twin.winners(&mixed, LATEST).iter().map(|rule| rule.payload).collect();
    assert_eq!(found.is_none(), winners.is_empty(), "the bits looked at do not decide: {found:?}, now {winners:?}");
    assert!(found.is_none_or(|f| winners.contains(&f)), "the bits looked at do not decide: {found:?}, now {winners:?}");
}

/// Up to three fields with few values, under a prefix, an exact or an odd mask.
fn a_match(input: &mut Input) -> Match {
    let (mut key, mut mask) = (FlowKey::ZERO, FlowKey::ZERO);
    for _ in 0..input.byte() % 4 {
        let span = FIELDS[usize::from(input.byte()) % FIELDS.len()];
        let bits = 8 * span.size as u32;
        let all = u64::MAX >> (64 - bits);
        let (shape, value) = (input.byte(), input.byte());
        let part = match shape % 3 {
            0 => all,
            1 => all << (u32::from(shape) % bits) & all,
            _ => u64::from(shape) & all,
        };
        mask.set_number(span, part);
        // Differences at both ends of the field, where prefixes and odd masks look.
        key.set_number(span, (u64::from(value >> 4) << (bits - 4) | u64::from(value & 15)) & part);
    }
    Match::new(mask, &key)
}
