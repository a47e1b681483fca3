//! Points × arms: every arm set up and its answers checked, then measured in turns, so that what the machine does
//! meanwhile falls on all alike.

use crate::lab::Lab;
use crate::noise::CpuTime;
use crate::record::{Arm, Point, Size};
use crate::rig::Sample;
use crate::stat::Stat;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::time::Duration;

/// A thing that can be measured again and again.
pub trait Subject {
    /// Measures for about that long.
    ///
    /// # Errors
    /// If it has failed meanwhile.
    fn measure(&mut self, span: Duration) -> Result<Sample>;
}

impl Subject for crate::rig::Rig {
    fn measure(&mut self, span: Duration) -> Result<Sample> {
        Ok(self.time(span))
    }
}

/// What setting an arm up gives.
pub enum Ready {
    /// Its answers are right; it may be timed.
    Subject(Box<dyn Subject>),
    /// There is no such arm here, and why.
    NotApplicable(String),
}

/// Makes an arm (by its number) ready at a place, answers checked.
pub type SetUp<'a> = &'a dyn Fn(&Place, usize) -> Result<Ready>;

/// Where a point is: names and numbers, such as flows and subtables.
pub type Place = BTreeMap<String, f64>;

/// How points are measured.
pub struct Grid<'a> {
    /// The places.
    pub places: Vec<Place>,
    /// The arms' names. The first is measured twice a round, to see what differs when nothing does.
    pub arms: Vec<String>,
    /// How arms are made ready.
    pub set_up: SetUp<'a>,
    /// The figure by which an arm measured twice is compared with itself, and progress told.
    pub figure: &'static str,
    /// Interleaved repetitions: quick and full.
    pub rounds: [usize; 2],
    /// How long a measurement is: quick and full.
    pub span: [Duration; 2],
}

impl Grid<'_> {
    /// The usual number of rounds.
    pub const ROUNDS: [usize; 2] = [3, 7];
    /// The usual length of a measurement.
    pub const SPAN: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(30)];

    /// Measures every point; ends early, with what it has, when the lab is told to stop, an arm's answers are wrong, or
    /// it fails: the lab knows.
    pub fn run(&self, lab: &mut Lab) -> Vec<Point> {
        lab.expect_steps(self.places.len());
        let mut points = Vec::new();
        for place in &self.places {
            if lab.is_stopped() {
                break;
            }
            if lab.is_late() && !points.is_empty() {
                lab.leave_out(self.places.len() - points.len());
                break;
            }
            let point = match lab.done(place) {
                Some(point) => Some(point),
                None => self.measure(lab, place).with_context(|| name_of(place)).unwrap_or_else(|error| {
                    lab.fail(error);
                    None
                }),
            };
            let Some(point) = point else { break };
            lab.step(&self.line(&point));
            points.push(point);
            lab.keep(&points);
        }
        points
    }

    /// Measures a point; `None` if the lab is told to stop before its arms are ready.
    fn measure(&self, lab: &mut Lab, place: &Place) -> Result<Option<Point>> {
        let (rounds, span) = match lab.size {
            Size::Quick => (self.rounds[0], self.span[0]),
            Size::Full => (self.rounds[1], self.span[1]),
        };
        let mut ready = Vec::new();
        for arm in 0..self.arms.len() {
            if lab.is_stopped() {
                return Ok(None);
            }
            ready.push((self.set_up)(place, arm).with_context(|| self.arms[arm].clone())?);
            // Most of the time goes into caches that warm.
            lab.show_part((arm + 1) as f64 / (self.arms.len() + rounds) as f64);
        }
        let before = CpuTime::now();
        let mut samples: Vec<BTreeMap<String, Vec<f64>>> = vec![BTreeMap::new(); ready.len()];
        let mut same_twice = Vec::new();
        for round in 0..rounds {
            let mut first = None;
            for (ready, samples) in ready.iter_mut().zip(&mut samples) {
                let Ready::Subject(subject) = ready else { continue };
                let sample = subject.measure(span)?;
                first.get_or_insert_with(|| sample.clone());
                sample.0.into_iter().for_each(|(name, value)| samples.entry(name).or_default().push(value));
            }
            if let (Some(Ready::Subject(subject)), Some(first)) = (ready.first_mut(), first) {
                let again = subject.measure(span)?;
                same_twice.extend(again.0.get(self.figure).zip(first.0.get(self.figure)).map(|(b, a)| b / a));
            }
            lab.show_part((self.arms.len() + round + 1) as f64 / (self.arms.len() + rounds) as f64);
            if lab.is_stopped() && round + 1 < rounds {
                lab.say("stopping after the point under way");
            }
        }
        let steal_percent = CpuTime::now().steal_percent_since(before);
        let arms = self.arms.iter().zip(ready).zip(samples).map(|((name, ready), samples)| Arm {
            name: name.clone(),
            figures: samples.into_iter().filter_map(|(name, values)| Some((name, Stat::of(values)?))).collect(),
            not_applicable: match ready {
                Ready::Subject(_) => None,
                Ready::NotApplicable(why) => Some(why),
            },
        });
        Ok(Some(Point { at: place.clone(), arms: arms.collect(), same_twice: Stat::of(same_twice), steal_percent }))
    }

    fn line(&self, point: &Point) -> String {
        let shown = |arm: &Arm| match arm.figures.get(self.figure) {
            Some(stat) => format!("{} {:.1}", arm.name, stat.median),
            None => format!("{} n/a", arm.name),
        };
        let arms: Vec<String> = point.arms.iter().map(shown).collect();
        format!("{}: {} {}", name_of(&point.at), self.figure, arms.join(", "))
    }
}

/// A place in words.
pub fn name_of(place: &Place) -> String {
    place.iter().map(|(name, value)| format!("{} {name}", crate::text::count(*value))).collect::<Vec<_>>().join(", ")
}

/// A place from names and numbers.
pub fn place<const N: usize>(at: [(&str, f64); N]) -> Place {
    at.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::CYCLES;
    use anyhow::ensure;
    use std::sync::Arc;

    struct Fixed(f64);

    impl Subject for Fixed {
        fn measure(&mut self, _: Duration) -> Result<Sample> {
            ensure!(self.0 != 3.0, "no link");
            Ok(Sample([(CYCLES.to_owned(), self.0)].into()))
        }
    }

    #[test]
    fn points_before_a_failure_are_kept_and_not_measured_again() {
        let set_up = |at: &Place, _: usize| Ok(Ready::Subject(Box::new(Fixed(at["flows"])) as Box<dyn Subject>));
        let grid = Grid {
            places: [1.0, 2.0, 3.0, 4.0].map(|flows| place([("flows", flows)])).to_vec(),
            arms: vec!["only".to_owned()],
            set_up: &set_up,
            figure: CYCLES,
            rounds: [3, 5],
            span: [Duration::ZERO; 2],
        };
        let mut lab = Lab::new(Size::Full, Arc::default(), Vec::new());
        let points = grid.run(&mut lab);
        assert_eq!(points.iter().map(|p| p.at("flows")).collect::<Vec<_>>(), [1.0, 2.0]);
        assert_eq!(points[1].figure("only", CYCLES).unwrap().samples, [2.0; 5], "five repetitions");
        assert_eq!(format!("{:#}", lab.take_failure().unwrap()), "3 flows: no link");
        let mut late = Lab::new(Size::Full, Arc::default(), Vec::new());
        late.end_by(std::time::Instant::now());
        assert_eq!(grid.run(&mut late).len(), 1, "the first is always measured");
        assert!(late.left_out().unwrap().starts_with("3 points were left out"));
        let fails = |_: &Place, _: usize| -> Result<Ready> { anyhow::bail!("measured again") };
        let again = Grid { places: grid.places[..2].to_vec(), arms: grid.arms.clone(), set_up: &fails, ..grid };
        let mut lab = Lab::new(Size::Full, Arc::default(), points.clone());
        assert_eq!(again.run(&mut lab), points);
        assert!(lab.take_failure().is_none());
    }
}
