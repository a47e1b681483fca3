//! Candidate 2: the subtables that can match, from a directory of length vectors. A mask's prefix lengths, one a field,
//! are a path in a tree of hash maps; a lookup follows the paths all of whose lengths match. It asks only for what
//! exists, so its cost depends on how many lengths match, not on how many masks there are.

use crate::prefixes::Prefixes;
use crate::search::{FIELDS, Flow, Search, Subtable, Words, prefix_len, value};
use std::collections::HashMap;

/// A point of a path: which lengths go on from here, and to where; at the end, which subtables.
#[derive(Default)]
struct Point {
    /// Bit `n - 1`: a path goes on with length `n`.
    present: u128,
    /// A path goes on with length 0.
    zero: bool,
    next: Vec<(u8, u32)>,
    subtables: Vec<usize>,
    used: usize,
}

impl Point {
    fn follow(&self, len: u8) -> Option<u32> {
        self.next.binary_search_by_key(&len, |&(len, _)| len).ok().map(|at| self.next[at].1)
    }
}

pub struct Directory {
    subtables: Vec<Subtable>,
    free: Vec<usize>,
    by_mask: HashMap<Words, usize>,
    prefixes: [Prefixes; FIELDS.len()],
    points: Vec<Point>,
    /// How many masks have each field at all.
    fields_used: [usize; FIELDS.len()],
}

impl Directory {
    pub fn new() -> Self {
        Directory {
            subtables: Vec::new(),
            free: Vec::new(),
            by_mask: HashMap::new(),
            prefixes: std::array::from_fn(|_| Prefixes::new()),
            points: vec![Point::default()],
            fields_used: [0; FIELDS.len()],
        }
    }

    /// The end of a path, made if it is not there.
    fn end_of(&mut self, lens: [u8; FIELDS.len()]) -> usize {
        let mut at = 0;
        for len in lens {
            at = match self.points[at].follow(len) {
                Some(next) => next as usize,
                None => {
                    self.points.push(Point::default());
                    let new = self.points.len() - 1;
                    let point = &mut self.points[at];
                    point.next.push((len, new as u32));
                    point.next.sort_unstable();
                    match len {
                        0 => point.zero = true,
                        _ => point.present |= 1 << (len - 1),
                    }
                    new
                }
            };
        }
        at
    }

    /// Points are kept for the next mask of the same lengths; only who ends there changes.
    fn list(&mut self, mask: &Words, at: usize, on: bool) {
        let lens = FIELDS.map(|span| prefix_len(mask, span));
        let end = self.end_of(lens);
        let point = &mut self.points[end];
        match on {
            true => point.subtables.push(at),
            false => point.subtables.retain(|&other| other != at),
        }
        point.used = point.subtables.len();
        for (used, len) in self.fields_used.iter_mut().zip(lens) {
            if len > 0 {
                *used = if on { *used + 1 } else { *used - 1 };
            }
        }
    }

    fn change_prefixes(&mut self, flow: &Flow, on: bool) {
        for (prefixes, span) in self.prefixes.iter_mut().zip(FIELDS) {
            let len = prefix_len(&flow.mask, span);
            if len > 0 {
                let prefix = value(&flow.key, span) & !(u128::MAX.checked_shr(len.into()).unwrap_or(0));
                if on { prefixes.insert(prefix, len) } else { prefixes.remove(prefix, len) }
            }
        }
    }

    fn walk(
        &self,
        at: usize,
        lengths: &[u128],
        probes: &mut usize,
        find: &impl Fn(&Subtable) -> Option<u32>,
    ) -> Option<u32> {
        let point = &self.points[at];
        let Some((&here, below)) = lengths.split_first() else {
            return point.subtables.iter().find_map(|&at| {
                *probes += 1;
                find(&self.subtables[at])
            });
        };
        if point.zero
            && let Some(next) = point.follow(0)
            && let Some(id) = self.walk(next as usize, below, probes, find)
        {
            return Some(id);
        }
        let mut left = here & point.present;
        while left != 0 {
            let len = left.trailing_zeros() as u8 + 1;
            left &= left - 1;
            if let Some(next) = point.follow(len)
                && let Some(id) = self.walk(next as usize, below, probes, find)
            {
                return Some(id);
            }
        }
        None
    }
}

impl Search for Directory {
    fn name(&self) -> &'static str {
        "directory"
    }

    fn insert(&mut self, flows: &[Flow], id: u32) {
        let flow = &flows[id as usize];
        let at = match self.by_mask.get(&flow.mask) {
            Some(&at) => at,
            None => {
                let at = self.free.pop().unwrap_or(self.subtables.len());
                if at == self.subtables.len() {
                    self.subtables.push(Subtable::new(flow.mask));
                } else {
                    self.subtables[at] = Subtable::new(flow.mask);
                }
                self.by_mask.insert(flow.mask, at);
                self.list(&flow.mask, at, true);
                at
            }
        };
        self.subtables[at].insert(flows, id);
        self.change_prefixes(flow, true);
    }

    fn remove(&mut self, flows: &[Flow], id: u32) {
        let flow = &flows[id as usize];
        let at = self.by_mask[&flow.mask];
        self.subtables[at].remove(flows, id);
        self.change_prefixes(flow, false);
        if self.subtables[at].is_empty() {
            self.list(&flow.mask, at, false);
            self.by_mask.remove(&flow.mask);
            self.free.push(at);
        }
    }

    fn find(&self, flows: &[Flow], key: &Words) -> (Option<u32>, usize) {
        let lengths: [u128; FIELDS.len()] = std::array::from_fn(|i| {
            if self.fields_used[i] == 0 { 0 } else { self.prefixes[i].lengths(value(key, FIELDS[i])) }
        });
        let mut probes = 0;
        let id = self.walk(0, &lengths, &mut probes, &|subtable| subtable.find(flows, key));
        (id, probes)
    }

    fn bytes(&self) -> usize {
        let points: usize =
            self.points.iter().map(|p| size_of::<Point>() + p.next.capacity() * 8 + p.subtables.capacity() * 8).sum();
        points + self.prefixes.iter().map(Prefixes::bytes).sum::<usize>()
    }
}
