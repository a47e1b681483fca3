//! What the workspace is built from keeps to deny.toml: licences, sources, and crates in two versions. cargo-deny reads the
//! same file and checks more; this runs where it is not installed.

use serde_json::Value;
use sluice_checks::{metadata_with_dependencies, root};
use std::collections::{BTreeMap, BTreeSet};

/// The lists of deny.toml.
struct Policy {
    licences: BTreeSet<String>,
    /// Crates that may be there beside another version, as `name@version`.
    second_versions: BTreeSet<String>,
}

impl Policy {
    fn read(text: &str) -> Policy {
        let policy: toml::Table = text.parse().unwrap();
        let list = |table: &str, key: &str| policy[table][key].as_array().unwrap().clone();
        let licences = list("licenses", "allow").iter().map(|name| name.as_str().unwrap().to_owned()).collect();
        let skipped = list("bans", "skip");
        let second_versions = skipped.iter().map(|skip| skip["crate"].as_str().unwrap().to_owned()).collect();
        Policy { licences, second_versions }
    }

    /// Whether a licence expression leaves a choice that is allowed. Source: SPDX 2.3, annex D; crates.io takes `/` for `OR`.
    fn allows(&self, expression: &str) -> bool {
        let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let mut at = 0;
        self.any_of(&words, &mut at) && at == words.len()
    }

    fn any_of(&self, words: &[&str], at: &mut usize) -> bool {
        let mut is_allowed = self.all_of(words, at);
        while words.get(*at) == Some(&"OR") {
            *at += 1;
            is_allowed |= self.all_of(words, at);
        }
        is_allowed
    }

    fn all_of(&self, words: &[&str], at: &mut usize) -> bool {
        let mut is_allowed = self.one(words, at);
        while words.get(*at) == Some(&"AND") {
            *at += 1;
            is_allowed &= self.one(words, at);
        }
        is_allowed
    }

    fn one(&self, words: &[&str], at: &mut usize) -> bool {
        let first = *at;
        *at += 1;
        if words.get(first) == Some(&"(") {
            let is_allowed = self.any_of(words, at);
            *at += 1;
            return is_allowed;
        }
        if words.get(*at) == Some(&"WITH") {
            *at += 2;
        }
        words.get(first..*at).is_some_and(|licence| self.licences.contains(&licence.join(" ")))
    }

    /// What is against the policy in these packages.
    fn objections(&self, packages: &[Value]) -> Vec<String> {
        let text = |package: &Value, key: &str| package[key].as_str().unwrap_or_default().to_owned();
        let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut objections = Vec::new();
        for package in packages {
            let (name, version) = (text(package, "name"), text(package, "version"));
            let (source, licence) = (text(package, "source"), text(package, "license"));
            if !source.is_empty() && source != "registry+https://github.com/rust-lang/crates.io-index" {
                objections.push(format!("{name} {version} comes from {source}"));
            }
            if !self.allows(&licence) {
                objections.push(format!("{name} {version} has the licence {licence:?}"));
            }
            versions.entry(name).or_default().push(version);
        }
        for (name, versions) in versions {
            let is_skipped = |version: &&String| self.second_versions.contains(&format!("{name}@{version}"));
            if versions.iter().filter(|version| !is_skipped(version)).count() > 1 {
                objections.push(format!("{name} is there in the versions {}", versions.join(", ")));
            }
        }
        objections
    }
}

#[test]
fn dependencies_keep_to_the_policy() {
    let policy = Policy::read(&std::fs::read_to_string(root().join("deny.toml")).unwrap());
    let metadata = metadata_with_dependencies();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 100, "{} packages", packages.len());
    assert_eq!(policy.objections(packages), Vec::<String>::new());
    let present = |skipped: &&String| {
        let is =
            |package: &Value| format!("{}@{}", package["name"].as_str().unwrap(), package["version"].as_str().unwrap());
        packages.iter().any(|package| is(package) == **skipped)
    };
    let gone: Vec<_> = policy.second_versions.iter().filter(|skipped| !present(skipped)).collect();
    assert!(gone.is_empty(), "deny.toml skips what is not there any more: {gone:?}");
}

#[test]
fn the_check_sees_what_is_wrong() {
    let policy =
        Policy::read("[licenses]\nallow = [\"MIT\", \"ISC\", \"A WITH B\"]\n[bans]\nskip = [{ crate = \"a@1.0.0\" }]");
    for allowed in ["MIT", "GPL-3.0 OR MIT", "GPL-3.0/MIT", "MIT AND ISC", "(GPL-3.0 OR MIT) AND ISC", "A WITH B"] {
        assert!(policy.allows(allowed), "{allowed}");
    }
    for refused in ["", "GPL-3.0", "MIT AND GPL-3.0", "A", "(GPL-3.0 AND MIT) OR A", "MIT ISC", "MIT OR", "(MIT"] {
        assert!(!policy.allows(refused), "{refused}");
    }
    let package = |name: &str, version: &str, licence: &str, source: &str| serde_json::json!({ "name": name, "version": version, "license": licence, "source": source });
    let packages = [
        package("a", "1.0.0", "MIT", ""),
        package("a", "2.0.0", "MIT", ""),
        package("b", "1.0.0", "MIT", ""),
        package("b", "2.0.0", "GPL-3.0", "git+https://example.org/b"),
    ];
    let expected = [
        "b 2.0.0 comes from git+https://example.org/b",
        "b 2.0.0 has the licence \"GPL-3.0\"",
        "b is there in the versions 1.0.0, 2.0.0",
    ];
    assert_eq!(policy.objections(&packages), expected);
}
