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
