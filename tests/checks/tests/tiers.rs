//! A crate imports only what stands above it in `ci/tiers.toml`, and engines never each other.

use serde_json::Value;
use sluice_checks::metadata;

/// Crates whose members never import each other.
const SIBLINGS: &str = "engines";
/// Only these may import the test crates other than as a dev-dependency.
const TESTS: &str = "tests";

struct Place {
    tier: String,
    rank: usize,
}

/// The list, bottom up: tier and rank of each crate, by its name without the project's prefix.
fn places() -> Vec<(String, Place)> {
    let text = std::fs::read_to_string(sluice_checks::root().join("ci/tiers.toml")).expect("ci/tiers.toml");
    let table: toml::Table = text.parse().expect("ci/tiers.toml is TOML");
    let order = ["words", "clock", "tables", "engines", "services", "programs", "tests"];
    assert_eq!(table.len(), order.len(), "ci/tiers.toml has other tiers than {order:?}");
    let mut out = Vec::new();
    for tier in order {
        for name in table[tier].as_array().expect("a tier is a list") {
            let name = name.as_str().expect("a crate is a name").to_owned();
            out.push((name, Place { tier: tier.to_owned(), rank: out.len() }));
        }
    }
    out
}

/// What is wrong with `name` (at `place`) importing `other`, if anything.
fn objection(name: &str, place: &Place, other: &str, target: &Place) -> Option<String> {
    if target.tier == TESTS && place.tier != TESTS {
        return Some(format!("{name} imports {other}, which is for tests only: make it a dev-dependency"));
    }
    if place.tier == target.tier && place.tier == SIBLINGS {
        return Some(format!("{name} imports its sibling {other}: put what both need into a lower tier"));
    }
    (target.rank >= place.rank)
        .then(|| format!("{name} ({}) imports {other} ({}), which does not stand above it", place.tier, target.tier))
}

fn objections(metadata: &Value, places: &[(String, Place)]) -> Vec<String> {
    let short = |name: &str| name.strip_prefix("sluice-").unwrap_or(name).to_owned();
    let place = |name: &str| places.iter().find(|(n, _)| n == name).map(|(_, p)| p);
    let packages = metadata["packages"].as_array().expect("packages");
    let mut wrong = Vec::new();
    for package in packages {
        let name = short(package["name"].as_str().expect("a name"));
        let Some(here) = place(&name) else {
            wrong.push(format!("{name} has no place in ci/tiers.toml"));
            continue;
        };
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let other = short(dependency["name"].as_str().expect("a name"));
            // A path makes it one of ours; a build-dependency counts as an import.
            if dependency["kind"] == "dev" || dependency["path"].is_null() {
                continue;
            }
            match place(&other) {
                Some(target) => wrong.extend(objection(&name, here, &other, target)),
                None => wrong.push(format!("{name} imports {other}, which has no place in ci/tiers.toml")),
            }
        }
    }
    wrong
}

#[test]
fn crates_import_only_what_stands_above_them() {
    let wrong = objections(&metadata(), &places());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_check_sees_each_kind_of_wrong_import() {
    let import = |from: &str, to: &str, kind: Value| {
        let metadata = serde_json::json!({ "packages": [{ "name": from,
            "dependencies": [{ "name": to, "kind": kind, "path": "/x" }] }] });
        objections(&metadata, &places()).len()
    };
    assert_eq!(import("sluice-flow", "sluice-classifier", Value::Null), 1, "upwards");
    assert_eq!(import("sluice-datapath", "sluice-ofproto", Value::Null), 1, "sideways in the engines");
    assert_eq!(import("sluice-ofproto", "sluice-datapath", Value::Null), 1, "sideways in the engines");
    assert_eq!(import("sluice", "sluice-testkit", Value::Null), 1, "a test crate");
    assert_eq!(import("sluice-nowhere", "sluice-flow", Value::Null), 1, "no place");
    assert_eq!(import("sluice-flow", "sluice-classifier", "build".into()), 1, "a build-dependency");
    assert_eq!(import("sluice-flow", "sluice-classifier", "dev".into()), 0, "a dev-dependency");
    assert_eq!(import("sluice-classifier", "sluice-flow", Value::Null), 0, "downwards");
    assert_eq!(import("sluice-ofproto", "sluice-connmgr", Value::Null), 1, "an engine imports a service");
}
