//! The rate up to which most short trials pass, estimated on a machine that disturbs some of them.
//!
//! A bisection ([`search`](crate::search)) never doubts a rate that failed, so a second in which the machine was elsewhere halves its
//! answer. This estimate keeps a probability for every rate instead, and each trial multiplies it by how likely its result is
//! there: a trial above the rate that a switch carries hardly ever passes, one below it fails for other reasons up to half the
//! time. So a pass says much and a failure little, and an answer recovers from a row of failures. Each trial is at the median
//! of what is known, where its result tells the most. A rate at which one trial in five passes is an answer, too, so it is to be
//! validated by trials of which most must pass.
//!
//! Plain arithmetic: no clock, no randomness. Source: Watson and Pelli, QUEST: a Bayesian adaptive psychometric method,
//! Perception & Psychophysics 33, 1983; of loss ratios: draft-vpolak-bmwg-plrsearch.

/// The probability that a trial passes far below the rate that a switch carries, and far above.
const PASS_BELOW: f64 = 0.55;
const PASS_ABOVE: f64 = 0.01;

/// The width of the change between them, and the distance of two rates, as shares of a rate.
const WIDTH: f64 = 0.01;
const STEP: f64 = 0.005;

/// What is known of the rate that a switch carries.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// Logarithms of rates, rising, and the probability of each: together 1.
    rates: Vec<(f64, f64)>,
}

impl Estimate {
    /// Nothing is known but that it is between these rates, packets a second.
    pub fn between(min_pps: f64, max_pps: f64) -> Self {
        let steps = ((max_pps / min_pps).ln() / STEP).ceil().max(1.0);
        let log = |n: usize| max_pps.ln() - (steps - n as f64) * STEP;
        Estimate { rates: (0..=steps as usize).map(|n| (log(n), 1.0 / (steps + 1.0))).collect() }
    }

    /// The median of what is known: the estimate, and the rate of the next trial, packets a second.
    pub fn rate_pps(&self) -> f64 {
        let mut below = 0.0;
        let is_median = |(_, probability): &&(f64, f64)| {
            below += probability;
            below >= 0.5
        };
        self.rates.iter().find(is_median).or(self.rates.last()).map_or(0.0, |(log, _)| log.exp())
    }

    /// Takes the result of a trial at a rate.
    pub fn record(&mut self, rate_pps: f64, passed: bool) {
        let tried = rate_pps.ln();
        for (log, probability) in &mut self.rates {
            let carried = 1.0 / (1.0 + ((tried - *log) / WIDTH).exp());
            let passes = PASS_ABOVE + (PASS_BELOW - PASS_ABOVE) * carried;
            *probability *= if passed { passes } else { 1.0 - passes };
        }
        let all: f64 = self.rates.iter().map(|(_, probability)| probability).sum();
        self.rates.iter_mut().for_each(|(_, probability)| *probability /= all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// After `trials`, of which those fail that a machine is away for.
    fn estimate(carries: f64, trials: usize, mut is_away: impl FnMut(usize) -> bool) -> f64 {
        let mut estimate = Estimate::between(20e3, 20e6);
        for n in 0..trials {
            let rate = estimate.rate_pps();
            estimate.record(rate, rate <= carries && !is_away(n));
        }
        estimate.rate_pps() / carries
    }

    proptest! {
        #[test]
        fn on_a_quiet_machine_it_is_the_rate_that_is_carried(carries in 30e3..19e6) {
            let ratio = estimate(carries, 40, |_| false);
            prop_assert!((0.98..1.02).contains(&ratio), "{ratio}");
        }

        /// A third of the trials fail, one by one or in rows of up to ten.
        #[test]
        fn a_machine_that_is_away_for_a_third_of_the_time_changes_little(
            carries in 300e3..19e6, row in 1..10usize, phase in 0..30usize,
        ) {
            let ratio = estimate(carries, 80, |n| (n + phase) / row % 3 == 0);
            prop_assert!((0.96..1.02).contains(&ratio), "{ratio}");
        }

        #[test]
        fn a_rate_that_hardly_ever_passes_is_not_carried(carries in 1e6..10e6, phase in 0..12usize) {
            let mut estimate = Estimate::between(20e3, 20e6);
            for n in 0..300 {
                let rate = estimate.rate_pps();
                estimate.record(rate, rate <= carries || rate <= 2.0 * carries && (n + phase) % 12 == 0);
            }
            let ratio = estimate.rate_pps() / carries;
            prop_assert!(ratio < 1.1, "{ratio}");
        }
    }

    #[test]
    fn a_rate_at_either_end_is_told_as_that() {
        assert!((0.999..1.001).contains(&(estimate(30e6, 40, |_| false) * 1.5)));
        assert!((1.9..2.2).contains(&(estimate(10e3, 40, |_| false))));
    }
}
