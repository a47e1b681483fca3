//! Samples counted by size. Source: Open vSwitch lib/dpif-netdev-perf.c, `histogram_walls_set_lin`,
//! `histogram_walls_set_log`.

/// Bins of a histogram.
pub const BINS: usize = 32;

/// How many samples there were of each size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// The largest sample of each bin; the last one takes all that are larger.
    walls: [u32; BINS],
    bins: [u64; BINS],
}

impl Histogram {
    /// Bins of the same width.
    pub fn linear(min: u32, max: u32) -> Self {
        let mut walls = [u32::MAX; BINS];
        for (i, wall) in walls[..BINS - 1].iter_mut().enumerate() {
            *wall = min + i as u32 * (max - min) / (BINS as u32 - 2);
        }
        Histogram { walls, bins: [0; BINS] }
    }

    /// Bins each of which is wider than the one before by the same factor. With `min` 0 the first is for zeros.
    pub fn logarithmic(min: u32, max: u32) -> Self {
        let mut walls = [u32::MAX; BINS];
        let (first, low) = if min > 0 { (0, min) } else { (1, 1) };
        walls[0] = min;
        let bins = BINS - 1 - first;
        let (low, high) = (f64::from(low).ln(), f64::from(max).ln());
        // Each is larger than the one before.
        let mut least = first as u32;
        for i in 0..bins {
            let wall = (low + i as f64 * (high - low) / (bins - 1) as f64).exp() as u32;
            least = least.max(wall);
            walls[first + i] = least;
            least += 1;
        }
        walls[BINS - 2] = walls[BINS - 2].max(max);
        Histogram { walls, bins: [0; BINS] }
    }

    /// Counts `n` samples of a size.
    #[inline]
    pub fn add(&mut self, size: u64, n: u64) {
        let bin = self.walls[..BINS - 1].iter().position(|wall| size <= u64::from(*wall)).unwrap_or(BINS - 1);
        self.bins[bin] += n;
    }

    /// The largest sample of each bin and its count; of the last bin, which has no bound, `None`.
    pub fn bins(&self) -> impl Iterator<Item = (Option<u32>, u64)> {
        let walls = self.walls.into_iter().enumerate().map(|(i, wall)| (i < BINS - 1).then_some(wall));
        walls.zip(self.bins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn walls_are_those_of_open_vswitch() {
        let walls = |histogram: &Histogram| histogram.bins().filter_map(|(wall, _)| wall).collect::<Vec<_>>();
        // As `pmd-perf-show` of Open vSwitch 3.1 prints them.
        assert_eq!(walls(&Histogram::linear(0, 32))[..5], [0, 1, 2, 3, 4]);
        assert_eq!(walls(&Histogram::linear(100, 30_000))[..3], [100, 1096, 2093]);
        let cycles = walls(&Histogram::logarithmic(500, 24_000_000));
        assert_eq!((cycles[..4].to_vec(), cycles[30]), (vec![499, 716, 1025, 1469], 24_000_000));
        let packets = walls(&Histogram::logarithmic(0, 1000));
        assert_eq!((packets[..8].to_vec(), packets[30]), (vec![0, 1, 2, 3, 4, 5, 6, 7], 1000));
    }

    proptest! {
        #[test]
        fn each_sample_is_in_the_first_bin_that_it_fits(sizes in prop::collection::vec(0u64..1 << 26, 0..50)) {
            let mut histogram = Histogram::logarithmic(500, 24_000_000);
            sizes.iter().for_each(|size| histogram.add(*size, 1));
            let mut below = 0;
            for (wall, count) in histogram.bins() {
                let upto = sizes.iter().filter(|size| wall.is_none_or(|wall| **size <= u64::from(wall))).count() as u64;
                prop_assert_eq!(count, upto - below);
                below = upto;
            }
        }
    }
}
