//! The report as Markdown.

use crate::losses;
use crate::record::{Record, Table};
use crate::text::{repetitions, size, table};
use crate::verdicts;
use std::fmt::Write;

/// Records as Markdown.
pub fn markdown(records: &[Record]) -> String {
    let verdicts = verdicts::table(records);
    let mut out = format!("# Lab report\n\n## {}\n\n{}\n\n{}", verdicts.title, verdicts::LEAD, table(&verdicts));
    for record in records {
        let _ = write!(out, "\n## {}\n\n{}\n\n", record.experiment, record.about);
        let _ = writeln!(
            out,
            "`{}`, {} UTC, {:.0} s, {}{}\n",
            record.command,
            record.began,
            record.seconds,
            size(record),
            repetitions(record)
        );
        record.noise.iter().for_each(|why| out += &format!("**{why}**\n\n"));
        record.findings.notes.iter().for_each(|note| out += &format!("- {note}\n"));
        for figure in record.findings.figures.iter().filter(|figure| figure.chart.is_empty()) {
            let _ = writeln!(out, "- {}: not measured in this run", figure.title);
        }
        for t in &record.findings.tables {
            let _ = write!(out, "\n### {}\n\n{}", t.title, table(t));
        }
    }
    let lost = losses::table(records);
    let _ = write!(out, "\n## {}\n\n", lost.title);
    out += &if lost.rows.is_empty() { format!("{}\n", losses::none(records)) } else { table(&lost) };
    if let Some(record) = records.first() {
        let rows = record.sheet.0.iter().map(|(name, fact)| vec![name.clone(), fact.clone()]).collect();
        let sheet = Table { title: String::new(), columns: vec!["machine".into(), String::new()], rows };
        let _ = write!(out, "\n## The machine\n\n{}", table(&sheet));
    }
    out
}
