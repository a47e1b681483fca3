//! Set summaries: which set may hold this key?
//!
//! Modelled on the DPDK membership library (librte_member). A summary answers for many sets at once, with one or two
//! cache lines read, and may err in a known way:
//!
//! | type | reports a key that was not added (false positive) | misses a key that was added (false negative) | delete |
//! |---|---|---|---|
//! | [`Ht`], filter mode | yes, see [`Ht`] | never | yes |
//! | [`Ht`], cache mode | yes | yes: a full bucket overwrites | yes |
//! | [`Vbf`] | yes, at the configured rate | never | no |
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
//! Keys are byte strings of any length. All keys of one bulk call have the same length, so that the compiler
//! specialises the hash. The hash is keyed by the `seed`: choose it at random where others choose the keys.
//!
//! Memory is allocated when a summary is made and never after. A lookup takes `&self`, a change `&mut self`; there are
//! no locks.
#![forbid(unsafe_code)]

mod hash;
mod ht;
mod vbf;

pub use ht::{Ht, HtConfig};
pub use vbf::{Vbf, VbfConfig};

/// A set's number. 0 stands for "no set" in the tables.
pub type SetId = std::num::NonZeroU16;

/// Keys that a bulk lookup processes at a time; longer bulks are split.
pub const BULK_MAX: usize = 64;

/// What every type of summary can do.
pub trait Summary {
    /// Adds a key to a set.
    fn add(&mut self, key: &[u8], set: SetId) -> Result<Added, AddError>;

    /// A set that may hold `key`, `None` if none does. If several may, any of them is returned.
    fn lookup(&self, key: &[u8]) -> Option<SetId>;

    /// Looks up every key and writes `out[i]` for `keys[i]`; returns how many were found.
    ///
    /// # Panics
    /// If `out` is shorter than `keys`.
    fn lookup_bulk<const N: usize>(&self, keys: &[[u8; N]], out: &mut [Option<SetId>]) -> usize;

    /// Writes the sets that may hold `key`, once per stored entry, as many as fit in `out`; returns how many.
    fn lookup_multi(&self, key: &[u8], out: &mut [SetId]) -> usize;

    /// `lookup_multi` for every key: writes `counts[i]` sets of `keys[i]` to `out[i * per_key..]`. Returns how many
    /// keys have any.
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
    /// The key was stored.
    Stored,
    /// Cache mode: an entry with the same signature existed and now names this set.
    Updated,
    /// Cache mode: both buckets were full, and another key's entry was overwritten.
    Evicted,
}

/// Why a key was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// Filter mode: both buckets are full and no entry could move.
    #[error("no room for the key: {entries} of {capacity} entries are in use and both its buckets are full")]
    Full {
        /// Entries in use.
        entries: usize,
        /// Number of entries.
        capacity: usize,
    },
    /// The set's number is higher than this summary was made for.
    #[error("set {set} is out of range: this summary was made for sets 1 to {sets}")]
    NoSuchSet {
        /// The requested set.
        set: SetId,
        /// The number of sets.
        sets: usize,
    },
}

/// Why a summary was not made.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A capacity of 0, or more than fits in memory addresses.
    #[error("a summary for {keys} keys cannot be made: expected 1 to {limit}")]
    Keys {
        /// The requested capacity.
        keys: usize,
        /// The largest.
        limit: usize,
    },
    /// A number of sets out of range.
    #[error("a vector Bloom filter of {sets} sets cannot be made: expected a power of two from 1 to {limit}")]
    Sets {
        /// The requested number.
        sets: usize,
        /// The largest.
        limit: usize,
    },
    /// A false-positive rate out of range, or too small to reach.
    #[error("a false-positive rate of {rate} cannot be reached: expected more than 0 and less than 1")]
    Rate {
        /// The requested rate.
        rate: f64,
    },
}
