//! vBF: a vector of Bloom filters, one a set, laid out side by side.
//!
//! Row `i` holds bit `i` of every set's filter, so one memory access tests all sets, and the AND of `k` rows is the
//! answer for all of them. A row has 8, 16, 32 or 64 bits, as few as hold all sets.
//!
//! A filter of `m` bits with `n` keys and `k` hashes has false positives at the rate `(1 - (1 - 1/m)^(kn))^k`; `s`
//! filters together have them at `1 - (1 - that)^s`, which is the configured rate. `m` is rounded up to a power of two;
//! then `k` is the smallest number that keeps the rate, so that a lookup reads few rows.
//! Source: B. Bloom, CACM 1970; A. Kirsch, M. Mitzenmacher, "Less Hashing, Same Performance", 2006 (k hashes from two);
//! DPDK lib/member.

use crate::hash::HashKey;
use crate::{AddError, Added, BULK_MAX, ConfigError, SetId, Summary};
use sluice_simd::Isa;
use sluice_simd::rows::{self, PADDING, Probes};

/// The most sets: the bits of a word.
const SETS_MAX: usize = 64;

/// The most keys: row numbers are taken from 32 bits of the hash.
const KEYS_MAX: usize = 1 << 31;

/// The most rows that a lookup reads. Lower rates need another structure.
const HASHES_MAX: u32 = 16;

/// How to make a [`Vbf`].
#[derive(Clone, Copy, Debug)]
pub struct VbfConfig {
    /// Expected number of keys, all sets together, evenly spread.
    pub keys: usize,
    /// Number of sets: a power of two, at most 64.
    pub sets: usize,
    /// Rate at which a key that was not added may be reported in any set, 0 to 1.
    pub false_positives: f64,
    /// The key of the hash.
    pub seed: u64,
}

/// Set summary of type vBF: bits, no keys, no delete.
///
/// Shape:  a power of two of rows, each of 8, 16, 32 or 64 bits.
/// Errors: false positives at the configured rate while the sets hold no more keys than configured; no false negatives.
pub struct Vbf {
    rows: Rows,
    /// Number of rows less one.
    row_mask: u32,
    /// Rows that a lookup reads.
    hashes: u32,
    sets: usize,
    key: HashKey,
    /// The vector instructions of bulk lookups. The few rows of a single key are read at the same time anyway.
    isa: Isa,
}

/// The rows, as wide as the sets need. The width is matched once per call, not once per row.
enum Rows {
    Of8(Box<[u8]>),
    Of16(Box<[u16]>),
    Of32(Box<[u32]>),
    Of64(Box<[u64]>),
}

/// Evaluates `$body` with `$rows` bound to the rows as a slice of their width.
macro_rules! with_rows {
    ($all:expr, $rows:ident => $body:expr) => {
        match $all {
            Rows::Of8($rows) => $body,
            Rows::Of16($rows) => $body,
            Rows::Of32($rows) => $body,
            Rows::Of64($rows) => $body,
        }
    };
}

/// A row of bits.
trait Row: rows::Row + std::ops::BitOrAssign {
    /// The row with only bit `bit` set.
    fn bit(bit: u16) -> Self;
}

macro_rules! rows {
    ($($width:ty)+) => {$(
        impl Row for $width {
            fn bit(bit: u16) -> Self {
                1 << bit
            }
        }
    )+};
}

rows!(u8 u16 u32 u64);

/// The rate of false positives of `sets` filters of `bits` bits with `keys` keys and `hashes` hashes each.
fn expected_rate(bits: f64, keys: f64, hashes: u32, sets: usize) -> f64 {
    let k = f64::from(hashes);
    let one = (1.0 - (1.0 - 1.0 / bits).powf(keys * k)).powf(k);
    1.0 - (1.0 - one).powf(sets as f64)
}

/// The rows of one key: `start`, and then every `step`th. The step is odd, so no row comes twice.
#[derive(Clone, Copy)]
struct RowProbe {
    start: u32,
    step: u32,
}

impl Vbf {
    /// Makes an empty filter.
    pub fn new(config: &VbfConfig) -> Result<Self, ConfigError> {
        let &VbfConfig { keys, sets, false_positives: rate, seed } = config;
        if keys == 0 || keys > KEYS_MAX {
            return Err(ConfigError::Keys { keys, limit: KEYS_MAX });
        }
        if !sets.is_power_of_two() || sets > SETS_MAX {
            return Err(ConfigError::Sets { sets, limit: SETS_MAX });
        }
        let one = 1.0 - (1.0 - rate).powf(1.0 / sets as f64);
        if !(rate > 0.0 && rate < 1.0 && one > 0.0) {
            return Err(ConfigError::Rate { rate });
        }
        let keys_a_set = keys.div_ceil(sets) as f64;
        let bits = -(keys_a_set * one.ln()) / std::f64::consts::LN_2.powi(2);
        let best = (std::f64::consts::LN_2 * bits / keys_a_set).round().clamp(1.0, f64::from(HASHES_MAX)) as u32;
        // Of a few keys, a row more or less counts: the rate of the formula takes more rows than the formula says.
        let least = (bits.ceil() as usize).max(SETS_MAX).next_power_of_two();
        let hashes_of = |rows: usize| (1..=best).find(|&k| expected_rate(rows as f64, keys_a_set, k, sets) <= rate);
        let found = [least, 2 * least, 4 * least].into_iter().find_map(|rows| Some((rows, hashes_of(rows)?)));
        let (rows, hashes) = found.ok_or(ConfigError::Rate { rate })?;
        let row_mask = (rows - 1) as u32;
        let rows = match sets {
            0..=8 => Rows::Of8(vec![0; rows + PADDING].into()),
            9..=16 => Rows::Of16(vec![0; rows + PADDING].into()),
            17..=32 => Rows::Of32(vec![0; rows + PADDING].into()),
            _ => Rows::Of64(vec![0; rows + PADDING].into()),
        };
        Ok(Vbf { rows, row_mask, hashes, sets, key: HashKey::new(seed), isa: Isa::best() })
    }

    /// Sets the vector instructions of bulk lookups: the widest of the machine unless told otherwise.
    pub fn set_isa(&mut self, isa: Isa) {
        self.isa = isa;
    }

    /// Rows that a lookup reads.
    pub fn hashes(&self) -> u32 {
        self.hashes
    }

    /// The rate of false positives to be expected when every set holds `keys_a_set` keys.
    pub fn expected_rate(&self, keys_a_set: usize) -> f64 {
        expected_rate(f64::from(self.row_mask) + 1.0, keys_a_set as f64, self.hashes, self.sets)
    }

    #[inline(always)]
    fn probe(&self, key: &[u8]) -> RowProbe {
        let hash = self.key.hash(key);
        RowProbe { start: hash as u32, step: (hash >> 32) as u32 | 1 }
    }

    /// The sets that may hold the key, bit `i` for set `i + 1`.
    #[inline(always)]
    fn sets_of<R: Row>(&self, rows: &[R], probe: RowProbe) -> u64 {
        let mut row = probe.start;
        let mut sets = R::ALL;
        for _ in 0..self.hashes {
            sets = sets & rows[(row & self.row_mask) as usize];
            row = row.wrapping_add(probe.step);
        }
        sets.into()
    }

    fn set_bits<R: Row>(rows: &mut [R], row_mask: u32, hashes: u32, probe: RowProbe, set: SetId) {
        for i in 0..hashes {
            let row = probe.start.wrapping_add(i.wrapping_mul(probe.step)) & row_mask;
            rows[row as usize] |= R::bit(set.get() - 1);
        }
    }

    fn bulk<const N: usize, R: Row>(&self, rows: &[R], keys: &[[u8; N]], out: &mut [Option<SetId>]) -> usize {
        let mut found = 0;
        for (keys, out) in keys.chunks(BULK_MAX).zip(out.chunks_mut(BULK_MAX)) {
            let (mut start, mut step, mut sets) = ([0; BULK_MAX], [0; BULK_MAX], [0; BULK_MAX]);
            let n = keys.len();
            for (i, key) in keys.iter().enumerate() {
                RowProbe { start: start[i], step: step[i] } = self.probe(key);
            }
            let probes = Probes { start: &start[..n], step: &step, n: self.hashes, mask: self.row_mask };
            rows::intersect(self.isa, rows, probes, &mut sets);
            for (sets, out) in sets.iter().zip(out) {
                *out = lowest(*sets);
                found += usize::from(out.is_some());
            }
        }
        found
    }
}

/// The lowest set whose bit is set.
#[inline(always)]
fn lowest(sets: u64) -> Option<SetId> {
    // Without any bit this is 64 + 1, which the remainder turns into 0: no set, and no branch.
    SetId::new((sets.trailing_zeros() as u16 + 1) % 65)
}

impl Summary for Vbf {
    fn add(&mut self, key: &[u8], set: SetId) -> Result<Added, AddError> {
        if usize::from(set.get()) > self.sets {
            return Err(AddError::NoSuchSet { set, sets: self.sets });
        }
        let probe = self.probe(key);
        with_rows!(&mut self.rows, rows => Self::set_bits(rows, self.row_mask, self.hashes, probe, set));
        Ok(Added::Stored)
    }

    #[inline]
    fn lookup(&self, key: &[u8]) -> Option<SetId> {
        let probe = self.probe(key);
        lowest(with_rows!(&self.rows, rows => self.sets_of(rows, probe)))
    }

    fn lookup_bulk<const N: usize>(&self, keys: &[[u8; N]], out: &mut [Option<SetId>]) -> usize {
        with_rows!(&self.rows, rows => self.bulk(rows, keys, &mut out[..keys.len()]))
    }

    fn lookup_multi(&self, key: &[u8], out: &mut [SetId]) -> usize {
        let probe = self.probe(key);
        let mut sets = with_rows!(&self.rows, rows => self.sets_of(rows, probe));
        let each = std::iter::from_fn(|| {
            let set = lowest(sets);
            sets &= sets.wrapping_sub(1);
            set
        });
        out.iter_mut().zip(each).map(|(to, set)| *to = set).count()
    }

    fn reset(&mut self) {
        with_rows!(&mut self.rows, rows => rows.fill(0));
    }
}
