//! Zipf's law: the flow of rank k has a probability proportional to 1/k to the power of the exponent.

/// An alias table: draws a number from a fixed distribution with one lookup.
///
/// Shape:  one slot for each number, 8 bytes: keep the slot's own number below `keep`, else take `alias`.
/// Errors: probabilities are rounded to 2^-32 of a slot.
/// Source: Vose, "A linear algorithm for generating random numbers with a given distribution", 1991.
#[derive(Clone, Debug)]
pub(crate) struct AliasTable {
    slots: Vec<AliasSlot>,
}

#[derive(Clone, Copy, Debug)]
struct AliasSlot {
    keep: u32,
    alias: u32,
}

impl AliasTable {
    /// The table for these weights: at least one, none negative, not all zero.
    pub(crate) fn new(weights: &[f64]) -> Self {
        let mean = weights.iter().sum::<f64>() / weights.len() as f64;
        let mut share: Vec<f64> = weights.iter().map(|w| w / mean).collect();
        let mut slots: Vec<AliasSlot> =
            (0..weights.len() as u32).map(|i| AliasSlot { keep: u32::MAX, alias: i }).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..share.len()).partition(|&i| share[i] < 1.0);
        while let (Some(&lack), Some(&plenty)) = (small.last(), large.last()) {
            small.pop();
            slots[lack] = AliasSlot { keep: (share[lack] * 4_294_967_296.0) as u32, alias: plenty as u32 };
            share[plenty] -= 1.0 - share[lack];
            if share[plenty] < 1.0 {
                large.pop();
                small.push(plenty);
            }
        }
        AliasTable { slots }
    }

    /// The number drawn by a random one.
    #[inline]
    pub(crate) fn draw(&self, random: u64) -> u32 {
        let at = crate::rng::below(self.slots.len() as u32, random);
        let slot = self.slots[at as usize];
        if (random as u32) < slot.keep { at } else { slot.alias }
    }
}

/// `rank` to the power of `-exponent`; rank is at least 1.
///
/// Uses additions, multiplications and divisions only, which give the same bits on every machine; a library's power
/// function does not. Exact to about 1e-12.
pub(crate) fn weight(rank: u32, exponent: f64) -> f64 {
    exp(-exponent * ln(f64::from(rank)))
}

const LN_2: f64 = std::f64::consts::LN_2;

/// Natural logarithm of a number of at least 1.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = (bits >> 52) as i32 - 1023;
    let fraction = f64::from_bits(bits & 0x000f_ffff_ffff_ffff | 1023 << 52); // in 1..2
    // ln(f) = 2 artanh((f - 1) / (f + 1)), whose argument is below 1/3: 15 terms leave less than 1e-15.
    let t = (fraction - 1.0) / (fraction + 1.0);
    let series = (0..15).rev().fold(0.0, |sum, k| sum * t * t + 1.0 / f64::from(2 * k + 1));
    f64::from(exponent) * LN_2 + 2.0 * t * series
}

/// e to the power of a number of at most 0; 0 where that is below the smallest normal number.
fn exp(x: f64) -> f64 {
    if x < -700.0 {
        return 0.0;
    }
    let halvings = (-x / LN_2) as i32;
    let rest = x + f64::from(halvings) * LN_2; // in -ln 2..=0
    let series = (1..22).rev().fold(1.0, |sum, k| 1.0 + sum * rest / f64::from(k));
    series * f64::from_bits(((1023 - halvings) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix64;
    use proptest::prelude::*;

    #[test]
    fn weights_are_powers() {
        for rank in [1, 2, 3, 7, 1000, 999_983, u32::MAX] {
            for exponent in [0.0, 0.5, 0.99, 1.0, 1.3, 4.0] {
                let want = f64::from(rank).powf(-exponent);
                assert!((weight(rank, exponent) / want - 1.0).abs() < 1e-12, "{rank} {exponent}");
            }
        }
        assert_eq!(weight(u32::MAX, 40.0), 0.0);
    }

    proptest! {
        /// Each number's probability, according to the table, is its weight's share.
        #[test]
        fn the_table_holds_the_distribution(weights in prop::collection::vec(0u32..50, 1..40)) {
            prop_assume!(weights.iter().any(|w| *w > 0));
            let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
            let table = AliasTable::new(&weights);
            let mut got = vec![0.0; weights.len()];
            for (i, slot) in table.slots.iter().enumerate() {
                let kept = f64::from(slot.keep) / 4_294_967_296.0;
                got[i] += kept;
                got[slot.alias as usize] += 1.0 - kept;
            }
            let sum: f64 = weights.iter().sum();
            for (got, weight) in got.iter().zip(&weights) {
                let want = weight / sum * weights.len() as f64;
                prop_assert!((got - want).abs() < 1e-6, "{} instead of {}", got, want);
            }
        }
    }

    #[test]
    fn draws_follow_the_law() {
        let weights: Vec<f64> = (1..=100).map(|rank| weight(rank, 1.0)).collect();
        let table = AliasTable::new(&weights);
        let mut rng = SplitMix64::new(7);
        let mut counts = [0u32; 100];
        (0..100_000).for_each(|_| counts[table.draw(rng.next_u64()) as usize] += 1);
        let ratio = f64::from(counts[0]) / f64::from(counts[9]);
        assert!((8.0..12.5).contains(&ratio), "rank 1 came {ratio} times as often as rank 10");
    }
}
