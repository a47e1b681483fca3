//! Which files of a crate import which: `use` and paths that begin with `crate`, `super`, `self` or a module's own
//! child.
//!
//! A name that a module re-exports counts for the file that defines it, so a `lib.rs` that only re-exports imports
//! nothing and nobody imports it. Code under `#[cfg(test)]` is left out. Macros are read as they stand, not expanded.

use crate::code::{blank, is_word};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Re-exports of re-exports that are followed.
const ALIASES_MAX: usize = 8;

/// The files of one crate, and what they import.
#[derive(Debug)]
pub struct Modules {
    modules: Vec<Module>,
}

/// A module in a file of its own.
#[derive(Debug)]
struct Module {
    file: String,
    parent: usize,
    children: BTreeMap<String, usize>,
    /// Names that `use` declarations bring in, by the path that they come from.
    aliases: BTreeMap<String, Vec<String>>,
    /// Every path that is named here, re-exports left out unless this file needs their name, too.
    paths: Vec<Vec<String>>,
}

impl Modules {
    /// Reads a crate from its root, `lib.rs` or `main.rs`. Files are named from `top` on.
    pub fn of(root: &Path, top: &Path) -> Modules {
        let mut modules = Modules { modules: Vec::new() };
        modules.add(root, top, 0);
        modules
    }

    /// Adds a file and the files of its child modules.
    fn add(&mut self, path: &Path, top: &Path, parent: usize) -> usize {
        let text = std::fs::read_to_string(path).expect("a readable source file");
        let code = blank(&text);
        let found = Reader::read(&tokens(&code));
        let file = path.strip_prefix(top).unwrap_or(path).to_string_lossy().into_owned();
        let this = self.modules.len();
        let Reader { aliases, paths, children, .. } = found;
        self.modules.push(Module { file, parent, children: BTreeMap::new(), aliases, paths });
        for child in children {
            if let Some(path) = file_of(path, &child) {
                let child_at = self.add(&path, top, this);
                self.modules[this].children.insert(child, child_at);
            }
        }
        this
    }

    /// Each file with the files that it imports.
    pub fn imports(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        (0..self.modules.len()).map(|at| (self.file(at), self.imported_by(at))).collect()
    }

    fn file(&self, at: usize) -> &str {
        &self.modules[at].file
    }

    fn imported_by(&self, at: usize) -> BTreeSet<&str> {
        let modules = self.modules[at].paths.iter().filter_map(|path| self.resolve(at, path, ALIASES_MAX));
        modules.filter(|other| *other != at).map(|other| self.file(other)).collect()
    }

    /// The module whose file defines what `path` names in module `at`; `None` if another crate defines it.
    fn resolve(&self, at: usize, path: &[String], aliases_left: usize) -> Option<usize> {
        let mut module = match path[0].as_str() {
            "crate" => 0,
            "super" => self.modules[at].parent,
            "self" => at,
            first => match self.modules[at].children.get(first) {
                Some(child) => *child,
                None => return self.resolve_alias(at, path, aliases_left),
            },
        };
        for (n, name) in path.iter().enumerate().skip(1) {
            match (name.as_str(), self.modules[module].children.get(name)) {
                ("super", _) => module = self.modules[module].parent,
                (_, Some(child)) => module = *child,
                _ if self.modules[module].aliases.contains_key(name) => {
                    return self.resolve_alias(module, &path[n..], aliases_left);
                }
                _ => return Some(module),
            }
        }
        Some(module)
    }

    /// As [`Modules::resolve`], where the first name of `path` came by `use`.
    fn resolve_alias(&self, at: usize, path: &[String], aliases_left: usize) -> Option<usize> {
        let target = self.modules[at].aliases.get(&path[0]).filter(|_| aliases_left != 0)?;
        if target[0] == path[0] && target.len() == 1 {
            return None;
        }
        self.resolve(at, &[target, &path[1..]].concat(), aliases_left - 1)
    }
}

/// Where `mod child;` in the file at `path` has its code.
fn file_of(path: &Path, child: &str) -> Option<PathBuf> {
    let stem = path.file_stem()?.to_str()?;
    let folder = match stem {
        "lib" | "main" | "mod" => path.parent()?.to_owned(),
        _ => path.parent()?.join(stem),
    };
    let places = [folder.join(format!("{child}.rs")), folder.join(child).join("mod.rs")];
    places.into_iter().find(|place| place.exists())
}

/// The words and marks of blanked code; `::` is one.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let size = match rest.bytes().take_while(|byte| is_word(*byte)).count() {
            0 if rest.starts_with("::") => 2,
            0 => first.len_utf8(),
            word => word,
        };
        tokens.push(&rest[..size]);
        rest = rest[size..].trim_start();
    }
    tokens
}

/// What stands in one file.
#[derive(Default)]
struct Reader {
    children: Vec<String>,
    aliases: BTreeMap<String, Vec<String>>,
    paths: Vec<Vec<String>>,
    /// How deep each inline module is in braces: `super` in it is this file.
    inline: Vec<usize>,
}

impl Reader {
    fn read(tokens: &[&str]) -> Reader {
        let mut reader = Reader::default();
        let (mut at, mut depth) = (0, 0);
        let mut re_exports = Vec::new();
        let mut words = BTreeSet::new();
        while at < tokens.len() {
            match &tokens[at..] {
                ["#", "[", "cfg", "(", "test", ..] => at = end_of_item(tokens, at),
                ["mod", name, ";", ..] => {
                    reader.children.push((*name).to_owned());
                    at += 3;
                }
                ["mod", _, "{", ..] => {
                    reader.inline.push(depth);
                    (at, depth) = (at + 3, depth + 1);
                }
                ["use", ..] => {
                    let is_public = at > 0 && matches!(tokens[at - 1], "pub" | ")");
                    let mut named = Vec::new();
                    at = use_tree(tokens, at + 1, &[], &mut named);
                    reader.note_use(named, is_public, &mut re_exports);
                }
                ["{", ..] => (at, depth) = (at + 1, depth + 1),
                ["}", ..] => {
                    (at, depth) = (at + 1, depth.saturating_sub(1));
                    reader.inline.pop_if(|inline| *inline == depth);
                }
                [first, "::", ..] if at == 0 || !matches!(tokens[at - 1], "::" | ".") => {
                    let mut path = vec![(*first).to_owned()];
                    at += 1;
                    while let ["::", name, ..] = &tokens[at..]
                        && name.bytes().all(is_word)
                    {
                        path.push((*name).to_owned());
                        at += 2;
                    }
                    at += usize::from(tokens.get(at) == Some(&"::"));
                    words.insert(*first);
                    reader.note_path(path);
                }
                [word, ..] => {
                    words.insert(*word);
                    at += 1;
                }
                [] => {}
            }
        }
        let needed = re_exports.into_iter().filter(|(name, _)| words.contains(name.as_str()));
        reader.paths.extend(needed.map(|(_, path)| path));
        reader
    }

    /// Notes what a `use` declaration brings in: names and their paths.
    fn note_use(
        &mut self,
        named: Vec<(String, Vec<String>)>,
        is_public: bool,
        re_exports: &mut Vec<(String, Vec<String>)>,
    ) {
        for (name, path) in named {
            let Some(path) = self.outside_inline(path) else { continue };
            if name != "_" && name != "*" && self.inline.is_empty() {
                self.aliases.insert(name.clone(), path.clone());
            }
            match is_public {
                true => re_exports.push((name, path)),
                false => self.paths.push(path),
            }
        }
    }

    /// Notes a path in an expression or a type.
    fn note_path(&mut self, path: Vec<String>) {
        self.paths.extend(self.outside_inline(path));
    }

    /// A path as it reads outside of inline modules; `None` if it stays inside them.
    fn outside_inline(&self, mut path: Vec<String>) -> Option<Vec<String>> {
        for _ in &self.inline {
            match path[0].as_str() {
                "super" => path[0] = "self".to_owned(),
                "crate" => return Some(path),
                _ => return None,
            }
            if path.get(1).is_some_and(|name| name == "super") {
                path.remove(0);
            }
        }
        Some(path)
    }
}

/// Reads a `use` tree from `at` on; where it ends. Each name that it brings in goes to `named` with its path.
fn use_tree(tokens: &[&str], mut at: usize, prefix: &[String], named: &mut Vec<(String, Vec<String>)>) -> usize {
    let mut path = prefix.to_vec();
    loop {
        match &tokens[at..] {
            ["::", ..] => at += 1,
            ["{", ..] => {
                at += 1;
                while !matches!(tokens.get(at), Some(&"}") | None) {
                    at = use_tree(tokens, at, &path, named);
                    at += usize::from(tokens.get(at) == Some(&","));
                }
                return at + 1;
            }
            ["*", ..] => {
                named.push(("*".to_owned(), path));
                return at + 1;
            }
            ["self", ..] if !path.is_empty() => at += 1,
            ["as", name, ..] => {
                named.push(((*name).to_owned(), path));
                return at + 2;
            }
            [name, ..] if name.bytes().all(is_word) => {
                path.push((*name).to_owned());
                at += 1;
            }
            _ => {
                if let Some(name) = path.last() {
                    named.push((name.clone(), path.clone()));
                }
                return at;
            }
        }
    }
}

/// Where the item with the attribute at `at` ends.
fn end_of_item(tokens: &[&str], mut at: usize) -> usize {
    let mut depth = 0;
    while at < tokens.len() {
        match tokens[at] {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 0 => return at,
            ")" | "]" => depth -= 1,
            "}" => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            ";" | "," if depth == 0 => return at + 1,
            _ => {}
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let modules = Modules::of(&folder.path().join("lib.rs"), folder.path());
        let imports = modules.imports();
        imports.iter().flat_map(|(file, others)| others.iter().map(move |other| format!("{file} {other}"))).collect()
    }

    #[test]
    fn a_re_exported_name_is_its_own_files() {
        let lib = "mod a; mod b; pub use a::A; pub mod c;";
        let found = imports(&[
            ("lib.rs", lib),
            ("a.rs", "pub struct A;"),
            ("b.rs", "use crate::{A, c::{self, d::D as E}}; fn f() { c::f(); crate::c::d::g() }"),
            ("c/mod.rs", "mod d; pub(crate) use d::D; fn f() { d::g(std::mem::take) }"),
            ("c/d.rs", "use super::D; fn g() { let _ = super::super::a::A; }"),
        ]);
        assert_eq!(found, ["b.rs a.rs", "b.rs c/d.rs", "b.rs c/mod.rs", "c/d.rs a.rs", "c/mod.rs c/d.rs"]);
    }

    #[test]
    fn a_module_that_needs_what_it_re_exports_imports_it() {
        let found = imports(&[("lib.rs", "mod a; pub use a::A; fn f(a: A) {}"), ("a.rs", "pub struct A;")]);
        assert_eq!(found, ["lib.rs a.rs"]);
    }

    #[test]
    fn tests_and_comments_import_nothing_and_inline_modules_are_their_file() {
        let a = "#[cfg(test)] mod tests { use crate::b::B; } // use crate::b::B;\n\
                 mod inner { use super::super::c::C; use super::A; use super::b; } struct A; #[cfg(test)] mod b;";
        let files = [("lib.rs", "mod a; mod b; mod c;"), ("a.rs", a), ("b.rs", "pub struct B;"), ("c.rs", "")];
        assert_eq!(imports(&files), ["a.rs c.rs"]);
    }
}
