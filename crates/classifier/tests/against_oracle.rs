//! Random histories of a table. After each step the classifier must find the rule that the linear oracle finds, and the
//! bits that it reports must suffice for the answer.
//!
//! Keys and rules are made of few values, so that masks overlap, prefixes nest, matches repeat and versions race.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use sluice_classifier::{Classifier, Conjunction, Criteria, NEVER, RuleId, TrieField};
use sluice_flow::layout::{self, Span};
use sluice_flow::{FlowKey, Match};
use sluice_oracle::{Clause, LinearClassifier, LinearRule};

/// The fields that vary, and the values they take.
const FIELDS: &[(Span, &[u64])] = &[
    (layout::IN_PORT, &[1, 2, 3]),
    (layout::CT_STATE, &[0, 0x21, 0x22]),
    (Span { offset: layout::REGS.offset, size: 4 }, &[0, 1, 0xffff_ffff]),
    (layout::METADATA, &[0, 1, 1 << 63]),
    (layout::CONJ_ID, &[0]),
    (layout::DL_SRC, &[1, 2, 0x0100_0000_0000]),
    (layout::VLAN0_TCI, &[0, 0x1001, 0x1002, 0x3001]),
    (layout::DL_TYPE, &[0x0800, 0x0800, 0x0806, 0x86dd]),
    (layout::NW_SRC, &[0x0a00_0001, 0x0a00_0002, 0x0a01_0001, 0x0a01_00ff, 0x8a01_0001, 0xffff_ffff, 0]),
    (layout::NW_DST, &[0x0a00_0001, 0x0a00_0002, 0x0a00_0101, 0x0b00_0001, 0x8b00_0001, 0xffff_fffe]),
    (layout::NW_PROTO, &[6, 17]),
    (layout::NW_TTL, &[1, 64]),
    (Span { offset: layout::IPV6_SRC.offset + 8, size: 8 }, &[0, 1, 1 << 63, 3]),
    (Span { offset: layout::IPV6_DST.offset, size: 8 }, &[0, 1, 2, 0x2001 << 48]),
    (layout::TCP_FLAGS, &[0x002, 0x010, 0x012]),
    (layout::TP_SRC, &[0, 79, 80, 1024, 0xffff]),
    (layout::TP_DST, &[22, 23, 80, 443, 0x8050]),
    (layout::CT_TP_DST, &[0, 80]),
];

/// The ways to match part of a field: a prefix, all of it, or any bits.
fn field_mask(span: Span) -> BoxedStrategy<u64> {
    let bits = span.size as u32 * 8;
    let all = u64::MAX >> (64 - bits);
    prop_oneof![
        4 => Just(all),
        4 => (0..=bits).prop_map(move |len| all & !all.checked_shr(len).unwrap_or(0)),
        1 => select(vec![1, 2, 0xf0, 0xfff0]).prop_map(move |mask| mask & all),
    ]
    .boxed()
}

fn key() -> impl Strategy<Value = FlowKey> {
    prop::collection::vec(any::<Index>(), FIELDS.len()).prop_map(|choices| {
        let mut key = FlowKey::ZERO;
        for (&(span, values), choice) in FIELDS.iter().zip(&choices) {
            key.set_number(span, values[choice.index(values.len())]);
        }
        key
    })
}

/// Masks of one to four fields; the addresses and ports come up often.
fn mask() -> impl Strategy<Value = FlowKey> {
    let field =
        prop_oneof![0..FIELDS.len(), select(vec![8usize, 9]), select(vec![15usize, 16]), select(vec![7usize, 12, 13])];
    let part = field.prop_flat_map(|i| (Just(FIELDS[i].0), field_mask(FIELDS[i].0)));
    prop::collection::vec(part, 0..5).prop_map(|parts| {
        let mut mask = FlowKey::ZERO;
        parts.iter().for_each(|&(span, bits)| mask.set_number(span, bits));
        mask
    })
}

/// A rule: one of a few masks, the values of one of the keys, a priority, conjunctions.
#[derive(Clone, Debug)]
struct NewRule {
    mask: Index,
    key: Index,
    priority: u32,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Ordinary,
    /// Clauses of one or two conjunctions, of two or three clauses.
    Soft(Vec<(u32, u8)>),
    /// The rule of a complete conjunction.
    OnConjunction(u32),
}

/// Conjunction `id` has `2 + id % 2` clauses.
fn n_clauses(id: u32) -> u8 {
    2 + (id % 2) as u8
}

fn new_rule() -> impl Strategy<Value = NewRule> {
    let soft = prop_oneof![
        (0u32..3, any::<u8>()).prop_map(|part| vec![part]),
        (0u32..3, any::<u8>(), 1u32..3, any::<u8>()).prop_map(|(id, a, step, b)| vec![(id, a), ((id + step) % 3, b)]),
    ];
    let kind = prop_oneof![
        6 => Just(Kind::Ordinary),
        3 => soft.prop_map(Kind::Soft),
        1 => (0u32..3).prop_map(Kind::OnConjunction),
    ];
    (any::<Index>(), any::<Index>(), prop_oneof![0u32..4, 0u32..1000], kind)
        .prop_map(|(mask, key, priority, kind)| NewRule { mask, key, priority, kind })
}

#[derive(Clone, Debug)]
enum Step {
    Insert(NewRule),
    /// Hide a rule from the next version on.
    Hide(Index),
    /// Unhide it.
    Restore(Index),
    Remove(Index),
    Bump,
    /// Many changes at once, sorted at the end.
    Deferred(Vec<NewRule>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => new_rule().prop_map(Step::Insert),
        2 => any::<Index>().prop_map(Step::Hide),
        1 => any::<Index>().prop_map(Step::Restore),
        3 => any::<Index>().prop_map(Step::Remove),
        1 => Just(Step::Bump),
        1 => prop::collection::vec(new_rule(), 0..5).prop_map(Step::Deferred),
    ]
}

/// The classifier and its oracle. Both attach the same running numbers to their rules.
struct Twins {
    classifier: Classifier<u32>,
    oracle: LinearClassifier<u32>,
    /// The rules of the table, by number.
    ids: Vec<(u32, RuleId)>,
    next: u32,
    version: u64,
}

impl Twins {
    fn insert(&mut self, rule: &NewRule, keys: &[FlowKey], masks: &[FlowKey]) {
        let mut mask = rule.mask.get(masks).clone();
        let mut key = rule.key.get(keys).clone();
        let mut clauses = Vec::new();
        match &rule.kind {
            Kind::Ordinary => {}
            Kind::Soft(parts) => {
                clauses = parts
                    .iter()
                    .map(|&(id, clause)| Clause { id, clause: clause % n_clauses(id), n_clauses: n_clauses(id) })
                    .collect();
            }
            Kind::OnConjunction(id) => {
                mask.set_number(layout::CONJ_ID, 0xffff_ffff);
                key.set_number(layout::CONJ_ID, (*id).into());
            }
        }
        let matching = Match::new(mask, &key);
        let parts: Vec<_> =
            clauses.iter().map(|c| Conjunction { id: c.id, clause: c.clause, n_clauses: c.n_clauses }).collect();
        let number = self.next;
        self.next += 1;
        let add_version = self.version + 1;
        let (id, displaced) = self.classifier.insert(&matching, rule.priority, add_version, &parts, number);
        if let Some(displaced) = displaced {
            self.ids.retain(|&(number, _)| number != displaced.payload);
        }
        self.ids.push((number, id));
        self.oracle.insert(LinearRule {
            matching,
            priority: rule.priority,
            add_version,
            remove_version: NEVER,
            clauses,
            payload: number,
        });
    }

    fn set_remove_version(&mut self, which: &Index, version: u64) {
        if self.ids.is_empty() {
            return;
        }
        let (number, id) = *which.get(&self.ids);
        let rule = self.oracle.rules.iter().find(|rule| rule.payload == number).expect("the oracle has it");
        // Of two rules with the same match and priority, one must be marked: writers only undo what they did.
        let taken = self.oracle.rules.iter().any(|other| {
            other.payload != number
                && other.matching == rule.matching
                && other.priority == rule.priority
                && (version == NEVER || other.remove_version > rule.add_version && other.add_version < version)
        });
        if version > rule.add_version && !taken {
            assert!(self.classifier.set_remove_version(id, version));
            let rule = self.oracle.rules.iter_mut().find(|rule| rule.payload == number).expect("the oracle has it");
            rule.remove_version = version;
        }
    }

    fn apply(&mut self, step: &Step, keys: &[FlowKey], masks: &[FlowKey]) {
        match step {
            Step::Insert(rule) => self.insert(rule, keys, masks),
            Step::Hide(which) => self.set_remove_version(which, self.version + 1),
            Step::Restore(which) => self.set_remove_version(which, NEVER),
            Step::Bump => self.version += 1,
            Step::Remove(_) if self.ids.is_empty() => assert_eq!(self.classifier.remove(RuleId(0)), None),
            Step::Remove(which) => {
                let (number, id) = self.ids.swap_remove(which.index(self.ids.len()));
                assert_eq!(self.classifier.remove(id), Some(number));
                self.oracle.rules.retain(|rule| rule.payload != number);
            }
            Step::Deferred(rules) => {
                self.classifier.defer();
                rules.iter().for_each(|rule| self.insert(rule, keys, masks));
                self.check_winner(&keys[0], self.version + 1);
                self.classifier.publish();
            }
        }
    }

    fn winners(&self, key: &FlowKey, version: u64) -> Vec<u32> {
        self.oracle.winners(key, version).iter().map(|rule| rule.payload).collect()
    }

    /// The classifier's answer, checked, and the bits it depends on.
    fn check_winner(&self, key: &FlowKey, version: u64) -> (Option<u32>, FlowKey) {
        let mut looked_at = FlowKey::ZERO;
        let found = self.classifier.lookup(key, version, Some(&mut looked_at)).map(|rule| *rule.payload());
        let winners = self.winners(key, version);
        check_among(found, &winners, "the winner");
        let again = self.classifier.lookup(key, version, None).map(|rule| *rule.payload());
        check_among(again, &winners, "the winner without a mask");
        (found, looked_at)
    }

    /// Every key with the same values as `key` in the bits looked at has the same answer.
    fn check_sound(&self, key: &FlowKey, others: &[FlowKey], version: u64) {
        let (found, looked_at) = self.check_winner(key, version);
        for other in others {
            let mut neighbour = key.clone();
            for (line, (mask, other)) in neighbour.lines.iter_mut().zip(looked_at.lines.iter().zip(&other.lines)) {
                for (byte, (mask, other)) in line.0.iter_mut().zip(mask.0.iter().zip(&other.0)) {
                    *byte = *byte & mask | other & !mask;
                }
            }
            check_among(found, &self.winners(&neighbour, version), "the neighbour's winner");
        }
    }

    fn check_iteration(&self, matching: &Match) {
        let sorted = |mut numbers: Vec<u32>| {
            numbers.sort_unstable();
            numbers
        };
        let visible = |rule: &&LinearRule<u32>| rule.add_version <= self.version && self.version < rule.remove_version;
        let numbers = |rules: Vec<&LinearRule<u32>>| sorted(rules.iter().map(|rule| rule.payload).collect());
        let criteria = Criteria::new(matching);
        let all = self.classifier.iter(self.version).map(|rule| *rule.payload()).collect();
        assert_eq!(sorted(all), numbers(self.oracle.rules.iter().filter(visible).collect()));
        let covered = self.classifier.covered(&criteria, self.version).map(|rule| *rule.payload()).collect();
        let within = self.oracle.rules.iter().filter(visible).filter(|rule| rule.matching.is_within(matching));
        assert_eq!(sorted(covered), numbers(within.collect()));
        let overlapping = self.classifier.overlapping(&criteria, self.version).map(|rule| *rule.payload()).collect();
        let overlaps = self.oracle.rules.iter().filter(visible).filter(|rule| rule.matching.overlaps(matching));
        assert_eq!(sorted(overlapping), numbers(overlaps.collect()));
        let by_priority = self.classifier.by_priority(self.version);
        assert!(by_priority.is_sorted_by_key(|rule| std::cmp::Reverse(rule.priority())));
        assert_eq!(self.classifier.len(), self.oracle.rules.len());
    }

    fn check_exact(&self) {
        for rule in &self.oracle.rules {
            for version in [self.version, self.version + 1] {
                let found = self.classifier.find_exact(&rule.matching, rule.priority, version);
                let wanted = self.oracle.rules.iter().find(|other| {
                    other.matching == rule.matching
                        && other.priority == rule.priority
                        && other.add_version <= version
                        && version < other.remove_version
                });
                assert_eq!(found.map(|rule| *rule.payload()), wanted.map(|rule| rule.payload));
                if let Some(found) = found {
                    assert_eq!(self.classifier.match_of(found), rule.matching);
                }
            }
        }
    }
}

fn check_among(found: Option<u32>, winners: &[u32], what: &str) {
    match found {
        Some(number) => assert!(winners.contains(&number), "{what}: rule {number} is none of {winners:?}"),
        None => assert!(winners.is_empty(), "{what}: no rule, but {winners:?} match"),
    }
}

/// Keys near `key`: one field takes another of its values, or all its bits are flipped.
fn neighbours(key: &FlowKey) -> Vec<FlowKey> {
    let mut out = Vec::new();
    for &(span, values) in FIELDS {
        let all = u64::MAX >> (64 - span.size * 8);
        for value in values.iter().copied().chain([!key.number(span) & all]) {
            let mut other = key.clone();
            other.set_number(span, value);
            out.push(other);
        }
    }
    out
}

fn tries() -> impl Strategy<Value = Vec<TrieField>> {
    let every = vec![TrieField::NwSrc, TrieField::NwDst, TrieField::Ipv6Src, TrieField::Ipv6Dst];
    prop_oneof![Just(TrieField::DEFAULT.to_vec()), Just(vec![]), Just(every)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1200))]

    #[test]
    fn the_classifier_finds_what_the_oracle_finds(
        tries in tries(),
        hash_key in any::<u64>(),
        keys in prop::collection::vec(key(), 2..8),
        masks in prop::collection::vec(mask(), 1..8),
        steps in prop::collection::vec(step(), 1..40),
        probes in prop::collection::vec(any::<Index>(), 40),
    ) {
        let mut twins = Twins {
            classifier: Classifier::new(&tries, hash_key),
            oracle: LinearClassifier::default(),
            ids: Vec::new(),
            next: 0,
            version: 1,
        };
        for (i, step) in steps.iter().enumerate() {
            twins.apply(step, &keys, &masks);
            let key = probes[i].get(&keys);
            for version in twins.version - 1..=twins.version + 1 {
                twins.check_sound(key, &keys, version);
            }
            if i % 4 == 0 {
                twins.check_sound(key, &neighbours(key), twins.version);
                twins.check_iteration(&Match::new(probes[i].get(&masks).clone(), key));
            }
        }
        twins.check_exact();
        while !twins.ids.is_empty() {
            twins.apply(&Step::Remove(probes[0]), &keys, &masks);
            twins.check_sound(&keys[0], &keys, twins.version);
        }
        prop_assert!(twins.classifier.is_empty());
        prop_assert_eq!(twins.classifier.subtable_count(), 0);
    }
}
