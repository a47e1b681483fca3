//! A point at which Sluice loses: an aim is missed, or a forced setting is better than the switch left to itself.

use crate::grid;
use crate::record::{Point, Table};
use crate::text;
use crate::verdict;

/// A point at which Sluice loses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Where: the traffic.
    pub at: String,
    /// What was wanted and what came of it.
    pub what: String,
}

/// How a loss begins that noise leaves undecided.
const UNDECIDED: &str = "undecided: ";

impl Loss {
    /// That a point misses an aim, or that it cannot be told: a point that is too noisy decides nothing, and is not passed over
    /// in silence either.
    pub fn at(point: &Point, what: &str) -> Loss {
        let undecided = if verdict::spread(point.same_twice.as_ref()) > TIE { UNDECIDED } else { "" };
        Loss { at: grid::name_of(&point.at), what: format!("{undecided}{what}") }
    }

    /// Whether the point was too noisy to say that anything is lost.
    pub fn is_undecided(&self) -> bool {
        self.what.starts_with(UNDECIDED)
    }
}

/// Smaller differences are no loss.
const TIE: f64 = verdict::MARGIN;

/// Points at which a setting costs more than the best of the others, by a figure of which less is better.
pub fn behind(points: &[Point], ours: &str, others: &[&str], figure: &str) -> Vec<Loss> {
    let loss = |point: &Point| {
        let median = |arm: &str| point.figure(arm, figure).map(|stat| stat.median);
        let (own, theirs) = (median(ours)?, others.iter().filter_map(|arm| Some((median(arm)?, *arm))));
        let (least, best) = theirs.min_by(|a, b| a.0.total_cmp(&b.0))?;
        let (times, own_text, least_text) = (own / least, text::number(own), text::number(least));
        let what = format!("{ours}: {own_text} {figure}, {best}: {least_text} ({times:.2} times)");
        (own > least * (1.0 + TIE)).then(|| Loss::at(point, &what))
    };
    points.iter().filter_map(loss).collect()
}

/// A loss if `arm` gains less over `over` than the document that describes both says. Of `figure` more is better.
pub fn behind_the_seed(point: &Point, arm: &str, over: &str, figure: &str, seeds: f64) -> Option<Loss> {
    let gain = point.ratio(arm, over, figure)?.median;
    let what = || format!("{arm} has {gain:.2} times the rate of {over}; its document says {seeds:.2}");
    (gain < seeds * (1.0 - TIE)).then(|| Loss::at(point, &what()))
}

/// The rows of a table of verdicts that say "no" in the column `column_of_verdict`: the columns `at` say where, `what` what.
pub fn denied(table: &Table, column_of_verdict: &str, at: &[&str], what: &[&str]) -> Vec<Loss> {
    let column = |name: &str| table.columns.iter().position(|column| column == name);
    let named = |row: &[String], names: &[&str]| {
        let cell = |name: &&str| {
            let cell = row.get(column(name)?)?;
            Some(if *name == table.columns[0] { cell.clone() } else { format!("{name} {cell}") })
        };
        names.iter().filter_map(cell).collect::<Vec<_>>().join(", ")
    };
    let is_denied =
        |row: &&Vec<String>| column(column_of_verdict).and_then(|i| row.get(i)).is_some_and(|cell| cell == "no");
    table.rows.iter().filter(is_denied).map(|row| Loss { at: named(row, at), what: named(row, what) }).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::Arm;
    use crate::rig::CYCLES;
    use crate::stat::Stat;
    use std::collections::BTreeMap;

    /// A point with the cycles of two settings, and those of one measured twice.
    pub fn point(auto: f64, emc: f64, twice: [f64; 2]) -> Point {
        let arm = |name: &str, cycles: f64| Arm {
            name: name.to_owned(),
            figures: BTreeMap::from([(CYCLES.to_owned(), Stat::of(vec![cycles]).unwrap())]),
            not_applicable: None,
        };
        Point {
            at: grid::place([("flows", 1000.0)]),
            arms: vec![arm("search", 200.0), arm("emc", emc), arm("auto", auto)],
            same_twice: Stat::of(twice.to_vec()),
            steal_percent: 0.0,
        }
    }

    #[test]
    fn a_setting_is_behind_its_document_by_what_it_gains() {
        // `CYCLES` serves as a figure here; only its ratio matters.
        let lost = |seeds, twice| behind_the_seed(&point(110.0, 100.0, twice), "auto", "emc", CYCLES, seeds);
        let what = "auto has 1.10 times the rate of emc; its document says 1.25";
        assert_eq!(lost(1.25, [1.0, 1.0]).unwrap().what, what);
        assert!(lost(1.25, [0.9, 1.1]).unwrap().is_undecided());
        assert_eq!((lost(1.05, [1.0, 1.0]), lost(1.12, [1.0, 1.0])), (None, None), "more, and a tie");
    }

    #[test]
    fn a_point_is_lost_by_more_than_a_tie() {
        let even = [1.0, 1.0];
        let lost = |point| behind(&[point], "auto", &["search", "emc"], CYCLES);
        assert_eq!(lost(point(110.0, 100.0, even))[0].what, "auto: 110 cycles, emc: 100 (1.10 times)");
        assert_eq!(lost(point(110.0, 100.0, even))[0].at, "1k flows");
        assert!(lost(point(102.0, 100.0, even)).is_empty(), "a tie");
        let noisy = lost(point(110.0, 100.0, [0.85, 1.15]));
        assert_eq!(noisy[0].what, "undecided: auto: 110 cycles, emc: 100 (1.10 times)");
        assert!(lost(point(90.0, 100.0, even)).is_empty());
    }

    #[test]
    fn what_a_table_denies_is_lost() {
        let rows = [["storm", "7.1", "no"], ["calm", "0.1", "yes"]];
        let table = Table {
            title: String::new(),
            columns: ["attack", "loss, %", "passes"].map(str::to_owned).to_vec(),
            rows: rows.map(|row| row.map(str::to_owned).to_vec()).to_vec(),
        };
        let lost = denied(&table, "passes", &["attack"], &["loss, %"]);
        assert_eq!(lost, [Loss { at: "storm".to_owned(), what: "loss, % 7.1".to_owned() }]);
    }
}
