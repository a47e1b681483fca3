//! `unsafe` lives in five crates only, in the files that `ci/unsafe.txt` lists, each use with its reason.

use sluice_checks::{Source, blank, root, sources, words};

/// Whether `path` may have `unsafe`: in `simd`, `mem`, `sync` and `dpdk-sys`, and in the ports' system interfaces.
fn may_have_unsafe(path: &str) -> bool {
    ["simd", "mem", "sync", "dpdk-sys"].iter().any(|of| path.starts_with(&format!("crates/{of}/src/")))
        || path.starts_with("crates/port/") && path.ends_with("/sys.rs")
}

/// The uses of `unsafe` in code, as line numbers from 1.
fn uses(source: &Source) -> Vec<usize> {
    let code = blank(&source.text);
    words(&code).filter(|(_, w)| *w == "unsafe").map(|(at, _)| code[..at].matches('\n').count() + 1).collect()
}

/// Whether the comment that ends right above `line` (from 1) gives a reason. Attributes and lines of the same
/// statement may stand between.
fn has_reason(source: &Source, line: usize) -> bool {
    let lines: Vec<&str> = source.text.lines().collect();
    if lines[line - 1].contains("// SAFETY:") {
        return true;
    }
    let mut above = lines[..line - 1].iter().rev().map(|l| l.trim()).peekable();
    // The head of the statement that the block is part of: up to three lines that end nothing.
    for _ in 0..3 {
        match above.peek() {
            Some(l) if !l.starts_with("//") && !l.ends_with([';', '{', '}']) => above.next(),
            _ => break,
        };
    }
    above
        .take_while(|l| l.starts_with("//") || l.starts_with("#["))
        .any(|l| l.contains("SAFETY:") || l.contains("# Safety"))
}

/// Whether this use of `unsafe` only says that something has a contract, which its `# Safety` section states.
fn is_declaration(source: &Source, line: usize) -> bool {
    let code = blank(&source.text);
    let text = code.lines().nth(line - 1).unwrap_or_default();
    text.contains("unsafe fn") || text.contains("unsafe extern") || text.contains("unsafe trait")
}

#[test]
fn unsafe_lives_in_the_listed_files_only() {
    let found: Vec<String> = sources().iter().filter(|s| !uses(s).is_empty()).map(|s| s.path.clone()).collect();
    for path in &found {
        assert!(may_have_unsafe(path), "{path} uses `unsafe` outside of simd, mem, sync, dpdk-sys and port's sys.rs");
    }
    let listed = std::fs::read_to_string(root().join("ci/unsafe.txt")).expect("ci/unsafe.txt");
    let mut listed: Vec<&str> = listed.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
    listed.sort_unstable();
    assert_eq!(found, listed, "the files with `unsafe` (left) and ci/unsafe.txt (right) differ");
}

#[test]
fn every_unsafe_block_gives_its_reason() {
    let mut bare = Vec::new();
    for source in sources() {
        for line in uses(&source) {
            if !is_declaration(&source, line) && !has_reason(&source, line) {
                bare.push(format!("{}:{line}: no `// SAFETY:` above this `unsafe`", source.path));
            }
        }
    }
    assert!(bare.is_empty(), "{}", bare.join("\n"));
}

#[test]
fn every_other_crate_forbids_unsafe() {
    for source in sources() {
        let Some((folder, file)) = source.path.rsplit_once('/') else { continue };
        let is_root = matches!(file, "lib.rs" | "main.rs") && folder.ends_with("/src");
        if !is_root || source.path.starts_with("fuzz/") {
            continue;
        }
        let code = blank(&source.text);
        // A crate with `unsafe` denies it at its root and allows it at modules.
        let has_unsafe =
            ["simd", "mem", "sync", "dpdk-sys", "port"].iter().any(|of| folder == format!("crates/{of}/src"));
        let fenced = code.contains("#![forbid(unsafe_code)]") || has_unsafe && code.contains("#![deny(unsafe_code)]");
        assert!(fenced, "{} lacks #![forbid(unsafe_code)]", source.path);
    }
}

/// The files of the modules at which `unsafe` is allowed.
fn allowed_files(source: &Source) -> Vec<String> {
    let folder = source.path.trim_end_matches(".rs").trim_end_matches("/lib").trim_end_matches("/mod");
    let mut lines = source.text.lines().map(str::trim);
    let mut files = Vec::new();
    while lines.any(|line| line == "#[allow(unsafe_code)]") {
        let module = lines.next().and_then(|line| line.strip_suffix(';')?.rsplit(' ').next()).unwrap_or("?");
        files.push(format!("{folder}/{module}.rs"));
    }
    files
}

#[test]
fn unsafe_is_allowed_at_the_listed_files_and_not_at_folders() {
    let listed = std::fs::read_to_string(root().join("ci/unsafe.txt")).expect("ci/unsafe.txt");
    let allowed: Vec<String> =
        sources().iter().filter(|s| !s.path.starts_with("tests/")).flat_map(allowed_files).collect();
    let unlisted: Vec<&String> = allowed.iter().filter(|file| !listed.lines().any(|line| line == *file)).collect();
    assert!(
        !allowed.is_empty() && unlisted.is_empty(),
        "`unsafe` is allowed where ci/unsafe.txt lists none: {unlisted:?}"
    );
}

#[test]
fn the_fence_sees_what_it_should() {
    let source = |text: &str| Source { path: "x.rs".into(), text: text.into() };
    let bare = source("// unsafe in a comment\nlet s = \"unsafe\";\nlet x = unsafe { f() };\n");
    assert_eq!(uses(&bare), [3]);
    assert!(!has_reason(&bare, 3));
    let good = source("// SAFETY: `f` has no contract.\nlet x =\n    unsafe { f() };\n");
    assert!(has_reason(&good, uses(&good)[0]));
    assert!(is_declaration(&source("pub unsafe fn f() {}\n"), 1));
    assert!(!may_have_unsafe("crates/port/src/tap.rs"));
    assert!(may_have_unsafe("crates/port/src/tap/sys.rs"));
    assert!(!may_have_unsafe("crates/flow/src/sys.rs"));
}
