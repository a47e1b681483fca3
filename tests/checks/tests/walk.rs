//! docs/walk.md leads through the code: each of its ten stops names a file and a function that are there.

use sluice_checks::{blank, root, words};

const STOPS: usize = 10;

/// The stops of the walk: path and function.
fn stops(text: &str) -> Vec<(&str, &str)> {
    let stop = |line| -> Option<(&str, &str)> {
        let (path, rest) = str::strip_prefix(line, "[`")?.split_once("`](../")?;
        let function = rest.strip_prefix(path)?.strip_prefix("), `")?.strip_suffix('`')?;
        Some((path, function))
    };
    text.lines().filter_map(stop).collect()
}

/// Whether code has the function, `name` or `Type::name`.
fn has_function(code: &str, function: &str) -> bool {
    let all: Vec<&str> = words(code).map(|(_, word)| word).collect();
    let (of, name) = function.rsplit_once("::").unwrap_or(("fn", function));
    all.contains(&of) && all.windows(2).any(|pair| pair == ["fn", name])
}

#[test]
fn every_stop_is_there() {
    let read =
        |path: &str| std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let walk = read("docs/walk.md");
    let stops = stops(&walk);
    assert_eq!(stops.len(), STOPS, "stops with a file and a function");
    assert_eq!(walk.lines().filter(|line| line.starts_with("## ")).count(), STOPS, "headings");
    for (path, function) in stops {
        assert!(has_function(&blank(&read(path)), function), "{path} has no {function}");
    }
}

#[test]
fn the_check_sees_what_is_missing() {
    let code = blank("impl Walk { fn process(&self) {} } // fn pass\nfn act() {}");
    let found = ["Walk::process", "act", "Walk::pass", "Pmd::process", "pass"].map(|name| has_function(&code, name));
    assert_eq!(found, [true, true, false, false, false]);
    assert_eq!(stops("[`a.rs`](../a.rs), `f`\n[`a.rs`](../b.rs), `f`\ntext"), [("a.rs", "f")]);
}
