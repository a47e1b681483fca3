//! The report: one HTML page that needs nothing from the network, Markdown beside it, and the pictures as files.

use crate::losses;
use crate::record::{Figure, Record, Table};
use crate::svg::{self, escape};
use crate::text;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const PAGE_STYLE: &str = include_str!("report.css");

/// What the page may load: nothing; it brings its style along.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Writes `report.html`, `report.md` and the pictures of every record that lies in `dir` as JSON. Returns the page.
///
/// # Errors
/// If a record cannot be read, or a file not be written.
pub fn write(dir: &Path) -> Result<PathBuf> {
    let records = read_all(dir)?;
    ensure!(!records.is_empty(), "{}: expected records of experiments, such as subtables.json", dir.display());
    for record in &records {
        for (i, figure) in record.findings.figures.iter().enumerate() {
            put(&dir.join(format!("{}-{}.svg", record.experiment, i + 1)), &svg::document(figure))?;
        }
    }
    put(&dir.join("report.md"), &text::markdown(&records))?;
    let path = dir.join("report.html");
    put(&path, &page(&records))?;
    Ok(path)
}

/// Writes a file whole or not at all: an interrupted run, or a full disk, leaves the one before.
///
/// # Errors
/// If it cannot be written.
pub fn put(path: &Path, text: &str) -> Result<()> {
    let fresh = path.with_extension("new");
    let written = std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, path));
    if written.is_err() {
        // What there is of it only takes room.
        let _ = std::fs::remove_file(&fresh);
    }
    written.with_context(|| format!("{}: cannot be written", path.display()))
}

/// Writes a record, or the state of one under way, as JSON on one line: records are kept in git, and programs read
/// them.
///
/// # Errors
/// If it cannot be written.
pub fn put_json(path: &Path, record: &impl Serialize) -> Result<()> {
    put(path, &serde_json::to_string(record)?)
}

/// Makes a directory for results, if there is none, and sees that files can be written there: before hours of
/// measuring.
///
/// # Errors
/// If not.
pub fn make_dir(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("{}: cannot be made", dir.display()))?;
    let probe = dir.join("probe");
    put(&probe, "can this directory be written to?\n")?;
    std::fs::remove_file(&probe).with_context(|| format!("{}: cannot be removed", probe.display()))
}

/// The records in a directory, in the order of the experiments.
///
/// # Errors
/// If one cannot be read, or is none.
pub fn read_all(dir: &Path) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for experiment in crate::experiment::EXPERIMENTS {
        records.extend(read(&dir.join(format!("{}.json", experiment.name())))?);
    }
    records.extend(read(&dir.join("search.json"))?);
    Ok(records)
}

/// The record in a file; `None` if there is no such file.
///
/// # Errors
/// If it cannot be read, or is no record.
pub fn read(path: &Path) -> Result<Option<Record>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("{}: cannot be read", path.display())),
    };
    let record = serde_json::from_str(&text);
    record.map(Some).with_context(|| format!("{}: expected a record of this version; remove it", path.display()))
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
    out += "<a href='#losses'>losses</a> <a href='#machine'>machine</a></nav></header>\n<main>\n";
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
        if table.rows.len() <= 12 { " open" } else { "" },
        escape(&table.title),
        row("th", &table.columns)
    );
}
