//! SECURITY.md names a test for each line of its threat model: each is there, and is a test.

use sluice_checks::{blank, root, words};

/// The parties of the threat model.
const PARTIES: [&str; 7] = ["wire", "guest", "controller", "management client", "database", "watcher", "local user"];

/// The lines that name a test: party, path, function.
fn shown(text: &str) -> Vec<(&str, &str, &str)> {
    let row = |line| -> Option<(&str, &str, &str)> {
        let cells: Vec<&str> = str::strip_prefix(line, "| ")?.strip_suffix(" |")?.split(" | ").collect();
        let [party, _, test] = cells[..] else { return None };
        let (path, function) = test.strip_prefix('`')?.strip_suffix('`')?.split_once("` `")?;
        Some((party, path, function))
    };
    text.lines().filter_map(row).collect()
}

/// Whether code has a test of that name: a function behind `#[test]`, or a property in `proptest!`.
fn has_test(code: &str, function: &str) -> bool {
    let all: Vec<&str> = words(code).map(|(_, word)| word).collect();
    let Some(at) = all.windows(2).position(|pair| pair == ["fn", function]) else { return false };
    all[..at].iter().rev().take(6).any(|word| *word == "test")
}

#[test]
fn every_line_is_shown_by_a_test_that_is_there() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    let text = read("SECURITY.md");
    let shown = shown(&text);
    for party in PARTIES {
        assert!(shown.iter().any(|(of, ..)| *of == party), "no test shows anything of the party {party}");
    }
    for (party, path, function) in shown {
        assert!(PARTIES.contains(&party), "{party}: no party of the threat model");
        assert!(has_test(&blank(&read(path)), function), "{path} has no test {function}");
    }
}

#[test]
fn the_check_sees_what_is_missing() {
    let code = blank("#[test]\nfn a() {}\nfn b() {}\nproptest! { #[test] fn c(x in 0..3) {} }\n// #[test] fn d() {}");
    let found = ["a", "c", "d", "e"].map(|name| has_test(&code, name));
    assert_eq!(found, [true, true, false, false]);
    let rows = shown("| wire | a line | `x.rs` `t` |\n| wire | no test | none |\n|---|---|---|");
    assert_eq!(rows, [("wire", "x.rs", "t")]);
}
