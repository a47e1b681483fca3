//! One subtable: the megaflows of one mask, in one (in_port, recirc_id).

use crate::tag_index::TagIndex;
use crate::{Hits, LookupBatch, Mask, Megaflow};
use sluice_action::FlowId;
use sluice_flow::PacketKey;
use sluice_flow::layout::PACKET_LINES;
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::hash::{self, MaskedWord};
use sluice_simd::vector_ops::{Columns, TOGETHER};
use sluice_simd::{HashKey, VectorOps, compare};
use sluice_sync::Slots;

/// Words of line 0.
const LINE_WORDS: usize = 8;

/// The word of line 0 that holds in_port and recirc_id. It is the same for every megaflow of a table, so it is not
/// hashed.
pub(crate) const TABLE_WORD: usize = 0;

/// With fewer packets, one after another costs no more.
const TOGETHER_FROM: usize = 4;

/// The words of a batch's keys by place, line 0 alone: what subtables are searched by, eight packets at a time.
#[derive(Debug, Default)]
pub(crate) struct BatchColumns {
    by_eight: [Columns; BATCH_MAX / TOGETHER],
    /// The packets whose words they are: none, or all that are looked up.
    of: BatchMask,
}

impl BatchColumns {
    /// Takes the words of the packets of `miss`, if it pays to look at several packets together.
    #[inline(always)]
    pub fn fill<V: VectorOps>(&mut self, ops: V, keys: &[PacketKey; BATCH_MAX], miss: BatchMask) {
        self.of = BatchMask::NONE;
        if !V::SHUFFLES || miss.len() < TOGETHER_FROM {
            return;
        }
        // Plain loops: closures would not be compiled for the instruction set.
        let (keys, _) = keys.as_chunks::<TOGETHER>();
        for at in 0..BATCH_MAX / TOGETHER {
            if eighth(miss, at) != 0 {
                let keys = &keys[at];
                let mut lines = [&keys[0].lines[0].0; TOGETHER];
                for i in 0..TOGETHER {
                    lines[i] = &keys[i].lines[0].0;
                }
                ops.transpose(lines, &mut self.by_eight[at]);
            }
        }
        self.of = miss;
    }
}

/// The bits of packets `8 * at` and the seven that follow.
#[inline(always)]
fn eighth(packets: BatchMask, at: usize) -> u32 {
    packets.0 >> (TOGETHER * at) & 0xff
}

/// The mask of a line, and what the hash adds to its words; zeros where the mask has no bits.
#[derive(Debug, Default)]
#[repr(align(64))]
struct MaskedLine {
    mask: [u64; LINE_WORDS],
    addends: [u64; LINE_WORDS],
}

/// The megaflows of one mask.
///
/// Cost:   a probe that misses hashes the words in which the mask has bits (four in an ordinary IPv4 megaflow) and
///         reads one cache line. A hit also reads the record.
#[derive(Debug)]
pub(crate) struct Subtable {
    /// Words of line 0 in which the mask has bits; the first `n_first` are in use.
    first: [MaskedWord; LINE_WORDS],
    n_first: usize,
    /// The same in lines 1 to 7.
    further: Box<[MaskedWord]>,
    /// The words of line 0 again, as a line.
    by_place: MaskedLine,
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
        let with_addends = |(place, mask)| MaskedWord { place, mask, addends: secret.addends(place) };
        let mut first = [MaskedWord::default(); LINE_WORDS];
        let (mut n_first, mut by_place) = (0, MaskedLine::default());
        for touched in touched(0).map(with_addends) {
            first[n_first] = touched;
            n_first += 1;
            (by_place.mask[touched.place], by_place.addends[touched.place]) = (touched.mask, touched.addends);
        }
        let further = (1..PACKET_LINES).flat_map(touched).map(with_addends).collect();
        Subtable { first, n_first, further, by_place, index: TagIndex::default(), hits: 0 }
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

    /// The tag of a packet's key in this subtable.
    #[inline]
    pub fn tag_of(&self, key: &PacketKey) -> u32 {
        let word = |place| compare::word(&key.lines[0].0, place);
        let first = self.first[..self.n_first].iter().fold(0, |sum, t| t.add_to(sum, word(t.place)));
        hash::tag(first.wrapping_add(self.further_sum(key)))
    }

    /// The same by the vector operations at hand.
    #[inline(always)]
    pub fn tag_of_with<V: VectorOps>(&self, ops: V, key: &PacketKey) -> u32 {
        if !V::SHUFFLES {
            return self.tag_of(key);
        }
        let mut sum = ops.masked_sum(&key.lines[0].0, &self.by_place.mask, &self.by_place.addends);
        if !self.further.is_empty() {
            sum = sum.wrapping_add(self.further_sum(key));
        }
        hash::tag(sum)
    }

    #[inline(never)]
    fn further_sum(&self, key: &PacketKey) -> u64 {
        let word = |place: usize| compare::word(&key.line(place / LINE_WORDS).0, place);
        self.further.iter().fold(0, |sum, t| t.add_to(sum, word(t.place)))
    }

    /// Looks up the packets of `miss`. Writes `hits` and returns the packets that still miss.
    ///
    /// Whether a packet matches is unpredictable. So all first buckets are read without a branch on the result, and
    /// only the packets that match or may match are looked at again. A branch for each packet cost 20 cycles in a
    /// search of 20 subtables, and 70 with the hash in the same loop (2026-11-20).
    #[inline(always)]
    pub fn lookup<'g, V: VectorOps>(
        &mut self,
        ops: V,
        columns: &BatchColumns,
        batch: &LookupBatch<'_, 'g>,
        miss: BatchMask,
        hits: &mut Hits<'g>,
    ) -> BatchMask {
        let mut tags = [0; BATCH_MAX];
        self.tags_of_batch(ops, columns, batch, miss, &mut tags);
        let perhaps = self.may_hold(ops, miss, &tags);
        let found = self.verify(ops, batch, perhaps, &tags, hits);
        self.hits += found.len() as u64;
        BatchMask(miss.0 & !found.0)
    }

    /// Writes the tags of the packets of `miss`: the first part of [`Subtable::lookup`].
    #[inline(always)]
    pub fn tags_of_batch<V: VectorOps>(
        &self,
        ops: V,
        columns: &BatchColumns,
        batch: &LookupBatch<'_, '_>,
        miss: BatchMask,
        tags: &mut [u32; BATCH_MAX],
    ) {
        // One loop for each number of words, so that the words stay in registers.
        match (self.n_first, self.further.is_empty()) {
            (0, true) => self.tags::<0, V>(ops, columns, batch, miss, tags),
            (1, true) => self.tags::<1, V>(ops, columns, batch, miss, tags),
            (2, true) => self.tags::<2, V>(ops, columns, batch, miss, tags),
            (3, true) => self.tags::<3, V>(ops, columns, batch, miss, tags),
            (4, true) => self.tags::<4, V>(ops, columns, batch, miss, tags),
            (5, true) => self.tags::<5, V>(ops, columns, batch, miss, tags),
            _ => self.tags_of_all(batch, miss, tags),
        }
    }

    /// The tags of the packets of `miss`, whose masks have bits in `N` words of line 0 alone.
    #[inline(always)]
    fn tags<const N: usize, V: VectorOps>(
        &self,
        ops: V,
        columns: &BatchColumns,
        batch: &LookupBatch<'_, '_>,
        miss: BatchMask,
        tags: &mut [u32; BATCH_MAX],
    ) {
        let words: &[MaskedWord; N] = self.first.first_chunk().expect("invariant: N is at most LINE_WORDS");
        if !columns.of.is_empty() && miss.len() >= TOGETHER_FROM {
            let (tags, _) = tags.as_chunks_mut::<TOGETHER>();
            for (at, tags) in tags.iter_mut().enumerate() {
                if eighth(miss, at) != 0 {
                    *tags = ops.masked_tags(&columns.by_eight[at], words);
                }
            }
            return;
        }
        for i in miss {
            let mut sum = 0;
            for word in words {
                sum = word.add_to(sum, compare::word(&batch.keys[i].lines[0].0, word.place));
            }
            tags[i] = hash::tag(sum);
        }
    }

    /// The tags of the packets of `miss`, whatever the mask.
    #[inline(never)]
    fn tags_of_all(&self, batch: &LookupBatch<'_, '_>, miss: BatchMask, tags: &mut [u32; BATCH_MAX]) {
        miss.into_iter().for_each(|i| tags[i] = self.tag_of(&batch.keys[i]));
    }

    /// The packets of `miss` whose tags the index may hold: the second part of [`Subtable::lookup`].
    #[inline(always)]
    pub fn may_hold<V: VectorOps>(&self, ops: V, miss: BatchMask, tags: &[u32; BATCH_MAX]) -> BatchMask {
        if self.index.is_large() {
            for i in miss {
                self.index.prefetch(tags[i]);
            }
        }
        let mut perhaps = 0;
        if let Some(part) = self.index.only_part() {
            for i in miss {
                perhaps |= u32::from(part.may_hold_with(ops, tags[i])) << i;
            }
        } else {
            for i in miss {
                perhaps |= u32::from(self.index.part(tags[i]).may_hold_with(ops, tags[i])) << i;
            }
        }
        BatchMask(perhaps)
    }

    /// Whether the index may hold this tag. No branch depends on the answer.
    #[inline(always)]
    pub fn may_hold_one<V: VectorOps>(&self, ops: V, tag: u32) -> bool {
        self.index.part(tag).may_hold_with(ops, tag)
    }

    /// Compares the packets of `perhaps` with the records of their tags: the last part of [`Subtable::lookup`]. Writes
    /// `hits` and returns the packets that match.
    #[inline(always)]
    fn verify<'g, V: VectorOps>(
        &self,
        ops: V,
        batch: &LookupBatch<'_, 'g>,
        perhaps: BatchMask,
        tags: &[u32; BATCH_MAX],
        hits: &mut Hits<'g>,
    ) -> BatchMask {
        let mut found = 0;
        for i in perhaps {
            let hit = self.find_with(ops, i, tags[i], batch);
            if hit.is_some() {
                hits[i] = hit;
                found |= 1 << i;
            }
        }
        BatchMask(found)
    }

    /// Looks up packet `i` of a batch, whose tag here is `tag`. Does not count the hit.
    #[inline(always)]
    pub fn find_with<'g, V: VectorOps>(
        &self,
        ops: V,
        i: usize,
        tag: u32,
        batch: &LookupBatch<'_, 'g>,
    ) -> Option<&'g Megaflow> {
        let key = &batch.keys[i];
        // The first slot is nearly always right: otherwise two megaflows have one tag.
        let first = match self.index.part(tag).first_id_with(ops, tag) {
            Some(id) => batch.flows.get(id),
            None => None,
        };
        match first {
            Some(flow) if flow.contains_with(ops, key) => Some(flow),
            _ => self.find_any(key, tag, batch),
        }
    }

    /// Looks up a packet in all slots of its tag.
    #[inline(never)]
    fn find_any<'g>(&self, key: &PacketKey, tag: u32, batch: &LookupBatch<'_, 'g>) -> Option<&'g Megaflow> {
        self.index.find(tag, |id| batch.flows.get(id).filter(|flow| flow.contains(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sluice_simd::Isa;
    use sluice_simd::isa::Kernel;

    /// The tag of a key by the operations of an instruction set.
    struct TagOf<'a>(&'a Subtable, &'a PacketKey);

    impl Kernel for TagOf<'_> {
        type Output = u32;

        #[inline(always)]
        fn run<V: VectorOps>(self, ops: V) -> u32 {
            self.0.tag_of_with(ops, self.1)
        }
    }

    proptest! {
        /// Masks of few bytes leave most words out, and some have none in line 0.
        #[test]
        fn every_instruction_set_finds_the_same_tag(
            mask in prop::collection::vec((0..PACKET_LINES * 64, any::<u8>()), 0..12),
            bytes in prop::collection::vec(any::<u8>(), PACKET_LINES * 64),
            seed: u64,
        ) {
            let (mut wanted, mut key) = (PacketKey::ZERO, PacketKey::ZERO);
            mask.iter().for_each(|(at, byte)| wanted.lines[at / 64].0[at % 64] = *byte);
            bytes.iter().enumerate().for_each(|(at, byte)| key.lines[at / 64].0[at % 64] = *byte);
            let subtable = Subtable::new(&Mask::new(&wanted), &HashKey::from_seed(seed));
            for isa in Isa::available() {
                prop_assert_eq!(isa.run(TagOf(&subtable, &key)), subtable.tag_of(&key), "{:?}", isa);
            }
        }
    }
}
