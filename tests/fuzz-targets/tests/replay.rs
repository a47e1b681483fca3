//! Every seed and every past crash goes through its target; every crash has its sentence.

use sluice_fuzz_targets::TARGETS;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(name)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<_> = entries.map(|e| e.expect("a readable entry").path()).filter(|p| p.is_file()).collect();
    files.sort();
    files
}

#[test]
fn seeds_pass() {
    for (name, target) in TARGETS {
        let seeds = files(&folder("seeds").join(name));
        assert!(!seeds.is_empty(), "target {name} has no seeds");
        for seed in seeds {
            target(&std::fs::read(seed).expect("a readable seed"));
        }
    }
}

#[test]
fn past_crashes_pass() {
    let sentences = std::fs::read_to_string(folder("crashes/README.md")).expect("fuzz/crashes/README.md");
    for crash in files(&folder("crashes")) {
        let name = crash.file_name().expect("a file has a name").to_string_lossy().into_owned();
        if name == "README.md" {
            continue;
        }
        let found = TARGETS.iter().find(|(target, _)| name.starts_with(&format!("{target}-")));
        let (_, target) = found.unwrap_or_else(|| panic!("crash {name} begins with no target's name"));
        assert!(sentences.contains(&format!("`{name}`")), "crash {name} has no sentence in fuzz/crashes/README.md");
        target(&std::fs::read(&crash).expect("a readable crash"));
    }
}

#[test]
fn every_target_has_its_fuzzer() {
    let fuzzers = files(&folder("src/bin"));
    let mut names: Vec<_> =
        fuzzers.iter().map(|f| f.file_stem().expect("a name").to_string_lossy().into_owned()).collect();
    names.sort();
    let mut targets: Vec<_> = TARGETS.iter().map(|(name, _)| name.to_string()).collect();
    targets.sort();
    assert_eq!(names, targets, "the programs in fuzz/src/bin and TARGETS differ");
}
