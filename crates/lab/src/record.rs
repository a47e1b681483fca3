//! What a run of an experiment leaves behind: plain data, written as JSON, rendered by `report`.

use crate::sheet::Sheet;
use crate::stat::Stat;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One experiment's run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The form of this record.
    pub format: String,
    /// The experiment.
    pub experiment: String,
    /// What it asks.
    pub about: String,
    /// The command line that made it.
    pub command: String,
    /// When it began, UTC.
    pub began: String,
    /// How long it took, seconds.
    pub seconds: f64,
    /// Whether it is a quick look or the whole.
    pub size: Size,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// The machine.
    pub sheet: Sheet,
    /// What came of it.
    pub findings: Findings,
    /// Why it is not to be trusted; empty if it is.
    pub noise: Vec<String>,
}

impl Chart {
    /// Whether nothing of it was measured.
    pub fn is_empty(&self) -> bool {
        match self {
            Chart::Lines { series, .. } => series.iter().all(|series| series.points.is_empty()),
            Chart::Areas { at, .. } => at.is_empty(),
            Chart::Bars { bars, .. } => bars.is_empty(),
            Chart::Histogram { bins, .. } => bins.iter().all(|(_, _, n)| *n == 0),
        }
    }
}

/// The form of records that this version writes.
pub const FORMAT: &str = "sluice-lab-1";

/// How much of an experiment is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// A few points, few repetitions: a look within seconds.
    Quick,
    /// All points, at least five repetitions.
    Full,
}

impl Size {
    /// One of two.
    pub fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Size::Quick => quick,
            Size::Full => full,
        }
    }
}

/// What an experiment found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Measurements, point by point.
    pub points: Vec<Point>,
    /// Tables for readers.
    pub tables: Vec<Table>,
    /// Pictures.
    pub figures: Vec<Figure>,
    /// Remarks, a sentence each.
    pub notes: Vec<String>,
}

/// A place in the experiment's grid, with every arm measured there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Where: names and numbers, such as flows and subtables.
    pub at: BTreeMap<String, f64>,
    /// The arms, in the order they took turns.
    pub arms: Vec<Arm>,
    /// The first arm measured twice a round, the second figure over the first.
    pub same_twice: Option<Stat>,
    /// Time the host took from us meanwhile, percent of all processor time.
    pub steal_percent: f64,
}

/// One forced setting at one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// Its name.
    pub name: String,
    /// What was measured, by name.
    pub figures: BTreeMap<String, Stat>,
    /// Why there are no figures, if there are none.
    pub not_applicable: Option<String>,
}

impl Point {
    /// A figure of an arm.
    pub fn figure(&self, arm: &str, figure: &str) -> Option<&Stat> {
        self.arms.iter().find(|a| a.name == arm)?.figures.get(figure)
    }

    /// A figure of one arm by that of another, repetition by repetition.
    pub fn ratio(&self, arm: &str, by: &str, figure: &str) -> Option<Stat> {
        let (a, b) = (self.figure(arm, figure)?, self.figure(by, figure)?);
        Stat::of(a.samples.iter().zip(&b.samples).map(|(a, b)| a / b).collect())
    }

    /// A coordinate; 0 if there is none of that name.
    pub fn at(&self, name: &str) -> f64 {
        self.at.get(name).copied().unwrap_or(0.0)
    }
}

/// A table: a row of heads and rows of cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// The heads.
    pub columns: Vec<String>,
    /// The rows, each as long as the heads.
    pub rows: Vec<Vec<String>>,
}

/// A picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What it shows.
    pub title: String,
    /// What to see in it, or how it was made.
    pub caption: String,
    /// What is drawn.
    pub chart: Chart,
}

/// What is drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Chart {
    /// Lines through points with error bars.
    Lines {
        /// Across.
        x: Axis,
        /// Up.
        y: Axis,
        /// The lines.
        series: Vec<Series>,
    },
    /// Shares stacked over `x`, their sum at most 100.
    Areas {
        /// Across.
        x: Axis,
        /// Where the shares were measured.
        at: Vec<f64>,
        /// Each name with its share, percent, at every place.
        shares: Vec<(String, Vec<f64>)>,
    },
    /// Bars side by side, each stacked of parts.
    Bars {
        /// Along the bars.
        y: Axis,
        /// The bars.
        bars: Vec<String>,
        /// Each part's name with its height in every bar.
        parts: Vec<(String, Vec<f64>)>,
    },
    /// How often values fell into a range.
    Histogram {
        /// Across.
        x: Axis,
        /// From, to, how often.
        bins: Vec<(f64, f64, u64)>,
    },
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// What it is, with its unit.
    pub label: String,
    /// Whether equal steps are equal factors.
    pub log: bool,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Across, up, and the ends of the error bar.
    pub points: Vec<[f64; 4]>,
}

impl Axis {
    /// An even one.
    pub fn linear(label: &str) -> Axis {
        Axis { label: label.to_owned(), log: false }
    }

    /// A logarithmic one.
    pub fn log(label: &str) -> Axis {
        Axis { label: label.to_owned(), log: true }
    }
}
