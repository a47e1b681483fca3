//! `sluice lab`: the search against a simulated switch of known limit, and what is said when something goes wrong.

use rustix::process::{Pid, Signal};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROFILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/profiles/seed.json");

/// A program that simulates a switch which carries a million packets a second, in whole packets.
const MILLION: &str = r#"sent=$(( {rate} * {seconds} )); most=$(( 1000000 * {seconds} )); got=$(( sent < most ? sent : most ))
echo "{\"sent\": $sent, \"received\": $got}""#;

fn lab(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.arg("lab").args(args).stdin(Stdio::null());
    command
}

/// A search by a shell script, with trials that take no time.
fn search(dir: &Path, more: &[&str], script: &str) -> Command {
    let out = dir.to_str().expect("a path of letters");
    let mut command = lab(&["search", PROFILE, "--sniff", "0", "--warmup", "0", "--granularity", "0.01", "--out", out]);
    command.args(["--max-rate", "16000000"]).args(more).args(["--", "sh", "-c", script]);
    command
}

fn text(out: &Output) -> (String, String) {
    (String::from_utf8_lossy(&out.stdout).into_owned(), String::from_utf8_lossy(&out.stderr).into_owned())
}

/// The rates that a search printed, Mpps.
fn answers(stdout: &str) -> Vec<f64> {
    let rate = |line: &str| line.strip_suffix(" Mpps")?.rsplit(' ').next()?.parse().ok();
    stdout.lines().filter_map(rate).collect()
}

#[test]
fn a_simulated_switch_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let out = search(dir.path(), &[], MILLION).output().unwrap();
    let (stdout, stderr) = text(&out);
    assert!(out.status.success(), "{stderr}");
    let rates = answers(&stdout);
    assert_eq!(rates.len(), 3, "{stdout}");
    for (rate, known) in rates.iter().zip([1.000_02, 1.0, 1.005]) {
        assert!(*rate <= known * 1.001 && *rate >= known * 0.985, "{rate} of {known}\n{stderr}");
    }
    assert!(stderr.lines().filter(|line| line.starts_with("search ")).count() > 5, "a line a trial: {stderr}");
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(page.contains("Loss over rate"));
}

#[test]
fn a_search_says_how_long_it_takes_at_most_and_that_its_maximum_was_reached() {
    let dir = tempfile::tempdir().unwrap();
    let lossless = r#"n=$(( {rate} * {seconds} )); echo "{\"sent\": $n, \"received\": $n}""#;
    let (stdout, stderr) = text(&search(dir.path(), &[], lossless).output().unwrap());
    assert!(stderr.starts_with("a search of ") && stderr.contains(" at most: "), "{stderr}");
    let maximum = "16.0000 Mpps, which is the given maximum: it may carry more (--max-rate)";
    assert_eq!(stdout.matches(maximum).count(), 3, "{stdout}");
}

#[test]
fn a_program_that_dies_or_raves_leaves_a_search_to_go_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let count = dir.path().join("count");
    // The fourth trial fails.
    let counted = |then: &str| {
        let count = count.display();
        format!("echo x >> {count}; if [ $(wc -l < {count}) = 4 ]; then {then}; fi\n{MILLION}")
    };
    for (then, want) in [("echo no link >&2; exit 7", "it said: no link"), ("echo what; exit 0", "printed \"what\\n\"")]
    {
        let _ = std::fs::remove_file(&count);
        let out = search(dir.path(), &[], &counted(then)).output().unwrap();
        let (_, stderr) = text(&out);
        assert_eq!(out.status.code(), Some(1));
        let last = stderr.lines().last().unwrap();
        assert!(last.starts_with("sluice: the trials so far are kept; --resume goes on from there: sh"), "{last}");
        assert!(last.contains(want), "{last}");
        assert!(text(&out).0.contains("loss of at most 0.002 %:  not known yet"), "{out:?}");
        assert!(std::fs::read_to_string(dir.path().join("report.md")).unwrap().contains("stopped before its end"));
        let out = search(dir.path(), &["--resume"], MILLION).output().unwrap();
        let (stdout, stderr) = text(&out);
        assert!(out.status.success() && answers(&stdout).len() == 3, "{stderr}");
        let state = std::fs::read_to_string(dir.path().join("search-state.json")).unwrap();
        let state: serde_json::Value = serde_json::from_str(&state).unwrap();
        let here = stderr.lines().filter(|line| line.contains("Mpps")).count();
        assert_eq!(state["lanes"].as_array().unwrap().len(), here + 3, "three trials were kept");
    }
}

#[test]
fn an_interrupt_leaves_a_search_to_go_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let slow = format!("sleep 0.2\n{MILLION}");
    let child = search(dir.path(), &[], &slow).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let state = dir.path().join("search-state.json");
    wait_for(&state);
    kill(&child);
    let out = child.wait_with_output().unwrap();
    let (_, stderr) = text(&out);
    let last = stderr.lines().last().unwrap();
    assert_eq!(last, "sluice: stopped: the trials so far are kept; --resume goes on from there");
    let out = search(dir.path(), &["--resume"], MILLION).output().unwrap();
    assert_eq!(answers(&text(&out).0).len(), 3);
    let out = search(dir.path(), &["--resume", "--validation", "61"], MILLION).output().unwrap();
    assert!(text(&out).1.contains("of another profile or other numbers"));
}

#[test]
fn an_interrupt_of_the_warm_up_is_no_fault_of_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let started = dir.path().join("started");
    let script = format!("touch {}; sleep 100", started.display());
    let mut command = lab(&["search", PROFILE, "--out", dir.path().to_str().unwrap(), "--", "sh", "-c", &script]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&started);
    kill(&child);
    let (_, stderr) = text(&child.wait_with_output().unwrap());
    let want = "sluice: stopped: the trials so far are kept; --resume goes on from there";
    assert_eq!(stderr.lines().last(), Some(want));
}

/// Runs an experiment until it has printed `lines` points, then interrupts it; the points it kept.
fn interrupted_after(lines: usize, args: &[&str], dir: &Path) -> Vec<serde_json::Value> {
    let mut child = lab(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let points = said.by_ref().filter(|line| line.contains(" subtables: cycles ")).take(lines).count();
    assert_eq!(points, lines, "it ended too early");
    kill(&child);
    let last = said.last();
    assert!(!child.wait().unwrap().success());
    assert_eq!(last.as_deref(), Some("sluice: stopped: what was measured is kept; --resume goes on from there"));
    let record: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(dir.join("scale.json")).unwrap()).unwrap();
    assert_eq!(record["interrupted"], true);
    assert!(std::fs::read_to_string(dir.join("report.md")).unwrap().contains("stopped before its end"));
    record["findings"]["points"].as_array().unwrap().clone()
}

#[test]
fn an_interrupt_leaves_an_experiment_to_go_on_with() {
    let dir = tempfile::tempdir().unwrap();
    // A full run, which takes minutes: it does not end before it is interrupted.
    let args = ["scale", "--out", dir.path().to_str().unwrap()];
    let first = interrupted_after(2, &args, dir.path());
    assert!(first.len() >= 2);
    let resumed = [&args[..], &["--resume"]].concat();
    let second = interrupted_after(first.len() + 1, &resumed, dir.path());
    assert_eq!(first, second[..first.len()], "not measured again");
    assert!(second.len() > first.len());
}

fn kill(child: &Child) {
    rustix::process::kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

fn wait_for(path: &Path) {
    let began = Instant::now();
    while !path.exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "{} did not appear", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_is_wrong_is_said_in_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let profile = dir.path().join("p.json");
    std::fs::write(&profile, r#"{ "streams": [ { "flows": 1, "rate": 1e15, "stream_types": ["measurement"] } ] }"#)
        .unwrap();
    let no_json = dir.path().join("no.json");
    std::fs::write(&no_json, "[switch]\n").unwrap();
    let out = dir.path().to_str().unwrap();
    for (args, want) in [
        (
            vec!["search", profile.to_str().unwrap()],
            "p.json: stream 0: rate: 1000000000000000.0: expected packets a second",
        ),
        (vec!["search", "/nowhere.json"], "/nowhere.json: cannot be read: No such file"),
        (
            vec!["search", no_json.to_str().unwrap()],
            "no.json: expected value at line 1 column 2; expected a traffic profile in JSON, such as examples/profiles/seed.json",
        ),
        (vec!["search", PROFILE, "--granularity", "0", "--out", out], "--granularity 0: expected a share"),
        (vec!["search", PROFILE, "--ports", "af_packet:a", "--out", out], "--ports has 1 ports: expected 2"),
        (vec!["search", PROFILE, "--ports", "a,b", "--out", out], "port a: expected TYPE:DEVICE"),
        (
            vec!["search", PROFILE, "--search", "1e30", "--out", out],
            "--search 1000000000000000000000000000000: expected",
        ),
        (vec!["search", PROFILE, "--warmup", "1e300", "--out", out], ": expected seconds up to a week, 0 for none"),
        (vec!["search", PROFILE, "--granularity", "1e-300", "--out", out], ": expected a share from 0.000001"),
        (
            vec!["search", PROFILE, "--max-rate", "-1", "--out", out],
            "--max-rate -1: expected a rate above --min-rate and at most 1e9",
        ),
        (
            vec!["search", PROFILE, "--loss", "-1", "--out", out],
            "--loss -1: expected shares from 0 up to 1, such as 0.00002",
        ),
        (vec!["search", PROFILE, "--out", "/dev/null/x"], "/dev/null/x: cannot be made: "),
        (vec!["search", PROFILE, "--out", "/proc/self"], "/proc/self/probe: cannot be written: "),
        (vec!["scale", "--out", "/proc/self"], "/proc/self/probe: cannot be written: "),
        (vec!["report", "--out", out], ": expected records of experiments, such as subtables.json"),
        (vec!["nothing", "--out", out], "nothing: expected an experiment (subtables, "),
        (vec!["quik", "--out", out], "search; did you mean quick?"),
        (vec!["search", PROFILE, "--max-rate", "1e12", "--out", out], "--max-rate 1000000000000: expected"),
    ] {
        let out = lab(&args).output().unwrap();
        let (_, stderr) = text(&out);
        assert_eq!(out.status.code(), Some(1), "{args:?}");
        assert!(stderr.lines().last().unwrap().contains(want), "{stderr}\ninstead of {want}");
    }
    let (list, _) = text(&lab(&["list"]).output().unwrap());
    assert!(list.lines().any(|line| line.starts_with("subtables ")), "{list}");
    let lines: Vec<&str> = list.lines().collect();
    for pair in lines.chunks(2) {
        assert!(pair[1].trim_start().starts_with("needs "), "{} does not say what it needs: {list}", pair[0]);
    }
    let peer = lines.iter().position(|line| line.starts_with("peer ")).unwrap();
    assert!(lines[peer + 1].contains("root") && lines[peer + 1].contains("openvswitch-switch-dpdk"), "{list}");
}
