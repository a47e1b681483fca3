//! Numbers as people read them, and tables as Markdown.

use crate::record::{Record, Size, Table};
use crate::stat::Stat;

/// A count, short where it is round: 1000 is `1k`, 1500 is `1500`.
pub fn count(n: f64) -> String {
    for (unit, name) in [(1e6, "M"), (1e3, "k")] {
        if n >= unit && n % unit == 0.0 {
            return format!("{}{name}", n / unit);
        }
    }
    format!("{n}")
}

/// A number with as many digits as it deserves.
pub fn number(x: f64) -> String {
    match x.abs() {
        a if a >= 100.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    }
}

/// Median and range: `61.2 (60.1–63.0)`.
pub fn stat(stat: Option<&Stat>) -> String {
    match stat {
        None => "n/a".to_owned(),
        Some(s) => format!("{} ({}–{})", number(s.median), number(s.min), number(s.max)),
    }
}

/// How much of the experiment this is.
pub fn size(record: &Record) -> &'static str {
    match (record.size, record.interrupted) {
        (_, true) => "stopped before its end",
        (Size::Quick, _) => "a quick look: few points, few repetitions",
        (Size::Full, _) => "the whole experiment",
    }
}

/// How often each arm was measured at each point, at least.
pub fn repetitions(record: &Record) -> String {
    let arms = record.findings.points.iter().flat_map(|point| &point.arms);
    match arms.flat_map(|arm| arm.figures.values()).map(|stat| stat.samples.len()).min() {
        None => String::new(),
        Some(1) => ", each point once".to_owned(),
        Some(n) => format!(", {n} interleaved repetitions a point"),
    }
}

/// A table without its title.
pub fn table(table: &Table) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule: Vec<String> = table.columns.iter().map(|_| "---".to_owned()).collect();
    line(&table.columns) + &line(&rule) + &table.rows.iter().map(|row| line(row)).collect::<String>()
}

/// A time, coarsely: `40 seconds`, `12 minutes`, `3 hours`.
pub fn span(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} seconds"),
        s if s < 7200.0 => format!("{:.0} minutes", s / 60.0),
        s => format!("{:.1} hours", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!([1.0, 1000.0, 1500.0, 1e6, 1e7].map(count), ["1", "1k", "1500", "1M", "10M"]);
        assert_eq!([0.256, 12.34, 123.4].map(number), ["0.26", "12.3", "123"]);
        assert_eq!(stat(None), "n/a");
    }

    #[test]
    fn a_bar_in_a_cell_does_not_end_it() {
        let t = Table { title: String::new(), columns: vec!["a".into()], rows: vec![vec!["x|y".into()]] };
        assert_eq!(table(&t), "| a |\n| --- |\n| x\\|y |\n");
    }
}
