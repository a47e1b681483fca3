//! docs/SUMMARY.md: the guide's chapters are there, and each page of docs is a chapter; links between pages lead somewhere.

use sluice_checks::root;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Pages that are no chapters: the list itself, and the reports, which the results link.
fn is_no_chapter(page: &str) -> bool {
    page == "SUMMARY.md" || page.starts_with("results/2")
}

fn pages_below(dir: &Path, top: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).expect("docs").flatten() {
        let path = entry.path();
        if path.is_dir() {
            pages_below(&path, top, found);
        } else if path.extension().is_some_and(|end| end == "md") {
            found.insert(path.strip_prefix(top).expect("below docs").to_string_lossy().into_owned());
        }
    }
}

/// The targets of links, without what is elsewhere or in code.
fn links(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    let targets = prose.flat_map(|part| part.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
    targets
        .map(|target| target.split('#').next().unwrap_or_default())
        .filter(|t| !t.is_empty() && !t.contains("://"))
        .collect()
}

#[test]
fn each_page_is_a_chapter_and_each_chapter_a_page() {
    let docs = root().join("docs");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).expect("docs/SUMMARY.md");
    let chapters: BTreeSet<String> = links(&summary).into_iter().map(str::to_owned).collect();
    let mut pages = BTreeSet::new();
    pages_below(&docs, &docs, &mut pages);
    pages.retain(|page| !is_no_chapter(page));
    assert_eq!(chapters, pages);
}

#[test]
fn links_lead_to_files_that_are_there() {
    let mut pages: Vec<PathBuf> = vec![root().join("README.md"), root().join("SECURITY.md")];
    let (docs, mut chapters) = (root().join("docs"), BTreeSet::new());
    pages_below(&docs, &docs, &mut chapters);
    pages.extend(chapters.iter().filter(|page| !is_no_chapter(page)).map(|page| docs.join(page)));
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        for link in links(&text) {
            let target = page.parent().expect("a folder").join(link);
            assert!(target.exists(), "{}: {link}", page.display());
        }
    }
}

#[test]
fn the_check_sees_links_and_no_code() {
    assert_eq!(links("[a](b.md#c) ```\n[x](y)\n``` [d](https://e) [f](#g) [h](i)"), ["b.md", "i"]);
}

/// The commands of a switch, and of each the part before the slash.
fn commands() -> (BTreeSet<String>, BTreeSet<String>) {
    let text = std::fs::read_to_string(root().join("crates/sluice/src/manual/commands.txt")).expect("the commands");
    let names: BTreeSet<String> =
        text.lines().filter_map(|line| line.split_once(": ")).map(|(name, _)| name.to_owned()).collect();
    let groups = names.iter().filter_map(|name| name.split_once('/')).map(|(group, _)| group.to_owned()).collect();
    (names, groups)
}

/// What looks like a command of a switch in the code of a page: GROUP/NAME of a group that there is.
fn named_commands<'a>(page: &'a str, groups: &BTreeSet<String>) -> Vec<&'a str> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_/".contains(c);
    // Every second piece between backticks is code; three backticks make an empty piece on each side.
    let words = page.split('`').skip(1).step_by(2).flat_map(|code| code.split_whitespace());
    words
        .map(|word| word.trim_end_matches([',', ';', ')']))
        .filter(|word| word.chars().all(is_of_name))
        .filter(|word| word.split_once('/').is_some_and(|(group, name)| groups.contains(group) && !name.is_empty()))
        .collect()
}

#[test]
fn the_commands_that_the_guide_names_are_there() {
    let ((names, groups), docs) = (commands(), root().join("docs"));
    let mut pages = BTreeSet::new();
    pages_below(&docs, &docs, &mut pages);
    let mut files: Vec<PathBuf> = pages
        .iter()
        .filter(|page| !is_no_chapter(page) && !page.starts_with("reference/"))
        .map(|p| docs.join(p))
        .collect();
    files.push(root().join("README.md"));
    for example in std::fs::read_dir(root().join("examples")).expect("examples").flatten() {
        files.extend(Some(example.path().join("README.md")).filter(|path| path.exists()));
    }
    let mut seen = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a page");
        for command in named_commands(&text, &groups) {
            assert!(names.contains(command), "{}: there is no command {command}", file.display());
            seen += 1;
        }
    }
    assert!(seen > 50, "the guide names {seen} commands");
}

#[test]
fn the_check_sees_commands() {
    let groups = BTreeSet::from(["fdb".to_owned()]);
    let page = "`sluice ctl fdb/show br0`, fdb/none, `fdb/x`;\n```\nctl fdb/flush br0\n```\n`docs/fdb/y` and `fdb/`";
    assert_eq!(named_commands(page, &groups), ["fdb/show", "fdb/x", "fdb/flush"]);
}
