//! Finding the tree's own Rust files.

use std::path::{Path, PathBuf};

/// A Rust file of the tree.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path below the root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// The root of the work tree.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the tree this was built from")
}

/// Every Rust file of the tree in order of path, build output left out.
pub fn sources() -> Vec<Source> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if name.ends_with(".rs") {
                let text = std::fs::read_to_string(&path).expect("a readable source file");
                let path = path.strip_prefix(&root).expect("a path below the root").to_string_lossy().into_owned();
                found.push(Source { path, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}
