//! No crate lists a dependency that its code does not name, and the workspace lists none that no crate has.
//!
//! A dependency is found by its name in the code: in `src` for an ordinary one, in `build.rs` for one of the build
//! script, anywhere in the crate for one of its tests. So one that only a crate's tests use is to be a dev-dependency,
//! unless these tests stand in `src`.

use serde_json::Value;
use sluice_checks::{Source, blank, metadata, root, sources, words};
use std::collections::BTreeSet;
use std::path::Path;

/// The names in the code of every file below a folder of the tree, or in that file.
fn names_in(sources: &[Source], place: &str) -> BTreeSet<String> {
    let here = sources.iter().filter(|source| Path::new(&source.path).starts_with(place));
    here.flat_map(|source| words(&blank(&source.text)).map(|(_, word)| word.to_owned()).collect::<Vec<_>>()).collect()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().expect("cargo metadata has it")
}

fn packages(metadata: &Value) -> &[Value] {
    metadata["packages"].as_array().expect("packages")
}

fn dependencies(package: &Value) -> &[Value] {
    package["dependencies"].as_array().expect("dependencies")
}

/// What is listed and not used.
fn unused(metadata: &Value, sources: &[Source], top: &Path) -> Vec<String> {
    let mut unused = Vec::new();
    for package in packages(metadata) {
        let folder = Path::new(text(package, "manifest_path")).parent().expect("a manifest lies in a folder");
        let folder = folder.strip_prefix(top).expect("a crate below the root").to_string_lossy();
        for dependency in dependencies(package) {
            let name = dependency["rename"].as_str().unwrap_or(text(dependency, "name"));
            let places = match dependency["kind"].as_str() {
                None => vec![format!("{folder}/src")],
                Some("build") => vec![format!("{folder}/build.rs"), format!("{folder}/build")],
                _ => vec![folder.to_string()],
            };
            if !places.iter().any(|place| names_in(sources, place).contains(&name.replace('-', "_"))) {
                unused.push(format!("{}: {name} is not used in {}", text(package, "name"), places.join(" or ")));
            }
        }
    }
    unused
}

#[test]
fn what_is_listed_is_used() {
    let unused = unused(&metadata(), &sources(), &root());
    assert!(unused.is_empty(), "{}", unused.join("\n"));
}

#[test]
fn what_the_workspace_lists_some_crate_has() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
    let manifest: toml::Table = manifest.parse().expect("Cargo.toml is TOML");
    let metadata = metadata();
    let all = packages(&metadata).iter().flat_map(dependencies);
    // A renamed crate is listed by its name in the code.
    let name = |dependency: &'_ Value| dependency["rename"].as_str().unwrap_or(text(dependency, "name")).to_owned();
    let had: BTreeSet<String> = all.map(name).collect();
    let listed = manifest["workspace"]["dependencies"].as_table().expect("workspace.dependencies");
    let idle: Vec<&String> = listed.keys().filter(|name| !had.contains(name.as_str())).collect();
    assert!(idle.is_empty(), "no crate has {idle:?}");
}

#[test]
fn the_check_sees_each_kind_of_dependency() {
    let unused_of = |kind: Value, path: &str, code: &str| {
        let metadata = serde_json::json!({ "packages": [{ "name": "sluice-a", "manifest_path": "/top/crates/a/Cargo.toml",
            "dependencies": [{ "name": "some-crate", "rename": null, "kind": kind }] }] });
        let source = Source { path: path.to_owned(), text: code.to_owned() };
        unused(&metadata, &[source], Path::new("/top")).len()
    };
    assert_eq!(unused_of(Value::Null, "crates/a/src/lib.rs", "use some_crate::X;"), 0);
    assert_eq!(unused_of(Value::Null, "crates/a/src/lib.rs", "// some_crate"), 1, "a comment");
    assert_eq!(unused_of(Value::Null, "crates/a/tests/a.rs", "use some_crate::X;"), 1, "a test");
    assert_eq!(unused_of("dev".into(), "crates/a/tests/a.rs", "use some_crate::X;"), 0);
    assert_eq!(unused_of("build".into(), "crates/a/src/lib.rs", "use some_crate::X;"), 1, "no build script");
    assert_eq!(unused_of("build".into(), "crates/a/build.rs", "some_crate::f()"), 0);
    assert_eq!(unused_of(Value::Null, "crates/ab/src/lib.rs", "use some_crate::X;"), 1, "another crate");
}
