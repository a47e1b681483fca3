//! How many candidates the exact match cache inserts, if that is to adapt.
//!
//! While there is room every candidate is inserted. In a crowded cache that is hardly ever hit, entries replace each
//! other before they are of use, so fewer are inserted; if nearly all lookups hit, more are. Now and then more are
//! inserted to see whether the traffic has changed. Source of the idea: J. Scheurich, ovs-dev, 16 August 2017: "random
//! selection with dynamically adapted probability", and a scheme that "periodically increases the probability again".

use crate::hit_window::{HITS_HIGH, HITS_LOW, HitWindow, WindowEnd};
use crate::settings::EMC_RECIRC_THRESHOLD;
use sluice_flow_cache::EmcUsage;

/// At least one candidate in this many is inserted.
const INV_PROB_MAX: u32 = 1024;

/// One PMD's insertion probability.
#[derive(Debug)]
pub(crate) struct AdaptiveInsert {
    inv_prob: u32,
    window: HitWindow,
    /// The occupancy above which the cache is crowded, percent.
    threshold: f64,
}

impl AdaptiveInsert {
    /// Every candidate at first.
    pub const ALL: AdaptiveInsert =
        AdaptiveInsert { inv_prob: 1, window: HitWindow::NEW, threshold: EMC_RECIRC_THRESHOLD as f64 };

    /// Sets the occupancy above which the cache is crowded, percent.
    pub fn set_threshold(&mut self, percent: u8) {
        self.threshold = percent.into();
    }

    /// One candidate in this many is inserted.
    #[inline]
    pub fn inv_prob(&self) -> u32 {
        self.inv_prob
    }

    /// Learns how many lookups hit. Returns the inverse probability from now on.
    #[inline]
    pub fn learn(&mut self, looked: usize, hits: usize, usage: &EmcUsage) -> u32 {
        if let Some(ended) = self.window.push(looked, hits) {
            self.adapt(&ended, usage.percent() > self.threshold);
        }
        self.inv_prob
    }

    #[cold]
    fn adapt(&mut self, ended: &WindowEnd, is_crowded: bool) {
        self.inv_prob = if !is_crowded {
            1
        } else if ended.hits > HITS_HIGH || ended.probes {
            (self.inv_prob / 2).max(1)
        } else if ended.hits < HITS_LOW {
            (self.inv_prob * 2).min(INV_PROB_MAX)
        } else {
            self.inv_prob
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hit_window::WINDOW;

    #[test]
    fn it_falls_where_nothing_hits_and_rises_where_all_does() {
        let mut insert = AdaptiveInsert::ALL;
        let usage = |used| EmcUsage { used, entries: 8192 };
        let mut windows = |n: u32, hits: f64, used| {
            let hits = (f64::from(WINDOW) * hits) as usize;
            (0..n).map(|_| insert.learn(WINDOW as usize, hits, &usage(used))).last().unwrap()
        };
        assert_eq!(windows(3, 0.0, 4096), 1, "there is room for all");
        assert_eq!(windows(4, 0.1, 8192), 16);
        assert_eq!(windows(1, 0.7, 8192), 16);
        // The sixteenth window is one to see; every other one halves the insertions.
        assert_eq!(windows(7, 0.1, 8192), 1024);
        assert_eq!(windows(1, 0.1, 8192), 512, "now and then more");
        assert_eq!(windows(20, 1.0, 8192), 1);
    }
}
