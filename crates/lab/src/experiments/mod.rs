//! The experiments, a file each. `experiment_list.rs` lists them.

pub mod adaptation;
pub mod autopilot;
pub mod caches;
pub mod changes;
pub mod cold;
pub mod crr;
pub mod gaps;
pub mod governor;
pub mod jitter;
pub mod peer;
pub mod profile;
pub mod recirc;
pub mod rules;
pub mod scale;
pub mod skew;
pub mod storm;
pub mod subtables;
pub mod throughput;
pub mod tunnel;

use crate::record::{Axis, Chart, Figure, Point, Series, Table};
use crate::text;

/// A figure of every arm over flows, as lines.
fn lines_over_flows(points: &[&Point], arms: &[&str], figure: &str, y: Axis, title: &str, caption: &str) -> Figure {
    let line = |arm: &&str| Series {
        name: (*arm).to_owned(),
        points: points
            .iter()
            .filter_map(|p| p.figure(arm, figure).map(|s| [p.at("flows"), s.median, s.min, s.max]))
            .collect(),
    };
    Figure {
        title: title.to_owned(),
        caption: caption.to_owned(),
        chart: Chart::Lines { x: Axis::log("flows"), y, series: arms.iter().map(line).collect() },
    }
}

/// A figure of every arm, a row a point: median and range.
fn table_of(title: &str, points: &[Point], places: &[&str], arms: &[&str], figure: &str) -> Table {
    let row = |point: &Point| {
        let at = places.iter().map(|name| text::count(point.at(name)));
        at.chain(arms.iter().map(|arm| text::stat(point.figure(arm, figure)))).collect()
    };
    Table {
        title: title.to_owned(),
        columns: places.iter().chain(arms).map(|name| (*name).to_owned()).collect(),
        rows: points.iter().map(row).collect(),
    }
}

/// How cycles were counted, and what was checked before.
const METHOD: [&str; 3] = [
    "Cycles a packet by the time-stamp counter, generator and null port included; median of interleaved repetitions, \
     each the median of slices of 2048 packets.",
    crate::core_share::NOTE,
    "Answers were checked before timing: every packet sent, every rule with exactly the packets the generator made for \
     it, as many subtables as masks, no hit of a level that is off.",
];
