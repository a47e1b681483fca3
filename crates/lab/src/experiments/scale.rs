//! Flows by the million, subtables by the hundred: is there a cliff?

use super::{METHOD, lines_over_flows, table_of};
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, place};
use crate::lab::Lab;
use crate::loss::{Loss, denied};
use crate::record::{Axis, Figure, Findings, Point, Table};
use crate::rig::{CYCLES, Workload};
use crate::setting::{self, Setting};
use crate::text;
use anyhow::Result;

/// The experiment.
pub struct Scale;

/// What `sluice run` does unless told otherwise.
const SETTINGS: &[Setting] = &[setting::AUTO];

/// Factor on the usual number of packets that warm the caches.
const WARMER: u64 = 4;
/// Where everything is compared with.
const HOME: (f64, f64) = (1e3, 20.0);
/// Most that the costs of 1 to 8192 flows in one subtable may differ.
const EVEN: f64 = 1.15;
/// No point may cost more than this multiple of that.
const CLIFF: f64 = 2.5;

impl Experiment for Scale {
    fn name(&self) -> &'static str {
        "scale"
    }

    fn about(&self) -> &'static str {
        "Is there a cliff between 1 and 10 M flows, or 1 and 500 subtables?"
    }

    fn run(&self, lab: &mut Lab) -> Result<Findings> {
        let flows: &[f64] = lab.size.pick(
            &[1.0, 1e3, 8192.0, 1e6],
            &[1.0, 10.0, 100.0, 1e3, 4096.0, 8192.0, 20e3, 100e3, 400e3, 1e6, 4e6, 10e6],
        );
        let subtables: &[f64] = lab.size.pick(&[1.0, 20.0, 500.0], &[1.0, 5.0, 20.0, 100.0, 500.0]);
        let all = flows.iter().flat_map(|f| subtables.iter().map(|s| (*f, *s)));
        let grid = Grid {
            places: all.filter(|(f, s)| f >= s).map(|(f, s)| place([("flows", f), ("subtables", s)])).collect(),
            arms: names().into_iter().map(str::to_owned).collect(),
            set_up: &set_up,
            figure: CYCLES,
            rounds: Grid::ROUNDS,
            span: Grid::SPAN,
        };
        let points = grid.run(lab);
        Ok(Findings {
            tables: vec![
                verdicts(&points),
                table_of("Cycles a packet: median (least–most)", &points, &["flows", "subtables"], &names(), CYCLES),
            ],
            figures: SETTINGS.iter().map(|setting| figure(&points, subtables, setting)).collect(),
            notes: METHOD.map(str::to_owned).to_vec(),
            points,
        })
    }

    fn losses(&self, points: &[Point]) -> Vec<Loss> {
        // The worst point is one of the cliffs.
        let mut even = verdicts(points);
        even.rows.truncate(1);
        let uneven = denied(&even, "kept", &["promise"], &["at most", "measured"]);
        uneven.into_iter().chain(cliffs(points)).collect()
    }
}

fn names() -> Vec<&'static str> {
    SETTINGS.iter().map(|setting| setting.name).collect()
}

fn set_up(at: &Place, arm: usize) -> Result<Ready> {
    let (flows, subtables) = (at["flows"] as u64, at["subtables"] as u16);
    // A cache for ten million flows grows while it fills.
    SETTINGS[arm].rig(&Workload::subtables(flows, subtables), flows * WARMER)
}

/// One line a number of subtables.
fn figure(points: &[Point], subtables: &[f64], setting: &Setting) -> Figure {
    let lines = subtables.iter().map(|n| {
        let here: Vec<&Point> = points.iter().filter(|p| p.at("subtables") == *n).collect();
        let figure = lines_over_flows(&here, &[setting.name], CYCLES, Axis::linear("cycles a packet"), "", "");
        let crate::record::Chart::Lines { series, .. } = figure.chart else { return Vec::new() };
        series
            .into_iter()
            .map(|s| crate::record::Series { name: format!("{} subtables", text::count(*n)), ..s })
            .collect()
    });
    Figure {
        title: format!("Cycles over flows and subtables, {}", setting.name),
        caption: "Error bars from the fastest to the slowest repetition.".to_owned(),
        chart: crate::record::Chart::Lines {
            x: Axis::log("flows"),
            y: Axis::linear("cycles a packet"),
            series: lines.flatten().collect(),
        },
    }
}

/// Cycles a packet, by one setting.
fn cycles(point: &Point, setting: &Setting) -> f64 {
    point.figure(setting.name, CYCLES).map_or(f64::NAN, |stat| stat.median)
}

/// The cycles that all others are compared with.
fn home(points: &[Point], setting: &Setting) -> Option<f64> {
    points.iter().find(|p| (p.at("flows"), p.at("subtables")) == HOME).map(|p| cycles(p, setting))
}

/// Every point above the cliff.
fn cliffs(points: &[Point]) -> Vec<Loss> {
    let of = |setting| {
        let home = home(points, setting).unwrap_or(f64::INFINITY);
        let loss = move |point: &Point| {
            let ratio = cycles(point, setting) / home;
            let what = || format!("{ratio:.2} times the cycles of 1k flows, 20 subtables; at most {CLIFF}");
            (ratio > CLIFF).then(|| Loss::at(point, &what()))
        };
        points.iter().filter_map(loss)
    };
    SETTINGS.iter().flat_map(of).collect()
}

/// The two promises, with what became of them.
fn verdicts(points: &[Point]) -> Table {
    let mut rows = Vec::new();
    for setting in SETTINGS {
        let mut row = |promise: String, at_most: f64, measured: f64| {
            let kept = if measured > at_most { "no" } else { "yes" };
            let cells = [setting.name, &promise, &at_most.to_string(), &format!("{measured:.2}"), kept];
            rows.push(cells.map(str::to_owned).to_vec());
        };
        let small: Vec<f64> = points
            .iter()
            .filter(|p| p.at("subtables") == 1.0 && p.at("flows") <= 8192.0)
            .map(|p| cycles(p, setting))
            .collect();
        let (least, most) = small.iter().fold((f64::INFINITY, 0.0f64), |(l, m), c| (l.min(*c), m.max(*c)));
        if !small.is_empty() {
            row("1 to 8192 flows, one subtable: most over least".to_owned(), EVEN, most / least);
        }
        let worst = points.iter().max_by(|a, b| cycles(a, setting).total_cmp(&cycles(b, setting)));
        if let Some((home, worst)) = home(points, setting).zip(worst) {
            let at = [worst.at("flows"), worst.at("subtables")].map(text::count);
            let promise = format!("worst point ({} flows, {} subtables) over 1k flows in 20", at[0], at[1]);
            row(promise, CLIFF, cycles(worst, setting) / home);
        }
    }
    Table {
        title: "No cliff".to_owned(),
        columns: ["setting", "promise", "at most", "measured", "kept"].map(str::to_owned).to_vec(),
        rows,
    }
}
