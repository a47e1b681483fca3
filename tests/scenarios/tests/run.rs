//! Every scenario in every setting.

use sluice_scenarios::{Script, Setting, run};
use std::path::Path;

#[test]
fn every_scenario_comes_out_the_same_in_every_setting() {
    let mut failures = Vec::new();
    let mut scenarios = 0;
    let mut files: Vec<_> = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .expect("the scenarios' folder")
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .collect();
    files.sort();
    for file in files {
        let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).expect("a readable scenario");
        let script = Script::parse(&text).unwrap_or_else(|e| panic!("{name}.txt: {e}"));
        scenarios += 1;
        for setting in Setting::ALL.iter().filter(|s| s.suits(&script)) {
            if let Err(e) = run(&script, setting) {
                failures.push(format!("{name}.txt, {}: {e}", setting.name));
            }
        }
    }
    assert!(scenarios > 0, "there are no scenarios");
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}
