//! Candidate 1: the subtables that can match, from bit sets. For each field and prefix length a set of the subtables
//! whose masks have that length; a lookup takes, for each field, the union over the lengths that match, intersects
//! these, and asks the subtables left. Exact: a subtable left out has a field none of whose prefixes match.

use crate::prefixes::Prefixes;
use crate::search::{FIELDS, Flow, Search, Subtable, Words, prefix_len, value};
use std::collections::HashMap;
use std::ops::Range;

/// A set of subtables, and of its words that are not zero.
#[derive(Clone, Default)]
struct Set {
    words: Vec<u64>,
    summary: Vec<u64>,
    len: usize,
}

impl Set {
    fn change(&mut self, at: usize, on: bool) {
        if self.words.len() <= at / 64 {
            self.words.resize(at / 64 + 1, 0);
            self.summary.resize(at / 4096 + 1, 0);
        }
        let word = &mut self.words[at / 64];
        *word = *word & !(1 << (at % 64)) | u64::from(on) << (at % 64);
        let summary = &mut self.summary[at / 4096];
        *summary = *summary & !(1 << (at / 64 % 64)) | u64::from(*word != 0) << (at / 64 % 64);
        self.len = if on { self.len + 1 } else { self.len - 1 };
    }
}

/// One field: the prefixes in use and the subtables by prefix length.
struct FieldIndex {
    prefixes: Prefixes,
    by_len: Vec<Set>,
    /// Bit `n - 1`: some subtable has a prefix of `n` bits.
    present: u128,
}

/// For each field that some mask has, the sets that may match: their union counts. All sets in one list, the fields as
/// ranges of it, so that nothing big is moved.
#[derive(Default)]
struct Unions<'a> {
    sets: arrayvec::ArrayVec<&'a Set, { 129 * FIELDS.len() }>,
    fields: arrayvec::ArrayVec<Range<usize>, { FIELDS.len() }>,
}

pub struct Pruned {
    subtables: Vec<Subtable>,
    lens: Vec<[u8; FIELDS.len()]>,
    free: Vec<usize>,
    by_mask: HashMap<Words, usize>,
    fields: [FieldIndex; FIELDS.len()],
}

impl Pruned {
    pub fn new() -> Self {
        let field = || FieldIndex { prefixes: Prefixes::new(), by_len: vec![Set::default(); 129], present: 0 };
        Pruned {
            subtables: Vec::new(),
            lens: Vec::new(),
            free: Vec::new(),
            by_mask: HashMap::new(),
            fields: std::array::from_fn(|_| field()),
        }
    }

    fn add_subtable(&mut self, mask: Words) -> usize {
        let at = self.free.pop().unwrap_or(self.subtables.len());
        let lens = FIELDS.map(|span| prefix_len(&mask, span));
        if at == self.subtables.len() {
            self.subtables.push(Subtable::new(mask));
            self.lens.push(lens);
        } else {
            self.subtables[at] = Subtable::new(mask);
            self.lens[at] = lens;
        }
        self.list(at, true);
        self.by_mask.insert(mask, at);
        at
    }

    /// Puts a subtable into the set of its length in each field, or takes it out.
    fn list(&mut self, at: usize, on: bool) {
        for (field, len) in self.fields.iter_mut().zip(self.lens[at]) {
            let set = &mut field.by_len[usize::from(len)];
            set.change(at, on);
            if len > 0 {
                let bit = 1 << (len - 1);
                field.present = if set.len > 0 { field.present | bit } else { field.present & !bit };
            }
        }
    }

    fn fill_unions<'a>(&'a self, key: &Words, unions: &mut Unions<'a>) {
        let mut sizes = [0; FIELDS.len()];
        for (field, span) in self.fields.iter().zip(FIELDS).filter(|(field, _)| field.present != 0) {
            let start = unions.sets.len();
            let mut lengths = field.prefixes.lengths(value(key, span)) & field.present;
            while lengths != 0 {
                unions.sets.push(&field.by_len[lengths.trailing_zeros() as usize + 1]);
                lengths &= lengths - 1;
            }
            if field.by_len[0].len > 0 {
                unions.sets.push(&field.by_len[0]);
            }
            // The fewest first: most words are zero after one field then.
            let size = unions.sets[start..].iter().map(|set| set.len).sum::<usize>();
            let at = sizes[..unions.fields.len()].partition_point(|&other| other <= size);
            sizes[at..=unions.fields.len()].rotate_right(1);
            sizes[at] = size;
            unions.fields.insert(at, start..unions.sets.len());
        }
    }
}

impl Unions<'_> {
    /// The intersection of the unions at word `at` of what `part` picks.
    #[inline]
    fn intersect(&self, at: usize, part: impl Fn(&Set) -> &[u64]) -> u64 {
        let mut all = u64::MAX;
        for field in &self.fields {
            let sets = &self.sets[field.clone()];
            all &= sets.iter().fold(0, |any, set| any | part(set).get(at).copied().unwrap_or(0));
            if all == 0 {
                break;
            }
        }
        all
    }
}

/// The numbers of a word's bits.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(at)
    })
}

impl Search for Pruned {
    fn name(&self) -> &'static str {
        "bit sets"
    }

    fn insert(&mut self, flows: &[Flow], id: u32) {
        let flow = &flows[id as usize];
        let at = self.by_mask.get(&flow.mask).copied().unwrap_or_else(|| self.add_subtable(flow.mask));
        self.subtables[at].insert(flows, id);
        for ((field, len), span) in self.fields.iter_mut().zip(self.lens[at]).zip(FIELDS) {
            if len > 0 {
                field.prefixes.insert(value(&flow.key, span) & !(u128::MAX.checked_shr(len.into()).unwrap_or(0)), len);
            }
        }
    }

    fn remove(&mut self, flows: &[Flow], id: u32) {
        let flow = &flows[id as usize];
        let at = self.by_mask[&flow.mask];
        self.subtables[at].remove(flows, id);
        for ((field, len), span) in self.fields.iter_mut().zip(self.lens[at]).zip(FIELDS) {
            if len > 0 {
                field.prefixes.remove(value(&flow.key, span) & !(u128::MAX.checked_shr(len.into()).unwrap_or(0)), len);
            }
        }
        if self.subtables[at].is_empty() {
            self.list(at, false);
            self.by_mask.remove(&flow.mask);
            self.free.push(at);
        }
    }

    fn find(&self, flows: &[Flow], key: &Words) -> (Option<u32>, usize) {
        let mut unions = Unions::default();
        self.fill_unions(key, &mut unions);
        let mut probes = 0;
        for block in 0..self.subtables.len().div_ceil(4096) {
            for word in bits(unions.intersect(block, |set| &set.summary)) {
                let word = block * 64 + word;
                for bit in bits(unions.intersect(word, |set| &set.words)) {
                    // Without a field in use nothing limits the bits.
                    let Some(subtable) = self.subtables.get(word * 64 + bit) else { break };
                    probes += 1;
                    if let Some(id) = subtable.find(flows, key) {
                        return (Some(id), probes);
                    }
                }
            }
        }
        (None, probes)
    }

    fn bytes(&self) -> usize {
        let of = |field: &FieldIndex| {
            field.prefixes.bytes()
                + field.by_len.iter().map(|set| set.words.len() * 8 + set.summary.len() * 8).sum::<usize>()
        };
        self.fields.iter().map(of).sum()
    }
}
