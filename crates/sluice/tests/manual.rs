//! `sluice manual`: what shells make of its completions. (zsh: `tests/long/packages.sh`.)
#![forbid(unsafe_code)]

mod common;

use std::process::Command;

/// Completes the last of these words as bash does for a tabulator behind it.
const COMPLETE: &str = r#"source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
entry=$(complete -p sluice); function=${entry##*-F }
"${function%% *}" sluice "${@: -1}" "${@: -2:1}"
echo "${COMPREPLY[*]}""#;

#[test]
fn bash_completes_commands_and_options() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sluice");
    std::fs::write(&file, common::sluice(&["manual", "bash"]).stdout).unwrap();
    for (words, expected) in [
        (&["sluice", "cap"][..], "capture"),
        (&["sluice", "run", "--hel"], "--help-config --help"),
        (&["sluice", "manual", "zs"], "zsh"),
    ] {
        let mut bash = Command::new("bash");
        let output = bash.args(["--norc", "-c", COMPLETE, "bash"]).arg(&file).args(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.trim(), expected, "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
