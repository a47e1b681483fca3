//! Set summaries: which set may hold this key?
//!
//! After the DPDK membership library (librte_member). A summary answers for many sets at once, in a cache line or
//! two, and may be wrong in a known way:
//!
//! | type | a stranger may be reported (false positive) | a member may be missed (false negative) | delete |
//! |---|---|---|---|
//! | [`Ht`], filter mode | yes, see [`Ht`] | never | yes |
//! | [`Ht`], cache mode | yes | yes: a full bucket overwrites | yes |
//! | [`Vbf`] | yes, at the rate asked for | never | no |
//!
//! ```
//! use sluice_membership::{Ht, HtConfig, SetId, Summary};
//!
//! let mut ht = Ht::new(&HtConfig { keys: 1000, cache: false, seed: 1 })?;
//! let set = SetId::new(7).unwrap();
//! ht.add(b"10.0.0.1", set)?;
//! assert_eq!(ht.lookup(b"10.0.0.1"), Some(set));
//! assert_eq!(ht.lookup(b"10.0.0.2"), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Keys are byte strings of any length; all keys of one bulk call have one length, so that hashing is compiled for it.
//! The hash is keyed by the `seed`; draw it at random where keys come from strangers.
#![forbid(unsafe_code)]

mod hash;
mod ht;
mod vbf;

pub use ht::{Ht, HtConfig};
pub use vbf::{Vbf, VbfConfig};

/// A set's name: any number but 0, which stands for "no set" in the tables.
pub type SetId = std::num::NonZeroU16;

/// The most keys that a bulk lookup works on at a time; longer bulks are cut into such pieces.
pub const BULK_MAX: usize = 64;

/// What every type of summary can do.
pub trait Summary {
    /// Adds a key to a set.
    fn add(&mut self, key: &[u8], set: SetId) -> Result<Added, AddError>;

    /// A set that may hold `key`, `None` if none does. With several, which of them is unspecified.
    fn lookup(&self, key: &[u8]) -> Option<SetId>;

    /// Looks every key up, writing `out[i]` for `keys[i]`; returns how many were found.
    ///
    /// # Panics
    /// If `out` is shorter than `keys`.
    fn lookup_bulk<const N: usize>(&self, keys: &[[u8; N]], out: &mut [Option<SetId>]) -> usize;

    /// All sets that may hold `key`, as many as fit in `out`, each once a stored entry; returns how many.
    fn lookup_multi(&self, key: &[u8], out: &mut [SetId]) -> usize;

    /// `lookup_multi` for every key: the sets of `keys[i]` stand in `out[i * per_key..]`, `counts[i]` of them.
    /// Returns how many keys had any.
    ///
    /// # Panics
    /// If `out` or `counts` is too short.
    fn lookup_multi_bulk<const N: usize>(
        &self,
        keys: &[[u8; N]],
        per_key: usize,
        out: &mut [SetId],
        counts: &mut [usize],
    ) -> usize {
        let mut found = 0;
        for (i, key) in keys.iter().enumerate() {
            counts[i] = self.lookup_multi(key, &mut out[i * per_key..(i + 1) * per_key]);
            found += usize::from(counts[i] > 0);
        }
        found
    }

    /// Forgets every key.
    fn reset(&mut self);
}

/// What an addition did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The key has an entry of its own, or bits.
    Stored,
    /// Cache mode: an entry with the same signature was there, and names this set now.
    Updated,
    /// Cache mode: both buckets were full, and another key's entry was overwritten.
    Evicted,
}

/// Why a key was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// Filter mode: both buckets are full and no entry could be moved away.
    #[error("no room for the key: {entries} of {capacity} entries are in use and both its buckets are full")]
    Full {
        /// Entries in use.
        entries: usize,
        /// Entries there are.
        capacity: usize,
    },
    /// The set's number is beyond what this summary was made for.
    #[error("set {set} is out of range: this summary was made for sets 1 to {sets}")]
    NoSuchSet {
        /// The set asked for.
        set: SetId,
        /// How many there are.
        sets: usize,
    },
}

/// Why a summary was not made.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A capacity of 0, or more than fits in memory addresses.
    #[error("a summary for {keys} keys cannot be made: expected 1 to {limit}")]
    Keys {
        /// The capacity asked for.
        keys: usize,
        /// The largest.
        limit: usize,
    },
    /// A number of sets out of range.
    #[error("a vector Bloom filter of {sets} sets cannot be made: expected a power of two from 1 to {limit}")]
    Sets {
        /// The number asked for.
        sets: usize,
        /// The largest.
        limit: usize,
    },
    /// A false-positive rate out of range, or too small to reach.
    #[error("a false-positive rate of {rate} cannot be reached: expected more than 0 and less than 1")]
    Rate {
        /// The rate asked for.
        rate: f64,
    },
}
