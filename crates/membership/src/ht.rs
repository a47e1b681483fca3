//! HT: a hash table of signatures, built like a cuckoo filter.
//!
//! A key has two candidate buckets of 16 entries; an entry is a 16-bit signature and a 16-bit set id, so that a bucket
//! is exactly one cache line. The second bucket is computed from the first one and the signature, so an entry can move
//! without its key.
//!
//! **Filter mode** moves entries to free a slot. It searches breadth first, so it makes the fewest moves. It never
//! loses an entry, and `add` fails when no slot can be freed, usually at 95 % occupancy. **Cache mode** moves nothing:
//! a key whose signature is stored already updates that entry, and if both buckets are full, one of their 32 entries is
//! overwritten.
//!
//! False positives: a key that was not added is compared with at most 32 signatures of 16 bits, so at load `a` the rate
//! is `1 - (1 - 2^-16)^(32a)`, about `a / 2048`.
//! Source: B. Fan et al., "Cuckoo Filter: Practically Better Than Bloom", CoNEXT 2014; DPDK lib/member.

use crate::hash::HashKey;
use crate::{AddError, Added, BULK_MAX, ConfigError, SetId, Summary};
use sluice_simd::hints::{self, Hints, SLOTS};
use sluice_simd::{Isa, prefetch, signature};

/// Entries that a search for a free slot visits before it gives up.
const SEARCH_MAX: usize = 2048;

/// The largest table: bucket numbers are taken from 32 bits of the hash.
const KEYS_MAX: usize = 1 << 35;

/// How to make an [`Ht`].
#[derive(Clone, Copy, Debug)]
pub struct HtConfig {
    /// Number of entries; rounded up to a power of two, at least 32.
    pub keys: usize,
    /// Cache mode: when full, overwrite instead of failing.
    pub cache: bool,
    /// The key of the hash.
    pub seed: u64,
}

/// One cache line: signatures, 0 for a free slot, and the sets beside them, 0 for none.
type Bucket = Hints;

#[inline(always)]
fn matching(bucket: &Bucket, signature: u16) -> u16 {
    signature::matching(&bucket.signatures, signature)
}

fn free_slot(bucket: &Bucket) -> Option<usize> {
    let free = matching(bucket, 0);
    (free != 0).then(|| free.trailing_zeros() as usize)
}

fn put(bucket: &mut Bucket, slot: usize, signature: u16, set: Option<SetId>) {
    bucket.signatures[slot] = signature;
    bucket.hints[slot] = set.map_or(0, SetId::get);
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
    /// The vector instructions of lookups.
    isa: Isa,
    /// State of the generator that chooses victims in cache mode.
    victim_state: u32,
}

/// A key's signature and the two buckets that may hold it.
#[derive(Clone, Copy)]
struct Candidates {
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
            isa: Isa::best(),
            victim_state: 0,
        })
    }

    /// Sets the vector instructions of lookups: the widest of the machine unless told otherwise.
    pub fn set_isa(&mut self, isa: Isa) {
        self.isa = isa;
    }

    /// Number of entries.
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

    /// Removes one entry of `key` in `set`; `false` if there was none.
    ///
    /// Delete only keys that were added: another key with the same signature would remove an entry that is not its own.
    pub fn delete(&mut self, key: &[u8], set: SetId) -> bool {
        let candidates = self.candidates(key);
        for at in [candidates.first, candidates.second] {
            let bucket = &mut self.buckets[at as usize];
            let slot = slots(matching(bucket, candidates.signature)).find(|&slot| bucket.hints[slot] == set.get());
            if let Some(slot) = slot {
                put(bucket, slot, 0, None);
                self.used -= 1;
                return true;
            }
        }
        false
    }

    /// The low half of the hash selects the bucket; the top sixteen bits are the signature.
    #[inline(always)]
    fn candidates(&self, key: &[u8]) -> Candidates {
        let hash = self.key.hash(key);
        let signature = ((hash >> 48) as u16).max(1);
        let first = hash as u32 & self.mask;
        Candidates { signature, first, second: self.other(first, signature) }
    }

    /// The other bucket of an entry. Applied twice it gives the first one again; it is never the same bucket, since the
    /// step is odd.
    #[inline(always)]
    fn other(&self, bucket: u32, signature: u16) -> u32 {
        (bucket ^ (u32::from(signature).wrapping_mul(0x5bd1_e995) | 1)) & self.mask
    }

    fn add_to_cache(&mut self, candidates: Candidates, set: SetId) -> Added {
        for at in [candidates.first, candidates.second] {
            let bucket = &mut self.buckets[at as usize];
            if let Some(slot) = slots(matching(bucket, candidates.signature)).next() {
                bucket.hints[slot] = set.get();
                return Added::Updated;
            }
        }
        for at in [candidates.first, candidates.second] {
            let bucket = &mut self.buckets[at as usize];
            if let Some(slot) = free_slot(bucket) {
                put(bucket, slot, candidates.signature, Some(set));
                self.used += 1;
                return Added::Stored;
            }
        }
        self.victim_state = self.victim_state.wrapping_mul(0x915f_77f5).wrapping_add(1);
        let at = if self.victim_state >> 31 == 0 { candidates.first } else { candidates.second };
        let slot = (self.victim_state >> 24) as usize % SLOTS;
        put(&mut self.buckets[at as usize], slot, candidates.signature, Some(set));
        Added::Evicted
    }

    /// Frees a slot in one of two full buckets with as few moves as possible; returns its bucket and number.
    fn make_room(&mut self, candidates: Candidates) -> Option<(u32, usize)> {
        /// An entry that could move: where it is, and the entry of the search that would take its slot.
        struct Relocation {
            bucket: u32,
            slot: usize,
            from: Option<usize>,
        }
        let mut search: Vec<Relocation> = Vec::new();
        for bucket in [candidates.first, candidates.second] {
            search.extend((0..SLOTS).map(|slot| Relocation { bucket, slot, from: None }));
        }
        let mut at = 0;
        while at < search.len() {
            let Relocation { bucket, slot, .. } = search[at];
            let to = self.other(bucket, self.buckets[bucket as usize].signatures[slot]);
            if let Some(free) = free_slot(&self.buckets[to as usize]) {
                let mut free = (to, free);
                let mut next = Some(at);
                while let Some(entry) = next {
                    let Relocation { bucket, slot, from } = search[entry];
                    let source = self.buckets[bucket as usize];
                    let set = SetId::new(source.hints[slot]);
                    put(&mut self.buckets[free.0 as usize], free.1, source.signatures[slot], set);
                    free = (bucket, slot);
                    next = from;
                }
                return Some(free);
            }
            // A bucket that was reached before would be moved from twice.
            if search.len() < SEARCH_MAX && !search.iter().any(|s| s.bucket == to) {
                search.extend((0..SLOTS).map(|slot| Relocation { bucket: to, slot, from: Some(at) }));
            }
            at += 1;
        }
        None
    }
}

/// The positions of the set bits.
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
        let candidates = self.candidates(key);
        if self.cache {
            return Ok(self.add_to_cache(candidates, set));
        }
        let free = [candidates.first, candidates.second]
            .into_iter()
            .find_map(|at| free_slot(&self.buckets[at as usize]).map(|slot| (at, slot)))
            .or_else(|| self.make_room(candidates));
        let (at, slot) = free.ok_or(AddError::Full { entries: self.used, capacity: self.capacity() })?;
        put(&mut self.buckets[at as usize], slot, candidates.signature, Some(set));
        self.used += 1;
        Ok(Added::Stored)
    }

    #[inline]
    fn lookup(&self, key: &[u8]) -> Option<SetId> {
        let Candidates { signature, first, second } = self.candidates(key);
        let mut set = [0];
        hints::find_either(self.isa, &self.buckets, &[first], &[second], &[signature], &mut set);
        SetId::new(set[0])
    }

    fn lookup_bulk<const N: usize>(&self, keys: &[[u8; N]], out: &mut [Option<SetId>]) -> usize {
        let out = &mut out[..keys.len()];
        let mut found = 0;
        for (keys, out) in keys.chunks(BULK_MAX).zip(out.chunks_mut(BULK_MAX)) {
            let (mut first, mut second) = ([0; BULK_MAX], [0; BULK_MAX]);
            let (mut signatures, mut sets) = ([0; BULK_MAX], [0; BULK_MAX]);
            let n = keys.len();
            let line = |at: u32| self.buckets.as_ptr().wrapping_add(at as usize);
            for (((key, signature), first), second) in keys.iter().zip(&mut signatures).zip(&mut first).zip(&mut second)
            {
                let candidates = self.candidates(key);
                (*signature, *first, *second) = (candidates.signature, candidates.first, candidates.second);
                prefetch::read(line(*first));
                prefetch::read(line(*second));
            }
            hints::find_either(self.isa, &self.buckets, &first[..n], &second, &signatures, &mut sets);
            for (set, out) in sets.iter().zip(out) {
                *out = SetId::new(*set);
                found += usize::from(*set != 0);
            }
        }
        found
    }

    fn lookup_multi(&self, key: &[u8], out: &mut [SetId]) -> usize {
        let candidates = self.candidates(key);
        let hits = [candidates.first, candidates.second].into_iter().flat_map(|at| {
            let bucket = &self.buckets[at as usize];
            slots(matching(bucket, candidates.signature)).filter_map(|slot| SetId::new(bucket.hints[slot]))
        });
        out.iter_mut().zip(hits).map(|(to, set)| *to = set).count()
    }

    fn reset(&mut self) {
        self.buckets.fill(Bucket::EMPTY);
        self.used = 0;
    }
}
