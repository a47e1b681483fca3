//! docs/limits.md: each row of its table says what bounds a resource, what happens there, and which test shows it.

use sluice_checks::{root, sources};
use sluice_fate::Limit;
use std::collections::BTreeSet;

/// The columns of the table.
const COLUMNS: usize = 6;

/// The rows of the table, without its head.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix('|'));
    lines.skip(1).map(|line| line.split('|').map(str::trim).collect()).collect()
}

/// The test commands of a cell, as words; one that names no package is of the one before.
fn commands(cell: &str) -> Vec<Vec<&str>> {
    cell.split('`').skip(1).step_by(2).map(|command| command.split_whitespace().collect()).collect()
}

/// The word behind an option.
fn option<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1)).copied()
}

/// What is wrong with the tests that a cell names.
fn missing(cell: &str, has: &dyn Fn(&str, &str) -> bool) -> Vec<String> {
    let mut folder = String::new();
    let mut missing = Vec::new();
    for words in commands(cell) {
        if let Some(package) = option(&words, "-p") {
            folder = format!("crates/{}/", package.trim_start_matches("sluice-"));
        }
        let test = option(&words, "--test");
        let place = test.map_or_else(|| format!("{folder}src/"), |test| format!("{folder}tests/{test}"));
        let is_filter = |word: &&&str| !word.starts_with('-') && !matches!(**word, "cargo" | "test");
        let named = [option(&words, "-p"), test];
        let filter = words.iter().filter(is_filter).find(|word| !named.contains(&Some(**word)));
        if folder.is_empty() || !has(&place, filter.unwrap_or(&"")) {
            missing.push(words.join(" "));
        }
    }
    missing
}

#[test]
fn each_bound_has_a_test_that_is_there() {
    let table = std::fs::read_to_string(root().join("docs/limits.md")).expect("docs/limits.md");
    let sources = sources();
    // A filter is a part of a test's path: the file's name, or the function's.
    let has = |place: &str, filter: &str| {
        let files = || sources.iter().filter(|source| source.path.starts_with(place));
        files().any(|source| source.path.contains(filter) || source.text.contains(&format!("fn {filter}")))
            || files().any(|source| source.text.lines().any(|line| line.contains("fn ") && line.contains(filter)))
    };
    let rows = rows(&table);
    assert!(rows.len() > 15, "{} rows", rows.len());
    for row in rows {
        assert_eq!(row.len(), COLUMNS, "{row:?}");
        assert!([0, 1, 3].iter().all(|column| !row[*column].is_empty()), "{row:?}");
        assert!(!commands(row[5]).is_empty(), "no test: {row:?}");
        assert_eq!(missing(row[5], &has), Vec::<String>::new(), "{}", row[0]);
    }
}

/// The counters of a cell.
fn counters(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_table_and_the_command_name_the_same_bounds() {
    let table = std::fs::read_to_string(root().join("docs/limits.md")).expect("docs/limits.md");
    let sources = sources();
    let mut named = BTreeSet::new();
    for row in rows(&table) {
        let counters = counters(row[4]);
        assert!(!counters.is_empty() || row[4].starts_with("none: "), "no counter, and no reason: {row:?}");
        for counter in counters {
            if counter.starts_with("limit-") {
                named.insert(counter.to_owned());
                continue;
            }
            // Others are in the code without their prefix.
            let bare = counter.trim_start_matches("sluice_").trim_start_matches("drop_").replace('_', "-");
            let names = [bare.replace('-', "_"), bare].map(|name| format!("\"{name}\""));
            let is_there = sources.iter().any(|source| names.iter().any(|name| source.text.contains(name)));
            assert!(is_there, "{counter} of {row:?} is nowhere");
        }
    }
    let shown: BTreeSet<String> = Limit::ALL.iter().map(|limit| limit.name().to_owned()).collect();
    assert_eq!(named, shown, "docs/limits.md, and sluice/limits-show");
}

#[test]
fn the_check_sees_what_is_missing() {
    let has = |place: &str, filter: &str| (place, filter) == ("crates/a/src/", "one") || place == "crates/b/tests/two";
    let cell = "`cargo test -p sluice-a one`, `-p sluice-b --test two`, `--test two any`";
    assert_eq!(missing(cell, &has), Vec::<String>::new());
    assert_eq!(missing("`cargo test -p sluice-a two`, `--test one`", &has).len(), 2);
    assert_eq!(missing("`cargo test one`", &has), ["cargo test one"]);
    let table = "# T\n| a | b |\n|---|---|\n| x | | y |\n";
    assert_eq!(rows(table), [["x", "", "y"]]);
}
