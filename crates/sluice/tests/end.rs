//! The end comes in time, and the switch goes on, whatever others do or leave undone.

mod common;

use common::{Daemon, Ended, PMD, bridge, from_generator_to_sink, port, sluice};
use std::io::{PipeReader, PipeWriter, Write};
use std::process::Command;
use std::time::{Duration, Instant};

/// A whole end, with some time for a busy machine.
const END_WITHIN: Duration = Duration::from_millis(2500);

/// A pipe that takes nothing any more: its reader does not read.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    // A pipe takes whole pages: what is left of the last one is not enough for a line.
    let filler = writer.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut filler = filler;
        // Ends with an error when the test drops the reader.
        while filler.write_all(&[b'x'; 4096]).is_ok() {}
    });
    std::thread::sleep(Duration::from_millis(300));
    writer.flush().unwrap();
    (reader, writer)
}

/// Sends SIGTERM; the end and how long it took.
fn terminate(daemon: Daemon) -> (Ended, Duration) {
    let began = Instant::now();
    let ended = daemon.signal("TERM");
    (ended, began.elapsed())
}

#[test]
fn an_output_that_nobody_reads_stops_nothing() {
    let (_reader, writer) = full_pipe();
    let log = writer.try_clone().unwrap();
    let config = PMD.replace("cores = [0]", "cores = [0]\nstop-after = \"300s\"")
        + "[[bridge]]\nname = \"br0\"\n"
        + &port("p1", 1, "null", "");
    // The log goes to the same pipe.
    let daemon = Daemon::start_writing_to(&config, writer, log);
    daemon.ctl(&["bridge/add-flow", "br0", "table=3,hard_timeout=1,actions=drop"]);
    // The main thread removes the rule, while it has a line for standard output each second.
    daemon.wait_for(&["bridge/dump-flows", "br0"], |flows| !flows.contains("table_id=3"));
    let (ended, took) = terminate(daemon);
    assert_eq!(ended.code, Some(0));
    assert!(took < END_WITHIN, "{took:?}");
}

/// A command that never ends: it reads rules from a pipe into which nothing is written.
fn with_a_command_that_hangs() -> Daemon {
    let config = PMD.to_owned() + &bridge("br0", "f") + &port("p1", 1, "null", "");
    let daemon = Daemon::start_with(&config, &[("f", "")]);
    let rules = daemon.dir.path().join("f");
    std::fs::remove_file(&rules).unwrap();
    assert!(Command::new("mkfifo").arg(&rules).status().unwrap().success());
    let socket = daemon.socket();
    std::thread::spawn(move || sluice(&["ctl", "-t", socket.to_str().unwrap(), "sluice/reload"]));
    // Returns when the switch has opened it for reading. It is never closed, so the command waits for its first line.
    std::mem::forget(std::fs::File::options().write(true).open(&rules).unwrap());
    daemon
}

#[test]
fn the_end_waits_two_seconds_for_a_command_that_hangs() {
    let (ended, took) = terminate(with_a_command_that_hangs());
    assert!(took < END_WITHIN, "{took:?}");
    assert!(ended.log.contains("ending: SIGTERM"), "{}", ended.log);
}

#[test]
fn a_command_that_hangs_is_told() {
    let daemon = with_a_command_that_hangs();
    daemon.wait_for_log(" s for thread ctl-conn in sluice/reload");
    let log = daemon.log();
    let waited = log
        .lines()
        .find_map(|line| line.split_once("waited ")?.1.split_once(" s for thread ctl-conn in sluice/reload"));
    assert!(waited.is_some_and(|(seconds, _)| seconds.parse::<u64>().unwrap() >= 2), "{log}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let daemon = with_a_command_that_hangs();
    daemon.send_signal("TERM");
    // Two signals before the first is taken count as one.
    daemon.wait_for_log("ending: SIGTERM");
    let (ended, took) = terminate(daemon);
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(ended.code, None, "it dies by the signal: {}", ended.log);
}

#[test]
fn a_switch_that_is_busy_ends_in_time() {
    let config = from_generator_to_sink("flows = 100000, choice = \"uniform\"");
    let daemon = Daemon::start_with(&config, &[("flows.txt", "udp,actions=output:2\n")]);
    daemon.wait_for(&["coverage/read-counter", "sent"], |n| n.trim().parse::<u64>().unwrap() > 1000);
    let (ended, took) = terminate(daemon);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert!(took < END_WITHIN, "{took:?}");
}

#[test]
fn many_rules_and_megaflows_do_not_make_the_end_late() {
    const RULES: usize = 300_000;
    let config = from_generator_to_sink("flows = 50000, choice = \"sequential\"");
    let rule = |n: usize| format!("tcp,nw_dst=10.{}.{}.{},actions=drop\n", n >> 16, n >> 8 & 255, n & 255);
    let rules: String = (1..RULES).map(rule).chain(["priority=1,udp,actions=output:2\n".to_owned()]).collect();
    let daemon = Daemon::start_with(&config, &[("flows.txt", &rules)]);
    daemon.wait_for(&["coverage/read-counter", "upcalls"], |n| n.trim().parse::<u64>().unwrap() > 20_000);
    let (ended, took) = terminate(daemon);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert!(took < END_WITHIN, "{took:?}");
    // The orderly end has done all it does, and shows the number of what it does not show.
    assert!(!ended.log.contains("ending at once"), "{}", ended.log);
    let more = format!("… and {} more rules: bridge/dump-flows br0 lists them", RULES - 100);
    assert!(ended.stdout.contains(&more) && ended.stdout.contains("\nmegaflows: "), "{}", ended.stdout);
    assert!(ended.stdout.lines().count() < 400, "{}", ended.stdout.lines().count());
}
