//! Open vSwitch's exact match cache as a model: which share of the packets it answers, by counting.
//!
//! A flow has two places of 8192, chosen by two parts of its hash. A flow that misses takes an empty place, or that of the
//! flow with the lower hash. If the places of different flows are independent, 800 flows have all but a few thousandths of
//! their packets answered: two flows that want one place nearly always have another to go to, and flows must be left out
//! only where more of them share places than there are places. That becomes common at half of 8192, not at a tenth. So the
//! model explains a loss that grows from 1600 flows on, and none at 800; what the field quotes for one place a flow
//! (`8192·tanh(n/8192)`) explains neither.
//!
//! What is left for the loss that seed 004 saw at 800 is what its text does not give: places that are not independent,
//! since a device's hash is linear in the addresses, which the generator counts up; and packets before a flow is
//! inserted, a hundred on average. Source: OVS lib/dpif-netdev.c, `emc_insert`.

use sluice_simd::hash::splitmix64;

/// Places, and the bits that number one.
const PLACES: usize = 1 << BITS;
const BITS: u32 = 13;
/// Packets of each flow until the cache is as full as it gets, and those that are counted.
const WARM: u64 = 60;
const COUNTED: u64 = 20;
/// The most flows that are counted. With more, counting takes long, and the share is near what fits by chance.
pub const FLOWS_MAX: u32 = 16_384;

/// The share of packets answered, percent, of flows with these hashes, each as likely as another.
fn answered(hashes: &[u32]) -> f64 {
    let n = hashes.len() as u64;
    let mut places: Vec<Option<u32>> = vec![None; PLACES];
    let (mut state, mut hits) = (n, 0);
    for turn in 0..(WARM + COUNTED) * n {
        let flow = (splitmix64(&mut state) % n) as u32;
        let hash = hashes[flow as usize];
        let at = [hash as usize % PLACES, (hash >> BITS) as usize % PLACES];
        if at.iter().any(|at| places[*at] == Some(flow)) {
            hits += u64::from(turn >= WARM * n);
            continue;
        }
        let of = |at: usize| places[at].map_or(0, |flow| hashes[flow as usize]);
        let is_free_only = |at: usize, other: usize| places[at].is_none() && places[other].is_some();
        let second = is_free_only(at[1], at[0]) || of(at[1]) < of(at[0]);
        places[at[usize::from(second)]] = Some(flow);
    }
    100.0 * hits as f64 / (COUNTED * n) as f64
}

/// The share of packets answered with `flows` flows whose hashes are random, percent; `None` if there are too many.
pub fn random(flows: f64) -> Option<f64> {
    let flows = flows as u32;
    let mut state = 1;
    (1..=FLOWS_MAX).contains(&flows).then(|| {
        let hashes: Vec<u32> = (0..flows).map(|_| splitmix64(&mut state) as u32).collect();
        answered(&hashes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_hundred_flows_find_their_places() {
        let missed = |flows| 100.0 - random(flows).unwrap();
        assert!(missed(800.0) < 0.3, "{}", missed(800.0));
        assert!((0.05..1.0).contains(&missed(1600.0)), "{}", missed(1600.0));
        assert!((2.0..5.0).contains(&missed(4096.0)), "{}", missed(4096.0));
        assert!((15.0..24.0).contains(&missed(8192.0)), "{}", missed(8192.0));
        assert_eq!(random(1e6), None);
    }

    /// Hashes that are linear in a counter, with only `2^bits` different places: the flows beyond must be left out.
    #[test]
    fn places_that_depend_on_each_other_lose_flows() {
        let linear = |bits: u32| -> Vec<u32> {
            (0..800u32).map(|i| (i & ((1 << bits) - 1)) | (i >> 1 & ((1 << bits) - 1)) << BITS).collect()
        };
        assert!(answered(&linear(10)) > 99.0, "every flow has a place of its own");
        assert!(answered(&linear(8)) < 60.0, "{}", answered(&linear(8)));
    }
}
