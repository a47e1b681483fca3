//! HT: a hash table of signatures, after the cuckoo filter.
//!
//! A key has two candidate buckets of 16 entries; an entry is a 16-bit signature and a 16-bit set id, so that a
//! bucket is exactly one cache line. The second bucket follows from the first and the signature alone, so an entry can
//! be moved without its key.
//!
//! **Filter mode** moves entries to make room (breadth first, so the shortest chain of moves), never loses one, and
//! fails when it finds no room; 95 % full is usual. **Cache mode** moves nothing: a key whose signature is there already
//! updates that entry, and a full pair of buckets overwrites one of its 32 entries.
//!
//! False positives: a stranger is compared with at most 32 signatures of 16 bits, so at load `a` the rate is
//! `1 - (1 - 2^-16)^(32a)`, about `a / 2048`.
//! Source: B. Fan et al., "Cuckoo Filter: Practically Better Than Bloom", CoNEXT 2014; DPDK lib/member.

use crate::hash::HashKey;
use crate::{AddError, Added, BULK_MAX, ConfigError, SetId, Summary};
use sluice_simd::prefetch;
use sluice_simd::signature::{self, SLOTS};

/// How many entries a search for room looks at before it gives up.
const SEARCH_MAX: usize = 2048;

/// The largest table: bucket numbers are taken from 32 bits of the hash.
const KEYS_MAX: usize = 1 << 35;

/// How to make an [`Ht`].
#[derive(Clone, Copy, Debug)]
pub struct HtConfig {
    /// How many entries there are to be; rounded up to a power of two, at least 32.
    pub keys: usize,
    /// Cache mode: overwrite instead of fail.
    pub cache: bool,
    /// Keys the hash.
    pub seed: u64,
}

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    /// 0 in free slots, never 0 in used ones.
    signatures: [u16; SLOTS],
    sets: [Option<SetId>; SLOTS],
}

const _: () = assert!(size_of::<Bucket>() == 64, "a bucket is one cache line");

impl Bucket {
    const EMPTY: Bucket = Bucket { signatures: [0; SLOTS], sets: [None; SLOTS] };

    #[inline(always)]
    fn matching(&self, signature: u16) -> u16 {
        signature::matching(&self.signatures, signature)
    }

    fn free_slot(&self) -> Option<usize> {
        let free = self.matching(0);
        (free != 0).then(|| free.trailing_zeros() as usize)
    }

    fn put(&mut self, slot: usize, signature: u16, set: Option<SetId>) {
        self.signatures[slot] = signature;
        self.sets[slot] = set;
    }
}

/// Set summary of type HT: signature → set id.
///
/// Shape:  2^k buckets, k ≥ 1, of 16 slots; a bucket is 64 bytes, one cache line.
/// Errors: filter mode fails when full; cache mode overwrites. False positives as above; no false negatives in filter
///         mode.
pub struct Ht {
    buckets: Box<[Bucket]>,
    /// Number of buckets less one.
    mask: u32,
    used: usize,
    cache: bool,
    key: HashKey,
    /// Chooses victims in cache mode.
    turn: u32,
}

/// Where a key may be.
#[derive(Clone, Copy)]
struct Place {
    signature: u16,
    first: u32,
    second: u32,
}

impl Ht {
    /// Makes an empty table.
    pub fn new(config: &HtConfig) -> Result<Self, ConfigError> {
        if config.keys == 0 || config.keys > KEYS_MAX {
            return Err(ConfigError::Keys { keys: config.keys, limit: KEYS_MAX });
        }
        let buckets = config.keys.div_ceil(SLOTS).next_power_of_two().max(2);
        Ok(Ht {
            buckets: vec![Bucket::EMPTY; buckets].into(),
            mask: (buckets - 1) as u32,
            used: 0,
            cache: config.cache,
            key: HashKey::new(config.seed),
            turn: 0,
        })
    }

    /// Entries there are.
    pub fn capacity(&self) -> usize {
        self.buckets.len() * SLOTS
    }

    /// Entries in use.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether no entry is in use.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Takes one entry of `key` in `set` out; `false` if there was none.
    ///
    /// Delete only what was added: a stranger with the same signature would take another key's entry away.
    pub fn delete(&mut self, key: &[u8], set: SetId) -> bool {
        let place = self.place(key);
        for at in [place.first, place.second] {
            let bucket = &mut self.buckets[at as usize];
            let slot = slots(bucket.matching(place.signature)).find(|&slot| bucket.sets[slot] == Some(set));
            if let Some(slot) = slot {
                bucket.put(slot, 0, None);
                self.used -= 1;
                return true;
            }
        }
        false
    }

    /// The low half of the hash picks the bucket, the top sixteen bits are the signature.
    #[inline(always)]
    fn place(&self, key: &[u8]) -> Place {
        let hash = self.key.hash(key);
        let signature = ((hash >> 48) as u16).max(1);
        let first = hash as u32 & self.mask;
        Place { signature, first, second: self.other(first, signature) }
    }

    /// The other bucket of an entry: an involution, and never the same bucket (the step is odd).
    #[inline(always)]
    fn other(&self, bucket: u32, signature: u16) -> u32 {
        (bucket ^ (u32::from(signature).wrapping_mul(0x5bd1_e995) | 1)) & self.mask
    }

    #[inline(always)]
    fn find(&self, place: Place) -> Option<SetId> {
        let first = &self.buckets[place.first as usize];
        let hits = first.matching(place.signature);
        if hits != 0 {
            return first.sets[hits.trailing_zeros() as usize & (SLOTS - 1)];
        }
        let second = &self.buckets[place.second as usize];
        let hits = second.matching(place.signature);
        if hits != 0 { second.sets[hits.trailing_zeros() as usize & (SLOTS - 1)] } else { None }
    }

    fn add_to_cache(&mut self, place: Place, set: SetId) -> Added {
        for at in [place.first, place.second] {
            let bucket = &mut self.buckets[at as usize];
            if let Some(slot) = slots(bucket.matching(place.signature)).next() {
                bucket.sets[slot] = Some(set);
                return Added::Updated;
            }
        }
        for at in [place.first, place.second] {
            let bucket = &mut self.buckets[at as usize];
            if let Some(slot) = bucket.free_slot() {
                bucket.put(slot, place.signature, Some(set));
                self.used += 1;
                return Added::Stored;
            }
        }
        self.turn = self.turn.wrapping_mul(0x915f_77f5).wrapping_add(1);
        let at = if self.turn >> 31 == 0 { place.first } else { place.second };
        self.buckets[at as usize].put((self.turn >> 24) as usize % SLOTS, place.signature, Some(set));
        Added::Evicted
    }

    /// Makes a free slot in one of two full buckets by the shortest chain of moves; the slot's bucket and number.
    fn make_room(&mut self, place: Place) -> Option<(u32, usize)> {
        /// An entry that could move: where it is, and through which entry of the search it was reached.
        struct Step {
            bucket: u32,
            slot: usize,
            from: Option<usize>,
        }
        let mut steps: Vec<Step> = Vec::new();
        for bucket in [place.first, place.second] {
            steps.extend((0..SLOTS).map(|slot| Step { bucket, slot, from: None }));
        }
        let mut at = 0;
        while at < steps.len() {
            let Step { bucket, slot, .. } = steps[at];
            let to = self.other(bucket, self.buckets[bucket as usize].signatures[slot]);
            if let Some(free) = self.buckets[to as usize].free_slot() {
                let mut free = (to, free);
                let mut next = Some(at);
                while let Some(step) = next {
                    let Step { bucket, slot, from } = steps[step];
                    let source = self.buckets[bucket as usize];
                    self.buckets[free.0 as usize].put(free.1, source.signatures[slot], source.sets[slot]);
                    free = (bucket, slot);
                    next = from;
                }
                return Some(free);
            }
            // A bucket already on the way would be moved from twice.
            if steps.len() < SEARCH_MAX && !steps.iter().any(|s| s.bucket == to) {
                steps.extend((0..SLOTS).map(|slot| Step { bucket: to, slot, from: Some(at) }));
            }
            at += 1;
        }
        None
    }
}

/// The numbers of the bits set.
fn slots(mut mask: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let slot = mask.trailing_zeros() as usize;
        (mask != 0).then(|| {
            mask &= mask - 1;
            slot
        })
    })
}

impl Summary for Ht {
    fn add(&mut self, key: &[u8], set: SetId) -> Result<Added, AddError> {
        let place = self.place(key);
        if self.cache {
            return Ok(self.add_to_cache(place, set));
        }
        let free = [place.first, place.second]
            .into_iter()
            .find_map(|at| self.buckets[at as usize].free_slot().map(|slot| (at, slot)))
            .or_else(|| self.make_room(place));
        let (at, slot) = free.ok_or(AddError::Full { entries: self.used, capacity: self.capacity() })?;
        self.buckets[at as usize].put(slot, place.signature, Some(set));
        self.used += 1;
        Ok(Added::Stored)
    }

    #[inline]
    fn lookup(&self, key: &[u8]) -> Option<SetId> {
        self.find(self.place(key))
    }

    fn lookup_bulk<const N: usize>(&self, keys: &[[u8; N]], out: &mut [Option<SetId>]) -> usize {
        let out = &mut out[..keys.len()];
        let mut found = 0;
        for (keys, out) in keys.chunks(BULK_MAX).zip(out.chunks_mut(BULK_MAX)) {
            let mut places = [Place { signature: 0, first: 0, second: 0 }; BULK_MAX];
            for (place, key) in places.iter_mut().zip(keys) {
                *place = self.place(key);
                prefetch::read(&raw const self.buckets[place.first as usize]);
                prefetch::read(&raw const self.buckets[place.second as usize]);
            }
            for (place, out) in places.iter().zip(out) {
                *out = self.find(*place);
                found += usize::from(out.is_some());
            }
        }
        found
    }

    fn lookup_multi(&self, key: &[u8], out: &mut [SetId]) -> usize {
        let place = self.place(key);
        let hits = [place.first, place.second].into_iter().flat_map(|at| {
            let bucket = &self.buckets[at as usize];
            slots(bucket.matching(place.signature)).filter_map(|slot| bucket.sets[slot])
        });
        out.iter_mut().zip(hits).map(|(to, set)| *to = set).count()
    }

    fn reset(&mut self) {
        self.buckets.fill(Bucket::EMPTY);
        self.used = 0;
    }
}
