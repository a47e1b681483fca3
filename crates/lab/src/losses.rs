//! Where Sluice loses: each experiment says at which of its points an aim is missed or a forced setting is better than
//! the switch left to itself. The list stands in every report, and that of all committed runs in their README.

use crate::experiment;
use crate::grid;
use crate::record::{Point, Record, Size, Table};
use crate::{report, text};
use anyhow::{Context, Result};
use std::path::Path;

/// A point at which Sluice loses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Where: the traffic.
    pub at: String,
    /// What was wanted and what came of it.
    pub what: String,
}

/// Smaller differences are no loss; nor are those as small as between two measurements of one setting.
const TIE: f64 = 0.03;

/// Points at which a setting costs more than the best of the others, by a figure of which less is better.
pub fn behind(points: &[Point], ours: &str, others: &[&str], figure: &str) -> Vec<Loss> {
    let loss = |point: &Point| {
        let median = |arm: &str| point.figure(arm, figure).map(|stat| stat.median);
        let (own, theirs) = (median(ours)?, others.iter().filter_map(|arm| Some((median(arm)?, *arm))));
        let (least, best) = theirs.min_by(|a, b| a.0.total_cmp(&b.0))?;
        let noise = point.same_twice.as_ref().map_or(0.0, |twice| (twice.max - twice.min) / 2.0);
        (own > least * (1.0 + TIE.max(noise))).then(|| Loss {
            at: grid::name_of(&point.at),
            what: format!(
                "{ours}: {} {figure}, {best}: {} ({:.2} times)",
                text::number(own),
                text::number(least),
                own / least
            ),
        })
    };
    points.iter().filter_map(loss).collect()
}

/// The rows of a table of verdicts that say "no" in the column `verdict`: the columns `at` say where, `what` what.
pub fn denied(table: &Table, verdict: &str, at: &[&str], what: &[&str]) -> Vec<Loss> {
    let column = |name: &str| table.columns.iter().position(|column| column == name);
    let named = |row: &[String], names: &[&str]| {
        let cell = |name: &&str| {
            let cell = row.get(column(name)?)?;
            Some(if *name == table.columns[0] { cell.clone() } else { format!("{name} {cell}") })
        };
        names.iter().filter_map(cell).collect::<Vec<_>>().join(", ")
    };
    let is_denied = |row: &&Vec<String>| column(verdict).and_then(|i| row.get(i)).is_some_and(|cell| cell == "no");
    table.rows.iter().filter(is_denied).map(|row| Loss { at: named(row, at), what: named(row, what) }).collect()
}

/// Where Sluice loses by a record.
fn of(record: &Record) -> Vec<Loss> {
    experiment::named(&record.experiment).map(|e| e.losses(&record.findings.points)).unwrap_or_default()
}

/// The list of some records, of each one's points.
pub fn table(records: &[Record]) -> Table {
    let rows = records.iter().flat_map(|record| {
        let of_record = move |loss: Loss| vec![record.experiment.clone(), loss.at, loss.what, trust(record)];
        of(record).into_iter().map(of_record)
    });
    Table {
        title: "Where Sluice loses".to_owned(),
        columns: ["experiment", "where", "what", "run"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

/// Said of records without losses.
pub fn none(records: &[Record]) -> &'static str {
    let is_measured = |record: &Record| !record.findings.points.is_empty();
    match (records.iter().any(is_measured), records.iter().any(|record| record.interrupted)) {
        (false, _) => "Nothing was measured that would tell.",
        (true, true) => "Nowhere, by what was measured before the end.",
        (true, false) => "Nowhere, by these runs.",
    }
}

/// How far a run is to be trusted.
fn trust(record: &Record) -> String {
    let size = match record.size {
        Size::Quick => "quick",
        Size::Full => "full",
    };
    if record.noise.is_empty() { size.to_owned() } else { format!("{size}, noisy") }
}

/// What stands around the list in the README of a directory of reports.
const BEGIN: &str = "<!-- losses: written by `sluice lab losses` -->\n";
const END: &str = "<!-- end of losses -->";

/// Lists the losses by the reports below a directory (of each experiment the last whole run, or the last there is), and
/// writes them into its README, where that has a place for them. Returns the list.
///
/// # Errors
/// If a record or the README cannot be read or written.
pub fn collect(dir: &Path) -> Result<String> {
    let mut below: Vec<_> = std::fs::read_dir(dir)
        .with_context(|| format!("{}: cannot be read", dir.display()))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()).filter(|path| path.is_dir()))
        .collect();
    below.sort();
    let mut records = Vec::new();
    for dir in &below {
        records.extend(report::read_all(dir)?);
    }
    let list = text::table(&table(&latest(records)));
    let readme = dir.join("README.md");
    if let Ok(text) = std::fs::read_to_string(&readme)
        && let Some(text) = replaced(&text, &list)
    {
        report::put(&readme, &text)?;
    }
    Ok(list)
}

/// Of each experiment the last whole run; the last there is, if none is whole.
fn latest(records: Vec<Record>) -> Vec<Record> {
    let rank = |record: &Record| (record.size == Size::Full && !record.interrupted, record.began.clone());
    let mut out: Vec<Record> = Vec::new();
    for record in records {
        match out.iter_mut().find(|other| other.experiment == record.experiment) {
            Some(other) if rank(other) < rank(&record) => *other = record,
            Some(_) => {}
            None => out.push(record),
        }
    }
    let order = |record: &Record| experiment::EXPERIMENTS.iter().position(|e| e.name() == record.experiment);
    out.sort_by_key(order);
    out
}

/// A text with the list in its place; `None` if it has no place for it.
fn replaced(text: &str, list: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{list}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Arm, FORMAT, Findings};
    use crate::rig::CYCLES;
    use crate::sheet::Sheet;
    use crate::stat::Stat;
    use std::collections::BTreeMap;

    fn point(auto: f64, emc: f64, twice: [f64; 2]) -> Point {
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

    fn record(began: &str, size: Size, points: Vec<Point>) -> Record {
        Record {
            format: FORMAT.to_owned(),
            experiment: "subtables".to_owned(),
            about: String::new(),
            command: String::new(),
            began: began.to_owned(),
            seconds: 1.0,
            size,
            interrupted: false,
            sheet: Sheet::default(),
            findings: Findings { points, ..Findings::default() },
            noise: Vec::new(),
        }
    }

    #[test]
    fn a_point_is_lost_by_more_than_the_noise() {
        let even = [1.0, 1.0];
        let lost = |point| behind(&[point], "auto", &["search", "emc"], CYCLES);
        assert_eq!(lost(point(110.0, 100.0, even))[0].what, "auto: 110 cycles, emc: 100 (1.10 times)");
        assert_eq!(lost(point(110.0, 100.0, even))[0].at, "1k flows");
        assert!(lost(point(102.0, 100.0, even)).is_empty(), "a tie");
        assert!(lost(point(110.0, 100.0, [0.85, 1.15])).is_empty(), "the same setting differs by as much");
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

    #[test]
    fn the_last_whole_run_counts_and_its_list_takes_its_place() {
        let lost = vec![point(110.0, 100.0, [1.0, 1.0])];
        let runs = [
            record("2026-01-01 10:00", Size::Full, lost),
            record("2026-01-02 10:00", Size::Quick, vec![]),
            record("2026-01-01 09:00", Size::Full, vec![]),
        ];
        let last = latest(runs.to_vec());
        assert_eq!((last.len(), &last[0].began[..]), (1, "2026-01-01 10:00"));
        let dir = tempfile::tempdir().unwrap();
        for (i, run) in runs.iter().enumerate() {
            let dir = dir.path().join(i.to_string());
            std::fs::create_dir(&dir).unwrap();
            report::put_json(&dir.join("subtables.json"), run).unwrap();
        }
        let readme = dir.path().join("README.md");
        std::fs::write(&readme, format!("before\n{BEGIN}old\n{END}\nafter\n")).unwrap();
        let list = collect(dir.path()).unwrap();
        assert!(
            list.ends_with("| subtables | 1k flows | auto: 110 cycles, emc: 100 (1.10 times) | full |\n"),
            "{list}"
        );
        let text = std::fs::read_to_string(readme).unwrap();
        assert_eq!(text, format!("before\n{BEGIN}{list}{END}\nafter\n"));
    }
}
