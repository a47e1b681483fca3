//! What is wrong at start is told in one line, with exit code 1.

mod common;

use common::{one_line_failure, sluice};

#[test]
fn a_missing_configuration_is_named() {
    let line = one_line_failure(&sluice(&["run", "/no/such/switch.toml"]));
    assert_eq!(line, "sluice: /no/such/switch.toml: cannot be read: No such file or directory (os error 2)");
}

#[test]
fn an_unknown_key_is_named_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.toml");
    std::fs::write(&file, "[[bridge]]\nname = \"br0\"\ncolour = \"red\"\n").unwrap();
    let line = one_line_failure(&sluice(&["run", file.to_str().unwrap()]));
    assert!(line.contains("s.toml:3: bridge[0].colour: unknown field `colour`, expected one of `name`, "), "{line}");
}

#[test]
fn nobody_listening_is_told() {
    let line = one_line_failure(&sluice(&["ctl", "-t", "/no/such/sluice.ctl", "version"]));
    assert!(line.starts_with("sluice: cannot connect to \"/no/such/sluice.ctl\": "), "{line}");
    assert!(line.ends_with("; is the switch running?"), "{line}");
}

/// What caused an error stands in its line once, not again behind it.
#[test]
fn a_file_that_is_not_there_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let flows = dir.path().join("flows.txt");
    std::fs::write(&flows, "actions=drop\n").unwrap();
    let flows = flows.to_str().unwrap();
    for args in [
        &["replay", "--flows", flows, "--in", "1=/no/such.pcap", "--out-dir", "/no/such"][..],
        &["replay", "--flows", "/no/such.txt", "--in", "1=/no/such.pcap", "--out-dir", "/no/such"],
        &["lab", "search", "/no/such.json"],
        &["ctl", "-t", "/no/such.ctl", "version"],
        &["run", "/no/such.toml"],
    ] {
        let line = one_line_failure(&sluice(args));
        assert_eq!(line.matches("No such file").count(), 1, "{line}");
        assert!(line.contains("/no/such"), "{line}");
    }
}

#[test]
fn help_is_no_error() {
    for args in [
        &["--help"][..],
        &["run", "--help"],
        &["run", "--help-config"],
        &["ctl", "--help"],
        &["replay", "--help"],
        &["--version"],
    ] {
        let output = sluice(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{args:?}");
    }
    assert_eq!(sluice(&[]).status.code(), Some(1));
    assert_eq!(sluice(&["run"]).status.code(), Some(1));
    assert_eq!(sluice(&["fly"]).status.code(), Some(1));
}
