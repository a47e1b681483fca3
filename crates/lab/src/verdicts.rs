//! The first page of a report: of each experiment its question, and in words what came of it.

use crate::experiment_list::named;
use crate::losses;
use crate::record::{Record, Size, Table};
use crate::verdict::{MARGIN, spread};

/// What stands above the verdicts.
pub const LEAD: &str = "Each experiment asks a question of this switch and has an aim, such as that the switch left to itself \
    is never clearly dearer than the best forced setting. A quick look has few points and repetitions.";

/// The verdicts of some records.
pub fn table(records: &[Record]) -> Table {
    let row = |record: &Record| {
        let size = match record.size {
            Size::Quick => "quick look",
            Size::Full => "full",
        };
        vec![record.experiment.clone(), record.about.clone(), verdict(record), size.to_owned()]
    };
    Table {
        title: "Verdicts".to_owned(),
        columns: ["experiment", "question", "verdict", "run"].map(str::to_owned).to_vec(),
        rows: records.iter().map(row).collect(),
    }
}

/// What came of an experiment.
fn verdict(record: &Record) -> String {
    let points = record.findings.points.len();
    // Too noisy a point says neither that the aim is reached nor that it is missed.
    let undecided = record.findings.points.iter().filter(|point| spread(point.same_twice.as_ref()) > MARGIN).count();
    let mut lost = losses::of(record);
    lost.retain(|loss| !loss.is_undecided());
    let mut verdict = match (named(&record.experiment), points, &lost[..]) {
        // A search has an answer in place of an aim.
        (None, _, _) => match record.findings.tables.first() {
            Some(answers) => answers.rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>().join("; "),
            None => "no answer".to_owned(),
        },
        (Some(_), 0, _) => "not measured".to_owned(),
        (Some(_), _, []) if undecided == points => format!("undecided at all {points} points"),
        (Some(_), _, []) if points - undecided == 1 => "aim reached at the one point that is decided".to_owned(),
        (Some(_), _, []) => format!("aim reached at all {} points that are decided", points - undecided),
        (Some(_), _, [first, more @ ..]) => {
            let more = if more.is_empty() { String::new() } else { format!(", and {} more below", more.len()) };
            format!("aim missed: {}: {}{more}", first.at, first.what)
        }
    };
    if undecided != 0 && undecided != points {
        verdict += &format!("; {undecided} of {points} points are undecided");
    }
    if record.interrupted {
        verdict += "; the run was stopped before its end";
    }
    if !record.noise.is_empty() {
        verdict += "; the machine was too busy to trust it";
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::tests::point;
    use crate::record::{FORMAT, Findings, Point};
    use crate::sheet::Sheet;

    fn record(points: Vec<Point>, noise: &[&str], interrupted: bool) -> Record {
        Record {
            format: FORMAT.to_owned(),
            experiment: "subtables".to_owned(),
            about: "What does it cost?".to_owned(),
            command: String::new(),
            began: String::new(),
            seconds: 1.0,
            size: Size::Quick,
            interrupted,
            sheet: Sheet::default(),
            findings: Findings { points, ..Findings::default() },
            noise: noise.iter().map(|why| (*why).to_owned()).collect(),
        }
    }

    #[test]
    fn a_verdict_is_a_sentence_and_claims_nothing_that_was_not_measured() {
        let (won, lost) = (point(100.0, 110.0, [1.0, 1.0]), point(110.0, 100.0, [1.0, 1.0]));
        assert_eq!(verdict(&record(vec![], &[], false)), "not measured");
        assert_eq!(verdict(&record(vec![won], &[], false)), "aim reached at the one point that is decided");
        let noisy = point(110.0, 100.0, [0.9, 1.1]);
        assert_eq!(verdict(&record(vec![noisy.clone()], &[], false)), "undecided at all 1 points");
        let text = verdict(&record(vec![noisy, point(100.0, 110.0, [1.0, 1.0])], &[], false));
        assert_eq!(text, "aim reached at the one point that is decided; 1 of 2 points are undecided");
        let text = verdict(&record(vec![lost.clone(), lost], &["busy"], true));
        assert!(text.starts_with("aim missed: 1k flows: auto: 110 cycles, emc: 100 (1.10 times)"), "{text}");
        assert!(text.contains(", and 1 more below; the run was stopped"), "{text}");
        assert!(text.ends_with("; the machine was too busy to trust it"), "{text}");
        let table = table(&[record(vec![], &[], false)]);
        assert_eq!(table.rows[0], ["subtables", "What does it cost?", "not measured", "quick look"]);
    }
}
