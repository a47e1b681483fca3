//! From values to places on an axis, and where its ticks are.

/// A range of values laid over a range of places.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    log: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// Values laid over `from`..`to`. A linear scale that counts up from 0 begins there; a logarithmic one spans the
    /// values that are above 0.
    pub fn new(values: impl Iterator<Item = f64>, log: bool, (from, to): (f64, f64)) -> Scale {
        let good = values.filter(|v| v.is_finite() && (!log || *v > 0.0));
        let (low, high) = good.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        let (low, high) = match (low <= high, log) {
            (false, false) => (0.0, 1.0),
            (false, true) => (1.0, 10.0),
            (true, true) if low == high => (low / 2.0, high * 2.0),
            (true, true) => (low, high),
            (true, false) if low == 0.0 && high == 0.0 => (0.0, 1.0),
            // Heights are read off by their distance from 0.
            (true, false) => (low.min(0.0), high.max(0.0)),
        };
        Scale { low, high, log, from, to }
    }

    /// The same with room above the highest value.
    pub fn with_headroom(self) -> Scale {
        let high = if self.log { self.high * 1.1 } else { self.high + 0.05 * (self.high - self.low) };
        Scale { high, ..self }
    }

    /// Where a value lies; what is beyond the ends lies at the ends.
    pub fn place(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let share = if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share * (self.to - self.from)
    }

    /// Round values between the ends, few enough to be read.
    pub fn ticks(&self) -> Vec<f64> {
        if self.log { self.log_ticks() } else { self.linear_ticks() }
    }

    fn linear_ticks(&self) -> Vec<f64> {
        let rough = (self.high - self.low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= rough).unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        (first..).map(|i| i as f64 * step).take_while(|t| *t <= self.high * (1.0 + 1e-9)).collect()
    }

    fn log_ticks(&self) -> Vec<f64> {
        let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let is_narrow = self.high / self.low < 100.0;
        let steps: &[f64] = if is_narrow { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let all = decades.flat_map(|d| steps.iter().map(move |s| s * 10f64.powi(d)));
        all.filter(|t| *t >= self.low * (1.0 - 1e-9) && *t <= self.high * (1.0 + 1e-9)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ends_are_at_the_ends() {
        let scale = Scale::new([0.0, 50.0].into_iter(), false, (100.0, 0.0));
        assert_eq!([0.0, 25.0, 50.0, 99.0].map(|v| scale.place(v)), [100.0, 50.0, 0.0, 0.0]);
        assert_eq!(scale.ticks(), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        let scale = Scale::new([1.0, 1e4].into_iter(), true, (0.0, 4.0));
        assert!((scale.place(100.0) - 2.0).abs() < 1e-9);
        assert_eq!(scale.ticks().len(), 5);
    }

    proptest! {
        #[test]
        fn whatever_is_drawn_has_a_place(values in prop::collection::vec(prop_oneof![-1e9f64..1e9, Just(0.0), Just(f64::NAN)], 0..5),
                                         log in any::<bool>(), at in -1e9f64..1e9) {
            let scale = Scale::new(values.into_iter(), log, (0.0, 10.0)).with_headroom();
            let place = scale.place(at);
            prop_assert!((-1e-6..=10.000_001).contains(&place), "{} in {:?}", place, scale);
            let ticks = scale.ticks();
            prop_assert!(ticks.len() < 40, "{} ticks", ticks.len());
        }
    }
}
