//! SECURITY.md names a test for each line of its threat model: each is there, and is a test.

use sluice_checks::{blank, root, words};
use std::collections::BTreeSet;

/// The parties of the threat model.
const PARTIES: [&str; 7] = ["wire", "guest", "controller", "management client", "database", "watcher", "local user"];

/// The section of attacks, each with its test and a variation's.
const ATTACKS: &str = "## Attacks and their variations";
/// The attacks that the review reproduced.
const ATTACKS_MIN: usize = 22;

/// A table's row of three cells.
fn cells(line: &str) -> Option<[&str; 3]> {
    let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
    cells.try_into().ok()
}

/// The path and the function of a test.
fn test_of(cell: &str) -> Option<(&str, &str)> {
    cell.strip_prefix('`')?.strip_suffix('`')?.split_once("` `")
}

/// The lines that name a test: party, path, function.
fn shown(text: &str) -> Vec<(&str, &str, &str)> {
    let row = |line| {
        let [party, _, test] = cells(line)?;
        test_of(test).map(|(path, function)| (party, path, function))
    };
    text.split(ATTACKS).next().unwrap_or(text).lines().filter_map(row).collect()
}

/// An attack, and the tests of itself and of a variation.
type Attack<'a> = (&'a str, (&'a str, &'a str), (&'a str, &'a str));

/// The attacks; a row that names no two tests is an error.
fn attacks(text: &str) -> Result<Vec<Attack<'_>>, &str> {
    let section = text.split(ATTACKS).nth(1).unwrap_or("");
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    let attack = |line| {
        let [what, attack, variation] = cells(line)?;
        Some((what, test_of(attack)?, test_of(variation)?))
    };
    rows.map(|line| attack(line).ok_or(line)).collect()
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
fn every_attack_has_a_test_and_a_variation_of_its_own() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    let text = read("SECURITY.md");
    let attacks = attacks(&text).unwrap_or_else(|row| panic!("no two tests: {row}"));
    assert!(attacks.len() >= ATTACKS_MIN, "{} attacks", attacks.len());
    let mut variations = BTreeSet::new();
    for (what, attack, variation) in attacks {
        for (path, function) in [attack, variation] {
            assert!(has_test(&blank(&read(path)), function), "{what}: {path} has no test {function}");
        }
        assert_ne!(attack, variation, "{what}");
        assert!(variations.insert(variation), "{what}: this variation is named twice");
    }
}

#[test]
fn the_check_sees_what_is_missing() {
    let code = blank("#[test]\nfn a() {}\nfn b() {}\nproptest! { #[test] fn c(x in 0..3) {} }\n// #[test] fn d() {}");
    let found = ["a", "c", "d", "e"].map(|name| has_test(&code, name));
    assert_eq!(found, [true, true, false, false]);
    let text = "| wire | a line | `x.rs` `t` |\n| wire | no test | none |\n|---|---|---|";
    assert_eq!(shown(text), [("wire", "x.rs", "t")]);
    let row = "| a | `x.rs` `t` | `y.rs` `u` |";
    let text = format!("{text}\n{ATTACKS}\n| weakness | attack | variation |\n|---|---|---|\n{row}\n");
    assert_eq!(shown(&text).len(), 1);
    assert_eq!(attacks(&text), Ok(vec![("a", ("x.rs", "t"), ("y.rs", "u"))]));
    assert_eq!(attacks(&format!("{text}| b | `x.rs` `t` | none |\n")), Err("| b | `x.rs` `t` | none |"));
}
