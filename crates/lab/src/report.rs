//! The report: one HTML page that needs nothing from the network, Markdown beside it, and the pictures as files.

use crate::experiment_list::read_all;
use crate::files::put;
use crate::losses;
use crate::markdown::markdown;
use crate::record::{Figure, Record, Table};
use crate::svg::{self, escape};
use crate::text;
use crate::verdicts;
use anyhow::{Result, ensure};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const PAGE_STYLE: &str = include_str!("report.css");

/// What the page may load: nothing; it brings its style along.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Said in the place of a plot that would be empty.
const NOT_MEASURED: &str = "not measured in this run";

/// Writes `report.html`, `report.md` and the pictures of every record that lies in `dir` as JSON. Returns the page.
///
/// # Errors
/// If a record cannot be read, or a file not be written.
pub fn write(dir: &Path) -> Result<PathBuf> {
    let records = read_all(dir)?;
    ensure!(!records.is_empty(), "{}: expected records of experiments, such as subtables.json", dir.display());
    for record in &records {
        for (i, figure) in record.findings.figures.iter().enumerate().filter(|(_, figure)| !figure.chart.is_empty()) {
            put(&dir.join(format!("{}-{}.svg", record.experiment, i + 1)), &svg::document(figure))?;
        }
    }
    put(&dir.join("report.md"), &markdown(&records))?;
    let path = dir.join("report.html");
    put(&path, &page(&records))?;
    Ok(path)
}

/// The whole page.
fn page(records: &[Record]) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>\
         <meta http-equiv='Content-Security-Policy' content=\"{POLICY}\">\
         <meta name='viewport' content='width=device-width,initial-scale=1'><title>Sluice lab</title>\n\
         <style>{PAGE_STYLE}{}</style></head><body>\n<header><h1>Sluice lab</h1><nav>",
        svg::STYLE
    );
    for record in records {
        let name = escape(&record.experiment);
        let _ = write!(out, "<a href='#{name}'>{name}</a> ");
    }
    out = out.replacen("<nav>", "<nav><a href='#verdicts'>verdicts</a> ", 1);
    out += "<a href='#losses'>losses</a> <a href='#machine'>machine</a></nav></header>\n<main>\n";
    let verdicts = verdicts::table(records);
    let _ = writeln!(out, "<section id='verdicts'><h2>{}</h2>\n<p class='lead'>{}</p>", verdicts.title, verdicts::LEAD);
    table(&mut out, &Table { title: format!("{} experiments", verdicts.rows.len()), ..verdicts });
    out += "</section>\n";
    records.iter().for_each(|record| section(&mut out, record));
    let lost = losses::table(records);
    let _ = writeln!(out, "<section id='losses'><h2>{}</h2>", lost.title);
    if lost.rows.is_empty() {
        let _ = writeln!(out, "<p>{}</p>", losses::none(records));
    } else {
        table(&mut out, &Table { title: format!("{} points", lost.rows.len()), ..lost });
    }
    out += "</section>\n";
    if let Some(record) = records.first() {
        out += "<section id='machine'><h2>The machine</h2><div class='wide'><table>";
        for (name, fact) in &record.sheet.0 {
            let _ = write!(out, "<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(fact));
        }
        out += "</table></div></section>\n";
    }
    out + "</main></body></html>\n"
}

fn section(out: &mut String, record: &Record) {
    let _ = writeln!(
        out,
        "<section id='{name}'><h2>{name}</h2>\n<p class='lead'>{}</p>\n<p class='meta'><code>{}</code> · {} UTC · {:.0} s · {}{}</p>",
        escape(&record.about),
        escape(&record.command),
        escape(&record.began),
        record.seconds,
        text::size(record),
        text::repetitions(record),
        name = escape(&record.experiment),
    );
    record.noise.iter().for_each(|why| *out += &format!("<p class='noisy'>{}</p>\n", escape(why)));
    *out += "<div class='figures'>\n";
    record.findings.figures.iter().for_each(|f| figure(out, f));
    *out += "</div>\n";
    if !record.findings.notes.is_empty() {
        let items: String = record.findings.notes.iter().map(|n| format!("<li>{}</li>", escape(n))).collect();
        *out += &format!("<ul class='notes'>{items}</ul>\n");
    }
    record.findings.tables.iter().for_each(|t| table(out, t));
    *out += "</section>\n";
}

fn figure(out: &mut String, figure: &Figure) {
    if figure.chart.is_empty() {
        let _ = writeln!(out, "<p class='unmeasured'>{}: {NOT_MEASURED}</p>", escape(&figure.title));
        return;
    }
    let _ = write!(
        out,
        "<figure><h3>{}</h3>\n{}<figcaption>{}</figcaption></figure>\n",
        escape(&figure.title),
        svg::element(figure),
        escape(&figure.caption)
    );
}

fn table(out: &mut String, table: &Table) {
    let row = |tag: &str, cells: &[String]| {
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
        format!("<tr>{cells}</tr>")
    };
    let body: String = table.rows.iter().map(|cells| row("td", cells) + "\n").collect();
    let _ = write!(
        out,
        "<details{}><summary>{}</summary><div class='wide'><table><thead>{}</thead><tbody>\n{body}</tbody></table></div></details>\n",
        if table.rows.len() <= 16 { " open" } else { "" },
        escape(&table.title),
        row("th", &table.columns)
    );
}
