//! One subtable: the megaflows of one mask, in one (in_port, recirc_id).

use crate::bucket::tag;
use crate::tag_index::TagIndex;
use crate::{Hits, LookupBatch, Mask, Megaflow};
use sluice_action::FlowId;
use sluice_flow::PacketKey;
use sluice_flow::layout::PACKET_LINES;
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::{HashKey, compare, hash};
use sluice_sync::Slots;

/// Words of line 0.
const LINE_WORDS: usize = 8;

/// The word of line 0 that holds in_port and recirc_id. It is the same for every megaflow of a table, so it is not
/// hashed.
pub(crate) const TABLE_WORD: usize = 0;

/// A word in which the mask has bits: its place, those bits, and what the hash adds there.
#[derive(Clone, Copy, Debug, Default)]
struct Touched {
    place: usize,
    mask: u64,
    addends: u64,
}

/// The megaflows of one mask.
///
/// Cost:   a probe that misses hashes the words in which the mask has bits (four in an ordinary IPv4 megaflow) and
///         reads one cache line. A hit also reads the record.
#[derive(Debug)]
pub(crate) struct Subtable {
    /// Words of line 0 in which the mask has bits; the first `n_first` are in use.
    first: [Touched; LINE_WORDS],
    n_first: usize,
    /// The same in lines 1 to 3.
    further: Box<[Touched]>,
    index: TagIndex,
    /// Hits, halved at each ranking.
    pub hits: u64,
}

impl Subtable {
    /// An empty subtable of that mask.
    pub fn new(mask: &Mask, secret: &HashKey) -> Self {
        let touched = |line: usize| {
            let words = match line {
                0 => *mask.words(),
                _ => compare::words(&mask.whole.line(line).0),
            };
            words.into_iter().enumerate().filter_map(move |(i, mask)| {
                let place = line * LINE_WORDS + i;
                (mask != 0 && place != TABLE_WORD).then_some((place, mask))
            })
        };
        let with_addends = |(place, mask)| Touched { place, mask, addends: secret.addends(place) };
        let mut first = [Touched::default(); LINE_WORDS];
        let mut n_first = 0;
        for touched in touched(0).map(with_addends) {
            first[n_first] = touched;
            n_first += 1;
        }
        let further = (1..PACKET_LINES).flat_map(touched).map(with_addends).collect();
        Subtable { first, n_first, further, index: TagIndex::default(), hits: 0 }
    }

    /// The number of megaflows.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Inserts a megaflow by its key, or by the key of any of its packets. Returns whether it was new.
    pub fn insert(&mut self, key: &PacketKey, id: FlowId) -> bool {
        self.index.insert(self.tag_of(key), id.0)
    }

    /// Removes a megaflow. Returns whether it was there.
    pub fn remove(&mut self, key: &PacketKey, id: FlowId) -> bool {
        self.index.remove(self.tag_of(key), id.0)
    }

    /// The ids of its megaflows. Some may be dead, and some of those used again.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.index.ids()
    }

    /// Whether it pays to prefetch for a whole batch first.
    #[inline]
    pub fn is_large(&self) -> bool {
        self.index.is_large()
    }

    /// Prefetches the bucket of a tag.
    #[inline]
    pub fn prefetch(&self, tag: u32) {
        self.index.prefetch(tag);
    }

    /// Prefetches a record with that tag.
    #[inline]
    pub fn prefetch_flows(&self, tag: u32, flows: Slots<'_, Megaflow>) {
        self.index.first_id(tag).into_iter().for_each(|id| flows.prefetch(id));
    }

    /// Looks up one packet, whose tag here is `tag`.
    #[inline]
    pub fn find<'g>(&mut self, key: &PacketKey, tag: u32, flows: Slots<'g, Megaflow>) -> Option<&'g Megaflow> {
        let flow = self.index.find(tag, |id| flows.get(id).filter(|flow| flow.contains(key)));
        self.hits += u64::from(flow.is_some());
        flow
    }

    /// The tag of a packet's key in this subtable.
    #[inline]
    pub fn tag_of(&self, key: &PacketKey) -> u32 {
        let word = |place| compare::word(&key.lines[0].0, place);
        let first = self.first[..self.n_first].iter().fold(0, |sum, t| add(sum, word(t.place), t));
        finish(first.wrapping_add(self.further_sum(key)))
    }

    fn further_sum(&self, key: &PacketKey) -> u64 {
        let word = |place: usize| compare::word(&key.line(place / LINE_WORDS).0, place);
        self.further.iter().fold(0, |sum, t| add(sum, word(t.place), t))
    }

    /// Looks up the packets of `miss`. Writes `hits` and returns the packets that still miss.
    #[inline]
    pub fn lookup<'g>(&mut self, batch: &LookupBatch<'_, 'g>, miss: BatchMask, hits: &mut Hits<'g>) -> BatchMask {
        // One loop for each number of words, so that the words stay in registers.
        let left = match (self.n_first, self.further.is_empty()) {
            (0, true) => self.lookup_words::<0>(batch, miss, hits),
            (1, true) => self.lookup_words::<1>(batch, miss, hits),
            (2, true) => self.lookup_words::<2>(batch, miss, hits),
            (3, true) => self.lookup_words::<3>(batch, miss, hits),
            (4, true) => self.lookup_words::<4>(batch, miss, hits),
            (5, true) => self.lookup_words::<5>(batch, miss, hits),
            _ => self.lookup_tags(batch, miss, hits, |key| self.tag_of(key)),
        };
        self.hits += (miss.len() - left.len()) as u64;
        left
    }

    #[inline(always)]
    fn lookup_words<'g, const N: usize>(
        &self,
        batch: &LookupBatch<'_, 'g>,
        miss: BatchMask,
        hits: &mut Hits<'g>,
    ) -> BatchMask {
        let touched: [Touched; N] = std::array::from_fn(|i| self.first[i]);
        let tag_of = |key: &PacketKey| {
            let word = |place| compare::word(&key.lines[0].0, place);
            finish(touched.iter().fold(0, |sum, t| add(sum, word(t.place), t)))
        };
        self.lookup_tags(batch, miss, hits, tag_of)
    }

    /// Looks up the packets of `miss` by their tags.
    ///
    /// Whether a packet matches is unpredictable. So all first buckets are read without a branch on the result, and
    /// only the packets that match or may match are looked at again. A branch for each packet cost 20 cycles in a
    /// search of 20 subtables, and 70 with the hash in the same loop (2026-11-20).
    #[inline(always)]
    fn lookup_tags<'g>(
        &self,
        batch: &LookupBatch<'_, 'g>,
        miss: BatchMask,
        hits: &mut Hits<'g>,
        tag_of: impl Fn(&PacketKey) -> u32,
    ) -> BatchMask {
        let mut tags = [0; BATCH_MAX];
        let mut perhaps = 0;
        if self.index.is_large() {
            for i in miss {
                tags[i] = tag_of(&batch.keys[i]);
                self.index.prefetch(tags[i]);
            }
            miss.into_iter().for_each(|i| perhaps |= u32::from(self.index.may_hold(tags[i])) << i);
        } else {
            for i in miss {
                tags[i] = tag_of(&batch.keys[i]);
                perhaps |= u32::from(self.index.may_hold(tags[i])) << i;
            }
        }
        let mut found = 0;
        for i in BatchMask(perhaps) {
            let key = &batch.keys[i];
            let flow = self.index.find(tags[i], |id| batch.flows.get(id).filter(|flow| flow.contains(key)));
            if flow.is_some() {
                hits[i] = flow;
                found |= 1 << i;
            }
        }
        BatchMask(miss.0 & !found)
    }
}

#[inline(always)]
fn finish(sum: u64) -> u32 {
    tag((hash::finish(sum) >> 32) as u32)
}

/// Adds the term of one word to the sum.
#[inline(always)]
fn add(sum: u64, word: u64, touched: &Touched) -> u64 {
    sum.wrapping_add(hash::product(word & touched.mask, touched.addends))
}
