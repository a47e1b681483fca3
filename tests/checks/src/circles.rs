//! Sets of files that import each other in a circle: the strongly connected components of the imports.

use std::collections::{BTreeMap, BTreeSet};

/// What each file imports.
pub type Imports<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// The sets of two files and more in which each file reaches each other by imports; the largest first.
pub fn circles<'a>(imports: &Imports<'a>) -> Vec<BTreeSet<&'a str>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> = imports.keys().map(|file| (*file, reached(imports, file))).collect();
    let circle_of = |file: &&'a str| -> BTreeSet<&'a str> {
        reach[file].iter().copied().filter(|other| reach[other].contains(file)).collect()
    };
    let found: BTreeSet<BTreeSet<&str>> = imports.keys().map(circle_of).filter(|circle| circle.len() > 1).collect();
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

/// The files that `file` imports, directly or through others.
fn reached<'a>(imports: &Imports<'a>, file: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&'a str> = imports[file].iter().copied().collect();
    while let Some(next) = open.pop() {
        if found.insert(next) {
            open.extend(&imports[next]);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_found_whole_and_what_only_leads_to_it_is_not_in_it() {
        let edges = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("c", "e"), ("f", "g"), ("g", "f")];
        let mut imports = Imports::new();
        for (from, to) in edges {
            imports.entry(from).or_default().insert(to);
            imports.entry(to).or_default();
        }
        assert_eq!(circles(&imports), [BTreeSet::from(["a", "b", "c"]), BTreeSet::from(["f", "g"])]);
    }
}
