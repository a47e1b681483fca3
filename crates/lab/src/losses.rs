//! Where Sluice loses: each experiment says at which of its points an aim is missed or a forced setting is better than
//! the switch left to itself. The list stands in every report, and that of all committed runs in their README.

use crate::experiment_list::{EXPERIMENTS, named, read_all};
use crate::loss::Loss;
use crate::record::{Record, Size, Table};
use crate::{files, text};
use anyhow::{Context, Result};
use std::path::Path;

/// Where Sluice loses by a record.
pub(crate) fn of(record: &Record) -> Vec<Loss> {
    named(&record.experiment).map(|e| e.losses(&record.findings.points)).unwrap_or_default()
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
    let list = list(dir)?;
    let readme = dir.join("README.md");
    if let Ok(text) = std::fs::read_to_string(&readme)
        && let Some(text) = replaced(&text, &list)
    {
        files::put(&readme, &text)?;
    }
    Ok(list)
}

/// The list by the reports below a directory.
fn list(dir: &Path) -> Result<String> {
    let mut below: Vec<_> = std::fs::read_dir(dir)
        .with_context(|| format!("{}: cannot be read", dir.display()))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()).filter(|path| path.is_dir()))
        .collect();
    below.sort();
    let mut records = Vec::new();
    for dir in &below {
        records.extend(read_all(dir)?);
    }
    Ok(text::table(&table(&latest(records))))
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
    let order = |record: &Record| EXPERIMENTS.iter().position(|e| e.name() == record.experiment);
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
    use crate::loss::tests::point;
    use crate::record::{FORMAT, Findings, Point};
    use crate::sheet::Sheet;

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

    /// What the README of the results says is what the records beside it say by today's criteria.
    #[test]
    fn the_committed_list_is_that_of_the_committed_records() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        let list = list(&results).unwrap();
        let readme = std::fs::read_to_string(results.join("README.md")).unwrap();
        assert!(readme.contains(&format!("{BEGIN}{list}{END}")), "run `sluice lab losses --out docs/results`:\n{list}");
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
            files::put_json(&dir.join("subtables.json"), run).unwrap();
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
