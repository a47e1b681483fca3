//! The committed record, and what differs from it.
//!
//! ```text
//! # what the numbers are, why those that rose did, and what the rise buys
//! rustc 1.95.0
//! emc-hit                1      411.2     387.9
//! ```
//!
//! A line a scenario and batch: instructions a packet, scalar and AVX2.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Instructions a packet by the case's name.
pub type Counts = Vec<(String, f64)>;

/// A rise by more than this needs a new record, with its reason.
const RISE_MAX: f64 = 0.03;

/// A difference below this is not worth a line.
const SHOWN: f64 = 0.005;

pub struct Record {
    file: String,
    rustc: String,
    counts: BTreeMap<String, f64>,
}

impl Record {
    /// # Panics
    /// If there is no such record, or a line of it is none.
    pub fn read(file: &Path) -> Record {
        let file = file.display().to_string();
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        let mut record = Record { file, rustc: String::new(), counts: BTreeMap::new() };
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["rustc", ..] => record.rustc = line.to_owned(),
                [scenario, batch, scalar, avx2] => {
                    for (vector, count) in [("scalar", scalar), ("avx2", avx2)] {
                        let count = count.parse().unwrap_or_else(|_| panic!("{}: {line}: {count}", record.file));
                        record.counts.insert(format!("{scenario}/{batch}/{vector}"), count);
                    }
                }
                _ => panic!("{}: \"{line}\": expected a scenario, its batch, and two counts", record.file),
            }
        }
        record
    }

    /// Shows what differs. Fails if a count has risen too much, or is not in the record.
    pub fn compare(&self, counts: &Counts) -> ExitCode {
        print!("{}", table(counts));
        let (mut failed, mut passed) = (0, 0);
        for (name, now) in counts {
            let Some(was) = self.counts.get(name) else {
                println!("{name}: not in the record");
                failed += 1;
                continue;
            };
            let rise = now / was - 1.0;
            if rise.abs() >= SHOWN {
                println!("{name:<28} {was:>9.1} -> {now:>9.1}  {:+.1} %", 100.0 * rise);
            }
            if rise > RISE_MAX { failed += 1 } else { passed += 1 }
        }
        if self.rustc != rustc() {
            // Another compiler writes another program; its counts say nothing about a change of the source.
            println!("SKIPPED comparison: the record was made with {}, this is {}", self.rustc, rustc());
            println!("lane instructions: 0 passed, 0 failed, {} skipped", counts.len());
            return ExitCode::SUCCESS;
        }
        let skipped = self.counts.keys().filter(|name| counts.iter().all(|(counted, _)| counted != *name)).count();
        println!("lane instructions: {passed} passed, {failed} failed, {skipped} skipped");
        if failed == 0 {
            return ExitCode::SUCCESS;
        }
        println!("More than {:.0} % over {}: mend it, or record the table above", 100.0 * RISE_MAX, self.file);
        println!("with the reason for the rise and the cycles it buys.");
        ExitCode::FAILURE
    }
}

/// The counts as they stand in a record.
pub fn table(counts: &Counts) -> String {
    let mut rows: Vec<(&str, Vec<f64>)> = Vec::new();
    for (name, count) in counts {
        let (row, _vector) = name.rsplit_once('/').expect("invariant: a case's name ends with its vector setting");
        match rows.last_mut() {
            Some((last, counts)) if *last == row => counts.push(*count),
            _ => rows.push((row, vec![*count])),
        }
    }
    let mut text = format!("{}\n", rustc());
    for (row, counts) in rows {
        let (scenario, batch) = row.split_once('/').expect("invariant: a batch in the case's name");
        write!(text, "{scenario:<22} {batch:>2}").expect("writing to a string");
        counts.iter().for_each(|count| write!(text, " {count:>9.1}").expect("writing to a string"));
        text.push('\n');
    }
    text
}

/// The compiler's version, without commit and date.
fn rustc() -> String {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output = Command::new(rustc).arg("--version").output().expect("a compiler to ask for its version");
    let version = String::from_utf8_lossy(&output.stdout);
    version.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}
