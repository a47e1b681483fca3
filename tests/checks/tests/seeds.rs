//! docs/seeds.md has a place for every item of the five documents: a row with a file, a name in it, and a command.

use sluice_checks::root;
use std::collections::BTreeSet;
use std::path::Path;

/// Every system, knob, statistic, table and question of the documents, by number.
const ITEMS: &[(&str, &[&str])] = &[
    (
        "000",
        &[
            "system",
            "scalar",
            "avx2",
            "size",
            "hit-share",
            "adaptive",
            "statistics",
            "lookups",
            "baseline",
            "rules",
            "table-avx2",
            "table-scalar",
            "table-v2",
            "profile",
            "question-skew",
            "question-8k",
            "setup",
            "delay",
        ],
    ),
    ("001", &["ht", "ht-cache", "vbf", "vectors", "bench", "two-level", "switching", "ranking", "profile", "gain"]),
    (
        "002",
        &[
            "threshold",
            "random",
            "rss",
            "penalty",
            "adaptive",
            "statistics",
            "rules",
            "table",
            "question-three",
            "question-latency",
            "question-tunnel",
            "question-modified",
            "question-deterministic",
            "question-locations",
            "eviction",
            "lookup-probability",
            "6000",
            "elephants",
            "software-hash",
            "insertion",
        ],
    ),
    ("003", &["before", "after", "threshold", "most", "statistics", "generations", "log", "crr", "rate", "setup"]),
    (
        "004",
        &[
            "search",
            "profile-format",
            "generators",
            "pairs",
            "latency",
            "setup",
            "statistics",
            "sweep",
            "smc-behind",
            "emc-best",
            "both",
            "smc-alone",
            "smc-best",
            "question-overhead",
            "question-800",
            "question-default",
            "question-dynamic",
            "profile",
        ],
    ),
];

/// Columns of a row: item, place, command, there, here, difference.
const COLUMNS: usize = 6;

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The rows of items, cell by cell.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let cells = |line| Some(str::strip_prefix(line, "| ")?.strip_suffix(" |")?.split(" | ").collect());
    text.lines().filter(|line| line.starts_with("| 00")).filter_map(cells).collect()
}

/// The path and the name of a place.
fn place(cell: &str) -> Option<(&str, &str)> {
    let (_, rest) = cell.split_once("](../")?;
    let (path, rest) = rest.split_once(") `")?;
    Some((path, rest.strip_suffix('`')?))
}

/// Whether a crate has a test that `cargo test` would take for this filter: in a module or file of such a name, or of such a name
/// itself.
fn has_test(folder: &Path, filter: &str) -> bool {
    has_test_below(folder, folder, filter)
}

fn has_test_below(krate: &Path, folder: &Path, filter: &str) -> bool {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.expect("a readable folder").path()).any(|path| {
        if path.is_dir() {
            return has_test_below(krate, &path, filter);
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            return false;
        }
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut tests = text.split("#[test]").skip(1).filter_map(|rest| rest.split_once("fn ")?.1.split('(').next());
        let is_of_module = path.strip_prefix(krate).is_ok_and(|path| path.to_string_lossy().contains(filter));
        text.contains("#[test]") && is_of_module || tests.any(|name| name.contains(filter))
    })
}

/// What is wrong with a row.
fn faults(row: &[&str], experiments: &str) -> Vec<String> {
    let mut out = Vec::new();
    if row.len() != COLUMNS || row.iter().any(|cell| cell.trim().is_empty()) {
        out.push(format!("{} of {COLUMNS} cells", row.len()));
        return out;
    }
    match place(row[1]) {
        None => out.push(format!("no place: {}", row[1])),
        Some((path, name)) => match std::fs::read_to_string(root().join(path)) {
            Err(error) => out.push(format!("{path}: {error}")),
            Ok(code) => {
                let last = name.rsplit("::").next().unwrap_or(name);
                if !code.contains(last) {
                    out.push(format!("{path} has no {name}"));
                }
            }
        },
    }
    let command = row[2].trim_matches('`');
    let words: Vec<&str> = command.split_whitespace().collect();
    let is_known = match words[..] {
        ["lab", "search", profile, ..] => root().join(profile).exists(),
        ["lab", name] => experiments.contains(&format!("&{name}::")),
        ["cargo", "test", "-p", package, ref filter @ ..] => {
            let name = package.strip_prefix("sluice-").unwrap_or(package);
            let folder = root().join("crates").join(name);
            folder.join("Cargo.toml").exists() && filter.first().is_none_or(|filter| has_test(&folder, filter))
        }
        ["sluice", "ctl", command, ..] => read("docs/reference/commands.md").contains(&format!("`{command}`")),
        [script] => root().join(script).exists(),
        _ => false,
    };
    if !is_known {
        out.push(format!("no such command: {command}"));
    }
    for cell in row {
        for link in cell.split("](results/").skip(1) {
            let path = format!("docs/results/{}", link.split(')').next().unwrap_or_default());
            if !root().join(&path).exists() {
                out.push(format!("no such run: {path}"));
            }
        }
    }
    out
}

#[test]
fn no_item_lacks_a_place() {
    let text = read("docs/seeds.md");
    let experiments = read("crates/lab/src/experiment_list.rs");
    let rows = rows(&text);
    let have: BTreeSet<String> = rows.iter().map(|row| row[0].to_owned()).collect();
    assert_eq!(have.len(), rows.len(), "an item has two rows");
    let want: BTreeSet<String> =
        ITEMS.iter().flat_map(|(seed, items)| items.iter().map(move |item| format!("{seed}-{item}"))).collect();
    assert_eq!(have, want);
    let wrong: Vec<String> = rows
        .iter()
        .flat_map(|row| faults(row, &experiments).into_iter().map(|fault| format!("{}: {fault}", row[0])))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_check_sees_what_is_missing() {
    let experiments = "&subtables::Subtables,";
    let row = |place: &'static str, command: &'static str, here: &'static str| {
        faults(&["000-x", place, command, "there", here, "–"], experiments).len()
    };
    let good = "[`lib.rs`](../crates/lab/src/lib.rs) `mod`";
    assert_eq!(row(good, "`lab subtables`", "1.0"), 0);
    assert_eq!(row("[`lib.rs`](../crates/lab/src/lib.rs) `no_such_name`", "`lab subtables`", "1.0"), 1);
    assert_eq!(row("[`lib.rs`](../crates/lab/src/none.rs) `mod`", "`lab subtables`", "1.0"), 1);
    assert_eq!(row("somewhere", "`lab subtable`", "1.0"), 2);
    assert_eq!(row(good, "`cargo test -p sluice-nothing`", "1.0"), 1);
    assert_eq!(row(good, "`cargo test -p sluice-lab emc_model`", "1.0"), 0);
    assert_eq!(row(good, "`cargo test -p sluice-lab no_such_test`", "1.0"), 1);
    assert_eq!(row(good, "`sluice ctl sluice/set emc=off`", "1.0"), 0);
    assert_eq!(row(good, "`cargo test -p sluice-membership membership`", "1.0"), 1);
    assert_eq!(row(good, "`sluice ctl sluice/none`", "1.0"), 1);
    assert_eq!(row(good, "`sluice ctl sluice/se`", "1.0"), 1);
    assert_eq!(row(good, "`lab subtables`", "[run](results/none/report.md)"), 1);
    assert_eq!(row(good, "`lab subtables`", " "), 1);
    assert_eq!(rows("| item | place |\n| 000-x | a | b |\ntext"), [["000-x", "a", "b"]]);
}
