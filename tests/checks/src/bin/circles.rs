//! Reports, by crate, the files that import each other in a circle. A report, not a verdict: a module and its child may
//! belong together.
#![forbid(unsafe_code)]

use sluice_checks::{Modules, circles, root};
use std::collections::BTreeSet;
use std::path::PathBuf;

fn main() {
    let top = root();
    let (mut sets, mut files, mut largest) = (0, 0, 0);
    for folder in crates() {
        let src = top.join(&folder).join("src");
        let roots = ["lib.rs", "main.rs"].map(|name| src.join(name));
        for root in roots.into_iter().filter(|root| root.exists()) {
            let modules = Modules::of(&root, &src);
            for circle in circles(&modules.imports()) {
                let names = circle.iter().copied().collect::<Vec<_>>().join(" ");
                println!("{folder}: {} files: {names}", circle.len());
                (sets, files, largest) = (sets + 1, files + circle.len(), largest.max(circle.len()));
            }
        }
    }
    println!("{sets} circles, {files} files in them, {largest} in the largest");
}

/// The folders of the tree's crates, in order.
fn crates() -> BTreeSet<String> {
    let paths = sluice_checks::sources().into_iter().map(|source| PathBuf::from(source.path));
    let folders = paths.filter_map(|path| Some(path.to_str()?.split_once("/src/")?.0.to_owned()));
    folders.collect()
}
